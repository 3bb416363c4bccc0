"""`Neo4jGraph`: the graph index on a Neo4j server, shared by any number of processes; it holds ids and digests only.

Every node carries its installation, so several can share a database. A write is durable when its call returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from memos.core.ports import GraphNode, Stamp
from memos.core.settings import Neo4jSettings
from memos.errors import BackendUnavailable, InvalidInput

LINKS = ("DERIVED_FROM", "SUPERSEDES", "RELATES")
ENDS = {"MENTIONS": "Entity", "IN_CONVERSATION": "Conversation", **dict.fromkeys(("NEXT", *LINKS), "Memory")}
"""The kinds of edges, and where each leads."""

Rows = list[list[Any]]
Run = Callable[[str, Mapping[str, Any]], Rows]

ITEM = "MemosMemory"
ENTITY = "MemosEntity"
CONVERSATION = "MemosConversation"
MARK = "MemosMark"
BETWEEN = "|".join(("NEXT", *LINKS))
_LABELS = {"Memory": ITEM, "Entity": ENTITY, "Conversation": CONVERSATION}
# The edges that an item has because its own node names them; NEXT comes from the item before it.
_OWN = "|".join(kind for kind in ENDS if kind != "NEXT")

SCHEMA = (
    *(
        f"CREATE CONSTRAINT {label}_id IF NOT EXISTS FOR (n:{label}) REQUIRE (n.installation, n.id) IS UNIQUE"
        for label in _LABELS.values()
    ),
    f"CREATE CONSTRAINT {MARK}_id IF NOT EXISTS FOR (n:{MARK}) REQUIRE n.installation IS UNIQUE",
    f"CREATE INDEX {ITEM}_cube IF NOT EXISTS FOR (n:{ITEM}) ON (n.installation, n.cube, n.id)",
)


def _node(label: str, id_: str = "id", name: str = "n") -> str:
    return f"({name}:{label} {{installation: $installation, id: {id_}}})"


def match(label: str, id_: str = "id", name: str = "n") -> str:
    """Return the clause that looks one node up, by its index even while the planner believes the label to be empty."""
    return f"MATCH {_node(label, id_, name)} USING INDEX SEEK {name}:{label}(installation, id)"


# Setting a property, whatever its value, takes the node's lock until the end of the transaction.
_PUT_ITEMS = (
    f"UNWIND $rows AS r MERGE {_node(ITEM, 'r.id')} ON CREATE SET n.cube = r.cube, n.revision = 0 "
    "SET n.lock = true, n += r.fields"
)
_PUT_ENDS = {label: f"UNWIND $ids AS id MERGE {_node(label)} SET n.lock = true" for label in (ENTITY, CONVERSATION)}
_LOCK_ITEMS = f"UNWIND $ids AS id {match(ITEM)} SET n.lock = true"
_ENDS = (
    f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[r:{_OWN}]->(e) RETURN type(r) AS kind, e.id AS end "
    f"UNION UNWIND $ids AS id {match(ITEM)} MATCH (n)<-[r:NEXT]-(e) RETURN type(r) AS kind, e.id AS end"
)
_BESIDE = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[:{BETWEEN}]-(e) RETURN DISTINCT e.id"
_CUT_OWN = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[r:{_OWN}]->() DELETE r"
_CUT_NEXT = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)<-[r:NEXT]-() DELETE r"
_CONNECT = {
    kind: f"UNWIND $pairs AS p {match(ITEM, 'p[0]', 'a')} {match(_LABELS[end], 'p[1]', 'b')} CREATE (a)-[:{kind}]->(b)"
    for kind, end in ENDS.items()
}
_REMOVE = f"UNWIND $ids AS id {match(ITEM)} DETACH DELETE n"
_SWEEP = {
    ITEM: f"UNWIND $ids AS id {match(ITEM)} WHERE n.revision = 0 AND NOT (n)--() DELETE n",
    ENTITY: f"UNWIND $ids AS id {match(ENTITY)} WHERE NOT (n)--() DELETE n",
    CONVERSATION: f"UNWIND $ids AS id {match(CONVERSATION)} WHERE NOT (n)--() DELETE n",
}
WRITE_STATEMENTS = (
    *(_PUT_ITEMS, *_PUT_ENDS.values(), _LOCK_ITEMS, _ENDS, _BESIDE, _CUT_OWN, _CUT_NEXT),
    *(*_CONNECT.values(), _REMOVE, *_SWEEP.values()),
)


def put(run: Run, nodes: Sequence[GraphNode]) -> None:
    ids = sorted(node.id for node in nodes)
    edges, ends = _named(nodes)
    # Read before any lock, so that all are taken in one order; read again under them, since it may have changed.
    guess = _old_ends(run, ids)[ITEM]
    cubes = {**dict.fromkeys(guess, nodes[0].cube), **ends[ITEM], **{node.id: node.cube for node in nodes}}
    own = {node.id: {"cube": node.cube, "revision": node.revision} for node in nodes}
    run(_PUT_ITEMS, {"rows": [{"id": id_, "cube": cubes[id_], "fields": own.get(id_, {})} for id_ in sorted(cubes)]})
    old = _old_ends(run, ids)
    _lock(run, _LOCK_ITEMS, old[ITEM] - cubes.keys())
    for label, statement in _PUT_ENDS.items():
        _lock(run, statement, old[label] | ends[label].keys())
    if any(old.values()):
        run(_CUT_OWN, {"ids": ids})
        run(_CUT_NEXT, {"ids": ids})
    for kind, pairs in edges.items():
        if pairs:
            run(_CONNECT[kind], {"pairs": [list(pair) for pair in sorted(pairs)]})
    old[ITEM] |= guess
    _sweep(run, {label: found - ends[label].keys() for label, found in old.items()})


def remove(run: Run, ids: Iterable[str]) -> None:
    known = sorted(set(ids))
    beside = {item for (item,) in run(_BESIDE, {"ids": known}) if item is not None}
    _lock(run, _LOCK_ITEMS, beside.union(known))
    old = _old_ends(run, known)
    _lock(run, _LOCK_ITEMS, old[ITEM] - beside)
    for label, statement in _PUT_ENDS.items():
        _lock(run, statement, old[label])
    run(_REMOVE, {"ids": known})
    _sweep(run, old)


def _named(nodes: Sequence[GraphNode]) -> tuple[dict[str, set[tuple[str, str]]], dict[str, dict[str, str]]]:
    edges: dict[str, set[tuple[str, str]]] = {kind: set() for kind in ENDS}
    ends: dict[str, dict[str, str]] = {label: {} for label in _LABELS.values()}
    for node in nodes:
        named = [("MENTIONS", entity) for entity in node.entities]
        named += [("IN_CONVERSATION", node.conversation)] if node.conversation else []
        for kind, end in (*named, *node.links):
            edges[kind].add((node.id, end))
            ends[_LABELS[ENDS[kind]]].setdefault(end, node.cube)
        if node.previous:
            edges["NEXT"].add((node.previous, node.id))
            ends[ITEM].setdefault(node.previous, node.cube)
    return edges, ends


def _old_ends(run: Run, ids: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {label: set() for label in _LABELS.values()}
    for kind, end in run(_ENDS, {"ids": ids}):
        if kind is not None and end is not None:  # what another one deletes while this one reads shows nothing
            found[_LABELS[ENDS[kind]]].add(end)
    return found


def _lock(run: Run, statement: str, ids: Iterable[str]) -> None:
    ordered = sorted(ids)
    if ordered:
        run(statement, {"ids": ordered})


def _sweep(run: Run, ends: Mapping[str, set[str]]) -> None:
    for label, ids in ends.items():
        if ids:
            run(_SWEEP[label], {"ids": sorted(ids)})


if TYPE_CHECKING:
    from memos.backends.graph.neo4j_client import Neo4jConnection

__all__ = ["Neo4jGraph"]

_BATCH = 1_000
_PAGE = 10_000  # rows held at once

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
STATEMENTS = (*WRITE_STATEMENTS, _ADJACENT, _STAMPS, _CUBES, _SET_MARK, _MARK)


class Neo4jGraph:
    """A `GraphIndex` on a Neo4j server; thread-safe, and it works again when the server does."""

    def __init__(self, connection: Neo4jConnection, installation: str) -> None:
        self._connection = connection
        self._installation = installation

    @classmethod
    def open(cls, settings: Neo4jSettings, installation: str) -> Neo4jGraph:
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
        for statement in SCHEMA:
            self._write(partial(_run_once, query=statement))
        self._rows("CALL db.awaitIndexes()", {})

    @property
    def restart_count(self) -> int:
        return 0

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        for kind, _ in (link for node in nodes for link in node.links):
            if kind not in LINKS:
                raise InvalidInput("links", f"unknown kind {kind!r:.60}; expected one of {', '.join(LINKS)}")
        for start in range(0, len(nodes), _BATCH):
            batch = {node.id: node for node in nodes[start : start + _BATCH]}
            self._write(partial(put, nodes=list(batch.values())))

    def delete(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _BATCH):
            self._write(partial(remove, ids=ids[start : start + _BATCH]))

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        values = {"id": seed, "cubes": list(cubes), "limit": max(0, limit)}
        return [item for (item,) in self._rows(_ADJACENT, values) if item is not None]

    def scan(self, cube: str) -> Iterator[Stamp]:
        start = ""
        while True:
            rows = self._rows(_STAMPS, {"cube": cube, "from": start, "page": _PAGE})
            yield from (Stamp(item, item, revision) for item, revision in rows)
            if len(rows) < _PAGE:
                return
            start = _after(rows[-1][0])

    def cubes(self) -> list[str]:
        found: list[str] = []
        start = ""
        # A page of a large cube's items tells of that cube alone and is left for the next cube, not read to its end.
        while names := [cube for (cube,) in self._rows(_CUBES, {"from": start, "page": _PAGE})]:
            found += names
            start = _after(names[-1])
        return sorted(found)

    def flush(self, mark: int) -> None:
        self._write(lambda run: run(_SET_MARK, {"mark": mark}))

    def mark(self) -> int:
        rows = self._rows(_MARK, {})
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        self._connection.close()

    def _rows(self, query: str, values: Mapping[str, Any]) -> Rows:
        return self._connection.read(lambda run: self._here(run)(query, values))

    def _write(self, work: Callable[[Run], object]) -> None:
        self._connection.write(lambda run: work(self._here(run)))

    def _here(self, run: Run) -> Run:
        return lambda query, values: run(query, {**values, "installation": self._installation})


def _run_once(run: Run, query: str) -> None:
    run(query, {})


def _after(text: str) -> str:
    return text + "\0"
