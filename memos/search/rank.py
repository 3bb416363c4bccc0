"""Orders what was recalled and read from the ledger: its fused score, its session, its neighbours, bounded boosts.

Pure. Every weight was chosen with folds by conversation on LoCoMo and kept only when BEAM and PrefEval did not lose
(docs/log.md); each boost is at most 20 % of a score, and none takes a candidate away.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from memos.model import ArmScore, Boost, Item, Role
from memos.search.fusion import Fused
from memos.search.question import Intent, Question

SESSION = 0.25
"""Weight of the session's standing among the arms: a fifth voter beside four."""

_SESSION_TOP = 5
GRAPH = 0.02
NEXT = 0.15
PREVIOUS = 0.05
SPEAKER = 0.15
TIMED = 0.10
DATED = 0.15
PHRASE = 0.20
NEWEST = 0.10
ASKING = -0.20
ASSISTANT = -0.15

# Who asks at length tells something too.
_SHORT_CHARS = 200
_MOMENT = timedelta(microseconds=1)
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


@dataclass(frozen=True, slots=True)
class Recalled:
    """One candidate the ledger confirmed, with its fused score."""

    item: Item
    fused: Fused


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate with its final score, the arms' votes and what was added to them."""

    item: Item
    score: float
    arms: tuple[ArmScore, ...]
    boosts: tuple[Boost, ...]


def rank(pool: Sequence[Recalled], question: Question, reached: Mapping[str, ArmScore] | None = None) -> list[Ranked]:
    """Return the candidates by their final score, best first; the boosts and the arms' shares add up to it.

    `reached` says by item id what the graph found near the best ones, on a scale from 0 to 1.
    """
    reached = reached or {}
    sessions = _sessions(pool)
    base_of = {entry.item.id: entry.fused.score + SESSION * sessions.get(_session(entry.item), 0.0) for entry in pool}
    named = {speaker for speaker in {entry.item.speaker for entry in pool} if question.names_speaker(speaker)}
    places = {_place(entry.item): entry.item.id for entry in pool if entry.item.position is not None}
    newest = _recency(pool) if Intent.LATEST in question.intents else {}
    ranked = []
    for entry in pool:
        item, base = entry.item, base_of[entry.item.id]
        boosts = [
            Boost("session", base - entry.fused.score),
            Boost("next", NEXT * _beside(item, 1, places, base_of)),
            Boost("previous", PREVIOUS * _beside(item, -1, places, base_of)),
            *(Boost(name, weight * base) for name, weight in _factors(item, question, named)),
            Boost("newest", NEWEST * newest.get(item.id, 0.0) * base),
        ]
        told = tuple(boost for boost in boosts if boost.gave)
        arms = entry.fused.arms
        if item.id in reached:
            arms = (*arms, replace(reached[item.id], gave=GRAPH * reached[item.id].gave))
        score = sum(arm.gave for arm in arms) + sum(boost.gave for boost in told)
        ranked.append(Ranked(item, score, arms, told))
    return sorted(ranked, key=lambda entry: (-entry.score, entry.item.id))


def _session(item: Item) -> tuple[str, str, int] | None:
    if item.conversation is None or item.session is None:
        return None
    return item.cube, item.conversation, item.session


def _sessions(pool: Sequence[Recalled]) -> Mapping[object, float]:
    """Return each session's standing, the best 1: the sum of its five best candidates' scores."""
    votes: dict[object, list[float]] = defaultdict(list)
    for entry in pool:
        session = _session(entry.item)
        if session is not None:
            votes[session].append(entry.fused.score)
    sums = {session: sum(sorted(given, reverse=True)[:_SESSION_TOP]) for session, given in votes.items()}
    best = max(sums.values(), default=0.0)
    return {session: total / best for session, total in sums.items()} if best else {}


def _place(item: Item) -> tuple[object, int]:
    return _session(item), item.position or 0


def _beside(item: Item, step: int, places: Mapping[tuple[object, int], str], core: Mapping[str, float]) -> float:
    if item.position is None:
        return 0.0
    other = places.get((_session(item), item.position + step))
    return 0.0 if other is None else core[other]


def _factors(item: Item, question: Question, named: Collection[str]) -> list[tuple[str, float]]:
    factors = []
    if item.speaker in named:
        factors.append(("speaker", SPEAKER))
    if Intent.WHEN in question.intents and item.valid_to is not None:
        factors.append(("timed", TIMED))
    if question.times and _overlaps(item, question):
        factors.append(("dated", DATED))
    if question.phrases:
        said = " ".join(item.memory.casefold().split())
        factors += [("phrase", PHRASE / len(question.phrases)) for phrase in question.phrases if phrase in said]
    if len(item.memory) < _SHORT_CHARS:
        factors.append(("asking", ASKING * asking_share(item.memory)))
    if item.role is Role.ASSISTANT:
        factors.append(("assistant", ASSISTANT))
    return factors


def _overlaps(item: Item, question: Question) -> bool:
    """Say whether what the item tells of, or the moment it was said, falls into a time the question names."""
    spans = [(item.valid_from, item.valid_to), (item.said_at, None)]
    return any(
        begin < asked.valid_to and (end or begin + _MOMENT) > asked.valid_from
        for begin, end in spans
        if begin is not None
        for asked in question.times
    )


def asking_share(text: str) -> float:
    """Return which part of a text's characters stands in questions: who only asks, tells little."""
    asked = told = 0
    for sentence in _SENTENCE.findall(text):
        length = len(sentence.strip())
        told += length
        if sentence.rstrip().endswith(("?", "？")):
            asked += length
    return asked / told if told else 0.0


def _recency(pool: Sequence[Recalled]) -> Mapping[str, float]:
    """Return 1 for the newest of the pool, 0 for the oldest, by what it tells of."""
    dated = sorted((entry.item.valid_from, entry.item.id) for entry in pool if entry.item.valid_from is not None)
    if len(dated) < 2:
        return {}
    return {item_id: place / (len(dated) - 1) for place, (_, item_id) in enumerate(dated)}
