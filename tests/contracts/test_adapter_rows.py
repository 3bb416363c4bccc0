"""The registry of adapters, the same on both databases: which may answer is a question to the memories they saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos.core.types import Status
from memos.errors import Conflict, InvalidInput, NotFound
from memos.memcube import changes
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.adapters import AdapterState, Outcome
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.fakes import FixedClock
from tests.support.adapters import (
    BASE,
    NOW,
    READY,
    REFUSED,
    activated,
    active,
    allow,
    begun,
    finished,
    of_shard,
    serving,
    states,
)
from tests.support.ledgers import Store

TRAINING, READY_, ACTIVE, RETIRED = (
    AdapterState.TRAINING,
    AdapterState.READY,
    AdapterState.ACTIVE,
    AdapterState.RETIRED,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_file = request.param == "sqlite"
    url = sqlite_url(tmp_path / "ledger.db") if on_file else request.getfixturevalue("postgres_server").url()
    ledger = Ledger.open(url)
    store = Store(ledger, FixedClock())
    store.make("default")
    yield store
    ledger.close()


@pytest.fixture
def ids(store: Store) -> list[str]:
    """Three memories of a cube that may be learned."""
    allow(store.ledger)
    return [store.add(text).item_ids[0] for text in ("I live in Lyon.", "I keep bees.", "I am a baker.")]


def stale(store: Store, cube: str = "default") -> list[str]:
    with store.ledger.read() as connection:
        return [row.id for row in adapter_rows.stale(connection, cube)]


def archive(store: Store, item: str) -> None:
    with store._change("default") as change:
        changes.archive(change, [item], "old")


def pend(store: Store, item: str) -> None:
    with store._change("default") as change:
        changes.update(change, item, None, {"status": Status.PENDING}, "odd")


def test_consent_is_none_until_it_is_given_and_can_be_taken_back(store: Store) -> None:
    item = store.add("I live in Lyon.").item_ids[0]
    with pytest.raises(Conflict, match="has not allowed"):
        begun(store.ledger, [item])
    allow(store.ledger)
    allow(store.ledger)
    id_ = active(store.ledger, [item])
    assert serving(store.ledger) == [id_]
    with store.ledger.write() as connection:
        assert adapter_rows.is_allowed(connection, "default")
        adapter_rows.disallow(connection, "default")
        assert not adapter_rows.is_allowed(connection, "default")
    assert serving(store.ledger) == []
    allow(store.ledger)
    assert serving(store.ledger) == [id_]
    with pytest.raises(NotFound):
        allow(store.ledger, "nowhere")


def test_a_row_says_what_was_given_and_what_came_of_it(store: Store, ids: list[str]) -> None:
    made = begun(store.ledger, ids, parent="0" * 36)
    assert (made.cube, made.shard, made.number, made.state) == ("default", "", 1, TRAINING)
    assert (made.model, made.base, made.data_hash) == ("local:/models/tiny", BASE, "d" * 64)
    assert (made.recipe, made.parent, made.measures, made.finished_at) == ({"rank": 4}, "0" * 36, None, None)
    done = finished(store.ledger, made.id)
    assert (done.state, done.measures, done.digest) == (READY_, READY.measures, READY.digest)
    assert done.size_bytes == 7
    assert done.finished_at is not None
    with store.ledger.read() as connection:
        assert adapter_rows.get(connection, made.id) == done
        assert adapter_rows.get(connection, "nothing") is None
        assert adapter_rows.trained(connection) == [done]
        assert adapter_rows.known(connection, [made.id, "nothing"]) == {made.id}
    with pytest.raises(Conflict, match="not in training"):
        finished(store.ledger, made.id)
    with pytest.raises(NotFound):
        finished(store.ledger, "nothing")
    with pytest.raises(InvalidInput):
        finished(store.ledger, made.id, Outcome(ACTIVE, {}))
    with pytest.raises(InvalidInput):
        finished(store.ledger, made.id, Outcome(READY_, {}))


def test_numbers_count_up_by_cube(store: Store, ids: list[str]) -> None:
    store.make("other")
    allow(store.ledger, "other")
    theirs = store.add("elsewhere", cube="other").item_ids
    rows = [begun(store.ledger, ids), begun(store.ledger, ids[:1]), begun(store.ledger, ids)]
    rows.append(begun(store.ledger, theirs, cube="other"))
    assert [row.number for row in rows] == [1, 2, 3, 1]
    assert states(store.ledger) == [(3, TRAINING), (2, TRAINING), (1, TRAINING)]


def test_trainings_that_begin_at_once_have_numbers_of_their_own(store: Store, ids: list[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        rows = list(threads.map(lambda _: begun(store.ledger, ids), range(16)))
    assert sorted(row.number for row in rows) == list(range(1, 17))


def test_what_is_learned_must_be_as_it_was_read(store: Store, ids: list[str]) -> None:
    store.make("other")
    allow(store.ledger, "other")
    elsewhere = store.add("elsewhere", cube="other").item_ids[0]
    with pytest.raises(InvalidInput):
        begun(store.ledger, [])
    store.update(ids[0], "I live in Paris.")
    store.delete(ids[1])
    for wrong in (ids[0], ids[1], elsewhere, "nothing"):
        with pytest.raises(Conflict, match="1 of the memories"):
            begun(store.ledger, [ids[2], wrong])
    assert states(store.ledger) == []
    assert begun(store.ledger, ids[:1], 2).number == 1


def test_one_of_a_cube_is_active_and_the_former_retires(store: Store, ids: list[str]) -> None:
    first, second = active(store.ledger, ids), active(store.ledger, ids)
    bees = of_shard(store.ledger, ids[:1])
    assert states(store.ledger) == [(3, ACTIVE), (2, ACTIVE), (1, RETIRED)]
    assert serving(store.ledger) == [bees]  # of those that version 0.1 left the newest
    assert activated(store.ledger, second).state is ACTIVE
    assert activated(store.ledger, first).state is ACTIVE  # back to an earlier one
    assert states(store.ledger) == [(3, RETIRED), (2, RETIRED), (1, ACTIVE)]
    assert serving(store.ledger) == [first]
    with pytest.raises((Conflict, sa.exc.IntegrityError)), store.ledger.write() as connection:
        connection.execute(sa.update(t.adapters).values(state=ACTIVE))
    with pytest.raises((Conflict, sa.exc.IntegrityError)), store.ledger.write() as connection:
        connection.execute(sa.update(t.adapters).values(state="merged"))


def test_only_what_passed_and_is_true_becomes_active(store: Store, ids: list[str]) -> None:
    training, refused, old = begun(store.ledger, ids).id, begun(store.ledger, ids).id, begun(store.ledger, ids).id
    assert finished(store.ledger, refused, REFUSED).reason == REFUSED.reason
    finished(store.ledger, old)
    store.update(ids[0], "I live in Paris.")
    for id_ in (training, refused, old):
        with pytest.raises(Conflict):
            activated(store.ledger, id_)
    with pytest.raises(NotFound):
        activated(store.ledger, "nothing")
    assert serving(store.ledger) == []


def test_two_activations_at_once_leave_one_active(store: Store, ids: list[str]) -> None:
    made = [begun(store.ledger, ids).id for _ in range(6)]
    for id_ in made:
        finished(store.ledger, id_)
    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(lambda id_: activated(store.ledger, id_).state, made))
    assert done == [ACTIVE] * 6
    assert sorted(state for _, state in states(store.ledger)) == [ACTIVE, *[RETIRED] * 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda store, item: store.update(item, "I live in Paris."),
        lambda store, item: store.update(item, "I live in Lyon."),
        archive,
        pend,
        lambda store, item: store.delete(item),
        lambda store, item: store.erase(item),
        lambda store, item: store.replace(store.add("I live in Paris.").item_ids[0], item),
    ],
    ids=["updated", "updated to the same", "archived", "pending", "deleted", "erased", "replaced"],
)
def test_a_memory_that_is_different_takes_out_whoever_saw_it(
    store: Store, ids: list[str], change: Callable[[Store, str], None]
) -> None:
    other, saw = active(store.ledger, ids[1:]), of_shard(store.ledger, ids)
    training, refused = begun(store.ledger, ids).id, begun(store.ledger, ids).id
    finished(store.ledger, refused, REFUSED)
    assert serving(store.ledger) == [saw]
    assert stale(store) == []
    change(store, ids[0])
    assert serving(store.ledger) == [other]
    assert stale(store) == [saw]
    with store.ledger.read() as connection:
        assert {row.id for row in adapter_rows.outdated(connection)} == {saw, training, refused}
        assert adapter_rows.outdated(connection, ["nowhere"]) == adapter_rows.outdated(connection, ()) == []


def test_a_change_that_is_not_kept_takes_nothing_out(store: Store, ids: list[str]) -> None:
    id_ = active(store.ledger, ids)
    with pytest.raises(RuntimeError), store._change("default") as change:
        changes.delete(change, ids[:1], "unwanted")
        assert adapter_rows.serving(change.connection, "default", BASE) is None
        raise RuntimeError("in the middle")
    assert serving(store.ledger) == [id_]


def test_another_base_model_or_cube_is_served_nothing(store: Store, ids: list[str]) -> None:
    store.make("other")
    allow(store.ledger, "other")
    id_ = active(store.ledger, ids)
    assert serving(store.ledger, base="c" * 64) == []
    assert serving(store.ledger, "other") == []
    assert serving(store.ledger) == [id_]


def test_a_memory_that_is_of_another_cube_now_is_gone_from_this_one(store: Store, ids: list[str]) -> None:
    store.make("other")
    active(store.ledger, ids)
    with store.ledger.write() as connection:
        for table, column in ((t.items, t.items.c.id), (t.versions, t.versions.c.item_id)):
            connection.execute(sa.update(table).where(column == ids[0]).values(cube_id="other"))
    assert serving(store.ledger) == []


def test_what_was_refused_here_is_told_from_what_arrived(store: Store, ids: list[str]) -> None:
    here, elsewhere = (begun(store.ledger, ids).id for _ in range(2))
    assert not finished(store.ledger, elsewhere, replace(REFUSED, measures={adapter_rows.ARRIVED: True})).failed_here
    assert finished(store.ledger, here, REFUSED).failed_here
    assert not finished(store.ledger, begun(store.ledger, ids).id).failed_here


def test_what_is_removed_leaves_no_row(store: Store, ids: list[str]) -> None:
    left, gone = active(store.ledger, ids), of_shard(store.ledger, ids)
    with store.ledger.write() as connection:
        adapter_rows.remove(connection, gone)
        adapter_rows.remove(connection, gone)
        rows = connection.execute(sa.select(t.adapter_items.c.adapter_id).distinct()).scalars().all()
    assert rows == [left]
    assert serving(store.ledger) == [left]
    with pytest.raises(NotFound):
        finished(store.ledger, gone)


def test_a_cube_that_is_dropped_leaves_no_row(store: Store, ids: list[str]) -> None:
    store.make("other")
    allow(store.ledger, "other")
    kept = active(store.ledger, store.add("elsewhere", cube="other").item_ids, cube="other")
    active(store.ledger, ids)
    begun(store.ledger, ids)
    store.drop("default")
    with store.ledger.read() as connection:
        found = {
            table.name: connection.execute(sa.select(column).distinct()).scalars().all()
            for table, column in (
                (t.adapter_consents, t.adapter_consents.c.cube_id),
                (t.adapters, t.adapters.c.id),
                (t.adapter_items, t.adapter_items.c.adapter_id),
            )
        }
    assert found == {"adapter_consents": ["other"], "adapters": [kept], "adapter_items": [kept]}
    store.make("default")
    assert serving(store.ledger) == []
    with pytest.raises(Conflict, match="has not allowed"):
        begun(store.ledger, store.add("anew").item_ids)


def test_a_memory_that_is_erased_while_a_training_begins_is_not_missed(store: Store, ids: list[str]) -> None:
    """Whichever comes first: either the training finds the memory gone, or the erasure leaves it outdated."""
    for _ in range(5):
        item = store.add("soon erased").item_ids[0]
        with ThreadPoolExecutor(2) as threads:
            beginning = threads.submit(begun, store.ledger, [*ids, item])
            threads.submit(store.erase, item).result()
        if beginning.exception() is None:
            with store.ledger.read() as connection:
                assert beginning.result().id in {row.id for row in adapter_rows.outdated(connection)}
        else:
            assert isinstance(beginning.exception(), Conflict)


def exclude(store: Store, ids: list[str], cube: str = "default") -> list[str]:
    with store.ledger.write() as connection:
        return adapter_rows.exclude(connection, cube, ids, "local", NOW)


def test_what_is_excluded_is_neither_learned_nor_answered_with(store: Store, ids: list[str]) -> None:
    other, saw = active(store.ledger, ids[2:]), of_shard(store.ledger, ids[:2])
    assert exclude(store, [ids[0], ids[0]]) == [ids[0]]
    assert exclude(store, ids[:1]) == []
    assert serving(store.ledger) == [other]
    assert stale(store) == [saw]
    with pytest.raises(Conflict, match="changed or removed"):
        activated(store.ledger, saw)
    with pytest.raises(Conflict, match="1 of the memories"):
        begun(store.ledger, ids)
    with store.ledger.read() as connection:
        assert adapter_rows.excluded(connection, "default") == {ids[0]}
        assert adapter_rows.that_saw(connection, "default", ids[:1]) == [saw]
        assert adapter_rows.that_saw(connection, "other", ids) == adapter_rows.that_saw(connection, "default", []) == []
    with store.ledger.write() as connection:
        assert adapter_rows.include(connection, "default", ids) == [ids[0]]
    assert begun(store.ledger, ids)


def test_an_exclusion_goes_with_its_memory_and_its_cube(store: Store, ids: list[str]) -> None:
    store.make("other")
    theirs = store.add("elsewhere", cube="other").item_ids
    exclude(store, ids)
    exclude(store, theirs, "other")
    store.erase(ids[0])
    store.drop("other")
    with store.ledger.read() as connection:
        assert adapter_rows.among(connection, [*ids, *theirs]) == set(ids[1:])
