"""Which memories an adapter is to know: what is hot, has not changed for days, and nobody doubts. Pure.

Every memory that is left out is left out for a reason, which is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from memos.core.text.redaction import mask
from memos.core.text.rendering import is_untrusted
from memos.core.types import Item, ItemType, Status
from memos.memcube.ledger.adapters import AdapterRow, AdapterState
from memos.memcube.parametric.quiz import KnownFact, expected, plain, thing_and_rest

# Which adapters of a cube are of no use any more. Pure.


def superfluous(rows: Sequence[AdapterRow], stale: Collection[str], answered: str | None) -> list[AdapterRow]:
    """Return those of a cube's adapters, given with the newest first, that nobody misses.

    Of each shard stay: the one that answers, one that answered before, which is `answered` where that may answer
    again, else the newest, and the newest that was refused. What is stale can never answer again.
    """
    seen: set[tuple[str, AdapterState]] = set()
    gone = []
    for row in sorted(rows, key=lambda row: row.id != answered):
        kind = (row.shard, row.state)
        if row.id in stale:
            gone.append(row)
        elif row.state in (AdapterState.RETIRED, AdapterState.REFUSED):
            if kind in seen:
                gone.append(row)
            seen.add(kind)
    return gone


# Whether what a cube's adapter knows is worth learning anew, and why. Pure.

Memory = tuple[str, int]
"""An item at one version."""


class Why(StrEnum):
    """What makes a cube be learned again."""

    STALE = "stale"
    """What answered saw a memory that is different now."""
    NEW = "new"
    FORGOTTEN = "forgotten"
    """What answered was removed with a memory that it saw."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """Why a cube should be learned again: what the next adapter would know in addition, and what no more.

    `gone` is different now or removed; `cold` is what it was, and not used enough, or left out for another reason.
    """

    why: Why
    new: tuple[str, ...]
    gone: tuple[str, ...]
    cold: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Learned:
    """What adapters saw, what of it still stands as it was, and what of it is answered with now."""

    seen: frozenset[Memory] = frozenset()
    standing: frozenset[Memory] = frozenset()
    served: frozenset[Memory] = frozenset()


def renewal(chosen: Set[Memory], active: Learned, tried: Set[Memory], least: int) -> Renewal | None:
    """Return why what is `chosen` now should be learned, None when it need not be.

    `active` is what those saw that are in service or would be but for what changed, `tried` what of the rest failed its
    examination of late: the same, or nearly, would fail again.
    """
    new, gone, unserved = chosen - active.seen, active.seen - active.standing, chosen - active.served
    if not gone and len(new - tried) < least:
        return None
    if unserved & tried and len(unserved - tried) < least:
        return None
    cold = active.standing - chosen
    return Renewal(
        Why.STALE if gone else Why.NEW, *(tuple(sorted(id_ for id_, _ in part)) for part in (new, gone, cold))
    )


_USER, _ASSISTANT = "user", "assistant"
_KINDS = frozenset({ItemType.USER, ItemType.PREFERENCE})
_SURE, _TOLD_AGAIN = 0.9, 2
_ALONE = {"residence", "employer", "name"}
_OF_MINE, _LIKES = "my:", "likes:"
_MOST_CHARS = 300


class LeftOut(StrEnum):
    """Why a memory is not learned."""

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
    BEYOND = "beyond the hottest that are looked at"


@dataclass(frozen=True, slots=True)
class Stable:
    """What has to hold of a memory: its heat, and how long it has been as it is."""

    heat: float
    unchanged: timedelta


@dataclass(frozen=True, slots=True)
class Selected:
    """The facts to be known, and how many memories were left out for each reason."""

    facts: tuple[KnownFact, ...]
    left_out: Mapping[LeftOut, int]


def select(
    memories: Iterable[tuple[Item, float | None]], wanted: Stable, now: datetime, excluded: Collection[str] = ()
) -> Selected:
    """Return the facts among memories with their sources and heats, in order of id; the heat of what is pinned is None.

    Of two that say different things of the same, neither is learned, also where one of them is `excluded`.
    """
    left_out: Counter[LeftOut] = Counter()
    found: list[tuple[str, KnownFact]] = []
    values: dict[str, set[str]] = {}
    for item, heat in sorted(memories, key=lambda pair: pair[0].id):
        if item.key and item.value and item.status in (Status.ACTIVE, Status.PENDING) and item.valid_to is None:
            # Also what is too new to be learned, or waits for a review that may make it so.
            values.setdefault(item.key, set()).add(item.value.casefold())
        told = LeftOut.EXCLUDED if item.id in excluded else _fact(item, heat, wanted, now)
        if isinstance(told, KnownFact) and not (plain(expected(told)) and (plain(told.thing) or not told.thing)):
            told = LeftOut.SHAPE  # signs alone: it could not be asked for, or no answer be told from another
        if isinstance(told, LeftOut):
            left_out[told] += 1
        else:
            found.append((item.key or item.id, told))
    facts = []
    for key, fact in found:
        if len(values.get(key, ())) > 1:
            left_out[LeftOut.CONTRADICTED] += 1
        else:
            facts.append(fact)
    return Selected(tuple(facts), dict(left_out))


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
    """Say whether nobody but an assistant said so: what a model made up under an adapter would teach the next one."""
    return bool(item.sources) and all(source.speaker == _ASSISTANT for source in item.sources)


# Divides a cube's facts into shards of one topic each, so that a fact which is forgotten costs one short training.

Vectors = npt.NDArray[np.float32]

_FILLED = 0.8
"""How full a shard is made at first, so that there is room for what comes."""

WHOLE = ""
"""The shard of a cube that has only one, and the first of those that have several."""


def shards_of(
    facts: Sequence[KnownFact],
    known: Mapping[str, Collection[str]],
    most: int,
    vectors_of: Callable[[Sequence[str]], Vectors],
) -> dict[str, tuple[KnownFact, ...]]:
    """Return the facts of each shard by its name, at most `most` a shard, in the order in which they are given.

    `known` are the items that each shard's adapter saw; `vectors_of` returns unit vectors as (texts, dimensions), and
    is asked only where there is a choice. A shard without facts left is not returned.
    """
    place = {item: name for name, items in known.items() for item in items}
    found: dict[str, list[int]] = {name: [] for name in known}
    new: list[int] = []
    for row, fact in enumerate(facts):
        name = place.get(fact.item)
        if name is not None and len(found[name]) < most:
            found[name].append(row)
        else:
            new.append(row)
    filled = [name for name, rows in found.items() if rows]
    if new and not filled and len(new) <= most:
        found[WHOLE] = new
    elif new and filled == [WHOLE] and len(facts) <= most:
        found[WHOLE] += new
    elif new:
        _place(found, new, most, vectors_of([fact.memory for fact in facts]))
    return {name: tuple(facts[row] for row in sorted(rows)) for name, rows in sorted(found.items()) if rows}


def _place(found: dict[str, list[int]], new: list[int], most: int, vectors: Vectors) -> None:
    """Put a few new rows into the nearest shards with room; many, or those that find none, become shards themselves.

    A shard that nobody trained yet is many, so that training one of several leaves the others as they were divided.
    """
    filled = max(1, int(most * _FILLED))
    centres = {name: vectors[rows].mean(0) for name, rows in found.items() if rows}
    left = new if len(new) > max(1, most - filled) else []
    for row in () if left else new:
        open_ = [name for name in centres if len(found[name]) < most]
        if open_:
            found[max(open_, key=lambda name: float(centres[name] @ vectors[row]))].append(row)
        else:
            left.append(row)
    for rows in _parts(left, -(-len(left) // filled), vectors):
        found[_free_name(found)] = rows


def _parts(rows: list[int], count: int, vectors: Vectors) -> list[list[int]]:
    """Return rows in so many parts of about one size, cut along the direction in which they differ most."""
    if count < 2:
        return [rows] if rows else []
    centred = vectors[rows] - vectors[rows].mean(0)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    direction *= 1 if direction[np.abs(direction).argmax()] > 0 else -1  # a sign is nothing that was computed
    order = [rows[int(each)] for each in np.argsort(centred @ direction, kind="stable")]
    first = count // 2
    cut = len(order) * first // count
    return _parts(order[:cut], first, vectors) + _parts(order[cut:], count - first, vectors)


def _free_name(found: Mapping[str, list[int]]) -> str:
    if not found.get(WHOLE):
        return WHOLE
    return next(name for name in map(str, range(2, len(found) + 3)) if not found.get(name))
