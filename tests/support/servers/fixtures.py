"""Fixtures of real servers: each is started when the first test asks for it, and ends with the session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import postgres_server as postgres
from tests.support.servers.neo4j_server import Missing, Neo4jServer
from tests.support.servers.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def neo4j_server() -> Iterator[Neo4jServer]:
    """A running Neo4j server; tests keep apart by the name of their installation."""
    with tempfile.TemporaryDirectory(prefix="hippocube-neo4j-") as folder:
        try:
            server = Neo4jServer(Path(folder))
        except Missing as missing:
            unavailable(f"no Neo4j server: {missing}")
        try:
            server.start()
            yield server
        finally:
            server.kill()  # its data are thrown away: an orderly end takes ten seconds


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL server; each test takes a database of its own."""
    missing = postgres.missing()
    if missing is not None:
        unavailable(missing)
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def vector_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL server with pgvector, which may be fit for no ledger."""
    programs = postgres.with_pgvector()
    if programs is None:
        unavailable("PostgreSQL with pgvector is not here: make setup-dev")
    with PostgresServer(programs=programs) as server:
        yield server


@pytest.fixture
def one_server(vector_server: PostgresServer) -> PostgresServer:
    """A server for ledger and vectors, where the system's PostgreSQL has pgvector."""
    if not vector_server.has_icu:
        pytest.skip("the system's PostgreSQL has no pgvector 0.8, and the wheel's no ICU, which a ledger needs")
    return vector_server


def unavailable(reason: str) -> None:
    """Skip the test, saying what to install; fail where all tests have to run."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
