"""SIGKILL while documents are taken in and read: what was acknowledged is read once, whole, and nothing twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.types import FileState
from tests.fakes import WordEmbedder
from tests.support import forks

ROOT = Path(__file__).resolve().parents[2]
KILLS = 8

# Prints the id of each file after `add` returned; every third is the next version of the same name.
WORKER = """
import sys, time
from memos import MemOS, Settings
from memos.errors import BackendUnavailable
from tests.fakes import WordEmbedder
number = int(sys.argv[2])
settings = Settings(index={"wait_s": 30}, limits={"min_free_bytes": 0})
until = time.monotonic() + 60
while True:
    try:
        opened = MemOS.open(sys.argv[1], settings=settings, embedder=WordEmbedder())
        break
    except BackendUnavailable:  # what the killed one had started has a moment to end
        if time.monotonic() > until:
            raise
        time.sleep(0.1)
with opened as memos:
    print("open", flush=True)
    while True:
        number += 1
        name = "same.md" if number % 3 == 0 else f"file{number}.md"
        text = "\\n\\n".join(f"# Part {part}\\n\\nabout thing{number}x{part} " + "words " * 50 for part in range(12))
        file = memos.documents.add((name, text.encode())).id
        print(file, flush=True)
        if number % 4 == 0:
            memos.documents.wait(file)
"""


def test_nothing_acknowledged_is_lost_halved_or_doubled(tmp_path: Path) -> None:
    home, chance, known = tmp_path / "home", random.Random(5), []
    for kill in range(KILLS):
        with forks.Script(WORKER, str(home), str(kill * 1000)) as process:
            assert process.stdout.readline() == "open\n"
            for _ in range(chance.randint(1, 4)):
                known.append(process.stdout.readline().strip())
            time.sleep(chance.uniform(0, 1.2))  # when the kill comes is the test
            process.kill()
            known += [line.strip() for line in process.stdout if line.endswith("\n")]
    settings = Settings(index=IndexSettings(wait_s=60), limits=LimitSettings(min_free_bytes=0))
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        # A task whose worker was killed waits until its lease is over.
        memos.ledger.check()
        with memos.ledger.write() as connection:
            connection.exec_driver_sql("UPDATE tasks SET lease_until = 0 WHERE state = 'running'")
        memos._scheduler.runner.keep_leases()
        memos.tasks.wait(timeout_s=300)
        files = {file.id: file for file in memos.documents.list()}
        assert set(known) <= set(files)
        assert {file.state for file in files.values()} <= {FileState.AVAILABLE, FileState.SUPERSEDED}
        assert [file.name for file in files.values() if file.state is FileState.AVAILABLE].count("same.md") == 1
        items = memos.memories.list(filter={"type": "document"}, limit=10_000)
        assert max(Counter(item.memory for item in items).values()) == 1
        current = Counter(item.info["file"] for item in items if item.status == "active")
        assert set(current) == {file.id for file in files.values() if file.state is FileState.AVAILABLE}
        assert set(current.values()) == {12}
        for file in files.values():
            if file.state is FileState.AVAILABLE:
                assert memos.documents.markdown(file.id).encode() == memos.documents.content(file.id)
        assert memos.maintenance.verify().clean
