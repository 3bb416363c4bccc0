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
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api.app import create_app
from memos.api.local.client import served
from memos.api.local.routes import alone
from memos.api.local.sharing import in_background
from memos.api.serving import first_key
from memos.core.ports import Vector
from memos.core.settings import IndexSettings, LimitSettings
from memos.kernel.importing import import_export
from memos.memcube.ledger import queries as counts
from memos.scheduler.rules import TierSettings
from tests.fakes import WordEmbedder


@contextmanager
def process(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "memos", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
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
        assert {item.id for item in memos.memories.list(cube="admin")} == set(stored)
        with memos.ledger.read() as connection:
            assert counts.running(connection, None) == []
        assert memos.maintenance.verify().clean


def signs_in(line: str) -> bool:
    link = httpx2.URL(line.split("Console: ")[1].strip())
    answer = httpx2.post(link.copy_with(query=None), data={"link": link.params["link"]}, trust_env=False)
    return answer.status_code == 303 and "memos_session" in answer.cookies


def test_the_console_is_opened_on_a_running_server_or_on_one_that_it_starts(tmp_path: Path) -> None:
    arguments = ("console", "--no-browser", "--data-dir", str(tmp_path))
    with process(*arguments, "--port", "0") as first:
        assert first.stdout is not None
        told = [first.stdout.readline() for _ in range(3)]
        assert signs_in(told[2])
        with process(*arguments) as second:
            line, _ = second.communicate(timeout=60)
            assert second.returncode == 0
            assert signs_in(line)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    with (
        MemOS.open(tmp_path, embedder=WordEmbedder()) as memos,
        in_background(tmp_path, lambda token, stopping: alone(memos, token, stopping)),
        process(*arguments) as second,
    ):
        _, error = second.communicate(timeout=60)
        assert second.returncode == 6
        assert f"Process {os.getpid()} has" in error


def test_a_worker_does_what_waits_and_ends_in_order(tmp_path: Path) -> None:
    settings = Settings(tasks={"workers": 0}, heat=TierSettings(short_capacity=1))
    with MemOS.open(tmp_path, settings=settings) as memos:
        memos.add([f"message {number}" for number in range(8)], conversation="c")
        assert memos.tasks.list()
        newest = memos.events.list("default")[-1].seq
    with process("work", "--data-dir", str(tmp_path)) as worker:
        assert worker.stdout is not None
        assert "hippocube works on" in worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
        assert (worker.returncode, out) == (0, "")
    with MemOS.open(tmp_path, settings=settings) as memos:
        with memos.ledger.read() as connection:
            assert counts.running(connection, None) == []
        assert memos.events.list("default")[-1].seq >= newest
    refusing = subprocess.run(
        [sys.executable, "-m", "memos", "task", "work", "--data-dir", str(tmp_path)], capture_output=True, text=True,
        env={**os.environ, "MEMOS_TASKS__WORKERS": "0"}, check=False,
    )  # fmt: skip
    assert refusing.returncode == 2
    assert "MEMOS_TASKS__WORKERS" in refusing.stderr


_LONG_S = 0.15


class Slow(WordEmbedder):
    """An embedder whose documents wait at a gate, then each computes for `text_s`, never letting go of the interpreter.

    It keeps when it computed, and how long it had a processor for that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.waiting = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        self.text_s = 0.0
        self.batches: list[tuple[float, float]] = []
        self.computed_s = 0.0

    def embed_documents(self, texts: Any) -> Vector:
        if not self.gate.is_set():
            self.waiting.release()
            assert self.gate.wait(300)
        began, spent_s = time.monotonic(), len(texts) * self.text_s
        until = time.thread_time() + spent_s
        while time.thread_time() < until:
            pass
        if spent_s >= _LONG_S:  # shorter ones may well lie within one call
            self.batches.append((began, time.monotonic()))
            self.computed_s += spent_s
        return super().embed_documents(texts)


class Watched(NamedTuple):
    """A server that listens, the folder it serves, and its embedder."""

    home: Path
    url: str
    headers: dict[str, str]
    embedder: Slow

    def add(self, what: str) -> int:
        """Add 100 messages in one request; return its status."""
        body = {"messages": [f"{what} of {place}" for place in range(100)]}
        with asking(self) as client:
            return client.post("/api/v1/memories", json=body, headers=self.headers).status_code


def asking(watched: Watched) -> httpx2.Client:
    return httpx2.Client(base_url=watched.url, timeout=300, verify=False)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    settings = Settings(index=IndexSettings(wait_s=60), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("watched")
    embedder = Slow()
    patched = pytest.MonkeyPatch()
    patched.setattr("memos.api.app.THREADS", 4)
    with (
        MemOS.open(home, settings=settings, embedder=embedder) as memos,
        in_background(home, lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)) as told,
    ):
        yield Watched(home, told.url, {"Authorization": f"Bearer {first_key(memos)}"}, embedder)
    patched.undo()


@contextmanager
def at_once(*works: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Do work in a thread each, which have ended when the block has."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()


def test_who_watches_is_answered_while_imports_keep_every_thread_busy(watched: Watched) -> None:
    embedder = watched.embedder
    embedder.gate.clear()
    statuses: list[int] = []

    def bulk(number: int) -> None:
        statuses.append(watched.add(f"import {number}"))

    with asking(watched) as client, at_once(*(partial(bulk, n) for n in range(6))):
        try:
            assert embedder.waiting.acquire(timeout=60)
            deadline = time.monotonic() + 60
            while "memos_requests_under_way 7.0" not in client.get("/metrics").text:
                assert statuses == [], "an import ended before its time"
                assert time.monotonic() < deadline, "not all imports arrived"
            for _ in range(20):
                assert client.get("/health").status_code == 200
            assert client.get("/ready").status_code == 200
            assert client.post("/api/v1/search", json={"query": "x"}).status_code == 401
            assert statuses == []
        finally:
            embedder.gate.set()
    assert statuses == [201] * 6


def test_health_is_answered_within_100_ms_while_imports_compute(watched: Watched, tmp_path: Path) -> None:
    lines = [json.dumps({"role": "user", "content": f"line {number}"}) for number in range(100)]
    export = tmp_path / "export.jsonl"
    export.write_text("\n".join(lines), encoding="utf-8")
    remote, embedder = served(watched.home), watched.embedder
    assert remote is not None
    ended: list[int] = []
    asked: list[tuple[float, float]] = []
    embedder.text_s = 0.004
    works = (
        lambda: ended.append(watched.add("bulk")),
        lambda: ended.append(import_export(remote, export, cube="default").added),
    )
    with remote, asking(watched) as client, at_once(*works) as imports:
        while any(thread.is_alive() for thread in imports):
            began = time.monotonic()
            assert client.get("/health").status_code == 200
            asked.append((began, time.monotonic()))
    assert sorted(ended) == [100, 201]
    waited = [
        ended - began
        for began, ended in asked
        if any(began < over and begun < ended for begun, over in embedder.batches)
    ]
    waited_for = [
        (begun, over)
        for begun, over in embedder.batches
        if any(began < begun and over < ended for began, ended in asked)
    ]
    # On a machine that gives computing a third of its time, an answer may take three times as long.
    slower = sum(over - begun for begun, over in embedder.batches) / embedder.computed_s
    assert len(waited_for) < max(1, slower)
    assert median(waited) < 0.1 * max(1, slower)
