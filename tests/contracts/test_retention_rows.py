"""Which items a rule of retention is about, the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from memos.core.retention import RetentionAction, RetentionRule
from memos.core.types import ItemType, LinkKind, Status
from memos.errors import Conflict
from memos.memcube import changes
from memos.memcube.ledger import items, retention
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.retention import ScanPosition
from tests.fakes import FixedClock
from tests.support.ledgers import ODD, Store

ARCHIVE, DELETE, ERASE = RetentionAction.ARCHIVE, RetentionAction.DELETE, RetentionAction.ERASE


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_file = request.param == "sqlite"
    url = sqlite_url(tmp_path / "ledger.db") if on_file else request.getfixturevalue("postgres_server").url()
    ledger = Ledger.open(url)
    store = Store(ledger, FixedClock())
    store.make("default")
    yield store
    ledger.close()


def due(store: Store, rule: RetentionRule, at: Any = None) -> list[str]:
    """Return what a rule is about, read two at a time."""
    found: list[str] = []
    after: ScanPosition | None = None
    with store.ledger.read() as connection:
        while batch := retention.due(connection, rule, at or store.clock.now(), after, 2):
            after = batch[-1]
            found += [place.id for place in batch]
        assert set(retention.still_due(connection, rule, at or store.clock.now(), found)) == set(found)
    return found


def link(store: Store, made: str, of: str) -> None:
    with store.ledger.write() as connection:
        items.link(connection, [(made, LinkKind.DERIVED_FROM, of)], "default", store.clock.now())


def pin(store: Store, item: str, *, pinned: bool = True) -> None:
    with store.ledger.write() as connection:
        assert moves.pin(connection, "default", item, pinned=pinned)


def test_a_rule_is_about_types_tags_and_statuses_together(store: Store) -> None:
    plain, both, odd = (store.add(f"said {tags}", tags=tags).item_ids[0] for tags in ([], ["a", "b"], [ODD[:20], "b"]))
    store.delete(both)
    for wanted, found in (
        ({}, [plain, both, odd]),
        ({"tags": ("b", "no such tag")}, [both, odd]),
        ({"tags": (ODD[:20],)}, [odd]),
        ({"tags": ("A",)}, []),
        ({"types": (ItemType.MESSAGE, ItemType.SKILL)}, [plain, both, odd]),
        ({"types": (ItemType.SKILL,)}, []),
        ({"statuses": (Status.DELETED,)}, [both]),
        ({"statuses": (Status.ACTIVE,), "tags": ("b",)}, [odd]),
    ):
        assert due(store, store.rule("default", ERASE, **wanted)) == found, wanted


def test_an_action_is_not_done_to_what_it_was_done_to(store: Store) -> None:
    ids = [store.add(text).item_ids[0] for text in ("archived", "deleted", "active", "pending")]
    with store._change("default") as change:
        changes.archive(change, ids[:1], "old")
        changes.update(change, ids[3], None, {"status": Status.PENDING}, "odd")
    store.delete(ids[1])
    assert due(store, store.rule("default", ARCHIVE)) == [ids[2]]
    assert due(store, store.rule("default", DELETE)) == [ids[0], ids[2], ids[3]]
    assert due(store, store.rule("default", ERASE)) == ids


def test_the_age_counts_from_when_the_item_was_stored(store: Store) -> None:
    old = store.add({"role": "user", "content": "said today", "chat_time": "2030-01-01"}).item_ids[0]
    stored = store.clock.now()
    store.clock.advance(timedelta(days=2))  # type: ignore[attr-defined]
    young = store.add({"role": "user", "content": "said long ago", "chat_time": "1990-01-01"}).item_ids[0]
    assert due(store, store.rule("default", DELETE, age_days=1.5)) == [old]
    assert due(store, store.rule("default", DELETE)) == [old, young]
    assert due(store, store.rule("default", DELETE, age_days=36_500)) == []
    assert due(store, store.rule("default", DELETE, age_days=1e300)) == []
    # A clock that was set back makes nothing older, and an item of the future is left alone.
    assert due(store, store.rule("default", DELETE), at=stored) == [old]
    assert due(store, store.rule("default", DELETE), at=stored - timedelta(days=400)) == []


def test_what_is_pinned_and_what_it_was_made_of_is_kept(store: Store) -> None:
    message, fact, summary, other = (store.add(text).item_ids[0] for text in ("said", "read", "told", "else"))
    link(store, fact, message)
    link(store, summary, fact)
    rule = store.rule("default", ERASE)
    for pinned, left in ((summary, [other]), (fact, [summary, other]), (message, [fact, summary, other])):
        pin(store, pinned)
        assert due(store, rule) == left
        pin(store, pinned, pinned=False)
    assert due(store, rule) == [message, fact, summary, other]
    link(store, message, summary)  # a circle ends too
    assert len(due(store, rule)) == 4
    pin(store, fact)
    assert due(store, rule) == [other]


def test_rules_are_kept_by_cube_the_strongest_first(store: Store) -> None:
    store.make("other")
    wanted = {"tags": (ODD[:20],), "types": (ItemType.SKILL,), "statuses": (Status.ACTIVE,), "age_days": 0.25}
    rules = [store.rule("default", action, **wanted) for action in (DELETE, ARCHIVE, ERASE, DELETE)]
    elsewhere = store.rule("other", ARCHIVE)
    with store.ledger.read() as connection:
        assert retention.of_cube(connection, "default") == [rules[2], rules[0], rules[3], rules[1]]
        assert retention.of_cube(connection, "nowhere") == []
        assert retention.cubes_with_rules(connection) == ["default", "other"]
        assert retention.find(connection, rules[1].id) == rules[1]
    store.drop("other")
    with store.ledger.write() as connection:
        assert retention.find(connection, elsewhere.id) is None
        retention.remove(connection, rules[0].id)
        assert rules[0] not in retention.of_cube(connection, "default")


def test_a_rule_belongs_to_a_cube_and_no_age_is_negative(store: Store) -> None:
    for cube, age in (("nowhere", 0.0), ("default", -1.0)):
        with pytest.raises((Conflict, sa.exc.IntegrityError)):
            store.rule(cube, ERASE, age_days=age)
