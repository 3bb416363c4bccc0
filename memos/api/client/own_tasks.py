"""The requests of `/api/v1` about tasks and events: each function describes one; names are those of `MemOS`."""

from __future__ import annotations

from collections.abc import Sequence

from memos.api.client import values
from memos.api.client.address import check_wait
from memos.api.client.calls import Call, Stream, Waiting, as_model
from memos.api.client.own import as_list, changing, following, getting, listed, path_of


def list_tasks(
    *,
    cubes: Sequence[str] = (),
    states: Sequence[str] = (),
    kinds: Sequence[str] = (),
    limit: int = 100,
    after: str | None = None,
    user: str | None = None,
) -> Call[list[values.Task]]:
    """Return tasks, newest first; `after` the id of a task continues behind it. Raises: InvalidInput, NotFound."""
    query = {
        "cube": listed(cubes), "state": listed(states), "kind": listed(kinds), "limit": limit, "after": after,
        "user": user,
    }  # fmt: skip
    return getting(path_of("tasks"), as_list(values.Task), query)


def get_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """Return a task as it stands. Raises: NotFound."""
    return getting(path_of("tasks", ("task", task)), as_model(values.Task), {"user": user})


def retry_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """Let a failed, dead or cancelled task wait again. Raises: NotFound, Conflict, PermissionDenied."""
    return changing("POST", path_of("tasks", ("task", task), "retry"), as_model(values.Task), query={"user": user})


def cancel_task(task: str, *, user: str | None = None) -> Call[values.Task]:
    """End a task before it is done. Raises: NotFound, Conflict, PermissionDenied."""
    return changing("POST", path_of("tasks", ("task", task), "cancel"), as_model(values.Task), query={"user": user})


def wait_task(task: str, *, timeout_s: float | None = None, user: str | None = None) -> Waiting[values.Task]:
    """Return a task when it has ended. Raises: BackendTimeout (it has not within `timeout_s`), NotFound."""
    path = path_of("tasks", ("task", task), "wait")

    def call(seconds: float) -> Call[values.Task]:
        return getting(path, as_model(values.Task), {"timeout_s": round(seconds, 3), "user": user})

    return Waiting(call, lambda found: found.ended, check_wait("timeout_s", timeout_s), f"task {task!r}")


def follow_task(task: str, *, timeout_s: float = 300.0, user: str | None = None) -> Stream[values.Task]:
    """Yield a task now, whenever it changes, and last when it has ended, for at most `timeout_s`. Raises: NotFound."""
    query = {"timeout_s": check_wait("timeout_s", timeout_s), "user": user}
    return following(path_of("tasks", ("task", task), "stream"), values.Task, query, named="task")


def list_events(
    cube: str | None = None, *, after: int = 0, kinds: Sequence[str] = (), limit: int = 100, user: str | None = None
) -> Call[list[values.Event]]:
    """Return a cube's events behind the number `after`, oldest first. Raises: InvalidInput, NotFound (cube)."""
    query = {"cube": cube, "after": after, "kind": listed(kinds), "limit": limit, "user": user}
    return getting(path_of("events"), as_list(values.Event), query)


def follow_events(
    cube: str | None = None,
    *,
    after: int | None = None,
    kinds: Sequence[str] = (),
    timeout_s: float = 300.0,
    user: str | None = None,
) -> Stream[values.Event]:
    """Yield events as they are committed, those behind the number `after` first, for at most `timeout_s`.

    Raises: InvalidInput, NotFound (cube).
    """
    query = {
        "cube": cube, "after": after, "kind": listed(kinds), "timeout_s": check_wait("timeout_s", timeout_s),
        "user": user,
    }  # fmt: skip
    return following(path_of("events", "stream"), values.Event, query)
