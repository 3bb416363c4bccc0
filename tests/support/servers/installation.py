"""An installation all on servers: its settings, and the same as variables for other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings, Neo4jSettings
from tests.fakes import WordEmbedder
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.qdrant_rest import server_settings


@contextmanager
def on_servers(home: Path, postgres: PostgresServer, neo4j: Neo4jServer, **changes: Any) -> Iterator[Settings]:
    """Yield the settings of a new installation, other fields of `Settings` changed as asked."""
    with server_settings() as qdrant:
        fields: dict[str, Any] = {
            "home": home,
            "ledger_url": postgres.url(),
            "qdrant": qdrant,
            "neo4j": Neo4jSettings(url=neo4j.url, password=SecretStr(neo4j.password)),
            "index": IndexSettings(wait_s=30),
            "limits": LimitSettings(min_free_bytes=1_000_000),
        }
        yield Settings(**{**fields, **changes})


def opened(settings: Settings) -> MemOS:
    """Open the installation."""
    return MemOS.open(settings=settings, embedder=WordEmbedder())


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables that give another process these settings."""
    assert settings.ledger_url is not None
    told = {
        "MEMOS_HOME": str(settings.home),
        "MEMOS_LEDGER_URL": settings.ledger_url.get_secret_value(),
        "MEMOS_QDRANT__URL": settings.qdrant.url or "",
        "MEMOS_INDEX__WAIT_S": str(settings.index.wait_s),
        "MEMOS_LIMITS__MIN_FREE_BYTES": "1000000",
    }
    if settings.neo4j.url is not None and settings.neo4j.password is not None:
        told["MEMOS_NEO4J__URL"] = settings.neo4j.url
        told["MEMOS_NEO4J__PASSWORD"] = settings.neo4j.password.get_secret_value()
    if settings.qdrant.api_key is not None:
        told["MEMOS_QDRANT__API_KEY"] = settings.qdrant.api_key.get_secret_value()
    return {**os.environ, **told}
