"""PostgreSQL: connections, server checks, advisory locks, and translation of its errors.

Source: https://www.postgresql.org/docs/current/errcodes-appendix.html (SQLSTATE classes),
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADVISORY-LOCKS.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from memos.errors import (
    Aborted,
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    ConnectionLost,
    IntegrityError,
    InvalidInput,
    MemosError,
)
from memos.memcube.ledger.schema import meta

OLDEST = 140_000
"""The oldest supported server version, as in `server_version_num`: 14.0."""

MOST_SKEW = timedelta(seconds=30)
"""Maximum difference between this machine's clock and the database's, since processes must agree on record times."""

_CONNECT = {"connect_timeout": 5, "application_name": "hippocube", "client_encoding": "utf8"}
_LOCK_TIMEOUT_S = 30
_RENEW_S = 2.0
# Keys of advisory locks: "memo" in ASCII, and a number.
_MIGRATION_LOCK = 0x6D656D6F01
_HOLD_LOCK = 0x6D656D6F02
_GRAPH_LOCK = 0x6D656D6F03
_DENIED = {
    "28000": "the user or the host is not allowed",
    "28P01": "the password is wrong",
    "42501": "a privilege is missing",
}


def make_engine(url: sa.URL, **pool: Any) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={**_CONNECT, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3},
            **pool,
        )
    except ImportError as error:
        raise InvalidInput(
            "ledger_url", "needs PostgreSQL's driver: run `pip install '.[postgres]'` in hippocube's clone"
        ) from error

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.autocommit = True
        # Acknowledged changes must be on disk, whatever the server's default; synchronous replication stays as it is.
        connection.execute(
            "SELECT set_config('lock_timeout', %s, false), set_config('timezone', 'UTC', false), CASE WHEN"
            " current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END",
            (f"{_LOCK_TIMEOUT_S}s",),
        )
        connection.autocommit = False

    return engine


def place_of(url: sa.URL) -> str:
    return f"postgresql://{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def check_server(connection: sa.Connection, now: datetime) -> None:
    row = connection.execute(
        sa.text(
            "SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS named,"
            " pg_encoding_to_char(encoding) AS encoding, clock_timestamp() AS now,"
            " EXISTS (SELECT 1 FROM pg_collation WHERE collname = 'und-x-icu') AS icu"
            " FROM pg_database WHERE datname = current_database()"
        )
    ).one()
    if row.version < OLDEST:
        raise BackendUnavailable(
            f"PostgreSQL {row.named} is too old for the ledger: use version {OLDEST // 10_000} or newer."
        )
    if row.encoding != "UTF8":
        raise BackendUnavailable(
            f"The database's encoding is {row.encoding}: create another with `createdb --encoding UTF8 --template "
            "template0`."
        )
    if not row.icu:
        raise BackendUnavailable(
            "PostgreSQL lacks the collation `und-x-icu`, which comparing text needs: use a server built with ICU, as "
            "the common packages are."
        )
    skew = abs(now - row.now.astimezone(UTC))
    if skew > MOST_SKEW:
        raise BackendUnavailable(
            f"The clocks of this machine and the database are {skew.total_seconds():,.0f} s apart, more than the limit "
            f"of {MOST_SKEW.total_seconds():.0f} s; synchronise both by NTP."
        )


def identity(connection: sa.Connection) -> str:
    """Return an identifier that a copy of this database does not share: the server's, if readable, and the oid."""
    oid = connection.exec_driver_sql("SELECT oid FROM pg_database WHERE datname = current_database()").scalar_one()
    allowed = connection.exec_driver_sql("SELECT has_function_privilege('pg_control_system()', 'execute')").scalar_one()
    if not allowed:
        return f"{oid}"
    server = connection.exec_driver_sql("SELECT system_identifier FROM pg_control_system()").scalar_one()
    return f"{server}/{oid}"


def lock_schema(connection: sa.Connection) -> None:
    """Take the schema lock, so that one process migrates at a time; released with the transaction."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))


class Hold:
    """A process's advisory lock on the ledger: exclusive with an embedded index, otherwise shared.

    The lock is held by a connection of its own and lost with it; `renew` detects that and takes the lock again. `alone`
    is the id of the folder with the embedded index; `renew` fails if another folder's process held the exclusive lock
    in between.
    """

    def __init__(self, engine: sa.Engine, *, alone: str | None, follows_graph: bool) -> None:
        self._engine = engine
        self._follows_graph = follows_graph
        self._missed = False
        self._alone = alone
        self._connection: sa.Connection | None = None
        self._lock = threading.Lock()
        self._renewed_at = 0.0
        self.renew()

    def renew(self) -> None:
        with self._lock:
            if self._connection is not None and time.monotonic() - self._renewed_at < _RENEW_S:
                return
            self._renewed_at = time.monotonic()
            again = self._connection is not None
            if self._missed:
                raise _missed()
            if self._connection is not None:
                try:
                    self._connection.exec_driver_sql("SELECT 1")
                    return
                except exc.DBAPIError:
                    self._connection.invalidate()
                    self._connection.close()
                    self._connection = None
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            lock = sa.func.pg_try_advisory_lock if self._alone else sa.func.pg_try_advisory_lock_shared
            if not connection.scalar(sa.select(lock(_HOLD_LOCK))):
                connection.close()
                raise BackendUnavailable(
                    "Other processes use this ledger, but a migration or an embedded index needs it alone; stop them, "
                    "or, to run several processes, set MEMOS_QDRANT__URL in all of them."
                    if self._alone
                    else "A process with an embedded index uses this ledger; stop it, or set MEMOS_QDRANT__URL."
                )
            if again and self._alone is not None and last_alone(connection) != self._alone:
                self._missed = True
                connection.invalidate()
                connection.close()
                raise _missed()
            if self._follows_graph:
                connection.scalar(sa.select(sa.func.pg_advisory_lock_shared(_GRAPH_LOCK)))
            self._connection = connection

    def release(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.invalidate()  # end the session, which holds the lock, instead of pooling it
                self._connection.close()
                self._connection = None


def another_follows_graph(connection: sa.Connection) -> bool:
    """Return True if a process keeps a graph index up to date; otherwise prevent that until the transaction ends."""
    return not connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(_GRAPH_LOCK)))


KEYS_MARK = "mark:keys"
"""The key in `meta` of the wrapped keys of an encrypted ledger."""


def has_keys(connection: sa.Connection) -> bool:
    """Return True if a ledger is or was encrypted."""
    return connection.scalar(sa.select(meta.c.key).where(meta.c.key == KEYS_MARK)) is not None


_ALONE = "mark:alone"


def last_alone(connection: sa.Connection) -> str | None:
    found: str | None = connection.scalar(sa.select(meta.c.value).where(meta.c.key == _ALONE))
    return found


def set_alone(connection: sa.Connection, folder: str) -> None:
    if last_alone(connection) is None:
        connection.execute(sa.insert(meta).values(key=_ALONE, value=folder))
    else:
        connection.execute(sa.update(meta).where(meta.c.key == _ALONE).values(value=folder))


def _missed() -> BackendUnavailable:
    return BackendUnavailable(
        "This process lost its lock on the ledger, and another process with an embedded index changed it meanwhile; "
        "open this installation again, which rebuilds its index."
    )


def translate(error: exc.DBAPIError, where: str) -> MemosError:
    """Translate a driver's error by its SQLSTATE; the message contains no values, which may be memory text."""
    state = getattr(error.orig, "sqlstate", None) or ""
    diagnosis = getattr(error.orig, "diag", None)
    said = getattr(diagnosis, "message_primary", None) or str(error.orig).split("DETAIL:")[0]
    told = " ".join(said.split())
    if isinstance(error, exc.IntegrityError):
        return Conflict(f"The change conflicts with stored data ({told}); read again and retry.")
    if state in _DENIED or "password authentication failed" in told or "no password supplied" in told:
        why = _DENIED.get(state, "the user or the password is wrong")
        return BackendUnavailable(f"PostgreSQL refused {where} ({why}): check MEMOS_LEDGER_URL and the user's rights.")
    if state == "3D000" or ("database" in told and "does not exist" in told):
        return BackendUnavailable(f"The database of {where} does not exist: create it with `createdb --encoding UTF8`.")
    if state in ("40001", "40P01"):
        return Aborted("The change conflicted with another one and was not saved; try again.")
    if state in ("55P03", "57014"):
        return BackendTimeout(
            f"The ledger {where} did not answer in time ({told}) and nothing was saved; try again later."
        )
    if state[:2] == "42":
        return IntegrityError(
            f"The ledger {where} lacks tables or columns ({told}); make sure that no other program uses this database, "
            "and restore it from a backup."
        )
    if state in ("22001", "22021", "22P05", "22003"):
        return InvalidInput("value", f"cannot be stored in the ledger ({told})")
    if error.connection_invalidated:
        return ConnectionLost(
            f"The connection to the ledger {where} was lost ({told}). A running change may or may not have been saved; "
            "repeat it with its idempotency key."
        )
    if not state or state.startswith(("08", "57P", "53")):
        return BackendUnavailable(
            f"The ledger {where} cannot be reached ({told}); check that the server runs and that MEMOS_LEDGER_URL is "
            "right."
        )
    return BackendUnavailable(f"The ledger {where} cannot be used: {told}")


def lock_items(connection: sa.Connection, purpose: str, ids: list[str]) -> set[str]:
    """Lock the ids that no other transaction has locked for this purpose; return the locked ones."""
    given = sa.func.unnest(sa.bindparam("ids", ids, sa.ARRAY(sa.Text)))
    named = given.table_valued("id", name="wanted").render_derived()
    key = sa.func.hashtextextended(f"memos:{purpose}:" + sa.cast(named.c.id, sa.Text), 0)
    rows = connection.execute(sa.select(named.c.id, sa.func.pg_try_advisory_xact_lock(key).label("mine")))
    return {row.id for row in rows if row.mine}


def fold_function() -> str:
    """Return the statement that creates `memos_casefold(text)`, equal to Python's `str.casefold`.

    It applies ICU's lower case, then maps the characters that only case folding changes: by `translate`, or by
    `replace` where one becomes several, and only in texts that contain one.
    """
    stable = [
        c
        for c in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x1_1000), *range(0x1_6000, 0x1_F000)))
        if c.lower() == c != c.casefold()
    ]
    singles = {c: c.casefold() for c in stable if len(c.casefold()) == 1}
    several = {c: c.casefold() for c in stable if len(c.casefold()) > 1}
    replaced = "y"
    for character, folded in several.items():
        replaced = f"replace({replaced}, '{character}', '{folded}')"
    return f"""
CREATE OR REPLACE FUNCTION memos_casefold(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $fold$
DECLARE y text;
BEGIN
  IF octet_length(t) = length(t) THEN RETURN lower(t COLLATE "C"); END IF;
  y := translate(lower(t COLLATE "und-x-icu"), '{"".join(singles)}', '{"".join(singles.values())}');
  IF y ~ '[{"".join(several)}]' THEN RETURN {replaced}; END IF;
  RETURN y;
END
$fold$"""
