"""`PgVectorIndex`: the vector index in the ledger's PostgreSQL, with pgvector.

Vectors are half-precision floats. Few points are compared one by one, many by graphs (HNSW), which `optimise` builds.
Words have a table of their own: rows of a term, a point and its two weights. It names candidates, which are weighed by
sparse vectors of all their words.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from memos.backends.pgvector import schema
from memos.backends.pgvector.filters import DATES, LISTS, NUMBERS, TEXTS, condition
from memos.backends.pgvector.schema import SPACES, WORD_AXES, Connection, Database, Reals
from memos.core.filters import values_of
from memos.core.ports import ArmQuery, HeldPoint, ScoredPoint, SparseVector, Stamp, Vector, VectorPoint, VectorSearch
from memos.core.types import STANDING_OF, Arm, Json
from memos.errors import InvalidInput

log = logging.getLogger("memos.engines")

FOREVER = 2**63 - 1
"""`recorded_to` of a current version."""

_NOISE = 2**-20
_SCAN_PAGE = 2_000
_WRITE_BATCH = 500
# Up to so many points all are compared, 0.5 us each: a graph would have to pass by the points of other cubes.
_COMPARED = 5_000
_COMPARED_FILTERED = 20_000
# The sizes of larger corpora are counted again after a time, how many points have a common word after some growth.
_SMALL_CORPUS = 2_000
_COMMON_WORD = 500
_KEPT_S = 120.0
_KEPT_GROWTH = 1.05
_MOST_KEPT = 50_000
# Rows of the rarest words of a question, which name candidates; all words are weighed of these alone.
_READ_ROWS = 2_000
_MOST_ROWS_OF_A_WORD = 4_000
_CANDIDATES = 4
_COUNTED = 10_000

_COLUMN_TYPES = {
    "no": "int8",
    "id": "uuid",
    "cube": "text",
    "corpus": "int8",
    "item": "text",
    "version": "int4",
    "revision": "int4",
    "recorded_from": "int8",
    "recorded_to": "int8",
    "live": "bool",
    "standing": "int4",
    **dict.fromkeys(TEXTS, "text"),
    **dict.fromkeys(DATES, "int8"),
    **dict.fromkeys(NUMBERS, "float8"),
    **dict.fromkeys(LISTS, "text[]"),
    "info": "jsonb",
    "terms": "int4[]",
    # Vectors are sent as their bytes.
    **dict.fromkeys(("turn", "win", "turn_words", "win_words"), "bytea"),
}
_TERM_TYPES = (("corpus", ">i8"), ("term", ">i4"), ("point", ">i8"), ("turn", ">f4"), ("win", ">f4"))
# A row as a binary COPY has it: the number of columns, then each one's size and value.
_TERM_ROW = np.dtype(
    [("columns", ">i2"), *(part for n, kind in _TERM_TYPES for part in ((f"{n}_size", ">i4"), (n, kind)))]
)
_TERM_SIZES = {"columns": 5, "corpus_size": 8, "term_size": 4, "point_size": 8, "turn_size": 4, "win_size": 4}
_COPY_HEAD, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"


class _Size(NamedTuple):
    """How many points a cube has, counted at a time of the monotonic clock."""

    points: int
    at: float


class _Word(NamedTuple):
    """How many turns and windows of a corpus have a word, counted when it had so many points."""

    turns: int
    windows: int
    of: int


class PgVectorIndex:
    """A `VectorIndex` in PostgreSQL that is also `Optimisable`; any number of processes may share it."""

    def __init__(self, database: Database, base: str, dimension: int) -> None:
        self._database = database
        self._base = base
        self._points, self._terms = f"{base}_points", f"{base}_terms"
        self._dimension = dimension
        self._sizes: dict[str, _Size] = {}
        self._words: dict[tuple[tuple[str, ...], int], _Word] = {}
        self._builder: Connection | None = None
        self._builds = threading.Lock()
        self._no_builds = False

    @classmethod
    def open(cls, url: str, space: str, dimension: int) -> PgVectorIndex:
        database = Database(url)
        try:
            return cls(database, schema.create(database, space, dimension), dimension)
        except BaseException:
            database.close()
            raise

    @property
    def restart_count(self) -> int:
        return 0

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        for start in range(0, len(points), _WRITE_BATCH):
            batch = {point.id: point for point in points[start : start + _WRITE_BATCH]}
            self._database.run(lambda connection, batch=batch: self._upsert(connection, list(batch.values())))  # type: ignore[misc]

    def _upsert(self, connection: Connection, points: Sequence[VectorPoint]) -> None:
        with connection.transaction():
            self._delete(connection, "p.id = ANY(%s::uuid[])", [point.id for point in points])
            numbers = connection.execute(
                f"SELECT nextval(pg_get_serial_sequence('{self._points}', 'no')) FROM generate_series(1, %s)",
                (len(points),),
            ).fetchall()
            rows, terms = [], []
            for (number,), point in zip(numbers, points, strict=True):
                merged = _merged(point, number)
                terms.append(merged)
                rows.append(self._row(point, number, merged["term"].astype(np.int32).tolist()))
            cursor = connection.cursor()
            with cursor.copy(f"COPY {self._points} ({', '.join(_COLUMN_TYPES)}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(list(_COLUMN_TYPES.values()))
                for row in rows:
                    copy.write_row(row)
            with cursor.copy(f"COPY {self._terms} (corpus, term, point, turn, win) FROM STDIN (FORMAT BINARY)") as copy:
                copy.write(_COPY_HEAD + b"".join(each.tobytes() for each in terms) + _COPY_END)

    def _row(self, point: VectorPoint, number: int, terms: list[int]) -> list[Any]:
        payload = point.payload
        lists = [list(values) if isinstance(values := payload.get(name), list | tuple) else None for name in LISTS]
        return [
            number,
            uuid.UUID(point.id),
            payload["cube"],
            _corpus(str(payload["cube"])),
            *(payload[name] for name in ("item", "version", "revision", "recorded_from")),
            payload.get("recorded_to", FOREVER),
            bool(payload.get("live", 0)),
            payload.get("standing", 0),
            *(payload.get(name) for name in (*TEXTS, *DATES)),
            *(None if (value := payload.get(name)) is None else float(value) for name in NUMBERS),
            *(values or None for values in lists),
            Jsonb(_info(payload.get("info"))),
            terms,
            self._stored(point.turn),
            self._stored(point.window),
            _stored_words(point.turn_terms),
            _stored_words(point.window_terms),
        ]

    def _stored(self, vector: Vector) -> bytes:
        """Return a vector as pgvector receives it: its length, two bytes of nothing, big-endian halves."""
        return np.array([self._dimension, 0], dtype=">u2").tobytes() + _unit(vector).astype(">f2").tobytes()

    def _delete(self, connection: Connection, where: str, *values: Any) -> None:
        connection.execute(
            f"WITH gone AS (DELETE FROM {self._points} AS p WHERE {where} RETURNING p.corpus, p.no, p.terms),"
            " words AS (SELECT corpus, no, unnest(terms) AS term FROM gone)"
            f" DELETE FROM {self._terms} AS t USING words AS w"
            " WHERE t.corpus = w.corpus AND t.term = w.term AND t.point = w.no",
            values,
        )

    def prune(self, keep: Mapping[str, int | None]) -> None:
        items = list(keep.items())
        for start in range(0, len(items), _WRITE_BATCH):
            batch = items[start : start + _WRITE_BATCH]
            self._database.run(lambda connection, batch=batch: self._prune(connection, batch))  # type: ignore[misc]

    def _prune(self, connection: Connection, batch: Sequence[tuple[str, int | None]]) -> None:
        with connection.transaction():
            self._delete(
                connection,
                "EXISTS (SELECT FROM unnest(%s::text[], %s::int[]) AS k(item, revision)"
                " WHERE k.item = p.item AND (k.revision IS NULL OR k.revision <> p.revision))",
                [item for item, _ in batch],
                [revision for _, revision in batch],
            )

    def search(self, request: VectorSearch, meanwhile: Callable[[], None] | None = None) -> list[list[ScoredPoint]]:
        """Return one list for each arm, best first; `meanwhile` is left out."""
        if not request.cubes:
            raise InvalidInput("cubes", "is empty; name at least one cube")
        return self._database.run(lambda connection: self._search(connection, request))

    def _search(self, connection: Connection, request: VectorSearch) -> list[list[ScoredPoint]]:
        terms = {
            int(term)
            for arm in request.arms
            if isinstance(arm.query, SparseVector)
            for term in _signed(arm.query.indices).tolist()
        }
        size = self._size(connection, request.cubes)
        words = self._count(connection, request.cubes, size, terms)
        # Several arms ask by one vector.
        vectors = {id(arm.query): Reals(_unit(arm.query)) for arm in request.arms if isinstance(arm.query, np.ndarray)}
        asked = [self._ask(request, arm, size, words, vectors) for arm in request.arms]
        found = self._fetch(connection, [None if ask is None else ask.statement(wide=False) for ask in asked])
        # A graph, and a part of the words, may have found fewer than there are.
        again = [
            ask.statement(wide=True) if ask is not None and ask.is_narrow and len(rows) < ask.limit else None
            for ask, rows in zip(asked, found, strict=True)
        ]
        if any(again):
            wider = self._fetch(connection, again)
            found = [more if ask is not None else rows for ask, more, rows in zip(again, wider, found, strict=True)]
        return [_ranked(arm, rows) for arm, rows in zip(request.arms, found, strict=True)]

    def _fetch(self, connection: Connection, statements: Sequence[_Statement | None]) -> list[list[tuple[Any, ...]]]:
        cursors = []
        with connection.pipeline():
            for statement in statements:
                cursor = None if statement is None else connection.cursor(binary=True)
                if cursor is not None and statement is not None:
                    cursor.execute(statement.text, statement.values)
                cursors.append(cursor)
        return [[] if cursor is None else cursor.fetchall() for cursor in cursors]

    def _ask(
        self, request: VectorSearch, arm: ArmQuery, size: int, words: Mapping[int, _Word], vectors: Mapping[int, Reals]
    ) -> _Asked | None:
        where, values = _where(request, arm)
        limit = arm.limit(request.limit)
        if isinstance(arm.query, SparseVector):
            weighed = _weighed(arm, size, words)
            return _Words(self._base, where, values, limit, request, arm.arm, weighed) if weighed else None
        few = size <= (_COMPARED if request.filter is None and request.as_of is None else _COMPARED_FILTERED)
        return _Nearest(self._base, where, values, limit, arm, vectors[id(arm.query)], few or arm.arm is Arm.DATED)

    def _size(self, connection: Connection, cubes: tuple[str, ...]) -> int:
        """Return how many points there are in these cubes."""
        since = time.monotonic() - _KEPT_S
        kept = {cube: size for cube in cubes if (size := self._sizes.get(cube)) is not None and size.at > since}
        unknown = [cube for cube in cubes if cube not in kept]
        if unknown:
            text = f"SELECT cube, count(*) FROM {self._points} WHERE cube = ANY(%s) GROUP BY cube"
            [rows] = self._fetch(connection, [_Statement(text, [unknown])])
            counted = {cube: _Size(count, time.monotonic()) for cube, count in rows}
            kept |= counted
            if len(self._sizes) > _MOST_KEPT:
                self._sizes = {}
            self._sizes.update({cube: size for cube, size in counted.items() if size.points >= _SMALL_CORPUS})
        return sum(size.points for size in kept.values())

    def _count(self, connection: Connection, cubes: tuple[str, ...], size: int, terms: set[int]) -> Mapping[int, _Word]:
        """Return for each of these terms that some point has how many have it."""
        kept = {
            term: word
            for term in terms
            if (word := self._words.get((cubes, term))) is not None and size < word.of * _KEPT_GROWTH
        }
        missing = [term for term in terms if term not in kept]
        if missing:
            text = (
                "SELECT term, count(*) FILTER (WHERE turn > 0), count(*) FILTER (WHERE win > 0)"
                f" FROM {self._terms} WHERE corpus = ANY(%s) AND term = ANY(%s) GROUP BY term"
            )
            [rows] = self._fetch(connection, [_Statement(text, [[_corpus(cube) for cube in cubes], missing])])
            counted = {term: _Word(turns, windows, size) for term, turns, windows in rows}
            kept |= counted
            if len(self._words) > _MOST_KEPT:
                self._words = {}
            # The count of a rare word is cheap, and soon another.
            self._words.update({(cubes, t): word for t, word in counted.items() if word.windows >= _COMMON_WORD})
        return kept

    def turns(self, ids: Sequence[str]) -> dict[str, Vector]:
        rows = self._read(ids, "turn::real[]")
        return {str(id_): np.array(turn, dtype=np.float32) for id_, turn in rows}

    def held(self, ids: Sequence[str]) -> dict[str, HeldPoint]:
        rows = self._read(ids, "revision, turn::real[], win::real[]")
        return {
            str(id_): HeldPoint(revision, np.array(turn, dtype=np.float32), np.array(window, dtype=np.float32))
            for id_, revision, turn, window in rows
        }

    def _read(self, ids: Sequence[str], columns: str) -> Iterator[tuple[Any, ...]]:
        text = f"SELECT id, {columns} FROM {self._points} WHERE id = ANY(%s::uuid[])"
        for start in range(0, len(ids), _WRITE_BATCH):
            yield from self._rows(text, [list(ids[start : start + _WRITE_BATCH])])

    def _rows(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._database.run(lambda connection: connection.cursor(binary=True).execute(text, values).fetchall())

    def scan(self, cube: str) -> Iterator[Stamp]:
        last = -1
        while True:
            rows = self._rows(
                f"SELECT no, id, item, revision FROM {self._points} WHERE cube = %s AND no > %s ORDER BY no LIMIT %s",
                [cube, last, _SCAN_PAGE],
            )
            for _, id_, item, revision in rows:
                yield Stamp(str(id_), item, revision)
            if len(rows) < _SCAN_PAGE:
                return
            last = rows[-1][0]

    def count(self, items: Sequence[str]) -> int:
        text = f"SELECT count(*) FROM {self._points} WHERE item = ANY(%s)"
        return sum(
            int(self._rows(text, [list(items[start : start + _WRITE_BATCH])])[0][0])
            for start in range(0, len(items), _WRITE_BATCH)
        )

    def cubes(self) -> list[str]:
        # From one cube to the next, instead of over all points.
        rows = self._rows(
            f"WITH RECURSIVE found AS ((SELECT cube FROM {self._points} ORDER BY cube LIMIT 1) UNION ALL"
            f" SELECT (SELECT p.cube FROM {self._points} AS p WHERE p.cube > found.cube ORDER BY p.cube LIMIT 1)"
            " FROM found WHERE found.cube IS NOT NULL) SELECT cube FROM found WHERE cube IS NOT NULL",
            [],
        )
        return sorted(cube for (cube,) in rows)

    def flush(self, mark: int) -> None:
        """Remember a mark; what was written is durable already."""
        text = f"UPDATE {SPACES} SET mark = %s WHERE tables = %s"
        self._database.run(lambda connection: connection.execute(text, (mark, self._base)))

    def mark(self) -> int:
        rows = self._rows(f"SELECT mark FROM {SPACES} WHERE tables = %s", [self._base])
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        self.stop_building()
        self._database.close()

    def use(self) -> None:
        """Do nothing: a space is in use when it is open."""

    def remove_others(self) -> list[str]:
        """Drop the tables of former embedders and formats, and return the names of their spaces."""
        return self._database.run(lambda connection: schema.drop_others(connection, self._base))

    def optimise(self, on_progress: Callable[[str], None] | None = None) -> bool:
        """Build the graphs that are missing; one process of all does. Searches and writes continue."""
        with self._builds:
            if self._no_builds:
                return False
            self._builder = builder = self._database.alone()
        try:
            if not builder.execute("SELECT pg_try_advisory_lock(%s)", (schema.BUILD_LOCK,)).fetchone()[0]:  # type: ignore[index]
                return False
            return self._build(builder, on_progress)
        except psycopg.errors.QueryCanceled:
            return False
        except psycopg.Error as error:
            if self._no_builds:
                return False
            raise self._database.translated(error) from error
        finally:
            with self._builds:
                self._builder = None
            builder.close()

    def _build(self, builder: Connection, on_progress: Callable[[str], None] | None) -> bool:
        built = self._graphs(builder)
        missing = {
            name: text for name, text in schema.graph_definitions(self._base).items() if not built.get(name, False)
        }
        if missing:
            schema.grant_memory(builder, self._points, self._dimension)
        for name, text in missing.items():
            if on_progress is not None:
                on_progress(name)
            if name in built:  # its build was cut off
                builder.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            try:
                builder.execute(text)
            except psycopg.errors.DiskFull:
                # Processes that build together share memory, of which a container has 64 MB.
                builder.execute("SET max_parallel_maintenance_workers = 0")
                builder.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                builder.execute(text)
        # Words are read from their index alone where PostgreSQL knows that all see its rows.
        builder.execute(f"VACUUM (ANALYZE) {self._points}, {self._terms}")
        return bool(missing)

    def _graphs(self, connection: Connection) -> dict[str, bool]:
        """Return which graphs there are, and whether each was finished."""
        names = list(schema.graph_definitions(self._base))
        rows = connection.execute(
            "SELECT c.relname, i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " WHERE c.relname = ANY(%s) AND pg_table_is_visible(c.oid)",
            (names,),
        ).fetchall()
        return dict(rows)

    def unoptimised(self) -> int:
        """Return how many points there are while the graphs are missing, 10,000 at most; each new one is put in."""
        graphs = self._database.run(self._graphs)
        if len(graphs) == len(schema.graph_definitions(self._base)) and all(graphs.values()):
            return 0
        [(count,)] = self._rows(f"SELECT count(*) FROM (SELECT FROM {self._points} LIMIT {_COUNTED}) AS first", [])
        return int(count)

    def optimised(self) -> int:
        return 0

    def stop_building(self) -> None:
        with self._builds:
            self._no_builds = True
            if self._builder is not None:
                with suppress(psycopg.Error):
                    self._builder.cancel()


class _Statement(NamedTuple):
    text: str
    values: list[Any]


class _Nearest(NamedTuple):
    """The points nearest to a vector: by a graph, or all compared."""

    base: str
    where: str
    values: list[Any]
    limit: int
    arm: ArmQuery
    vector: Reals
    is_few: bool

    @property
    def is_narrow(self) -> bool:
        return not self.is_few

    def statement(self, *, wide: bool) -> _Statement:
        column = "win" if self.arm.arm is Arm.WINDOW else "turn"
        # An index is not asked for the order of a sum.
        distance = f"({column} <#> %s::halfvec)" + (" + 0" if self.is_few or wide else "")
        return _Statement(
            f"SELECT item, version, -distance FROM (SELECT item, version, {distance} AS distance"
            f" FROM {self.base}_points WHERE {self.where} ORDER BY distance LIMIT %s) AS nearest",
            [self.vector, *self.values, self.limit],
        )


class _Weight(NamedTuple):
    term: int
    idf: float
    rows: int


class _Words(NamedTuple):
    """The points with the highest sum of a question's words, of which the rarest name the candidates."""

    base: str
    where: str
    values: list[Any]
    limit: int
    request: VectorSearch
    arm: Arm
    words: list[_Weight]

    @property
    def is_narrow(self) -> bool:
        return True

    def statement(self, *, wide: bool) -> _Statement:
        """Return what asks for candidates by the rarest words, and weighs these by all; `wide`, by all words of all."""
        column = "win" if self.arm is Arm.WINDOW_BM25 else "turn"
        naming, read = list(self.words), 0
        for place, word in enumerate([] if wide else self.words):
            read += min(word.rows, _MOST_ROWS_OF_A_WORD)
            if read >= _READ_ROWS:
                naming = self.words[: place + 1]
                break
        # Of a more frequent word the newest rows are read, which says nothing of the others.
        whole = [wide or word.rows <= _MOST_ROWS_OF_A_WORD for word in naming]
        corpora = [_corpus(cube) for cube in self.request.cubes]
        among = "= ANY(%s)" if len(corpora) > 1 else "= %s"
        newest = "" if wide else f" ORDER BY t.point DESC LIMIT {_MOST_ROWS_OF_A_WORD}"
        most = "sum(r.weight * e.idf) FILTER (WHERE e.whole)"
        best = "" if wide else f" ORDER BY {most} DESC NULLS LAST LIMIT {_CANDIDATES * self.limit}"
        text = (
            "WITH near AS MATERIALIZED (SELECT r.point FROM unnest(%s::int[], %s::float8[], %s::bool[]) AS"
            f" e(term, idf, whole), LATERAL (SELECT t.point, t.{column} AS weight FROM {self.base}_terms AS t"
            f" WHERE t.corpus {among} AND t.term = e.term AND t.{column} > 0{newest}) AS r GROUP BY r.point{best})"
            f" SELECT p.item, p.version, -(p.{column}_words <#> %s::sparsevec) AS score"
            f" FROM near JOIN {self.base}_points AS p ON p.no = near.point WHERE {self.where}"
            " ORDER BY 3 DESC LIMIT %s"
        )
        named = [[word.term for word in naming], [word.idf for word in naming], whole]
        weights = _written_words(self.words)
        return _Statement(
            text, [*named, corpora if len(corpora) > 1 else corpora[0], weights, *self.values, self.limit]
        )


_Asked = _Nearest | _Words


def _where(request: VectorSearch, arm: ArmQuery) -> tuple[str, list[Any]]:
    """Return the condition on a search's points: cubes, moment, the arm's part, and the caller's filter."""
    several = len(request.cubes) > 1
    values: list[Any] = [list(request.cubes) if several else request.cubes[0]]
    parts = ["cube = ANY(%s)" if several else "cube = %s"]
    if request.as_of is not None:
        parts.append("recorded_from <= %s AND recorded_to > %s")
        values += [request.as_of, request.as_of]
    elif request.live:
        parts.append("live")
    else:
        parts.append(f"recorded_to = {FOREVER}")
    if (standing := STANDING_OF.get(arm.arm)) is not None:
        parts.append(f"standing = {standing}")
    if request.filter is not None:
        parts.append(condition(request.filter, values))
    return " AND ".join(parts), values


def _weighed(arm: ArmQuery, size: int, words: Mapping[int, _Word]) -> list[_Weight]:
    """Return an arm's words that some point has, the rarest first, with their inverse document frequencies."""
    assert isinstance(arm.query, SparseVector)
    found = []
    for term in _signed(arm.query.indices).tolist():
        word = words.get(term)
        rows = 0 if word is None else word.turns if arm.arm is Arm.TURN_BM25 else word.windows
        if rows:
            # What is kept of a word may be a little older than the size, or the other way round.
            rarity = (max(size, rows) - rows + 0.5) / (rows + 0.5)
            found.append(_Weight(term, float(np.log1p(rarity)), rows))
    return sorted(found, key=lambda word: word.rows)


def _ranked(arm: ArmQuery, rows: Sequence[tuple[Any, ...]]) -> list[ScoredPoint]:
    least = float("-inf") if arm.arm is Arm.DATED else 0.0 if isinstance(arm.query, SparseVector) else _NOISE
    found = [ScoredPoint(f"{item}:{version}", float(score)) for item, version, score in rows if score > least]
    return sorted(found, key=lambda point: -point.score)


def _corpus(cube: str) -> int:
    return int.from_bytes(hashlib.blake2b(cube.encode(), digest_size=8).digest(), "big", signed=True)


def _signed(terms: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return 32-bit terms as PostgreSQL has them: it knows no unsigned numbers."""
    return terms.astype(np.uint32).view(np.int32)


def _stored_words(terms: SparseVector) -> bytes:
    """Return weights of words as pgvector receives a sparse vector: its length, how many, nothing, axes, weights."""
    axes, first = np.unique(terms.indices.astype(np.int64) % WORD_AXES, return_index=True)
    head = np.array([WORD_AXES, len(axes), 0], dtype=">i4")
    return head.tobytes() + axes.astype(">i4").tobytes() + terms.values[first].astype(">f4").tobytes()


def _written_words(words: Sequence[_Weight]) -> str:
    """Return a question's words as the text of a sparse vector, whose axes begin at 1 there."""
    weights = {word.term % 2**32 % WORD_AXES + 1: word.idf for word in words}
    return "{" + ",".join(f"{axis}:{weight!r}" for axis, weight in sorted(weights.items())) + f"}}/{WORD_AXES}"


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    unit: Vector = vector / np.float32(length) if length else vector
    return unit


def _merged(point: VectorPoint, number: int) -> NDArray[Any]:
    """Return the rows of a point's words, as a binary COPY has them."""
    turn, window = _signed(point.turn_terms.indices), _signed(point.window_terms.indices)
    terms = np.union1d(turn, window)
    rows = np.zeros(len(terms), dtype=_TERM_ROW)
    for name, value in _TERM_SIZES.items():
        rows[name] = value
    rows["corpus"], rows["term"], rows["point"] = _corpus(str(point.payload["cube"])), terms, number
    rows["turn"][np.searchsorted(terms, turn)] = point.turn_terms.values
    rows["win"][np.searchsorted(terms, window)] = point.window_terms.values
    return rows


def _info(info: Json) -> dict[str, list[Json]]:
    """Return what users store as lists of values, in which an object inside is there and equals nothing."""
    kept: dict[str, list[Json]] = {}
    for name, value in (info if isinstance(info, Mapping) else {}).items():
        if values := values_of(value):
            kept[name] = [{} if isinstance(entry, Mapping | list | tuple) else entry for entry in values]
    return kept
