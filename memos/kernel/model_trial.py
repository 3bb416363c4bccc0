"""Try a language model on small tasks with known answers, and say in plain words what it is trusted with."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from memos.core.ports import ChatMessage
from memos.core.text.rendering import memory_section
from memos.errors import ModelError
from memos.kernel.chat.chat import without_marks
from memos.kernel.chat.prompts import instructed
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.reader.facts.extractor import KNOWN, try_choosing, try_writing
from memos.scheduler.jobs.judge import try_judging

_ANSWER_TOKENS = 60
_REMEMBERED = (
    "[m1] 2024-03-04 Mon Ada: My sister Nora teaches maths in Graz.",
    "[m2] 2024-03-09 Sat Ada: The dentist moved my appointment to Friday at ten.",
    "[m3] 2024-03-11 Mon Ada: I never eat walnuts.",
)
_ASKED = (
    ("In which city does my sister teach?", re.compile("graz", re.IGNORECASE), "m1"),
    ("On which day do I see the dentist?", re.compile("friday", re.IGNORECASE), "m2"),
    ("What is the name of my dog?", re.compile(r"do(?:n['’]t| not) know|not (?:know|mention)", re.IGNORECASE), None),
)
_MUST_ANSWER = 2


@dataclass(frozen=True, slots=True)
class TaskTrial:
    """The result of one task: whether the model is trusted with it, and why."""

    task: Annotated[str, "`choosing`, `writing`, `judging` or `answering`"]
    trusted: Annotated[bool, "Whether the model is used for it"]
    told: Annotated[str, "What it got right, and what happens instead if it is not trusted"]


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """What a model is trusted with, and what finding out took."""

    model: Annotated[str, "Name of the model"]
    tasks: Annotated[tuple[TaskTrial, ...], "One entry a task"]
    calls: Annotated[int, "Calls of the model"]
    tokens: Annotated[int, "Tokens of prompts and answers together"]
    seconds: Annotated[float, "Time the trial took"]


def try_model(asker: LLMClient, meter: UsageMeter) -> ModelTrial:
    """Examine a model task by task. Raises: BackendUnavailable, BackendTimeout, ModelError (a refused request)."""
    began = time.perf_counter()
    tasks = tuple(_tasks(asker, meter))
    spent = meter.spent
    return ModelTrial(asker.model, tasks, spent.calls, spent.tokens, round(time.perf_counter() - began, 1))


def _tasks(asker: LLMClient, meter: UsageMeter) -> Iterator[TaskTrial]:
    sorted_ = try_choosing(asker, meter)
    lasting = sum(lasts for _, lasts in KNOWN)
    others = len(KNOWN) - lasting
    told = f"kept {sorted_.right} of {lasting} sentences that last, and {sorted_.wrong} of {others} others"
    if sorted_.passed:
        yield TaskTrial("choosing", True, f"{told}: it chooses facts among the sentences in which patterns find none")
    else:
        yield TaskTrial("choosing", False, f"{told}: facts are read by patterns alone")
    if not sorted_.strong:
        yield TaskTrial("writing", False, "not tried, since it needs a model that chooses almost without a fault")
    else:
        written = try_writing(asker, meter)
        told = f"wrote {written.right} of {written.facts} facts, {written.wrong} wrong entries"
        told += f", and took {written.misattributed} for another person's" if written.misattributed else ""
        use = "it writes facts and traits" if written.passed else "facts are sentences as they were said"
        yield TaskTrial("writing", written.passed, f"{told}: {use}")
    judged = try_judging(asker, meter)
    told = f"told {judged.share:.0%} of the changes from other statements"
    use = "it judges whether a statement replaces an older one" if judged.passed else "rules alone judge"
    yield TaskTrial("judging", judged.passed, f"{told}: {use}")
    yield _answering(asker, meter)


def _answering(asker: LLMClient, meter: UsageMeter) -> TaskTrial:
    system = instructed(memory_section(_REMEMBERED))
    marks, right, cited = tuple(f"m{number}" for number in range(1, len(_REMEMBERED) + 1)), 0, 0
    for question, wanted, mark in _ASKED:
        talk = [ChatMessage("system", system), ChatMessage("user", question)]
        try:
            answer = asker.complete_text(talk, meter=meter, max_tokens=_ANSWER_TOKENS, temperature=0.0)
        except ModelError:  # such as a refusal, or an answer without an end
            continue
        text, found = without_marks(answer, marks)
        right += wanted.search(text) is not None
        cited += mark is not None and found == (mark,)
    told = f"answered {right} of {len(_ASKED)} questions, {cited} of {len(_ASKED) - 1} with the right citation"
    trusted = right >= _MUST_ANSWER
    use = "chats can be relied on" if trusted else "chats are answered with it all the same; check what it says"
    return TaskTrial("answering", trusted, f"{told}: {use}")
