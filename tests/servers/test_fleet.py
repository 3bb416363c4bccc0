"""Three servers and two workers on one installation, killed in the middle: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import itertools
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from memos import MemOS, Settings
from memos.core.settings import LimitSettings, TaskSettings
from memos.memcube.ledger import tasks
from memos.scheduler.rules import TierSettings
from tests.support.servers import postgres_server
from tests.support.servers.fixtures import unavailable
from tests.support.servers.installation import environment, on_servers
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.qdrant_rest import server_settings

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 48
PROXIED = 24
CLIENTS = 4


class Fleet:
    """The processes of one installation; what it starts, it ends."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._processes: list[subprocess.Popen[str]] = []
        self.servers: list[tuple[str, subprocess.Popen[str]]] = []
        self.workers: list[subprocess.Popen[str]] = []
        self.key = ""

    def serve(self) -> None:
        process = self._start({"MEMOS_TASKS__WORKERS": "0"}, "serve", "--port", "0", "--log-level", "error")
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        if not self.key:
            self.key = process.stdout.readline().split()[-1]
        self.servers.append((url, process))

    def work(self) -> None:
        process = self._start({}, "task", "work", "--log-level", "error")
        assert process.stdout is not None
        assert "works on" in process.stdout.readline()
        self.workers.append(process)

    def _start(self, more: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "memos", *arguments], env={**self._environment, **more}, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def stop(self) -> list[int]:
        """End the living in order; return how they ended."""
        living = [process for process in self._processes if process.poll() is None]
        for process in living:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.communicate(timeout=60)
        return [process.returncode for process in living]


def clients(fleet: Fleet, acknowledged: queue.Queue[tuple[int, str]]) -> list[threading.Thread]:
    """Return threads that add numbered messages, each until some server has acknowledged it."""
    numbers, lock = iter(range(MESSAGES)), threading.Lock()

    def run(client: int) -> None:
        choice = random.Random(client)
        with httpx2.Client(timeout=60, trust_env=False) as http:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                body = {"messages": f"fact number {number}", "conversation": f"talk {number % 3}"}
                for _ in itertools.count():
                    headers = {"Authorization": f"Bearer {fleet.key}", "Idempotency-Key": f"key {number}"}
                    try:
                        url, _ = choice.choice(fleet.servers)
                        answer = http.post(f"{url}/api/v1/memories", json=body, headers=headers)
                    except httpx2.TransportError:
                        continue  # it was killed: another one is asked the same
                    if answer.status_code == 201:
                        acknowledged.put((number, answer.json()["item_ids"][0]))
                        break
                    assert answer.status_code >= 500, answer.text

    return [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]


def test_servers_and_workers_are_killed_and_nothing_is_lost_or_doubled(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    short = TierSettings(short_capacity=1)
    with on_servers(tmp_path / "home", postgres_server, neo4j_server, heat=short) as settings:
        fleet, acknowledged, chance = Fleet(environment(settings)), queue.Queue[tuple[int, str]](), random.Random(7)
        try:
            fleet.serve()
            for start in (fleet.serve, fleet.serve, fleet.work, fleet.work):
                start()
            threads = clients(fleet, acknowledged)
            for thread in threads:
                thread.start()
            done = [acknowledged.get(timeout=120) for _ in range(MESSAGES // 4)]
            fleet.servers.pop(chance.randrange(3))[1].kill()
            done += [acknowledged.get(timeout=120) for _ in range(MESSAGES // 4)]
            fleet.workers.pop(chance.randrange(2)).kill()
            done += [acknowledged.get(timeout=120) for _ in range(MESSAGES // 4)]
            fleet.servers.pop(chance.randrange(2))[1].kill()
            for thread in threads:
                thread.join(timeout=120)
                assert not thread.is_alive()
            done += [acknowledged.get_nowait() for _ in range(acknowledged.qsize())]
        finally:
            codes = fleet.stop()
        assert codes == [0, 0]
        assert sorted(number for number, _ in done) == list(range(MESSAGES))
        alone = settings.model_copy(update={"tasks": TaskSettings(workers=2)})
        with MemOS.open(settings=alone) as memos:
            with memos.ledger.write() as connection:  # the time of leases of the dead has come
                connection.exec_driver_sql("UPDATE tasks SET lease_until = 0 WHERE state = 'running'")
            memos.tasks.wait(timeout_s=120)
            with memos.ledger.read() as connection:
                assert not tasks.unended(connection, None)
            stored = memos.memories.list(cube="admin", limit=1_000, filter={"type": "message"})
            assert Counter(item.memory for item in stored) == {f"fact number {n}": 1 for n in range(MESSAGES)}
            assert {item.id for item in stored} == {item for _, item in done}
            memos.tiers.analyse(everything=True, cube="admin")
            memos.tasks.wait(timeout_s=120)
            assert sum(segment.pages for segment in memos.tiers.segments(cube="admin")) > 0
            assert memos.maintenance.verify().differences == ()


@contextmanager
def proxy(servers: list[str], folder: Path) -> Iterator[str]:
    """Yield the address of HAProxy with deploy/haproxy.cfg in front of servers."""
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        unavailable("HAProxy is not here: sh scripts/install_servers.sh")
    assert program is not None
    port, health = postgres_server.free_port(), postgres_server.free_port()
    lines = "\n    ".join(f"server s{number} {urlsplit(url).netloc}" for number, url in enumerate(servers))
    config = (ROOT / "deploy/haproxy.cfg").read_text(encoding="utf-8")
    for told, here in (
        ("bind :8780", f"bind 127.0.0.1:{port}"),
        ("bind :8404", f"bind 127.0.0.1:{health}"),
        ("server-template replica 8 replica:8765 resolvers docker init-addr none", lines),
    ):
        assert told in config
        config = config.replace(told, here)
    (folder / "haproxy.cfg").write_text(config, encoding="utf-8")
    started = subprocess.Popen([program, "-db", "-f", folder / "haproxy.cfg"], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        with httpx2.Client(trust_env=False) as http:
            while time.monotonic() < until:
                with suppress(httpx2.TransportError):
                    if http.get(f"http://127.0.0.1:{health}/health").status_code == 200:
                        break
                time.sleep(0.1)
            assert http.get(f"http://127.0.0.1:{port}/metrics").status_code == 404
        yield f"http://127.0.0.1:{port}"
    finally:
        started.kill()
        started.wait()


def test_behind_the_proxy_no_request_is_lost_when_a_server_is_killed(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    nowhere = tmp_path / "file" / "home"  # a folder that cannot be made: without an embedded index none is needed
    nowhere.parent.touch()
    with server_settings() as qdrant:
        limits = LimitSettings(min_free_bytes=1_000_000)
        settings = Settings(home=nowhere, ledger_url=postgres_server.url(), qdrant=qdrant, limits=limits)
        fleet, answered = Fleet(environment(settings)), queue.Queue[httpx2.Response]()

        def add(address: str, client: int) -> None:
            with httpx2.Client(timeout=240, trust_env=False) as http:
                for number in range(client, PROXIED, CLIENTS):
                    headers = {"Authorization": f"Bearer {fleet.key}", "Idempotency-Key": f"key {number}"}
                    body = {"messages": f"fact number {number}"}
                    answered.put(http.post(f"{address}/api/v1/memories", json=body, headers=headers))

        try:
            fleet.serve()
            fleet.serve()
            with proxy([url for url, _ in fleet.servers], tmp_path) as address:
                threads = [threading.Thread(target=add, args=(address, client)) for client in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                answers = [answered.get(timeout=300) for _ in range(PROXIED // 3)]
                fleet.servers.pop()[1].kill()
                answers += [answered.get(timeout=300) for _ in range(PROXIED - len(answers))]
                for thread in threads:
                    thread.join(timeout=10)
        finally:
            codes = fleet.stop()
        assert codes == [0]
        assert [(answer.status_code, answer.text) for answer in answers if answer.status_code != 201] == []
        with MemOS.open(settings=settings) as memos:
            stored = memos.memories.list(cube="admin", limit=1_000)
            assert Counter(item.memory for item in stored) == {f"fact number {n}": 1 for n in range(PROXIED)}
