"""A server as a process: it ends in order while a request is under way, and answers who watches it while it is busy."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api.app import create_app
from memos.memcube.ledger import counts
from memos.ports import Vector
from memos.serving import first_key
from memos.settings import IndexSettings, LimitSettings, ServerSettings
from tests.fakes import WordEmbedder


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "memos", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def refused(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return True
    return False


def test_a_stop_lets_a_request_under_way_end_and_gives_everything_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with process("serve", "--port", "0", "--data-dir", str(home)) as server, ExitStack() as kept:
        assert server.stdout is not None
        url = urlsplit(server.stdout.readline().split()[-1])
        key = server.stdout.readline().split()[-1]
        assert url.hostname is not None
        assert url.port is not None
        body = json.dumps({"messages": [f"message {number}" for number in range(40)]}).encode()
        slow = kept.enter_context(closing(http.client.HTTPConnection(url.hostname, url.port, timeout=60)))
        slow.putrequest("POST", "/api/v1/memories")
        for name, value in {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}.items():
            slow.putheader(name, value)
        slow.putheader("Content-Length", str(len(body)))
        slow.endheaders(body[:10])  # it has begun, and waits for the rest
        quick = kept.enter_context(closing(http.client.HTTPConnection(url.hostname, url.port, timeout=60)))
        quick.request("GET", "/metrics")
        while b"memos_requests_under_way 2.0" not in quick.getresponse().read():
            quick.request("GET", "/metrics")
        server.send_signal(signal.SIGTERM)
        while not refused(url.hostname, url.port):
            pass
        assert server.poll() is None
        slow.send(body[10:])
        answer = slow.getresponse()
        assert answer.status == 201
        stored = json.loads(answer.read())["item_ids"]
        _, log = server.communicate(timeout=60)
        assert server.returncode == 0
    entries = [json.loads(line) for line in log.splitlines()]
    assert [entry["status"] for entry in entries if entry.get("route") == "/api/v1/memories"] == [201]
    assert key not in log
    assert endpoint.find(home) is None
    with MemOS.open(home, settings=Settings(tasks={"workers": 0})) as memos:  # which takes no task itself
        assert {item.id for item in memos.list(cube="admin")} == set(stored)
        with memos.ledger.read() as connection:
            assert counts.running(connection, None) == []
        assert memos.verify().clean


def test_a_worker_does_what_waits_and_ends_in_order(tmp_path: Path) -> None:
    settings = Settings(tasks={"workers": 0}, heat={"short_capacity": 1})
    with MemOS.open(tmp_path, settings=settings) as memos:
        memos.add([f"message {number}" for number in range(8)], conversation="c")
        assert memos.tasks.list()
        newest = memos.events.list("default")[-1].seq
    with process("work", "--data-dir", str(tmp_path)) as worker:
        assert worker.stdout is not None
        assert "memstrata works on" in worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
        assert (worker.returncode, out) == (0, "")
    with MemOS.open(tmp_path, settings=settings) as memos:
        with memos.ledger.read() as connection:
            assert counts.running(connection, None) == []
        assert memos.events.list("default")[-1].seq >= newest
    refusing = subprocess.run(
        [sys.executable, "-m", "memos", "work", "--data-dir", str(tmp_path)], capture_output=True, text=True,
        env={**os.environ, "MEMOS_TASKS__WORKERS": "0"}, check=False,
    )  # fmt: skip
    assert refusing.returncode == 2
    assert "MEMOS_TASKS__WORKERS" in refusing.stderr


class Gated(WordEmbedder):
    """An embedder whose documents wait until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.waiting = threading.Event(), threading.Semaphore(0)
        self.gate.set()

    def embed_documents(self, texts: Any) -> Vector:
        if not self.gate.is_set():
            self.waiting.release()
            assert self.gate.wait(60)
        return super().embed_documents(texts)


def test_who_watches_is_answered_while_imports_keep_every_thread_busy(tmp_path: Path) -> None:
    settings = Settings(
        index=IndexSettings(wait_s=60), limits=LimitSettings(min_free_bytes=1_000_000), server=ServerSettings(threads=4)
    )
    embedder = Gated()
    with MemOS.open(tmp_path, settings=settings, embedder=embedder) as memos:
        headers = {"Authorization": f"Bearer {first_key(memos)}"}
        with TestClient(create_app(memos)) as client:
            embedder.gate.clear()
            statuses: list[int] = []

            def bulk(number: int) -> None:
                body = {"messages": [f"import {number} of {place}" for place in range(100)]}
                statuses.append(client.post("/api/v1/memories", json=body, headers=headers).status_code)

            threads = [threading.Thread(target=bulk, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            try:
                assert embedder.waiting.acquire(timeout=60)
                while "memos_requests_under_way 7.0" not in client.get("/metrics").text:
                    pass
                for _ in range(20):
                    assert client.get("/health").status_code == 200
                assert client.get("/ready").status_code == 200
                assert client.post("/api/v1/search", json={"query": "x"}).status_code == 401
                assert statuses == []
            finally:
                embedder.gate.set()
                for thread in threads:
                    thread.join()
            assert statuses == [201] * 6
