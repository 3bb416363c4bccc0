"""Many memories at once: an import, adds in one transaction and a rebuild come to what single adds come to."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from memos import MemOS
from memos.backends.encoders.cache import CachedEmbedder
from memos.core.ports import Vector
from memos.core.settings import IndexSettings, Settings, TaskSettings
from memos.errors import Conflict, ModelError
from memos.kernel.importing import import_export
from memos.kernel.memories import Addition
from memos.memcube.ledger import relations
from tests.fakes import WordEmbedder

NAMES = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn")
PLACES = ("Cork", "Tallinn", "Lyon", "Porto", "Ghent", "Turku", "Graz", "Bergen")


def said() -> list[str]:
    """Return statements of which many replace an earlier one, some of them several in a row."""
    told = []
    for number, place in enumerate(PLACES):
        told += [f"I live in {place} now.", f"I run {number + 3} km every morning now."]
        told += [f"My sister {name} works at the {place} harbour." for name in NAMES]
        told += [f"I moved from {place} to {PLACES[(number + 3) % len(PLACES)]}."]
        told += [f"My car is a {colour} Volvo from {place}." for colour in ("red", "blue", "grey")]
        told += [f"My dentist appointment is on {number + 4} May at {number % 3 + 9}."]
        told += [f"We talked about {place} and the weather for a while." for _ in range(2)]
    return told


def lines_of(texts: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": text, "chat_time": f"2024-{1 + n // 28:02}-{1 + n % 28:02}T09:00:00Z"}
        for n, text in enumerate(texts)
    ]


def related(memos: MemOS) -> dict[tuple[int | None, int | None], tuple[str, float]]:
    listed = memos.memories.list(limit=10_000)
    with memos.ledger.read() as connection:
        found = relations.of_items(connection, [item.id for item in listed])
    place = {item.id: item.position for item in listed}
    return {(place[each.older], place[each.newer]): (str(each.kind), each.confidence) for each in found}


def surest_of(found: dict[tuple[int | None, int | None], tuple[str, float]]) -> dict[int | None, float]:
    """Return the confidence of the surest relation of each older statement."""
    surest: dict[int | None, float] = {}
    for (older, _), (_, confidence) in found.items():
        surest[older] = max(confidence, surest.get(older, 0.0))
    return surest


def test_an_import_has_the_order_and_the_relations_of_single_adds(tmp_path: Path, settings: Settings) -> None:
    told = lines_of(said())
    assert len(told) > 100
    with MemOS.open(tmp_path / "single", settings=settings) as memos:
        for line in told:
            memos.add([line], conversation="talk")
        single, listed = related(memos), [item.memory for item in memos.memories.list(limit=1000)]
    assert len(single) > 50
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"id": "talk", "messages": told}))
    with MemOS.open(tmp_path / "import", settings=settings) as memos:
        assert import_export(memos, file, cube="default").indexed
        assert [item.memory for item in memos.memories.list(limit=1000)] == listed
        at_once = related(memos)
    assert at_once.keys() == single.keys()
    assert {pair: kind for pair, (kind, _) in at_once.items()} == {pair: kind for pair, (kind, _) in single.items()}
    # How sure it is that a statement no longer holds. The index keeps eight bits of a vector, and an older one of the
    # same batch is not read from it; of many versions of one value two are compared or reached through another one.
    surest, surest_alone = surest_of(at_once), surest_of(single)
    assert surest == pytest.approx(surest_alone, abs=0.06)


def test_adds_of_one_transaction_are_all_stored_or_none(memos: MemOS) -> None:
    first, second = memos.memories.add_all(
        [Addition("one", "a", ("red",)), Addition([{"role": "user", "content": "two", "message_id": "m"}], "b")]
    )
    assert first.indexed
    assert (first.conversation, second.conversation) == ("a", "b")
    assert [(item.memory, item.tags) for item in memos.memories.list()] == [("one", ("red",)), ("two", ())]
    with pytest.raises(Conflict):
        memos.memories.add_all(
            [Addition("three", "a"), Addition([{"role": "user", "content": "other", "message_id": "m"}], "b")]
        )
    assert len(memos.memories.list()) == 2


def test_what_is_not_waited_for_is_found_at_once_and_indexed_in_the_end(memos: MemOS) -> None:
    for part in range(6):
        additions = [Addition(f"heron number{part}x{n}") for n in range(50)]
        assert not any(receipt.indexed for receipt in memos.memories.add_all(additions, wait=False))
        assert f"heron number{part}x49" in [hit.item.memory for hit in memos.search(f"number{part}x49", top_k=20)]
    assert memos.maintenance.catch_up()
    assert memos.maintenance.verify().clean


def test_an_import_is_complete_where_adds_do_not_wait(tmp_path: Path) -> None:
    quick = Settings(index=IndexSettings(wait_s=0), tasks=TaskSettings(workers=0))
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"id": "talk", "messages": lines_of([f"heron number{n}" for n in range(300)])}))
    with MemOS.open(tmp_path / "home", settings=quick, embedder=WordEmbedder()) as memos:
        done = import_export(memos, file, cube="default")
        assert (done.added, done.indexed) == (300, True)
        assert import_export(memos, file, cube="default").known == 300
        assert memos.maintenance.verify().clean


class SlowEmbedder(WordEmbedder):
    """Counts texts, waits until it is told to go on, and refuses "poison"."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.texts += texts
        if "heron" in texts:
            self.begun.set()
            assert self.go_on.wait(30)
        if "poison" in texts:
            raise ModelError("no vector of poison")
        return super().embed_documents(texts)


@pytest.mark.parametrize("beside", ["gannet", "poison"])
def test_a_text_that_another_call_embeds_is_waited_for_unless_that_fails(beside: str) -> None:
    inner = SlowEmbedder()
    cached = CachedEmbedder(inner)
    made: list[Vector] = []

    def embed(texts: list[str]) -> None:
        try:
            made.append(cached.embed_documents(texts))
        except ModelError as error:
            assert beside == "poison"
            assert "poison" in str(error)

    first = threading.Thread(target=embed, args=(["heron", beside],))
    first.start()
    assert inner.begun.wait(30)
    second = threading.Thread(target=embed, args=(["auk", "heron"],))
    second.start()
    while "auk" not in inner.texts:
        threading.Event().wait(0.001)
    inner.go_on.set()
    first.join(30)
    second.join(30)
    assert inner.texts.count("heron") == (1 if beside == "gannet" else 2)
    assert np.allclose(made[-1][1], WordEmbedder().embed_documents(["heron"])[0])
