"""Asks a model about facts that keys and likeness leave open; what it says about anything else counts for nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from memos.core.types import Fact, Item
from memos.llm.client import Asker
from memos.llm.usage import Meter
from memos.memcube.facts import event_time
from memos.scheduler.consolidation import Verdict, Verdicts
from memos.scheduler.prompting import plain, question

PROMPT = "judge-1"
_MOST_PAIRS = 20
_SHOWN_CHARS = 300


class PairVerdict(BaseModel):
    """What becomes of one numbered pair."""

    pair: int
    verdict: Verdict


class Judgement(BaseModel):
    """The verdicts of one answer."""

    verdicts: list[PairVerdict] = Field(default_factory=list, max_length=200)


@dataclass(frozen=True, slots=True)
class Judge:
    """At most one call for the facts of one reading; without a model nothing is decided."""

    asker: Callable[[], Asker | None]

    def decide(
        self, facts: Sequence[Fact], pairs: Collection[tuple[int, str]], known: Mapping[str, Item], meter: Meter
    ) -> Verdicts:
        """Return verdicts for pairs of (place of a fact, item). Raises: ModelError, BackendUnavailable."""
        asker = self.asker() if pairs else None
        if asker is None:
            return {}
        asked = list(pairs)[:_MOST_PAIRS]
        lines = [_line(number, facts[place], known[item]) for number, (place, item) in enumerate(asked, start=1)]
        answer = asker.ask(question(PROMPT, lines), Judgement, meter=meter)
        return {asked[one.pair - 1]: one.verdict for one in answer.verdicts if 1 <= one.pair <= len(asked)}


def _line(number: int, fact: Fact, item: Item) -> str:
    said = fact.valid_from or fact.said_at
    return f"{number}. stored ({event_time(item):%F}): {_shown(item.memory)} | new ({said:%F}): {_shown(fact.memory)}"


def _shown(text: str) -> str:
    return plain(text, _SHOWN_CHARS)
