"""Consolidate facts: store a new item, merge a fact into an existing one, or supersede a value that changed.

Facts with a key (`subject|attribute`) are matched by key, others by similarity, and by a judge model if there is one.
Runs in the transaction that stores the facts; the order is that of event time, not of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from memos.core.text.matching import contains_words, contradicts, normalized_value, overlap, words
from memos.core.types import DERIVED, Fact, Item, ItemType, LinkKind, Status, Trust
from memos.memcube import facts as stored
from memos.memcube.changes import Change
from memos.memcube.facts import WITHDRAWN, event_time
from memos.memcube.ledger import items
from memos.memcube.profiles.traits import may_replace, orders_from_untrusted, told_of_another
from memos.reader.facts.llm import PENDING

# Two facts without a key are duplicates if they reach both and the words of one contain those of the other. The cosine
# alone does not suffice: of 40 pairs with one difference that matters, 29 have 0.9 or more. Measured on MiniLM with
# `benchmarks.scheduler --parts duplicates`.
NEAR_COSINE = 0.85
NEAR_OVERLAP = 0.33
LEAST_CONFIDENCE = 0.5  # a fact with less confidence is stored for review
_DISPUTED = "an untrusted source says otherwise"

STATIC = "static"  # tag of an operator's statements, which extracted facts never replace


class SimilarItem(NamedTuple):
    """A stored item similar to a fact, with the cosine of their indexed texts."""

    item: str
    cosine: float


class Verdict(StrEnum):
    SAME = "same"
    REPLACES = "replaces"
    UNRELATED = "unrelated"


_CURRENT = frozenset({Status.ACTIVE, Status.ARCHIVED})
# Pending and deleted items do not count as statements.
_STATED = _CURRENT | {Status.SUPERSEDED}

Verdicts = Mapping[tuple[int, str], Verdict]  # by index of the fact and id of the item


@dataclass(slots=True)
class Outcome:
    new: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    superseded: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


def consolidate(
    change: Change, facts: Sequence[Fact], near: Sequence[Sequence[SimilarItem]] = (), verdicts: Verdicts | None = None
) -> Outcome:
    """Store facts; `near` has the similar items of each, `verdicts` the judge's decisions on them. Idempotent."""
    outcome = Outcome()
    fresh: list[Item] = []
    for place in sorted(range(len(facts)), key=lambda place: _time(facts[place])):
        fact = facts[place]
        if _is_already_stored(change, fact):
            continue
        why = why_review(fact) or _third_party_reason(change, fact)
        if why is not None:
            _store_for_review(change, fact, why, outcome)
            continue
        if fact.key is not None:
            _place_by_key(change, fact, outcome)
            continue
        close = _comparable_items(change, fact, near[place] if near else ())
        close += [(item, 1.0) for item in fresh if item.type is fact.type]
        judged = {item: verdict for (at, item), verdict in (verdicts or {}).items() if at == place}
        item = _place_by_similarity(change, fact, close, judged, outcome)
        if item is not None:
            fresh.append(item)
    return outcome


def why_review(fact: Fact) -> str | None:
    if orders_from_untrusted(fact):
        return "an untrusted source gives an instruction"
    if PENDING in fact.info:
        return str(fact.info[PENDING])
    if fact.confidence < LEAST_CONFIDENCE:
        return f"confidence {fact.confidence:.2f} is below {LEAST_CONFIDENCE:g}"
    return None


def _third_party_reason(change: Change, fact: Fact) -> str | None:
    if fact.trust is not Trust.UNTRUSTED:
        return None
    told = items.current(change.connection, [change.cube], {span.item for span in fact.spans}).values()
    return (
        "an untrusted source says it about another person" if told_of_another(fact, {i.speaker for i in told}) else None
    )


def _time(fact: Fact) -> datetime:
    return fact.valid_from or fact.said_at


def _is_already_stored(change: Change, fact: Fact) -> bool:
    """Return True if this fact was extracted from the same messages before, even if it was rejected since."""
    origins = {span.item for span in fact.spans}
    states = items.current(change.connection, [change.cube], items.derived_from(change.connection, origins))
    said = (fact.type, fact.memory, fact.key, fact.value)
    alike = [
        item
        for item in states.values()
        if (item.type, item.memory, item.key, item.value) == said and not item.info.get(WITHDRAWN)
    ]
    links = items.links_from(change.connection, [item.id for item in alike])
    return any(
        origins <= {to for kind, to in links.get(item.id, ()) if kind == LinkKind.DERIVED_FROM} for item in alike
    )


def _contradicts_trusted(change: Change, fact: Fact, known: Sequence[Item]) -> bool:
    """Return True if an untrusted source would replace what a trusted one said: a web page changes no address."""
    if fact.trust is not Trust.UNTRUSTED:
        return False
    sources = items.sources_of(change.connection, [item.id for item in known])
    return any(source.trust is Trust.TRUSTED for told in sources.values() for source in told)


def _store_for_review(change: Change, fact: Fact, why: str, outcome: Outcome) -> None:
    outcome.pending.append(stored.store(change, fact, status=Status.PENDING, info={"pending": why}).id)


def _place_by_key(change: Change, fact: Fact, outcome: Outcome) -> None:
    known = [item for item in _with_key(change, fact) if item.status in _STATED]
    line = _timeline(known)
    at = _time(fact)
    before = [item for item in line if event_time(item) <= at]
    after = [item for item in line if event_time(item) > at]
    over = _known_end(known, fact, after)
    if fact.valid_to is not None and fact.valid_to <= max(fact.said_at, change.now):
        _place_ended(change, fact, [*(item for item in known if _only_end_known(item)), *line], outcome)
    elif before and _same_value(before[-1], fact) and (before[-1].valid_to is None or at < before[-1].valid_to):
        _merge(change, before[-1], fact, outcome)
    elif over is not None:
        _merge(change, over, fact, outcome)
        _succeed(change, before[-1:], over.id, at, outcome)
    elif after and _same_value(after[0], fact):
        _merge(change, after[0], fact, outcome)
        _succeed(change, before[-1:], after[0].id, at, outcome)
    elif after:
        _store_between(change, fact, before, after[0], outcome)
    else:
        _store_newest(change, fact, before, outcome)


def _with_key(change: Change, fact: Fact) -> list[Item]:
    assert fact.key is not None
    known = stored.with_keys(change.connection, change.cube, [fact.key]).get(fact.key, [])
    return [item for item in known if (item.type is ItemType.PROFILE) is (fact.type is ItemType.PROFILE)]


def _timeline(line: Sequence[Item]) -> list[Item]:
    times = {item.id: event_time(item) for item in line}
    ordered = []
    for item in line:
        if item.status is Status.SUPERSEDED:
            successor = times.get(item.superseded_by or item.id, times[item.id])
            if successor >= times[item.id]:
                ordered.append(item)
        elif item.status in _CURRENT and not _only_end_known(item):
            ordered.append(item)
    return ordered


def _only_end_known(item: Item) -> bool:
    """Return True if only the end of an item is known; the time it was said does not say when it began."""
    return item.valid_from is None and item.valid_to is not None


def _known_end(known: Sequence[Item], fact: Fact, after: Sequence[Item]) -> Item | None:
    """Return the earliest statement that the fact's value ended, after the fact and before the next value began."""
    follows = event_time(after[0]) if after else None
    ends = [
        (item.valid_to, item.id, item)
        for item in known
        if _only_end_known(item)
        and item.status in _CURRENT
        and item.valid_to is not None
        and _same_value(item, fact)
        and _time(fact) < item.valid_to
        and (follows is None or item.valid_to <= follows)
    ]
    return min(ends)[2] if ends else None


def _place_ended(change: Change, fact: Fact, line: Sequence[Item], outcome: Outcome) -> None:
    assert fact.valid_to is not None
    # The same value may have begun again later: "I lived here in 2015" does not end a residence that began since.
    same = [
        item
        for item in line
        if _same_value(item, fact) and (_only_end_known(item) or event_time(item) <= fact.valid_to)
    ]
    if not same:
        outcome.new.append(stored.store(change, fact).id)
        return
    known = same[-1]
    if known.valid_to is None and _contradicts_trusted(change, fact, [known]):
        _store_for_review(change, fact, _DISPUTED, outcome)
        return
    _merge(change, known, fact, outcome)
    current = items.current(change.connection, [change.cube], [known.id])[known.id]
    if current.valid_to is None and STATIC not in current.tags:
        stored.end(change, current, fact.valid_to)


def _store_newest(change: Change, fact: Fact, before: Sequence[Item], outcome: Outcome) -> None:
    current = [item for item in before if item.status in _CURRENT]
    given = next((item for item in current if STATIC in item.tags), None)
    if given is not None:
        _store_behind_operator(change, fact, given, outcome)
        return
    if fact.type is ItemType.PROFILE and not all(may_replace(item, fact) for item in current):
        return
    if _contradicts_trusted(change, fact, current):
        _store_for_review(change, fact, _DISPUTED, outcome)
        return
    item = stored.store(change, fact)
    outcome.new.append(item.id)
    _succeed(change, current, item.id, _time(fact), outcome)


def _store_behind_operator(change: Change, fact: Fact, given: Item, outcome: Outcome) -> None:
    """Store a fact as superseded by the operator's statement; it becomes current if that is withdrawn."""
    waiting = [item for item in _with_key(change, fact) if item.superseded_by == given.id]
    if waiting and _same_value(waiting[-1], fact) and event_time(waiting[-1]) <= _time(fact):
        _merge(change, waiting[-1], fact, outcome)
        return
    item = stored.store(change, fact, status=Status.SUPERSEDED, superseded_by=given.id)
    stored.link_superseded(change, given.id, item.id)
    outcome.superseded.append(item.id)


def _store_between(change: Change, fact: Fact, before: Sequence[Item], later: Item, outcome: Outcome) -> None:
    ends = min(event_time(later), fact.valid_to or event_time(later))
    item = stored.store(change, fact, status=Status.SUPERSEDED, valid_to=ends, superseded_by=later.id)
    outcome.superseded.append(item.id)
    stored.link_superseded(change, later.id, item.id)
    _succeed(change, before[-1:], item.id, _time(fact), outcome)


def _succeed(change: Change, older: Sequence[Item], new: str, at: datetime, outcome: Outcome) -> None:
    again = []
    for old in older:
        if STATIC in old.tags:
            continue
        ended = old.valid_to is not None and old.valid_to <= at
        if old.status in _CURRENT:
            outcome.superseded.append(old.id)
        elif ended:
            continue
        if not ended:
            again.append(stored.restored_fact(change, old, at))
        stored.supersede(change, old, new, old.valid_to if ended else at)
    for fact in again:
        if fact is not None:
            _place_by_key(change, fact, outcome)


def _same_value(item: Item, fact: Fact) -> bool:
    # An operator's statement never gets an extracted fact as a source: erasing the fact must not erase the statement.
    return normalized_value(item.value) == normalized_value(fact.value) and STATIC not in item.tags


def _merge(change: Change, item: Item, fact: Fact, outcome: Outcome, *, says_more: bool = False) -> None:
    if stored.merge(change, item, fact, says_more=says_more and STATIC not in item.tags):
        outcome.merged.append(item.id)


def _comparable_items(change: Change, fact: Fact, near: Sequence[SimilarItem]) -> list[tuple[Item, float]]:
    states = items.current(change.connection, [change.cube], [one.item for one in near])
    found = []
    for one in sorted(near, key=lambda one: -one.cosine):
        state = states.get(one.item)
        if state is not None and comparable(state, fact):
            found.append((state, one.cosine))
    return found


def comparable(item: Item, fact: Fact) -> bool:
    return (
        item.type in DERIVED
        and item.type is fact.type
        and item.status in _CURRENT
        and item.speaker.casefold() == fact.subject.casefold()
    )


def _place_by_similarity(
    change: Change, fact: Fact, close: Sequence[tuple[Item, float]], judged: Mapping[str, Verdict], outcome: Outcome
) -> Item | None:
    for item, cosine in close:
        if same(item.memory, fact.memory, cosine) or judged.get(item.id) is Verdict.SAME:
            _merge(change, item, fact, outcome, says_more=words(fact.memory) > words(item.memory))
            return None
    replaced = [item for item, _ in close if judged.get(item.id) is Verdict.REPLACES and STATIC not in item.tags]
    later = [item for item in replaced if event_time(item) > _time(fact)]
    if later:
        _store_between(change, fact, [], later[0], outcome)
        return None
    new = stored.store(change, fact)
    outcome.new.append(new.id)
    for old in replaced:
        stored.supersede(change, old, new.id, _time(fact))
        outcome.superseded.append(old.id)
    return new


def same(one: str, other: str, cosine: float) -> bool:
    if " ".join(one.casefold().split()) == " ".join(other.casefold().split()):
        return True
    if cosine < NEAR_COSINE or contradicts(one, other):
        return False
    mine, its = words(one), words(other)
    return contains_words(mine, its) == 1 and overlap(mine, its) >= NEAR_OVERLAP


def undecided(
    facts: Sequence[Fact], near: Sequence[Sequence[SimilarItem]], known: Mapping[str, Item]
) -> Collection[tuple[int, str]]:
    found = []
    for place, (fact, close) in enumerate(zip(facts, near, strict=True)):
        if fact.key is not None or why_review(fact) is not None:
            continue
        mates = [one for one in close if one.item in known and comparable(known[one.item], fact)]
        if any(same(known[one.item].memory, fact.memory, one.cosine) for one in mates):
            continue
        found += [(place, one.item) for one in mates]
    return found
