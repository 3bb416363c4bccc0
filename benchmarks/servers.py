"""Where an installation that is measured keeps its stores: in files, or on real servers started for it on loopback.

PostgreSQL and Neo4j are thrown away afterwards. Qdrant cannot be started here: `QDRANT_URL` names a running server,
and without it the vector index stays embedded. The tests' double of Qdrant is never measured.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from benchmarks.report import CannotRun
from memos.core.settings import Neo4jSettings, QdrantSettings, Settings
from tests.support.servers import postgres_server
from tests.support.servers.neo4j_server import Missing, Neo4jServer
from tests.support.servers.postgres_server import PostgresServer

NO_QDRANT = "embedded: no QDRANT_URL"


def embedded(home: Path) -> Settings:
    """Return settings that keep everything in one folder, whatever `MEMOS_*` says of servers."""
    stores = {"ledger_url": None, "qdrant": QdrantSettings(), "neo4j": Neo4jSettings()}
    return Settings().model_copy(update={**stores, "home": home})


def environment(settings: Settings) -> dict[str, str]:
    """Return this process's variables with those that give another process these stores."""
    told = {"MEMOS_HOME": str(settings.home)}
    if settings.encryption_key is not None:
        told["MEMOS_ENCRYPTION_KEY"] = settings.encryption_key
    if settings.ledger_url is not None:
        told["MEMOS_LEDGER_URL"] = settings.ledger_url.get_secret_value()
    if settings.qdrant.url is not None:
        told |= {"MEMOS_QDRANT__URL": settings.qdrant.url}
    if settings.qdrant.api_key is not None:
        told["MEMOS_QDRANT__API_KEY"] = settings.qdrant.api_key.get_secret_value()
    if settings.neo4j.url is not None and settings.neo4j.password is not None:
        told["MEMOS_NEO4J__URL"] = settings.neo4j.url
        told["MEMOS_NEO4J__PASSWORD"] = settings.neo4j.password.get_secret_value()
    stores = ("MEMOS_HOME", "MEMOS_LEDGER_URL", "MEMOS_QDRANT__", "MEMOS_NEO4J__")
    return {name: value for name, value in os.environ.items() if not name.startswith(stores)} | told


@dataclass(frozen=True, slots=True)
class Servers:
    """Running servers; each installation has a database, collections and nodes of its own on them."""

    postgres: PostgresServer
    neo4j: Neo4jServer

    def stores(self) -> dict[str, str]:
        """Return what stands behind each port, for people who read the figures."""
        [[neo4j]] = self.cypher("CALL dbms.components() YIELD versions RETURN versions[0]")
        named = self.postgres.sql("postgres", "SHOW server_version")
        return {
            "ledger": f"PostgreSQL {named.split()[0]}, fsync {self.postgres.sql('postgres', 'SHOW fsync')}",
            "vector": NO_QDRANT if qdrant_url() is None else f"Qdrant server {_qdrant_version()}",
            "graph": f"Neo4j {neo4j}",
        }

    @contextmanager
    def installation(self, home: Path) -> Iterator[Settings]:
        """Yield the settings of a new installation; its database and collections are removed afterwards."""
        home.mkdir(mode=0o700)
        url = self.postgres.url()
        with _qdrant() as qdrant:
            neo4j = Neo4jSettings(url=self.neo4j.url, password=SecretStr(self.neo4j.password))
            stores = {"ledger_url": SecretStr(url), "qdrant": qdrant, "neo4j": neo4j}
            yield Settings().model_copy(update={**stores, "home": home})
        # Not after an error, which it would hide: the server is thrown away, too.
        self.postgres.sql("postgres", f"DROP DATABASE {database(url)} WITH (FORCE)")

    def ledger_bytes(self, settings: Settings) -> int:
        """Return bytes of an installation's database, without the server's log."""
        assert settings.ledger_url is not None
        name = database(settings.ledger_url.get_secret_value())
        return int(self.postgres.sql(name, f"SELECT pg_database_size('{name}')"))

    def cypher(self, statement: str) -> list[list[object]]:
        """Run one statement in Neo4j and return its rows."""
        import neo4j  # noqa: PLC0415 - an optional extra

        auth = (self.neo4j.user, self.neo4j.password)
        with (
            neo4j.GraphDatabase.driver(self.neo4j.url, auth=auth) as driver,
            driver.session(database="neo4j") as session,
        ):
            return session.run(statement).values()


@contextmanager
def started(*, fsync: bool = True) -> Iterator[Servers]:
    """Start PostgreSQL and Neo4j and end them, also on Ctrl-C. Raises: CannotRun, which says what to install."""
    missing = postgres_server.missing()
    if missing is not None:
        raise CannotRun(missing)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hippocube-neo4j-"))
        try:
            neo4j = Neo4jServer(Path(folder))
        except Missing as error:
            raise CannotRun(f"no Neo4j server: {error}") from error
        stack.callback(neo4j.kill)
        neo4j.start()
        # Durable, as the embedded ledger is: without it adds would be compared with something else.
        postgres = stack.enter_context(PostgresServer(fsync=fsync))
        yield Servers(postgres, neo4j)


def database(url: str) -> str:
    """Return the database's name in a URL that `PostgresServer` made."""
    return url.rpartition("/")[2]


def allocated(place: Path) -> int:
    """Return the bytes that a file, or the files under a folder, occupy; holes not counted."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def qdrant_url() -> str | None:
    """Return the Qdrant server to measure with, None when there is none."""
    return os.environ.get("QDRANT_URL") or None


def _qdrant_key() -> SecretStr | None:
    key = os.environ.get("QDRANT_API_KEY")
    return SecretStr(key) if key else None


def _qdrant_version() -> str:
    from memos.backends.qdrant.server import connect  # noqa: PLC0415 - an optional extra

    connection = connect(QdrantSettings(url=qdrant_url(), api_key=_qdrant_key()))
    try:
        return connection.run(lambda _left: connection.client.info()).version
    finally:
        connection.close()


@contextmanager
def _qdrant() -> Iterator[QdrantSettings]:
    """Yield settings with a prefix of their own on the Qdrant server, or those of the embedded index."""
    if qdrant_url() is None:
        yield QdrantSettings()
        return
    from memos.backends.qdrant.server import connect  # noqa: PLC0415 - an optional extra

    settings = QdrantSettings(url=f"{qdrant_url()}?collection=bench_{uuid.uuid4().hex[:12]}", api_key=_qdrant_key())
    try:
        yield settings
    finally:
        connection = connect(settings)
        for entry in connection.client.get_collections().collections:
            if entry.name.startswith(f"{settings.collection}_"):
                connection.client.delete_collection(entry.name)
        connection.close()
