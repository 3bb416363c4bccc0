"""What only a real Qdrant server can show: keys, TLS, strict mode, kills, snapshots and quantised vectors.

It is built by `scripts/build_qdrant.sh`, which takes an hour, so that no CI does; where it is, these run, and all other
tests that need a Qdrant server use it instead of the double.
"""

from __future__ import annotations

import datetime
import ipaddress
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from qdrant_client import QdrantClient

from memos import MemOS, Settings
from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.filters import parse
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.settings import IndexSettings, LimitSettings, QdrantSettings
from memos.core.types import Arm
from memos.errors import BackendUnavailable
from memos.kernel.relocation import migrate
from tests.fakes import WordEmbedder
from tests.support.servers.installation import opened as opened_installation
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.qdrant_server import QdrantServer, binary

PROGRAM = binary()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Qdrant server: sh scripts/build_qdrant.sh builds one")
DIMENSION = 32
BM25 = QdrantBm25()


@pytest.fixture(scope="module")
def server() -> Iterator[QdrantServer]:
    """Yield a server in strict mode, which refuses filters without an index unless a collection allows them."""
    assert PROGRAM is not None
    strict = {"collection": {"strict_mode": {"enabled": True, "unindexed_filtering_retrieve": False}}}
    with QdrantServer(PROGRAM, {"storage": strict}) as running:
        yield running


def settings_of(server: QdrantServer, **options: object) -> QdrantSettings:
    return QdrantSettings(url=f"{server.url}?collection=t{uuid.uuid4().hex[:8]}", **options)


def opened(settings: QdrantSettings) -> QdrantServerIndex:
    return QdrantServerIndex.open(settings, "words-32", DIMENSION)


def vector(number: int) -> np.ndarray:
    made = np.random.default_rng(number).normal(size=DIMENSION)
    return (made / np.linalg.norm(made)).astype(np.float32)


def point(number: int) -> VectorPoint:
    payload = {
        "cube": "a",
        "item": f"i{number}",
        "version": 1,
        "revision": 1,
        "recorded_from": 1,
        "live": 1,
        "info": {"n": number},
    }
    terms = BM25.encode_document(f"word w{number}")
    return VectorPoint(str(uuid.UUID(int=number + 1)), payload, vector(number), vector(number), terms, terms)


def nearest(index: QdrantServerIndex, number: int, count: int = 1, raw: object = None) -> list[str]:
    asked = VectorSearch(("a",), (ArmQuery(Arm.TURN, vector(number)),), count, None if raw is None else parse(raw))
    return [found.item for found in index.search(asked)[0]]


def test_what_users_store_is_filtered_by_in_strict_mode(server: QdrantServer) -> None:
    index = opened(settings_of(server))
    index.upsert([point(number) for number in range(20)])
    assert nearest(index, 3, 10, {"n": 7}) in ([], ["i7"])  # only what is near is found
    assert nearest(index, 7, 10, {"n": 7}) == ["i7"]
    index.prune({"i7": None})
    assert nearest(index, 7, 10, {"n": 7}) == []
    index.close()


def test_quantised_vectors_on_disk_find_what_full_ones_find(server: QdrantServer) -> None:
    full, small = opened(settings_of(server)), opened(settings_of(server, on_disk=True))
    points = [point(number) for number in range(1_500)]
    for index in (full, small):
        index.upsert(points)
    same = [len({*nearest(full, n, 10)} & {*nearest(small, n, 10)}) for n in range(0, 1_500, 100)]
    assert sum(same) >= 0.95 * 10 * len(same)
    full.close()
    small.close()


def test_a_snapshot_brings_back_its_mark(server: QdrantServer) -> None:
    settings = settings_of(server)
    index = opened(settings)
    index.upsert([point(1)])
    index.flush(3)
    client = QdrantClient(url=server.url, check_compatibility=False, timeout=60)
    name = f"{settings.collection}-words-32"
    snapshot = client.create_snapshot(name, wait=True)
    assert snapshot is not None
    index.upsert([point(2)])
    index.flush(4)
    where = f"{server.url}/collections/{name}/snapshots/{snapshot.name}"
    client.recover_snapshot(name, where, wait=True)
    assert index.mark() == 3
    assert nearest(index, 2, 10) in ([], ["i1"])
    client.close()
    index.close()


def test_what_was_acknowledged_outlives_a_kill_in_the_middle_of_indexing() -> None:
    assert PROGRAM is not None
    with QdrantServer(PROGRAM) as server:
        settings = settings_of(server)
        index = opened(settings)
        acknowledged: list[int] = []

        def write() -> None:
            for start in range(0, 100_000, 50):
                try:
                    index.upsert([point(number) for number in range(start, start + 50)])
                except BackendUnavailable:
                    return
                acknowledged.extend(range(start, start + 50))

        writer = threading.Thread(target=write)
        writer.start()
        while len(acknowledged) < 300:
            writer.join(0.02)
        server.kill()
        writer.join(60)
        server.start()
        ids = [str(uuid.UUID(int=number + 1)) for number in acknowledged]
        assert set(index.held(ids)) == set(ids)
        index.upsert([point(number) for number in acknowledged[:50]])
        assert nearest(index, acknowledged[-1]) == [f"i{acknowledged[-1]}"]
        index.close()


def test_keys_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PROGRAM is not None
    certificate, key = _certificate(tmp_path)
    configuration = {
        "service": {"api_key": "the right one", "read_only_api_key": "to look", "enable_tls": True},
        "tls": {"cert": str(certificate), "key": str(key)},
    }
    with QdrantServer(PROGRAM, configuration) as server:
        right = settings_of(server, api_key=SecretStr("the right one"))
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            opened(right)  # nobody vouches for the certificate
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(BackendUnavailable, match="asks for an API key"):
            opened(settings_of(server))
        for wrong in ("another", "to look"):
            with pytest.raises(BackendUnavailable, match="refused the API key"):
                opened(settings_of(server, api_key=SecretStr(wrong)))
        index = opened(right)
        index.upsert([point(1)])
        assert nearest(index, 1) == ["i1"]
        index.close()


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QdrantServer]:
    """Yield a server with TLS, a key and strict mode."""
    assert PROGRAM is not None
    certificate, key = _certificate(tmp_path_factory.mktemp("tls"))
    configuration = {
        "service": {"api_key": "the right one", "enable_tls": True},
        "tls": {"cert": str(certificate), "key": str(key)},
        "storage": {"collection": {"strict_mode": {"enabled": True, "unindexed_filtering_retrieve": False}}},
    }
    with pytest.MonkeyPatch.context() as patch, QdrantServer(PROGRAM, configuration) as running:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        yield running


@pytest.fixture
def guarded(guarded_server: QdrantServer) -> tuple[QdrantServer, QdrantSettings]:
    """Return that server, and settings of a new installation that keeps its vectors quantised and on disk."""
    return guarded_server, settings_of(guarded_server, api_key=SecretStr("the right one"), on_disk=True)


def installation(home: Path, qdrant: QdrantSettings | None = None, ledger_url: str | None = None) -> Settings:
    return Settings(
        home=home,
        ledger_url=ledger_url,
        qdrant=QdrantSettings() if qdrant is None else qdrant,
        index=IndexSettings(wait_s=30),
        limits=LimitSettings(min_free_bytes=1_000_000),
    )


def filled(settings: Settings, count: int) -> list[str]:
    """Fill an installation with parcels, of which one is corrected, one deleted and one erased."""
    with opened_installation(settings) as memos:
        texts = [{"role": "user", "content": f"parcel number{number} arrived"} for number in range(count)]
        ids = memos.add(texts, conversation="c", info={"n": 1}).item_ids
        memos.update(ids[0], "parcel number0 was lost")
        memos.delete(ids[1])
        memos.erase(ids[2])
        return answers(memos)


def answers(memos: MemOS) -> list[str]:
    found = [memos.search(f"parcel number{number}", top_k=1) for number in (0, 3, 4, 5)]
    found.append(memos.search("parcel number7", filter={"info.n": 1}, top_k=1))
    assert all(each.missing_arms == () for each in found)
    return [hit.item.memory for each in found for hit in each.hits]


@contextmanager
def killed_at_first_progress(server: QdrantServer) -> Iterator[Callable[..., None]]:
    """Yield a callback that kills a server the first time it is told of progress; the server is up again afterwards."""
    killed = threading.Event()

    def kill(*_: object) -> None:
        if not killed.is_set():
            killed.set()
            server.kill()

    try:
        yield kill
        assert killed.is_set()
    finally:
        if killed.is_set():
            server.start()


class TestInstallations:
    """Whole installations on a server with TLS, a key, strict mode and quantised vectors."""

    def test_they_move_in_and_out_although_the_server_is_killed_meanwhile(
        self, tmp_path: Path, guarded: tuple[QdrantServer, QdrantSettings], postgres_server: PostgresServer
    ) -> None:
        server, qdrant = guarded
        here, back = installation(tmp_path / "here"), installation(tmp_path / "back")
        before = filled(here, 80)
        there = installation(tmp_path / "none", qdrant, postgres_server.url())
        with killed_at_first_progress(server) as kill:
            # It is told either way: of what could not be written, or of what could not be looked at afterwards.
            try:
                problems = [
                    each.detail for each in migrate(here, there, embedder=WordEmbedder(), on_items=kill).differences
                ]
            except BackendUnavailable as error:
                problems = [str(error)]
            assert "cannot be reached" in problems[0]
        moved = migrate(here, there, embedder=WordEmbedder())
        assert (moved.indexed, moved.differences) == (True, ())
        with opened_installation(there) as memos:
            assert answers(memos) == before
            assert memos.maintenance.verify().differences == ()
        assert migrate(there, back, embedder=WordEmbedder()).differences == ()
        with opened_installation(back) as memos:
            assert answers(memos) == before
            assert memos.maintenance.verify().differences == ()

    def test_a_killed_migration_is_repeated(
        self, tmp_path: Path, guarded: tuple[QdrantServer, QdrantSettings], postgres_server: PostgresServer
    ) -> None:
        _, qdrant = guarded
        here, there = installation(tmp_path / "here"), installation(tmp_path / "none", qdrant, postgres_server.url())
        before = filled(here, 80)
        program = f"""
            import os, pickle, signal, sys
            from memos.kernel.relocation import migrate
            from tests.fakes import WordEmbedder
            here, there = pickle.loads(sys.stdin.buffer.read())
            migrate(here, there, embedder=WordEmbedder(), on_items=lambda *_: os.kill(os.getpid(), {signal.SIGKILL:d}))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            input=pickle.dumps((here, there)),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
        assert migrate(here, there, embedder=WordEmbedder()).differences == ()
        with opened_installation(there) as memos:
            assert answers(memos) == before
            assert memos.maintenance.verify().differences == ()

    def test_a_server_killed_in_the_middle_of_adds_has_all_of_them_later(
        self, tmp_path: Path, guarded: tuple[QdrantServer, QdrantSettings]
    ) -> None:
        server, qdrant = guarded
        with opened_installation(installation(tmp_path, qdrant)) as memos:
            adding = threading.Thread(
                target=lambda: [memos.add(f"parcel number{number} arrived", conversation="c") for number in range(30)]
            )
            adding.start()
            adding.join(0.5)
            server.kill()
            adding.join(0.5)
            server.start()
            adding.join(120)
            memos.maintenance.catch_up()
            assert memos.maintenance.verify().differences == ()
            assert len({hit.item.id for hit in memos.search("parcel", top_k=30).hits}) == 30

    def test_a_restored_snapshot_is_found_and_mended(
        self, tmp_path: Path, guarded: tuple[QdrantServer, QdrantSettings]
    ) -> None:
        server, qdrant = guarded
        settings = installation(tmp_path, qdrant)
        client = QdrantClient(url=server.url, headers={"api-key": "the right one"}, timeout=60)

        with opened_installation(settings) as memos:
            memos.add("parcel number0 arrived", conversation="c")
        [name] = [each.name for each in client.get_collections().collections if each.name.startswith(qdrant.collection)]
        snapshot = client.create_snapshot(name, wait=True)
        assert snapshot is not None

        def restore() -> None:
            client.recover_snapshot(name, f"file://{server.snapshots / name / snapshot.name}", wait=True)

        with opened_installation(settings) as memos:
            [kept] = memos.add("parcel number1 arrived", conversation="c").item_ids
            [gone] = memos.search("parcel number0", top_k=1).hits
            memos.erase(gone.item.id)
            restore()  # while it is open: found by whoever looks
            assert {each.subject for each in memos.maintenance.verify().differences} == {kept, gone.item.id}
            assert memos.maintenance.verify(repair=True).differences == ()
        restore()  # while it is closed: noticed as it opens
        with opened_installation(settings) as memos:
            memos.maintenance.catch_up()
            assert memos.maintenance.verify().differences == ()
            assert [hit.item.id for hit in memos.search("parcel").hits] == [kept]
        client.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
