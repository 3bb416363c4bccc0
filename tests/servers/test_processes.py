"""Several processes on one ledger: conversations keep their order, nothing acknowledged is lost, indexes converge."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from memos import MemOS, Settings
from memos.backends.qdrant.server import QdrantServerIndex
from memos.core.types import LinkKind, Relation
from memos.errors import BackendUnavailable
from memos.memcube.indexing.projection import SharedProjection
from memos.memcube.ledger import items, outbox
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.relations import store
from tests.fakes import WordEmbedder
from tests.support.ledgers import Store
from tests.support.servers.installation import environment, on_servers, opened
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer

WRITER = """
import sys
from memos import MemOS
from tests.fakes import WordEmbedder
name, exchanges = sys.argv[1], int(sys.argv[2])
with MemOS.open(embedder=WordEmbedder()) as memos:
    print("open", flush=True)
    sys.stdin.readline()
    for number in range(exchanges):
        memos.add(
            [
                {"role": "user", "content": f"question {name} {number}", "message_id": f"q{name}{number}"},
                {"role": "assistant", "content": f"answer {name} {number}", "message_id": f"a{name}{number}"},
            ],
            conversation="together",
        )
        print(number, flush=True)
"""


@pytest.fixture
def settings(tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer) -> Iterator[Settings]:
    with on_servers(tmp_path / "home", postgres_server, neo4j_server) as made:
        yield made


def writer(settings: Settings, name: str, exchanges: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(exchanges)],
        env=environment(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def acknowledged(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(line) for line in process.stdout]


def test_four_processes_write_one_conversation_and_two_of_them_are_killed(settings: Settings) -> None:
    names, exchanges = ("alpha", "bravo", "carol", "delta"), 15
    processes = {name: writer(settings, name, exchanges) for name in names}
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    done: dict[str, list[int]] = {}
    for name in names[:2]:
        stdout = processes[name].stdout
        assert stdout is not None
        done[name] = [int(stdout.readline()) for _ in range(4)]
        processes[name].send_signal(signal.SIGKILL)
    for name, process in processes.items():
        done.setdefault(name, []).extend(acknowledged(process))
        assert process.wait() == (-signal.SIGKILL if name in names[:2] else 0)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
    with opened(settings) as memos:
        said = sorted(
            memos.memories.list(filter={"conversation": "together"}, limit=1_000), key=lambda item: item.position or 0
        )
        assert [item.position for item in said] == list(range(len(said)))
        # An exchange is one page, whoever wrote in between.
        for question, answer in zip(said[::2], said[1::2], strict=True):
            assert answer.memory == question.memory.replace("question", "answer")
            assert answer.page == question.page
        assert [item.page for item in said[::2]] == list(range(len(said) // 2))
        stored = Counter(item.memory for item in said)
        assert set(stored.values()) == {1}
        for name in names:
            assert {f"question {name} {number}" for number in done[name]} <= set(stored)
        assert [number for number in range(exchanges) if f"question carol {number}" in stored] == list(range(exchanges))
        report = memos.maintenance.verify()
        assert report.differences == ()
        assert report.items == len(said)
        # Its neighbours hold the same words but one, and who wrote beside whom differs from run to run.
        found = memos.search("question delta 7", top_k=5)
        assert found.missing_arms == ()
        assert "question delta 7" in {hit.item.memory for hit in found.hits}


def test_what_one_process_changes_the_other_sees_at_once(settings: Settings) -> None:
    with opened(settings) as one, opened(settings) as other:
        item = one.add("The violin is in the attic.").item_ids[0]
        assert other.search("violin", top_k=1).hits[0].item.id == item
        other.update(item, "The violin was sold.")
        assert one.get(item).memory == "The violin was sold."
        assert one.search("violin sold", top_k=1).hits[0].item.version == 2
        one.cubes.create("mine")
        assert other.search("violin", cubes=["mine"]).hits == ()
        other.erase(item)
        assert one.search("violin").hits == ()
        assert one.maintenance.verify().differences == () == other.maintenance.verify().differences


def test_a_process_with_an_embedded_index_wants_the_ledger_for_itself(settings: Settings, tmp_path: Path) -> None:
    embedded = Settings(home=tmp_path / "embedded", ledger_url=settings.ledger_url)
    with (
        opened(settings),
        pytest.raises(
            BackendUnavailable,
            match="Other processes use this ledger, but a migration or an embedded index needs it alone",
        ),
    ):
        opened(embedded)
    with opened(embedded), pytest.raises(BackendUnavailable, match="A process with an embedded index uses this ledger"):
        opened(settings)
    with opened(settings) as memos:
        assert memos.cubes.list()


class Watching:
    """A follower that notes which items are written at the same time, and what it was last given of each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.revisions: dict[str, int] = {}
        self.overlaps: list[str] = []
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()

    def project(self, item_ids: Sequence[str], following: Sequence[str] = ()) -> None:
        with self._lock:
            self._busy.update(item_ids)
            self.overlaps += [item for item in item_ids if self._busy[item] > 1]
        with self.ledger.read() as connection:
            found = items.revisions(connection, item_ids)
        threading.Event().wait(0.002)  # the longer a write takes, the likelier two meet
        with self._lock:
            self.revisions.update(found)
            self._busy.subtract(item_ids)

    def flush(self, mark: int) -> None:
        pass

    def mark(self) -> int:
        return 0

    def restart_count(self) -> int:
        return 0


def test_an_item_has_one_writer_at_a_time_and_ends_as_the_ledger_has_it(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    ledgers = [Ledger.open(url) for _ in range(3)]
    store = Store(ledgers[0])
    store.make("default")
    ids = store.add([{"role": "user", "content": f"fact {n}"} for n in range(6)], conversation="c").item_ids
    follower = Watching(ledgers[0])
    writers = [SharedProjection(ledger, "vector", follower) for ledger in ledgers]
    stop = threading.Event()

    def drain(projection: SharedProjection) -> None:
        while not stop.is_set():
            projection.drain(0.2)

    threads = [threading.Thread(target=drain, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for _ in range(60):
        with ledgers[0].write() as connection:
            items.raise_revisions(connection, ids)
            outbox.enqueue(connection, "default", ids, ("vector",))
    assert writers[0].drain(20)
    stop.set()
    for thread in threads:
        thread.join()
    assert follower.overlaps == []
    with ledgers[0].read() as connection:
        assert follower.revisions == items.revisions(connection, ids)
        assert writers[0].pending(["default"], 10) == []
    for ledger in ledgers:
        ledger.close()


def test_a_lost_index_is_filled_again_although_a_process_writes_to_the_new_one(settings: Settings) -> None:
    with opened(settings) as one:
        kept = one.add("The violin is in the attic.").item_ids[0]
        one._context.indexes.vector.flush()
        index = one._installation.vector
        assert isinstance(index, QdrantServerIndex)
        index._remove(index._name)
        # Another process makes it again, and is killed before it compares it.
        QdrantServerIndex.open(settings.qdrant, index._name.removeprefix(f"{settings.qdrant.collection}-"), 64).close()
        one.add("The cello is in the hall.")
        one._context.indexes.vector.flush()
        with opened(settings) as other:
            assert other.maintenance.verify().differences == ()
            assert other.search("violin attic", top_k=1).hits[0].item.id == kept


def test_an_erase_waits_for_a_relation_that_is_being_stored(settings: Settings) -> None:
    """Relations are stored without the lock on the cube, by whichever process follows with the index."""
    with opened(settings) as memos:
        older, newer = memos.add(["Ana lives in Lyon.", "Ana lives in Paris."], conversation="c").item_ids
        related = Relation(newer, older, LinkKind.UPDATES, 0.9, "rules", None)
        with memos.ledger.write() as connection:
            connection.execute(sa.delete(t.links))
        with memos.ledger.write() as connection:
            store(connection, [("default", related)], datetime.now(UTC))
            erasing = threading.Thread(target=memos.erase, args=(older,))
            erasing.start()
            erasing.join(0.3)
        erasing.join(60)
        assert [item.id for item in memos.memories.list()] == [newer]
        assert memos.maintenance.verify().differences == ()


def test_more_threads_than_connections_take_turns(settings: Settings) -> None:
    with opened(settings) as memos:
        together, unlike = threading.Barrier(48), []

        def work(number: int) -> None:
            together.wait()
            [item] = memos.add(f"fact number{number}", conversation=f"c{number % 5}").item_ids
            if item not in [hit.item.id for hit in memos.search(f"number{number}").hits]:
                unlike.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert unlike == []
        assert memos.maintenance.verify().differences == ()


def test_clocks_that_differ_keep_record_times_rising(settings: Settings) -> None:
    class Late:
        def now(self) -> datetime:
            return datetime.now(UTC) - timedelta(seconds=20)

    with opened(settings) as one, MemOS.open(settings=settings, embedder=WordEmbedder(), clock=Late()) as late:
        item = one.add("first").item_ids[0]
        late.update(item, "second")
        one.update(item, "third")
        late.update(item, "fourth")
        times = [version.recorded_at for version in one.memories.history(item)]
        assert times == sorted(times)
        assert len(set(times)) == 4
        assert one.maintenance.verify().differences == ()
