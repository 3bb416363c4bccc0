"""Presets of heat, compared on what is recorded of a cube: what each would have made of its topics.

The rules are the scheduler's own. Recorded are when each page came, and of each message how often it was found, and
when last; the other times are taken to lie evenly between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import sqlalchemy as sa

from memos.memcube.ledger import queries, tier_moves
from memos.memcube.ledger import segments as segment_rows
from memos.memcube.ledger.segments import SegmentRow, Uses
from memos.scheduler.heat import Access, Warmth
from memos.scheduler.jobs.segments import GRACE
from memos.scheduler.rules import HeatRules, TierSettings, rules_of, wanted_tau

_TOPICS = 100
_MOST_USES = 10_000
_USES_OF_A_TOPIC = 100
IN_USE = "in_use"

PRESETS: Mapping[str, tuple[str, TierSettings]] = {
    "standard": ("As installed: five uses of late, and a topic is read into long-term memory", TierSettings()),
    "early": ("Reads a topic after two uses; with a model that costs more calls", TierSettings(promote_above=2)),
    "lasting": ("Forgets slowly: heat halves in six weeks, so few topics are archived", TierSettings(tau_days=60)),
    "memoryos": (
        "Counts uses as MemoryOS does, and archives only for lack of room",
        TierSettings(policy="memoryos", short_capacity=7),
    ),
}
"""Description and settings of each preset, by name."""


@dataclass(frozen=True, slots=True)
class PresetTopic:
    """The outcome of a preset for a topic."""

    segment: Annotated[str, "Id of the segment"]
    tier: Annotated[str, "`long` (read into long-term memory), `mid` or `archive`"]
    heat: Annotated[float, "Its heat now under this preset"]
    promoted_at: Annotated[datetime | None, "When it would first have been read into long-term memory"]


@dataclass(frozen=True, slots=True)
class HeatPreset:
    """A preset, and what it would have made of a cube."""

    name: Annotated[str, "Its name; `in_use` for settings that are no preset"]
    description: Annotated[str, "What it does"]
    in_use: Annotated[bool, "Whether it is the one of this installation"]
    policy: Annotated[str, "`forward_decay` or `memoryos`"]
    promote_above: Annotated[float, "Heat from which a topic is read into long-term memory"]
    demote_below: Annotated[float, "Heat below which it is archived"]
    short_capacity: Annotated[int, "Exchanges of a conversation in the short tier"]
    mid_capacity: Annotated[int, "Topics in use"]
    tau_days: Annotated[float | None, "Days in which heat falls to 37 %; null where it does not"]
    short_pages: Annotated[int, "Exchanges that the short tier would hold"]
    tiers: Annotated[Mapping[str, int], "Number of the compared topics by tier"]
    promotions: Annotated[int, "How often a topic would have been read"]
    topics: Annotated[tuple[PresetTopic, ...], "The compared topics, in the same order for each preset"]


@dataclass(frozen=True, slots=True)
class PresetComparison:
    """Presets of heat on a cube's own history."""

    cube: Annotated[str, "The cube"]
    at: Annotated[datetime, "Time of the comparison"]
    since: Annotated[datetime | None, "First recorded use; null without any"]
    uses: Annotated[int, "Recorded uses that were replayed"]
    topics: Annotated[int, "Topics in the cube; the hottest of them are compared"]
    presets: Annotated[tuple[HeatPreset, ...], "The presets"]


class _Use(NamedTuple):
    """An access that the scheduler learnt of at `seen`; a page may have been said long before."""

    seen: datetime
    at: datetime
    access: Access


@dataclass(frozen=True, slots=True)
class _Lived:
    heat: float
    archived: bool
    promoted_at: datetime | None
    promotions: int


def compare(connection: sa.Connection, cube: str, settings: TierSettings, now: datetime) -> PresetComparison:
    """Replay what is recorded of a cube's hottest topics under each preset, and under the settings in use."""
    rows = segment_rows.hottest(connection, cube, _TOPICS)
    uses = segment_rows.uses_of(connection, cube, [row.id for row in rows], _MOST_USES, _USES_OF_A_TOPIC)
    history = {row.id: _history(row, uses[row.id], now) for row in rows}
    total = tier_moves.count(connection, cube)
    given = dict(PRESETS)
    mine = next((name for name, (_, each) in PRESETS.items() if _same(each, settings)), IN_USE)
    if mine == IN_USE:
        given = {IN_USE: ("The settings of this installation", settings), **given}
    presets = []
    for name, (description, preset) in given.items():
        tau = wanted_tau(preset, min(1.0, preset.mid_capacity / max(1, total)))
        rules = rules_of(preset, tau)
        lived = {row.id: _live(history[row.id], rules, now) for row in rows}
        topics = _placed(lived, rules.mid_capacity)
        presets.append(
            HeatPreset(
                name=name,
                description=description,
                in_use=name == mine,
                policy=preset.policy,
                promote_above=rules.thresholds.promote_above,
                demote_below=rules.thresholds.demote_below,
                short_capacity=rules.short_capacity,
                mid_capacity=rules.mid_capacity,
                tau_days=None if preset.policy == "memoryos" else round(tau / timedelta(days=1), 2),
                short_pages=queries.short_pages_at(connection, cube, rules.short_capacity),
                tiers={tier: sum(topic.tier == tier for topic in topics) for tier in ("long", "mid", "archive")},
                promotions=sum(each.promotions for each in lived.values()),
                topics=topics,
            )
        )
    first = min((use.seen for each in history.values() for use in each), default=None)
    return PresetComparison(cube, now, first, sum(map(len, history.values())), total, tuple(presets))


def _same(one: TierSettings, other: TierSettings) -> bool:
    return one.model_dump() == TierSettings.of(other).model_dump()


def _history(row: SegmentRow, uses: Uses, now: datetime) -> list[_Use]:
    found = [_Use(placed, min(said, placed), Access.MERGED) for said, placed in uses.pages]
    for visits, since, last in uses.found:
        found += [_Use(at, at, Access.RETRIEVED) for at in _spread(visits, since, last)]
    # Found through facts that were read from it.
    others = row.visits - sum(visits for visits, _, _ in uses.found)
    if others > 0 and row.last is not None:
        found += [_Use(at, at, Access.RETRIEVED) for at in _spread(others, row.created_at, row.last)]
    return sorted(use for use in found if use.seen <= now)[-_USES_OF_A_TOPIC:]


def _spread(count: int, since: datetime, last: datetime) -> Iterator[datetime]:
    step = max(last - since, timedelta(0)) / count
    for place in range(min(count, _USES_OF_A_TOPIC)):
        yield last - place * step


def _live(history: Sequence[_Use], rules: HeatRules, now: datetime) -> _Lived:
    policy, thresholds = rules.policy, rules.thresholds
    warm, promoted, promotions, unread = Warmth(), None, 0, False
    for use in history:
        warm = policy.accessed(warm, use.access, use.at, use.seen)
        unread = unread or use.access is Access.MERGED
        if unread and policy.heat(warm, use.seen) >= thresholds.promote_above:
            warm, unread = policy.analysed(warm, use.seen), False
            promoted, promotions = promoted or use.seen, promotions + 1
    heat = policy.heat(warm, now) if history else 0.0
    old = bool(history) and now - history[0].seen > GRACE
    return _Lived(heat, old and heat < thresholds.demote_below, promoted, promotions)


def _placed(lived: Mapping[str, _Lived], capacity: int) -> tuple[PresetTopic, ...]:
    open_ = sorted((id_ for id_, each in lived.items() if not each.archived), key=lambda id_: -lived[id_].heat)
    kept = set(open_[:capacity])
    return tuple(
        PresetTopic(
            segment=id_,
            tier="archive" if id_ not in kept else "long" if each.promoted_at else "mid",
            heat=round(each.heat, 4),
            promoted_at=each.promoted_at,
        )
        for id_, each in lived.items()
    )
