"""The commands about background tasks: list, show, retry, cancel, wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from memos.cli.shared import AsJson, DataDir, interruptible, opened, progress_bar, say, show
from memos.core.types import Task, TaskState

tasks_app = typer.Typer(help="Look at background tasks and steer them.", no_args_is_help=True, rich_markup_mode=None)

_UNDONE = (TaskState.FAILED, TaskState.DEAD)

TaskId = Annotated[str, typer.Argument(help="Task id")]


@tasks_app.command("list")
def list_tasks(
    state: Annotated[list[str] | None, typer.Option(help="Only tasks in this state; may be repeated")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only tasks of this kind; may be repeated")] = None,
    cube: Annotated[list[str] | None, typer.Option(help="Only tasks of this cube; may be repeated")] = None,
    limit: Annotated[int, typer.Option(help="At most so many")] = 50,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, newest first."""
    with opened(data_dir) as memos:
        found = memos.tasks.list(cubes=cube or None, states=state or [], kinds=kind or [], limit=limit)

    def human() -> None:
        for task in found:
            told = task.error or task.note
            about = f"{task.id}  {task.kind}  {task.cube or '(all)'}  {task.state}  due {task.not_before:%F %T}"
            say(about + (f"\n    {told}" if told else ""))
        if not found:
            say("no tasks")

    show(found, as_json, human)


@tasks_app.command("show")
def show_task(task: TaskId, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show one task."""
    with opened(data_dir) as memos:
        found = memos.tasks.get(task)
    show(found, as_json, lambda: _tell(found))


@tasks_app.command("retry")
def retry_task(task: TaskId, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Let a failed, dead or cancelled task run again."""
    with opened(data_dir) as memos:
        found = memos.tasks.retry(task)
    show(found, as_json, lambda: say(f"task {found.id} waits again"))


@tasks_app.command("cancel")
def cancel_task(task: TaskId, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """End a task before it is done; it keeps nothing of what it was doing."""
    with opened(data_dir) as memos:
        found = memos.tasks.cancel(task)
    show(found, as_json, lambda: say(f"task {found.id} is cancelled"))


@tasks_app.command("wait")
def wait_for_tasks(
    task: Annotated[str | None, typer.Argument(help="Task id; without one, until no task waits or runs")] = None,
    timeout: Annotated[float | None, typer.Option(help="Give up after so many seconds")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run background tasks here until one, or all, have ended; exit code 1 when the one did not succeed."""
    with interruptible("what was done is kept"), opened(data_dir) as memos:
        if task is None:
            memos.tasks.wait(timeout_s=timeout)
            counts = memos.tasks.counts()
            show(counts, as_json, lambda: say(f"no task waits{_failures(counts)}"))
            return
        with progress_bar("done", as_json) as on_progress:
            for found in memos.tasks.follow(task, timeout_s=timeout):
                if on_progress is not None:
                    on_progress(round(found.progress * 100), 100)
    show(found, as_json, lambda: _tell(found))
    if found.state != "done":
        raise typer.Exit(1)


def _failures(counts: Mapping[TaskState, int]) -> str:
    told = [f"{counts[state]} {state}: memos tasks list --state {state}" for state in _UNDONE if state in counts]
    return "".join(f"; {each}" for each in told) + ("; memos tasks retry ID" if told else "")


def _tell(task: Task) -> None:
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
    for name, value in about.items():
        if value is not None:
            say(f"{name:9} {value}")
