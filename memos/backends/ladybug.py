"""`LadybugGraph`: the graph index in one local file of the embedded Cypher engine; ids and counts only, no names."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ladybug

from memos.errors import BackendUnavailable, IntegrityError
from memos.ports import GraphNode, Neighbour, Stamp

LINKS = ("DERIVED_FROM", "SUPERSEDES", "RELATES")
HUB_MENTIONS = 1_000
"""Items that mention one entity, above which it links nothing: a name everybody says tells nobody apart."""

_BUFFER_BYTES = 128 * 1024 * 1024
_THREADS = 2
_BATCH = 1_000
_PAGE = 20_000  # nodes whose rows are held at once: a result lives in the engine's bounded buffer
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
_ENDS = {"MENTIONS": "Entity", "IN_CONVERSATION": "Conversation", **dict.fromkeys(("NEXT", *LINKS), "Memory")}

_FIELDS = {"Memory": ("id", "cube", "revision"), "Entity": ("id", "cube"), "Conversation": ("id", "cube")}
_FILE_NAME = re.compile(r"graph-\d{6}\.lbug")

# All it raises: its own errors come as RuntimeError, a damaged length makes it ask for memory nobody has.
_ENGINE_ERRORS = (RuntimeError, MemoryError)

Rows = list[Any]  # of lists, one value a column
Run = Callable[[str, Mapping[str, Any]], Rows]
_Row = TypeVar("_Row")
# Query shapes are chosen by measurement on 100,000 nodes. One id given as `{id: $id}` is looked up by its key
# (0.1 ms), as is `UNWIND $rows AS r MATCH (a {id: r.a}) MATCH (b {id: r.b})`; but `id IN $ids`, MERGE, two nodes in
# one MATCH after UNWIND, and UNWIND before a pattern with an edge all read whole tables.


class _File:
    """One open database file: one connection for writers, one for readers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A torn end of the log is dropped: it holds writes after the last mark alone, and those are replayed.
        self._database = ladybug.Database(
            str(path),
            buffer_pool_size=_BUFFER_BYTES,
            max_num_threads=_THREADS,
            throw_on_wal_replay_failure=False,
        )
        self.writer = ladybug.Connection(self._database, num_threads=_THREADS)
        self.reader = ladybug.Connection(self._database, num_threads=_THREADS)
        for statement in _SCHEMA:
            self.writer.execute(statement)

    def read(self, query: str, parameters: Mapping[str, Any]) -> Rows:
        """Read as the writer, which holds the writers' lock."""
        return _run(self.writer, query, parameters)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        self._database.close()


class LadybugGraph:
    """A `GraphIndex` on one file that is also `Rewritable`; the engine takes one writer at a time, so writers queue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writing = threading.RLock()
        self._reading = threading.Lock()
        # Found to be hubs; forgotten when something is deleted, since they may be none then.
        self._hubs: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        self._file: _File | None = _opened(self._current())

    @classmethod
    def open(cls, folder: Path) -> LadybugGraph:
        """Open or create the graph. Raises: IntegrityError when its file is damaged, BackendUnavailable when locked."""
        graph = cls(folder)
        try:
            graph.mark()
            graph.cubes()
        except BackendUnavailable as error:
            graph.close()
            raise IntegrityError(f"The graph index in {folder} cannot be read ({error}).") from error
        return graph

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names."""
        for start in range(0, len(nodes), _BATCH):
            batch = list({node.id: node for node in nodes[start : start + _BATCH]}.values())
            with self._writing:
                _transaction(self._open_file().writer, partial(_put, nodes=batch))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""
        for start in range(0, len(ids), _BATCH):
            batch = list(ids[start : start + _BATCH])
            with self._writing:
                _transaction(self._open_file().writer, partial(_remove, ids=batch))
        self._hubs.clear()

    def adjacent(self, cubes: Sequence[str], seed: str, limit: int) -> list[str]:
        """Return items one NEXT or link away, in either direction."""
        found = self._read(
            f"MATCH (a:Memory {{id: $id}})-[:{_BETWEEN}]-(b:Memory) WHERE b.revision > 0 AND b.cube IN $cubes "
            f"RETURN b.id LIMIT {2 * int(limit)}",
            {"id": seed, "cubes": list(cubes)},
        )
        # Not DISTINCT in the query: it costs four times as much as the rest of it.
        return list(dict.fromkeys(item for (item,) in found))[:limit]

    def neighbours(self, cubes: Sequence[str], seeds: Sequence[str], limit: int) -> list[Neighbour]:
        """Return items within 2 hops of the seeds, nearest first, then those most paths lead to.

        What is walked is bounded: an entity with more than HUB_MENTIONS items links nothing, an item has at most as
        many links followed, a hop stops after _PATHS paths, and the second starts from the _FRONT best of the first.
        """
        found: list[Neighbour] = []
        front, seen = list(dict.fromkeys(seeds)), set(seeds)
        for hop in (1, 2):
            paths = self._around(front, list(cubes))
            fresh = sorted((-count, item) for item, count in paths.items() if item not in seen)
            found.extend(Neighbour(item, hop, -count) for count, item in fresh)
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
            direct = self._read(
                f"MATCH (a:Memory {{id: $id}})-[:{_BETWEEN}]-(b:Memory) WHERE b.revision > 0 AND b.cube IN $cubes "
                f"RETURN b.id LIMIT {HUB_MENTIONS}",
                {"id": item, "cubes": cubes},
            )
            ways = [end for (end,) in direct]
            query = "MATCH (a:Memory {id: $id})-[:MENTIONS]->(e:Entity) RETURN e.id"
            for (entity,) in self._read(query, {"id": item}):
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
        if self._read(f"{to_items} RETURN count(*)", {"id": entity})[0][0] > HUB_MENTIONS:
            self._hubs.add(entity)
            return []
        rows = self._read(
            f"{to_items} WHERE b.revision > 0 AND b.cube IN $cubes RETURN b.id", {"id": entity, "cubes": cubes}
        )
        return [item for (item,) in rows]

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield (id, id, revision) of every filled node of one cube."""
        columns, where = "n.id, n.revision", "n.cube = $cube AND n.revision > 0"
        for page in _pages(self._read, f"(n:Memory) WHERE {where}", columns, {"cube": cube}):
            yield from (Stamp(item, item, revision) for item, revision in page)

    def cubes(self) -> list[str]:
        """Return the cubes that have at least one filled node."""
        rows = self._read("MATCH (m:Memory) WHERE m.revision > 0 RETURN DISTINCT m.cube", {})
        return sorted(cube for (cube,) in rows)

    def flush(self, mark: int) -> None:
        """Make everything so far durable, with the mark."""
        with self._writing:
            writer = self._open_file().writer
            _run(writer, "MERGE (m:Meta {id: 'mark'}) SET m.mark = $mark", {"mark": mark})
            _run(writer, "CHECKPOINT", {})

    def mark(self) -> int:
        """Return the mark of the last flush."""
        rows = self._read("MATCH (m:Meta {id: 'mark'}) RETURN m.mark", {})
        return int(rows[0][0]) if rows else 0

    def rewrite(self) -> None:
        """Copy what is live into a fresh file and delete the old one, which keeps what was deleted; writers wait."""
        with self._writing:
            old = self._open_file()
            self._remove_leftovers()
            target = self._folder / _name(_number(old.path) + 1)
            fresh = _opened(target)
            try:
                _copy(old, fresh)
                _run(fresh.writer, "CHECKPOINT", {})
                _point_to(self._folder, target)
            except BaseException:
                fresh.close()
                self._remove_leftovers()
                raise
            with self._reading:
                self._file = fresh
                old.close()
            self._remove_leftovers()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._writing, self._reading:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open_file(self) -> _File:
        if self._file is None:
            raise BackendUnavailable("The graph index is closed.")
        return self._file

    def _read(self, query: str, parameters: Mapping[str, Any]) -> Rows:
        with self._reading:
            return _run(self._open_file().reader, query, parameters)

    def _current(self) -> Path:
        pointer = self._folder / "CURRENT"
        if not pointer.exists():
            _point_to(self._folder, self._folder / _name(1))
        name = pointer.read_text(encoding="utf-8", errors="replace").strip()
        if not _FILE_NAME.fullmatch(name):
            raise IntegrityError(f"{pointer} is damaged: it says {name[:40]!r}.")
        return self._folder / name

    def _remove_leftovers(self) -> None:
        current = self._current().name
        for entry in self._folder.glob("graph-*"):
            if not entry.name.startswith(current):
                entry.unlink()


def wipe(folder: Path) -> None:
    """Empty a damaged graph; its mark is then 0 and the kernel fills it from the ledger."""
    shutil.rmtree(folder, ignore_errors=True)


def _put(run: Run, nodes: Sequence[GraphNode]) -> None:
    ids = [node.id for node in nodes]
    rows = run("UNWIND $ids AS i MATCH (m:Memory {id: i}) RETURN m.id, m.revision", {"ids": ids})
    filled = [item for item, revision in rows if revision > 0]  # a bare node has no edges of its own
    left = _detach(run, filled)
    _fill(run, nodes, {item for item, _ in rows})
    edges: dict[str, set[tuple[str, str]]] = {kind: set() for kind in _ENDS}
    ends: dict[str, dict[str, str]] = {"Entity": {}, "Conversation": {}, "Memory": {}}
    for node in nodes:
        named = [("MENTIONS", entity) for entity in node.entities]
        named += [("IN_CONVERSATION", node.conversation)] if node.conversation else []
        for kind, end in (*named, *node.links):
            edges[kind].add((node.id, end))
            ends[_ENDS[kind]].setdefault(end, node.cube)
        if node.previous:
            edges["NEXT"].add((node.previous, node.id))
            ends["Memory"].setdefault(node.previous, node.cube)
    for table, cubes in ends.items():
        _ensure(run, table, cubes)
    for kind, pairs in edges.items():
        _connect(run, kind, sorted(pairs))
    _sweep(run, left)


def _fill(run: Run, nodes: Sequence[GraphNode], known: set[str]) -> None:
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
            f"UNWIND $rows AS r MATCH (a:Memory {{id: r.a}}) MATCH (b:{_ENDS[kind]} {{id: r.b}}) "
            f"CREATE (a)-[:{kind}]->(b)",
            {"rows": [{"a": start, "b": end} for start, end in pairs]},
        )


def _detach(run: Run, ids: Sequence[str]) -> dict[str, set[str]]:
    """Delete the edges these items own; return the entities and conversations they led to."""
    left: dict[str, set[str]] = {"MENTIONS": set(), "IN_CONVERSATION": set()}
    for item in ids:
        known = {"id": item}
        for kind, ends in left.items():
            found = run(f"MATCH (m:Memory {{id: $id}})-[:{kind}]->(e:{_ENDS[kind]}) RETURN e.id", known)
            ends.update(end for (end,) in found)
            if found:
                run(f"MATCH (m:Memory {{id: $id}})-[r:{kind}]->(:{_ENDS[kind]}) DELETE r", known)
        run(f"MATCH (m:Memory {{id: $id}})-[r:{'|'.join(LINKS)}]->(:Memory) DELETE r", known)
        run("MATCH (m:Memory {id: $id})<-[r:NEXT]-(:Memory) DELETE r", known)
    return left


def _sweep(run: Run, left: Mapping[str, set[str]]) -> None:
    """Delete those entities and conversations that nothing leads to any more."""
    for kind, ends in left.items():
        for end in sorted(ends):
            known, node = {"id": end}, f"(e:{_ENDS[kind]} {{id: $id}})"
            if run(f"MATCH {node}<-[:{kind}]-(:Memory) RETURN count(*)", known) == [[0]]:
                run(f"MATCH {node} DELETE e", known)


def _remove(run: Run, ids: Sequence[str]) -> None:
    left = _detach(run, ids)
    for item in ids:
        run("MATCH (m:Memory {id: $id}) DETACH DELETE m", {"id": item})
    _sweep(run, left)


def _copy(old: _File, fresh: _File) -> None:
    """Copy what is live, a batch a transaction: bare items, entities and conversations only as ends of edges."""
    used = {item for kind in _ENDS for page in _edges(old, kind) for pair in page for item in pair}
    for table, names in _FIELDS.items():
        columns = ", ".join(f"n.{name}" for name in names)
        for page in _pages(old.read, f"(n:{table})", columns, {}):
            rows = [dict(zip(names, row, strict=True)) for row in page]
            live = [row for row in rows if row.get("revision") or row["id"] in used]
            for part in _parts(live):
                _transaction(fresh.writer, partial(_create, table=table, rows=part))
    for kind in _ENDS:
        for page in _edges(old, kind):
            for pairs in _parts(page):
                _transaction(fresh.writer, partial(_connect, kind=kind, pairs=pairs))
    for (mark,) in old.read("MATCH (m:Meta {id: 'mark'}) RETURN m.mark", {}):
        _run(fresh.writer, "MERGE (m:Meta {id: 'mark'}) SET m.mark = $mark", {"mark": mark})


def _edges(file: _File, kind: str) -> Iterator[Rows]:
    return _pages(file.read, f"(n:Memory)-[:{kind}]->(b:{_ENDS[kind]})", "n.id, b.id", {})


def _pages(read: Run, pattern: str, columns: str, parameters: Mapping[str, Any]) -> Iterator[Rows]:
    """Yield the rows of a pattern around `n`, _PAGE nodes at a time by their place in the table."""
    where, _, rest = pattern.partition(" WHERE ")
    table = where[where.index(":") + 1 : where.index(")")]
    last = read(f"MATCH (n:{table}) RETURN max(offset(id(n)))", {})[0][0]
    condition = f" AND {rest}" if rest else ""
    query = f"MATCH {where} WHERE offset(id(n)) >= $first AND offset(id(n)) < $stop{condition} RETURN {columns}"
    for first in range(0, -1 if last is None else last + 1, _PAGE):
        yield read(query, {**parameters, "first": first, "stop": first + _PAGE})


def _parts(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    for start in range(0, len(rows), _BATCH):
        yield rows[start : start + _BATCH]


def _transaction(connection: Any, work: Callable[[Run], None]) -> None:
    """Do everything in `work` or nothing."""
    _run(connection, "BEGIN TRANSACTION", {})
    try:
        work(lambda query, parameters: _run(connection, query, parameters))
    except BaseException:
        _run(connection, "ROLLBACK", {})
        raise
    _run(connection, "COMMIT", {})


def _run(connection: Any, query: str, parameters: Mapping[str, Any]) -> Rows:
    try:
        result = connection.execute(query, dict(parameters))
        return [list(row) for row in result.get_all()]
    except _ENGINE_ERRORS as error:
        raise BackendUnavailable(f"The graph index refused a statement ({error}).") from error


def _opened(path: Path) -> _File:
    try:
        return _File(path)
    except _ENGINE_ERRORS as error:
        if "Could not set lock" in str(error):
            raise BackendUnavailable(f"The graph index {path} is in use by another process ({error}).") from error
        raise IntegrityError(f"The graph index {path} cannot be read ({error}).") from error


def _point_to(folder: Path, target: Path) -> None:
    """Name the current file, so that a loss of power leaves either the old name or the new one."""
    temporary = folder / "CURRENT.new"
    with temporary.open("w") as pointer:
        pointer.write(target.name)
        pointer.flush()
        os.fsync(pointer.fileno())
    temporary.replace(folder / "CURRENT")
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _name(number: int) -> str:
    return f"graph-{number:06d}.lbug"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("graph-"))
