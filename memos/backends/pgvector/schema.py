"""Connections to PostgreSQL, the tables of a vector space, and translation of the driver's errors.

The tables are in the ledger's database and hold ids, filter fields, vectors and hashed terms, never memory text.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from memos.backends.pgvector.filters import DATES, NUMBERS, TEXTS
from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, InvalidInput, MemosError

try:
    import psycopg
    from psycopg.adapt import Dumper
    from psycopg.pq import Format
except ImportError as missing:
    raise BackendUnavailable(
        "The vector index in PostgreSQL needs its driver; install it with: `pip install '.[postgres]'` in hippocube's "
        "clone."
    ) from missing

LEAST_VERSION = (0, 8)
"""The first pgvector that goes on searching when a filter left too little (`hnsw.iterative_scan`)."""

MOST_DIMENSIONS = 4_000
"""Of an index on half-precision vectors. Source: pgvector's README, "HNSW"."""

TIMEOUT_S = 10
_CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "hippocube vectors",
    "client_encoding": "utf8",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_PAUSES_S = (0.05, 0.15, 0.4, 0.9)
_CONNECTIONS = 8
SPACES = "vector_spaces"
# "memo" in ASCII and a number, as the ledger's locks: 1 to 3 are its own.
_CREATE_LOCK, BUILD_LOCK = 0x6D656D6F04, 0x6D656D6F05

# As many as an arm asks for. At 100,000 points all true ten of a turn are found, at 64 by a graph of Qdrant 98.8 %.
SEARCH_WIDTH = 50
BUILD_WIDTH = 128
# A graph that outgrows the memory of its build is built several times more slowly. Links and their pages take the rest.
_LINKS_BYTES = 1_000
_MOST_BUILD_BYTES = 2**30

WORD_AXES = 1_000_000_000
"""Axes of the sparse vectors of words, the most that pgvector knows."""
_FORMAT = 2
"""Of the tables; those of another are dropped and made again."""

Answer = TypeVar("Answer")
Connection = psycopg.Connection[tuple[Any, ...]]


class Reals:
    """A vector that is sent as PostgreSQL's binary array of `real`, several times quicker to read than its text."""

    def __init__(self, vector: NDArray[np.float32]) -> None:
        head = np.array([1, 0, _REAL, len(vector), 1], dtype=">i4")
        parts = np.empty(len(vector), dtype=[("size", ">i4"), ("value", ">f4")])
        parts["size"], parts["value"] = 4, vector
        self.content = head.tobytes() + parts.tobytes()


class _RealsDumper(Dumper):
    oid = 1021  # of real[]
    format = Format.BINARY

    def dump(self, obj: Reals) -> bytes:
        return obj.content


_REAL = 700
psycopg.adapters.register_dumper(Reals, _RealsDumper)


class Database:
    """A pool of connections with the settings that searches need; thread-safe."""

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url).set(drivername="postgresql+psycopg")
        except (sa.exc.ArgumentError, ValueError) as error:
            raise InvalidInput("ledger_url", "must be a URL such as postgresql://user@host/database") from error
        self.where = f"postgresql://{parsed.host or 'localhost'}:{parsed.port or 5432}/{parsed.database or ''}"
        self._engine = sa.create_engine(
            parsed,
            pool_size=_CONNECTIONS,
            max_overflow=_CONNECTIONS,
            pool_timeout=TIMEOUT_S,
            pool_use_lifo=True,
            connect_args=_CONNECT,
        )
        sa.event.listen(self._engine, "connect", _prepare)
        self._closed = threading.Event()

    def run(self, ask: Callable[[Connection], Answer]) -> Answer:
        """Return what `ask` does on a connection; where that was lost, or two writers met, ask again for ten seconds.

        Whatever is asked may be repeated: points are written by their ids.
        """
        until = time.monotonic() + TIMEOUT_S
        pauses = iter(_PAUSES_S)
        while True:
            if self._closed.is_set():
                raise BackendUnavailable("The vector index is closed.")
            try:
                return self._run(ask)
            except (psycopg.Error, sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                pause = next(pauses, None)
                if pause is None or not _may_pass(error) or time.monotonic() + pause > until:
                    raise self.translated(error) from error
                time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - so that many do not come back at once

    def _run(self, ask: Callable[[Connection], Answer]) -> Answer:
        pooled = self._engine.raw_connection()
        try:
            connection: Any = pooled.driver_connection
            return ask(connection)
        except psycopg.Error:
            if connection.closed or connection.broken:
                pooled.invalidate()
            raise
        finally:
            pooled.close()

    def alone(self) -> Connection:
        """Return a connection outside the pool, without a limit of time; the caller closes it."""
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        try:
            connection: Any = psycopg.connect(*arguments, **{**options, **_CONNECT})
        except psycopg.Error as error:
            raise self.translated(error) from error
        _prepare(connection, None)
        connection.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        return connection  # type: ignore[no-any-return]

    def close(self) -> None:
        self._closed.set()
        self._engine.dispose()

    def translated(self, error: Exception) -> MemosError:
        """Return the error of this program; its message has no values."""
        if isinstance(error, sa.exc.TimeoutError):
            return BackendTimeout(f"No connection to the vector index in {self.where} became free; check its load.")
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        state = getattr(cause, "sqlstate", None) or ""
        said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause).split("DETAIL:")[0]
        told = " ".join(said.split())[:200]
        if state in ("57014", "55P03"):
            return BackendTimeout(
                f"The vector index in {self.where} did not answer within {TIMEOUT_S} s; check its load."
            )
        if state in ("42P01", "42703", "42704"):
            return BackendUnavailable(
                f"The vector index in {self.where} lacks its tables ({told}); restart hippocube, which rebuilds them "
                "from the ledger."
            )
        if state == "42501":
            return BackendUnavailable(
                f"The user of {self.where} may not do this ({told}); grant the right to create tables in its schema."
            )
        if state and not state.startswith(("08", "53", "57P")):
            return BackendUnavailable(f"PostgreSQL at {self.where} refused a call ({told}); check its log.")
        return BackendUnavailable(
            f"The vector index in {self.where} cannot be reached ({told}); check the server and MEMOS_LEDGER_URL."
        )


def _prepare(connection: Any, _record: Any) -> None:
    connection.autocommit = True
    connection.prepare_threshold = 3
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET statement_timeout = '{TIMEOUT_S}s'; SET lock_timeout = '{TIMEOUT_S}s'; SET jit = off;"
            "SET max_parallel_workers_per_gather = 0; SET random_page_cost = 1.1;"
            "SET plan_cache_mode = force_custom_plan"
        )
        if cursor.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone():
            # A library that is not loaded yet does not know its settings.
            cursor.execute(
                f"SELECT '[1]'::vector; SET hnsw.ef_search = {SEARCH_WIDTH}; SET hnsw.iterative_scan = relaxed_order"
            )


def _may_pass(error: Exception) -> bool:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    state = getattr(cause, "sqlstate", None)
    if state is None:
        return isinstance(cause, psycopg.OperationalError)
    return state.startswith(("08", "57P")) or state in ("23505", "40001", "40P01")


def reach(url: str) -> str:
    """Return the version of pgvector in a database. Raises: BackendUnavailable (none there, too old)."""
    database = Database(url)
    try:
        return database.run(lambda connection: _check_version(connection, database.where, create=False))
    finally:
        database.close()


def _check_version(connection: Connection, where: str, *, create: bool) -> str:
    version = _version(connection)
    if version is None:
        available = connection.execute(
            "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        ).fetchone()
        if available is None:
            raise BackendUnavailable(
                f"PostgreSQL at {where} has no extension `vector`; install pgvector there, such as Debian's package "
                "`postgresql-17-pgvector`, or set MEMOS_INDEX__VECTORS=qdrant."
            )
        if not create:
            return _checked(str(available[0]), where)
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.errors.InsufficientPrivilege as error:
            raise BackendUnavailable(
                f"The user of {where} may not create the extension `vector`; have an administrator run "
                "`CREATE EXTENSION vector` in that database."
            ) from error
        version = _version(connection) or ""
    return _checked(version, where)


def _version(connection: Connection) -> str | None:
    row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    return None if row is None else str(row[0])


def _checked(version: str, where: str) -> str:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < LEAST_VERSION:
        raise BackendUnavailable(
            f"PostgreSQL at {where} has pgvector {version}; update it to {'.'.join(map(str, LEAST_VERSION))} or newer, "
            "then run `ALTER EXTENSION vector UPDATE`."
        )
    return version


def tables_of(space: str) -> str:
    """Return the beginning of the names of a space's tables; a name of PostgreSQL has 63 characters at most."""
    return f"vectors_{hashlib.blake2b(f'{space}/{_FORMAT}'.encode(), digest_size=6).hexdigest()}"


def create(database: Database, space: str, dimension: int) -> str:
    """Create what is missing of a space; return the beginning of its tables' names.

    Raises: InvalidInput (too many dimensions), IntegrityError (of another dimension), BackendUnavailable.
    """
    if dimension > MOST_DIMENSIONS:
        raise InvalidInput(
            "MEMOS_INDEX__VECTORS",
            f"is `pgvector`, which indexes up to {MOST_DIMENSIONS:,} dimensions, but the embedder makes {dimension:,}; "
            "choose another embedder, or a Qdrant server",
        )
    base = tables_of(space)

    def made(connection: Connection) -> str:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            _check_version(connection, database.where, create=True)
            # All were made in one transaction; asking again for an index would wait for a graph that is being built.
            if connection.execute("SELECT to_regclass(%s) IS NULL", (f"{base}_terms",)).fetchone() == (True,):
                for statement in _definitions(base, dimension):
                    connection.execute(statement)
            connection.execute(
                f"INSERT INTO {SPACES} (tables, space, dimension) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (base, space, dimension),
            )
            row = connection.execute(f"SELECT dimension FROM {SPACES} WHERE tables = %s", (base,)).fetchone()
        if row is None or row[0] != dimension:
            raise IntegrityError(
                f"The vector index in {database.where} holds vectors of {row and row[0]} dimensions, but the embedder "
                f"makes {dimension}; choose another embedder, or drop the tables {base}_* and their row in {SPACES} "
                "to have them rebuilt from the ledger."
            )
        # Connections that were opened before the extension was there lack its settings.
        _prepare(connection, None)
        return base

    return database.run(made)


def _definitions(base: str, dimension: int) -> list[str]:
    columns = [
        *(f'{name} text COLLATE "C"' for name in TEXTS),
        *(f"{name} bigint" for name in DATES),
        *(f"{name} double precision" for name in NUMBERS),
    ]
    return [
        f"CREATE TABLE IF NOT EXISTS {SPACES} (tables text PRIMARY KEY, space text NOT NULL, dimension int NOT NULL,"
        " mark bigint NOT NULL DEFAULT 0)",
        # Vectors stay beside their row up to 8 kB: a search that reads them all would fetch each from another table.
        f"""CREATE TABLE IF NOT EXISTS {base}_points (
            no bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, id uuid NOT NULL UNIQUE,
            cube text COLLATE "C" NOT NULL, corpus bigint NOT NULL, item text COLLATE "C" NOT NULL,
            version int NOT NULL, revision int NOT NULL,
            recorded_from bigint NOT NULL, recorded_to bigint NOT NULL, live boolean NOT NULL, standing int NOT NULL,
            {", ".join(columns)}, tags text[], record_folders text[], info jsonb NOT NULL, terms int[] NOT NULL,
            turn halfvec({dimension}) NOT NULL, win halfvec({dimension}) NOT NULL,
            turn_words sparsevec({WORD_AXES}) NOT NULL, win_words sparsevec({WORD_AXES}) NOT NULL
        ) WITH (toast_tuple_target = 8160)""",
        f"CREATE INDEX IF NOT EXISTS {base}_items ON {base}_points (item)",
        f"CREATE INDEX IF NOT EXISTS {base}_cubes ON {base}_points (cube, no)",
        f"CREATE INDEX IF NOT EXISTS {base}_said ON {base}_points (cube, said_at) WHERE said_at IS NOT NULL",
        f"CREATE INDEX IF NOT EXISTS {base}_stands ON {base}_points (cube, standing) WHERE standing > 0",
        # One row a term and point. The corpus is a digest of the cube's name, shorter than one; 0 is no weight.
        f"""CREATE TABLE IF NOT EXISTS {base}_terms (
            corpus bigint NOT NULL, term int NOT NULL, point bigint NOT NULL, turn real NOT NULL, win real NOT NULL,
            PRIMARY KEY (corpus, term, point) INCLUDE (turn, win)
        ) WITH (autovacuum_vacuum_insert_scale_factor = 0.05)""",
    ]


def graph_definitions(base: str) -> dict[str, str]:
    """Return the graphs for approximate search by name: each is made once there are many points."""
    options = f"WITH (m = 16, ef_construction = {BUILD_WIDTH})"
    graphs = {"turn": ("turn", ""), "win": ("win", "")}
    # Few points stand, or are of their speaker: in a graph of them alone all that is near is linked.
    graphs |= {f"turn_{standing}": ("turn", f" WHERE standing = {standing}") for standing in (1, 2)}
    return {
        f"{base}_{name}": f"CREATE INDEX CONCURRENTLY {base}_{name} ON {base}_points "
        f"USING hnsw ({column} halfvec_ip_ops) {options}{where}"
        for name, (column, where) in graphs.items()
    }


def grant_memory(builder: Connection, points: str, dimension: int) -> None:
    """Raise `maintenance_work_mem` of a connection to the size of the whole HNSW graph, at most 1 GiB."""
    builder.execute(
        "SELECT set_config('maintenance_work_mem', greatest(pg_size_bytes(current_setting('maintenance_work_mem')),"
        f" least(%s, count(*) * %s)) / 1024 || 'kB', false) FROM {points}",
        (_MOST_BUILD_BYTES, 2 * dimension + _LINKS_BYTES),
    )


def drop_others(connection: Connection, base: str) -> list[str]:
    """Drop the tables of other spaces; return their names."""
    rows = connection.execute(f"SELECT tables, space FROM {SPACES} WHERE tables <> %s", (base,)).fetchall()
    for tables, _ in rows:
        with connection.transaction():
            connection.execute(f"DROP TABLE IF EXISTS {tables}_points, {tables}_terms")
            connection.execute(f"DELETE FROM {SPACES} WHERE tables = %s", (tables,))
    return [space for _, space in rows]
