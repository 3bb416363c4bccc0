"""The contract of tasks as rows, run over both databases: taken in fair turns, by one owner, ended once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos.core.types import Task, TaskState
from memos.errors import Conflict, NotFound
from memos.memcube.ledger import queues, tasks
from memos.memcube.ledger import queues as leases
from memos.memcube.ledger import queues as usage
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.queues import Spending
from memos.memcube.ledger.tasks import Delay, Lease, NewTask, TaskQuery

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COSTS = {"read": 1.0, "big": 4.0}


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        opened = Ledger.open(sqlite_url(tmp_path / "ledger.db"))
    else:
        opened = Ledger.open(request.getfixturevalue("postgres_server").url())
    yield opened
    opened.close()


def put(ledger: Ledger, cube: str, *new: NewTask, now: datetime = NOW) -> list[str]:
    with ledger.write() as connection:
        return tasks.enqueue(connection, cube, new or [NewTask("read")], now)


def take(ledger: Ledger, *, now: datetime = NOW, owner: str = "me", costs: dict[str, float] = COSTS) -> Task | None:
    with ledger.write() as connection:
        return tasks.take(connection, Lease(owner, now + MINUTE), now, costs)


def taken(ledger: Ledger, **how: object) -> Task:
    task = take(ledger, **how)  # type: ignore[arg-type]
    assert task is not None
    return task


def finish(ledger: Ledger, task: Task, owner: str = "me") -> bool:
    with ledger.write() as connection:
        return tasks.finish(connection, task.id, owner, NOW)


def get(ledger: Ledger, task_id: str) -> Task:
    with ledger.read() as connection:
        return tasks.get(connection, task_id)


def cubes_in_order(ledger: Ledger, most: int) -> list[str]:
    order = []
    while len(order) < most and (task := take(ledger)) is not None:
        order.append(task.cube)
        assert finish(ledger, task)
    return order


def test_a_task_is_kept_as_given_and_taken_once(ledger: Ledger) -> None:
    new = NewTask("read", {"page": "p1", "深": [1, None]}, "k", 3, {"actor": "maya"}, NOW - MINUTE)
    [task_id] = put(ledger, "a", new)
    waiting = get(ledger, task_id)
    assert (waiting.kind, waiting.cube, waiting.key, waiting.priority) == ("read", "a", "k", 3)
    assert (waiting.payload, waiting.scope) == ({"page": "p1", "深": [1, None]}, {"actor": "maya"})
    assert (waiting.state, waiting.attempts, waiting.created_at) == (TaskState.WAITING, 0, NOW)
    running = taken(ledger)
    assert running == get(ledger, task_id)
    assert (running.state, running.attempts, running.lease_owner) == (TaskState.RUNNING, 1, "me")
    assert (running.lease_until, running.started_at) == (NOW + MINUTE, NOW)
    assert take(ledger) is None
    assert finish(ledger, running)
    done = get(ledger, task_id)
    assert (done.state, done.progress, done.lease_owner, done.finished_at) == (TaskState.DONE, 1.0, None, NOW)
    assert not finish(ledger, running)


def test_within_a_cube_the_lowest_priority_number_comes_first_then_the_oldest(ledger: Ledger) -> None:
    ids = [put(ledger, "a", NewTask("read", priority=priority))[0] for priority in (5, 5, 1, 9, 1)]
    assert [taken(ledger).id for _ in ids] == [ids[place] for place in (2, 4, 0, 1, 3)]


def test_one_task_of_a_kind_and_key_waits_at_a_time(ledger: Ledger) -> None:
    [first] = put(ledger, "a", NewTask("read", key="x"))
    assert put(ledger, "a", NewTask("read", key="x"), NewTask("big", key="x"))[0] == first
    [elsewhere] = put(ledger, "b", NewTask("read", key="x"))
    assert elsewhere != first
    assert taken(ledger).id == first
    [next_one] = put(ledger, "a", NewTask("read", key="x"))
    assert next_one != first  # the running one may have read before the second cause


def test_a_blocked_task_is_no_work_until_it_is_let_go(ledger: Ledger) -> None:
    [first], [other] = put(ledger, "a", NewTask("read")), put(ledger, "b", NewTask("big"))
    for _ in range(2):
        task = taken(ledger)
        with ledger.write() as connection:
            delay = Delay(tasks.BLOCKED, "set something", counted=False)
            assert tasks.give_back(connection, task, "me", delay, NOW)
    assert take(ledger, now=NOW + timedelta(days=9_999)) is None
    with ledger.write() as connection:
        assert (tasks.unended(connection, None), tasks.unended(connection, ["a"])) == (0, 0)
        assert tasks.unblock(connection, "read", NOW) == 1
        assert tasks.unblock(connection, "read", NOW) == 0
    assert taken(ledger).id == first
    assert take(ledger) is None
    assert get(ledger, other).note == "set something"


def test_the_small_cubes_are_served_within_a_twentieth_of_a_busy_ones_work(ledger: Ledger) -> None:
    put(ledger, "busy", *[NewTask("read")] * 10_000)
    for _ in range(50):
        finish(ledger, taken(ledger))
    for number in range(100):
        put(ledger, f"small{number:03d}")
    order = cubes_in_order(ledger, 505)
    assert sum(cube != "busy" for cube in order) == 100
    assert "busy" in order[:150]  # nor does it wait for all of them


def test_turns_go_by_weight_and_cost(ledger: Ledger) -> None:
    for cube in ("one", "three"):
        put(ledger, cube, *[NewTask("read")] * 100)
    put(ledger, "dear", *[NewTask("big")] * 100)
    with ledger.write() as connection:
        queues.set_weight(connection, "three", 3.0)
    share = Counter(cubes_in_order(ledger, 85))
    assert share["three"] == pytest.approx(3 * share["one"], abs=4)
    assert share["one"] == pytest.approx(4 * share["dear"], abs=4)


def test_a_cube_that_comes_and_goes_gains_nothing(ledger: Ledger) -> None:
    put(ledger, "steady", *[NewTask("read")] * 50)
    put(ledger, "a restless one")
    order = []
    for _ in range(40):
        task = taken(ledger)
        order.append(task.cube)
        finish(ledger, task)
        if task.cube != "steady":
            put(ledger, "a restless one")
    assert Counter(order)["steady"] >= 19


def test_a_cube_whose_tasks_slept_does_not_come_back_with_what_it_missed(ledger: Ledger) -> None:
    put(ledger, "sleeper", *[NewTask("read", not_before=NOW + MINUTE)] * 200)
    put(ledger, "steady", *[NewTask("read")] * 400)
    assert set(cubes_in_order(ledger, 200)) == {"steady"}
    later = NOW + 2 * MINUTE
    order = [taken(ledger, now=later).cube for _ in range(100)]
    assert Counter(order)["steady"] == pytest.approx(50, abs=2)


def test_what_is_not_due_waits_and_the_queue_knows_until_when(ledger: Ledger) -> None:
    put(ledger, "a", NewTask("read", not_before=NOW + 2 * MINUTE), NewTask("read", not_before=NOW + MINUTE))
    assert take(ledger) is None
    with ledger.read() as connection:
        assert queues.next_due(connection) == NOW + MINUTE
    assert taken(ledger, now=NOW + MINUTE).not_before == NOW + MINUTE
    assert take(ledger, now=NOW + MINUTE) is None
    assert taken(ledger, now=NOW + 2 * MINUTE).not_before == NOW + 2 * MINUTE
    with ledger.read() as connection:
        assert queues.next_due(connection) is None


def test_a_kind_that_only_others_know_is_left_to_them_and_stops_nobody(ledger: Ledger) -> None:
    put(ledger, "a", NewTask("of a newer version", priority=0), NewTask("read"))
    put(ledger, "b", NewTask("of a newer version"))
    assert taken(ledger).kind == "read"
    assert take(ledger) is None
    assert taken(ledger, costs={"of a newer version": 1.0}).cube in {"a", "b"}


def test_a_lease_that_ran_out_is_taken_back_and_its_owner_keeps_nothing(ledger: Ledger) -> None:
    [task_id] = put(ledger, "a")
    task = taken(ledger, owner="slow")
    with ledger.write() as connection:
        assert tasks.renew(connection, task_id, Lease("slow", NOW + 3 * MINUTE), 0.5)
        assert tasks.reclaim(connection, NOW + 2 * MINUTE, 5, timedelta(0)) == []
        late = NOW + 3.5 * MINUTE  # by a clock that may be ahead of the owner's
        assert tasks.reclaim(connection, late, 5, MINUTE) == []
        assert [back.id for back in tasks.reclaim(connection, NOW + 4 * MINUTE, 5, MINUTE / 2)] == [task_id]
    waiting = get(ledger, task_id)
    assert (waiting.state, waiting.attempts) == (TaskState.WAITING, 1)
    assert "slow" in (waiting.error or "")
    assert taken(ledger, owner="quick", now=NOW + 4 * MINUTE).attempts == 2
    assert not finish(ledger, task, "slow")
    with ledger.write() as connection:
        assert not tasks.renew(connection, task_id, Lease("slow", NOW + 9 * MINUTE), 0.9)
        assert not tasks.give_back(connection, task, "slow", Delay(NOW), NOW)
        assert not tasks.fail(connection, task, "slow", TaskState.FAILED, "late", NOW)
    assert get(ledger, task_id).lease_owner == "quick"


def test_a_task_whose_workers_always_die_ends_dead(ledger: Ledger) -> None:
    [task_id] = put(ledger, "a")
    now = NOW
    for _ in range(3):
        assert get(ledger, task_id).state is TaskState.WAITING
        taken(ledger, now=now)
        now += 2 * MINUTE
        with ledger.write() as connection:
            tasks.reclaim(connection, now, 3, timedelta(0))
    assert get(ledger, task_id).state is TaskState.DEAD
    assert take(ledger, now=now) is None


def test_given_back_it_waits_with_its_reason_and_perhaps_uncounted(ledger: Ledger) -> None:
    [task_id] = put(ledger, "a")
    with ledger.write() as connection:
        task = tasks.take(connection, Lease("me", NOW + MINUTE), NOW, COSTS)
        assert task is not None
        assert tasks.give_back(connection, task, "me", Delay(NOW + MINUTE, "over budget", counted=False), NOW)
    waiting = get(ledger, task_id)
    assert (waiting.state, waiting.attempts, waiting.note) == (TaskState.WAITING, 0, "over budget")
    assert waiting.not_before == NOW + MINUTE
    assert take(ledger) is None
    assert taken(ledger, now=NOW + MINUTE).note is None


def test_given_back_beside_its_twin_it_leaves_the_work_to_that_one(ledger: Ledger) -> None:
    [first] = put(ledger, "a", NewTask("read", key="x"))
    task = taken(ledger)
    [second] = put(ledger, "a", NewTask("read", key="x"))
    with ledger.write() as connection:
        assert tasks.give_back(connection, task, "me", Delay(NOW), NOW)
    assert get(ledger, first).state is TaskState.CANCELLED
    assert taken(ledger).id == second


@pytest.mark.parametrize("running", [False, True])
def test_a_cancelled_task_ends_and_can_be_retried(ledger: Ledger, running: bool) -> None:
    [task_id] = put(ledger, "a")
    task = taken(ledger) if running else get(ledger, task_id)
    with ledger.write() as connection:
        tasks.cancel(connection, task, NOW)
    assert get(ledger, task_id).state is TaskState.CANCELLED
    assert not finish(ledger, task)
    assert take(ledger) is None
    with pytest.raises(Conflict, match="ended already"), ledger.write() as connection:
        tasks.cancel(connection, task, NOW)
    with ledger.write() as connection:
        tasks.retry(connection, task, NOW)
    assert taken(ledger).attempts == 1
    with pytest.raises(Conflict, match="not failed, dead or cancelled"), ledger.write() as connection:
        tasks.retry(connection, task, NOW)


def test_a_task_with_a_waiting_twin_is_not_retried(ledger: Ledger) -> None:
    put(ledger, "a", NewTask("read", key="x"))
    task = taken(ledger)
    with ledger.write() as connection:
        tasks.fail(connection, task, "me", TaskState.FAILED, "no", NOW)
    put(ledger, "a", NewTask("read", key="x"))
    with pytest.raises(Conflict, match="is already waiting"), ledger.write() as connection:
        tasks.retry(connection, task, NOW)


def test_postponing_moves_the_waiting_ones_of_some_kinds(ledger: Ledger) -> None:
    put(ledger, "a", NewTask("read"), NewTask("big"), NewTask("read"))
    with ledger.write() as connection:
        tasks.postpone(connection, "a", ["read"], Delay(NOW + MINUTE, "tomorrow"))
    assert taken(ledger).kind == "big"
    assert take(ledger) is None
    with ledger.read() as connection:
        notes = [task.note for task in tasks.find(connection, ["a"], TaskQuery(kinds=("read",)))]
    assert notes == ["tomorrow", "tomorrow"]
    assert taken(ledger, now=NOW + MINUTE).kind == "read"


def test_tasks_are_listed_newest_first_by_state_kind_and_cube(ledger: Ledger) -> None:
    ids = put(ledger, "a", *[NewTask("read")] * 5) + put(ledger, "b", NewTask("big"))
    finish(ledger, taken(ledger))
    with ledger.read() as connection:

        def found(cubes: Sequence[str] | None, wanted: TaskQuery) -> list[str]:
            return [task.id for task in tasks.find(connection, cubes, wanted)]

        assert found(None, TaskQuery()) == ids[::-1]
        assert found(["b"], TaskQuery()) == ids[5:]
        assert found(None, TaskQuery(kinds=("big",))) == ids[5:]
        assert found(["a"], TaskQuery(states=(TaskState.DONE,))) == ids[:1]
        assert found(None, TaskQuery(limit=2, after=ids[4])) == [ids[3], ids[2]]
        assert tasks.counts(connection, None) == {TaskState.WAITING: 5, TaskState.DONE: 1}
        assert tasks.unended(connection, ["a"]) == 4
        with pytest.raises(NotFound, match="memos task list"):
            tasks.get(connection, "nothing")


def test_what_ended_well_is_cleaned_and_what_ended_badly_is_kept(ledger: Ledger) -> None:
    put(ledger, "a", *[NewTask("read")] * 3)
    finish(ledger, taken(ledger))
    with ledger.write() as connection:
        failed = tasks.take(connection, Lease("me", NOW + MINUTE), NOW, COSTS)
        assert failed is not None
        tasks.fail(connection, failed, "me", TaskState.FAILED, "no", NOW)
        assert tasks.clean(connection, NOW) == 0
        assert tasks.clean(connection, NOW + MINUTE) == 1
        assert tasks.counts(connection, None) == {TaskState.WAITING: 1, TaskState.FAILED: 1}


def test_many_takers_take_every_task_once(ledger: Ledger) -> None:
    for number in range(6):
        put(ledger, f"c{number}", *[NewTask("read")] * 20)
    found: list[str] = []

    def serve(owner: str) -> None:
        misses = 0
        while misses < 20:  # another's lock on a queue looks like an empty one
            task = take(ledger, owner=owner)
            if task is None:
                misses += 1
                continue
            found.append(task.id)
            assert finish(ledger, task, owner)

    threads = [threading.Thread(target=serve, args=(f"w{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(found) == len(set(found)) == 120
    with ledger.read() as connection:
        assert tasks.counts(connection, None) == {TaskState.DONE: 120}


@pytest.mark.parametrize("seed", range(8))
def test_queues_stay_true_whatever_happens(ledger: Ledger, seed: int) -> None:
    chance, now = random.Random(seed), NOW
    held: list[Task] = []
    for _ in range(120):
        now += timedelta(seconds=chance.randrange(40))
        act = chance.choice(["put", "put", "put later", "take", "take", "end", "back", "reclaim", "cancel", "retry"])
        with ledger.write() as connection:
            cube = f"c{chance.randrange(4)}"
            every = tasks.find(connection, None, TaskQuery(limit=1000))
            if act.startswith("put"):
                later = now + timedelta(seconds=chance.randrange(90)) if act == "put later" else None
                key = chance.choice([None, "k", "l"])
                tasks.enqueue(connection, cube, [NewTask("read", key=key, not_before=later)], now)
            elif act == "take":
                task = tasks.take(connection, Lease("me", now + MINUTE), now, COSTS)
                held += [] if task is None else [task]
            elif act == "reclaim":
                tasks.reclaim(connection, now, 3, timedelta(0))
            elif act == "end" and held:
                tasks.finish(connection, held.pop().id, "me", now)
            elif act == "back" and held:
                tasks.give_back(connection, held.pop(), "me", Delay(now + MINUTE / 2), now)
            elif act == "cancel" and every and not (task := chance.choice(every)).ended:
                tasks.cancel(connection, task, now)
            elif act == "retry" and (bad := [task for task in every if task.ended and task.state != TaskState.DONE]):
                task = chance.choice(bad)
                if not tasks._has_waiting_duplicate(connection, task):
                    tasks.retry(connection, task, now)
            assert_queues_hold(connection)
    for _ in range(200):  # nothing is stuck
        now += MINUTE
        with ledger.write() as connection:
            tasks.reclaim(connection, now, 10, timedelta(0))
            task = tasks.take(connection, Lease("me", now + MINUTE), now, COSTS)
            if task is not None:
                assert tasks.finish(connection, task.id, "me", now)
    with ledger.read() as connection:
        assert tasks.unended(connection, None) == 0
        assert queues.next_due(connection) is None


def assert_queues_hold(connection: sa.Connection) -> None:
    """No waiting task is forgotten: its queue is due no later than it."""
    for row in connection.execute(sa.select(t.queues)):
        first = connection.scalar(
            sa.select(sa.func.min(t.tasks.c.not_before)).where(t.tasks.c.cube_id == row.cube_id, queues.WAITING)
        )
        if first is not None:
            assert row.due is not None
            assert row.due <= first
    known = set(connection.scalars(sa.select(t.queues.c.cube_id)))
    assert set(connection.scalars(sa.select(t.tasks.c.cube_id).where(queues.WAITING))) <= known


def test_spending_adds_up_by_cube_and_day(ledger: Ledger) -> None:
    with ledger.write() as connection:
        for cube, purpose, at in (("a", "read", NOW), ("a", "judge", NOW), ("b", "read", NOW), ("a", "read", NOW)):
            usage.add(connection, cube, purpose, at, Spending(1, 100, 20, 0.5))
        usage.add(connection, "a", "read", NOW - timedelta(days=1), Spending(9, 9, 9, 9))
        assert usage.today(connection, "a", NOW) == Spending(3, 300, 60, 1.5)
        assert usage.today(connection, "c", NOW) == Spending()
    assert usage.next_day(NOW) == datetime(2025, 6, 2, tzinfo=UTC)


def test_a_periodic_job_is_fired_by_one_process_in_a_period(ledger: Ledger) -> None:
    hour = timedelta(hours=1)

    def fire(owner: str, now: datetime, every: timedelta = hour) -> bool:
        with ledger.write() as connection:
            assert leases.due(connection, "sweep", now, every) or not leases.fire(
                connection, "sweep", owner, now, every
            )
            return leases.fire(connection, "sweep", owner, now, every)

    assert fire("a", NOW)
    assert not fire("b", NOW + MINUTE)
    assert not fire("a", NOW + 59 * MINUTE)
    assert fire("b", NOW + 61 * MINUTE)
    assert fire("a", NOW - timedelta(days=9))  # the clock was set back
    assert not fire("b", NOW - timedelta(days=9) + MINUTE)
    assert fire("b", NOW - timedelta(days=9) + 2 * MINUTE, MINUTE)  # the period was made shorter


def test_tasks_about_a_thing_are_those_that_name_it_and_ended_no_earlier(ledger: Ledger) -> None:
    [old] = put(ledger, "a", NewTask("read", {"items": ["i1"]}))
    assert finish(ledger, taken(ledger))
    [named] = put(ledger, "a", NewTask("read", {"items": ["i0", "i1"]}), now=NOW + MINUTE)
    [by_conversation] = put(ledger, "b", NewTask("read", {"conversation": "c%1"}))
    put(ledger, "a", NewTask("read", {"items": ["i11"], "conversation": "c_1"}))

    def about(*ids: str, since: datetime | None = None) -> list[str]:
        with ledger.read() as connection:
            found = tasks.find(connection, None, TaskQuery(about=frozenset(ids), since=since))
        return [task.id for task in found]

    assert about("i1") == [named, old]
    assert about("i1", since=NOW + MINUTE) == [named]
    assert about("i1", "c%1") == [by_conversation, named, old]
    assert about("nothing") == []
