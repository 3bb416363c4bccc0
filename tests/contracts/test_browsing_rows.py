"""Counts, sorted pages and details of memories, the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos.core.browsing import FacetName, SortField
from memos.core.filters import parse
from memos.core.types import LinkKind
from memos.memcube.ledger import browsing
from memos.memcube.ledger.browsing import Order
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.fakes import FixedClock
from tests.support.ledgers import ODD, Store


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_file = request.param == "sqlite"
    url = sqlite_url(tmp_path / "ledger.db") if on_file else request.getfixturevalue("postgres_server").url()
    ledger = Ledger.open(url)
    store = Store(ledger, FixedClock())
    store.make("default")
    yield store
    ledger.close()


def _talk(store: Store, count: int) -> list[str]:
    said = [{"role": "user", "content": f"line {n}", "chat_time": f"2025-0{n + 1}-01"} for n in range(count)]
    return list(store.add(said, conversation="talk", tags=["b", ODD[:20]]).item_ids)


@pytest.mark.parametrize("field", list(SortField))
@pytest.mark.parametrize("descending", [False, True])
def test_pages_go_on_by_every_field(store: Store, field: SortField, descending: bool) -> None:
    _talk(store, 5)
    found: list[str] = []
    with store.ledger.read() as connection:
        after = None
        while page := browsing.page(
            connection, "default", None, Order(field, descending), after=after, limit=2, offset=0
        ):
            found += [item.id for item in page]
            after = found[-1]
        whole = browsing.page(connection, "default", None, Order(field, descending), after=None, limit=9, offset=0)
        assert browsing.page(connection, "default", None, Order(field), after="none", limit=2, offset=0) is None
    assert whole is not None
    assert found == [item.id for item in whole]
    assert len(set(found)) == 5


def test_counts_by_every_property(store: Store) -> None:
    ids = _talk(store, 3)
    store.delete(ids[0])
    node = parse({"conversation": "talk"})
    with store.ledger.read() as connection:
        told = browsing.facets(connection, "default", node, list(FacetName), 5, store.clock.now(), deleted=False)
    counts = {facet.name: {each.value: each.count for each in facet.values} for facet in told.facets}
    assert (told.counted, told.more) == (2, False)
    assert counts[FacetName.STATUS] == {"active": 2, "deleted": 1}
    assert counts[FacetName.TAG] == {"b": 2, ODD[:20]: 2}
    assert list(counts[FacetName.MONTH]) == ["2025-03", "2025-02"]
    assert counts[FacetName.CONVERSATION] == {"talk": 2}


def test_details_of_a_memory(store: Store) -> None:
    ids = _talk(store, 4)
    store.update(ids[1], "line one, corrected")
    store.replace(ids[3], ids[1])
    with store.ledger.read() as connection:
        [passage] = browsing.passages(connection, "default", ids[1], 1, 9, store.clock.now())
        links = browsing.links_of(connection, "default", ids[1], 9)
        events = browsing.events_of(connection, "default", ids[1], 9)
        place = browsing.place_of(connection, ids[1])
        assert browsing.segment_of(connection, ids[1], place) is None
        assert browsing.learned_by(connection, "default", ids[1]) == []
        assert not browsing.is_excluded(connection, ids[1])
    assert (passage.item, passage.text[passage.start : passage.end]) == (ids[1], "line 1")
    assert ([each.item for each in passage.before], [each.item for each in passage.after]) == ([ids[0]], [ids[2]])
    assert {(link.kind, link.from_id) for link in links} == {
        (LinkKind.RELATES, ids[3]),
        (LinkKind.SUPERSEDES, ids[3]),
    }
    assert [event.kind for event in events] == ["supersede", "update"]
    assert (place.pinned, place.ordinal, place.last) == (False, None, None)
