"""Commands on background tasks: list, show, retry, cancel, wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from memos.cli.shared import AsJson, Output, command, progress_bar
from memos.core.types import Task, TaskState

if TYPE_CHECKING:
    from memos.kernel.memos import MemOS

_UNDONE = (TaskState.FAILED, TaskState.DEAD)

TaskId = Annotated[str, typer.Argument(help="Task id")]


@command
def list_(
    memos: MemOS,
    state: Annotated[list[str] | None, typer.Option(help="Only tasks in this state; can be repeated")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only tasks of this kind; can be repeated")] = None,
    cube: Annotated[list[str] | None, typer.Option(help="Only tasks of this cube; can be repeated")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number")] = 50,
) -> Output:
    found = memos.tasks.list(cubes=cube or None, states=state or [], kinds=kind or [], limit=limit)
    return Output(found, map(_line, found), "no tasks")


@command
def show(memos: MemOS, task: TaskId) -> Output:
    return Output(memos.tasks.get(task), _details)


@command
def retry(memos: MemOS, task: TaskId) -> Output:
    found = memos.tasks.retry(task)
    return Output(found, f"task {found.id} is queued again")


@command
def cancel(memos: MemOS, task: TaskId) -> Output:
    found = memos.tasks.cancel(task)
    return Output(found, f"task {found.id} is cancelled")


@command(safe="finished work is kept")
def wait(
    memos: MemOS,
    task: Annotated[
        str | None, typer.Argument(help="Task id; default: wait until no task is waiting or running")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Timeout in seconds")] = None,
    as_json: AsJson = False,
) -> Output:
    if task is None:
        memos.tasks.wait(timeout_s=timeout)
        counts = memos.tasks.counts()
        return Output(counts, f"no task waits{_failures(counts)}")
    with progress_bar("done", as_json) as on_progress:
        for found in memos.tasks.follow(task, timeout_s=timeout):
            if on_progress is not None:
                on_progress(round(found.progress * 100), 100)
    return Output(found, _details(found), code=0 if found.state == "done" else 1)


def _failures(counts: Mapping[TaskState, int]) -> str:
    told = [f"{counts[state]} {state}: memos task list --state {state}" for state in _UNDONE if state in counts]
    return "".join(f"; {each}" for each in told) + ("; memos task retry ID" if told else "")


def _line(task: Task) -> str:
    told = task.error or task.note
    about = f"{task.id}  {task.kind}  {task.cube or '(all)'}  {task.state}  due {task.not_before:%F %T}"
    return about + (f"\n    {told}" if told else "")


def _details(task: Task) -> Iterator[str]:
    about = {
        "id": task.id,
        "kind": task.kind,
        "cube": task.cube or "(all)",
        "state": task.state,
        "attempts": task.attempts,
        "progress": f"{task.progress:.0%}",
        "due": f"{task.not_before:%F %T}",
        "tokens": task.tokens,
        "seconds": f"{task.seconds:.1f}",
        "note": task.note,
        "error": task.error,
    }
    return (f"{name:9} {value}" for name, value in about.items() if value is not None)
