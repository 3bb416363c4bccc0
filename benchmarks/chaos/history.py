"""What clients did, what each memory may therefore be, and what an answer must not show.

Each memory has a word of its own in every text it ever had. One client alone changes it, so that its history is a
sequence. A change without an answer may have happened or not: the memory is *doubtful*, left alone until the next
survey of the whole installation, and then is what the survey shows, if that is one of what it may be.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

_WORD = re.compile(r"\bzq[a-z]+x\d+\b")
_REVISION = re.compile(r"\brevision(\d+)\b")
MESSAGE = "message"
_SHOWN = 20


class Kind(StrEnum):
    """What a memory is."""

    ABSENT = "absent"
    HERE = "here"
    DELETED = "deleted"
    ERASED = "erased"


class State(NamedTuple):
    """What a memory is, and with which revision of its text."""

    kind: Kind
    revision: int = 0


ABSENT, ERASED = State(Kind.ABSENT), State(Kind.ERASED)


class Fault(StrEnum):
    """What must never happen."""

    LOST = "lost"
    DOUBLED = "doubled"
    RESURRECTED = "resurrected"
    LEAKED = "leaked"
    BROKEN = "broken"
    """A promise of an answer that was not kept: half an add, a change that "was not written", a text nobody wrote."""
    UNCLEAN = "unclean"
    """`verify` found a difference."""
    STUCK = "stuck"
    """A server did not start, or did not answer, once nothing was in its way."""


@dataclass(slots=True)
class Memory:
    """One memory: the states it may be in, and when it was certainly gone."""

    word: str
    tenant: str
    states: set[State]
    batch: int
    id: str | None = None
    revisions: int = 1
    doubtful: bool = False
    edited: bool = False
    """A correction may have changed its text, or replaced it."""
    partners: list[Memory] = field(default_factory=list)
    """The correction and the memory it corrected, whose text it may be now; they go together."""
    gone_at: float | None = None
    history: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        [state] = self.states
        return state

    def text(self, revision: int) -> str:
        return f"The parcel {self.word} revision{revision} stands in the hall."


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never happen, and did."""

    fault: Fault
    what: str
    history: tuple[str, ...] = ()


class History:
    """All memories, by word. Thread-safe."""

    def __init__(self) -> None:
        self.memories: dict[str, Memory] = {}
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.round = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def new(self, tenant: str, owner: str, count: int) -> list[Memory]:
        """Return memories that are about to be added together."""
        with self._lock:
            batch = next(self._numbers)
            made = [Memory(f"zq{owner}x{next(self._numbers)}", tenant, {ABSENT}, batch) for _ in range(count)]
            self.memories.update((memory.word, memory) for memory in made)
        return made

    def note(self, memories: Iterable[Memory], what: str) -> None:
        """Write a line into the memories' histories."""
        for memory in memories:
            memory.history.append(f"{time.monotonic():.2f} round {self.round}: {what}")

    def violated(self, fault: Fault, what: str, memories: Iterable[Memory] = ()) -> None:
        """Keep something that must never happen."""
        told = tuple(line for memory in memories for line in (memory.word, *memory.history))
        found = Violation(fault, f"round {self.round}: {what}", told)
        with self._lock:
            self.violations.append(found)
        if len(self.violations) <= _SHOWN:
            print(f"{fault}: {found.what}", *told, sep="\n    ", file=sys.stderr, flush=True)

    def count(self, operation: str) -> None:
        with self._lock:
            self.counts[operation] += 1

    def failed(self, kind: str) -> None:
        with self._lock:
            self.errors[kind] += 1

    # Changes of memories, by their one client.

    def done(self, memories: Iterable[Memory], kind: Kind) -> None:
        """Set what memories certainly are now."""
        for memory in memories:
            memory.states = {State(kind, memory.state.revision) if kind is not Kind.ERASED else ERASED}
            if kind in (Kind.DELETED, Kind.ERASED):
                memory.gone_at = time.monotonic()

    def doubt(self, memories: Iterable[Memory], *states: State) -> None:
        """Add what memories may be, too, since a change had no answer."""
        for memory in memories:
            memory.states |= set(states)
            memory.doubtful = True

    # Checks of answers.

    def check_seen(
        self, seen: Sequence[Mapping[str, Any]], readable: Collection[str], began: float, where: str
    ) -> None:
        """Check memories in an answer to a request that `began` then, of one who may read these tenants' cubes."""
        for item in seen:
            for word in _WORD.findall(item["memory"]):
                memory = self.memories.get(word)
                if memory is None:
                    self.violated(Fault.BROKEN, f"{where} shows {item['memory']!r}, which nobody wrote")
                elif memory.tenant not in readable:
                    self.violated(Fault.LEAKED, f"{where} shows {item['memory']!r} of {memory.tenant}", [memory])
                elif memory.gone_at is not None and memory.gone_at < began:
                    self.violated(Fault.RESURRECTED, f"{where} shows {item['memory']!r} ({item['type']})", [memory])

    def survey(self, held: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Compare all that the cubes hold, by tenant, with what may be there; nothing is going on meanwhile."""
        found: dict[str, list[State]] = {}
        ids: dict[str, str] = {}
        known = {memory.id: memory.word for memory in self.memories.values() if memory.id is not None}
        for tenant, items in held.items():
            for item in items:
                words = _WORD.findall(item["memory"])
                self._check_held(tenant, item, words)
                if item["type"] == MESSAGE and words:
                    kind = Kind.DELETED if item["status"] == "deleted" else Kind.HERE
                    revision = _REVISION.search(item["memory"])
                    word = known.get(item["id"], words[0])
                    found.setdefault(word, []).append(State(kind, int(revision[1]) if revision else 0))
                    ids[word] = item["id"]
        for memory in list(self.memories.values()):
            self._settle(memory, found.get(memory.word, []), ids.get(memory.word))
        self._check_batches()

    def _check_held(self, tenant: str, item: Mapping[str, Any], words: Sequence[str]) -> None:
        for word in words:
            memory = self.memories.get(word)
            if memory is None:
                self.violated(Fault.BROKEN, f"{tenant} holds {item['memory']!r}, which nobody wrote")
            elif memory.tenant != tenant:
                self.violated(Fault.LEAKED, f"{tenant} holds {item['memory']!r} of {memory.tenant}", [memory])
            elif memory.states == {ERASED}:
                self.violated(Fault.RESURRECTED, f"{tenant} holds {item['memory']!r} ({item['type']})", [memory])

    def _settle(self, memory: Memory, found: Sequence[State], id_: str | None) -> None:
        if len(found) > 1:
            self.violated(Fault.DOUBLED, f"{memory.word} is there {len(found)} times: {found}", [memory])
        states = memory.states
        if not found:
            now = next((state for state in (ABSENT, ERASED) if state in states), None)
            if now is None:
                self.violated(Fault.LOST, f"{memory.word} of {memory.tenant} is not there", [memory])
                now = ERASED
        else:
            now = found[0]
            kinds = {state.kind for state in states}
            fits = now in states or (memory.edited and now.kind in kinds)
            if not fits and Kind.DELETED not in kinds and now.kind is Kind.HERE:
                self.violated(Fault.LOST, f"{memory.word} is {now}, and should be one of {states}", [memory])
            elif not fits and kinds != {Kind.ERASED}:
                fault = Fault.RESURRECTED if now.kind is Kind.HERE else Fault.BROKEN
                self.violated(fault, f"{memory.word} is {now}, and should be one of {states}", [memory])
            memory.id = id_
        if memory.doubtful or memory.states != {now}:
            memory.history.append(f"round {self.round}: the survey shows {now}")
        memory.states, memory.doubtful = {now}, False
        memory.gone_at = None if now.kind is Kind.HERE else memory.gone_at or time.monotonic()

    def _check_batches(self) -> None:
        """Check that every add was stored as a whole or not at all."""
        batches: dict[int, list[Memory]] = {}
        for memory in self.memories.values():
            batches.setdefault(memory.batch, []).append(memory)
        for memories in batches.values():
            if len({memory.states == {ABSENT} for memory in memories}) > 1:
                self.violated(Fault.BROKEN, "half an add was stored", memories)

    def check_copy(self, held: Mapping[str, Sequence[Mapping[str, Any]]], gone: Collection[str], where: str) -> None:
        """Check what an older copy holds: nothing twice, nothing of others, nothing erased before it was made."""
        counts: Counter[str] = Counter()
        known = {memory.id: memory.word for memory in self.memories.values() if memory.id is not None}
        for tenant, items in held.items():
            for item in items:
                for word in _WORD.findall(item["memory"]):
                    memory = self.memories.get(word)
                    if memory is None or memory.tenant != tenant:
                        self.violated(Fault.LEAKED, f"{where}: {tenant} holds {item['memory']!r}")
                    elif word in gone:
                        self.violated(Fault.RESURRECTED, f"{where} holds {item['memory']!r}", [memory])
                    if item["type"] == MESSAGE:
                        counts[known.get(item["id"], word)] += 1
        for word, number in counts.items():
            if number > 1:
                self.violated(Fault.DOUBLED, f"{where} holds {word} {number} times", [self.memories[word]])

    def check_whole(self, held: Mapping[str, Sequence[Mapping[str, Any]]], before: Collection[str], where: str) -> None:
        """Check that a copy holds all memories that were certainly there before and after it was made."""
        # By identifier too: a correction may have changed a memory's text, word and all, before the copy was made.
        known = {memory.id: memory.word for memory in self.memories.values() if memory.id is not None}
        here = {
            word
            for items in held.values()
            for item in items
            for word in (*_WORD.findall(item["memory"]), known.get(item["id"]))
        }
        for word in before:
            memory = self.memories[word]
            if word not in here and all(state.kind is Kind.HERE for state in memory.states):
                self.violated(Fault.LOST, f"{where} does not hold {word}", [memory])

    def words(self, kind: Kind) -> set[str]:
        """Return the words of memories that certainly are of a kind now."""
        return {
            memory.word
            for memory in list(self.memories.values())
            if not memory.doubtful and {state.kind for state in memory.states} == {kind}
        }
