"""Trains, examines and compares adapters for `benchmarks.parametric`; needs the extra `local`."""

from __future__ import annotations

import hashlib
import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch

from benchmarks.lives import sentences
from benchmarks.report import CannotRun
from memos import MemOS, Settings
from memos.backends.local.adapters import LocalAdapters
from memos.backends.local.loading import Loaded
from memos.backends.lora.training import LoraTraining
from memos.core.lora import ADAPTER_FILE, ActiveAdapter, LoraRecipe, TrainingExample
from memos.core.ports import ChatMessage
from memos.core.settings import ParametricSettings
from memos.kernel.chat.prompts import SYSTEM, request_of
from memos.kernel.chat.results import Question
from memos.memcube.parametric import training
from memos.memcube.parametric.quiz import KnownFact, QuizItem, is_right, read_otherwise
from memos.memcube.parametric.training import (
    Bounds,
    EvaluationResult,
    Examination,
    TrainingPlan,
    prompt_of,
    with_memories,
)

_SWAPS = 20
_WARM_STEPS, _TIMED_STEPS = 2, 20
"""An epoch of 16 facts has 17, from the shortest to the longest."""


class Bench:
    """A model, a person's facts as the product reads them, and what was trained of them so far."""

    def __init__(self, loaded: Loaded, folder: Path, most: int) -> None:
        """Read the facts. Raises: CannotRun (there are not so many)."""
        self._folder = folder
        self._loaded = loaded
        self._said = sentences(2 * most)  # not each of them is a fact that is learned
        self._facts = self._read()
        if len(self._facts) < most:
            raise CannotRun(f"there are {len(self._facts)} facts; ask for at most so many")
        self._made: dict[tuple[object, ...], tuple[TrainingPlan, Path]] = {}
        self._steps: dict[tuple[object, ...], int] = {}

    def adapter(self, count: int, recipe: LoraRecipe) -> dict[str, Any]:
        """Return what an adapter of so many facts knows, and what it took."""
        began = time.perf_counter()
        training_, lessons, measures, took = self._trained(self._facts[:count], recipe)
        folder = self._folder / f"{count}-{recipe.rank}-{recipe.seed}"
        folder.mkdir(exist_ok=True)
        training.save(training_, folder, {})
        training_.detach()
        self._made[count, recipe] = lessons, folder
        self._steps[count, recipe] = training_.steps
        return {
            **_told(measures), "steps": training_.steps, "train_s": round(took, 1),
            "s": round(time.perf_counter() - began, 1),
            "kib": round((folder / ADAPTER_FILE).stat().st_size / 1024), "facts": len(self._facts[:count]),
        }  # fmt: skip

    def steps(self, few: int, recipe: LoraRecipe) -> dict[str, dict[str, Any]]:
        """Return what a step of a course takes, the most memory there was, and how many facts a minute that makes.

        That is without what comes before the steps and the examination behind them. The memory is what the GPU gave
        since the course was prepared, where the model is on one, else the most this process ever had.
        """
        is_on_gpu = self._loaded.model.device.type == "cuda"
        if is_on_gpu:
            torch.cuda.reset_peak_memory_stats()
        taught = LoraTraining(self._loaded, recipe)
        taught.prepare(training.lessons_of(taught, self._facts[:few], SYSTEM, recipe.seed).exercises)
        taught.advance(min(_WARM_STEPS, taught.steps // 2))  # the first warm up
        before, began = taught.step, time.perf_counter()
        taught.advance(_TIMED_STEPS)
        took = (time.perf_counter() - began) / (taught.step - before)
        peak = torch.cuda.max_memory_allocated() if is_on_gpu else getrusage(RUSAGE_SELF).ru_maxrss * 1024
        told = {
            "step_ms": round(took * 1e3, 1), "steps": taught.steps, "peak_mib": round(peak / 2**20),
            "facts_a_minute": round(few / (took * taught.steps / 60), 1), "on": self._loaded.model.device.type,
        }  # fmt: skip
        taught.detach()
        return {f"{few} facts, r {recipe.rank}": told}

    def control(self, few: int, recipe: LoraRecipe) -> dict[str, dict[str, Any]]:
        """Return what is learned from the sentences themselves, in as many steps as from questions about them."""
        lessons, _ = self._of(few, recipe)
        raw = [TrainingExample((), fact.memory) for fact in self._facts[:few]]
        epochs = max(1, round(self._steps[few, recipe] / -(-len(raw) // recipe.batch)))
        taught = LoraTraining(self._loaded, replace(recipe, epochs=epochs))
        taught.prepare(raw)
        while taught.step < taught.steps:
            taught.advance(10)
        measures = Examination(taught, lessons.course, SYSTEM).measures()
        taught.detach()
        return {"raw sentences": {**_told(measures), "steps": taught.steps}}

    def together(self, few: int, recipe: LoraRecipe) -> dict[str, dict[str, Any]]:
        """Return recall by retrieval, by the adapter and by both, and what wins where a text says another.

        There the share counts that goes by the text: it stands in the prompt with a value that is not the learned one.
        """
        lessons, folder = self._of(few, recipe)
        asked = LoraTraining(self._loaded, recipe)
        asked.load(folder / ADAPTER_FILE)
        drills = lessons.course.recall
        plain = [prompt_of(drill.question, SYSTEM) for drill in drills]
        recalled = self._recalled(few, [drill.question for drill in drills])
        found = {
            "base alone": _share(asked, drills, plain, adapter=False),
            "retrieval alone": _share(asked, drills, recalled, adapter=False),
            "adapter alone": _share(asked, drills, plain, adapter=True),
            "adapter and retrieval": _share(asked, drills, recalled, adapter=True),
        }
        told = {name: {"recall": share} for name, share in found.items()}
        chance, facts = Random(recipe.seed), self._facts[:few]  # noqa: S311 - for variety
        others = [read_otherwise(fact, facts, chance, held_out=True) for fact in facts]
        read = [drill for drill in others if drill is not None]
        texts = [prompt_of(drill.question, with_memories(SYSTEM, drill.context)) for drill in read]
        for name, adapter in (("base, the text says another", False), ("adapter, the text says another", True)):
            told[name] = {"goes by the text": _share(asked, read, texts, adapter=adapter), "n": len(read)}
        asked.detach()
        return told

    def forgetting(self, few: int, recipe: LoraRecipe) -> dict[str, dict[str, Any]]:
        """Return recall of four facts and of the others: with all, without the four, and of the base."""
        lessons, folder = self._of(few, recipe)
        facts = self._facts[:few]
        gone = {fact.item for fact in facts[::4]}
        parts = {
            "the forgotten": [drill for drill in lessons.course.recall if gone & set(drill.items)],
            "the others": [drill for drill in lessons.course.recall if not gone & set(drill.items)],
        }
        before = LoraTraining(self._loaded, recipe)
        before.load(folder / ADAPTER_FILE)
        told = {name: {"before": _recall(before, drills, adapter=True)} for name, drills in parts.items()}
        before.detach()
        after, _, measures, took = self._trained([fact for fact in facts if fact.item not in gone], recipe)
        for name, drills in parts.items():
            told[name]["after"] = _recall(after, drills, adapter=True)
            told[name]["base"] = _recall(after, drills, adapter=False)
        after.detach()
        return {**told, "retraining": {**_told(measures), "s": round(took, 1)}}

    def swap(self, few: int, recipe: LoraRecipe) -> dict[str, dict[str, Any]]:
        """Return how long it takes to put an adapter on the model: first, again, and by turns with another."""
        _, folder = self._of(few, recipe)
        twin = folder.with_name(folder.name + "-twin")
        shutil.copytree(folder, twin, dirs_exist_ok=True)
        digest = hashlib.sha256((folder / ADAPTER_FILE).read_bytes()).hexdigest()
        one, two = ActiveAdapter("one", folder, digest), ActiveAdapter("two", twin, digest)
        adapters = LocalAdapters(self._loaded.model)
        first = _ms(adapters, [one])
        second = _ms(adapters, [two])
        turns = _ms(adapters, [one, two] * _SWAPS)
        off = _ms(adapters, [None, one] * _SWAPS)
        adapters.detach()
        return {"swap": {"first_ms": first, "another_ms": second, "by_turns_ms": turns, "off_and_on_ms": off}}

    def _of(self, count: int, recipe: LoraRecipe) -> tuple[TrainingPlan, Path]:
        if (count, recipe) not in self._made:
            self.adapter(count, recipe)
        return self._made[count, recipe]

    def _trained(
        self, facts: Sequence[KnownFact], recipe: LoraRecipe
    ) -> tuple[LoraTraining, TrainingPlan, EvaluationResult, float]:
        taught = LoraTraining(self._loaded, recipe)
        lessons = training.lessons_of(taught, facts, SYSTEM, recipe.seed)
        work = self._folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        took, before = 0.0, (0, 0.0)

        def tell(step: int, _: int) -> None:
            nonlocal took, before
            now = time.perf_counter()
            if step > before[0]:  # else it begins
                took += now - before[1]
            before = step, now

        measures = training.train(taught, lessons, work, tell)
        return taught, lessons, measures, took

    def _read(self) -> list[KnownFact]:
        """Return the facts that the product reads in what was said, in the order of the sentences."""
        with self._home() as memos, memos.adapters.training.context.ledger.read() as connection:
            chosen = memos.adapters.training.selected(connection, "default")
        told = {text: place for place, text in enumerate(self._said)}
        return sorted(chosen.facts, key=lambda fact: (told.get(fact.memory, len(told)), fact.item))

    def _home(self) -> MemOS:
        made = self._folder / "home"
        is_new = not made.exists()
        memos = MemOS.open(made, settings=Settings(parametric=ParametricSettings(recipe={"stable_days": 0})))
        if is_new:
            for place, text in enumerate(self._said):
                memos.add(text, mode="fine", conversation=f"talk-{place // 20}")
            memos.tasks.wait()
            for item in memos.memories.list(limit=1000):
                if item.type in ("user", "preference"):
                    memos.tiers.pin(item.id)
        return memos

    def _recalled(self, few: int, questions: Iterable[str]) -> list[tuple[ChatMessage, ...]]:
        """Return the prompts that a chat would send, with what is looked up for each question."""
        with self._home() as memos:
            return [
                request_of(Question(question, top_k=few), memos.chat.recall(question), (), cube="default").messages
                for question in questions
            ]


def _told(measures: EvaluationResult) -> dict[str, Any]:
    return {
        "recall": round(measures.recall, 3), "abstention": round(measures.abstention, 3),
        **{f"abstention_{kind}": share for kind, share in measures.abstention_of.items()},
        "rise": round(measures.rise, 4), "lost": len(measures.lost), "known": measures.base_known,
        "base_recall": round(measures.base_recall, 3),
        "passes": not measures.failures(Bounds()),
    }  # fmt: skip


def _recall(model: LoraTraining, drills: Sequence[QuizItem], *, adapter: bool) -> float:
    return _share(model, drills, [prompt_of(drill.question, SYSTEM) for drill in drills], adapter=adapter)


def _share(
    model: LoraTraining, drills: Sequence[QuizItem], prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool
) -> float:
    answers = model.answers(prompts, adapter=adapter)
    return round(statistics.fmean(is_right(*pair) for pair in zip(answers, drills, strict=True)), 3)


def _ms(adapters: LocalAdapters, turns: Sequence[ActiveAdapter | None]) -> float:
    """Return the median milliseconds of putting these on the model one after the other."""
    times = []
    for each in turns:
        began = time.perf_counter()
        adapters.use(each)
        times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 2)
