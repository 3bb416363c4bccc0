"""Worker threads over a real ledger: effects once, failures told, budgets kept, stops clean, kills survived."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from memos.core.clock import SystemClock
from memos.core.settings import TaskSettings
from memos.core.types import WHOLE, Task, TaskState
from memos.errors import BackendUnavailable, InvalidInput, ModelError
from memos.memcube.ledger import queues as usage
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tasks
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.queues import Spending
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.runner import Limits, Runner
from memos.scheduler.task import Job, LeaseLost, RetryLater, TaskRun, WaitingForSetting
from tests.support import forks
from tests.support.ledgers import Store

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(sqlite_url(tmp_path / "ledger.db"))
    yield opened
    opened.close()


def put(ledger: Ledger, *new: NewTask) -> list[str]:
    with ledger.write() as connection:
        return tasks.enqueue(connection, WHOLE, new, datetime.now(UTC))


def get(ledger: Ledger, task_id: str) -> Task:
    with ledger.read() as connection:
        return tasks.get(connection, task_id)


def note(connection: sa.Connection, key: str) -> None:
    """Leave an effect; a second one of the same name is refused by the table."""
    connection.execute(sa.insert(t.meta).values(key=key, value="done"))


def notes(ledger: Ledger) -> set[str]:
    with ledger.read() as connection:
        return set(connection.scalars(sa.select(t.meta.c.key).where(t.meta.c.value == "done")))


@contextmanager
def running(
    ledger: Ledger, *jobs: Job, busy: Callable[[], bool] = lambda: False, **settings: object
) -> Iterator[Runner]:
    given: dict[str, Any] = {"workers": 1, **settings}
    fast: dict[str, Any] = {"backoff_s": 0.05, "backoff_max_s": 0.2, "stop_s": 30}
    limits = fast | {name: given.pop(name) for name in Limits.__slots__ if name in given}
    runner = Runner(ledger, SystemClock(), TaskSettings.model_validate(given), Limits(**limits), busy, busy_share=1)
    runner.register(jobs)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def ended(ledger: Ledger, task_id: str) -> Task:
    until(lambda: get(ledger, task_id).ended)
    return get(ledger, task_id)


def test_the_effect_and_the_end_of_a_task_are_one(ledger: Ledger) -> None:
    def job(run: TaskRun) -> None:
        run.check_cancelled(0.5)
        with run.finishing() as connection:
            note(connection, "effect")

    with running(ledger, Job("work", job)) as runner:
        [task_id] = put(ledger, NewTask("work"))
        runner.wake()
        assert ended(ledger, task_id).state is TaskState.DONE
    assert notes(ledger) == {"effect"}


def test_a_thread_rests_nine_times_as_long_as_it_worked_while_people_wait(ledger: Ledger) -> None:
    spans: list[tuple[float, float]] = []

    def job(_: TaskRun) -> None:
        began = time.monotonic()
        time.sleep(0.05)
        spans.append((began, time.monotonic()))

    with running(ledger, Job("work", job), busy=lambda: True) as runner:
        found = put(ledger, NewTask("work"), NewTask("work"))
        runner.wake()
        assert all(ended(ledger, task_id).state is TaskState.DONE for task_id in found)
    assert spans[1][0] - spans[0][1] >= 9 * 0.05


def test_waiting_for_a_model_takes_no_rest(ledger: Ledger) -> None:
    def job(run: TaskRun) -> None:
        run.spend(1, 10, 10)
        time.sleep(0.3)

    with running(ledger, Job("work", job), busy=lambda: True) as runner:
        began = time.monotonic()
        [_, last] = put(ledger, NewTask("work", {"n": 1}), NewTask("work", {"n": 2}))
        runner.wake()
        assert ended(ledger, last).state is TaskState.DONE
        assert time.monotonic() - began < 0.3 * 9


def test_a_rest_ends_when_nobody_waits_any_more(ledger: Ledger) -> None:
    waiting = iter([True, True])
    with running(ledger, Job("work", lambda _: time.sleep(0.4)), busy=lambda: next(waiting, False)) as runner:
        began = time.monotonic()
        found = put(ledger, NewTask("work"), NewTask("work"))
        runner.wake()
        assert all(ended(ledger, task_id).state is TaskState.DONE for task_id in found)
    assert time.monotonic() - began < 0.8 + 9 * 0.4


def test_a_task_taken_away_while_it_runs_keeps_nothing(ledger: Ledger) -> None:
    lost: list[bool] = []

    def job(run: TaskRun) -> None:
        with ledger.write() as connection:
            tasks.cancel(connection, run.task, datetime.now(UTC))
        try:
            with run.finishing() as connection:
                note(connection, "effect")
        except LeaseLost:
            lost.append(True)
            raise

    with running(ledger, Job("work", job)):
        [task_id] = put(ledger, NewTask("work"))
        assert ended(ledger, task_id).state is TaskState.CANCELLED
        until(lambda: bool(lost))
    assert notes(ledger) == set()


def test_a_blocked_task_waits_with_its_note_until_it_is_let_go(ledger: Ledger) -> None:
    ready = threading.Event()

    def job(run: TaskRun) -> None:
        if not ready.is_set():
            raise WaitingForSetting("set something")
        with run.finishing() as connection:
            note(connection, "effect")

    with running(ledger, Job("work", job), max_attempts=1) as runner:
        [task_id] = put(ledger, NewTask("work", key="k"))
        runner.wake()
        until(lambda: get(ledger, task_id).note is not None)
        blocked = get(ledger, task_id)
        assert (blocked.state, blocked.note, blocked.attempts) == (TaskState.WAITING, "set something", 0)
        with ledger.read() as connection:
            assert tasks.unended(connection, None) == 0
        ready.set()
        with ledger.write() as connection:
            assert tasks.unblock(connection, "other", datetime.now(UTC)) == 0
            assert tasks.unblock(connection, "work", datetime.now(UTC)) == 1
        runner.wake()
        assert ended(ledger, task_id).state is TaskState.DONE
    assert notes(ledger) == {"effect"}


@pytest.mark.parametrize("permanent", [True, False])
def test_what_failed_for_good_is_told_in_the_same_transaction(ledger: Ledger, permanent: bool) -> None:
    def job(_: TaskRun) -> None:
        raise ModelError("no", permanent=permanent)

    def failed(connection: sa.Connection, task: Task, error: str) -> None:
        note(connection, f"{task.attempts} {error}")

    with running(ledger, Job("work", job, failed=failed), max_attempts=2):
        [task_id] = put(ledger, NewTask("work"))
        ended(ledger, task_id)
    assert notes(ledger) == {f"{1 if permanent else 2} ModelError: no"}


def test_what_its_workers_died_of_is_told_too(ledger: Ledger) -> None:
    def failed(connection: sa.Connection, task: Task, error: str) -> None:
        note(connection, error)

    [task_id] = put(ledger, NewTask("work"))
    long_ago = datetime.now(UTC) - timedelta(days=1)
    with ledger.write() as connection:
        tasks.take(connection, tasks.Lease("gone", long_ago), datetime.now(UTC), {"work": 1.0})
    runner = Runner(ledger, SystemClock(), TaskSettings(), Limits(max_attempts=1))
    runner.register([Job("work", lambda _: None, failed=failed)])
    runner.keep_leases()
    assert get(ledger, task_id).state is TaskState.DEAD
    assert notes(ledger) == {"its workers stopped while running it"}


def test_an_effect_that_fails_leaves_the_task_to_be_tried_again(ledger: Ledger) -> None:
    tries: list[int] = []

    def job(run: TaskRun) -> None:
        tries.append(run.task.attempts)
        with run.finishing() as connection:
            note(connection, f"effect {len(tries)}")
            if len(tries) < 3:
                raise BackendUnavailable("the store was away")

    with running(ledger, Job("work", job)):
        [task_id] = put(ledger, NewTask("work"))
        done = ended(ledger, task_id)
    assert (done.state, done.attempts, tries) == (TaskState.DONE, 3, [1, 2, 3])
    assert done.error is None
    assert notes(ledger) == {"effect 3"}


@pytest.mark.parametrize(
    ("error", "state", "attempts"),
    [
        (BackendUnavailable("the store is away"), TaskState.DEAD, 3),
        (ModelError("no sense"), TaskState.DEAD, 3),
        (ModelError("too long", permanent=True), TaskState.FAILED, 1),
        (BackendUnavailable("wrong key", permanent=True), TaskState.FAILED, 1),
        (InvalidInput("payload", "is wrong"), TaskState.FAILED, 1),
    ],
)
def test_what_may_pass_is_tried_again_and_what_will_not_is_told(
    ledger: Ledger, error: Exception, state: TaskState, attempts: int
) -> None:
    def job(run: TaskRun) -> None:
        raise error

    with running(ledger, Job("work", job), max_attempts=3):
        [task_id] = put(ledger, NewTask("work"))
        end = ended(ledger, task_id)
    assert (end.state, end.attempts) == (state, attempts)
    assert str(error) in (end.error or "")


def test_an_unforeseen_error_is_told_by_its_name_alone(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    def job(run: TaskRun) -> None:
        raise KeyError("my password is tulip")

    with caplog.at_level(logging.CRITICAL), running(ledger, Job("work", job), max_attempts=2):
        [task_id] = put(ledger, NewTask("work"))
        end = ended(ledger, task_id)
        assert put(ledger, NewTask("work")) != [task_id]  # the worker lives
        until(lambda: tasks_ended(ledger) == 2)
    assert (end.state, end.attempts) == (TaskState.DEAD, 2)
    assert "KeyError" in (end.error or "")
    assert "tulip" not in (end.error or "")


def tasks_ended(ledger: Ledger) -> int:
    with ledger.read() as connection:
        return sum(count for state, count in tasks.counts(connection, None).items() if state in (*ENDED_BADLY, "done"))


ENDED_BADLY = (TaskState.DEAD, TaskState.FAILED)


def test_a_stop_gives_back_what_runs_and_counts_no_attempt(ledger: Ledger) -> None:
    begun = threading.Event()

    def job(run: TaskRun) -> None:
        begun.set()
        while True:
            run.check_cancelled(0.3)
            time.sleep(0.01)

    with running(ledger, Job("work", job)):
        [task_id] = put(ledger, NewTask("work"))
        assert begun.wait(LIMIT_S)
    task = get(ledger, task_id)
    assert (task.state, task.attempts, task.lease_owner) == (TaskState.WAITING, 0, None)
    assert task.seconds > 0


def test_a_task_whose_model_closes_with_the_program_waits_for_the_next_one(ledger: Ledger) -> None:
    begun, runner = threading.Event(), []

    def job(_: TaskRun) -> None:
        begun.set()
        while not runner[0]._stop.is_set():
            time.sleep(0.01)
        raise BackendUnavailable("This program is closing.", permanent=True)

    with running(ledger, Job("work", job)) as running_one:
        runner.append(running_one)
        [task_id] = put(ledger, NewTask("work"))
        assert begun.wait(LIMIT_S)
    task = get(ledger, task_id)
    assert (task.state, task.attempts, task.error) == (TaskState.WAITING, 0, None)


def test_a_job_that_does_not_end_in_time_loses_its_lease_at_the_stop(ledger: Ledger) -> None:
    begun, go, ends = threading.Event(), threading.Event(), []

    def job(run: TaskRun) -> None:
        begun.set()
        assert go.wait(LIMIT_S)
        try:
            with run.finishing() as connection:
                note(connection, "late")
        except LeaseLost:
            ends.append("lost")
            raise

    with running(ledger, Job("work", job), stop_s=0.1):
        [task_id] = put(ledger, NewTask("work"))
        assert begun.wait(LIMIT_S)
    assert get(ledger, task_id).state is TaskState.WAITING
    go.set()
    until(lambda: bool(ends))
    assert notes(ledger) == set()


def test_a_lease_is_renewed_while_the_task_runs_and_tells_its_progress(ledger: Ledger) -> None:
    go = threading.Event()

    def job(run: TaskRun) -> None:
        run.check_cancelled(0.25)
        assert go.wait(LIMIT_S)

    with running(ledger, Job("work", job), lease_s=1):
        [task_id] = put(ledger, NewTask("work"))
        until(lambda: get(ledger, task_id).state is TaskState.RUNNING)
        first = get(ledger, task_id).lease_until
        assert first is not None
        until(lambda: (get(ledger, task_id).lease_until or first) > first + timedelta(seconds=1))
        assert get(ledger, task_id).progress == 0.25
        go.set()
        assert ended(ledger, task_id).attempts == 1


def test_over_budget_a_cubes_tasks_wait_for_tomorrow_and_say_so(ledger: Ledger) -> None:
    ran: list[str] = []

    def model(run: TaskRun) -> None:
        run.check_budget()
        run.spend(1, 60, 10)
        ran.append(run.task.id)

    def two_calls(run: TaskRun) -> None:
        model(run)
        run.check_budget()
        raise AssertionError("over budget, and went on")

    free = Job("upkeep", lambda run: ran.append(run.task.id), budgeted=False)
    with running(ledger, Job("model", model), Job("two", two_calls), free, tokens_per_day=100):
        first = put(ledger, NewTask("model"))[0]
        assert ended(ledger, first).tokens == 70
        second, third = put(ledger, NewTask("two", priority=1), NewTask("model"))
        until(lambda: "budget" in (get(ledger, third).note or ""))
        until(lambda: "budget" in (get(ledger, second).note or ""))
        upkeep = put(ledger, NewTask("upkeep"))[0]
        assert ended(ledger, upkeep).state is TaskState.DONE
    assert ran == [first, second, upkeep]
    for task_id in (second, third):
        task = get(ledger, task_id)
        assert (task.state, task.attempts) == (TaskState.WAITING, 0)
        assert task.not_before == usage.next_day(datetime.now(UTC))
    with ledger.read() as connection:
        spent = usage.today(connection, WHOLE, datetime.now(UTC))
    assert (spent.calls, spent.tokens) == (2, 140)
    assert spent.seconds > 0


def test_a_busy_cube_does_not_keep_the_others_waiting(ledger: Ledger) -> None:
    order: list[str] = []
    with ledger.write() as connection:
        tasks.enqueue(connection, "busy", [NewTask("work")] * 400, datetime.now(UTC))
    with running(ledger, Job("work", lambda run: order.append(run.task.cube)), workers=2) as runner:
        until(lambda: len(order) > 20)
        for number in range(20):
            with ledger.write() as connection:
                tasks.enqueue(connection, f"small{number}", [NewTask("work")], datetime.now(UTC))
        runner.wake()
        until(lambda: len(set(order)) == 21)
        assert len(order) < 400


WORKER = """
import sys, time, random
from datetime import UTC, datetime
from pathlib import Path
import sqlalchemy as sa
from memos.core.clock import SystemClock
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.scheduler.runner import Limits, Runner
from memos.scheduler.task import Job
from memos.core.settings import TaskSettings

def job(run):
    time.sleep(random.random() * 0.02)
    run.check_cancelled()
    with run.finishing() as connection:
        # No key stands in the way of doing it twice: the count tells.
        connection.execute(sa.update(t.meta).where(t.meta.c.key == "count").values(
            value=sa.cast(sa.cast(t.meta.c.value, sa.Integer) + 1, sa.String)))
        connection.execute(sa.insert(t.meta).values(key=run.task.id, value="effect"))

limits = Limits(lease_s=1, max_attempts=1000, skew_s=0)
runner = Runner(Ledger.open(sys.argv[1]), SystemClock(), TaskSettings(workers=2), limits, busy_share=1)
runner.register([Job("work", job)])
runner.start()
print("at work", flush=True)
time.sleep(600)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_killed_workers_lose_no_task_and_double_no_effect(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = sqlite_url(tmp_path / "ledger.db")
    if database == "postgresql":
        url = request.getfixturevalue("postgres_server").url()
    chance, total = Random(3), 400
    ledger = Ledger.open(url)
    request.addfinalizer(ledger.close)
    with ledger.write() as connection:
        connection.execute(sa.insert(t.meta).values(key="count", value="0"))
    for cube in range(4):
        Store(ledger).make(f"c{cube}")
        with ledger.write() as connection:
            tasks.enqueue(connection, f"c{cube}", [NewTask("work")] * (total // 4), datetime.now(UTC))
    count = 2 if database == "postgresql" else 1  # SQLite's own process holds the folder

    def done() -> bool:
        with ledger.read() as connection:
            return tasks.unended(connection, None) == 0

    kills = 0
    while not done():
        assert kills < 200
        workers = [forks.Script(WORKER, url) for _ in range(count)]
        for worker in workers:
            assert worker.stdout.readline() == "at work\n"
        deadline = time.monotonic() + (chance.uniform(0.1, 0.8) if kills < 8 else 30)
        while time.monotonic() < deadline and not done():
            time.sleep(0.02)
        for worker in workers:
            with worker:
                worker.kill()
            kills += 1
    with ledger.read() as connection:
        assert tasks.counts(connection, None) == {TaskState.DONE: total}
        values = dict(connection.execute(sa.select(t.meta.c.key, t.meta.c.value)).all())
    assert int(values["count"]) == total
    assert sum(value == "effect" for value in values.values()) == total
    assert kills >= 4


def test_an_attempt_that_was_cancelled_takes_nothing_from_the_next_one(ledger: Ledger) -> None:
    begun, go, ends = threading.Event(), threading.Event(), []

    def job(run: TaskRun) -> None:
        if not begun.is_set():
            begun.set()
            assert go.wait(LIMIT_S)
            try:
                with run.finishing() as connection:
                    note(connection, "first")
            except LeaseLost:
                ends.append("first lost")
                raise
        with run.finishing() as connection:
            note(connection, "second")

    with running(ledger, Job("work", job), workers=2) as runner:
        [task_id] = put(ledger, NewTask("work"))
        assert begun.wait(LIMIT_S)
        with ledger.write() as connection:
            tasks.cancel(connection, get(ledger, task_id), datetime.now(UTC))
        with ledger.write() as connection:
            tasks.retry(connection, get(ledger, task_id), datetime.now(UTC))
        runner.wake()
        assert ended(ledger, task_id).state is TaskState.DONE
        go.set()
        until(lambda: bool(ends))
    assert notes(ledger) == {"second"}
    assert get(ledger, task_id).state is TaskState.DONE


def test_a_task_that_may_take_hours_leaves_the_only_worker_to_others(ledger: Ledger) -> None:
    go, most, at_once = threading.Event(), [0], [0]

    def slow(_: TaskRun) -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        assert go.wait(LIMIT_S)
        at_once[0] -= 1

    with running(ledger, Job("slow", slow, exclusive_thread=True), Job("quick", lambda _: None)) as runner:
        slow_ones = put(ledger, NewTask("slow"), NewTask("slow"))
        runner.wake()
        until(lambda: at_once[0] > 0)
        [quick] = put(ledger, NewTask("quick"))
        runner.wake()
        assert ended(ledger, quick).state is TaskState.DONE
        assert not any(get(ledger, task_id).ended for task_id in slow_ones)
        go.set()
        assert all(ended(ledger, task_id).state is TaskState.DONE for task_id in slow_ones)
    assert most == [1]


def test_a_stop_ends_what_runs_apart_and_gives_it_back(ledger: Ledger) -> None:
    begun = threading.Event()

    def slow(run: TaskRun) -> None:
        begun.set()
        while True:
            run.check_cancelled()
            time.sleep(0.01)

    with running(ledger, Job("slow", slow, exclusive_thread=True)) as runner:
        [task_id] = put(ledger, NewTask("slow"))
        runner.wake()
        assert begun.wait(LIMIT_S)
    given_back = get(ledger, task_id)
    assert (given_back.state, given_back.attempts) == (TaskState.WAITING, 0)


def test_what_runs_apart_spends_nothing_of_its_cubes_budget(ledger: Ledger) -> None:
    jobs = (
        Job("slow", lambda _: time.sleep(0.05), budgeted=False, exclusive_thread=True),
        Job("quick", lambda _: None),
    )
    began = datetime.now(UTC)
    with ledger.write() as connection:
        usage.add(connection, WHOLE, "slow", began, Spending(prompt_tokens=50))
    with running(ledger, *jobs, tokens_per_day=40) as runner:
        [slow] = put(ledger, NewTask("slow"))
        runner.wake()
        assert ended(ledger, slow).seconds >= 0.05
        [quick] = put(ledger, NewTask("quick"))
        runner.wake()
        assert ended(ledger, quick).state is TaskState.DONE
    with ledger.read() as connection:
        days = (began, datetime.now(UTC))  # midnight may have been between
        assert max(usage.seconds_today(connection, "slow", day) for day in days) >= 0.05


def test_a_task_for_later_says_why_and_counts_no_attempt_and_one_that_is_done_may_say_what_came_of_it(
    ledger: Ledger,
) -> None:
    until_then = datetime.now(UTC) + timedelta(hours=1)

    def job(run: TaskRun) -> None:
        if run.task.payload.get("later"):
            raise RetryLater(until_then, "it is day")
        run.note = "nothing to do"

    with running(ledger, Job("work", job), max_attempts=1) as runner:
        late, early = put(ledger, NewTask("work", {"later": True}), NewTask("work"))
        runner.wake()
        assert ended(ledger, early).note == "nothing to do"
        until(lambda: get(ledger, late).note is not None)
        waiting = get(ledger, late)
    assert (waiting.state, waiting.attempts, waiting.note) == (TaskState.WAITING, 0, "it is day")
    assert waiting.not_before == until_then
