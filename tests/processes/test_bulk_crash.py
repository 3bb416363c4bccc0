"""SIGKILL during an import and while vectors are made anew: repeated, each comes to an end with nothing twice."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.kernel.importing import import_export
from tests.fakes import WordEmbedder
from tests.support import forks

TALKS, LENGTH, NOTES = 12, 45, 120
KILLS = 6
SETTINGS = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=0))

# Prints how far it is, and "done" at its end.
IMPORT = """
import sys
from memos import MemOS, Settings
from memos.kernel.importing import import_export
from memos.memcube.indexing import projection
from tests.fakes import WordEmbedder
projection.FLUSH_EVERY_ROWS = 100
settings = Settings(index={"wait_s": 30}, limits={"min_free_bytes": 0})
with MemOS.open(sys.argv[1], settings=settings, embedder=WordEmbedder()) as memos:
    tell = lambda done, total: print(done, flush=True)
    import_export(memos, sys.argv[2], cube="default", on_progress=tell)
    print("done", flush=True)
"""
REEMBED = """
import sys, time
from memos import MemOS, Settings
from memos.memcube.indexing import followers, projection
from tests.fakes import WordEmbedder
projection.FLUSH_EVERY_ROWS, projection._BATCH = 100, 32

class Slow(WordEmbedder):
    def embed_documents(self, texts):
        time.sleep(0.002 * len(texts))
        return super().embed_documents(texts)

settings = Settings(index={"wait_s": 0}, limits={"min_free_bytes": 0})
with MemOS.open(sys.argv[1], settings=settings, embedder=Slow(32, "smaller")) as memos:
    print("open", flush=True)
    memos.maintenance.reembed()
    print("done", flush=True)
"""


def export(folder: Path) -> Path:
    """Write talks of messages without ids, and notes that belong to no conversation of theirs."""
    talks = [
        {
            "id": f"talk{talk}",
            "messages": [
                {"role": "user" if n % 2 == 0 else "assistant", "content": f"heron talk{talk}x{n} was here"}
                for n in range(LENGTH)
            ],
        }
        for talk in range(TALKS)
    ]
    notes = [
        {"id": f"note{n}", "messages": [{"role": "user", "content": f"gannet note{n} alone"}]} for n in range(NOTES)
    ]
    file = folder / "talks.jsonl"
    file.write_text("\n".join(map(json.dumps, [*talks[: TALKS // 2], *notes, *talks[TALKS // 2 :]])))
    return file


def check_whole(memos: MemOS) -> None:
    listed = memos.memories.list(limit=10_000)
    assert len(listed) == TALKS * LENGTH + NOTES
    assert set(Counter(item.memory for item in listed).values()) == {1}
    for talk in range(TALKS):
        mine = sorted((item for item in listed if item.conversation == f"talk{talk}"), key=lambda item: item.position)
        assert [item.memory for item in mine] == [f"heron talk{talk}x{n} was here" for n in range(LENGTH)]
        assert [item.position for item in mine] == list(range(LENGTH))
    assert memos.maintenance.verify().clean


def test_an_import_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    home, file, chance, reached = tmp_path / "home", export(tmp_path), random.Random(7), []
    for _ in range(KILLS):
        with forks.Script(IMPORT, str(home), str(file)) as process:
            for _ in range(chance.randint(1, 5)):
                line = process.stdout.readline()
            process.kill()
            process.wait()
        with MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder()) as memos:
            held = [item.memory for item in memos.memories.list(limit=10_000)]
            assert len(set(held)) == len(held)
            # What was told to be done is there; progress of a repeated run counts what it knows.
            assert len(held) >= (0 if line == "done\n" else int(line))
            assert not reached or len(held) >= reached[-1]
            reached.append(len(held))
            assert memos.maintenance.verify().clean
    assert 0 < reached[0] < TALKS * LENGTH + NOTES
    with MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder()) as memos:
        done = import_export(memos, file, cube="default")
        assert (done.known + done.added, done.indexed) == (TALKS * LENGTH + NOTES, True)
        assert done.known >= reached[-1]
        check_whole(memos)


def test_a_reembed_that_is_killed_goes_on_at_the_next_opening(tmp_path: Path) -> None:
    home, chance = tmp_path / "home", random.Random(9)
    with MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder()) as memos:
        import_export(memos, export(tmp_path), cube="default")
    for _ in range(4):
        with forks.Script(REEMBED, str(home)) as process:
            assert process.stdout.readline() == "open\n"
            threading.Event().wait(chance.uniform(0.1, 1.5))  # when the kill comes is the test
            process.kill()
            process.wait()
    with MemOS.open(home, settings=SETTINGS, embedder=WordEmbedder(32, "smaller")) as memos:
        assert memos.maintenance.reembed() == TALKS * LENGTH + NOTES
        check_whole(memos)
        assert "gannet note7 alone" in [hit.item.memory for hit in memos.search("note7", top_k=10)]
    assert len(list((home / "vector").iterdir())) == 1
