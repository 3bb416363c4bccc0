"""The index on a Qdrant server under faults, races and wrong settings; what it asks of the server.

These need a server that fails on command, so they ask the double of `tests/support/servers/qdrant_rest.py`, which
differs from a real one as told there. The contract suite and the filter tests ask a real server when QDRANT_URL or
QDRANT_BIN names one; what needs a real one is in `test_real_qdrant.py`.
"""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from qdrant_client import models

from memos.backends.encoders.bm25 import QdrantBm25
from memos.backends.qdrant import server as qdrant_calls
from memos.backends.qdrant.filters import INTEGERS, KEYWORDS
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.ports import ArmQuery, VectorPoint, VectorSearch
from memos.core.settings import QdrantSettings
from memos.core.types import Arm
from memos.errors import BackendTimeout, BackendUnavailable, IntegrityError, InvalidInput, MemosError
from tests.support.servers.qdrant_rest import QdrantDouble

DIMENSION = 8
KEY = "s3cret-qdrant-key"
BM25 = QdrantBm25()
ONES = np.ones(DIMENSION, dtype=np.float32)


def point(number: int, **payload: Any) -> VectorPoint:
    base: dict[str, Any] = {
        "cube": "a", "item": f"item-{number}", "version": 1, "revision": 1, "recorded_from": 1, "info": {},
    }  # fmt: skip
    terms = BM25.encode_document("word")
    return VectorPoint(str(uuid.UUID(int=number + 1)), {**base, **payload}, ONES, ONES, terms, terms)


def found(index: QdrantServerIndex, **options: Any) -> set[str]:
    [hits] = index.search(VectorSearch(("a",), (ArmQuery(Arm.TURN, ONES),), 5_000, **options))
    return {hit.item for hit in hits}


def settings_of(double: QdrantDouble, **options: Any) -> QdrantSettings:
    return QdrantSettings(**{"url": double.url, **options})


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    with QdrantDouble() as opened:
        yield opened


@pytest.fixture
def index(double: QdrantDouble) -> Iterator[QdrantServerIndex]:
    opened = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
    yield opened
    opened.close()


def refusal(kind: type[MemosError], asked: QdrantSettings) -> str:
    """Return the one sentence with which opening is refused; no traceback of it has the key."""
    with pytest.raises(kind) as caught:
        QdrantServerIndex.open(asked, "words-8-3", DIMENSION)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    message = str(caught.value)
    assert message.count("\n") == 0
    return message


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def listening(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    """Yield the URL of a server with this handler."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


class TestReaching:
    """Opening against what is no usable server says what is wrong and what to do."""

    def test_nothing_listens(self) -> None:
        url = f"http://someone:{KEY}@127.0.0.1:{closed_port()}"
        message = refusal(BackendUnavailable, QdrantSettings(url=url, api_key=SecretStr(KEY)))
        assert "cannot be reached" in message
        assert "MEMOS_QDRANT__URL" in message

    @pytest.mark.parametrize(
        ("status", "page"),
        [(200, b"<html>hello</html>"), (200, b"\xff\xfe\xff"), (200, b'{"tagline": "You Know, for Search"}'),
         (200, b'{"title": "shop", "version": "spring"}'), (404, b"nothing here")],
    )  # fmt: skip
    def test_another_web_server_answers(self, status: int, page: bytes) -> None:
        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                pass

        with listening(Pages) as url:
            message = refusal(BackendUnavailable, QdrantSettings(url=url, api_key=SecretStr(KEY)))
        assert "is not a Qdrant server" in message
        assert url in message

    def test_something_that_speaks_no_http_answers(self) -> None:
        class Greeting(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        with listening(Greeting) as url:
            assert "cannot be reached" in refusal(BackendUnavailable, QdrantSettings(url=url))

    def test_a_server_that_never_answers_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(qdrant_calls, "TIMEOUT_S", 1)
        over = threading.Event()

        class Silence(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                over.wait(30)

        with listening(Silence) as url:
            message = refusal(BackendTimeout, QdrantSettings(url=url, api_key=SecretStr(KEY)))
            over.set()
        assert "within 1 s" in message

    @pytest.mark.parametrize("url", [None, "", ":memory:", "127.0.0.1:6333", "ftp://127.0.0.1", "http://[::1"])
    def test_what_is_no_url_of_a_server_is_refused(self, url: str | None) -> None:
        assert "MEMOS_QDRANT__URL" in refusal(InvalidInput, QdrantSettings(url=url, api_key=SecretStr(KEY)))

    @pytest.mark.parametrize("version", ["1.18.9", "1.15.0", "0.11.7"])
    def test_an_older_server_is_refused(self, version: str) -> None:
        with QdrantDouble(version=version) as old:
            message = refusal(BackendUnavailable, settings_of(old))
        assert version in message
        assert "1.19" in message

    @pytest.mark.parametrize("version", ["1.19.0", "1.20.1-dev", "2.0.0"])
    def test_a_newer_server_is_taken(self, version: str) -> None:
        with QdrantDouble(version=version) as new:
            QdrantServerIndex.open(settings_of(new), "words-8-3", DIMENSION).close()

    def test_a_wrong_key_a_missing_key_and_the_right_one(self) -> None:
        with QdrantDouble(key="the right one") as locked:
            assert "refused the API key" in refusal(BackendUnavailable, settings_of(locked, api_key=SecretStr(KEY)))
            assert "asks for an API key" in refusal(BackendUnavailable, settings_of(locked))
            index = QdrantServerIndex.open(settings_of(locked, api_key=SecretStr("the right one")), "x", DIMENSION)
            index.upsert([point(1)])
            assert found(index) == {"item-1"}
            index.close()

    def test_a_missing_package_is_named_with_its_extra(self) -> None:
        program = (
            "import sys; sys.modules['qdrant_client'] = None\n"
            "from memos.errors import BackendUnavailable\n"
            "try:\n    import memos.backends.qdrant.server\n"
            "except BackendUnavailable as error:\n    print(error)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.count("\n") == 1
        assert "pip install '.[qdrant]'" in done.stdout


class TestRetrying:
    """What may pass is asked again, for a bounded time; what cannot is not."""

    def test_a_server_that_comes_back_is_asked_again(self, double: QdrantDouble) -> None:
        double.faults.extend([503, 502])
        index = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
        double.faults.extend([500, 429, 503])
        index.upsert([point(1)])
        assert not double.faults
        double.faults.append(503)
        assert found(index) == {"item-1"}
        index.close()

    def test_a_lost_connection_is_made_again(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        drops = iter([True, True])

        def drop(_method: str, _path: str) -> None:
            if next(drops, False):
                raise ConnectionAbortedError("dropped by the test")

        double.before = drop
        index.upsert([point(1)])
        assert found(index) == {"item-1"}

    def test_retries_end(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        before = len(double.asked)
        double.faults.extend([503] * 100)
        with pytest.raises(BackendUnavailable, match=r"cannot answer now \(503 scripted 503\)"):
            index.upsert([point(1)])
        assert len(double.asked) - before == 5

    def test_retries_end_with_the_time_a_call_may_take(
        self, double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(qdrant_calls, "_RANDOM", SimpleNamespace(uniform=lambda _low, high: high))
        monkeypatch.setattr(qdrant_calls, "TIMEOUT_S", 1)
        index = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
        double.faults.extend([503] * 100)
        before = len(double.asked)
        with pytest.raises(BackendUnavailable):
            index.mark()
        assert len(double.asked) - before < 5  # as many as without the limit
        index.close()

    @pytest.mark.parametrize("status", [400, 422, 413])
    def test_a_refused_call_is_not_repeated(self, double: QdrantDouble, index: QdrantServerIndex, status: int) -> None:
        before = len(double.asked)
        double.faults.extend([status] * 2)
        with pytest.raises(BackendUnavailable, match=f"refused a call \\({status} scripted {status}\\)"):
            found(index)
        assert len(double.asked) - before == 1

    def test_a_collection_that_was_deleted_meanwhile(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        double.holds.delete_collection("memos-words-8-3")
        with pytest.raises(BackendUnavailable, match="no longer has this index"):
            found(index)

    def test_closed_is_closed(self, index: QdrantServerIndex) -> None:
        index.close()
        index.close()
        for call in (index.mark, index.cubes, lambda: found(index), lambda: index.upsert([point(1)])):
            with pytest.raises(BackendUnavailable, match="closed"):
                call()  # type: ignore[operator]


class TestCollection:
    """The collection is laid out for searches that name their cubes, made once, and checked."""

    def test_its_layout(self, double: QdrantDouble) -> None:
        QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION).close()
        made = double.created["memos-words-8-3"]
        assert made["hnsw_config"]["m"] == 0
        assert made["hnsw_config"]["payload_m"] == 16
        # Shards and copies are what the server is set to give.
        assert made.get("shard_number") is made.get("replication_factor") is None
        assert {name: (v["size"], v["distance"]) for name, v in made["vectors"].items()} == {
            "turn": (DIMENSION, "Cosine"),
            "window": (DIMENSION, "Cosine"),
        }
        assert {v["modifier"] for v in made["sparse_vectors"].values()} == {"idf"}
        indexes = double.indexes["memos-words-8-3"]
        assert set(indexes) == {"cube", "standing", *KEYWORDS, *INTEGERS}
        graphs = [name for name, entry in indexes.items() if entry["params"].get("enable_hnsw", True)]
        assert sorted(graphs) == ["cube", "standing"]
        assert [name for name, entry in indexes.items() if entry["params"].get("is_tenant")] == ["cube"]

    def test_on_disk_keeps_8_bits_in_memory_and_judges_by_the_full_vectors(self, double: QdrantDouble) -> None:
        index = QdrantServerIndex.open(settings_of(double, on_disk=True), "words-8-3", DIMENSION)
        for vector in double.created["memos-words-8-3"]["vectors"].values():
            assert vector["memory"] == "cold"
            assert vector["quantization_config"]["scalar"]["type"] == "int8"
            assert vector["quantization_config"]["scalar"]["memory"] == "pinned"
        found(index)
        assert double.searches[-1]["searches"][0]["params"]["quantization"]["rescore"] is True
        index.close()

    def test_another_process_may_make_it_at_the_same_moment(self, double: QdrantDouble) -> None:
        others: list[QdrantServerIndex] = []

        def interfere(method: str, path: str) -> None:
            if (method, path) == ("PUT", "/collections/memos-words-8-3"):
                double.before = lambda _method, _path: None
                others.append(QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION))

        double.before = interfere
        mine = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
        others[0].upsert([point(1)])
        assert found(mine) == {"item-1"}
        for index in (mine, *others):
            index.close()

    def test_many_may_open_it_at_once(self, double: QdrantDouble) -> None:
        start = threading.Barrier(6)

        def use(number: int) -> None:
            start.wait(10)
            index = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
            index.upsert([point(number)])
            index.close()

        with futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(use, range(6)))
        index = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
        assert found(index) == {f"item-{number}" for number in range(6)}
        index.close()

    def test_what_its_maker_left_undone_is_done(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        for name in ("cube", "revision"):
            del double.indexes["memos-words-8-3"][name]
        before = len(double.asked)
        QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION).close()
        assert {"cube", "revision"} <= set(double.indexes["memos-words-8-3"])
        assert sum(path.endswith("/index") for _, path in double.asked[before:]) == 2

    def test_vectors_of_another_length_are_refused(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        with pytest.raises(IntegrityError, match="holds vectors of 8 dimensions, but the embedder makes 12"):
            QdrantServerIndex.open(settings_of(double), "words-8-3", 12)

    def test_someone_elses_collection_is_refused(self, double: QdrantDouble) -> None:
        foreign(double, "memos-words-8-3")
        assert "was not made by hippocube" in refusal(IntegrityError, settings_of(double))

    def test_the_alias_moves_and_only_former_collections_go(self, double: QdrantDouble) -> None:
        for name in ("memos-shop", "memosaic", "other-words-8-2"):
            foreign(double, name)
        QdrantServerIndex.open(
            settings_of(double, url=f"{double.url}?collection=memos2"), "words-8-2", DIMENSION
        ).close()
        former = QdrantServerIndex.open(settings_of(double), "words-8-2", DIMENSION)
        former.use()
        assert aliases(double) == {"memos": "memos-words-8-2"}
        current = QdrantServerIndex.open(settings_of(double), "words-8-3", DIMENSION)
        current.upsert([point(1)])
        current.use()
        current.use()
        assert aliases(double) == {"memos": "memos-words-8-3"}
        assert current.remove_others() == ["memos-words-8-2"]
        assert current.remove_others() == []
        left = {entry.name for entry in double.holds.get_collections().collections}
        assert left == {"memos-shop", "memosaic", "other-words-8-2", "memos2-words-8-2", "memos-words-8-3"}
        assert found(current) == {"item-1"}
        former.close()
        current.close()


def foreign(double: QdrantDouble, name: str) -> None:
    """Make a collection as another program would."""
    double.holds.create_collection(name, vectors_config=models.VectorParams(size=4, distance=models.Distance.DOT))


def aliases(double: QdrantDouble) -> dict[str, str]:
    return {entry.alias_name: entry.collection_name for entry in double.holds.get_aliases().aliases}


class TestAsking:
    """What goes over the wire: few calls, of bounded size."""

    def test_all_arms_are_one_call(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        index.upsert([point(1, standing=1), point(2, standing=2)])
        terms = BM25.encode_query("word")
        before = len(double.asked)
        arms = tuple(ArmQuery(arm, terms if "bm25" in arm else ONES) for arm in Arm)
        hits = index.search(VectorSearch(("a",), arms, 5))
        found = {arm: {hit.item for hit in its} for arm, its in zip(Arm, hits, strict=True)}
        assert found.pop(Arm.STANDING) == {"item-1"}
        assert found.pop(Arm.OF_SELF) == {"item-2"}
        assert all(its == {"item-1", "item-2"} for its in found.values())
        assert len(double.asked) - before == 1

    def test_an_arm_without_terms_is_not_asked(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        index.upsert([point(1)])
        nothing = ArmQuery(Arm.TURN_BM25, BM25.encode_query("the of and"))
        before = len(double.asked)
        assert index.search(VectorSearch(("a",), (nothing,), 5)) == [[]]
        assert len(double.asked) == before
        empty, full = index.search(VectorSearch(("a",), (nothing, ArmQuery(Arm.TURN, ONES)), 5))
        assert (empty, [hit.key for hit in full]) == ([], ["item-1:1"])

    def test_large_writes_are_cut_into_requests_that_a_server_takes(
        self, double: QdrantDouble, index: QdrantServerIndex
    ) -> None:
        double.sizes.clear()
        index.upsert([point(number, info={"x": "y" * 3_000_000}) for number in range(7)])
        assert len(double.sizes) == 4
        assert max(double.sizes) < 9_000_000
        assert found(index) == {f"item-{number}" for number in range(7)}

    def test_pruning_many_items_takes_few_calls(self, double: QdrantDouble, index: QdrantServerIndex) -> None:
        index.upsert([point(number, revision=1 + number % 2) for number in range(40)])
        before = len(double.asked)
        gone: dict[str, int | None] = {f"item-{number}": None for number in range(10, 1_300)}
        index.prune({**{f"item-{number}": 2 for number in range(10)}, **gone})
        assert len(double.asked) - before <= 3
        assert found(index) == {f"item-{number}" for number in range(1, 10, 2)}

    def test_the_mark_is_no_memory(self, index: QdrantServerIndex) -> None:
        index.flush(3)
        index.flush(4)
        assert index.mark() == 4
        assert index.cubes() == []
        assert found(index) == set()
        index.upsert([point(1)])
        assert (index.cubes(), [stamp.item for stamp in index.scan("a")]) == (["a"], ["item-1"])
        index.prune({"item-1": None})
        assert (index.cubes(), index.mark()) == ([], 4)

    def test_a_scan_goes_on_over_its_pages(self, index: QdrantServerIndex) -> None:
        index.upsert([point(number) for number in range(2_100)])
        assert {stamp.item for stamp in index.scan("a")} == {f"item-{number}" for number in range(2_100)}

    def test_threads_may_share_it(self, index: QdrantServerIndex) -> None:
        def work(number: int) -> None:
            index.upsert([point(number)])
            assert f"item-{number}" in found(index)

        with futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(40)))
        assert len(found(index)) == 40
