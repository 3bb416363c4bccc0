"""What only a real Qdrant server can show: keys, TLS, strict mode, kills, snapshots and quantised vectors.

It is built by `scripts/build_qdrant.sh`, which takes an hour, so that no CI does; where it is, these run. With
QDRANT_BIN set to it, all tests that need a Qdrant server use it instead of the double.
"""

from __future__ import annotations

import datetime
import ipaddress
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from qdrant_client import QdrantClient

from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.filters import parse
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.settings import QdrantSettings
from memos.core.types import Arm
from memos.errors import BackendUnavailable
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
