"""Messages with what a reader should find in them, written for this, and how near a reader's facts come to that.

Each message is `tune`, on which patterns may be fitted, or `held_out`, on which they are only measured. None comes
from a benchmark. Knows no pattern.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from benchmarks.data import BadData
from memos.core.types import Fact, ItemType

FILE = Path(__file__).with_name("labelled_messages.json")
PARTS = ("tune", "held_out")
LANGUAGES = ("en", "zh")
# What one lives with may be stored as a fact or as what one avoids.
_TYPES = {
    "fact": {ItemType.USER},
    "relation": {ItemType.USER},
    "event": {ItemType.USER},
    "plan": {ItemType.USER},
    "health": {ItemType.USER, ItemType.PREFERENCE},
    "preference": {ItemType.PREFERENCE},
    "instruction": {ItemType.INSTRUCTION},
    "assistant": {ItemType.ASSISTANT},
}
GROUPS = {"facts": ("fact", "relation", "event", "plan", "health"), "preferences": ("preference",),
          "instructions": ("instruction",), "assistant": ("assistant",)}  # fmt: skip
_LIKES = "likes:"


class Expected(BaseModel):
    """One thing that lasts in a message: every string of `says` has to be in the fact that says it.

    An `optional` one may be stored or not. With a `key` there is one of it at a time; `key` null: it must not have one.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["fact", "relation", "event", "plan", "health", "preference", "instruction", "assistant"]
    says: list[str] = Field(min_length=1)
    key: str | None = None
    value: str | None = None
    likes: bool | None = None
    over: bool = False
    optional: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Expected:
        if (self.key is None) != (self.value is None):
            raise ValueError("key and value belong together")
        if self.likes is not None and self.kind != "preference":
            raise ValueError("only a preference is liked or disliked")
        return self

    @property
    def keyless(self) -> bool:
        """Whether it must not have a key: the file says so with a null."""
        return "key" in self.model_fields_set and self.key is None


class Labelled(BaseModel):
    """One message and all that lasts in it; nothing expected: nothing is to be stored."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1)
    part: Literal["tune", "held_out"]
    language: Literal["en", "zh"]
    role: Literal["user", "assistant"]
    text: str = Field(min_length=1)
    expect: list[Expected]

    @model_validator(mode="after")
    def _said(self) -> Labelled:
        for expected in self.expect:
            if missing := [says for says in expected.says if says.casefold() not in self.text.casefold()]:
                raise ValueError(f"{self.id} expects {missing[0]!r}, which its text does not say")
            if (expected.kind == "assistant") != (self.role == "assistant"):
                raise ValueError(f"{self.id} expects of a {self.role} what only the other says")
        return self


def load(path: Path = FILE) -> list[Labelled]:
    """Return the labelled messages. Raises: BadData for a file of another shape, or with an id or a text twice."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        messages = TypeAdapter(list[Labelled]).validate_python(raw)
    except (OSError, ValueError) as error:
        why = error.errors(include_input=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise BadData(path, f"is no file of labelled messages: {why}") from error
    for what in ("id", "text"):
        name, count = Counter(getattr(message, what) for message in messages).most_common(1)[0] if messages else ("", 0)
        if count != 1:
            raise BadData(path, f"needs messages, each {what} once; {name!r} is there {count} times")
    return messages


@dataclass(slots=True)
class Score:
    """Counts over messages: stored facts that are right, expected things that were found, and what is junk.

    `stored` = `right` + `misread` + `junk`: misread says what lasts under a wrong key, type or sign, junk says nothing
    that lasts.
    """

    messages: int = 0
    stored: int = 0
    right: int = 0
    misread: int = 0
    junk: int = 0
    keys_expected: int = 0
    keys_found: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(self, message: Labelled, facts: Sequence[Fact]) -> None:
        """Count one message and what was stored of it."""
        self.messages += 1
        self.stored += len(facts)
        for fact in facts:
            about = f"{message.id} {fact.type} {_attribute(fact)}={fact.value}: {fact.memory}"
            if any(_right(fact, expected) for expected in message.expect):
                self.right += 1
            elif any(_says(fact, expected) for expected in message.expect):
                self.misread += 1
                self.wrong.append(f"misread {about}")
            else:
                self.junk += 1
                self.wrong.append(f"junk {about}")
        for expected in message.expect:
            if not expected.optional:
                self._expect(message, expected, facts)

    def _expect(self, message: Labelled, expected: Expected, facts: Sequence[Fact]) -> None:
        self.expected[expected.kind] += 1
        fitting = [fact for fact in facts if _right(fact, expected)]
        if fitting:
            self.found[expected.kind] += 1
        else:
            self.missed.append(f"{message.id} {expected.kind} {expected.says}: {message.text[:80]}")
        if expected.key is not None:
            self.keys_expected += 1
            self.keys_found += any(_attribute(fact) == expected.key for fact in fitting)

    def figures(self) -> dict[str, Any]:
        """Return precision, recall, junk rate, and recall by group; None where there is nothing to divide by."""
        by_group = {
            group: _share(sum(self.found[kind] for kind in kinds), sum(self.expected[kind] for kind in kinds))
            for group, kinds in GROUPS.items()
        }
        return {
            "messages": self.messages,
            "stored": self.stored,
            "precision": _share(self.right, self.stored),
            "junk": _share(self.junk, self.stored),
            "recall": _share(self.found.total(), self.expected.total()),
            **{f"recall {group}": share for group, share in by_group.items()},
            "keys": _share(self.keys_found, self.keys_expected),
        }


def score(read: Iterable[tuple[Labelled, Sequence[Fact]]]) -> dict[tuple[str, str], Score]:
    """Return the scores by part and language, with "all" for both languages."""
    scores = {(part, language): Score() for part in PARTS for language in (*LANGUAGES, "all")}
    for message, facts in read:
        scores[message.part, message.language].add(message, facts)
        scores[message.part, "all"].add(message, facts)
    return scores


def _says(fact: Fact, expected: Expected) -> bool:
    return all(says.casefold() in fact.memory.casefold() for says in expected.says)


def _attribute(fact: Fact) -> str | None:
    return None if fact.key is None else fact.key.partition("|")[2]


def _right(fact: Fact, expected: Expected) -> bool:
    """Return whether a fact says what is expected, as that type, and under no key that would be wrong."""
    attribute = _attribute(fact)
    if fact.type not in _TYPES[expected.kind] or not _says(fact, expected):
        return False
    if attribute is None:
        return True
    if expected.keyless:
        return False
    if attribute.startswith(_LIKES):
        return expected.likes is None or (fact.value == "yes") is expected.likes
    ended = fact.valid_to is not None
    return (attribute, fact.value, ended) == (expected.key, expected.value, expected.over)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
