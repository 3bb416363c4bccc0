"""Trainings in the background: as tasks that are asked for, and by themselves in the nights.

Knows tasks, hours and why a cube is to be learned; how that is done is `adapter_training`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.lora import taught_alike
from memos.core.settings import Settings, TimeWindow
from memos.core.types import Json, Scope, TaskState
from memos.errors import BackendUnavailable, Conflict, InvalidInput, MemosError, NotFound, PermissionDenied
from memos.kernel.adapters.rephrasing import PHRASINGS
from memos.kernel.adapters.training import (
    AdapterTraining,
    NoEligibleFacts,
    TrainingCallbacks,
    TrainingInProgress,
    check_allowed,
    pruned,
)
from memos.kernel.context import Context
from memos.llm.usage import UsageMeter
from memos.memcube import changes
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import queues as usage
from memos.memcube.ledger import tasks
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.ledger.tasks import Wanted
from memos.memcube.parametric.selection import Learned, Memory, Renewal, renewal
from memos.memcube.parametric.training import told_recipe
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.learning import meter_of
from memos.scheduler.periodic import LEARNING
from memos.scheduler.task import Job, Later, TaskRun, WaitingForSetting

_LOOK_S = 0.25
_TAUGHT = 0.9  # of a task's progress; the rest is the examination
_SHOWN = 100
_OCCUPIED = timedelta(seconds=30)

_LAST = Wanted((TaskState.DONE, TaskState.FAILED, TaskState.DEAD), (adapter_rows.LEARN,), limit=1)
_UNENDED = Wanted((TaskState.WAITING, TaskState.RUNNING), (adapter_rows.LEARN,))


@dataclass(frozen=True, slots=True)
class LearningTasks:
    """What trains adapters in the background; `training` does it, `wake` tells the workers of a new task.

    `forget` removes the files of what is no more, and what was kept under it in some cubes.
    """

    context: Context
    settings: Settings
    training: Callable[[], AdapterTraining]
    forget: Callable[[Collection[str]], object]
    wake: Callable[[], None]

    def submit(self, cube: str, actor: str) -> str:
        """Have a cube learned, whatever the hour; return the task. Raises: as `Adapters.submit`."""
        self.training().check_ready(cube, actor)
        scope = self.context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        with self.context.change(scope) as change:
            check_allowed(change.connection, change.cube)
            for task in tasks.find(change.connection, [change.cube], _UNENDED):
                if task.state is TaskState.WAITING and adapter_rows.OF_NIGHT in task.payload:
                    tasks.cancel(change.connection, task, change.now)  # this one does not wait for the night
            [task_id] = tasks.enqueue(change.connection, change.cube, [adapter_rows.learn_task()], change.now)
        self.wake()
        return task_id

    def jobs(self) -> list[Job]:
        """Return what trains, and what looks in the nights what there is to train."""
        return [
            Job(adapter_rows.LEARN, self._learn, budgeted=False, apart=True),
            Job(LEARNING, self._look, budgeted=False),
        ]

    # One training

    def _learn(self, run: TaskRun) -> None:
        training, cube = self.training(), run.task.cube
        try:
            training.check_able()
        except (BackendUnavailable, InvalidInput) as error:
            raise WaitingForSetting(str(error)) from error
        if adapter_rows.OF_NIGHT in run.task.payload and self._night is None:
            run.note = "trainings by themselves were switched off (MEMOS_PARAMETRIC__NIGHT)"
            return
        before_s = self._spent_s(run)
        self._check_hours(run, before_s)

        def tell(step: int, steps: int) -> None:
            run.go_on(_TAUGHT * (step / max(1, steps)))
            self._check_hours(run, before_s)

        try:
            row = training.train_by_consent(
                cube, TrainingCallbacks(tell, partial(_ended_with, run), run.check_held, partial(_meter, run))
            )
        except TrainingInProgress as error:
            raise Later(run.clock.now() + _OCCUPIED, str(error)) from error
        except NoEligibleFacts as error:
            run.note = str(error)
            return
        except Conflict as error:
            with self.context.ledger.read() as connection:
                if not adapter_rows.is_allowed(connection, cube):
                    raise PermissionDenied(str(error)) from error  # no other attempt fares better
            raise
        except BackendUnavailable:
            run.go_on()  # it was ended with the program, or the task was cancelled
            raise
        run.note = _told(row)

    # By itself

    def _look(self, run: TaskRun) -> None:
        """Have each cube learned in which enough is new, or of which what answered is stale."""
        night = self._night
        ends = None if night is None else night.end(run.clock.now())
        if night is None or ends is None or self._spent_s(run) >= self._budget_s:
            return
        with self.context.ledger.read() as connection:
            cubes = adapter_rows.allowed(connection)
        for place, cube in enumerate(cubes):
            run.go_on(place / len(cubes))
            with suppress(NotFound):  # dropped meanwhile
                self._plan(cube, ends - night.length)

    def _plan(self, cube: str, since: datetime) -> None:
        with self.context.ledger.read() as connection:
            if tasks.find(connection, [cube], _UNENDED) or _failed(connection, cube, since):
                return
            chosen, wanted = self._wanted(connection, cube)
        if wanted is None:
            return
        with self.context.change(Scope(ACTOR, (cube,), right=Right.OWN)) as change:
            if not adapter_rows.is_allowed(change.connection, cube):
                return
            if chosen:
                payload: Mapping[str, Json] = {adapter_rows.OF_NIGHT: True, "why": str(wanted.why)}
                [task] = tasks.enqueue(change.connection, cube, [adapter_rows.learn_task(payload)], change.now)
                changes.record(change, "plan_learning", {"task": task, **_body(wanted)})
                removed = []
            else:
                removed = pruned(change)
        if removed:
            self.forget([cube])
        self.wake()

    def _wanted(self, connection: sa.Connection, cube: str) -> tuple[bool, Renewal | None]:
        """Return whether anything is ready to be learned that nobody answers with, and why it should be."""
        settings, rows = self.settings, adapter_rows.of(connection, cube)
        recipe, local = told_recipe(self.training().recipe), settings.learning_model
        facts = self.training().selected(connection, cube).facts
        chosen = frozenset((fact.item, fact.version) for fact in facts)
        alike = [
            row
            for row in rows
            if local is not None and row.model == local.model and (row.failed_here or row.state in adapter_rows.TRAINED)
        ]
        stale = {row.id for row in adapter_rows.stale(connection, cube)}
        seen, served, gone, tried = frozenset[Memory](), frozenset[Memory](), set[str](), frozenset[Memory]()
        for row in alike:
            if row.state is AdapterState.ACTIVE:
                mine = _seen(connection, row)
                seen |= mine
                served |= frozenset() if row.id in stale else mine
                gone |= adapter_rows.gone(connection, row.id)
        newest = {row.shard: row for row in reversed(alike)}
        for row in newest.values():
            if row.failed_here and taught_alike(row.recipe, recipe):
                mine = _seen(connection, row)
                # Of which enough has left since may pass now.
                tried |= mine if len(mine - chosen) < settings.parametric.new_facts else frozenset()
        standing = frozenset(memory for memory in seen if memory[0] not in gone)
        learned = Learned(seen, standing, served)
        return bool(chosen - served), renewal(chosen, learned, tried, settings.parametric.new_facts)

    # Hours

    @property
    def _night(self) -> TimeWindow | None:
        hours = self.settings.parametric.night
        return None if hours is None else TimeWindow.read(hours)

    @property
    def _budget_s(self) -> float:
        return 60.0 * self.settings.parametric.night_minutes

    def _spent_s(self, run: TaskRun) -> float:
        """Return the seconds that trainings of all cubes took today, without the present one."""
        with self.context.ledger.read() as connection:
            return usage.seconds_today(connection, adapter_rows.LEARN, run.clock.now())

    def _check_hours(self, run: TaskRun, before_s: float) -> None:
        """Let a training that nobody asked for go on only in its hours. Raises: Later."""
        now, night = run.clock.now(), self._night
        if night is None or adapter_rows.OF_NIGHT not in run.task.payload:
            return
        if night.end(now) is None:
            raise Later(night.next(now), "it goes on in the next night (MEMOS_PARAMETRIC__NIGHT)")
        left_s = self._budget_s - (time.monotonic() - run.started)
        if before_s >= left_s and self._spent_s(run) >= left_s:  # it may be another day than it was before
            midnight = usage.next_day(now)
            note = "today's minutes are used; it goes on in a night with new ones"
            raise Later(night.next(now) if night.end(midnight) is None else midnight, note)


def _meter(run: TaskRun, _: str) -> UsageMeter:
    return meter_of(run, PHRASINGS)


@contextmanager
def _ended_with(run: TaskRun, kill: Callable[[], None]) -> Iterator[None]:
    """End a training soon after the program stops or the task is somebody else's, also while no step is made."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            # A ledger that does not answer says nothing about the task.
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
    """Say whether a cube's last training that came to its end was one of a night, and has failed since a moment."""
    for task in tasks.find(connection, [cube], _LAST):
        failed = task.state is not TaskState.DONE and adapter_rows.OF_NIGHT in task.payload
        return failed and task.finished_at is not None and task.finished_at >= since
    return False


def _seen(connection: sa.Connection, row: AdapterRow) -> frozenset[Memory]:
    return frozenset((each.item, each.version) for each in adapter_rows.seen(connection, row.id))


def _told(row: AdapterRow) -> str:
    if row.state is AdapterState.REFUSED:
        return f"adapter {row.id} was refused: {row.reason}"
    return f"adapter {row.id} is {row.state}"


def _body(wanted: Renewal) -> dict[str, Json]:
    told: dict[str, Json] = {"why": str(wanted.why)}
    for name, ids in (("new", wanted.new), ("gone", wanted.gone), ("cold", wanted.cold)):
        told[name] = list(ids[:_SHOWN])
        told[f"{name}_count"] = len(ids)
    return told
