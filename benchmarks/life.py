"""A seeded, made-up year of one person who talks to an assistant: what changes, what only seems to, and small talk.

Nora has about fifty attributes, from her home to the deadline of her project; her sister, a friend and a colleague have
eight each. Their statements, changes and endings come in the phrasings of `long_life.toml`, between remarks made of
templates. No remark occurs twice.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

USER = "Nora"
OTHERS = (("My sister", "Ines"), ("My friend", "Tomasz"), ("My colleague", "Priya"))

_FIRST_DAY = datetime(2025, 1, 1, tzinfo=UTC)
_MONTH = timedelta(days=365 / 12)
_TURNS_A_CONVERSATION = (8, 20)
_NEUTRAL_SHARE = 0.15  # of all statements: other people's news, wishes, things long past
_OTHERS_NEWS = 0.5  # of those
_END_SHARE = 0.4  # of the changes of what can end
_ECHO_SHARE = 0.25  # of the replies to statements: the assistant repeats the value
_RESERVED = 2  # values at the end of each list that never hold
_TRIES = 40
_DATA = Path(__file__).with_name("long_life.toml")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message; a statement says the `version` of `key`, as `kind` first, change, end or restart.

    `kind` is echo for an assistant that repeats a value, unreal for wishes and what is long past, else talk.
    """

    number: int
    role: str
    text: str
    at: datetime
    conversation: str
    month: int
    kind: str = "talk"
    key: str | None = None
    version: int = -1

    def message(self) -> dict[str, str]:
        """Return the turn as `MemOS.add` takes it."""
        name = {"name": USER} if self.role == "user" else {}
        sent = {"role": self.role, "content": self.text, "chat_time": self.at.isoformat()}
        return {**sent, **name, "message_id": str(self.number)}


class Statement(NamedTuple):
    """One version of an attribute: the turn that says it, and its value; None once it has ended.

    What `stays` says that one value has ended, which is as true when another begins.
    """

    turn: int
    kind: str
    value: str | None
    stays: bool = False


@dataclass(slots=True)
class Attribute:
    """One attribute of one person, with what was said of it so far; `who` is None for the user's own."""

    key: str
    words: dict[str, Any]
    who: tuple[str, str] | None
    values: list[str]
    said: list[Statement] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """True unless it has ended."""
        return bool(self.said) and self.said[-1].value is not None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about an attribute: `version` is what answers it, `value` what that says (None: it has ended)."""

    text: str
    key: str
    about: str
    version: int
    value: str | None

    def right(self, turn: Turn) -> bool:
        """Return True if a turn answers it; what names the earlier value beside the new one tells of the past, too."""
        if turn.key != self.key:
            return False
        named = self.about == "past" and self.value is not None and _says(turn.text, self.value)
        return turn.version == self.version or named

    def stale(self, turn: Turn) -> bool:
        """Return True if a turn says what held before."""
        return turn.key == self.key and 0 <= turn.version < self.version


class _Said(NamedTuple):
    kind: str
    text: str
    attribute: Attribute | None = None
    version: int = -1


class Life:
    """The turns of a life, made at once; the same for the same arguments."""

    def __init__(self, seed: int, turns: int, changes: int, months: int) -> None:
        self._random = np.random.default_rng(seed)
        self._words = _data()
        self._used: set[str] = set()
        self._months = months
        self.turns: list[Turn] = []
        own = [Attribute(words["name"], words, None, self._shuffled(words)) for words in self._words["own"]]
        others = [
            Attribute(f"{name}: {words['name']}", words, (title, name), list(self._permuted(words["values"])))
            for title, name in OTHERS
            for words in self._words["others"]
        ]
        self.attributes = {each.key: each for each in (*own, *others)}
        self._tell(self._plan(turns // 2, changes))

    def month_end(self, month: int) -> datetime:
        """Return when a month, from 0, is over, and what was said in it."""
        return max([_FIRST_DAY + _MONTH * (month + 1), *(each.at for each in self.turns if each.month == month)])

    def questions(self, month: int, now: int, others: int, past: int) -> list[Question]:
        """Return questions at the end of a month: about now, about now of other people, about before."""
        random = np.random.default_rng((month, len(self.turns)))
        told = {key: self._until(each, month) for key, each in self.attributes.items()}
        own = [each for key, each in self.attributes.items() if told[key] and each.who is None]
        theirs = [each for key, each in self.attributes.items() if told[key] and each.who is not None]
        changed = [each for each in own if len(told[each.key]) > 1 and told[each.key][-1].value is not None]
        asked = [self._now(each, told[each.key], random) for each in _sample(own, now, random)]
        asked += [self._now(each, told[each.key], random) for each in _sample(theirs, others, random)]
        return asked + [_past(each, told[each.key]) for each in _sample(changed, past, random)]

    def changes(self, month: int) -> list[tuple[str, Statement, Statement]]:
        """Return the user's own changes until the end of a month: key, older statement, newer one against it."""
        found = []
        for key, each in self.attributes.items():
            told = self._until(each, month)
            if each.who is None:
                found += [(key, older, newer) for older, newer in pairwise(told) if not older.stays]
        return found

    def holding(self, month: int) -> list[tuple[str, Statement]]:
        """Return the statements of everybody that hold at the end of a month, with their keys."""
        told = {key: self._until(each, month) for key, each in self.attributes.items()}
        return [(key, statements[-1]) for key, statements in told.items() if statements]

    def _until(self, attribute: Attribute, month: int) -> list[Statement]:
        return [each for each in attribute.said if self.turns[each.turn].month <= month]

    def _now(self, attribute: Attribute, told: Sequence[Statement], random: np.random.Generator) -> Question:
        forms = attribute.words["now"]
        text = forms[int(random.integers(len(forms)))] if attribute.who is None else forms
        text = text.format(short=attribute.who[1]) if attribute.who is not None else text
        about = "now" if attribute.who is None else "others"
        return Question(text, attribute.key, about, len(told) - 1, told[-1].value)

    def _plan(self, exchanges: int, changes: int) -> list[str]:
        """Return what each exchange is: first statements in the first quarter, all else through the year."""
        firsts = min(len(self.attributes), exchanges // 5)
        plan = ["talk"] * exchanges
        quarter = self._random.choice(max(1, exchanges // 4), firsts, replace=False).tolist()
        for place in quarter:
            plan[place] = "first"
        free = [place for place in range(min(quarter, default=0) + 1, exchanges) if plan[place] == "talk"]
        neutral = round(_NEUTRAL_SHARE / (1 - _NEUTRAL_SHARE) * (firsts + changes))
        chosen = self._random.permutation(free)[: changes + neutral].tolist()
        for number, place in enumerate(chosen):
            plan[place] = "change" if number < changes else "neutral"
        return plan

    def _tell(self, plan: Sequence[str]) -> None:
        low, high = _TURNS_A_CONVERSATION
        lengths: list[int] = []
        while sum(lengths) < len(plan):
            lengths.append(int(self._random.integers(low // 2, high // 2 + 1)))
        waiting = self._permuted(list(self.attributes.values()))
        place = 0
        for number, length in enumerate(lengths):
            share = (number + float(self._random.random()) / 2) / len(lengths)
            begun, month = _FIRST_DAY + share * self._months * _MONTH, int(share * self._months)
            for what in plan[place : place + length]:
                self._exchange(what, waiting, (begun, f"talk-{number}", month))
                begun += timedelta(minutes=float(self._random.integers(1, 9)))
            place += length

    def _exchange(self, what: str, waiting: list[Attribute], where: tuple[datetime, str, int]) -> None:
        begun, conversation, month = where
        number = len(self.turns)
        said = self._statement(what, waiting, number) or _Said("talk", self._talk("user"))
        key = None if said.attribute is None else said.attribute.key
        asked = Turn(number, "user", said.text, begun, conversation, month, said.kind, key, said.version)
        value = said.attribute.said[said.version].value if said.attribute and said.version >= 0 else None
        answer = _Said("talk", self._talk("assistant" if key is None else "plain"))
        if value is not None and self._random.random() < _ECHO_SHARE:
            echo = self._one(self._words["talk"]["echo"]).format(new=value)
            answer = _Said("echo", _sentence(echo), said.attribute, said.version)
        at = begun + timedelta(seconds=20)
        echoed = None if answer.attribute is None else key
        self.turns += [
            asked,
            Turn(number + 1, "assistant", answer.text, at, conversation, month, answer.kind, echoed, answer.version),
        ]

    def _statement(self, what: str, waiting: list[Attribute], turn: int) -> _Said | None:
        if what == "first":
            return self._value(waiting.pop(), "first", turn)
        if what == "talk":
            return None
        told = [each for each in self.attributes.values() if each.said]
        own = [each for each in told if each.who is None]
        if what == "change":
            return self._change(own, turn)
        if self._random.random() < _OTHERS_NEWS:
            return self._change([each for each in told if each.who is not None], turn)
        return self._unreal(own)

    def _change(self, among: Sequence[Attribute], turn: int) -> _Said | None:
        """Change, end or start again one of the attributes, rather one with many values left."""
        left = np.array([len(each.values) for each in among], dtype=float)
        if not left.sum():
            return None
        attribute = among[int(self._random.choice(len(among), p=left / left.sum()))]
        if not attribute.active:
            return self._value(attribute, "restart", turn)
        if "end" in attribute.words and self._random.random() < _END_SHARE:
            form = self._one(attribute.words["end"])
            alone = attribute.words["end"].index(form) in attribute.words.get("ended_alone", ())
            text = _sentence(form.format(old=attribute.said[-1].value))
            attribute.said.append(Statement(turn, "end", None, alone))
            return _Said("end", text, attribute, len(attribute.said) - 1)
        return self._value(attribute, "change", turn)

    def _value(self, attribute: Attribute, kind: str, turn: int) -> _Said:
        old = attribute.said[-1].value if attribute.said else None
        new = attribute.values.pop()
        form = self._one(attribute.words["change" if kind == "change" else "first"])
        title, name = attribute.who or ("", "")
        who = f"{title} {name}" if kind == "first" or self._random.random() < 1 / 2 else name
        attribute.said.append(Statement(turn, kind, new))
        text = form.format(new=new, old=old, who=who, short=name)
        return _Said(kind, _sentence(text), attribute, len(attribute.said) - 1)

    def _unreal(self, among: Sequence[Attribute]) -> _Said | None:
        for _ in range(_TRIES if among else 0):
            attribute = self._one(among)
            value = attribute.words["values"][-int(self._random.integers(1, _RESERVED + 1))]
            text = _sentence(self._one(attribute.words["unreal"]).format(new=value))
            if text not in self._used:
                self._used.add(text)
                return _Said("unreal", text, attribute)
        return None

    def _talk(self, part: str) -> str:
        """Return one or two remarks, never the same twice."""
        for _ in range(_TRIES):
            count = 1 + int(self._random.random() < 1 / 3)
            text = " ".join(map(self._filled, self._permuted(self._words["talk"][part])[:count]))
            if text not in self._used:
                break
        self._used.add(text)
        return text

    def _filled(self, form: str) -> str:
        return _sentence(form.format(**{name: self._one(pool) for name, pool in self._words["pools"].items()}))

    def _shuffled(self, words: dict[str, Any]) -> list[str]:
        values = words["values"][:-_RESERVED]
        return values[::-1] if words.get("ordered") else self._permuted(values)

    def _permuted(self, entries: Sequence[_T]) -> list[_T]:
        return [entries[place] for place in self._random.permutation(len(entries)).tolist()]

    def _one(self, entries: Sequence[_T]) -> _T:
        return entries[int(self._random.integers(len(entries)))]


def _past(attribute: Attribute, told: Sequence[Statement]) -> Question:
    """Return a question about the value before the present one, skipping an ending."""
    version = next(place for place in range(len(told) - 2, -1, -1) if told[place].value is not None)
    text = attribute.words["past"].format(new=told[-1].value)
    return Question(text, attribute.key, "past", version, told[version].value)


def _sample(entries: Sequence[_T], count: int, random: np.random.Generator) -> list[_T]:
    return [entries[place] for place in random.permutation(len(entries))[:count].tolist()]


def _sentence(text: str) -> str:
    """Return text with a capital at its start, and "an" before a vowel."""
    text = re.sub(r"\b([Aa]) (?=[aeio]|um)(?!one)", r"\1n ", text, flags=re.IGNORECASE)
    return text[:1].upper() + text[1:]


def _says(text: str, value: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))
