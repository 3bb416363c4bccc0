"""Select the memories for an adapter to learn: hot, unchanged for days, and undisputed. Pure.

Every memory that is left out has a reason, which is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from memos.core.text.redaction import mask
from memos.core.text.rendering import is_untrusted
from memos.core.types import Item, ItemType, Status
from memos.memcube.parametric.quiz import KnownFact, expected, plain, thing_and_rest

_USER, _ASSISTANT = "user", "assistant"
_KINDS = frozenset({ItemType.USER, ItemType.PREFERENCE})
_SURE, _TOLD_AGAIN = 0.9, 2
_ALONE = {"residence", "employer", "name"}
_OF_MINE, _LIKES = "my:", "likes:"
_MOST_CHARS = 300


class LeftOut(StrEnum):
    """Why a memory is not learned; the values are keys of answers (`left_out`) and do not change."""

    KIND = "no fact about somebody"
    EXCLUDED = "excluded from learning"
    STATUS = "not valid, or waits for review"
    OVER = "ended, or ends some day"
    UNTRUSTED = "not said by the people themselves"
    SECRET = "has a secret or a key in it"  # noqa: S105 - a reason
    UNSURE = "said once and not sure"
    NEW = "changed too lately"
    COLD = "not used enough"
    SHAPE = "nothing in it that could be asked for"
    CONTRADICTED = "another memory says something else of the same"
    BEYOND = "beyond the hottest, which are learned"


@dataclass(frozen=True, slots=True)
class Stable:
    heat: float
    unchanged: timedelta
    most: int


@dataclass(frozen=True, slots=True)
class Selected:
    facts: tuple[KnownFact, ...]
    left_out: Mapping[LeftOut, int]


def select(
    memories: Iterable[tuple[Item, float | None]], wanted: Stable, now: datetime, excluded: Collection[str] = ()
) -> Selected:
    """Return the facts among memories with their sources and heats, in order of id; the heat of what is pinned is None.

    Of two that say different things of the same, neither is learned, also where one of them is `excluded`.
    """
    left_out: Counter[LeftOut] = Counter()
    found: list[tuple[str, float, KnownFact]] = []
    values: dict[str, set[str]] = {}
    for item, heat in sorted(memories, key=lambda pair: pair[0].id):
        if item.key and item.value and item.status in (Status.ACTIVE, Status.PENDING) and item.valid_to is None:
            # Also what is too new to be learned, or waits for a review that may make it so.
            values.setdefault(item.key, set()).add(item.value.casefold())
        told = LeftOut.EXCLUDED if item.id in excluded else _fact(item, heat, wanted, now)
        if isinstance(told, KnownFact) and not (plain(expected(told)) and (plain(told.thing) or not told.thing)):
            told = LeftOut.SHAPE  # only punctuation: nothing to ask for, or to tell answers apart by
        if isinstance(told, LeftOut):
            left_out[told] += 1
        else:
            found.append((item.key or item.id, math.inf if heat is None else heat, told))
    agreed = [(heat, fact) for key, heat, fact in found if len(values.get(key, ())) < 2]
    hottest = sorted(agreed, key=lambda each: -each[0])[: wanted.most]
    left_out[LeftOut.CONTRADICTED] = len(found) - len(agreed)
    left_out[LeftOut.BEYOND] = len(agreed) - len(hottest)
    facts = sorted((fact for _, fact in hottest), key=lambda fact: fact.item)
    return Selected(tuple(facts), {reason: count for reason, count in left_out.items() if count})


def _fact(item: Item, heat: float | None, wanted: Stable, now: datetime) -> KnownFact | LeftOut:
    subject, _, attribute = (item.key or "").partition("|")
    checks = (
        (LeftOut.KIND, item.type not in _KINDS),
        (LeftOut.STATUS, item.status is not Status.ACTIVE),
        (LeftOut.OVER, item.valid_to is not None),
        (LeftOut.UNTRUSTED, is_untrusted(item.sources) or _is_told_by_a_model(item)),
        (LeftOut.SECRET, mask(item.memory, personal=False)[0] != item.memory),
        (LeftOut.UNSURE, item.confidence < _SURE and len(item.sources) < _TOLD_AGAIN and heat is not None),
        (LeftOut.NEW, now - item.updated_at < wanted.unchanged),
        (LeftOut.COLD, heat is not None and heat < wanted.heat),
        (LeftOut.SHAPE, len(item.memory) > _MOST_CHARS),
    )
    for reason, is_so in checks:
        if is_so:
            return reason
    whom = None if item.speaker == _USER else item.speaker
    if subject and attribute in _ALONE and item.value:
        return KnownFact(item.id, item.version, item.memory, attribute, "", item.value, whom)
    if attribute.startswith(_OF_MINE) and item.value:
        return KnownFact(item.id, item.version, item.memory, "my", attribute[len(_OF_MINE) :], item.value, whom)
    if attribute.startswith(_LIKES) and item.value in ("yes", "no"):
        kind = "likes" if item.value == "yes" else "dislikes"
        return KnownFact(item.id, item.version, item.memory, kind, attribute[len(_LIKES) :], item.value, whom)
    if thing_and_rest(item.memory) is None:
        return LeftOut.SHAPE
    return KnownFact(item.id, item.version, item.memory, "said", "", item.value or "", whom)


def _is_told_by_a_model(item: Item) -> bool:
    """Return True if only an assistant said it: what a model made up under an adapter would teach the next one."""
    return bool(item.sources) and all(source.speaker == _ASSISTANT for source in item.sources)
