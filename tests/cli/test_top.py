"""An overview's numbers against what a test did, what they cost, and how `memos task top` shows them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from memos import MemOS, Settings
from memos.cli.app import app
from memos.cli.watch import _drawn
from memos.core.identities import Right
from memos.core.types import Fact, ItemType, Scope, Span
from memos.errors import BackendUnavailable, InvalidInput, NotFound
from memos.kernel.statistics import BUSIEST, OverviewRequest, take_overview
from memos.memcube import facts
from memos.memcube.ledger import queues as usage
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger import tasks
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.queues import Spending
from memos.memcube.ledger.segments import SegmentRow
from memos.memcube.ledger.tasks import NewTask
from memos.scheduler.task import Job, TaskRun
from tests.fakes import HeldClock, WordEmbedder
from tests.support.ledgers import Store

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
GARDEN = "The tomato plants in the garden need water and compost."
ENGINE = "The motorcycle engine lost oil near the gasket again."


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered for two seconds before it is done."""
    monkeypatch.setattr(tiers, "_GATHERING", timedelta(0))


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock(NOW)


@pytest.fixture
def quiet(tmp_path: Path, settings: Settings, clock: HeldClock) -> Iterator[MemOS]:
    """An installation whose clock stands still and that does no work in the background."""
    idle = settings.model_copy(update={"tasks": settings.tasks.model_copy(update={"workers": 0})})
    with MemOS.open(tmp_path / "quiet", settings=idle, embedder=WordEmbedder(), clock=clock) as opened:
        opened._scheduler.stop()
        yield opened


def pages_of(count: int) -> list[dict[str, str]]:
    return [
        {"role": role, "content": f"Exchange number {number} about the garden."}
        for number in range(count)
        for role in ("user", "assistant")
    ]


def settled(memos: MemOS) -> None:
    memos.tasks.wait(timeout_s=120)


def one(memos: MemOS, cube: str = "default") -> Any:
    [found] = memos.statistics.overview([cube]).cubes
    return found


def remember(memos: MemOS, item: str) -> str:
    """Store a fact made of a message, as the readers do."""
    text = memos.get(item).memory
    fact = Fact(
        ItemType.USER, "They garden.", (Span(item, 0, len(text)),), "user", "test", memos.clock.now(), key="user|hobby"
    )
    with memos._context.change(Scope("test", ("default",), right=Right.WRITE)) as change:
        return facts.store(change, fact).id


def test_tiers_are_counted(memos: MemOS) -> None:
    memos.cubes.create("other")
    ids = memos.add(pages_of(13), conversation="c").item_ids
    memos.add(pages_of(2), conversation="d")
    memos.add(ENGINE)
    memos.add(GARDEN, cube="other")
    settled(memos)
    listed = memos.tiers.segments()
    found = one(memos)
    assert (found.messages, found.short_pages, found.long_items) == (31, 12, 0)
    assert (found.open_segments, found.archived_segments) == (len(listed), 0)
    assert found.events == memos.events.list()[-1].seq
    assert found.changed_at == memos.events.list()[-1].at
    assert [segment.id for segment in found.hottest] == [segment.id for segment in listed]
    remember(memos, ids[0])
    with memos.ledger.write() as connection:
        [row] = tiers.get_segments(connection, [listed[-1].id]).values()
        moves.set_state(connection, [row], tiers.ARCHIVED, memos.clock.now())
    found = one(memos)
    assert (found.messages, found.long_items) == (31, 1)
    assert (found.open_segments, found.archived_segments) == (len(listed) - 1, 1)
    assert listed[-1].id not in {segment.id for segment in found.hottest}
    memos.erase(list(ids))
    found = one(memos)
    assert (found.messages, found.short_pages, found.long_items) == (5, 2, 0)
    assert one(memos, "other").messages == 1


def test_segments_are_told_hottest_first_and_only_of_named_cubes(memos: MemOS) -> None:
    memos.add(GARDEN)
    memos.add(ENGINE)
    settled(memos)
    for _ in range(3):
        memos.search("motorcycle engine gasket", top_k=1)
    memos._scheduler.accesses.flush()
    hottest = one(memos).hottest
    assert "gasket" in hottest[0].summary
    assert hottest[0].heat > hottest[1].heat + 2
    assert [cube.hottest for cube in memos.statistics.overview().cubes] == [()]
    assert "gasket" not in str(memos.statistics.overview())


def test_segments_in_both_halves_of_the_index_are_ordered_together(quiet: MemOS) -> None:
    levels = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 4.0, "f": 9.0}
    rows = [
        SegmentRow(id_, "default", NOW, NOW, unread=id_ in "ace", level=level, visits=1, last=NOW)
        for id_, level in levels.items()
    ]
    rows[-1].state = tiers.ARCHIVED
    with quiet.ledger.write() as connection:
        tiers.save(connection, rows, [])
    assert [segment.id for segment in quiet.tiers.segments()] == ["d", "e", "c", "b", "a", "f"]
    assert [segment.id for segment in quiet.tiers.segments(limit=3)] == ["d", "e", "c"]
    assert [segment.id for segment in one(quiet).hottest] == ["d", "e", "c", "b", "a"]


@pytest.fixture
def go(memos: MemOS) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Say when a task of kind `slow` has begun, and let it end."""
    begun, go = threading.Event(), threading.Event()

    def slow(run: TaskRun) -> None:
        begun.set()
        assert go.wait(60)

    def bad(run: TaskRun) -> None:
        raise InvalidInput("payload", "names no page")

    memos._scheduler.runner.register([Job("slow", slow), Job("bad", bad), Job("quick", lambda run: None)])
    yield begun, go
    go.set()


def put(memos: MemOS, cube: str, *kinds: str) -> None:
    with memos.ledger.write() as connection:
        tasks.enqueue(connection, cube, [NewTask(kind) for kind in kinds], memos.clock.now())
    memos._scheduler.runner.wake()


def test_tasks_are_counted_by_kind_and_state(memos: MemOS, go: tuple[threading.Event, threading.Event]) -> None:
    memos.cubes.create("other")
    put(memos, "default", "bad", "quick", "quick")
    settled(memos)
    put(memos, "other", "slow")
    put(memos, "default", *["of a newer version"] * 3)
    assert go[0].wait(60)
    with memos.ledger.write() as connection:
        connection.execute(sa.update(t.tasks).where(t.tasks.c.kind == "slow").values(progress=0.5))
    seen = memos.statistics.overview()
    assert {kind: seen.tasks.get(kind) for kind in ("bad", "quick", "slow", "of a newer version")} == {
        "bad": {"failed": 1}, "quick": {"done": 2}, "slow": {"running": 1}, "of a newer version": {"waiting": 3},
    }  # fmt: skip
    [running] = [task for task in seen.running if task.kind == "slow"]
    assert (running.cube, running.progress) == ("other", 0.5)
    assert re.search(r"^slow +other +50% +\d+ s", _drawn(seen), re.MULTILINE)
    assert [(cube.cube, cube.waiting, cube.running) for cube in seen.cubes] == [("default", 3, 0), ("other", 0, 1)]
    assert memos.statistics.overview(["other"]).tasks == {"slow": {"running": 1}}
    assert memos.statistics.overview(["default"]).running == ()


def test_what_ended_long_ago_is_not_counted(quiet: MemOS, clock: HeldClock) -> None:
    with quiet.ledger.write() as connection:
        [task] = tasks.enqueue(connection, "default", [NewTask("old")], NOW)
        tasks.cancel(connection, tasks.get(connection, task), NOW)
    assert quiet.statistics.overview().tasks["old"] == {"cancelled": 1}
    clock.advance(timedelta(hours=1, seconds=1))
    assert "old" not in quiet.statistics.overview().tasks


def test_tokens_of_today_are_added_up(quiet: MemOS, clock: HeldClock) -> None:
    quiet.cubes.create("other")
    with quiet.ledger.write() as connection:
        for cube, at, prompt in (
            ("default", NOW, 100), ("default", NOW - timedelta(days=1), 1_000), ("other", NOW, 20), ("", NOW, 3),
        ):  # fmt: skip
            for purpose in ("reader", "judge"):
                usage.add(connection, cube, purpose, at, Spending(1, prompt, 7))
    seen = quiet.statistics.overview()
    assert {cube.cube: cube.tokens_today for cube in seen.cubes} == {"default": 214, "other": 54}
    assert seen.tokens_today == 214 + 54 + 20
    assert quiet.statistics.overview(["other"]).tokens_today == 54
    clock.advance(timedelta(days=1))
    assert quiet.statistics.overview().tokens_today == 0


def test_rates_are_those_since_the_last_overview_or_of_the_last_minute(quiet: MemOS, clock: HeldClock) -> None:
    def rates(**how: Any) -> tuple[float, float]:
        [cube] = quiet.statistics.overview(**how).cubes
        return round(cube.adds_per_s, 3), round(cube.moves_per_min, 3)

    for number in range(6):
        clock.advance(timedelta(milliseconds=1))
        quiet.add(f"Note {number}.", conversation="c")
    assert rates() == (0.1, 0)
    first = quiet.statistics.overview()
    assert rates(since=first) == (0, 0)  # no time has passed
    clock.advance(timedelta(seconds=2))
    assert rates(since=first) == (0, 0)
    quiet.add("Another note.", conversation="c")
    with quiet._context.change(Scope("test", ("default",), right=Right.WRITE)) as change:
        for _ in range(3):
            facts.changes.record(change, "move", {"tier": "mid"})
    assert rates(since=first) == (0.5, 90)
    clock.advance(timedelta(seconds=61))
    assert rates() == (0, 0)
    back = take_overview(quiet.ledger, quiet._scheduler, OverviewRequest(NOW - timedelta(days=1), None, first))
    assert (back.seconds, back.cubes[0].adds_per_s, back.cubes[0].moves_per_min) == (0, 0, 0)


def test_what_did_not_change_is_not_counted_again_and_what_did_is(quiet: MemOS, clock: HeldClock) -> None:
    item = quiet.add("One.").item_ids[0]
    before = quiet.statistics.overview(["default"])
    asked = statements(quiet)
    again = quiet.statistics.overview(["default"], since=before)
    assert not any("FROM messages" in statement for statement, _ in asked)
    assert again.cubes[0].messages == 1
    clock.advance(timedelta(seconds=1))
    remember(quiet, item)
    third = quiet.statistics.overview(["default"], since=again)
    assert (third.cubes[0].messages, third.cubes[0].long_items) == (1, 1)
    quiet.add("Two.")
    assert quiet.statistics.overview(["default"], since=third).cubes[0].messages == 2


def test_the_busiest_cubes_come_first_and_the_rest_is_counted(quiet: MemOS, clock: HeldClock) -> None:
    names = [f"cube{number:02}" for number in range(BUSIEST + 5)]
    for name in names:
        clock.advance(timedelta(seconds=1))
        quiet.cubes.create(name)
    with quiet.ledger.write() as connection:
        tasks.enqueue(connection, names[0], [NewTask("x")], clock.now())
        tasks.enqueue(connection, names[1], [NewTask("x")] * 2, clock.now())
    seen = quiet.statistics.overview()
    assert [cube.cube for cube in seen.cubes] == [names[1], names[0], *names[:6:-1]]
    assert (len(seen.cubes), seen.more_cubes) == (BUSIEST, 6)  # the cube `default` is one more
    assert {cube.cube for cube in quiet.statistics.overview(names).cubes} == set(names)
    quiet.cubes.drop(names[1])
    assert quiet.statistics.overview(since=seen).cubes[0].cube == names[0]


def statements(memos: MemOS) -> list[tuple[str, Any]]:
    """Return a list that grows with every statement the ledger is asked."""
    asked: list[tuple[str, Any]] = []

    def note(connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        asked.append((statement, parameters))

    sa.event.listen(memos.ledger._engine, "before_cursor_execute", note)
    return asked


@pytest.mark.parametrize("named", [None, ["default", "other"]])
def test_every_number_comes_from_an_index(memos: MemOS, named: list[str] | None) -> None:
    memos.cubes.create("other")
    memos.add(pages_of(12), conversation="c")
    memos.add(GARDEN, cube="other")
    settled(memos)
    memos._worker.stop()
    memos._scheduler.stop()
    before = memos.statistics.overview(named)
    memos.add(ENGINE)
    asked = statements(memos)
    memos.statistics.overview(named)
    memos.statistics.overview(named, since=before)
    assert 10 < len(asked) < 50
    # All cubes, or the tasks that wait or run, are looked at one by one, never what memories say nor what is over.
    allowed = re.compile(
        r"SCAN (cubes( USING.*)?|tasks USING (COVERING )?INDEX (uq_tasks_waiting|ix_tasks_leases)|"
        r"CONSTANT ROW|events USING .*\(never\))"
    )
    with memos.ledger.read() as connection:
        for statement, given in list(asked):
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)]
            scans = [line for line in plan if line.startswith("SCAN") and not allowed.fullmatch(line)]
            assert scans == [], (statement, plan)
            if "versions" in statement:
                assert named is not None  # the summaries that are shown
            for line in plan:
                if re.match(r"SEARCH (messages|items) ", line) and "count(" in statement:
                    assert "COVERING INDEX" in line


def test_wrong_arguments_are_refused(quiet: MemOS) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("cubes", {"cubes": []}),
        ("cubes", {"cubes": 7}),
        ("cube", {"cubes": ["\0"]}),
        ("since", {"cubes": ["default"], "since": "yesterday"}),
        ("since", {"since": NOW}),
    ]
    for told, arguments in wrong:
        with pytest.raises(InvalidInput, match=told):
            quiet.statistics.overview(**arguments)


def test_an_unknown_cube_too_many_and_a_closed_installation_are_told(quiet: MemOS) -> None:
    with pytest.raises(NotFound):
        quiet.statistics.overview(["nowhere"])
    with pytest.raises(InvalidInput, match="limit of 100"):
        OverviewRequest(NOW, [str(number) for number in range(101)])
    quiet.close()
    with pytest.raises(BackendUnavailable):
        quiet.statistics.overview()


def test_an_installation_without_anything_has_an_overview(quiet: MemOS) -> None:
    quiet.cubes.drop("default")
    seen = quiet.statistics.overview()
    assert (seen.cubes, seen.more_cubes, seen.running, seen.tokens_today) == ((), 0, (), 0)
    assert "0 cubes" in _drawn(seen)


@pytest.mark.heavy
def test_postgresql_counts_the_same(quiet: MemOS, request: pytest.FixtureRequest) -> None:
    ledger = Ledger.open(request.getfixturevalue("postgres_server").url())
    try:
        store = Store(ledger)
        store.make("default")
        store.make("other")
        item = store.add([{"role": "user", "content": f"turn {number}"} for number in range(3)]).item_ids[0]
        store.update(item, "changed")
        with ledger.write() as connection:
            tasks.enqueue(connection, "default", [NewTask("x"), NewTask("y")], store.clock.now())
            usage.add(connection, "default", "reader", store.clock.now(), Spending(1, 5, 6))
        for named in (None, ["default"]):
            seen = take_overview(ledger, quiet._scheduler, OverviewRequest(store.clock.now(), named))
            found = seen.cubes[0]
            assert (found.cube, found.messages, found.short_pages, found.events) == ("default", 3, 3, 3)
            assert (found.long_items, found.waiting, found.tokens_today, seen.tokens_today) == (0, 2, 11, 11)
            assert found.adds_per_s == pytest.approx(1 / 60)
            assert {kind: seen.tasks[kind] for kind in "xy"} == {"x": {"waiting": 1}, "y": {"waiting": 1}}
            later = take_overview(ledger, quiet._scheduler, OverviewRequest(store.clock.now(), named, seen))
            assert (later.cubes[0].messages, later.cubes[0].adds_per_s) == (3, 0)
    finally:
        ledger.close()


# The command


ODD = "odd [/red] :smile: \x1b[31m\x1b]0;title\x07 garden"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("top") / "home"
    with MemOS.open(folder) as memos:
        memos.cubes.create("work[bold]")
        memos.add(ODD, cube="work[bold]")
        memos.add(pages_of(12), conversation="c")
        settled(memos)
    return folder


def test_the_command_prints_one_frame_where_there_is_no_terminal(home: Path) -> None:
    runner = CliRunner(env={"MEMOS_HOME": str(home)})
    for arguments in (["task", "top"], ["task", "top", "--once"]):
        done = runner.invoke(app, arguments)
        assert done.exit_code == 0
        [line] = [line for line in done.stdout.splitlines() if line.startswith("default")]
        assert line.split()[1:4] == ["24", "10", "1"]
        assert "work[bold]" in done.stdout
        assert "garden" not in done.stdout  # texts only of a cube that is named
    named = runner.invoke(app, ["task", "top", "--cube", "work[bold]"])
    assert "odd [/red] :smile: \\x1b[31m" in named.stdout
    assert "\x1b" not in named.stdout
    assert "\ndefault" not in named.stdout
    told = json.loads(runner.invoke(app, ["task", "top", "--json"]).stdout)
    assert {cube["cube"]: cube["messages"] for cube in told["cubes"]} == {"default": 24, "work[bold]": 1}
    assert told["more_cubes"] == 0


@pytest.mark.parametrize("every", ["0", "-1", "nan", "inf", "1e9"])
def test_the_command_refuses_a_wrong_pace(home: Path, every: str) -> None:
    failed = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, ["task", "top", "--every", every])
    assert failed.exit_code == InvalidInput.exit_code


def test_the_command_tells_an_unknown_cube(home: Path) -> None:
    missing = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, ["task", "top", "--cube", "nowhere"])
    assert missing.exit_code == NotFound.exit_code


def test_on_a_terminal_it_goes_on_until_it_is_interrupted(home: Path) -> None:
    ours, its = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMOS_")}
    with subprocess.Popen(
        [sys.executable, "-m", "memos.cli.app", "task", "top", "--every", "0.1", "--cube", "work[bold]"],
        cwd=ROOT, stdin=its, stdout=its, stderr=subprocess.PIPE, text=True,
        env={**kept, "MEMOS_HOME": str(home), "TERM": "xterm", "COLUMNS": "200", "LINES": "50"},
    ) as process:  # fmt: skip
        os.close(its)
        shown = b""
        while shown.count(b"moves/min") < 3:
            shown += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        while True:  # what it says at its end has to be read, or it would wait
            try:
                shown += os.read(ours, 65_536)
            except OSError:
                break
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(timeout=120) == 130
    os.close(ours)
    assert err.startswith("Interrupted;")
    assert b"odd [/red] :smile:" in shown
    assert b"\x1b]0;title" not in shown
    assert shown.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in shown  # the terminal is as it was
