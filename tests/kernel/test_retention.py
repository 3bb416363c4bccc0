"""Rules of retention: what is old is archived, deleted or erased, nothing else is, whatever comes in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.identities import Right
from memos.core.retention import RetentionAction, RetentionRule
from memos.core.types import WHOLE, Fact, ItemType, Role, Scope, Span, Status, Task, TaskState
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound
from memos.kernel.relocation import restore
from memos.memcube import facts
from memos.memcube.changes import Change, Changing
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tier_moves as moves
from memos.scheduler.jobs import retention as job
from memos.scheduler.jobs.retention import RetentionJob
from memos.scheduler.scheduler import PeriodicJob
from memos.scheduler.task import ShuttingDown, TaskRun
from tests.fakes import FixedClock, WordEmbedder
from tests.support.ledgers import ODD, contents

SECRET = "The door code is 47B19-xylophone."
DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def memos(tmp_path: Path, settings: Settings, clock: FixedClock) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder(), clock=clock) as opened:
        opened._scheduler.periodic.stop()  # rules are applied when a test says so
        yield opened


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_BATCH", 2)


def say(memos: MemOS, text: str, *tags: str, cube: str = "default") -> str:
    return memos.add(text, tags=tags, cube=cube).item_ids[0]


def status_of(memos: MemOS, *ids: str) -> list[str]:
    """Return what became of items; 'erased' for those that are gone."""
    with memos.ledger.read() as connection:
        query = sa.select(t.versions.c.item_id, t.versions.c.status).where(t.versions.c.recorded_to.is_(None))
        found = {row.item_id: str(row.status) for row in connection.execute(query)}
    return [found.get(id_, "erased") for id_ in ids]


def pin(memos: MemOS, item: str) -> None:
    with memos.ledger.write() as connection:
        assert moves.pin(connection, "default", item, pinned=True)


def events(memos: MemOS, kind: str) -> list[str]:
    with memos.ledger.read() as connection:
        query = sa.select(t.events.c.body).where(t.events.c.kind == kind).order_by(t.events.c.cube_id, t.events.c.seq)
        return list(connection.scalars(query))


def periodic(memos: MemOS) -> None:
    """Do what the hourly job does."""
    memos.tasks.wait(timeout_s=60)
    assert memos._scheduler.periodic.fire(PeriodicJob("retention", timedelta(seconds=1)))
    memos.tasks.wait(timeout_s=60)
    assert {task.state for task in memos.tasks.list(kinds=["retention"])} == {TaskState.DONE}


def attempt(memos: MemOS, changing: Changing | None = None, stopping: threading.Event | None = None) -> TaskRun:
    """Run the job once as a worker would, without its end."""
    now = memos.clock.now()
    task = Task("t", "retention", WHOLE, {}, {}, 0, TaskState.RUNNING, 1, None, now, now)
    run = TaskRun(memos.ledger, memos.clock, task, "me", stopping or threading.Event(), lambda spent: True)
    RetentionJob(changing or memos._context.change, 30).run(run)
    return run


# What a rule does


@pytest.mark.parametrize(("action", "left"), [("archive", "archived"), ("delete", "deleted"), ("erase", "erased")])
def test_a_rule_does_its_action_to_what_is_old_enough_and_ends(
    memos: MemOS, clock: FixedClock, action: str, left: str
) -> None:
    old = [say(memos, f"old remark {number}", "note") for number in range(5)]
    other = say(memos, "old too", "keep")
    clock.advance(10 * DAY)
    young = say(memos, "young remark", "note")
    rule = memos.retention.add(action=action, tags=["note"], age_days=7)
    [effect] = memos.retention.run(actor="the auditor")
    assert (effect.rule, effect.count, effect.items) == (rule, 5, tuple(old))
    assert status_of(memos, *old, other, young) == [left] * 5 + ["active"] * 2
    assert memos.retention.run() == ()
    told = events(memos, "retention")
    assert len(told) == 3  # one a batch
    assert all(rule.id in body and action in body for body in told)
    if action != "erase":
        entry = memos.memories.history(old[0])[-1]
        assert (entry.reason, entry.actor) == (f"retention rule {rule.id}", "the auditor")
    found = {hit.item.id for hit in memos.search("remark", top_k=20)}
    assert found == ({*old, young} if action == "archive" else {young})
    assert memos.maintenance.verify().clean


def test_what_a_rule_deleted_can_be_brought_back(memos: MemOS) -> None:
    item = say(memos, "a remark", "note")
    rule = memos.retention.add(action="delete", tags=["note"])
    memos.retention.run()
    memos.retention.remove(rule.id)
    assert memos.memories.rollback(item, 1).status is Status.ACTIVE
    assert memos.retention.run() == ()


def test_what_a_rule_erased_is_in_no_file(memos: MemOS) -> None:
    say(memos, SECRET, "secret")
    memos.retention.add(action="erase", tags=["secret"])
    memos.retention.run()
    memos.close()
    assert b"xylophone" not in b"".join(path.read_bytes() for path in memos.home.rglob("*") if path.is_file())


def test_the_strongest_of_several_rules_is_applied_and_counted_once(memos: MemOS) -> None:
    one, two, three, none = (say(memos, f"remark {tags}", *tags) for tags in ("a", "ab", "abc", "x"))
    archive = memos.retention.add(action="archive", tags=["a"])
    erase = memos.retention.add(action="erase", tags=["c"])
    delete = memos.retention.add(action="delete", tags=["b"])
    assert memos.retention.list() == (erase, delete, archive)
    before = memos.retention.preview()
    assert [(effect.rule.id, effect.items) for effect in before] == [
        (erase.id, (three,)), (delete.id, (two,)), (archive.id, (one,)),
    ]  # fmt: skip
    assert memos.retention.run() == before
    assert status_of(memos, one, two, three, none) == ["archived", "deleted", "erased", "active"]


def test_a_preview_changes_nothing_and_shows_a_hundred(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_BATCH", 60)
    ids = memos.add([{"role": "user", "content": f"remark {number}"} for number in range(130)]).item_ids
    rule = memos.retention.add(action="erase", types=["message"])
    memos.retention.add(action="delete", types=["message"], age_days=1)
    memos.tasks.wait(timeout_s=60)
    before = contents(memos.ledger)
    first, second = memos.retention.preview()
    assert (first.rule, first.count, first.items, first.derived) == (rule, 130, ids[:100], 0)
    assert (second.count, second.items) == (0, ())
    assert contents(memos.ledger) == before
    [done] = memos.retention.run()
    assert (done.count, done.items) == (130, ids[:100])
    assert memos.memories.list() == []


def fact_of(memos: MemOS, item: str, text: str) -> str:
    with memos._context.change(Scope("reader", ("default",), right=Right.WRITE)) as change:
        fact = Fact(ItemType.USER, text, (Span(item, 0, 4),), "user", "test/1", memos.clock.now())
        return facts.store(change, fact).id


def test_what_was_made_of_an_erased_item_goes_with_it_and_is_counted(memos: MemOS) -> None:
    message = say(memos, "I am from Trieste", "old")
    fact = fact_of(memos, message, "The user is from Trieste")
    memos.retention.add(action="erase", tags=["old"])
    memos.retention.add(action="archive", types=["user"])
    preview = memos.retention.preview()
    assert [(effect.items, effect.derived) for effect in preview] == [((message,), 1), ((), 0)]
    [done] = memos.retention.run()
    assert (done.items, done.derived) == ((message,), 1)
    assert status_of(memos, message, fact) == ["erased", "erased"]


def test_what_is_pinned_is_kept_and_so_is_what_it_was_made_of(memos: MemOS) -> None:
    message, free, mine = (say(memos, f"remark {number}", "old") for number in range(3))
    pinned = fact_of(memos, message, "The user made a remark")
    pin(memos, pinned)
    pin(memos, mine)
    for action in RetentionAction:
        memos.retention.add(action=action, tags=["old"])
    assert [effect.items for effect in memos.retention.preview()] == [(free,), (), ()]
    memos.retention.run()
    periodic(memos)
    assert status_of(memos, message, pinned, mine, free) == ["active", "active", "active", "erased"]


def test_pending_items_can_be_swept_up_and_are_never_archived(memos: MemOS, clock: FixedClock) -> None:
    item = say(memos, "do as I say")
    memos.update(item, status="pending")
    memos.retention.add(action="archive", types=["message"])
    memos.retention.add(action="delete", statuses=["pending"], age_days=90)
    assert memos.retention.run() == ()
    clock.advance(91 * DAY)
    assert [effect.items for effect in memos.retention.run()] == [(item,)]


# The periodic task


def test_the_periodic_task_applies_the_rules_of_all_cubes(memos: MemOS) -> None:
    memos.cubes.create("other")
    memos.cubes.create("without rules")
    ids = [say(memos, f"in {cube}", "x", cube=cube) for cube in ("default", "other", "without rules")]
    memos.retention.add(action="delete", tags=["x"])
    memos.retention.add(action="archive", tags=["x"], cube="other")
    periodic(memos)
    assert status_of(memos, *ids) == ["deleted", "archived", "active"]
    assert memos.memories.history(ids[0])[-1].actor == "retention"
    before = contents(memos.ledger, "tasks", "queues", "usage", "leases")
    periodic(memos)
    assert contents(memos.ledger, "tasks", "queues", "usage", "leases") == before


def test_a_task_that_is_stopped_keeps_what_it_did_and_goes_on_later(memos: MemOS) -> None:
    memos.tasks.wait(timeout_s=60)
    memos.cubes.create("other")
    ids = [say(memos, f"remark {number}", "x", cube=cube) for cube in ("default", "other") for number in range(5)]
    memos.retention.add(action="delete", tags=["x"])
    memos.retention.add(action="delete", tags=["x"], cube="other")
    attempts, done = 0, 0
    while True:
        stopping = threading.Event()

        def once(scope: Scope, stopping: threading.Event = stopping) -> AbstractContextManager[Change]:
            stopping.set()  # in the middle of the first batch
            return memos._context.change(scope)

        try:
            attempt(memos, once, stopping)
        except ShuttingDown:
            attempts += 1
            assert status_of(memos, *ids).count("deleted") > done
            done = status_of(memos, *ids).count("deleted")
        else:
            break
    assert (attempts, done) == (6, 10)  # two cubes, five items each, two a batch
    assert len(events(memos, "retention")) == 6
    assert all(len(memos.memories.history(id_)) == 2 for id_ in ids)
    assert memos.maintenance.verify().clean


def test_what_was_deleted_long_ago_is_erased_a_batch_at_a_time(
    memos: MemOS, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memos.memcube.ledger import items  # noqa: PLC0415 - its size of a batch is made small

    monkeypatch.setattr(items, "_BATCH", 2)
    ids = [say(memos, f"remark {number}") for number in range(5)]
    memos.delete(ids)
    clock.advance(31 * DAY)
    opened: list[int] = []

    def one_is_brought_back(scope: Scope) -> AbstractContextManager[Change]:
        if not opened:
            memos.memories.rollback(ids[0], 1)
        opened.append(1)
        return memos._context.change(scope)

    attempt(memos, one_is_brought_back)
    assert len(opened) == 3
    assert status_of(memos, *ids) == ["active"] + ["erased"] * 4


@pytest.mark.parametrize("meanwhile", ["pinned", "untagged", "rule removed", "cube dropped", "erased"])
def test_what_changes_before_a_batch_is_applied_is_respected(memos: MemOS, meanwhile: str) -> None:
    memos.tasks.wait(timeout_s=60)
    memos.cubes.create("other")
    ids = [say(memos, f"remark {number}", "x", cube="other") for number in range(3)]
    rule = memos.retention.add(action="delete", tags=["x"], cube="other")
    changed: list[int] = []

    def changing(scope: Scope) -> AbstractContextManager[Change]:
        if not changed:
            changed.append(1)
            match meanwhile:
                case "pinned":
                    with memos.ledger.write() as connection:
                        assert moves.pin(connection, "other", ids[0], pinned=True)
                case "untagged":
                    memos.update(ids[0], tags=[])
                case "rule removed":
                    memos.retention.remove(rule.id)
                case "cube dropped":
                    memos.cubes.drop("other")
                case "erased":
                    memos.erase(ids[0])
        return memos._context.change(scope)

    attempt(memos, changing)
    first = {"erased": "erased", "cube dropped": "erased"}.get(meanwhile, "active")
    others = {"rule removed": "active", "cube dropped": "erased"}.get(meanwhile, "deleted")
    assert status_of(memos, *ids) == [first, others, others]
    assert memos.maintenance.verify().clean


def test_what_comes_while_rules_are_applied_waits_for_the_next_time(memos: MemOS) -> None:
    item = say(memos, "the first", "x")
    memos.retention.add(action="delete", tags=["x"])
    later: list[str] = []

    def changing(scope: Scope) -> AbstractContextManager[Change]:
        later.append(say(memos, f"one more {len(later)}", "x"))
        return memos._context.change(scope)

    attempt(memos, changing)
    assert len(later) == 1
    assert status_of(memos, item, *later) == ["deleted", "active"]


# The rules


def test_a_rule_that_is_there_is_returned(memos: MemOS) -> None:
    rule = memos.retention.add(
        action="delete", types=["skill", "message", "skill"], tags=["b", ODD[:20], "b"], age_days=1
    )
    again = memos.retention.add(action="delete", types=("message", "skill"), tags=[ODD[:20], "b"], age_days=1.0)
    assert again == rule
    assert memos.retention.list() == (rule,)
    assert (rule.types, rule.statuses, rule.age_days) == ((ItemType.MESSAGE, ItemType.SKILL), (), 1.0)
    other = memos.retention.add(action="delete", types=["skill", "message"], tags=["b"], age_days=1)
    assert set(memos.retention.list()) == {rule, other}
    assert len(events(memos, "rule")) == 2
    assert ODD[:20] not in str(events(memos, "rule"))


def test_a_rule_is_removed_once(memos: MemOS) -> None:
    memos.cubes.create("other")
    rule = memos.retention.add(action="archive", tags=["x"], cube="other")
    with pytest.raises(NotFound, match="Cube 'default' has no rule"):
        memos.retention.remove(rule.id, cube="default")
    assert memos.retention.remove(rule.id) == rule
    with pytest.raises(NotFound, match="memos cube retention list"):
        memos.retention.remove(rule.id)
    assert memos.retention.list(cube="other") == ()


def test_a_cube_has_at_most_a_hundred_rules(memos: MemOS) -> None:
    rules = [memos.retention.add(action="archive", tags=["x"], age_days=days) for days in range(100)]
    with pytest.raises(Conflict, match="100 retention rules"):
        memos.retention.add(action="archive", tags=["y"])
    assert memos.retention.add(action="archive", tags=["x"], age_days=99) == rules[-1]
    memos.cubes.create("other")
    memos.retention.add(action="archive", tags=["y"], cube="other")
    memos.retention.remove(rules[0].id)
    memos.retention.add(action="archive", tags=["y"])
    assert len(memos.retention.list()) == 100


@pytest.mark.parametrize("wanted", [
    {}, {"age_days": 365}, {"types": list(ItemType)}, {"statuses": list(Status)},
    {"statuses": ["active", "archived", "superseded", "pending"], "action": "delete"},
    {"statuses": ["active"], "action": "archive"},
])  # fmt: skip
def test_a_rule_that_matches_everything_needs_a_yes(memos: MemOS, wanted: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"action": "erase", **wanted}
    with pytest.raises(InvalidInput, match=r"every memory of cube 'default'.*--yes"):
        memos.retention.add(**asked, yes="no")
    with pytest.raises(InvalidInput, match=r"every memory of cube 'default'.*--yes"):
        memos.retention.add(**asked)
    assert memos.retention.list() == ()
    rule = memos.retention.add(**asked, yes=True)
    assert memos.retention.list() == (rule,)


@pytest.mark.parametrize(("wanted", "field"), [
    ({"action": "shred"}, "action"), ({"action": None}, "action"), ({"action": "Delete"}, "action"),
    ({"action": ["delete"]}, "action"),
    ({"types": ["facts"]}, "types"), ({"types": "message"}, "types"), ({"types": [None]}, "types"),
    ({"types": [["message"]]}, "types"), ({"types": {"message": 1}}, "types"), ({"types": b"ab"}, "types"),
    ({"types": ["message"] * 101}, "types"), ({"types": None}, "types"), ({"types": 7}, "types"),
    ({"statuses": ["gone"]}, "statuses"), ({"statuses": ["deleted"]}, "statuses"), ({"statuses": "active"}, "statuses"),
    ({"action": "archive", "statuses": ["pending", "deleted"]}, "statuses"),
    ({"tags": "x"}, "tags"), ({"tags": [""]}, "tags"), ({"tags": ["\0"]}, "tags"), ({"tags": ["\ud800"]}, "tags"),
    ({"tags": ["x" * 129]}, "tags"), ({"tags": [1]}, "tags"), ({"tags": [str(n) for n in range(101)]}, "tags"),
    ({"age_days": -1}, "age_days"), ({"age_days": -0.001}, "age_days"), ({"age_days": float("nan")}, "age_days"),
    ({"age_days": float("inf")}, "age_days"), ({"age_days": 36_501}, "age_days"), ({"age_days": 10**400}, "age_days"),
    ({"age_days": "7"}, "age_days"), ({"age_days": None}, "age_days"), ({"age_days": True}, "age_days"),
    ({"age_days": [1]}, "age_days"),
    ({"cube": ""}, "cube"), ({"cube": 7}, "cube"), ({"actor": ""}, "actor"),
])  # fmt: skip
def test_wrong_rules_are_refused(memos: MemOS, wanted: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        memos.retention.add(**{"action": "delete", "tags": ["x"], "yes": True, **wanted})
    assert refused.value.field == field
    assert memos.retention.list() == ()


def test_a_cube_that_is_not_there_and_a_closed_installation_are_told(memos: MemOS) -> None:
    calls: list[Any] = [
        lambda: memos.retention.add(action="delete", tags=["x"], cube="nowhere"),
        lambda: memos.retention.list(cube="nowhere"),
        lambda: memos.retention.preview(cube="nowhere"),
        lambda: memos.retention.run(cube="nowhere"),
        lambda: memos.retention.remove("nothing"),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    for bad in ("", "\0", 7, None):
        with pytest.raises(InvalidInput, match="rule"):
            memos.retention.remove(bad)  # type: ignore[arg-type]
    memos.close()
    for call in calls:
        with pytest.raises(BackendUnavailable, match="closed"):
            call()


# Copies


def test_rules_leave_with_their_cube_and_are_in_its_backups(memos: MemOS, tmp_path: Path, settings: Settings) -> None:
    memos.cubes.create("other")
    memos.add({"role": Role.USER, "content": "kept"}, cube="other")
    gone = memos.retention.add(action="delete", tags=[ODD[:20]], statuses=["active"], age_days=0.5, cube="other")
    kept = memos.retention.add(action="erase", types=["message"], age_days=400)
    memos.maintenance.backup(tmp_path / "backup")

    def restored(name: str) -> dict[str, tuple[RetentionRule, ...]]:
        elsewhere = settings.model_copy(update={"home": tmp_path / name})
        restore(tmp_path / "backup", elsewhere, embedder=WordEmbedder())
        with MemOS.open(settings=elsewhere, embedder=WordEmbedder()) as copy:
            return {cube.id: copy.retention.list(cube=cube.id) for cube in copy.cubes.list()}

    assert restored("before") == {"default": (kept,), "other": (gone,)}
    memos.cubes.drop("other")
    with pytest.raises(NotFound):
        memos.retention.remove(gone.id)
    with memos.ledger.read() as connection:
        assert connection.scalars(sa.select(t.retention_rules.c.id)).all() == [kept.id]
    assert memos.maintenance.verify().clean
    assert restored("after") == {"default": (kept,)}
