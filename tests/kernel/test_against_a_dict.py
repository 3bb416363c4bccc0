"""Random sequences of changes agree with a plain dict, over reopening too."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import Conflict, NotFound
from tests.fakes import WordEmbedder
from tests.support.examples import share

WORDS = ["apple", "brick", "cello", "delta", "ember", "fjord"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
SETTINGS = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))


class MemoryMachine(RuleBasedStateMachine):
    """`self.states`: item id -> list of (text, deleted) by version; erased items are gone from it."""

    items: Bundle[str] = Bundle("items")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="memos-model-"))
        self.memos = self._open()
        self.states: dict[str, list[tuple[str, bool]]] = {}
        self.erased: set[str] = set()

    def _open(self) -> MemOS:
        return MemOS.open(self.folder, settings=SETTINGS, embedder=WordEmbedder())

    def teardown(self) -> None:
        report = self.memos.maintenance.verify()
        self.memos.close()
        shutil.rmtree(self.folder)
        assert report.clean, report.differences

    @rule(target=items, text=TEXTS, conversation=st.sampled_from([None, "c", "d"]))
    def add(self, text: str, conversation: str | None) -> str:
        receipt = self.memos.add(text, conversation=conversation)
        assert receipt.indexed
        self.states[receipt.item_ids[0]] = [(text, False)]
        return receipt.item_ids[0]

    def _live(self, item: str) -> bool:
        return item in self.states and not self.states[item][-1][1]

    @rule(item=items, text=TEXTS, stale=st.booleans())
    def update(self, item: str, text: str, stale: bool) -> None:
        expected = len(self.states.get(item, [])) + (1 if stale else 0)
        if item in self.erased:
            with pytest.raises(NotFound):
                self.memos.update(item, text)
        elif stale or not self._live(item):
            with pytest.raises(Conflict):
                self.memos.update(item, text, expected_version=expected)
        else:
            self.memos.update(item, text, expected_version=expected)
            self.states[item].append((text, False))

    @rule(item=items)
    def delete(self, item: str) -> None:
        if item in self.erased:
            with pytest.raises(NotFound):
                self.memos.delete(item)
            return
        deleted = self.memos.delete(item)
        assert bool(deleted) is self._live(item)
        if deleted:
            self.states[item].append((self.states[item][-1][0], True))

    @rule(item=items, data=st.data())
    def rollback(self, item: str, data: Any) -> None:
        if item in self.erased:
            return
        version = data.draw(st.integers(1, len(self.states[item]) + 1))
        if version > len(self.states[item]):
            with pytest.raises(NotFound):
                self.memos.memories.rollback(item, version)
            return
        if self.states[item][version - 1][1]:
            with pytest.raises(NotFound):  # it goes back to being deleted, which get does not show
                self.memos.memories.rollback(item, version)
        else:
            self.memos.memories.rollback(item, version)
        self.states[item].append(self.states[item][version - 1])

    @rule(item=consumes(items))
    def erase(self, item: str) -> None:
        if item in self.erased:
            return
        assert self.memos.erase(item).state == "purged"
        del self.states[item]
        self.erased.add(item)

    @rule()
    def reopen(self) -> None:
        self.memos.close()
        self.memos = self._open()

    @rule(word=st.sampled_from(WORDS))
    def search(self, word: str) -> None:
        found: set[str] = set()
        for hit in self.memos.search(word, top_k=100, explain=True):
            if any(vote.arm in ("turn_bm25", "unindexed_terms") for vote in hit.arms):
                found |= {hit.item.id, *hit.duplicates}
        expected = {item for item, states in self.states.items() if word in states[-1][0].split() and self._live(item)}
        assert found & expected == expected

    @invariant()
    def everything_agrees(self) -> None:
        listed = {item.id: item.memory for item in self.memos.memories.list(limit=1000)}
        assert listed == {item: states[-1][0] for item, states in self.states.items() if self._live(item)}
        for item, states in self.states.items():
            history = self.memos.memories.history(item)
            assert [(e.after.memory, e.after.status == "deleted") for e in history] == states


MemoryMachine.TestCase.settings = settings(
    max_examples=share(6), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAgainstADict = MemoryMachine.TestCase
