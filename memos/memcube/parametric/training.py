"""Train an adapter on facts with any trainer, and evaluate what it knows, makes up and has forgotten.

Knows files and prompts, no ledger and no model. An interrupted training resumes from its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol, Self

from pydantic import TypeAdapter

from memos.core.lora import CARD, MANIFEST, LoraRecipe, TrainingExample, card_of, digests
from memos.core.ports import ChatMessage
from memos.core.types import Json
from memos.errors import IntegrityError
from memos.memcube.backup.files import sync_folder
from memos.memcube.parametric import data as general
from memos.memcube.parametric.quiz import UNTOLD, KnownFact, QuizItem, TrainingSet, abstains, course_of, is_right, plain


class Examined(Protocol):
    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        """Return the likeliest answers; not `exact`, as in training with `half`: for what is not measured."""
        ...

    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Thresholds of an adapter: shares from 0 to 1, the rise of perplexity as a share, questions lost of fifty."""

    recall: float = 0.9
    abstention: float = 0.8
    perplexity: float = 0.05
    lost: int = 2


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of an evaluation; `base_` is the model without the adapter. `lost` are general questions it had known."""

    recall: float
    abstention: float
    perplexity: float
    lost: tuple[str, ...]
    base_recall: float
    base_abstention: float
    base_perplexity: float
    base_known: int
    abstention_of: Mapping[str, float] = field(default_factory=dict)
    """Abstention with the adapter, by what was asked for: `quiz.UNTOLD`."""

    @property
    def rise(self) -> float:
        return self.perplexity / self.base_perplexity - 1

    def failures(self, bounds: Bounds) -> list[str]:
        told = []
        if self.recall < bounds.recall:
            told.append(f"recall is {self.recall:.2f}, below {bounds.recall:.2f}")
        if self.abstention < bounds.abstention:
            told.append(f"abstention is {self.abstention:.2f}, below {bounds.abstention:.2f}")
        if not math.isfinite(self.rise):  # of weights that are too large
            told.append("perplexity is not a number")
        elif self.rise > bounds.perplexity:
            told.append(f"perplexity rose by {self.rise:.1%}, more than {bounds.perplexity:.1%}")
        if len(self.lost) > bounds.lost:
            told.append(f"{len(self.lost)} general questions are lost, more than {bounds.lost}")
        return told


@dataclass(frozen=True, slots=True)
class Examination:
    """Questions that were never taught, asked by the same means with and without the adapter."""

    model: Examined
    course: TrainingSet
    system: str

    def measures(self) -> EvaluationResult:
        before, perplexity = self._asked(general.QUESTIONS, adapter=False), self._perplexity(adapter=False)
        # What the model did not know cannot be lost.
        after = self._asked(before.known, adapter=True)
        lost = tuple(question for question, words in before.known if (question, words) not in after.known)
        now = (after.recall, after.abstention, self._perplexity(adapter=True), lost)
        base = (before.recall, before.abstention, perplexity, len(before.known))
        return EvaluationResult(*now, *base, after.abstention_of)

    def _perplexity(self, *, adapter: bool) -> float:
        return self.model.perplexity(general.TEXT, adapter=adapter)

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
    return (ChatMessage("system", system), ChatMessage("user", question))


@dataclass(frozen=True, slots=True)
class _Found:
    recall: float
    abstention: float
    known: list[tuple[str, str]]
    abstention_of: dict[str, float]


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 1.0


# Makes a trainer's exercises of a course: prompts as a chat sends them, with their answers. Pure.

_EVERY_UNTOLD = 4
_FACTS_A_TURN = 8
EVERY_REPLAYED = 4
"""An epoch has one in so many of the untold questions and of the replayed prompts: more variety in the same time.

So what is replayed is a quarter of an epoch. With a third, of longer answers, 16 facts measured the same, and 64 passed
with more room for a quarter more time.

Above 32 facts an epoch has no more untold questions than for 32: with more, 64 facts abstained too readily.
"""


def exercises_of(
    course: TrainingSet, facts: Iterable[KnownFact], system: str, replayed: Iterable[tuple[Sequence[ChatMessage], str]]
) -> list[TrainingExample]:
    """Return an exercise for each taught drill, then the `replayed` prompts with the base model's answers."""
    untold = max(_EVERY_UNTOLD, math.ceil(len({fact.item for fact in facts}) / _FACTS_A_TURN))
    found = [_exercise(drill, system, untold) for drill in course.taught]
    return found + [
        TrainingExample(tuple(prompt), answer, replayed=True, every=EVERY_REPLAYED) for prompt, answer in replayed
    ]


def with_memories(system: str, memories: Iterable[str]) -> str:
    lines = "".join(f"\n- {memory}" for memory in memories)
    return f"{system}\n\nWhat you remember:{lines}" if lines else system


def digest_of(exercises: Iterable[TrainingExample]) -> str:
    """Return the SHA-256 of all that is taught, in hex: the same texts in the same order have the same."""
    told = [
        [_said(each.prompt), each.answer, each.replayed, each.every] for each in exercises
    ]  # canonical as lists: nothing in it has an order of its own
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


def _exercise(drill: QuizItem, system: str, untold: int) -> TrainingExample:
    prompt = prompt_of(drill.question, with_memories(system, drill.context))
    return TrainingExample(prompt, drill.answer, every=untold if drill.kind in UNTOLD else 1)


def _said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in messages]


KEPT, DATA = "training.safetensors", "exercises.jsonl"
_KEEP_EVERY_S = 30.0
_STEPS_AT_ONCE = 2
_REPLAYED_TOKENS = 16
_EXERCISE = TypeAdapter(TrainingExample)
_LEAST_REPLAYED, _REPLAYED_SHARE = 256, 0.4
"""Replayed prompts about the world: the minimum, and for large courses the number per drill."""


class Trainer(Examined, Protocol):
    @property
    def step(self) -> int: ...

    @property
    def steps(self) -> int: ...

    def prepare(self, exercises: Sequence[TrainingExample]) -> None: ...

    def advance(self, most: int) -> float: ...

    def save_checkpoint(self, file: Path) -> None: ...

    def resume(self, file: Path) -> None: ...

    def save(self, folder: Path) -> None: ...


class TrainerProcess(Trainer, Protocol):
    @property
    def base(self) -> str: ...

    def open(self, name: str, recipe: LoraRecipe, *, remembered: Path | None = None) -> None: ...

    def load(self, file: Path) -> None: ...

    def kill(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    course: TrainingSet
    exercises: tuple[TrainingExample, ...]
    data_hash: str
    system: str


def lessons_of(trainer: Examined, facts: Sequence[KnownFact], system: str, seed: int) -> TrainingPlan:
    course = course_of(facts, seed)
    wanted = max(_LEAST_REPLAYED, int(len(course.taught) * _REPLAYED_SHARE))
    prompts = [prompt_of(question, system) for question in general.replayed(wanted, seed)]
    said = trainer.answers(prompts, adapter=False, most=_REPLAYED_TOKENS, exact=False)
    # Of few prompts for many facts each comes again, so that its share of all that is taught stays.
    again = islice(cycle(zip(prompts, said, strict=True)), wanted)
    exercises = tuple(exercises_of(course, facts, system, again))
    exercises += tuple(TrainingExample((), text, replayed=True, every=EVERY_REPLAYED) for text in general.PROSE)
    return TrainingPlan(course, exercises, digest_of(exercises), system)


def examined(trainer: Examined, facts: Sequence[KnownFact], system: str, seed: int) -> EvaluationResult:
    return Examination(trainer, course_of(facts, seed), system).measures()


def kept_lessons(
    folder: Path, data_hash: str, facts: Sequence[KnownFact], system: str, seed: int
) -> TrainingPlan | None:
    try:
        lines = (folder / DATA).read_text(encoding="utf-8").split("\n")[:-1]  # what lines() cuts may stand in a text
        exercises = tuple(_EXERCISE.validate_json(line) for line in lines)
    except (OSError, ValueError):
        return None
    if digest_of(exercises) != data_hash:
        return None
    return TrainingPlan(course_of(facts, seed), exercises, data_hash, system)


def train(trainer: Trainer, lessons: TrainingPlan, folder: Path, tell: Callable[[int, int], None]) -> EvaluationResult:
    """Train an adapter on all lessons and evaluate it; `tell` gets the steps done and in total, and may raise to stop.

    The lessons are written into the folder, with a checkpoint from time to time; if there is one, the training resumes
    from it.
    """
    _write_data(folder / DATA, lessons.exercises)
    trainer.prepare(lessons.exercises)
    kept = folder / KEPT
    if kept.exists():
        try:
            trainer.resume(kept)
        except IntegrityError:  # of other lessons, or damaged: then from the beginning
            kept.unlink()
            trainer.prepare(lessons.exercises)
    if not kept.exists():
        trainer.save_checkpoint(kept)  # the teacher computed again differs in the last bits
    _taught(trainer, kept, tell)
    return Examination(trainer, lessons.course, lessons.system).measures()


def save(trainer: Trainer, folder: Path, manifest: dict[str, Json]) -> tuple[str, int]:
    """Write what is served and exported; return the SHA-256 of the weights, in hexadecimal, and the bytes of all."""
    trainer.save(folder)
    found = digests(folder)
    told: dict[str, Json] = {**manifest, **found}
    (folder / CARD).write_text(card_of(told), encoding="utf-8")
    (folder / MANIFEST).write_text(json.dumps(told, indent=1, ensure_ascii=False), encoding="utf-8")
    files = [path for path in folder.iterdir() if path.is_file() and path.name != KEPT]
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)
    return found["weights_sha256"], sum(path.stat().st_size for path in files)


def told_measures(measures: EvaluationResult) -> dict[str, Json]:
    """Return measures as JSON, in which there is no NaN: of what is no number, nothing."""
    told: dict[str, Json] = {**asdict(measures), "lost": list(measures.lost), "rise": round(measures.rise, 4)}
    return {name: None if isinstance(each, float) and not math.isfinite(each) else each for name, each in told.items()}


def _taught(trainer: Trainer, kept: Path, tell: Callable[[int, int], None]) -> None:
    kept_at = time.monotonic()
    tell(trainer.step, trainer.steps)
    while trainer.step < trainer.steps:
        trainer.advance(_STEPS_AT_ONCE)
        tell(trainer.step, trainer.steps)
        if time.monotonic() - kept_at > _KEEP_EVERY_S or trainer.step == trainer.steps:
            trainer.save_checkpoint(kept)
            kept_at = time.monotonic()


def _write_data(file: Path, exercises: Iterable[TrainingExample]) -> None:
    aside = file.with_name(file.name + ".new")
    with aside.open("w", encoding="utf-8") as out:
        for each in exercises:
            out.write(json.dumps(asdict(each), ensure_ascii=False) + "\n")
    aside.replace(file)
