"""A connection to a Neo4j database: transactions with retries, and the driver's errors translated.

Import it only where the driver is installed.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from random import SystemRandom
from typing import TypeVar
from urllib.parse import urlsplit

import neo4j
from neo4j._exceptions import BoltError  # a failed handshake has no public class
from neo4j.exceptions import (
    AuthError,
    ClientError,
    ConfigurationError,
    DriverError,
    Forbidden,
    Neo4jError,
    ResultFailedError,
    TransactionError,
    TransientError,
    UnsupportedServerProduct,
)

from memos.backends.graph.neo4j import Run
from memos.core.settings import Neo4jSettings
from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, InvalidInput, MemosError

OLDEST = (5, 26)
_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
_CONNECT_S = 3.0
TIMEOUT_S = 10
DATABASE = "neo4j"
# A connection from before the server's restart is found out and replaced by the first attempt; more would only keep
# a search waiting for a server that is down.
_RETRY_S = 0.3
_FIRST_DELAY_S = 0.05
# Two writers met: one of them is asked to start over, or finds a node gone that it had just seen, or an index made.
_COLLISIONS = (
    "Neo.TransientError.Transaction.DeadlockDetected",
    "Neo.ClientError.Statement.EntityNotFound",
    "Neo.ClientError.Schema.ConstraintValidationFailed",
    "Neo.ClientError.Schema.EquivalentSchemaRuleAlreadyExists",
)
# The last one is what a transaction hears that was waiting for another one's lock when its time was up.
_TIMED_OUT = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
    "Neo.TransientError.Transaction.LockAcquisitionTimeout",
    "Neo.ClientError.Transaction.LockClientStopped",
)
_DRIVER_ERRORS = (Neo4jError, DriverError, BoltError, UnsupportedServerProduct, OSError, ValueError)
_COLLISION_PAUSE_S = 0.05
_USER = "neo4j"
_RANDOM = SystemRandom()
_Result = TypeVar("_Result")

# The driver logs each retry; our errors report the outcome. An application that configures logging still sees both.
logging.getLogger("neo4j").addHandler(logging.NullHandler())


class Neo4jConnection:
    """A pool of connections to one database; thread-safe. It lives through restarts of the server."""

    def __init__(self, driver: neo4j.Driver, settings: Neo4jSettings) -> None:
        self._driver = driver
        self._settings = settings
        self._closed = False
        # In a cluster a read may go to another member than the write before it: it waits until that has caught up.
        self._bookmarks = neo4j.GraphDatabase.bookmark_manager()

    @classmethod
    def open(cls, settings: Neo4jSettings) -> Neo4jConnection:
        url = checked_url(settings.url or "")
        secret = settings.password.get_secret_value() if settings.password else None
        try:
            driver = neo4j.GraphDatabase.driver(
                url,
                auth=None if secret is None else (_USER, secret),
                connection_timeout=_CONNECT_S,
                connection_acquisition_timeout=TIMEOUT_S,
                max_transaction_retry_time=_RETRY_S,
                initial_retry_delay=_FIRST_DELAY_S,
                notifications_min_severity="OFF",
                telemetry_disabled=True,
            )
        except _DRIVER_ERRORS as error:
            raise translated(error, settings) from error
        opened = cls(driver, settings)
        try:
            # Not "Neo4j Kernel" by name: what is compatible with it may be called otherwise.
            [[versions], *_] = opened.read(lambda run: run("CALL dbms.components() YIELD versions", {}))
            check_version(versions[0])
        except BaseException:
            opened.close()
            raise
        return opened

    def read(self, work: Callable[[Run], _Result]) -> _Result:
        return self._transaction(work, neo4j.READ_ACCESS)

    def write(self, work: Callable[[Run], _Result]) -> _Result:
        """Do all of `work` or nothing of it, again when it fails for a moment."""
        return self._transaction(work, neo4j.WRITE_ACCESS)

    def close(self) -> None:
        self._closed = True
        self._driver.close()

    def _transaction(self, work: Callable[[Run], _Result], access: str) -> _Result:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self._attempt(work, access)
            except _DRIVER_ERRORS as raised:
                error: BaseException = raised
                while isinstance(error, TransactionError | ResultFailedError) and error.__cause__ is not None:
                    error = error.__cause__
                is_unicode = isinstance(error, UnicodeEncodeError)
                # The driver's ValueError may mean an unknown host name.
                if isinstance(error, ValueError) and not (is_unicode or isinstance(error.__cause__, OSError)):
                    raise
                if getattr(error, "code", None) not in _COLLISIONS or time.monotonic() > deadline:
                    raise translated(error, self._settings) from error
            time.sleep(_RANDOM.uniform(0, _COLLISION_PAUSE_S))

    def _attempt(self, work: Callable[[Run], _Result], access: str) -> _Result:
        if self._closed:
            raise BackendUnavailable("The graph index is closed.")
        done: list[_Result] = []

        @neo4j.unit_of_work(timeout=TIMEOUT_S)
        def unit(transaction: neo4j.ManagedTransaction) -> None:
            # A statement that the server refused has given the connection back to the pool. If its error left here,
            # the driver (5.28.8, 6.4.1) would look at that connection once more and take a byte from the answer that
            # another thread waits for, which then waits two minutes. Committing raises the same error without that.
            with suppress(Neo4jError, ResultFailedError):
                done.append(work(lambda query, values: transaction.run(query, dict(values)).values()))

        with self._driver.session(database=DATABASE, bookmark_manager=self._bookmarks) as session:
            (session.execute_read if access == neo4j.READ_ACCESS else session.execute_write)(unit)
        return done[-1]


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = bool(parts.hostname) and parts.scheme in _SCHEMES and parts.port != 0
    except ValueError:  # no number, or none that a port can have
        fine = False
    if not fine or parts.username is not None or parts.password is not None:
        raise BackendUnavailable(
            "MEMOS_NEO4J__URL is not a Bolt URL: write it as bolt://HOST:PORT or, with TLS, neo4j+s://HOST:PORT, "
            "and give the password of its user `neo4j` in MEMOS_NEO4J__PASSWORD."
        )
    return url


def check_version(version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found or (int(found[1]), int(found[2])) < OLDEST:
        raise BackendUnavailable(
            f"The Neo4j server is version {version:.40}: the graph index needs {OLDEST[0]}.{OLDEST[1]} or newer, "
            "so upgrade the server."
        )


def translated(error: BaseException, settings: Neo4jSettings) -> MemosError:
    """Return our error for one of the driver's; it shows the error's code and never its text, which may hold data."""
    parts = urlsplit(settings.url or "")
    server = f"Neo4j at {parts.hostname}:{parts.port or 7687}"
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("id", "is not valid Unicode text, which Neo4j cannot store.")
    if isinstance(error, Neo4jError):
        return _refused(error, server, settings)
    if isinstance(error, ConfigurationError):
        return BackendUnavailable(f"{server} cannot be used as configured: check MEMOS_NEO4J__URL and the user.")
    if isinstance(error, BoltError | UnsupportedServerProduct):
        return BackendUnavailable(
            f"{server} does not speak a Bolt protocol this program knows: check that MEMOS_NEO4J__URL names the Bolt "
            f"port of a Neo4j {OLDEST[0]}.{OLDEST[1]} or newer."
        )
    return BackendUnavailable(
        f"{server} cannot be reached: start it, or check the host, the port and the encryption (bolt:// or "
        "bolt+s://) in MEMOS_NEO4J__URL."
    )


def _refused(error: Neo4jError, server: str, settings: Neo4jSettings) -> MemosError:
    code = error.code or ""
    if isinstance(error, AuthError):
        return BackendUnavailable(f"{server} refused the password of its user `neo4j`: check MEMOS_NEO4J__PASSWORD.")
    if isinstance(error, Forbidden):
        return BackendUnavailable(
            f"{server} does not allow the user to do this ({code}): grant it reading, writing, and schema and index "
            f"management on the database {DATABASE!r}."
        )
    if code.endswith("DatabaseNotFound"):
        return BackendUnavailable(f"{server} has no database {DATABASE!r}: create it.")
    if code in _TIMED_OUT:
        return BackendTimeout(
            f"{server} did not finish a transaction within {TIMEOUT_S} s and undid it: try again later."
        )
    if isinstance(error, ClientError) and "timeout" in str(error) and not code.startswith("Neo."):
        return BackendTimeout(f"No connection to {server} became free in {TIMEOUT_S} s: try again later.")
    if isinstance(error, TransientError) or not isinstance(error, ClientError):
        return BackendUnavailable(f"{server} cannot do this now ({code}); try again, or check its log.")
    return IntegrityError(f"{server} refused a statement ({code}); check its log.")
