"""Train a cube's adapter on its hot and stable memories, evaluate it, and activate it if it passes.

A training is recorded in the ledger before it writes any file; an interrupted one resumes from there.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.lora import LoraRecipe, told_recipe, unwritten, wrong_with
from memos.core.settings import ChatSettings, Settings
from memos.core.time_windows import TimeWindow
from memos.core.types import Item, ItemType, Json, Scope, Status, TaskState
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound, PermissionDenied
from memos.kernel.adapters.serving import RunningTrainings
from memos.kernel.chat.prompts import SYSTEM
from memos.kernel.context import Context
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import cubes, items, tasks
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import AdapterRow, AdapterState, NewAdapter, Outcome, Seen
from memos.memcube.ledger.tasks import TaskQuery
from memos.memcube.parametric import training
from memos.memcube.parametric.quiz import KnownFact
from memos.memcube.parametric.selection import LeftOut, Selected, Stable, select
from memos.memcube.parametric.training import Bounds, EvaluationResult, TrainerProcess, TrainingPlan
from memos.scheduler.heat import Warmth
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.rules import CubeRules
from memos.scheduler.scheduler import LEARNING
from memos.scheduler.task import Job, RetryLater, TaskRun, WaitingForSetting

_KINDS = (ItemType.USER, ItemType.PREFERENCE)  # the types of memories in training sets
_MOST_CONSIDERED = 5_000
# Pending items are not in training sets, but are read because the facts that they contradict are left out too.
_CONSIDERED = (Status.ACTIVE, Status.PENDING)
_CHECK_EVERY = 8  # steps between checks that no memory of the training set was changed or erased
_UNWANTED = (
    "Memories in the training were changed, deleted or excluded, so its result was discarded. Train again on the rest."
)

_WATCH_S = 0.25
_TRAINING_SHARE = 0.9  # of a task's progress; the rest is the evaluation
_RETRY_AFTER = timedelta(seconds=30)

_LAST = TaskQuery((TaskState.DONE, TaskState.FAILED, TaskState.DEAD), (adapter_rows.LEARN,), limit=1)
_UNENDED = TaskQuery((TaskState.WAITING, TaskState.RUNNING), (adapter_rows.LEARN,))

Progress = Callable[[int, int], None]
Memories = frozenset[tuple[str, int]]  # ids and versions


class NoEligibleFacts(Conflict):
    """No memory of the cube qualifies for training."""


class TrainingInProgress(Conflict):
    """Another adapter is being trained in this process."""


@dataclass(frozen=True, slots=True)
class TrainingCallbacks:
    """Callbacks of one training.

    `progress` is called with the steps done and in total, and may raise to stop. `ending` is given a function that
    kills the trainer from any thread, and returns a context that is open during the training. `check` is called in the
    transaction that stores the result, and may raise to discard it.
    """

    progress: Progress = lambda *_: None
    ending: Callable[[Callable[[], None]], AbstractContextManager[object]] = lambda _: nullcontext()
    check: Callable[[sa.Connection], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class AdapterTraining:
    """Trains adapters, one at a time, in `folder`, which is None if this process has no folder for them.

    `forget` removes the files of adapters that were removed, and the KV computed with them in the given cubes. The file
    `remembered` caches digests of model weights. A training set has at most `most` memories, the hottest; with
    `least_new` new ones a cube is trained again automatically. `keep` seals the files of an encrypted installation.
    """

    context: Context
    settings: Settings
    folder: Path | None
    forget: Callable[[Collection[str]], object]
    trainings: RunningTrainings
    new_trainer: Callable[[], TrainerProcess]
    remembered: Path | None = None
    bounds: Bounds = field(default_factory=Bounds)
    recipe: LoraRecipe = field(default_factory=LoraRecipe)
    most: int = 64
    least_new: int = 8
    keep: Callable[[], None] = lambda: None
    _one: threading.Lock = field(default_factory=threading.Lock)

    def train(self, cube: str, actor: str, on_progress: Progress | None = None) -> AdapterRow:
        """Return the adapter trained, or the active one if it is up to date. Raises: as `AdapterService.train`."""
        callbacks = TrainingCallbacks() if on_progress is None else TrainingCallbacks(on_progress)
        return self._learn(lambda: self._owned(cube, actor), callbacks)

    def train_by_consent(self, cube: str, callbacks: TrainingCallbacks) -> AdapterRow:
        """Train on behalf of the owner. Raises: as `AdapterService.train`; NoEligibleFacts, TrainingInProgress."""
        return self._learn(lambda: Scope(ACTOR, (cube,), right=Right.OWN), callbacks)

    def check_ready(self, cube: str, actor: str) -> Scope:
        """Return the scope of a cube if an adapter could be trained now. Raises: as `AdapterService.train`."""
        scope = self._owned(cube, actor)
        self.check_able()
        self._facts(*scope.cubes)
        return scope

    def check_able(self) -> None:
        self._model()
        self._folder()

    def selected(self, connection: sa.Connection, cube: str) -> Selected:
        """Return the training set of a cube: the stable ones of its hottest facts, in order of id."""
        now = self.context.clock.now()
        rules = CubeRules(self.settings.heat).of(connection, cube)
        warmth = t.warmth.c
        query = (
            sa.select(t.items.c.id, t.items.c.pinned, warmth.level, warmth.visits, warmth.interactions, warmth.last)
            .join(t.versions, t.versions.c.id == t.items.c.version_id)
            .outerjoin(t.warmth, warmth.item_id == t.items.c.id)
            .where(t.items.c.cube_id == cube, t.versions.c.status.in_(_CONSIDERED), t.versions.c.type.in_(_KINDS))
            .where(t.items.c.expires_at.is_(None))  # its erasure would take the adapter along
            .order_by(t.items.c.pinned.desc(), warmth.level.desc().nulls_last(), t.items.c.id)
            .limit(_MOST_CONSIDERED)
        )
        heats: dict[str, float | None] = {}
        for row in connection.execute(query):
            if row.pinned:
                heats[row.id] = None
            elif row.level is None:
                heats[row.id] = 0.0
            else:
                heats[row.id] = rules.policy.heat(Warmth(row.level, row.visits, row.interactions, row.last), now)
        states = items.with_sources(connection, [cube], list(heats))
        unchanged = timedelta(days=self.settings.parametric.stable_days)
        stable = Stable(rules.thresholds.promote_above, unchanged, self.most)
        memories: list[tuple[Item, float | None]] = [(state, heats[id_]) for id_, state in states.items()]
        return select(memories, stable, now, adapter_rows.excluded(connection, cube))

    def left_out(self, connection: sa.Connection, cube: str, chosen: Selected) -> dict[LeftOut, int]:
        others = _count(connection, cube, t.versions.c.status == Status.ACTIVE, t.versions.c.type.not_in(_KINDS))
        considered = (t.versions.c.status.in_(_CONSIDERED), t.items.c.expires_at.is_(None))
        there = _count(connection, cube, *considered, t.versions.c.type.in_(_KINDS))
        beyond = chosen.left_out.get(LeftOut.BEYOND, 0) + max(0, there - _MOST_CONSIDERED)
        counts = {**chosen.left_out, LeftOut.KIND: others, LeftOut.BEYOND: beyond}
        return {reason: count for reason, count in sorted(counts.items()) if count}

    def why_due(self, connection: sa.Connection, cube: str) -> str | None:
        """Return why a cube should be trained automatically, `stale` or `new`; None if it should not.

        After a refusal this is only when the recipe changed, or at least `least_new` memories of the training set.
        """
        model = self.settings.learning_model
        rows = [row for row in adapter_rows.of(connection, cube) if model is not None and row.model == model.model]
        stale = {row.id for row in adapter_rows.stale(connection, cube)}
        active = [row for row in rows if row.state is AdapterState.ACTIVE]
        chosen = memories_of(self.selected(connection, cube).facts)
        served = [seen_by(connection, row) for row in active if row.id not in stale]
        is_stale = any(row.id in stale for row in active)
        if not is_stale and len(chosen.difference(*served)) < self.least_new:
            return None
        tried = [row for row in rows if row.failed_here or row.state in adapter_rows.TRAINED][:1]
        refused = [row for row in tried if row.failed_here and row.recipe == told_recipe(self.recipe)]
        if any(len(chosen ^ seen_by(connection, row)) < self.least_new for row in refused):
            return None
        return "stale" if is_stale else "new"

    @contextmanager
    def alone(self) -> Iterator[None]:
        if not self._one.acquire(blocking=False):
            raise TrainingInProgress(
                "Another adapter is being trained here, and one training uses all processors; wait until it ends."
            )
        try:
            yield
        finally:
            self._one.release()

    def examined(
        self,
        trainer: TrainerProcess,
        row: AdapterRow,
        measure: Callable[[], EvaluationResult],
        scope: Callable[[], Scope],
        check: Callable[[sa.Connection], object] = lambda _: None,
        *,
        arrived: bool = False,
    ) -> AdapterRow:
        """Evaluate the trainer's adapter with `measure`, store the result, and activate the adapter if it passes.

        An adapter that `arrived` is not activated. `check` is called in the transaction that stores the result. Raises:
        Conflict (a memory changed), BackendUnavailable (a full disk), and as `measure` and `check`.
        """
        folder = self._folder() / row.id
        with self.trainings.running(row.id, trainer.kill):
            with self.context.ledger.read() as connection:  # an erasure after this finds the registered training
                self._check_wanted(connection, row, arrived=arrived)
            try:
                folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
                outcome = self._outcome(trainer, measure(), row, arrived=arrived)
            except OSError as error:
                raise unwritten(error.strerror or error) from error
            with self.context.change(scope()) as change:
                check(change.connection)
                self._check_wanted(change.connection, row, arrived=arrived)
                done = adapter_rows.finish(change.connection, row.id, outcome, change.now)
                passed = done.state is AdapterState.READY
                body: dict[str, Json] = {"adapter": row.id, "number": row.number, "passed": passed}
                body |= {"arrived": True} if arrived else {} if passed else {"why": done.reason}
                changes.record(change, "learn", body)
                removed: list[str] = []
                if not arrived:
                    answered = adapter_rows.active(change.connection, row.cube)
                    done = activated(change, row.id) if passed else done
                    removed = pruned(change, answered)
            if done.state is AdapterState.REFUSED:
                shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # removed at the next opening instead
                (folder / training.KEPT).unlink(missing_ok=True)
            self.keep()
            self._forget_removed(row.cube, removed)
        return done

    def throw_away(self, row: AdapterRow) -> None:
        with self.context.ledger.write() as connection:
            adapter_rows.remove(connection, row.id)
        # What cannot be removed now is removed by the next erasure or opening.
        shutil.rmtree(self._folder() / row.id, ignore_errors=True)

    def _learn(self, scope: Callable[[], Scope], callbacks: TrainingCallbacks) -> AdapterRow:
        [cube] = scope().cubes
        model, folder = self._model(), self._folder()
        with self.alone():
            facts = self._facts(cube)
            with self.new_trainer() as trainer, callbacks.ending(trainer.kill):
                trainer.open(str(model.local), self.recipe, remembered=self.remembered)
                if (known := self._up_to_date(cube, facts, trainer.base, folder)) is not None:
                    with self.context.change(scope()) as change:
                        removed = pruned(change)
                    self._forget_removed(cube, removed)
                    return known
                lessons = self._training_plan(cube, facts, trainer)
                told = told_recipe(self.recipe)
                new = NewAdapter(cube, str(model.model), trainer.base, told, lessons.data_hash)
                row = self._start_row(new, facts)

                def measure() -> EvaluationResult:
                    return training.train(trainer, lessons, folder / row.id, partial(self._report_step, callbacks, row))

                try:
                    return self.examined(trainer, row, measure, scope, callbacks.check)
                except Exception as error:  # raised again, as a Conflict if a memory was changed or erased
                    if self._is_unwanted(row):
                        self.throw_away(row)
                        raise Conflict(_UNWANTED) from error
                    raise

    def _facts(self, cube: str) -> tuple[KnownFact, ...]:
        with self.context.ledger.read() as connection:
            check_allowed(connection, cube)
            chosen = self.selected(connection, cube)
        if not chosen.facts:
            raise NoEligibleFacts(f"Nothing in cube {cube!r} is ready for training. {_left_out_text(chosen)}")
        return chosen.facts

    def _up_to_date(self, cube: str, facts: Sequence[KnownFact], base: str, folder: Path) -> AdapterRow | None:
        """Return the active adapter if it was trained on all these facts with this recipe, and its files are intact."""
        with self.context.ledger.read() as connection:
            row = adapter_rows.serving(connection, cube, base)
            if row is None or dict(row.recipe) != told_recipe(self.recipe):
                return None
            if not memories_of(facts) <= seen_by(connection, row):
                return None
        return None if wrong_with(folder / row.id, row.digest) else row

    def _training_plan(self, cube: str, facts: Sequence[KnownFact], trainer: TrainerProcess) -> TrainingPlan:
        """Return the plan of an interrupted training, which cannot be reproduced exactly, or else a new one."""
        recipe, seed = told_recipe(self.recipe), self.recipe.seed
        with self.context.ledger.read() as connection:
            rows = [row for row in adapter_rows.of(connection, cube) if row.state is AdapterState.TRAINING]
            ended = [
                row
                for row in rows
                if (row.base, row.recipe) == (trainer.base, recipe) and seen_by(connection, row) == memories_of(facts)
            ]
        for row in ended:
            if kept := training.kept_lessons(self._folder() / row.id, row.data_hash, facts, SYSTEM, seed):
                return kept
        return training.lessons_of(trainer, facts, SYSTEM, seed)

    def _start_row(self, new: NewAdapter, facts: Sequence[KnownFact]) -> AdapterRow:
        """Return the row of an interrupted training with the same data, or register a new one."""
        with self.context.ledger.write() as connection:
            cubes.lock(connection, new.cube)  # before any row, as everywhere
            for row in adapter_rows.of(connection, new.cube):
                if row.state is AdapterState.TRAINING:
                    if (row.base, row.data_hash, row.recipe) == (new.base, new.data_hash, new.recipe):
                        return row
                    adapter_rows.remove(connection, row.id)
            new = replace(new, parent=adapter_rows.active(connection, new.cube))
            row = adapter_rows.begin(connection, new, seen_of(facts), self.context.clock.now())
        self.forget(())  # the files of removed rows
        return row

    def _report_step(self, callbacks: TrainingCallbacks, row: AdapterRow, step: int, steps: int) -> None:
        callbacks.progress(step, steps)
        self.context.lifecycle.check_open()
        if step % _CHECK_EVERY < 2:
            with self.context.ledger.read() as connection:
                self._check_wanted(connection, row)

    def _outcome(
        self, trainer: TrainerProcess, measures: EvaluationResult, row: AdapterRow, *, arrived: bool
    ) -> Outcome:
        """Return the outcome of an evaluation; write the files of an adapter that passed. Raises: OSError."""
        told = training.told_measures(measures)
        noted: dict[str, Json] = {**told, adapter_rows.ARRIVED: True} if arrived else told
        if failures := measures.failures(self.bounds):
            return Outcome(AdapterState.REFUSED, noted, reason="; ".join(failures))
        with self.context.ledger.read() as connection:
            manifest = _manifest(connection, row, told)
        digest, size = training.save(trainer, self._folder() / row.id, manifest)
        return Outcome(AdapterState.READY, noted, digest, size)

    def _forget_removed(self, cube: str, removed: Sequence[str]) -> None:
        if removed:
            with suppress(BackendUnavailable):  # orphaned files are removed by the next erasure or opening
                self.forget([cube])

    def _is_unwanted(self, row: AdapterRow) -> bool:
        """Return True if a memory of the training set was changed or removed; False if that is unknown."""
        try:
            self.context.lifecycle.check_open()
            with self.context.ledger.read() as connection:
                return is_outdated(connection, row)
        except BackendUnavailable:
            return False

    def _check_wanted(self, connection: sa.Connection, row: AdapterRow, *, arrived: bool = False) -> None:
        if is_outdated(connection, row):
            raise Conflict("memories they were trained on were changed or removed meanwhile" if arrived else _UNWANTED)
        if not arrived:  # imported adapters need consent only to be activated
            check_allowed(connection, row.cube)

    def _owned(self, cube: str, actor: str) -> Scope:
        return self.context.scopes.check([cube], actor, embeds=False, right=Right.OWN)

    def _model(self) -> ChatSettings:
        if (model := self.settings.learning_model) is None:
            raise BackendUnavailable(
                "No model to train is configured. Set MEMOS_CHAT_MODEL__MODEL to local:PATH, or set "
                "MEMOS_PARAMETRIC__BASE, for the process that opens this installation, and restart it "
                "(docs/concepts/parametric.md).",
                permanent=True,
            )
        return model

    def _folder(self) -> Path:
        if self.folder is None:
            raise InvalidInput("folder", "is required: training needs an installation in a folder")
        return self.folder


@dataclass(frozen=True, slots=True)
class LearningTasks:
    """Trains adapters in background tasks, on request and at night; `wake` notifies the workers of a new task."""

    training: Callable[[], AdapterTraining]
    wake: Callable[[], None]

    def submit(self, cube: str, actor: str) -> str:
        training = self.training()
        scope = training.check_ready(cube, actor)
        with training.context.change(scope) as change:
            check_allowed(change.connection, change.cube)
            for task in tasks.find(change.connection, [change.cube], _UNENDED):
                if task.state is TaskState.WAITING and adapter_rows.OF_NIGHT in task.payload:
                    tasks.cancel(change.connection, task, change.now)  # replaced by one that starts at once
            [task_id] = tasks.enqueue(change.connection, change.cube, [adapter_rows.learn_task()], change.now)
        self.wake()
        return task_id

    def jobs(self) -> list[Job]:
        train = Job(adapter_rows.LEARN, self._learn, budgeted=False, exclusive_thread=True)
        return [train, Job(LEARNING, self._plan_trainings, budgeted=False)]

    def _learn(self, run: TaskRun) -> None:
        training, cube = self.training(), run.task.cube
        try:
            training.check_able()
        except (BackendUnavailable, InvalidInput) as error:
            raise WaitingForSetting(str(error)) from error
        if adapter_rows.OF_NIGHT in run.task.payload and self._night is None:
            run.note = "automatic training was switched off (MEMOS_PARAMETRIC__NIGHT)"
            return
        self._check_hours(run)

        def tell(step: int, steps: int) -> None:
            run.check_cancelled(_TRAINING_SHARE * (step / max(1, steps)))
            self._check_hours(run)

        try:
            callbacks = TrainingCallbacks(tell, partial(_killed_with, run), run.check_held)
            row = training.train_by_consent(cube, callbacks)
        except TrainingInProgress as error:
            raise RetryLater(run.clock.now() + _RETRY_AFTER, str(error)) from error
        except NoEligibleFacts as error:
            run.note = str(error)
            return
        except Conflict as error:
            with training.context.ledger.read() as connection:
                if not adapter_rows.is_allowed(connection, cube):
                    raise PermissionDenied(str(error)) from error  # not retried
            raise
        except BackendUnavailable:
            run.check_cancelled()  # the trainer was killed because the program stops, or the task was cancelled
            raise
        run.note = _told(row)

    def _plan_trainings(self, run: TaskRun) -> None:
        night = self._night
        ends = None if night is None else night.end(run.clock.now())
        if night is None or ends is None:
            return
        with run.ledger.read() as connection:
            cubes = adapter_rows.allowed(connection)
        for place, cube in enumerate(cubes):
            run.check_cancelled(place / len(cubes))
            with suppress(NotFound):  # dropped meanwhile
                self._plan(cube, ends - night.length)

    def _plan(self, cube: str, since: datetime) -> None:
        training = self.training()
        with training.context.ledger.read() as connection:
            if tasks.find(connection, [cube], _UNENDED) or _failed(connection, cube, since):
                return
            why = training.why_due(connection, cube)
            chosen = training.selected(connection, cube).facts
        if why is None:
            return
        with training.context.change(Scope(ACTOR, (cube,), right=Right.OWN)) as change:
            if not adapter_rows.is_allowed(change.connection, cube):
                return
            if chosen:
                new = adapter_rows.learn_task({adapter_rows.OF_NIGHT: True, "why": why})
                [task] = tasks.enqueue(change.connection, cube, [new], change.now)
                changes.record(change, "plan_learning", {"task": task, "why": why})
                removed = []
            else:
                removed = pruned(change)
        if removed:
            training.forget([cube])
        self.wake()

    @property
    def _night(self) -> TimeWindow | None:
        hours = self.training().settings.parametric.night
        return None if hours is None else TimeWindow.read(hours)

    def _check_hours(self, run: TaskRun) -> None:
        night, now = self._night, run.clock.now()
        if night is not None and adapter_rows.OF_NIGHT in run.task.payload and night.end(now) is None:
            raise RetryLater(night.next(now), "it continues next night (MEMOS_PARAMETRIC__NIGHT)")


@contextmanager
def _killed_with(run: TaskRun, kill: Callable[[], None]) -> Iterator[None]:
    """Kill a training soon after the program stops or the task's lease is lost, even in the middle of a step."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_S):
            # If the ledger is unavailable the lease is assumed to be held.
            with suppress(MemosError), run.ledger.read() as connection:
                run.lost = run.lost or not tasks.is_held(connection, run.task.id, run.owner)
            if run.lost or run.stopping.is_set():
                kill()
                return

    thread = threading.Thread(target=watch, name="memos-learn-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _failed(connection: sa.Connection, cube: str, since: datetime) -> bool:
    """Return True if a cube's last completed training ran at night and failed after `since`."""
    for task in tasks.find(connection, [cube], _LAST):
        failed = task.state is not TaskState.DONE and adapter_rows.OF_NIGHT in task.payload
        return failed and task.finished_at is not None and task.finished_at >= since
    return False


def _told(row: AdapterRow) -> str:
    if row.state is AdapterState.REFUSED:
        return f"adapter {row.id} was refused: {row.reason}"
    return f"adapter {row.id} is {row.state}"


def seen_of(facts: Sequence[KnownFact]) -> list[Seen]:
    return [Seen(fact.item, fact.version, hashlib.sha256(fact.memory.encode()).hexdigest()) for fact in facts]


def memories_of(facts: Sequence[KnownFact]) -> Memories:
    return frozenset((fact.item, fact.version) for fact in facts)


def seen_by(connection: sa.Connection, row: AdapterRow) -> Memories:
    return frozenset((each.item, each.version) for each in adapter_rows.seen(connection, row.id))


def activated(change: Change, id_: str) -> AdapterRow:
    row = adapter_rows.activate(change.connection, id_)
    changes.record(change, "activate_adapter", {"adapter": id_, "number": row.number})
    return row


def pruned(change: Change, answered: str | None = None) -> list[str]:
    """Remove the adapters of a cube that are no longer needed; return their ids. The caller removes the files.

    These are stale adapters, which can never be activated again, and all retired and refused ones except one of each:
    the newest, or `answered`, which was active until now.
    """
    outdated = adapter_rows.outdated(change.connection, [change.cube])
    stale = {row.id for row in outdated if row.state is not AdapterState.REFUSED}
    kept: set[AdapterState] = set()
    removed = []
    for row in sorted(adapter_rows.of(change.connection, change.cube), key=lambda row: row.id != answered):
        if row.id in stale or row.state in kept:
            adapter_rows.remove(change.connection, row.id)
            removed.append(row.id)
        elif row.state in (AdapterState.RETIRED, AdapterState.REFUSED):
            kept.add(row.state)
    if removed:
        body: dict[str, Json] = {"adapters": list(removed), "stale": sorted(stale.intersection(removed))}
        changes.record(change, "unlearn", body)
    return removed


def check_allowed(connection: sa.Connection, cube: str) -> None:
    if not adapter_rows.is_allowed(connection, cube):
        raise Conflict(
            f"Training on memories of cube {cube!r} is not allowed; its owner can allow it with `memos model adapter "
            "allow`."
        )


def is_outdated(connection: sa.Connection, row: AdapterRow) -> bool:
    there = adapter_rows.get(connection, row.id)
    return there is None or any(each.id == row.id for each in adapter_rows.outdated(connection, [row.cube]))


def _count(connection: sa.Connection, cube: str, *which: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(t.items).join(t.versions, t.versions.c.id == t.items.c.version_id)
    return connection.scalar(query.where(t.items.c.cube_id == cube, *which)) or 0


def _manifest(connection: sa.Connection, row: AdapterRow, measures: dict[str, Json]) -> dict[str, Json]:
    learned: list[Json] = [
        {"item": each.item, "version": each.version, "sha256": each.digest}
        for each in adapter_rows.seen(connection, row.id)
    ]
    return {
        "adapter": row.id,
        "cube": row.cube,
        "number": row.number,
        "model": row.model,
        "base_sha256": row.base,
        "recipe": dict(row.recipe),
        "data_sha256": row.data_hash,
        "parent": row.parent,
        "measures": measures,
        "memories": learned,
        "created_at": row.created_at.isoformat(),
    }


def _left_out_text(chosen: Selected) -> str:
    if not chosen.left_out:
        return "It has no facts about people yet."
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(chosen.left_out.items()))
    return f"Left out: {told}."
