"""Seeded small talk of named people about everyday life, as distractors: `everyday.json` has the sentences and words.

Unlike `benchmarks.dialogues`, whose words say nothing together, these sentences mean what chats are about, so that
neither their vectors nor their words nor, where the names are a data set's own, their speakers set them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from benchmarks.data import Message, Session

_FILE = Path(__file__).with_name("everyday.json")
_SLOT = re.compile(r"\{(\w+)\}")
_STARTS = re.compile(r"(^|[.!?] )([a-z])")
# About as in LoCoMo: messages of one session, turns on one topic, and how often a turn begins, ends or shows something.
_MESSAGES = (16, 33)
_ON_TOPIC = (4, 9)
_OPENING, _CLOSING, _SECOND, _ASKING, _CAPTION = 0.5, 0.4, 0.5, 0.45, 0.1


class _Topic(BaseModel):
    says: list[str]
    asks: list[str]


class _Phrases(BaseModel):
    slots: dict[str, list[str]]
    topics: dict[str, _Topic]
    openings: list[str]
    closings: list[str]
    captions: list[str]


class Everyday:
    """Endless sessions of two people each, with these names or its own, at times between `first` and `last`."""

    def __init__(self, seed: int, names: Sequence[str] | None, first: datetime, last: datetime) -> None:
        self._random = np.random.default_rng(seed)
        self._phrases = _Phrases.model_validate_json(_FILE.read_text(encoding="utf-8"))
        self._names = names or self._phrases.slots["friend"]
        self._first, self._span = first, last - first
        self._topics = list(self._phrases.topics.values())
        self._made = 0

    def sessions(self) -> Iterator[Session]:
        """Yield sessions, each by a name of its own."""
        while True:
            yield self.session(int(self._random.integers(*_MESSAGES)))

    def session(self, count: int) -> Session:
        """Return a session of so many messages."""
        speakers = [self._names[place] for place in self._random.permutation(len(self._names))[:2]]
        at = self._first + timedelta(minutes=int(self._random.random() * self._span.total_seconds() / 60))
        messages: list[Message] = []
        while len(messages) < count:
            topic = self._topics[int(self._random.integers(len(self._topics)))]
            for _ in range(min(int(self._random.integers(*_ON_TOPIC)), count - len(messages))):
                name, partner = speakers if len(messages) % 2 == 0 else speakers[::-1]
                messages.append(Message(str(len(messages) + 1), "user", self._turn(topic, partner), at, name))
        self._made += 1
        return Session(f"everyday-{self._made}", tuple(messages))

    def _turn(self, topic: _Topic, partner: str) -> str:
        phrases, parts = self._phrases, [self._one(topic.says)]
        if self._random.random() < _SECOND:
            parts.append(self._one(topic.says))
        if self._random.random() < _CLOSING:
            parts.append(self._one(phrases.closings))
        if self._random.random() < _ASKING:
            parts.append(self._one(topic.asks))
        if self._random.random() < _OPENING:
            parts.insert(0, self._one(phrases.openings))
        text = _SLOT.sub(lambda slot: self._word(slot[1], partner), " ".join(parts))
        text = _STARTS.sub(lambda start: start[1] + start[2].upper(), text)
        if self._random.random() < _CAPTION:
            text += f" [image: {_SLOT.sub(lambda slot: self._word(slot[1], partner), self._one(phrases.captions))}]"
        return text

    def _word(self, slot: str, partner: str) -> str:
        return partner if slot == "partner" else self._one(self._phrases.slots[slot])

    def _one(self, entries: Sequence[str]) -> str:
        return entries[int(self._random.integers(len(entries)))]
