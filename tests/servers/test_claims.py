"""Who may work on a ledger: claims that break, copies of a database, secrets that must not show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings, QdrantSettings
from memos.errors import BackendUnavailable, InvalidInput, MemosError
from memos.memcube.ledger import postgres
from memos.memcube.ledger.engine import Ledger
from tests.support.servers.installation import on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
import sys
from pathlib import Path
from memos import Settings
from tests.support.servers.installation import opened
from tests.servers.test_claims import embedded
with opened(embedded(Path(sys.argv[1]), sys.argv[2])) as memos:
    assert memos.add("said by the other process").indexed
    assert memos.erase(sys.argv[3]).state == "purged"
    print("done", flush=True)
"""


def embedded(home: Path, url: str) -> Settings:
    """Settings of an installation with its ledger on PostgreSQL and its indexes in a folder."""
    return Settings(
        home=home,
        ledger_url=SecretStr(url),
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
    )


def end_claims(server: PostgresServer, url: str) -> None:
    """End the connections that hold advisory locks on a database, as a restart or a firewall does."""
    database = url.rsplit("/", 1)[1]
    server.sql(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database d ON d.oid = pg_locks.database"
        " WHERE locktype = 'advisory' AND d.datname = current_database()",
    )


def test_after_another_folder_was_alone_a_process_stops_and_its_indexes_are_filled_anew(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_RENEW_S", 0.0)
    url = postgres_server.url()
    mine = embedded(tmp_path / "mine", url)
    with opened(mine) as memos:
        memos._worker.stop()  # or it would claim again at once
        memos._scheduler.stop()
        secret = memos.add("the secret zanzibar").item_ids[0]
        end_claims(postgres_server, url)
        done = subprocess.run(
            [sys.executable, "-c", OTHER, str(tmp_path / "theirs"), url, secret],
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
        )  # fmt: skip
        assert done.stdout == "done\n", done.stderr
        for call in (lambda: memos.add("too late"), lambda: memos.erase(secret), lambda: memos.add("still too late")):
            with pytest.raises(MemosError) as refused:
                call()
        assert "open this installation again" in str(refused.value)
    with opened(mine) as memos:
        assert memos.maintenance.verify().clean
        assert [hit.item.memory for hit in memos.search("said secret late")] == ["said by the other process"]
        assert secret.encode() not in b"".join(
            path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()
        )
    with opened(mine) as memos:  # not once more
        assert memos.add("and on").indexed


def test_a_claim_nobody_else_took_is_made_again(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    with opened(embedded(tmp_path, url)) as memos:
        memos.add("before")
        end_claims(postgres_server, url)
        memos.ledger._hold._renewed_at = -1e9  # type: ignore[union-attr]
        assert memos.add("after").indexed
        assert memos.maintenance.verify().clean


def test_a_copy_of_a_database_has_indexes_of_its_own(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with on_servers(tmp_path, postgres_server, neo4j_server) as settings:
        assert settings.ledger_url is not None
        url = settings.ledger_url.get_secret_value()
        with opened(settings) as memos:
            ids = memos.add(["one apple", "two apples"], conversation="c").item_ids
        original = url.rsplit("/", 1)[1]
        postgres_server.sql("postgres", f"CREATE DATABASE {original}_copy TEMPLATE {original}")
        copy = settings.model_copy(update={"ledger_url": SecretStr(f"{url}_copy")})
        with opened(copy) as memos:
            assert memos.maintenance.verify().clean
            assert memos.erase(ids[0]).state == "purged"
            assert [hit.item.id for hit in memos.search("apple")] == [ids[1]]
        with opened(settings) as memos:
            assert memos.maintenance.verify().clean
            assert {hit.item.id for hit in memos.search("apple")} == set(ids)
        with opened(copy) as memos:
            assert memos.maintenance.verify().clean


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://memos@127.0.0.1:1/d?password=QUERYSECRET",
        "postgresql://memos@127.0.0.1:1/d?sslpassword=QUERYSECRET",
        "postgresql://memos:abc@QUERYSECRET@127.0.0.1:1/d",
        "postgresql://memos:QUERYSECRET%00@127.0.0.1:1/d",
        "postgresql://memos:QUERYSECRET@127.0.0.1:1/d",
    ],
)
def test_no_part_of_a_url_that_may_be_secret_is_shown(url: str) -> None:
    with pytest.raises(MemosError) as refused:
        Ledger.open(url)
    assert "QUERYSECRET" not in str(refused.value)


def test_keys_are_sent_as_they_are_meant_or_refused() -> None:
    key = QdrantSettings(api_key=SecretStr("SECRETKEY\n")).api_key
    assert key is not None
    assert key.get_secret_value() == "SECRETKEY"
    with pytest.raises(ValidationError) as refused:
        QdrantSettings(api_key=SecretStr("SECRETKÜ"))
    assert "SECRETK" not in str(refused.value)


def test_sqlite_is_no_ledger_url(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="leave it out"):
        MemOS.open(settings=Settings(home=tmp_path, ledger_url=SecretStr("sqlite://")))


def test_a_second_alone_is_refused(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    with (
        opened(embedded(tmp_path / "a", url)),
        pytest.raises(BackendUnavailable, match="Other processes use this ledger"),
    ):
        opened(embedded(tmp_path / "b", url))
