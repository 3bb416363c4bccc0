"""`MemOS.tasks`: list, follow, retry and cancel background tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, WHOLE, Task, TaskState
from memos.errors import InvalidInput, PermissionDenied
from memos.kernel.context import Context
from memos.memcube.ledger import queries, queues, tasks
from memos.memcube.ledger.tasks import TaskQuery
from memos.reader.arguments import within
from memos.scheduler.runner import Runner
from memos.scheduler.task import poll_until

Tasks_ = list[Task]  # `list` is a method here

# Longer than attempts are apart by default, shorter than a budget or a night takes to come again.
_SOON = timedelta(hours=1)


class Tasks:
    """The background tasks of an installation; `cubes` narrows a call, None means all that the actor may see."""

    def __init__(self, context: Context, runner: Runner) -> None:
        self._context = context
        self._runner = runner

    def list(
        self,
        *,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int = 100,
        after: str | None = None,
        about: str | None = None,
    ) -> Tasks_:
        """Return tasks, newest first; `after` the id of a task continues behind it.

        `about`, the id of a memory or file, narrows them to those that deal with it, or with its conversation or topic
        since it was stored. Raises: InvalidInput, NotFound.
        """
        wanted = TaskQuery(
            tuple(_state(state) for state in states),
            tuple(check_name("kind", kind, 64) for kind in kinds),
            within("limit", limit, 1, 10_000),
            None if after is None else check_name("after", after, 64),
        )
        about = None if about is None else check_name("about", about, 64)
        named = self._context.scopes.cubes_of(cubes, actor, Right.READ)
        with self._context.ledger.read() as connection:
            if about is not None:
                ids, since = queries.concerned(connection, about)
                wanted = replace(wanted, about=ids, since=since)
            return tasks.find(connection, named, wanted)

    def get(self, task: str, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER) -> Task:
        """Return a task as it stands. Raises: NotFound."""
        return self._get(task, cubes, actor, Right.READ)

    def _get(self, task: str, cubes: Sequence[str] | None, actor: str, right: Right) -> Task:
        task, named = check_name("task", task, 64), self._context.scopes.cubes_of(cubes, actor, right)
        with self._context.ledger.read() as connection:
            found = tasks.get(connection, task)
        if named is not None and found.cube not in named:
            raise tasks.unknown(task)
        if cubes is None and found.cube != WHOLE and right is not Right.READ:
            self._context.scopes.cubes_of([found.cube], actor, right)  # to see a cube is not to have a say in it
        return found

    def counts(self, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER) -> dict[TaskState, int]:
        """Return how many tasks are in each state; states without one are left out."""
        named = self._context.scopes.cubes_of(cubes, actor, Right.READ)
        with self._context.ledger.read() as connection:
            return tasks.counts(connection, named)

    def retry(self, task: str, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER) -> Task:
        """Queue a failed, dead or cancelled task again. Raises: NotFound, Conflict."""
        found = self._get(task, cubes, actor, Right.WRITE)
        with self._context.ledger.write() as connection:
            tasks.retry(connection, found, self._context.clock.now())
        self._runner.wake()
        return self._get(task, cubes, actor, Right.READ)

    def cancel(self, task: str, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER) -> Task:
        """End a task before it is done; one that runs keeps nothing of its attempt. Raises: NotFound, Conflict."""
        found = self._get(task, cubes, actor, Right.WRITE)
        with self._context.ledger.write() as connection:
            tasks.cancel(connection, found, self._context.clock.now())
        return self._get(task, cubes, actor, Right.READ)

    def follow(
        self, task: str, *, cubes: Sequence[str] | None = None, actor: str = LOCAL_OWNER, timeout_s: float | None = None
    ) -> Iterator[Task]:
        """Yield a task now, at each change and when it ended. Raises: NotFound, BackendTimeout, InvalidInput."""
        seen: Task | None = None
        for _ in poll_until(timeout_s):
            found = self._get(task, cubes, actor, Right.READ)
            if seen is None or _told(found) != _told(seen):
                seen = found
                yield found
            if found.ended:
                return

    def wait(
        self,
        task: str | None = None,
        *,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
        timeout_s: float | None = None,
    ) -> None:
        """Return when a task has ended, or without one when none runs or begins within an hour.

        What is put off for longer, until there is a budget again or to another night, nobody waits for but by its id.
        Raises: BackendTimeout, NotFound, InvalidInput.
        """
        for _ in poll_until(timeout_s):
            if not self._left(task, cubes, actor):
                return

    def set_weight(self, cube: str, weight: float, *, actor: str = LOCAL_OWNER) -> None:
        """Give a cube so many turns for each of weight 1 (admins). Raises: InvalidInput, NotFound, PermissionDenied."""
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.01 <= weight <= 100:
            raise InvalidInput("weight", "must be a number from 0.01 to 100")
        self._context.scopes.cubes_of([cube], actor, Right.OWN)
        if self._context.scopes.cubes_of(None, actor, Right.OWN) is not None:
            raise PermissionDenied(f"{actor!r} is not an admin; only admins can set the share of a cube.")
        with self._context.ledger.write() as connection:
            queues.set_weight(connection, cube, float(weight))

    def _left(self, task: str | None, cubes: Sequence[str] | None, actor: str) -> int:
        if task is not None:
            return 0 if self._get(task, cubes, actor, Right.READ).ended else 1
        named = self._context.scopes.cubes_of(cubes, actor, Right.READ)
        with self._context.ledger.read() as connection:
            return tasks.unended(connection, named, self._context.clock.now() + _SOON)


def _told(task: Task) -> tuple[object, ...]:
    return task.state, task.attempts, task.progress, task.note, task.error


def _state(state: str) -> TaskState:
    try:
        return TaskState(state)
    except ValueError as error:
        raise InvalidInput("state", f"is unknown; use one of {', '.join(TaskState)}") from error
