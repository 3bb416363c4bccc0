"""The ledger database: opening, migration, transactions, and translation of driver errors."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from memos.core.clock import from_micros, new_id
from memos.errors import (
    Aborted,
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidInput,
    MemosError,
    PermissionDenied,
)
from memos.memcube.ledger import audit_chain, postgres, sqlcipher
from memos.memcube.ledger.queues import TASK_DUE
from memos.memcube.ledger.schema import metadata

if TYPE_CHECKING:
    from memos.memcube.ledger.sealing import ColumnSealer

_BUSY_TIMEOUT_MS = 30_000
_WAL_RETRY_S = 0.005
# Memory-mapped reads need no system call and no copy, which saves a sixth of a search's time in the ledger.
_MMAP_BYTES = 1 << 30
_KEPT = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
_PRAGMAS = (*_KEPT, "temp_store=MEMORY", "cache_size=-32000", f"mmap_size={_MMAP_BYTES}")


_MOST_TRIES = 4
_PAUSE_S = 0.1

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_thread = threading.local()


def _saved() -> int:
    """Return the number of transactions that this thread has committed."""
    return getattr(_thread, "saved", 0)


class Tries:
    """Decides whether to repeat a call after a deadlock: only while it has committed nothing."""

    def __init__(self) -> None:
        self._saved, self._left = _saved(), _MOST_TRIES

    def are_left(self) -> bool:
        """Pause and return True, or return False after the last attempt or if the call has committed a transaction."""
        self._left -= 1
        if not self._left or _saved() != self._saved:
            return False
        time.sleep(random.uniform(0, _PAUSE_S))  # noqa: S311 - lest both meet again
        return True


def retry_aborted(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Repeat a function after a deadlock, as `Tries` allows."""

    @wraps(method)
    def again(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        tries = Tries()
        while True:
            try:
                return method(*given, **named)
            except Aborted:
                if not tries.are_left():
                    raise

    return again


def sqlite_damaged(where: str, text: str) -> IntegrityError:
    return IntegrityError(
        f"The ledger {where} is damaged ({' '.join(text.split())}). Nothing was changed. Restore it from a copy, "
        f"or recover what is readable with `sqlite3 {where} .recover`; `memos data reindex` then rebuilds the indexes."
    )


def translate_sqlite(text: str, where: str) -> MemosError:
    """Translate a driver's error by its message, since sqlite3 raises the same class for different conditions."""
    if "malformed" in text or "not a database" in text or "corrupt" in text:
        return sqlite_damaged(where, text)
    if "full" in text:
        return BackendUnavailable(
            f"The disk that holds {where} is full: free some space and repeat; nothing was written."
        )
    if "readonly" in text or "unable to open" in text or "attempt to write" in text:
        return PermissionDenied(
            f"Cannot write {where} ({text}): make the folder writable or choose another --data-dir."
        )
    if "locked" in text or "busy" in text:
        return BackendTimeout(
            f"The ledger {where} stayed locked for {_BUSY_TIMEOUT_MS // 1000} s by another program; stop that program "
            "or try again."
        )
    return BackendUnavailable(f"The ledger {where} cannot be used: {text}")


def prepare_sqlite(engine: sa.Engine, key: bytes | None = None) -> None:
    """Set up each connection; with a key, those of SQLCipher."""
    # Sources: https://sqlite.org/pragma.html; SQLAlchemy's notes on pysqlite (no `isolation_level`, an explicit BEGIN).

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        if key is not None:
            sqlcipher.unlock(connection, key)
        connection.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}").close()
        _enable_wal(connection)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()
        connection.create_function("casefold", 1, _casefold, deterministic=True)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("memos_write")
        raw: Any = connection.connection.dbapi_connection
        raw.execute("BEGIN IMMEDIATE" if write else "BEGIN")


def _enable_wal(connection: Any) -> None:
    # The busy handler is not called when two connections switch the mode at the same time. Source:
    # https://sqlite.org/c3ref/busy_handler.html
    until = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except Exception as error:
            # SQLCipher's driver has classes of its own, without error codes.
            code = getattr(error, "sqlite_errorcode", None)
            is_busy = "locked" in str(error) if code is None else code & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until:
                raise
            time.sleep(_WAL_RETRY_S)


def _casefold(value: object) -> str | None:
    return value.casefold() if isinstance(value, str) else None


HEAD = "0027"
"""The schema revision this program reads and writes."""

_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

# Those of a vector index in this database (memos.backends.pgvector).
_VECTOR_TABLES = (
    r"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'vectors\_%%' AND pg_table_is_visible(oid)"
)

_READERS = 16


class Ledger:
    """The source of truth: `write()` is one durable transaction, `read()` one consistent snapshot."""

    def __init__(self, engine: sa.Engine, description: str, *, is_encrypted: bool = False) -> None:
        self.description = description
        self.is_encrypted = is_encrypted
        self._engine = engine
        # SQLite has one writer; a lock is cheaper and fairer than its busy loop.
        self._writer = threading.Lock() if engine.dialect.name == "sqlite" else None
        self._written_by: int | None = None
        snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = engine if self._writer is not None else engine.execution_options(**snapshot)
        self._changes = 0
        self._hold: postgres.Hold | None = None
        self.on_task_due: Callable[[], None] = lambda: None
        """Called after the commit of a transaction that enqueued a due task."""

    @classmethod
    def open(cls, url: str, key: bytes | None = None) -> Ledger:
        """Open or create a ledger, and migrate it. `key` is that of a file of SQLCipher."""
        parsed = _parsed(url)
        pool = {"pool_size": _READERS, "max_overflow": _READERS, "pool_timeout": 30, "json_deserializer": _from_json}
        # Last in, first out: the connection used last has a warm page cache.
        if parsed.get_backend_name() == "sqlite":
            if key is not None:
                pool["module"] = sqlcipher.driver()
            engine = sa.create_engine(parsed, pool_use_lifo=True, **pool)
            prepare_sqlite(engine, key)
            ledger = cls(engine, parsed.database or "in memory", is_encrypted=key is not None)
        else:
            ledger = cls(postgres.make_engine(parsed, pool_use_lifo=True, **pool), postgres.place_of(parsed))
        try:
            ledger._migrate()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def look(cls, url: str) -> Ledger:
        """Return a ledger on a server to look at, without migrating it."""
        parsed = _parsed(url)
        return cls(postgres.make_engine(parsed, pool_size=1), postgres.place_of(parsed))

    def seal(self, sealer: ColumnSealer) -> None:
        """Read and write columns of text sealed from now on; on PostgreSQL alone."""
        sealer.attach(self._engine)
        self.is_encrypted = True

    @property
    def is_sqlite(self) -> bool:
        return self._writer is not None

    @property
    def changes(self) -> int | None:
        """Return a counter that every change increments before it is acknowledged; None if others may write too."""
        return None if self._writer is None else self._changes

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self._translated(), self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, *, may_be_repeated: bool = False) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction: durable once the block ends, rolled back if it raises.

        A transaction that `may_be_repeated`, such as a record of a read, does not keep its call from being repeated.
        """
        with self._translated(), ExitStack() as stack:
            if self._writer is not None:
                if self._written_by == threading.get_ident():
                    raise RuntimeError("A write was begun inside another of the same thread, and would wait for it.")
                stack.enter_context(self._writer)
                stack.callback(setattr, self, "_written_by", None)
                self._written_by = threading.get_ident()
            connection = stack.enter_context(self._engine.connect())
            if self._writer is not None:
                connection = connection.execution_options(memos_write=True)
            connection.info.pop(TASK_DUE, None)
            with connection.begin():
                yield connection
            is_task_due = connection.info.pop(TASK_DUE, False)
            self._changes += 1
            _thread.saved = _saved() + (not may_be_repeated)
        if is_task_due:
            self.on_task_due()

    def hold(self, *, alone: str | None, follows_graph: bool = False) -> None:
        """Lock the ledger for this process, exclusively if `alone` is the folder id of an embedded index.

        `follows_graph`: this process keeps a graph index up to date. With SQLite the folder's lock suffices.
        """
        if not self.is_sqlite:
            with self._translated():
                self._hold = postgres.Hold(self._engine, alone=alone, follows_graph=follows_graph)

    def renew_hold(self) -> None:
        if self._hold is not None:
            with self._translated():
                self._hold.renew()

    def check(self) -> list[str]:
        """Return the findings of SQLite's integrity check; empty if the file is intact, or on PostgreSQL."""
        if not self.is_sqlite:
            return []
        with self.read() as connection:
            rows = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
            seals = connection.exec_driver_sql("PRAGMA cipher_integrity_check") if self.is_encrypted else None
            changed = [] if seals is None else [str(row) for row in seals.scalars()]
        return changed + ([] if rows == ["ok"] else [str(row) for row in rows])

    def quick_check(self) -> None:
        if not self.is_sqlite:
            return
        with self.read() as connection:
            first = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if first != "ok":
            raise sqlite_damaged(self.description, str(first))

    def vacuum(self) -> None:
        # SQLite rewrites the file, since `secure_delete` misses copies that are left in a page when cells move.
        # PostgreSQL only marks the space as free, since rewriting tables (VACUUM FULL) would block all access.
        with self._translated():
            if self._writer is None:
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    tables = [*metadata.tables, *connection.exec_driver_sql(_VECTOR_TABLES).scalars()]
                    connection.exec_driver_sql(f"VACUUM {', '.join(tables)}")
                return
            with self._writer, self._engine.connect() as connection:
                raw: Any = connection.connection.driver_connection
                raw.execute("VACUUM")

    def compact(self, tables: Sequence[str]) -> None:
        """Write tables of PostgreSQL into new files, which nobody may use meanwhile, and have the old ones removed."""
        with self._translated(), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in tables:
                connection.exec_driver_sql(f"VACUUM FULL {table}")
            with suppress(exc.ProgrammingError):  # a right that few have: the server does it within minutes
                connection.exec_driver_sql("CHECKPOINT")

    def truncate_wal(self) -> bool:
        """Truncate SQLite's write-ahead log, which may contain deleted text; return False if a reader prevents it."""
        if self._writer is None:
            return True
        with self._translated(), self._writer, self._engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        if self._hold is not None:
            self._hold.release()
        self._engine.dispose()

    def _migrate(self) -> None:
        with self._translated():
            with self._engine.connect() as connection:
                if not self.is_sqlite:
                    postgres.check_server(connection, datetime.now(UTC))
                found = _revision(connection)
                if found == HEAD:
                    _check_tables(connection, self.description)
                    return
            with self.write() as connection:
                if not self.is_sqlite:
                    postgres.lock_schema(connection)
                found = _revision(connection)  # another process may have migrated meanwhile
                if found is None:
                    _create_tables(connection)
                elif found != HEAD:
                    from memos.memcube.ledger.migrate import upgrade  # noqa: PLC0415 - Alembic takes 0.1 s to import

                    upgrade(connection, found, self.description)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MemosError:
            raise
        except exc.TimeoutError as error:
            raise BackendTimeout(
                f"No connection to the ledger became free within 30 s; {self.description} is overloaded. Try again "
                "later."
            ) from error
        except exc.DBAPIError as error:
            raise self._meaning(error) from error
        except self._driver_errors as error:
            raise translate_sqlite(str(error), self.description) from error

    @property
    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, sqlcipher.driver().Error) if self.is_encrypted and self.is_sqlite else (sqlite3.Error,)

    def _meaning(self, error: exc.DBAPIError) -> MemosError:
        if not self.is_sqlite:
            return postgres.translate(error, self.description)
        if isinstance(error, exc.IntegrityError):
            return Conflict("The change conflicts with stored data; read again and retry.")
        return translate_sqlite(str(error.orig), self.description)


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
        name = parsed.get_backend_name()
    except (exc.ArgumentError, ValueError) as error:
        raise InvalidInput("ledger_url", "must be a URL such as postgresql://user@host/database") from error
    if "@" in (parsed.host or ""):
        raise InvalidInput("ledger_url", "has a second @; write an @ in the password as %40")
    if any(key in parsed.query for key in ("password", "sslpassword")):
        raise InvalidInput("ledger_url", "has a password after the question mark; write it before the host")
    if any("\0" in (part or "") for part in (url, parsed.password, parsed.database, parsed.username)):
        raise InvalidInput("ledger_url", "has a NUL character")
    if name not in ("sqlite", "postgresql", "postgres"):
        raise InvalidInput("ledger_url", f"names {name}; expected sqlite or postgresql")
    return parsed


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _create_tables(connection: sa.Connection) -> None:
    """Create a new ledger as all migrations would, in a fifth of their time; a test compares both."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(postgres.fold_function().replace("%", "%%"))
    for statement in _definitions(connection.dialect.name):
        connection.exec_driver_sql(statement)
    made = {"ledger_id": new_id(), audit_chain.HEAD: audit_chain.START}
    rows = [{"key": key, "value": value} for key, value in made.items()]
    connection.execute(sa.insert(metadata.tables["meta"]), rows)
    connection.execute(sa.insert(_VERSION).values(version_num=HEAD))


@cache
def _definitions(dialect: str) -> tuple[str, ...]:
    """Return the statements that create all tables and indexes, with the table in which Alembic keeps the revision."""
    statements: list[str] = []

    def compiled(definition: Any, *_: object) -> None:
        statements.append(str(definition.compile(dialect=engine.dialect)))

    engine = sa.create_mock_engine(f"{dialect}://", compiled)
    for tables in (metadata, _VERSION.metadata):
        tables.create_all(engine, checkfirst=False)
    return tuple(statements)


def _check_tables(connection: sa.Connection, where: str) -> None:
    missing = sorted(metadata.tables.keys() - set(sa.inspect(connection).get_table_names()))
    if missing:
        raise IntegrityError(
            f"The ledger {where} lacks {', '.join(missing)}, although its schema is current; another program uses this "
            "database, or it was only partly restored. Restore it from a backup. Nothing was changed."
        )


def _from_json(text: str | bytes) -> Any:
    if text in ("[]", b"[]"):
        return []
    return {} if text in ("{}", b"{}") else json.loads(text)


def sqlite_url(path: Path) -> str:
    return sa.URL.create("sqlite", database=str(path)).render_as_string()


_CHECK_UP_TO_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LedgerInspection:
    place: str
    revision: str | None
    changed_at: datetime | None
    memories: int | None = None  # counted in a file alone

    @property
    def is_current(self) -> bool:
        return self.revision == HEAD


def look_at_file(path: Path, key: bytes | None = None) -> LedgerInspection:
    """Look at a ledger's file without changing it; `key` is that of a file of SQLCipher."""
    place = f"{path.absolute().as_uri()}?mode=ro"
    errors: tuple[type[Exception], ...] = (sqlite3.Error,) if key is None else (sqlcipher.driver().Error,)
    try:
        opened = sqlite3.connect(place, uri=True, timeout=5) if key is None else sqlcipher.connect(place, key, uri=True)
        with closing(opened) as connection:
            if path.stat().st_size <= _CHECK_UP_TO_BYTES:
                said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if said != "ok":
                    raise sqlite_damaged(str(path), str(said))
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "alembic_version" not in tables:
                return LedgerInspection(str(path), None, None)
            [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            [newest] = connection.execute("SELECT max(at) FROM events").fetchone()
            [memories] = connection.execute("SELECT count(*) FROM items").fetchone() if "items" in tables else [None]
    except errors as error:
        raise translate_sqlite(str(error), str(path)) from error
    return LedgerInspection(str(path), revision, None if newest is None else from_micros(newest), memories)


def look_at_server(url: str) -> LedgerInspection:
    ledger = Ledger.look(url)
    try:
        with ledger.read() as connection:
            postgres.check_server(connection, datetime.now(UTC))
            revision = _revision(connection)
            newest = None if revision is None else connection.scalar(sa.text("SELECT max(at) FROM events"))
    finally:
        ledger.close()
    return LedgerInspection(ledger.description, revision, None if newest is None else from_micros(newest))


def audit_problem(place: Path | str, key: bytes | None = None) -> str | None:
    """Return what is wrong with the audit log of a ledger in a file, of this key, or on a server; it is only read."""
    if isinstance(place, str):
        parsed = _parsed(place)
        engine, where = postgres.make_engine(parsed, pool_size=1), postgres.place_of(parsed)
    else:
        source = f"{place.absolute().as_uri()}?mode=ro"
        engine = (
            sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(source, uri=True, timeout=5))
            if key is None
            else sa.create_engine(
                "sqlite://", module=sqlcipher.driver(), creator=lambda: sqlcipher.connect(source, key, uri=True)
            )
        )
        where = str(place)
    ledger = Ledger(engine, where)
    try:
        with ledger.read() as connection:
            return audit_chain.broken(connection)
    finally:
        ledger.close()


def check_schema(look: LedgerInspection) -> None:
    if look.revision is not None and look.revision > HEAD:
        raise IntegrityError(
            f"The ledger {look.place} was written by a newer hippocube (schema {look.revision}): install that version."
        )
