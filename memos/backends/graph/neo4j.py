"""`Neo4jGraph`: the graph index on a Neo4j server, shared by any number of processes; ids and digests only, no names.

Every node carries the installation it belongs to, so that several share one database and never meet. What a call
wrote is durable when it returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memos.backends.graph import neo4j_writes as writes
from memos.backends.graph.neo4j_writes import BETWEEN, ITEM, MARK, Rows, Run, match
from memos.core.ports import GraphNode, Stamp
from memos.core.settings import Neo4jSettings
from memos.errors import BackendUnavailable, InvalidInput

if TYPE_CHECKING:
    from memos.backends.graph.neo4j_client import Neo4jConnection

__all__ = ["Neo4jGraph"]

_BATCH = 1_000
_PAGE = 10_000  # rows held at once
_Answer = TypeVar("_Answer")

# No labels where an edge's kind says them: they would only lead the planner to read whole labels.
_SHOWN = "b.revision > 0 AND b.cube IN $cubes"
_ADJACENT = f"{match(ITEM, '$id', 'a')} MATCH (a)-[:{BETWEEN}]-(b) WHERE {_SHOWN} RETURN DISTINCT b.id LIMIT $limit"
# Ordered by all of the index's fields: only so is it read in its order, up to the page's end, and nothing sorted.
_STAMPS = (
    f"MATCH (n:{ITEM}) USING INDEX SEEK n:{ITEM}(installation, cube, id) "
    "WHERE n.installation = $installation AND n.cube = $cube AND n.id >= $from AND n.revision > 0 "
    "RETURN n.id, n.revision ORDER BY n.installation, n.cube, n.id LIMIT $page"
)
_CUBES = (
    f"MATCH (n:{ITEM}) USING INDEX SEEK n:{ITEM}(installation, cube, id) "
    "WHERE n.installation = $installation AND n.cube >= $from AND n.id >= '' AND n.revision > 0 "
    "WITH n ORDER BY n.installation, n.cube LIMIT $page RETURN DISTINCT n.cube"
)
_SET_MARK = f"MERGE (m:{MARK} {{installation: $installation}}) SET m.mark = $mark"
_MARK = f"MATCH (m:{MARK} {{installation: $installation}}) USING INDEX SEEK m:{MARK}(installation) RETURN m.mark"
STATEMENTS = (*writes.STATEMENTS, _ADJACENT, _STAMPS, _CUBES, _SET_MARK, _MARK)


class Neo4jGraph:
    """A `GraphIndex` on a Neo4j server; thread-safe, and it works again when the server does."""

    def __init__(self, connection: Neo4jConnection, installation: str) -> None:
        self._connection = connection
        self._installation = installation

    @classmethod
    def open(cls, settings: Neo4jSettings, installation: str) -> Neo4jGraph:
        """Connect, and create what the database lacks. Raises: BackendUnavailable; InvalidInput for a bad name."""
        if not re.fullmatch(r"[A-Za-z0-9_]{1,64}", installation):
            raise InvalidInput("installation", "must be 1 to 64 letters, digits or underscores of ASCII.")
        try:
            from memos.backends.graph.neo4j_client import Neo4jConnection  # noqa: PLC0415 - the driver is an extra
        except ModuleNotFoundError as error:
            raise BackendUnavailable(
                "A graph index on Neo4j needs the driver: run `pip install '.[neo4j]'` in hippocube's clone."
            ) from error
        graph = cls(Neo4jConnection.open(settings), installation)
        try:
            graph._prepare()
        except BaseException:
            graph.close()
            raise
        return graph

    def _prepare(self) -> None:
        for statement in writes.SCHEMA:
            self._write(partial(_run_once, query=statement))
        self._read(partial(_run_once, query="CALL db.awaitIndexes()"))

    @property
    def incarnation(self) -> int:
        """Return 0: the server keeps what was committed."""
        return 0

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names. Raises: InvalidInput for an unknown link."""
        writes.check_links(nodes)
        for start in range(0, len(nodes), _BATCH):
            batch = {node.id: node for node in nodes[start : start + _BATCH]}
            self._write(partial(writes.put, nodes=list(batch.values())))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""
        for start in range(0, len(ids), _BATCH):
            self._write(partial(writes.remove, ids=ids[start : start + _BATCH]))

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        """Return items one NEXT or link away, in either direction."""
        values = {"id": seed, "cubes": list(cubes), "limit": max(0, limit)}
        return [item for (item,) in self._rows(_ADJACENT, values) if item is not None]

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield (id, id, revision) of every filled node of one cube, a page at a time."""
        start = ""
        while True:
            rows = self._rows(_STAMPS, {"cube": cube, "from": start, "page": _PAGE})
            yield from (Stamp(item, item, revision) for item, revision in rows)
            if len(rows) < _PAGE:
                return
            start = _after(rows[-1][0])

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one filled node."""
        found: list[str] = []
        start = ""
        # A page of a large cube's items tells of that cube alone and is left for the next cube, not read to its end.
        while names := [cube for (cube,) in self._rows(_CUBES, {"from": start, "page": _PAGE})]:
            found += names
            start = _after(names[-1])
        return sorted(found)

    def flush(self, mark: int) -> None:
        """Remember the mark; what was written is durable already."""
        self._write(lambda run: run(_SET_MARK, {"mark": mark}))

    def mark(self) -> int:
        """Return the mark of the last flush."""
        rows = self._rows(_MARK, {})
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._connection.close()

    def _rows(self, query: str, values: Mapping[str, Any]) -> Rows:
        return self._read(lambda run: run(query, values))

    def _read(self, work: Callable[[Run], _Answer]) -> _Answer:
        return self._connection.read(lambda run: work(self._here(run)))

    def _write(self, work: Callable[[Run], _Answer]) -> _Answer:
        return self._connection.write(lambda run: work(self._here(run)))

    def _here(self, run: Run) -> Run:
        """Return `run` for this installation's nodes alone."""
        return lambda query, values: run(query, {**values, "installation": self._installation})


def _run_once(run: Run, query: str) -> None:
    run(query, {})


def _after(text: str) -> str:
    """Return the first text that comes after this one in the server's order."""
    return text + "\0"
