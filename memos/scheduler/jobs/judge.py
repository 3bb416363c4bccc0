"""Background job that asks a language model whether a newer statement replaces an older one.

It is asked about the pairs of which the rules are unsure.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import sqlalchemy as sa

from memos.core.ports import ChatMessage
from memos.core.types import Relation
from memos.errors import BackendUnavailable, InvalidAnswer, ModelError
from memos.llm.client import LLMClient
from memos.llm.examination import Examination
from memos.llm.usage import UsageMeter
from memos.memcube.ledger import items, relations, tasks
from memos.memcube.relations import Pair, judge_task, relation_of
from memos.scheduler.learning import instructions, meter_of, shortened
from memos.scheduler.task import RetryLater, TaskRun

log = logging.getLogger(__name__)

PROMPT = "replaced-1"
_WORDS = ("Yes", "No")
_SHOWN_CHARS = 300
_AT_ONCE = 8  # statements of one task; the others follow in another one
_MOST_TRIES = 3  # of a statement for which the model answers neither word
_RETRY = timedelta(minutes=1)
_ATTEMPTS = 3  # before a model that is away is left alone for a while

# Chosen by 70 pairs written for it (docs/development/log.md): on pairs that the rules have not seen they are too sure,
# and a small model is not sure enough. No model is believed more than 20 to 1.
_OF_RULES = 0.5
_OF_MODEL = 2.0
_MOST_ODDS = 3.0
_LEAST_PROBABILITY = 1e-3

_MUST_ORDER = 0.8
"""Share of the couples of a change and no change that a model must order: a guesser does 2 times in 100."""

KNOWN: tuple[tuple[str, str, bool], ...] = (
    ("I live in Madrid.", "I moved to Seville in spring.", True),
    ("I live in Madrid.", "My aunt moved to Seville.", False),
    ("The dentist is on Tuesday at nine.", "My dentist appointment was moved to Friday.", True),
    ("The dentist is on Tuesday at nine.", "The dentist has a new receptionist.", False),
    ("We host our site on Heroku.", "The site runs on our own servers since last week.", True),
    ("We host our site on Heroku.", "The site had many visitors last week.", False),
    ("I play football every Sunday.", "I quit football for good.", True),
    ("I play football every Sunday.", "The football on television was boring.", False),
    ("Our dog is called Rex.", "Rex died in March.", True),
    ("Our dog is called Rex.", "Rex barks at the postman.", False),
    ("I earn 3,000 a month.", "My salary was raised to 3,400.", True),
    ("I earn 3,000 a month.", "My bike cost 900.", False),
    ("Ich trinke viel Kaffee.", "Ich habe mit dem Kaffee aufgehört.", True),
    ("Ich trinke viel Kaffee.", "Der Kaffee im Büro ist gut.", False),
    ("我在银行上班。", "我上周换到学校工作了。", True),
    ("我在银行上班。", "银行今天人很多。", False),
)
"""Earlier and later statements, and whether the later one means that the earlier one no longer holds."""


class JudgingTrial(NamedTuple):
    """How a model told changes from other statements: the share of couples that it ordered, and the odds between."""

    share: float
    neutral: float

    @property
    def passed(self) -> bool:
        return self.share >= _MUST_ORDER


def try_judging(asker: LLMClient, meter: UsageMeter) -> JudgingTrial:
    """Examine whether a model can tell changes; `neutral` is halfway between its answers to changes and to others."""
    changes, others = (
        [_examined(asker, older, newer, meter) for older, newer, changed in KNOWN if changed is wanted]
        for wanted in (True, False)
    )
    couples = [(change > other) + 0.5 * (change == other) for change in changes for other in others]
    neutral = (sum(changes) / len(changes) + sum(others) / len(others)) / 2
    trial = JudgingTrial(sum(couples) / len(couples), neutral)
    if not trial.passed:
        log.warning(
            "The model %s cannot tell changes from other statements: it ordered %.0f %% of the couples of its "
            "examination, of %.0f %% needed. Rules alone judge what is replaced until another model is configured.",
            asker.model,
            100 * trial.share,
            100 * _MUST_ORDER,
        )
    return trial


def _examined(asker: LLMClient, older: str, newer: str, meter: UsageMeter) -> float:
    try:
        return log_odds(asker, older, newer, meter)
    except InvalidAnswer:
        return 0.0


def log_odds(asker: LLMClient, older: str, newer: str, meter: UsageMeter) -> float:
    """Return a model's log odds that the newer statement means that the older one no longer holds.

    Raises: InvalidAnswer, and what every call to a model raises.
    """
    talk = [*_shown_first(), ChatMessage("user", _asked(older, newer))]
    yes, no = map(asker.complete_choice(talk, _WORDS, meter=meter).get, _WORDS)
    return math.log(((yes or 0.0) + _LEAST_PROBABILITY) / ((no or 0.0) + _LEAST_PROBABILITY))


def _shown_first() -> Iterator[ChatMessage]:
    """Yield the instructions and the examples, the same for each pair, so that a server computes them once."""
    system, examples = instructions(PROMPT).strip().split("\n\n")
    yield ChatMessage("system", system)
    for line in examples.splitlines():
        answer, older, newer = line.split(" | ")
        yield ChatMessage("user", _asked(older, newer))
        yield ChatMessage("assistant", answer)


def _asked(older: str, newer: str) -> str:
    earlier, later = (shortened(text, _SHOWN_CHARS) for text in (older, newer))
    return f"Earlier: {earlier}\nLater: {later}\nIs the earlier statement no longer true?"


@dataclass(slots=True)
class _Judged:
    found: list[tuple[Pair, Relation]] = field(default_factory=list)
    unusable: list[Pair] = field(default_factory=list)  # the model answered something else, or refused


@dataclass(frozen=True, slots=True)
class JudgeJob:
    """Asks the model about each open pair of some statements, and stores its judgement together with the rules'."""

    asker: Callable[[], LLMClient | None]
    open_pairs: Callable[[str, Sequence[str]], list[Pair]]
    examination: Examination[JudgingTrial] = field(default_factory=lambda: Examination(try_judging))

    def run(self, run: TaskRun) -> None:
        """Judge the first statements of the payload, and leave the others to another task."""
        asker, waiting = self.asker(), [str(id_) for id_ in run.task.payload["items"]]
        if asker is None:
            return
        try:
            judged = self._judged(run, asker, waiting[:_AT_ONCE])
        except BackendUnavailable as error:
            if error.permanent or run.task.attempts < _ATTEMPTS:
                raise
            raise RetryLater(run.clock.now() + _RETRY, "the model that judges relations is away") from error
        if judged is None:
            run.note = f"the model {asker.model} fails the examination; rules judge alone"
            return
        tries = int(run.task.payload.get("tries", 0)) + 1
        again = sorted({pair.newer.id for pair in judged.unusable})
        if again:
            run.note = f"{len(judged.unusable)} answers of the model {asker.model} were not usable"
        with run.finishing() as connection:
            cube, now = run.task.cube, run.clock.now()
            relations.store_judged(connection, cube, _unchanged(connection, cube, judged.found), now)
            later = [judge_task(waiting[_AT_ONCE:])] if waiting[_AT_ONCE:] else []
            if again and tries < _MOST_TRIES:
                later.append(judge_task(again, tries=tries, not_before=now + _RETRY))
            tasks.enqueue(connection, cube, later, now)

    def _judged(self, run: TaskRun, asker: LLMClient, ids: Collection[str]) -> _Judged | None:
        """Return what the model makes of the open pairs, None if it failed its examination."""
        pairs = self.open_pairs(run.task.cube, list(ids))
        judged, meter = _Judged(), meter_of(run, "reader")
        if not pairs:
            return judged
        run.check_budget()
        trial = self.examination.result(asker, meter)
        if not trial.passed:
            return None
        for place, pair in enumerate(pairs):
            run.check_cancelled(place / len(pairs))
            run.check_budget()
            try:
                told = log_odds(asker, pair.older.memory, pair.newer.memory, meter)
            except ModelError:  # of this pair, such as a refusal: the others are judged
                judged.unusable.append(pair)
                continue
            evidence = max(-_MOST_ODDS, min(_MOST_ODDS, _OF_MODEL * (told - trial.neutral)))
            both = pair._replace(odds=_OF_RULES * pair.odds + evidence)
            judged.found.append((pair, relation_of(both, relations.MODEL)))
        return judged


def _unchanged(connection: sa.Connection, cube: str, found: Sequence[tuple[Pair, Relation]]) -> list[Relation]:
    """Return the relations of pairs whose statements are as the model was shown them."""
    now = items.current(connection, [cube], {item.id for pair, _ in found for item in (pair.older, pair.newer)})
    versions = {id_: state.version_id for id_, state in now.items()}
    return [
        relation
        for pair, relation in found
        if all(versions.get(item.id) == item.version_id for item in (pair.older, pair.newer))
    ]
