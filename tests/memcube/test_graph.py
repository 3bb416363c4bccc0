"""The graph that search reads from the ledger: neighbours in a session, and links."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.core.types import LinkKind
from memos.memcube.ledger import items, outbox
from memos.memcube.ledger.graph import LedgerGraph
from tests.fakes import WordEmbedder


@pytest.fixture
def graph(memos: MemOS) -> LedgerGraph:
    return LedgerGraph(memos.ledger)


def link(memos: MemOS, start: str, kind: LinkKind, end: str) -> None:
    with memos.ledger.write() as connection:
        items.link(connection, [(start, kind, end)], "default", memos.clock.now())


def test_what_was_said_before_and_after_is_adjacent(memos: MemOS, graph: LedgerGraph) -> None:
    said = memos.add([f"message {n}" for n in range(5)], conversation="c").item_ids
    memos.add("elsewhere", conversation="d")
    assert set(graph.adjacent(["default"], said[2], 9)) == {said[1], said[3]}
    assert graph.adjacent(["default"], said[0], 9) == [said[1]]
    assert graph.adjacent(["default"], said[4], 9) == [said[3]]


def test_deleted_items_are_passed_over(memos: MemOS, graph: LedgerGraph) -> None:
    said = memos.add([f"message {n}" for n in range(5)], conversation="c").item_ids
    for gone in said[1], said[3]:
        memos.delete(gone)
    assert set(graph.adjacent(["default"], said[2], 9)) == {said[0], said[4]}
    memos.erase(said[0])
    assert graph.adjacent(["default"], said[2], 9) == [said[4]]


def test_links_are_followed_in_both_directions_after_the_neighbours(memos: MemOS, graph: LedgerGraph) -> None:
    first, second = memos.add(["one", "two"], conversation="c").item_ids
    [other] = memos.add("three", conversation="d").item_ids
    link(memos, first, LinkKind.RELATES, other)
    assert graph.adjacent(["default"], first, 9) == [second, other]
    assert graph.adjacent(["default"], first, 1) == [second]
    assert graph.adjacent(["default"], other, 9) == [first]
    # Said next to each other and linked, it is still one item.
    link(memos, first, LinkKind.RELATES, second)
    assert graph.adjacent(["default"], first, 9) == [second, other]


def test_other_cubes_are_never_reached(memos: MemOS, graph: LedgerGraph) -> None:
    memos.cubes.create("other")
    [mine] = memos.add("mine").item_ids
    [theirs] = memos.add("theirs", cube="other").item_ids
    link(memos, mine, LinkKind.RELATES, theirs)
    assert graph.adjacent(["default"], mine, 9) == []
    assert graph.adjacent(["default", "other"], mine, 9) == [theirs]


def test_what_nobody_knows_has_no_neighbours(memos: MemOS, graph: LedgerGraph) -> None:
    [one] = memos.add("one").item_ids
    assert graph.adjacent(["default"], "unknown", 9) == []
    assert graph.adjacent([], one, 9) == []
    assert graph.adjacent(["default"], one, 0) == []


def test_only_what_is_adjacent_is_read(memos: MemOS, graph: LedgerGraph) -> None:
    [one] = memos.add("one", conversation="c").item_ids
    statements: list[str] = []

    def trace(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_trace_callback(statements.append)

    sa.event.listen(memos.ledger._engine, "checkout", trace)
    graph.adjacent(["default"], one, 9)
    sa.event.remove(memos.ledger._engine, "checkout", trace)
    [query] = [statement for statement in statements if "links" in statement]
    with memos.ledger.read() as connection:
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]
    # Neither a whole table, nor all items of a cube, nor all messages of a conversation to be sorted.
    assert not [step for step in steps if step.startswith("SCAN") and not step.startswith("SCAN anon")]
    assert not [step for step in steps if "ix_items_cube" in step]
    assert steps.count("USE TEMP B-TREE FOR ORDER BY") == 1


def test_the_folder_and_the_rows_of_the_former_engine_are_removed_at_open(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        [item] = memos.add("something").item_ids
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "graph-000001.lbug").write_bytes(b"what version 0.1 kept")
    with (
        MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos,
        memos.ledger.write() as connection,
    ):
        outbox.enqueue(connection, "default", [item], ("graph",))
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        assert not (tmp_path / "graph").exists()
        with memos.ledger.read() as connection:
            assert outbox.count(connection, "graph") == 0
        assert memos.maintenance.verify().clean


def test_a_folder_of_that_name_which_is_not_the_former_engines_stays(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "plan.txt").write_text("somebody's own")
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()):
        assert (tmp_path / "graph" / "plan.txt").read_text() == "somebody's own"
