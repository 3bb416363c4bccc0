"""The contract of what must move, over both databases: ranges of an index, whatever a cube holds besides."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos.core.types import Cube, Fingerprint
from memos.memcube.ledger import cubes
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tier_moves as moves
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.ledger.segments import SegmentRow
from memos.scheduler.heat import tau_for
from memos.scheduler.rules import CubeRules, TierSettings

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MANY = 5_000


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        opened = Ledger.open(sqlite_url(tmp_path / "ledger.db"))
    else:
        opened = Ledger.open(request.getfixturevalue("postgres_server").url())
    with opened.write() as connection:
        for cube in ("mine", "other"):
            cubes.create(connection, Cube(cube, "owner", "", "UTC", Fingerprint("n", 1, "none", normalised=True), NOW))
    yield opened
    opened.close()


def put(ledger: Ledger, *rows: dict[str, object], cube: str = "mine") -> None:
    base = {
        "cube_id": cube, "state": "open", "spans": [], "told": None, "words": [], "vector": None, "pages": 1,
        "unread": True, "pinned": False, "level": 1.0, "visits": 1, "interactions": 0, "last": NOW,
        "created_at": NOW - timedelta(days=9), "updated_at": NOW,
    }  # fmt: skip
    with ledger.write() as connection:
        connection.execute(sa.insert(t.segments), [{**base, **row} for row in rows])
        here = sa.update(t.cubes).where(t.cubes.c.id == cube)
        connection.execute(here.values(segments=t.cubes.c.segments + len(rows)))


def ids(found: list[SegmentRow]) -> list[str]:
    return [segment.id for segment in found]


def test_what_is_hot_and_unread_comes_hottest_first(ledger: Ledger) -> None:
    put(
        ledger,
        {"id": "a", "level": 5.0}, {"id": "b", "level": 9.0}, {"id": "c", "level": 4.9},
        {"id": "d", "level": 8.0, "unread": False}, {"id": "e", "level": 7.0, "state": "archived"},
    )  # fmt: skip
    put(ledger, {"id": "x", "level": 50.0}, cube="other")
    with ledger.read() as connection:
        assert ids(moves.hot_unread(connection, "mine", 5.0, 10)) == ["b", "a"]
        assert ids(moves.hot_unread(connection, "mine", 5.0, 1)) == ["b"]
        assert moves.hot_unread(connection, "mine", 5.0, 10, least=2) == []
        assert ids(moves.any_unread(connection, "mine", 10)) == ["b", "a", "c", "e"]
        assert ids(moves.revived(connection, "mine", 5.0, 10)) == ["e"]


def test_what_is_cold_comes_coldest_first_without_what_is_new_pinned_or_unread(ledger: Ledger) -> None:
    put(
        ledger,
        {"id": "a", "level": 0.2, "unread": False}, {"id": "b", "level": 0.1, "unread": False},
        {"id": "c", "level": 0.1, "unread": False, "pinned": True}, {"id": "d", "level": 0.1},
        {"id": "e", "level": 0.1, "unread": False, "created_at": NOW}, {"id": "f", "level": 0.5, "unread": False},
    )  # fmt: skip
    with ledger.read() as connection:
        assert ids(moves.cold(connection, "mine", 0.5, NOW, 10)) == ["b", "a"]
        assert moves.cold_unread(connection, "mine", 0.5, NOW, 10) == ["d"]


@pytest.mark.parametrize(("capacity", "border"), [(1, 3.0), (2, 2.0), (3, 1.0), (4, None), (9, None)])
def test_the_border_is_the_hottest_beyond_the_capacity(ledger: Ledger, capacity: int, border: float | None) -> None:
    put(ledger, *({"id": str(level), "level": float(level), "unread": level % 2 == 0} for level in range(1, 5)))
    put(ledger, {"id": "old", "level": 9.0, "state": "archived"})
    with ledger.read() as connection:
        assert moves.border_of(connection, "mine", capacity) == border
        assert moves.border_of(connection, "other", 1) is None
        assert moves.cubes_with_segments(connection) == ["mine"]


def test_archiving_and_pinning_write_what_they_name_and_nothing_else(ledger: Ledger) -> None:
    put(ledger, {"id": "a", "level": 2.0}, {"id": "b"})
    put(ledger, {"id": "x"}, cube="other")
    with ledger.write() as connection:
        [segment] = moves.any_unread(connection, "mine", 1)
        moves.set_state(connection, [segment], "archived", NOW)
        assert moves.pin(connection, "mine", "b", pinned=True)
        assert not moves.pin(connection, "mine", "x", pinned=True)
    with ledger.read() as connection:
        rows = {row.id: (row.state, row.pinned) for row in connection.execute(sa.select(t.segments))}
    assert rows == {"a": ("archived", False), "b": ("open", True), "x": ("open", False)}


def test_tau_follows_the_share_and_keeps_every_heat(ledger: Ledger) -> None:
    rules = CubeRules(TierSettings(mid_capacity=1))
    with ledger.write() as connection:
        assert rules.ready(connection, "mine").policy.level_of(1.0, NOW) == pytest.approx(_age(tau_for(1)))
    put(ledger, *({"id": str(number), "level": _age(tau_for(1)) + number} for number in range(10)))
    with ledger.write() as connection:
        assert rules.adjust_tau(connection, "mine", NOW)
        assert not rules.adjust_tau(connection, "mine", NOW)
        assert rules.ready(connection, "mine").policy.level_of(1.0, NOW) == pytest.approx(_age(tau_for(0.1)))
        levels = connection.scalars(sa.select(t.segments.c.level).order_by(t.segments.c.id)).all()
    assert levels == pytest.approx([_age(tau_for(0.1)) + number for number in range(10)])


def _age(tau: timedelta) -> float:
    return (NOW - datetime(1970, 1, 1, tzinfo=UTC)) / tau


def test_finding_what_moves_reads_a_range_of_the_index(ledger: Ledger) -> None:
    put(ledger, *({"id": str(n), "level": float(n), "unread": n % 2 == 0, "state": "open"} for n in range(MANY)))
    with ledger.write() as connection:
        connection.exec_driver_sql("ANALYZE")
    asked: list[tuple[str, object]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        asked.append((statement, parameters))

    with ledger.read() as connection:
        sa.event.listen(connection, "before_cursor_execute", note)
        assert len(moves.hot_unread(connection, "mine", MANY - 200.0, 100)) == 100
        assert len(moves.cold(connection, "mine", 200.0, NOW, 100)) == 100
        assert moves.revived(connection, "mine", MANY - 200.0, 100) == []
        sa.event.remove(connection, "before_cursor_execute", note)
        explain = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
        plans = [
            " ".join(str(row) for row in connection.exec_driver_sql(explain + statement, parameters))  # type: ignore[arg-type]
            for statement, parameters in asked
        ]
    assert len(plans) == 4
    for plan in plans:
        assert "ix_segments_hot" in plan
        assert "SCAN" not in plan
        assert "Seq Scan" not in plan
