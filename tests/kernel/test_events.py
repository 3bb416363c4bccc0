"""Events as callers see them: in order, by kind, followed while others write, without the words they were about."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from memos import MemOS
from memos.cli.app import app
from memos.core.identities import Right
from memos.core.types import Event
from memos.errors import BackendUnavailable, InvalidInput, NotFound, PermissionDenied
from memos.kernel.access.service import Sharing, Users
from memos.kernel.context import Context, Scopes
from memos.kernel.events import Events
from memos.memcube.ledger import cubes
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.fakes import FixedClock
from tests.support.contexts import context_of
from tests.support.ledgers import Store, sqlite_ledger

ROOT = Path(__file__).resolve().parents[2]
SECRET = "The wombat password of the greenhouse is zanzibar."


@pytest.fixture(params=["sqlite", "postgresql"])
def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Ledger, Ledger]]:
    """Return a ledger to read from and one to write to: under PostgreSQL two, as two processes have."""
    if request.param == "sqlite":
        both = [Ledger.open(sqlite_url(tmp_path / "ledger.db"))] * 2
    else:
        url = request.getfixturevalue("postgres_server").url()
        both = [Ledger.open(url), Ledger.open(url)]
    yield both[0], both[1]
    for ledger in both:
        ledger.close()


def events_of(ledger: Ledger) -> Events:
    return Events(context_of(ledger, FixedClock()))


@pytest.fixture
def events(tmp_path: Path) -> Iterator[Events]:
    """Events of a ledger with nothing else around it."""
    with sqlite_ledger(tmp_path / "alone") as ledger:
        Store(ledger).make("default")
        yield events_of(ledger)


class Follower:
    """A thread that follows; what it saw is waited for."""

    def __init__(self, following: Iterator[Event]) -> None:
        self._seen: queue.Queue[Event | Exception | None] = queue.Queue()
        self._following = following
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            for event in self._following:
                self._seen.put(event)
            self._seen.put(None)
        except (NotFound, BackendUnavailable) as error:
            self._seen.put(error)

    def next(self) -> Event | Exception | None:
        """Return the next event, None when the following has ended, or what it ended with."""
        return self._seen.get(timeout=60)


def test_events_come_in_order_behind_a_number_and_by_kind(ledgers: tuple[Ledger, Ledger]) -> None:
    reader, writer = ledgers
    store, events = Store(writer), events_of(reader)
    store.make("default")
    store.make("other")
    item = store.add("I live in Paris.").item_ids[0]
    store.update(item, "I live in Lyon.")
    store.add("elsewhere", cube="other")
    store.delete(item)
    found = events.list()
    assert [(event.seq, event.kind, event.item) for event in found] == [
        (1, "create", None), (2, "add", None), (3, "update", item), (4, "delete", item),
    ]  # fmt: skip
    assert [event.body for event in found] == [{}, {"items": [item]}, {"from": 1, "to": 2}, {"from": 2, "to": 3}]
    assert {(event.cube, event.actor) for event in found} == {("default", "local")}
    assert [event.at for event in found] == sorted(event.at for event in found)
    assert events.list(after=2) == found[2:]
    assert events.list(limit=2) == found[:2]
    assert events.list(after=1, kinds=["delete", "add", "delete"]) == [found[1], found[3]]
    assert events.list(kinds=["no such kind"]) == []
    assert events.list(after=4) == events.list(after=2**63 - 1) == []
    assert [event.kind for event in events.list("other")] == ["create", "add"]


def test_a_follower_sees_what_others_commit_and_stops(ledgers: tuple[Ledger, Ledger]) -> None:
    reader, writer = ledgers
    store, events, stop = Store(writer), events_of(reader), threading.Event()
    store.make("default")
    store.add("before it follows")
    follower = Follower(events.follow(stop=stop))
    adds_alone = Follower(events.follow(after=0, kinds=["add"], stop=stop))
    item = store.add("I live in Paris.").item_ids[0]
    seen = follower.next()
    assert isinstance(seen, Event)
    assert (seen.seq, seen.kind, seen.body) == (3, "add", {"items": [item]})
    store.delete(item)
    later = store.add("again").item_ids[0]
    assert [event.kind for event in (follower.next(), follower.next()) if isinstance(event, Event)] == ["delete", "add"]
    added = [adds_alone.next() for _ in range(3)]
    assert [event.seq for event in added if isinstance(event, Event)] == [2, 3, 5]
    assert events.list(after=4)[0].body == {"items": [later]}
    stop.set()
    for one in (follower, adds_alone):
        assert one.next() is None
        one.thread.join(60)
        assert not one.thread.is_alive()


def test_following_reads_more_than_one_batch_and_nothing_twice(ledgers: tuple[Ledger, Ledger]) -> None:
    reader, writer = ledgers
    store, events = Store(writer), events_of(reader)
    store.make("default")
    with writer.write() as connection:
        for number in range(1_200):
            kind = "add" if number % 3 else "odd"
            cubes.record_event(connection, "default", store.clock.now(), "local", kind, None, {"number": number})
    followed = events.follow(after=0, timeout_s=60)
    assert [next(followed).seq for _ in range(1_201)] == list(range(1, 1_202))
    odd = events.follow(after=0, kinds=["odd"], timeout_s=0)
    assert [event.body["number"] for event in odd] == list(range(0, 1_200, 3))


def test_a_follower_begins_anew_with_a_cube_that_was_dropped_and_made_again(ledgers: tuple[Ledger, Ledger]) -> None:
    reader, writer = ledgers
    store, events = Store(writer), events_of(reader)
    store.make("other")
    store.add("one", cube="other")
    followed = events.follow("other", after=0, timeout_s=60)
    assert [next(followed).kind, next(followed).kind] == ["create", "add"]
    store.drop("other")
    store.make("other", "again")
    assert next(followed).seq == 1
    store.drop("other")
    with pytest.raises(NotFound, match="memos cube create other"):
        next(followed)


def test_following_ends_with_its_time(memos: MemOS) -> None:
    memos.add("one")
    assert list(memos.events.follow(timeout_s=0)) == []
    assert list(memos.events.follow(timeout_s=0.01)) == []
    assert [event.kind for event in memos.events.follow(after=0, timeout_s=0)][:2] == ["create", "add"]
    stop = threading.Event()
    stop.set()
    assert list(memos.events.follow(after=0, stop=stop)) == []


def test_a_follower_ends_when_the_installation_is_closed(memos: MemOS) -> None:
    follower = Follower(memos.events.follow(kinds=["no such kind"]))
    memos.close()
    assert isinstance(follower.next(), BackendUnavailable)
    follower.thread.join(60)


def test_erased_bodies_are_none_and_no_event_tells_what_was_said(memos: MemOS) -> None:
    item = memos.add({"role": "user", "name": "Maya", "content": SECRET}, tags=["zanzibar"]).item_ids[0]
    memos.update(item, "It is zanzibar no more.", reason="zanzibar")
    memos.feedback("No, the wombat password is zanzibar2.", item_ids=[item])
    memos.tasks.wait(timeout_s=60)
    memos.search("zanzibar")
    before = memos.events.list()
    assert {"add", "update"} <= {event.kind for event in before}
    assert all(event.body is not None for event in before)
    assert "zanzibar" not in str(before)
    memos.erase(item)
    after = memos.events.list()
    assert [event.body for event in after if event.item == item] == [None] * sum(e.item == item for e in before)
    erased = next(event for event in after if event.kind == "erase")
    assert erased.body["items"] == [item]
    assert memos.maintenance.verify().clean


def test_reading_events_is_a_range_of_the_key(memos: MemOS) -> None:
    asked: list[tuple[str, object]] = []

    def note(connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        asked.append((statement, parameters))

    sa.event.listen(memos.ledger._engine, "before_cursor_execute", note)
    memos.events.list(after=5, kinds=["add"])
    list(memos.events.follow(after=0, timeout_s=0))
    sa.event.remove(memos.ledger._engine, "before_cursor_execute", note)
    about = [(statement, given) for statement, given in asked if "FROM events" in statement]
    assert len(about) == 2
    with memos.ledger.read() as connection:
        for statement, given in about:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()  # type: ignore[arg-type]
            assert [row[3] for row in plan] == [
                "SEARCH events USING INDEX sqlite_autoindex_events_1 (cube_id=? AND seq>?)"
            ]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("after", -1),
        ("after", 2**63),
        ("after", float("nan")),
        ("after", "1"),
        ("after", True),
        ("kinds", "add"),
        ("kinds", b"add"),
        ("kinds", 7),
        ("kinds", ["\0"]),
        ("kinds", [7]),
        ("kinds", ["add"] * 101),
        ("kinds", ["k" * 65]),
    ],
)
def test_wrong_arguments_are_refused(events: Events, field: str, wrong: object) -> None:
    for call in (events.list, events.follow):
        with pytest.raises(InvalidInput, match=field):
            call(**{field: wrong})  # at once, not when the first event is asked for


@pytest.mark.parametrize("wrong", [0, -1, 10_001, float("nan"), float("inf"), None, 10**400])
def test_a_wrong_limit_is_refused(events: Events, wrong: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        events.list(limit=wrong)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", True, 10**400])
def test_a_wrong_time_is_refused(events: Events, wrong: float) -> None:
    with pytest.raises(InvalidInput, match="timeout_s"):
        events.follow(timeout_s=wrong)


def test_an_unknown_cube_is_told(memos: MemOS) -> None:
    for call in (memos.events.list, memos.events.follow):
        with pytest.raises(NotFound, match="memos cube create nowhere"):
            call("nowhere")
        with pytest.raises(InvalidInput, match="cube"):
            call("")


# The command


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a few events, one of them erased."""
    folder = tmp_path_factory.mktemp("events") / "home"
    with MemOS.open(folder) as memos:
        item = memos.add(SECRET).item_ids[0]
        memos.update(item, "changed", actor="evil\x1b[31m\nactor")
        memos.add("kept")
        memos.tasks.wait(timeout_s=60)
        memos.erase(item)
    return folder


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMOS_")}
    return {**kept, "MEMOS_HOME": str(home), "PYTHONUTF8": "1"}


def test_the_command_lists_events(home: Path) -> None:
    runner = CliRunner(env={"MEMOS_HOME": str(home)})
    listed = runner.invoke(app, ["cube", "events", "--json"])
    assert listed.exit_code == 0
    found = json.loads(listed.stdout)
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    assert [event["kind"] for event in found][:4] == ["create", "add", "update", "add"]
    assert found[2]["body"] is None
    told = runner.invoke(app, ["cube", "events", "--kind", "update", "--kind", "create"]).stdout.splitlines()
    assert len(told) == 2  # whatever stands in the actor's name
    assert "evil\\x1b[31m actor" in told[1]
    assert told[1].endswith("(erased)")
    assert "zanzibar" not in listed.stdout
    assert len(json.loads(runner.invoke(app, ["cube", "events", "--after", "1", "--limit", "1", "--json"]).stdout)) == 1
    followed = runner.invoke(app, ["cube", "events", "--follow", "--after", "1", "--limit", "2", "--json"])
    assert [json.loads(line)["seq"] for line in followed.stdout.splitlines()] == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--after", "-1"], "after"),
        (["--limit", "0"], "limit"),
        (["--follow", "--limit", "0"], "limit"),
        (["--follow", "--after", "9223372036854775808"], "after"),
        (["--kind", ""], "kinds"),
    ],
)
def test_the_command_refuses_wrong_options(home: Path, arguments: list[str], told: str) -> None:
    failed = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, ["cube", "events", *arguments])
    assert failed.exit_code == InvalidInput.exit_code
    assert failed.stderr.startswith(f"Error: {told}: ")


def test_no_event_is_said_in_words(home: Path) -> None:
    done = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, ["cube", "events", "--kind", "nothing-of-the-kind"])
    assert (done.exit_code, done.stdout) == (0, "no such event\n")


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 3])
def test_a_reader_that_has_enough_ends_the_following(home: Path, count: int) -> None:
    """Also when it has read everything there is, so that nothing more is written to it."""
    command = f"{sys.executable} -m memos cube events --follow --json --after 0 | head -n {count}"
    done = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == list(range(1, count + 1))


def test_an_idle_follower_ends_with_its_reader(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "memos.cli.app", "cube", "events", "--follow", "--kind", "create", "--after", "0"],
        cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"create" in process.stdout.readline()
        process.stdout.close()  # and no event comes any more
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == b""


def test_an_interrupt_ends_the_following_with_the_documented_code(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "memos.cli.app", "cube", "events", "--follow", "--json", "--after", "0"],
        cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 1  # told at once, not when a buffer is full
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.startswith("Interrupted;")
    assert "Traceback" not in err


def test_a_folder_in_use_is_told(home: Path) -> None:
    with MemOS.open(home):
        for command in (["cube", "events"], ["task", "top"]):
            failed = CliRunner(env={"MEMOS_HOME": str(home)}).invoke(app, command)
            assert failed.exit_code == BackendUnavailable.exit_code
            assert str(os.getpid()) in failed.stderr


def test_every_event_of_a_cube_is_in_its_list(memos: MemOS) -> None:
    memos.add("one")
    memos.tasks.wait(timeout_s=60)
    with memos.ledger.read() as connection:
        kept = connection.execute(sa.select(t.events.c.seq, t.events.c.body)).all()
    found = memos.events.list()
    assert {event.seq: event.body for event in found} == {row.seq: json.loads(row.body) for row in kept}


@pytest.mark.parametrize("followed", [False, True])
def test_what_is_committed_behind_the_end_of_a_share_is_not_told(
    memos: MemOS, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memos.users.create("ana")
    memos.users.create("ben")
    memos.cubes.create("lent", actor="ana")
    memos.sharing.grant("lent", "ben", "reader", actor="ana")
    check = Scopes.cubes_of

    def taken_back_then(self: Scopes, names: Sequence[str] | None, actor: str, right: Right) -> tuple[str, ...] | None:
        """Take the share back as soon as it was looked at for the first time, before anything is read."""
        found = check(self, names, actor, right)
        memos.sharing.revoke("lent", "ben", actor="ana")
        memos.add("behind the end", cube="lent", actor="ana")
        return found

    monkeypatch.setattr(Scopes, "cubes_of", taken_back_then)
    events = memos.events
    with pytest.raises(NotFound):
        if followed:
            next(events.follow("lent", actor="ben", after=0, timeout_s=5))
        else:
            events.list("lent", actor="ben")


@pytest.mark.parametrize("end", ["revoke", "leave", "disable"])
def test_nothing_is_told_between_the_commit_of_an_end_and_its_return(memos: MemOS, end: str) -> None:
    for user in ("ana", "ben"):
        memos.users.create(user)
    memos.users.create("team", kind="group")
    memos.users.join("team", "ben")
    memos.cubes.create("lent", actor="ana")
    memos.sharing.grant("lent", "team" if end == "leave" else "ben", "reader", actor="ana")
    assert memos.events.list("lent", actor="ben")  # who ben is may be remembered now
    refused: list[str] = []

    class LookedBehind(Context):
        """A context of which somebody else looks at the cube between a commit and what follows."""

        @contextmanager
        def write(self) -> Iterator[sa.Connection]:
            with super().write() as connection:
                yield connection
            with pytest.raises((NotFound, PermissionDenied)):
                memos.events.list("lent", actor="ben")
            refused.append(end)

    context = memos._context
    changed = LookedBehind(**{each.name: getattr(context, each.name) for each in fields(context)})
    if end == "revoke":
        Sharing(changed).revoke("lent", "ben", actor="ana")
    elif end == "leave":
        Users(changed, memos.cubes.create_home).leave("team", "ben")
    else:
        Users(changed, memos.cubes.create_home).enable("ben", enabled=False)
    assert refused == [end]
    with pytest.raises((NotFound, PermissionDenied)):
        memos.events.list("lent", actor="ben")
