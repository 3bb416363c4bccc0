"""The child process that holds the graph: Cypher over one local file of the embedded engine `ladybug`.

The engine writes what its process's memory happens to hold as padding into its files (docs/adr/0004), so it runs where
no text ever is: this process knows ids and keyed digests only. Two sockets: one for writes, one for reads.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from memos.backends.child import ignore_interrupts, serve

LINKS = ("DERIVED_FROM", "SUPERSEDES", "RELATES")
HUB_MENTIONS = 1_000
"""Items that mention one entity, above which it links nothing: a name everybody says tells nobody apart."""

_BUFFER_BYTES = 128 * 1024 * 1024
_THREADS = 2
_FRONT = 20  # items of the first hop that are followed further
_PATHS = 10_000  # paths one hop may walk, about 30 ms
_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Memory(id STRING PRIMARY KEY, cube STRING, revision INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, cube STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Conversation(id STRING PRIMARY KEY, cube STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Meta(id STRING PRIMARY KEY, mark INT64)",
    "CREATE REL TABLE IF NOT EXISTS MENTIONS(FROM Memory TO Entity)",
    "CREATE REL TABLE IF NOT EXISTS IN_CONVERSATION(FROM Memory TO Conversation)",
    *(f"CREATE REL TABLE IF NOT EXISTS {kind}(FROM Memory TO Memory)" for kind in ("NEXT", *LINKS)),
)
_BETWEEN = "|".join(("NEXT", *LINKS))
ENDS = {"MENTIONS": "Entity", "IN_CONVERSATION": "Conversation", **dict.fromkeys(("NEXT", *LINKS), "Memory")}
# Fields of the nodes that a copy takes over, and the order in which it does.
FIELDS = {"Memory": ("id", "cube", "revision"), "Entity": ("id", "cube"), "Conversation": ("id", "cube")}
Rows = list[Any]  # of lists, one value a column
Run = Callable[[str, Mapping[str, Any]], Rows]


class WireNode(NamedTuple):
    """One `GraphNode` on the wire."""

    id: str
    cube: str
    revision: int
    conversation: str | None
    previous: str | None
    entities: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


# Query shapes are chosen by measurement on 100,000 nodes. One id given as `{id: $id}` is looked up by its key
# (0.1 ms), as is `UNWIND $rows AS r MATCH (a {id: r.a}) MATCH (b {id: r.b})`; but `id IN $ids`, MERGE, two nodes in
# one MATCH after UNWIND, and UNWIND before a pattern with an edge all read whole tables.


class Graph:
    """One connection to the open file; each public method is one request."""

    def __init__(self, connection: Any, hubs: set[str]) -> None:
        self._connection = connection
        # Found to be hubs; forgotten when something is deleted, since they may be none then.
        self._hubs = hubs

    def prepare(self) -> None:
        """Create what is not there yet, and see that the file can be read."""
        for statement in _SCHEMA:
            self._run(statement)
        self.mark()
        self.cubes()

    def upsert(self, nodes: Sequence[WireNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names."""
        self._transaction(partial(_put, nodes=nodes))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""
        self._transaction(partial(_remove, ids=ids))
        self._hubs.clear()

    def flush(self, mark: int, whole: bool = False) -> None:
        """Write the mark behind everything so far; `whole` also empties the engine's log into its file.

        A commit is durable by itself, its log is synced; emptying the log takes 140 ms, while no search is answered.
        The engine does it when the log has grown to 16 MiB, and when it is closed.
        """
        self._run("MERGE (m:Meta {id: 'mark'}) SET m.mark = $mark", {"mark": mark})
        if whole:
            self._run("CHECKPOINT")

    def mark(self) -> int:
        """Return the mark of the last flush."""
        rows = self._run("MATCH (m:Meta {id: 'mark'}) RETURN m.mark")
        return int(rows[0][0]) if rows else 0

    def last_place(self, table: str) -> int:
        """Return the highest place in a table that a node has, -1 for none."""
        last = self._run(f"MATCH (n:{table}) RETURN max(offset(id(n)))")[0][0]
        return -1 if last is None else int(last)

    def nodes(self, table: str, first: int, stop: int) -> Rows:
        """Return FIELDS of the nodes at some places in a table."""
        columns = ", ".join(f"n.{name}" for name in FIELDS[table])
        return self._places(f"(n:{table})", columns, first, stop)

    def edges(self, kind: str, first: int, stop: int) -> Rows:
        """Return both ends of the edges of a kind that leave the items at some places."""
        return self._places(f"(n:Memory)-[:{kind}]->(b:{ENDS[kind]})", "n.id, b.id", first, stop)

    def _places(self, pattern: str, columns: str, first: int, stop: int) -> Rows:
        query = f"MATCH {pattern} WHERE offset(id(n)) >= $first AND offset(id(n)) < $stop RETURN {columns}"
        return self._run(query, {"first": first, "stop": stop})

    def create_nodes(self, table: str, rows: Rows) -> None:
        """Create nodes that do not exist yet from FIELDS."""
        self._transaction(
            partial(_create, table=table, rows=[dict(zip(FIELDS[table], row, strict=True)) for row in rows])
        )

    def create_edges(self, kind: str, pairs: Rows) -> None:
        """Create edges that do not exist yet between nodes that do."""
        self._transaction(partial(_connect, kind=kind, pairs=pairs))

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        """Return items one NEXT or link away, in either direction."""
        found = self._run(
            f"MATCH (a:Memory {{id: $id}})-[:{_BETWEEN}]-(b:Memory) WHERE b.revision > 0 AND b.cube IN $cubes "
            f"RETURN b.id LIMIT {2 * int(limit)}",
            {"id": seed, "cubes": list(cubes)},
        )
        # Not DISTINCT in the query: it costs four times as much as the rest of it.
        return list(dict.fromkeys(item for (item,) in found))[:limit]

    def neighbours(self, cubes: Sequence[str], seeds: Sequence[str], limit: int) -> list[tuple[str, int, int]]:
        """Return items within 2 hops of the seeds, nearest first, then those most paths lead to.

        What is walked is bounded: an entity with more than HUB_MENTIONS items links nothing, an item has at most as
        many links followed, a hop stops after _PATHS paths, and the second starts from the _FRONT best of the first.
        """
        found: list[tuple[str, int, int]] = []
        front, seen = list(dict.fromkeys(seeds)), set(seeds)
        for hop in (1, 2):
            paths = self._around(front, list(cubes))
            fresh = sorted((-count, item) for item, count in paths.items() if item not in seen)
            found.extend((item, hop, -count) for count, item in fresh)
            seen.update(item for _, item in fresh)
            front = [item for _, item in fresh[:_FRONT]]
            if len(found) >= limit:
                break
        return found[:limit]

    def _around(self, ids: list[str], cubes: list[str]) -> Counter[str]:
        """Count the ways from these items to filled items of the cubes in one hop."""
        paths: Counter[str] = Counter()
        mentioned: dict[str, list[str]] = {}
        left = _PATHS
        for item in ids:
            direct = self._run(
                f"MATCH (a:Memory {{id: $id}})-[:{_BETWEEN}]-(b:Memory) WHERE b.revision > 0 AND b.cube IN $cubes "
                f"RETURN b.id LIMIT {HUB_MENTIONS}",
                {"id": item, "cubes": cubes},
            )
            ways = [end for (end,) in direct]
            query = "MATCH (a:Memory {id: $id})-[:MENTIONS]->(e:Entity) RETURN e.id"
            for (entity,) in self._run(query, {"id": item}):
                if entity not in mentioned:
                    mentioned[entity] = self._mentioning(entity, cubes)
                ways.extend(end for end in mentioned[entity] if end != item)
            paths.update(ways[:left])
            left -= len(ways)
            if left <= 0:
                break
        return paths

    def _mentioning(self, entity: str, cubes: list[str]) -> list[str]:
        """Return the items that mention an entity, none for a hub: counting takes 0.2 ms, reading 3 ms a thousand."""
        if entity in self._hubs:
            return []
        to_items = "MATCH (e:Entity {id: $id})<-[:MENTIONS]-(b:Memory)"
        if self._run(f"{to_items} RETURN count(*)", {"id": entity})[0][0] > HUB_MENTIONS:
            self._hubs.add(entity)
            return []
        rows = self._run(
            f"{to_items} WHERE b.revision > 0 AND b.cube IN $cubes RETURN b.id", {"id": entity, "cubes": cubes}
        )
        return [item for (item,) in rows]

    def stamps(self, cube: str, first: int, stop: int) -> Rows:
        """Return (id, revision) of those filled nodes of a cube that are at some places."""
        where = "offset(id(n)) >= $first AND offset(id(n)) < $stop AND n.cube = $cube AND n.revision > 0"
        query = f"MATCH (n:Memory) WHERE {where} RETURN n.id, n.revision"
        return self._run(query, {"cube": cube, "first": first, "stop": stop})

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one filled node."""
        rows = self._run("MATCH (m:Memory) WHERE m.revision > 0 RETURN DISTINCT m.cube")
        return sorted(cube for (cube,) in rows)

    def _transaction(self, work: Callable[[Run], None]) -> None:
        """Do everything in `work` or nothing."""
        self._run("BEGIN TRANSACTION")
        try:
            work(self._run)
        except BaseException:
            self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def _run(self, query: str, parameters: Mapping[str, Any] | None = None) -> Rows:
        return [list(row) for row in self._connection.execute(query, dict(parameters or {})).get_all()]


def _put(run: Run, nodes: Sequence[WireNode]) -> None:
    ids = [node.id for node in nodes]
    rows = run("UNWIND $ids AS i MATCH (m:Memory {id: i}) RETURN m.id, m.revision", {"ids": ids})
    filled = [item for item, revision in rows if revision > 0]  # a bare node has no edges of its own
    left = _detach(run, filled)
    _fill(run, nodes, {item for item, _ in rows})
    edges: dict[str, set[tuple[str, str]]] = {kind: set() for kind in ENDS}
    ends: dict[str, dict[str, str]] = {"Entity": {}, "Conversation": {}, "Memory": {}}
    for node in nodes:
        named = [("MENTIONS", entity) for entity in node.entities]
        named += [("IN_CONVERSATION", node.conversation)] if node.conversation else []
        for kind, end in (*named, *node.links):
            edges[kind].add((node.id, end))
            ends[ENDS[kind]].setdefault(end, node.cube)
        if node.previous:
            edges["NEXT"].add((node.previous, node.id))
            ends["Memory"].setdefault(node.previous, node.cube)
    for table, cubes in ends.items():
        _ensure(run, table, cubes)
    for kind, pairs in edges.items():
        _connect(run, kind, sorted(pairs))
    _sweep(run, left)


def _fill(run: Run, nodes: Sequence[WireNode], known: set[str]) -> None:
    rows = [{"id": node.id, "cube": node.cube, "revision": node.revision} for node in nodes]
    old = [row for row in rows if row["id"] in known]
    if old:
        run("UNWIND $rows AS r MATCH (n:Memory {id: r.id}) SET n.cube = r.cube, n.revision = r.revision", {"rows": old})
    _create(run, "Memory", [row for row in rows if row["id"] not in known])


def _ensure(run: Run, table: str, cubes: Mapping[str, str]) -> None:
    """Create the ends of edges that do not exist yet, leaving the others as they are; items come out bare."""
    if not cubes:
        return
    rows = run(f"UNWIND $ids AS i MATCH (n:{table} {{id: i}}) RETURN n.id", {"ids": list(cubes)})
    known = {item for (item,) in rows}
    bare: dict[str, Any] = {"revision": 0} if table == "Memory" else {}
    _create(run, table, [{"id": item, "cube": cube, **bare} for item, cube in cubes.items() if item not in known])


def _create(run: Run, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        fields = ", ".join(f"{name}: r.{name}" for name in rows[0])
        run(f"UNWIND $rows AS r CREATE (n:{table} {{{fields}}})", {"rows": rows})


def _connect(run: Run, kind: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Create edges; none of them exists, since a node's own edges are deleted before."""
    if pairs:
        run(
            f"UNWIND $rows AS r MATCH (a:Memory {{id: r.a}}) MATCH (b:{ENDS[kind]} {{id: r.b}}) "
            f"CREATE (a)-[:{kind}]->(b)",
            {"rows": [{"a": start, "b": end} for start, end in pairs]},
        )


def _detach(run: Run, ids: Sequence[str]) -> dict[str, set[str]]:
    """Delete the edges these items own; return the entities and conversations they led to."""
    left: dict[str, set[str]] = {"MENTIONS": set(), "IN_CONVERSATION": set()}
    for item in ids:
        known = {"id": item}
        for kind, ends in left.items():
            found = run(f"MATCH (m:Memory {{id: $id}})-[:{kind}]->(e:{ENDS[kind]}) RETURN e.id", known)
            ends.update(end for (end,) in found)
            if found:
                run(f"MATCH (m:Memory {{id: $id}})-[r:{kind}]->(:{ENDS[kind]}) DELETE r", known)
        run(f"MATCH (m:Memory {{id: $id}})-[r:{'|'.join(LINKS)}]->(:Memory) DELETE r", known)
        run("MATCH (m:Memory {id: $id})<-[r:NEXT]-(:Memory) DELETE r", known)
    return left


def _sweep(run: Run, left: Mapping[str, set[str]]) -> None:
    """Delete those entities and conversations that nothing leads to any more."""
    for kind, ends in left.items():
        for end in sorted(ends):
            known, node = {"id": end}, f"(e:{ENDS[kind]} {{id: $id}})"
            if run(f"MATCH {node}<-[:{kind}]-(:Memory) RETURN count(*)", known) == [[0]]:
                run(f"MATCH {node} DELETE e", known)


def _remove(run: Run, ids: Sequence[str]) -> None:
    left = _detach(run, ids)
    for item in ids:
        run("MATCH (m:Memory {id: $id}) DETACH DELETE m", {"id": item})
    _sweep(run, left)


class _Server:
    """What the child does with a request; the first one, on the socket for writes, opens the file."""

    def __init__(self) -> None:
        self._writer: Graph | None = None
        self._reader: Graph | None = None

    def write(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "open":
            return self._open(*arguments)
        return getattr(self._writer, method)(*arguments)

    def read(self, method: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self._reader, method)(*arguments)

    def _open(self, path: str) -> None:
        import ladybug  # noqa: PLC0415 - the parent imports this module too, and needs no engine

        # A torn end of the log is dropped: it holds writes after the last mark alone, and those are replayed.
        database = ladybug.Database(
            path, buffer_pool_size=_BUFFER_BYTES, max_num_threads=_THREADS, throw_on_wal_replay_failure=False
        )
        hubs: set[str] = set()
        self._writer = Graph(ladybug.Connection(database, num_threads=_THREADS), hubs)
        # Its queries are so short that a second thread doubles their time.
        self._reader = Graph(ladybug.Connection(database, num_threads=1), hubs)
        self._writer.prepare()


def main(writes: int, reads: int) -> None:
    """Run as a child: serve both inherited sockets."""
    ignore_interrupts()
    server = _Server()
    threading.Thread(target=serve, args=(Connection(reads), server.read), daemon=True).start()
    serve(Connection(writes), server.write)
    # Not by way of the engine's destructors: the log has all that was committed, and a read may be under way.
    os._exit(0)
