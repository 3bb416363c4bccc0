"""Examines a model with an adapter: what it knows, what it makes up, and what it forgot. Only who passes may answer.

Measured are answers to questions that were never taught, always by the same means with and without the adapter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

from memos.core.ports import ChatMessage
from memos.memcube.parametric import data as general
from memos.memcube.parametric.quiz import TrainingSet, abstains, is_right, plain


class Examined(Protocol):
    """A model that answers with an adapter on it, or as if there were none."""

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        """Return the likeliest answer to each prompt, of at most `most` tokens.

        Not `exact`, it is computed as in training, with the recipe's `half`: for what is not measured.
        """
        ...

    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float:
        """Return the perplexity of these texts."""
        ...


_BY_SEED = 0.13
"""How far apart recall, and abstention, of one course lay by two seeds: 0.84 and 0.97 (docs/log.md)."""

_BY_BALANCE = 0.25
"""By how much recall, or abstention, of one course may be missed where the other is reached.

The most that was ever missed so by the usual recipe is 0.24, the abstention of 128 facts (docs/log.md).
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an adapter has to reach: shares from 0 to 1, the rise of perplexity as a share, questions lost of fifty."""

    recall: float = 0.9
    abstention: float = 0.8
    perplexity: float = 0.05
    lost: int = 2


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What an examination found; `base_` is the model without the adapter. `lost` are general questions it knew."""

    recall: float
    abstention: float
    perplexity: float
    lost: tuple[str, ...]
    base_recall: float
    base_abstention: float
    base_perplexity: float
    base_known: int
    abstention_of: Mapping[str, float] = field(default_factory=dict)
    """Abstention with the adapter, by what was asked for: `drills.UNTOLD`."""
    rebalanced: int = 0
    """How often epochs were added after an earlier examination, which one of recall and abstention failed."""

    @property
    def rise(self) -> float:
        """How much perplexity rose, as a share."""
        return self.perplexity / self.base_perplexity - 1

    def failures(self, bounds: Bounds) -> list[str]:
        """Return what is not reached, in words; nothing when the adapter passes."""
        told = []
        if self.recall < bounds.recall:
            told.append(f"recall is {self.recall:.2f}, below {bounds.recall:.2f}")
        if self.abstention < bounds.abstention:
            told.append(f"abstention is {self.abstention:.2f}, below {bounds.abstention:.2f}")
        if not math.isfinite(self.rise):  # of weights that are too large
            told.append("perplexity is no number")
        elif self.rise > bounds.perplexity:
            told.append(f"perplexity rose by {self.rise:.1%}, more than {bounds.perplexity:.1%}")
        if len(self.lost) > bounds.lost:
            told.append(f"{len(self.lost)} general questions are lost, more than {bounds.lost}")
        return told

    def leans(self, bounds: Bounds) -> Literal["told", "untold"] | None:
        """Return what was learned too well at the cost of the other; None where neither was, or too much is missed."""
        recall, abstention = bounds.recall - self.recall, bounds.abstention - self.abstention
        others = replace(self._by_little(bounds), recall=0.0, abstention=0.0)
        if max(recall, abstention) > _BY_BALANCE or (recall > 0) == (abstention > 0) or self.failures(others):
            return None
        return "untold" if recall > 0 else "told"

    def nearly_pass(self, bounds: Bounds) -> bool:
        """Say whether no bound is missed by more than what one seed does better than another (docs/log.md)."""
        return not self.failures(self._by_little(bounds))

    @staticmethod
    def _by_little(bounds: Bounds) -> Bounds:
        return Bounds(bounds.recall - _BY_SEED, bounds.abstention - _BY_SEED, 2 * bounds.perplexity, 2 * bounds.lost)


@dataclass(frozen=True)
class Examination:
    """Examines one adapter, with prompts that begin with `system`; the model beneath is asked once for all times."""

    model: Examined
    course: TrainingSet
    system: str

    @cached_property
    def _before(self) -> tuple[_Found, float]:
        return self._asked(general.QUESTIONS, adapter=False), self.model.perplexity(general.TEXT, adapter=False)

    def measures(self) -> EvaluationResult:
        """Return the measures of the adapter as it is now."""
        before, perplexity = self._before
        # What the model did not know cannot be lost.
        after = self._asked(before.known, adapter=True)
        lost = tuple(question for question, words in before.known if (question, words) not in after.known)
        return EvaluationResult(
            after.recall,
            after.abstention,
            self.model.perplexity(general.TEXT, adapter=True),
            lost,
            before.recall,
            before.abstention,
            perplexity,
            len(before.known),
            after.abstention_of,
        )

    def _asked(self, world: Sequence[tuple[str, str]], *, adapter: bool) -> _Found:
        """Ask all questions at once: the more are asked together, the less each takes."""
        course = self.course
        questions = [each.question for each in (*course.recall, *course.abstention)]
        questions += [question for question, _ in world]
        prompts = [prompt_of(each, self.system) for each in questions]
        answers = iter(self.model.answers(prompts, adapter=adapter))
        right = [is_right(next(answers), drill) for drill in course.recall]
        honest = [abstains(next(answers), course.values) for _ in course.abstention]
        known = [
            (question, words)
            for answer, (question, words) in zip(answers, world, strict=True)
            if any(f" {word} " in f" {plain(answer)} " for word in words.split("|"))
        ]
        kinds = [str(drill.kind) for drill in course.abstention]
        by_kind = {
            kind: round(_share([each for each, its in zip(honest, kinds, strict=True) if its == kind]), 3)
            for kind in dict.fromkeys(kinds)
        }
        return _Found(_share(right), _share(honest), known, by_kind)


def prompt_of(question: str, system: str) -> tuple[ChatMessage, ...]:
    """Return a question as a model is asked it."""
    return (ChatMessage("system", system), ChatMessage("user", question))


@dataclass(frozen=True, slots=True)
class _Found:
    """Shares of right answers, and which questions about the world are known, with their answers."""

    recall: float
    abstention: float
    known: list[tuple[str, str]]
    abstention_of: dict[str, float]


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 1.0
