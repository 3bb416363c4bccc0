"""Adapters trained by tasks and by themselves in the nights: ended with their task, repeated for nothing, told why."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.core.settings import (
    ChatSettings,
    IndexSettings,
    LimitSettings,
    ParametricSettings,
    TaskSettings,
    UpkeepSettings,
)
from memos.core.types import Task, TaskState
from memos.errors import BackendUnavailable, Conflict, NotFound, PermissionDenied
from memos.kernel import memos as kernel
from memos.kernel.adapters import training as trainings
from memos.kernel.adapters.training import AdapterTraining
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import tasks
from memos.memcube.ledger.adapters import LEARN
from memos.memcube.ledger.tasks import NewTask
from memos.memcube.parametric import training
from memos.memcube.parametric.training import Bounds
from memos.scheduler.rules import TierSettings
from memos.scheduler.scheduler import LEARNING, periodic_jobs
from tests.fakes import FixedClock, HeldClock, WordEmbedder
from tests.models.test_adapters import (
    ANY,
    LIMIT_S,
    answered_by,
    facts,
    folders,
    learn_by,
    model,
    short_examination,
    until,
)

__all__ = ["model", "short_examination"]  # fixtures; where the extra `local` is missing, all here is skipped with them

SAID = ("I live in Lyon.", "My phone is a Pixel 9.", "My car is a red Skoda.", "My dentist is Doctor Weiss.")
NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
RECIPE: dict[str, Any] = {"epochs": 1, "batch": 4, "learning_rate": 1e-2}
SETTINGS = Settings(
    index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), tasks=TaskSettings(workers=1),
    heat=TierSettings(idle_hours=0), parametric=ParametricSettings(night="02:00-05:00"),
)  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with facts that were told at noon."""
    home = tmp_path_factory.mktemp("told") / "home"
    with MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder(), clock=FixedClock(NOON)) as memos:
        memos._scheduler.periodic.stop()
        for text in SAID:
            memos.add(text, mode="fine")
        memos.tasks.wait(timeout_s=LIMIT_S)
        assert {item.confidence >= 0.9 for item in facts(memos).values()} == {True}
        assert len(facts(memos)) == len(SAID)
    return home


class Installation:
    """An installation whose clock is held; periodic tasks run when a test says so."""

    def __init__(self, home: Path, model: Path) -> None:
        self.clock = HeldClock(NOON + timedelta(minutes=30))
        self._home, self._model = home, model
        self.memos = self.opened()

    def opened(self, *, model: bool = True, new_facts: int = 1, **changed: Any) -> MemOS:
        chat = ChatSettings(model=f"local:{self._model}", max_tokens=40) if model else ChatSettings()
        settings = SETTINGS.model_copy(update={"chat_model": chat, **changed})
        parametric = settings.parametric.model_copy(update={"recipe": RECIPE})
        settings = settings.model_copy(update={"parametric": parametric})
        quick = partial(AdapterTraining, bounds=ANY, least_new=new_facts)
        with pytest.MonkeyPatch.context() as patch:  # a task that waited begins before anybody can say how
            patch.setattr(kernel, "AdapterTraining", quick)
            self.memos = MemOS.open(self._home, settings=settings, embedder=WordEmbedder(), clock=self.clock)
        self.memos._scheduler.periodic.stop()
        return self.memos

    def again(self, **options: Any) -> MemOS:
        self.memos.close()
        return self.opened(**options)

    def heat(self, *texts: str) -> None:
        """Have these facts used so much that they are learned."""
        known = facts(self.memos)
        for _ in range(4):
            self.memos.tiers.used([known[text].id for text in texts or known], confirmed=True)
        self.memos._scheduler.accesses.flush()

    def night(self) -> None:
        """Let it become the next night."""
        now = self.clock.now()
        start = now.replace(hour=2, minute=30, second=0)
        self.clock.advance(start - now if start > now else start + DAY - now)

    def look(self) -> None:
        """Run the chore, and what it enqueued to its end or until it waits for another night."""
        with self.memos.ledger.write() as connection:
            [task] = tasks.enqueue(connection, "", [NewTask(LEARNING, key="by hand")], self.memos.clock.now())
        self.memos._scheduler.runner.wake()
        self.memos.tasks.wait(task, timeout_s=LIMIT_S)
        # Not by its note, which may be of the day before, when what was forgotten asked for a training;
        # and a little later than now it may be due at once, as the ledger gives no moment twice.
        another_night = self.clock.now() + timedelta(hours=1)
        until(lambda: all(task.ended or task.not_before > another_night for task in self.learning()))

    def learning(self) -> list[Task]:
        return self.memos.tasks.list(kinds=[LEARN])

    def plans(self) -> list[dict[str, Any]]:
        return [event.body for event in self.memos.events.list(kinds=["plan_learning"])]


@pytest.fixture
def here(tmp_path: Path, told: Path, model: Path) -> Iterator[Installation]:
    """Facts that were told eight days ago and are hot."""
    shutil.copytree(told, tmp_path / "home")
    made = Installation(tmp_path / "home", model)
    made.clock.advance(8 * DAY)
    made.heat()
    made.memos.adapters.allow()
    yield made
    made.memos.close()


def waited(memos: MemOS, task: str) -> Task:
    memos.tasks.wait(task, timeout_s=LIMIT_S)
    return memos.tasks.get(task)


def test_a_task_trains_and_the_same_again_is_for_nothing(here: Installation) -> None:
    memos = here.memos
    task = waited(memos, memos.adapters.submit())
    [made] = memos.adapters.list()
    assert (task.state, task.progress, task.note) == (TaskState.DONE, 1.0, f"adapter {made.id} is active")
    assert answered_by(memos) == made.id
    # As after a kill between the end of the training and that of its task.
    again = waited(memos, memos.adapters.submit())
    assert (again.state, again.note) == (TaskState.DONE, f"adapter {made.id} is active")
    assert [each.id for each in memos.adapters.list()] == [made.id]
    assert len(memos.events.list(kinds=["learn"])) == 1
    learn_by(memos, bounds=Bounds(), recipe=replace(memos.adapters.training.recipe, seed=6))
    refused = waited(memos, memos.adapters.submit())
    assert refused.state is TaskState.DONE
    assert "was refused: recall is" in str(refused.note)
    assert answered_by(memos) == made.id
    # What answers nothing for its files is no reason to train nothing.
    learn_by(memos, bounds=ANY, recipe=replace(memos.adapters.training.recipe, seed=5))
    assert memos.home is not None
    (memos.home / "adapters" / made.id / "adapter_model.safetensors").write_bytes(b"harmed")
    waited(memos, memos.adapters.submit())
    [newest, *_] = memos.adapters.list()
    assert (newest.state, newest.id == made.id) == ("active", False)


def test_who_may_not_or_cannot_train_is_told_at_once(here: Installation) -> None:
    memos = here.memos
    memos.adapters.disallow()
    with pytest.raises(Conflict, match="not allowed"):
        memos.adapters.submit()
    memos.adapters.allow()
    memos.cubes.create("empty")
    memos.adapters.allow("empty")
    with pytest.raises(Conflict, match="ready for training"):
        memos.adapters.submit("empty")
    with pytest.raises(NotFound):
        memos.adapters.submit("none")
    memos.users.create("eve")
    with pytest.raises((NotFound, PermissionDenied)):
        memos.adapters.submit(actor="eve")
    assert here.learning() == []
    memos = here.again(model=False)
    with pytest.raises(BackendUnavailable, match="No model to train"):
        memos.adapters.submit()


def test_without_consent_a_task_fails_for_good(here: Installation) -> None:
    memos = here.memos
    memos.adapters.disallow()
    with memos.ledger.write() as connection:
        [task] = tasks.enqueue(connection, "default", [adapter_rows.learn_task()], memos.clock.now())
    failed = waited(memos, task)
    assert (failed.state, failed.attempts) == (TaskState.FAILED, 1)
    assert "is not allowed" in str(failed.error)


def test_a_training_that_finds_no_memory_is_tried_again(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise BackendUnavailable("no memory")

    monkeypatch.setattr(training, "train", none)
    task = here.memos.adapters.submit()
    until(lambda: here.memos.tasks.get(task).error is not None)
    waiting = here.memos.tasks.get(task)
    assert "no memory" in str(waiting.error)
    assert waiting.state in (TaskState.WAITING, TaskState.RUNNING)


@pytest.mark.parametrize("when", ["between steps", "in one step", "examined"])
def test_who_cancels_the_task_ends_the_training_and_other_tasks_go_on_beside_it(
    here: Installation, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memos = here.memos
    if when == "examined":
        real = training.Examination.measures

        def endless(*given: Any) -> Any:
            while True:
                real(*given)

        monkeypatch.setattr(training.Examination, "measures", endless)
    else:
        learn_by(memos, recipe=replace(memos.adapters.training.recipe, epochs=10_000))
        monkeypatch.setattr(training, "_STEPS_AT_ONCE", 1 if when == "between steps" else 1_000_000)
    task = memos.adapters.submit()
    until(lambda: any(row.state == "training" for row in memos.adapters.list()))
    if when == "examined":
        until(lambda: _run_of(memos, task).progress > 0.89)
    memos.kv.compose()
    until(lambda: {each.state for each in memos.tasks.list(kinds=["compose"])} == {TaskState.DONE})
    assert memos.tasks.get(task).state is TaskState.RUNNING
    memos.tasks.cancel(task)
    until(lambda: not memos.adapters.training._one.locked())  # it has no end of its own
    assert memos.tasks.get(task).state is TaskState.CANCELLED
    assert [each.state for each in memos.adapters.list()] == ["training"]
    assert answered_by(memos) is None


def _run_of(memos: MemOS, task: str) -> Any:
    [run] = [run for run in memos._scheduler.runner._running.values() if run.task.id == task]
    return run


def test_who_cancels_at_the_last_moment_gets_no_adapter(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    memos, save, cancelled = here.memos, training.save, []

    def save_and_cancel(*given: Any) -> Any:
        done = save(*given)
        memos.tasks.cancel(task)
        cancelled.append(task)
        return done

    monkeypatch.setattr(training, "save", save_and_cancel)
    monkeypatch.setattr("memos.kernel.adapters.training._WATCH_S", 600)  # too late to be noticed before the end
    task = memos.adapters.submit()
    until(lambda: bool(cancelled) and not memos.adapters.training._one.locked())
    assert memos.tasks.get(task).state is TaskState.CANCELLED
    assert [each.state for each in memos.adapters.list()] == ["training"]


def test_a_program_that_ends_gives_the_task_back_and_the_next_one_goes_on(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_KEEP_EVERY_S", 0.0)
    memos, train, steps = here.memos, trainings.training.train, list[int]()
    kept = threading.Event()

    def slow(trainer: Any, lessons: Any, folder: Path, tell: Callable[[int, int], None]) -> Any:
        def told(step: int, of: int) -> None:
            tell(step, of)
            while step >= 4:
                kept.set()
                time.sleep(0.01)
                tell(step, of)

        return train(trainer, lessons, folder, told)

    monkeypatch.setattr(training, "train", slow)
    task = memos.adapters.submit()
    until(kept.is_set)
    memos.close()
    assert not memos.adapters.training._one.locked()  # it has ended, and was not left alone
    memos = here.again(model=False)
    until(lambda: memos.tasks.get(task).note is not None)
    blocked = memos.tasks.get(task)
    assert (blocked.state, blocked.attempts) == (TaskState.WAITING, 0)
    assert "MEMOS_CHAT_MODEL__MODEL" in str(blocked.note)

    def watched(trainer: Any, lessons: Any, folder: Path, tell: Callable[[int, int], None]) -> Any:
        return train(trainer, lessons, folder, lambda step, of: (steps.append(step), tell(step, of)))

    monkeypatch.setattr(training, "train", watched)
    memos = here.again()
    assert waited(memos, task).state is TaskState.DONE
    assert steps[0] >= 2
    assert [(each.number, each.state) for each in memos.adapters.list()] == [(1, "active")]


def test_nothing_is_trained_by_itself_by_day_or_unless_that_is_wanted(here: Installation) -> None:
    here.look()
    assert here.learning() == here.plans() == []
    here.night()
    here.memos.adapters.disallow()
    here.look()
    assert here.learning() == here.plans() == []
    here.memos.adapters.allow()
    here.again(parametric=ParametricSettings())
    here.look()
    assert here.learning() == here.plans() == []
    assert LEARNING not in {chore.kind for chore in here.memos._scheduler.periodic._chores}
    assert LEARNING in {chore.kind for chore in here.again()._scheduler.periodic._chores}
    here.again(new_facts=5)
    here.look()
    assert here.learning() == here.plans() == []  # four are not enough
    assert LEARNING not in {chore.kind for chore in periodic_jobs(UpkeepSettings())}


def test_a_base_beside_an_endpoint_is_learned_too(here: Installation) -> None:
    here.memos.adapters.disallow()
    memos = here.again(model=False)
    with memos.ledger.write() as connection:
        [task] = tasks.enqueue(connection, "default", [adapter_rows.learn_task()], memos.clock.now())
    until(lambda: memos.tasks.get(task).note is not None)
    memos = here.again(model=False, parametric=ParametricSettings(night="02:00-05:00", base=str(here._model)))
    assert LEARNING in {chore.kind for chore in memos._scheduler.periodic._chores}
    assert "is not allowed" in str(waited(memos, task).error)  # it was blocked, and began


def test_who_asks_for_a_training_does_not_wait_for_the_night(here: Installation) -> None:
    memos = here.memos
    with memos.ledger.write() as connection:
        [late] = tasks.enqueue(connection, "default", [adapter_rows.learn_task({"night": True})], memos.clock.now())
    until(lambda: memos.tasks.get(late).note is not None)
    waiting = memos.tasks.get(late)
    assert (waiting.state, waiting.attempts, waiting.not_before.hour) == (TaskState.WAITING, 0, 2)
    memos.tasks.wait(timeout_s=30)  # for all that begins soon, which is nothing
    by_hand = memos.adapters.submit()
    assert memos.tasks.get(late).state is TaskState.CANCELLED
    assert waited(memos, by_hand).state is TaskState.DONE


def test_a_training_of_the_night_stops_at_its_end(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    train = training.train

    def until_morning(trainer: Any, lessons: Any, folder: Path, tell: Callable[[int, int], None]) -> Any:
        here.clock.advance(timedelta(hours=3))
        return train(trainer, lessons, folder, tell)

    monkeypatch.setattr(training, "train", until_morning)
    here.night()
    here.look()
    [task] = here.learning()
    assert (task.state, task.attempts, task.not_before.hour) == (TaskState.WAITING, 0, 2)
    assert "next night" in str(task.note)
    monkeypatch.setattr(training, "train", train)
    here.night()
    assert waited(here.memos, task.id).state is TaskState.DONE
    assert [each.state for each in here.memos.adapters.list()] == ["active"]


def test_what_was_refused_is_not_trained_again_every_night(here: Installation) -> None:
    learn_by(here.memos, bounds=Bounds())
    here.night()
    here.look()
    assert [each.state for each in here.memos.adapters.list()] == ["refused"]
    here.night()
    here.look()
    assert len(here.plans()) == len(here.learning()) == 1


def test_what_failed_is_planned_again_in_the_next_night(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise PermissionDenied("never")

    monkeypatch.setattr(trainings.AdapterTraining, "train_by_consent", never)
    for nights in (1, 2):
        here.night()
        for _ in range(2):
            here.look()
            here.clock.advance(timedelta(minutes=30))
        assert [task.state for task in here.learning()] == [TaskState.FAILED] * nights


def test_with_nothing_left_to_learn_what_is_stale_is_removed(here: Installation) -> None:
    memos = here.memos
    made = memos.adapters.train()
    memos.delete([item.id for item in facts(memos).values()])
    assert [each.stale for each in memos.adapters.list()] == [True]
    here.night()
    here.look()
    assert memos.adapters.list() == here.learning() == []
    assert folders(memos) == set()
    [told] = [event.body for event in memos.events.list(kinds=["unlearn"])]
    assert told == {"adapters": [made.id], "stale": [made.id]}


@pytest.mark.parametrize("erased", [True, False])
@pytest.mark.parametrize("night", ["02:00-05:00", None])
def test_the_others_are_learned_again_without_what_was_forgotten(
    here: Installation, erased: bool, night: str | None
) -> None:
    memos = here.again(parametric=ParametricSettings(night=night), new_facts=8)
    first, home = memos.adapters.train(), facts(memos)["I live in Lyon."]
    assert answered_by(memos) == first.id
    if erased:
        receipt = memos.erase(home.id)
        assert receipt.removed["adapters"] == 1
        assert receipt.removed["adapter_files"] >= 5
        assert receipt.removed["adapter_bytes"] > 10_000
        assert memos.memories.erase_receipt(receipt.id).removed == receipt.removed
        [told] = [event.body for event in memos.events.list(kinds=["erase"])]
        assert told["adapters"] == [first.id]
    else:
        assert memos.adapters.forget(home.id).adapters == (first.id,)
    assert memos.adapters.list() == []
    here.night()
    if night is None:
        assert here.learning() == here.plans() == []
        return
    here.look()
    assert [(task.state, task.note) for task in here.learning() if task.state is not TaskState.DONE] == []
    [second] = memos.adapters.list()
    with memos.ledger.read() as connection:
        seen = {each.item for each in adapter_rows.seen(connection, second.id)}
    assert (answered_by(memos), len(seen), home.id in seen) == (second.id, 3, False)
    assert [plan["why"] for plan in here.plans()] == ["forgotten"]


def test_after_each_training_one_that_answered_before_stays_to_go_back_to(here: Installation) -> None:
    memos = here.memos

    def train(seed: int) -> str:
        learn_by(memos, bounds=ANY, recipe=replace(memos.adapters.training.recipe, seed=seed))
        return memos.adapters.train().id

    first, second, third = train(1), train(2), train(3)
    assert [each.id for each in memos.adapters.list()] == [third, second]
    assert folders(memos) == {third, second}
    assert memos.adapters.activate(second).id == second
    fourth = train(4)
    assert folders(memos) == {fourth, second}  # nobody goes back to what was not good enough
    assert memos.adapters.activate(second).id == second == answered_by(memos)
    told = [event.body for event in memos.events.list(kinds=["unlearn"])]
    assert told == [{"adapters": [first], "stale": []}, {"adapters": [third], "stale": []}]


def test_a_fact_goes_through_all_three_forms_and_back(here: Installation) -> None:
    """From plaintext to activation, to parametric, out of it when it changes, and not into the next when it is cold."""
    memos, known = here.memos, facts(here.memos)
    home, phone = known["I live in Lyon."], known["My phone is a Pixel 9."]
    assert home.memory in {hit.item.memory for hit in memos.search("Where do I live?").hits}
    memos.tasks.wait(memos.kv.compose(), timeout_s=LIMIT_S)
    assert {entry.item for entry in memos.kv.show().entries} == {item.id for item in known.values()}
    assert answered_by(memos) is None

    here.night()
    here.look()
    [first] = memos.adapters.list()
    everything = sorted(item.id for item in known.values())
    assert answered_by(memos) == first.id
    assert here.plans()[-1] == {"task": here.learning()[-1].id, "why": "new"}

    here.clock.advance(timedelta(hours=12))
    memos.update(home.id, "I live in Porto.", value="Porto")
    assert answered_by(memos) is None  # at once, in the transaction that changed it
    assert "Porto" in memos.kv.show().text
    here.look()
    assert len(here.plans()) == 1  # by day nothing is trained
    here.night()
    here.look()
    [second] = memos.adapters.list()
    assert answered_by(memos) == second.id
    assert folders(memos) == {second.id}
    assert here.plans()[-1]["why"] == "stale"
    with memos.ledger.read() as connection:
        assert home.id not in {each.item for each in adapter_rows.seen(connection, second.id)}

    here.clock.advance(200 * DAY)
    here.heat(*(text for text in facts(memos) if text != phone.memory))
    here.night()
    here.look()
    third, retired = memos.adapters.list()
    assert (third.state, retired.state, retired.id) == ("active", "retired", second.id)
    assert here.plans()[-1]["why"] == "new"
    with memos.ledger.read() as connection:
        seen = {each.item: each.version for each in adapter_rows.seen(connection, third.id)}
    assert seen == {id_: (2 if id_ == home.id else 1) for id_ in everything if id_ != phone.id}
    assert phone.memory in {hit.item.memory for hit in memos.search("Which phone do I have?").hits}  # as ever
    assert folders(memos) == {second.id, third.id}
    assert {task.state for task in here.learning()} == {TaskState.DONE}  # those of long ago are listed no more
