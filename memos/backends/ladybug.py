"""`LadybugGraph`: the graph index in one local file of the embedded Cypher engine; ids and counts only, no names."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ladybug

from memos.errors import BackendUnavailable, IntegrityError
from memos.ports import GraphNode, Neighbour, Stamp

LINKS = ("DERIVED_FROM", "SUPERSEDES", "RELATES")
HUB_MENTIONS = 1_000
"""Items that mention one entity, above which it links nothing: a name everybody says tells nobody apart."""

_BUFFER_BYTES = 128 * 1024 * 1024
_THREADS = 2
_BATCH = 1_000
_FRONT = 50
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

Rows = list[list[Any]]


class _File:
    """One open database file: one connection for writers, one for readers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = ladybug.Database(str(path), buffer_pool_size=_BUFFER_BYTES, max_num_threads=_THREADS)
        self.writer = ladybug.Connection(self._database, num_threads=_THREADS)
        self.reader = ladybug.Connection(self._database, num_threads=_THREADS)
        for statement in _SCHEMA:
            self.writer.execute(statement)

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
        folder.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        self._file: _File | None = _opened(self._current())

    @classmethod
    def open(cls, folder: Path) -> LadybugGraph:
        """Open or create the graph. Raises: IntegrityError when its file is damaged, BackendUnavailable when locked."""
        return cls(folder)

    def upsert(self, nodes: Sequence[GraphNode]) -> None:
        """Insert or replace nodes and exactly the edges each node names."""
        for start in range(0, len(nodes), _BATCH):
            batch = list({node.id: node for node in nodes[start : start + _BATCH]}.values())
            with self._writing:
                _transaction(self._open_file().writer, lambda run, batch=batch: _put(run, batch))

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items with all their edges, and entities and conversations left without any."""
        for start in range(0, len(ids), _BATCH):
            batch = list(ids[start : start + _BATCH])
            with self._writing:
                _transaction(self._open_file().writer, lambda run, batch=batch: _remove(run, batch))

    def neighbours(self, cubes: Sequence[str], seeds: Sequence[str], limit: int) -> list[Neighbour]:
        """Return items within 2 hops of the seeds, nearest first, then those most paths lead to."""
        found: dict[str, Neighbour] = {}
        front, seen = list(dict.fromkeys(seeds)), set(seeds)
        for hops in (1, 2):
            paths = self._around(front, list(cubes))
            fresh = [(item, count) for item, count in paths.items() if item not in seen]
            fresh.sort(key=lambda pair: (-pair[1], pair[0]))
            found.update((item, Neighbour(item, hops, count)) for item, count in fresh)
            seen.update(item for item, _ in fresh)
            front = [item for item, _ in fresh[:_FRONT]]
            if not front or len(found) >= limit:
                break
        return sorted(found.values(), key=lambda n: (n.hops, -n.paths, n.id))[:limit]

    def _around(self, ids: list[str], cubes: list[str]) -> Counter[str]:
        """Count the ways from these items to others in one hop."""
        known = {"ids": ids, "cubes": cubes}
        paths: Counter[str] = Counter()
        direct = self._read(
            f"MATCH (a:Memory)-[:{_BETWEEN}]-(b:Memory) WHERE a.id IN $ids AND b.revision > 0 AND b.cube IN $cubes "
            "RETURN b.id, count(*)",
            known,
        )
        shared = self._read("MATCH (a:Memory)-[:MENTIONS]->(e:Entity) WHERE a.id IN $ids RETURN DISTINCT e.id", known)
        telling = [entity for (entity,) in shared if self._mentions(entity) <= HUB_MENTIONS]
        through = self._read(
            "MATCH (e:Entity)<-[:MENTIONS]-(b:Memory) WHERE e.id IN $entities AND b.cube IN $cubes "
            "AND b.revision > 0 RETURN b.id, count(*)",
            {"entities": telling, "cubes": cubes},
        )
        for item, count in (*direct, *through):
            paths[item] += count
        return paths

    def _mentions(self, entity: str) -> int:
        query = "MATCH (e:Entity)<-[:MENTIONS]-(b:Memory) WHERE e.id = $id RETURN count(*)"
        return int(self._read(query, {"id": entity})[0][0])

    def scan(self, cube: str) -> Iterator[Stamp]:
        """Yield (id, id, revision) of every filled node of one cube."""
        query = "MATCH (m:Memory) WHERE m.cube = $cube AND m.revision > 0 RETURN m.id, m.revision"
        yield from (Stamp(item, item, revision) for item, revision in self._read(query, {"cube": cube}))

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
            target = self._folder / _name(_number(old.path) + 1)
            fresh = _opened(target)
            try:
                _copy(old.writer, fresh.writer)
                _run(fresh.writer, "CHECKPOINT", {})
            except BaseException:
                fresh.close()
                raise
            _point_to(self._folder, target)
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
        name = pointer.read_text().strip()
        if not name.startswith("graph-"):
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


def _put(run: Any, nodes: Sequence[GraphNode]) -> None:
    ids = [node.id for node in nodes]
    known = [row[0] for row in run("MATCH (m:Memory) WHERE m.id IN $ids RETURN m.id", {"ids": ids})]
    if known:
        for kind in ("MENTIONS", "IN_CONVERSATION", *LINKS):
            run(f"MATCH (m:Memory)-[r:{kind}]->() WHERE m.id IN $ids DELETE r", {"ids": known})
        run("MATCH (m:Memory)<-[r:NEXT]-() WHERE m.id IN $ids DELETE r", {"ids": known})
    _merge(run, "Memory", {(node.id, node.cube, node.revision) for node in nodes})
    _merge(run, "Entity", {(entity, node.cube) for node in nodes for entity in node.entities})
    _merge(run, "Conversation", {(node.conversation, node.cube) for node in nodes if node.conversation})
    edges: dict[str, set[tuple[str, str]]] = {kind: set() for kind in ("MENTIONS", "IN_CONVERSATION", "NEXT", *LINKS)}
    bare: set[tuple[str, str]] = set()
    for node in nodes:
        edges["MENTIONS"].update((node.id, entity) for entity in node.entities)
        if node.conversation:
            edges["IN_CONVERSATION"].add((node.id, node.conversation))
        if node.previous:
            edges["NEXT"].add((node.previous, node.id))
            bare.add((node.previous, node.cube))
        for kind, target in node.links:
            edges[kind].add((node.id, target))
            bare.add((target, node.cube))
    _bare(run, {pair for pair in bare if pair[0] not in set(ids)})
    for kind, pairs in edges.items():
        _connect(run, kind, pairs)


def _merge(run: Any, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    names = ("id", "cube", "revision")
    values = [dict(zip(names, row, strict=False)) for row in rows]
    if values:
        revision = ", n.revision = r.revision" if "revision" in values[0] else ""
        run(f"UNWIND $rows AS r MERGE (n:{table} {{id: r.id}}) SET n.cube = r.cube{revision}", {"rows": values})


def _bare(run: Any, rows: set[tuple[str, str]]) -> None:
    """Create the unfilled ends of edges, leaving those that exist as they are."""
    if rows:
        values = [{"id": item, "cube": cube} for item, cube in sorted(rows)]
        run(
            "UNWIND $rows AS r MERGE (n:Memory {id: r.id}) ON CREATE SET n.cube = r.cube, n.revision = 0",
            {"rows": values},
        )


def _connect(run: Any, kind: str, pairs: Iterable[tuple[str, str]]) -> None:
    values = [{"a": start, "b": end} for start, end in sorted(pairs)]
    if values:
        end = {"MENTIONS": "Entity", "IN_CONVERSATION": "Conversation"}.get(kind, "Memory")
        # CREATE, not MERGE: the node's own edges were deleted just before, and MERGE of edges is 20 times slower.
        run(
            f"UNWIND $rows AS r MATCH (a:Memory {{id: r.a}}), (b:{end} {{id: r.b}}) CREATE (a)-[:{kind}]->(b)",
            {"rows": values},
        )


def _remove(run: Any, ids: list[str]) -> None:
    known = {"ids": ids}
    for kind, table in (("MENTIONS", "Entity"), ("IN_CONVERSATION", "Conversation")):
        rows = run(f"MATCH (m:Memory)-[:{kind}]->(e:{table}) WHERE m.id IN $ids RETURN DISTINCT e.id", known)
        run(f"MATCH (m:Memory)-[r:{kind}]->() WHERE m.id IN $ids DELETE r", known)
        around = [row[0] for row in rows]
        if around:
            query = f"MATCH (e:{table})<-[:{kind}]-() WHERE e.id IN $ids RETURN DISTINCT e.id"
            used = {row[0] for row in run(query, {"ids": around})}
            alone = [entity for entity in around if entity not in used]
            run(f"MATCH (e:{table}) WHERE e.id IN $ids DETACH DELETE e", {"ids": alone})
    run("MATCH (m:Memory) WHERE m.id IN $ids DETACH DELETE m", known)


def _copy(old: Any, fresh: Any) -> None:
    """Copy every node and edge, a batch a transaction."""
    for table, fields in (
        ("Memory", "n.id, n.cube, n.revision"),
        ("Entity", "n.id, n.cube"),
        ("Conversation", "n.id, n.cube"),
    ):
        rows = _run(old, f"MATCH (n:{table}) RETURN {fields}", {})
        for start in range(0, len(rows), _BATCH):
            part = [tuple(row) for row in rows[start : start + _BATCH]]
            _transaction(fresh, lambda run, table=table, part=part: _merge(run, table, part))
    for kind in ("MENTIONS", "IN_CONVERSATION", "NEXT", *LINKS):
        rows = _run(old, f"MATCH (a:Memory)-[:{kind}]->(b) RETURN a.id, b.id", {})
        for start in range(0, len(rows), _BATCH):
            pairs = [(row[0], row[1]) for row in rows[start : start + _BATCH]]
            _transaction(fresh, lambda run, kind=kind, pairs=pairs: _connect(run, kind, pairs))
    for (mark,) in _run(old, "MATCH (m:Meta {id: 'mark'}) RETURN m.mark", {}):
        _run(fresh, "MERGE (m:Meta {id: 'mark'}) SET m.mark = $mark", {"mark": mark})


def _transaction(connection: Any, work: Any) -> None:
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
    except RuntimeError as error:  # the engine's only exception type
        raise BackendUnavailable(f"The graph index refused a statement ({error}).") from error


def _opened(path: Path) -> _File:
    try:
        return _File(path)
    except RuntimeError as error:
        if "lock" in str(error).lower():
            raise BackendUnavailable(f"The graph index {path} is in use by another process ({error}).") from error
        raise IntegrityError(f"The graph index {path} cannot be read ({error}).") from error


def _point_to(folder: Path, target: Path) -> None:
    temporary = folder / "CURRENT.new"
    temporary.write_text(target.name)
    temporary.replace(folder / "CURRENT")


def _name(number: int) -> str:
    return f"graph-{number:06d}.lbug"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("graph-"))
