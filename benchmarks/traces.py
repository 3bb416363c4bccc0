"""Sequences of accesses to memories: seeded ones with topics that drift, and LoCoMo's questions with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Chat

TOPICS, ITEMS_A_TOPIC = 50, 40
ACCESSES_A_DAY = 200
_START = datetime(2025, 1, 1, tzinfo=UTC)
_DAY_S = 86_400.0
_QUESTION_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Trace:
    """Accesses in the order of their times, to `universe` items; those of one `unit` belong together."""

    universe: int
    times: tuple[datetime, ...]
    items: tuple[int, ...]
    units: tuple[str, ...]


def zipf(seed: int, *, accesses: int, drift_days: float) -> Trace:
    """Return accesses to 50 topics of 40 items at 200 a day: the weight of rank r is 1/r, of topics and inside one.

    Drift: after exponential times with mean `drift_days` a topic, any with the same chance, becomes the first, and
    those before it move down one rank. Times between accesses are exponential, too.
    """
    random = np.random.default_rng(seed)
    at_s = np.cumsum(random.exponential(_DAY_S / ACCESSES_A_DAY, accesses))
    ranks = random.choice(TOPICS, accesses, p=_zipf(TOPICS))
    places = random.choice(ITEMS_A_TOPIC, accesses, p=_zipf(ITEMS_A_TOPIC))
    order = random.permutation(TOPICS).tolist()
    drift_s = random.exponential(_DAY_S * drift_days)
    items = []
    for second, rank, place in zip(at_s.tolist(), ranks.tolist(), places.tolist(), strict=True):
        while second >= drift_s:
            order.insert(0, order.pop(int(random.integers(TOPICS))))
            drift_s += random.exponential(_DAY_S * drift_days)
        items.append(order[rank] * ITEMS_A_TOPIC + place)
    times = tuple(_START + timedelta(seconds=second) for second in at_s.tolist())
    return Trace(TOPICS * ITEMS_A_TOPIC, times, tuple(items), (f"seed {seed}",) * accesses)


def locomo_messages(chat: Chat) -> Trace:
    """Return a conversation's questions, each an access to every message that is evidence for it, oldest first.

    Questions come in the order of the latest session with evidence, those of one session in the file's order; the
    n-th of a session is asked n minutes after the session began. The universe is every message.
    """
    return _locomo(chat, [message.id for session in chat.sessions for message in session.messages])


def locomo_sessions(chat: Chat) -> Trace:
    """Return the same, with an access to every session that holds evidence; the universe is every session."""
    return _locomo(chat, [_session(session.messages[0].id) for session in chat.sessions])


def _locomo(chat: Chat, universe: Sequence[str]) -> Trace:
    numbers = {name: number for number, name in enumerate(universe)}
    began = {_session(session.messages[0].id): session.messages[0].at for session in chat.sessions}
    asked = [
        (place, [gold for gold in question.gold if _session(gold) in began])
        for place, question in enumerate(chat.questions)
    ]
    asked = [(place, golds) for place, golds in asked if golds]  # fmt: skip
    asked.sort(key=lambda one: int(_session(one[1][-1])[1:]))
    times: list[datetime] = []
    items: list[int] = []
    units: list[str] = []
    latest, count = "", 0
    for place, golds in asked:
        count = count + 1 if _session(golds[-1]) == latest else 1
        latest = _session(golds[-1])
        start = began[latest]
        assert start is not None  # every LoCoMo session has a date
        at = start + count * _QUESTION_EVERY
        names = dict.fromkeys(gold if gold in numbers else _session(gold) for gold in golds)
        for name in names:
            if name in numbers:
                times.append(max([at, *times[-1:]]))
                items.append(numbers[name])
                units.append(f"{chat.name} question {place}")
    return Trace(len(universe), tuple(times), tuple(items), tuple(units))


def _session(dia_id: str) -> str:
    return dia_id.split(":", 1)[0]


def _zipf(count: int) -> NDArray[np.float64]:
    weights = 1 / np.arange(1, count + 1)
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances
