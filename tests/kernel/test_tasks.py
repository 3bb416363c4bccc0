"""Background tasks as callers see them: listed, followed, waited for, retried, cancelled, and periodic upkeep."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.core.types import TaskState
from memos.errors import BackendTimeout, Conflict, InvalidInput, NotFound
from memos.memcube.backup import backups
from memos.memcube.ledger import tasks as rows
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.scheduler import PeriodicJob
from memos.scheduler.task import Job, TaskRun
from tests.fakes import WordEmbedder
from tests.support import forks

ROOT = Path(__file__).resolve().parents[2]
HOUR = timedelta(hours=1)


@pytest.fixture
def go(memos: MemOS) -> Iterator[threading.Event]:
    """Let tasks of kind `slow` end."""
    event = threading.Event()

    def slow(run: TaskRun) -> None:
        run.check_cancelled(0.5)
        assert event.wait(60)
        run.check_cancelled(0.9)

    memos._scheduler.runner.register([Job("slow", slow), Job("quick", lambda run: None), Job("bad", bad)])
    yield event
    event.set()


def bad(run: TaskRun) -> None:
    raise InvalidInput("payload", "names no page")


def put(memos: MemOS, kind: str, cube: str = "default") -> str:
    with memos.ledger.write() as connection:
        [task] = rows.enqueue(connection, cube, [NewTask(kind)], memos.clock.now())
    memos._scheduler.runner.wake()
    return task


def test_a_task_is_followed_to_its_end(memos: MemOS, go: threading.Event) -> None:
    seen = []
    for task in memos.tasks.follow(put(memos, "slow"), timeout_s=60):
        seen.append(task.state)
        if task.state is TaskState.RUNNING:
            go.set()
    assert seen[-1] is TaskState.DONE
    assert TaskState.RUNNING in seen


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), float("inf"), True, "1"])
def test_a_time_to_wait_is_a_number_of_seconds(memos: MemOS, timeout_s: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout_s"):
        memos.tasks.wait(timeout_s=timeout_s)


def test_waiting_ends_with_the_work_or_with_the_time(memos: MemOS, go: threading.Event) -> None:
    slow, quick = put(memos, "slow"), put(memos, "quick")
    memos.tasks.wait(quick, timeout_s=60)
    assert memos.tasks.get(quick).state is TaskState.DONE
    for waited in (slow, None):
        with pytest.raises(BackendTimeout, match=r"Not finished after 0\.1 s"):
            memos.tasks.wait(waited, timeout_s=0.1)
    with pytest.raises(BackendTimeout):
        list(memos.tasks.follow(slow, timeout_s=0.1))
    go.set()
    memos.tasks.wait(timeout_s=60)
    assert memos.tasks.counts(cubes=["default"]) == {TaskState.DONE: 2}


def test_a_failed_task_is_listed_with_its_error_and_retried(memos: MemOS, go: threading.Event) -> None:
    task = put(memos, "bad")
    memos.tasks.wait(task, timeout_s=60)
    [failed] = memos.tasks.list(states=["failed"])
    assert (failed.id, failed.error) == (task, "InvalidInput: payload: names no page")
    memos._scheduler.runner.register([Job("bad", lambda run: None)])  # mended
    memos.tasks.retry(task)
    memos.tasks.wait(task, timeout_s=60)
    assert memos.tasks.get(task).state is TaskState.DONE
    with pytest.raises(Conflict, match="only those can be retried"):
        memos.tasks.retry(task)


def test_a_running_task_is_cancelled(memos: MemOS, go: threading.Event) -> None:
    task = put(memos, "slow")
    for state in memos.tasks.follow(task, timeout_s=60):
        if state.state is TaskState.RUNNING:
            memos.tasks.cancel(task)
    go.set()
    assert memos.tasks.get(task).state is TaskState.CANCELLED
    with pytest.raises(Conflict, match="ended already"):
        memos.tasks.cancel(task)


def test_tasks_of_other_cubes_are_not_seen_in_a_narrowed_call(memos: MemOS, go: threading.Event) -> None:
    memos.cubes.create("other")
    mine, theirs = put(memos, "quick"), put(memos, "quick", "other")
    assert [task.id for task in memos.tasks.list(cubes=["other"])] == [theirs]
    for call in (memos.tasks.get, memos.tasks.retry, memos.tasks.cancel, memos.tasks.wait):
        with pytest.raises(NotFound):
            call(mine, cubes=["other"])
    assert sum(memos.tasks.counts(cubes=["other"]).values()) == 1
    memos.tasks.wait(timeout_s=60)


def test_dropping_a_cube_drops_its_tasks(memos: MemOS, go: threading.Event) -> None:
    memos.cubes.create("other")
    memos.tasks.set_weight("other", 2)
    task = put(memos, "quick", "other")
    memos.tasks.wait(timeout_s=60)
    memos.cubes.drop("other")
    with pytest.raises(NotFound):
        memos.tasks.get(task)
    assert memos.maintenance.verify().clean


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda memos: memos.tasks.list(states=["lost"]), "state"),
        (lambda memos: memos.tasks.list(limit=0), "limit"),
        (lambda memos: memos.tasks.list(cubes=[]), "cubes"),
        (lambda memos: memos.tasks.get("\0"), "task"),
        (lambda memos: memos.tasks.set_weight("default", 0), "weight"),
        (lambda memos: memos.tasks.set_weight("default", float("nan")), "weight"),
    ],
)
def test_wrong_calls_are_refused(memos: MemOS, call: object, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        call(memos)  # type: ignore[operator]


def test_what_is_deleted_is_not_erased_before_its_time_and_periodic_jobs_fire_once(memos: MemOS) -> None:
    chore = PeriodicJob("retention", HOUR)
    assert memos._scheduler.periodic.fire(chore) in (True, False)  # it may have been fired since the start
    assert not memos._scheduler.periodic.fire(chore)
    memos.tasks.wait(timeout_s=60)
    assert {task.state for task in memos.tasks.list(kinds=["retention"])} == {TaskState.DONE}


def test_periodic_backups_are_made_and_the_oldest_removed(tmp_path: Path, settings: Settings) -> None:
    folder = tmp_path / "backups"
    upkeep = settings.upkeep.model_copy(update={"backup_folder": folder, "backups_kept": 2})
    with MemOS.open(
        tmp_path / "home", settings=settings.model_copy(update={"upkeep": upkeep}), embedder=WordEmbedder()
    ) as memos:
        memos.add("to be kept")
        memos.maintenance.backup(folder / "by hand")
        for _ in range(4):
            put(memos, "backup", "")
            memos.tasks.wait(timeout_s=60)
        assert {task.state for task in memos.tasks.list(kinds=["backup"])} == {TaskState.DONE}
        left = sorted(path.name for path in folder.iterdir())
        assert left[0] == "by hand"
        assert len([name for name in left if name.startswith("periodic-")]) == 2
        assert len(backups.known(memos.ledger)) == 3


def test_an_erasure_clears_what_errors_of_its_cube_may_quote(memos: MemOS, go: threading.Event) -> None:
    item = memos.add("secret").item_ids[0]
    task = put(memos, "bad")
    memos.tasks.wait(task, timeout_s=60)
    memos.erase(item)
    assert memos.tasks.get(task).error is None


@pytest.mark.heavy
def test_the_commands(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMOS_")}
        return forks.command(["task", *arguments, "--data-dir", str(tmp_path)], env=kept)

    assert run("list").stdout.startswith("no task") or "retention" in run("list").stdout
    with MemOS.open(tmp_path, embedder=None) as memos:
        memos._scheduler.runner.stop()
        done, other = put(memos, "retention", ""), put(memos, "of a newer version")
    waited = run("wait", done, "--json")
    assert (waited.returncode, json.loads(waited.stdout)["state"]) == (0, "done"), waited
    listed = json.loads(run("list", "--state", "waiting", "--json").stdout)
    assert [task["id"] for task in listed] == [other]
    assert run("wait", "--timeout", "0.2").returncode == 6
    assert run("cancel", other).stdout == f"task {other} is cancelled\n"
    assert "state     cancelled" in run("show", other).stdout
    assert run("retry", other, "--json").returncode == 0
    assert run("show", "nothing").returncode == 3
    assert run("retry", done).returncode == 4
    assert run("list", "--state", "lost").returncode == 2
