"""stub"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from memos.asking.asker import Asker
from memos.asking.meter import Meter
from memos.model import Fact, Item, ItemType, Span, Trust
from memos.text.instructions import reads_like_instruction
from memos.text.preferences import states_preference
from memos.text.statements import key_of, statements


@dataclass(frozen=True, slots=True)
class Extraction:
    facts: tuple[Fact, ...]
    summary: str | None = None
    model: str | None = None
    output: str | None = None
    rejected: int = 0


class FactReader:
    def __init__(self, asker: Callable[[], Asker | None]) -> None:
        self._asker = asker

    def read(self, messages: Sequence[Item], zone: ZoneInfo, meter: Meter, before: str = "") -> Extraction:
        out = []
        for m in messages:
            trust = Trust.UNTRUSTED if any(s.trust is Trust.UNTRUSTED for s in m.sources) else Trust.TRUSTED
            for s in statements(m.memory):
                out.append(
                    Fact(
                        ItemType.USER,
                        m.memory,
                        (Span(m.id, 0, len(m.memory)),),
                        m.speaker,
                        "patterns/1",
                        m.said_at or m.created_at,
                        key_of(m.speaker, s.attribute),
                        s.value,
                        0.9,
                        m.said_at,
                        None,
                        (),
                        trust,
                    )
                )
            if states_preference(m.memory):
                out.append(
                    Fact(
                        ItemType.PREFERENCE,
                        m.memory,
                        (Span(m.id, 0, len(m.memory)),),
                        m.speaker,
                        "patterns/1",
                        m.said_at or m.created_at,
                        None,
                        None,
                        0.8,
                        m.said_at,
                        None,
                        (),
                        trust,
                    )
                )
            if reads_like_instruction(m.memory):
                out.append(
                    Fact(
                        ItemType.INSTRUCTION,
                        m.memory,
                        (Span(m.id, 0, len(m.memory)),),
                        m.speaker,
                        "patterns/1",
                        m.said_at or m.created_at,
                        None,
                        None,
                        0.8,
                        m.said_at,
                        None,
                        (),
                        trust,
                    )
                )
        return Extraction(tuple(out))
