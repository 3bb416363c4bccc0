"""Makes a trainer's exercises of a course: prompts as a chat sends them, with their answers. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from memos.core.ports import ChatMessage
from memos.core.recipes import Exercise
from memos.memcube.parametric.examination import prompt_of
from memos.memcube.parametric.quiz import UNTOLD, Course, Drill, KnownFact

_EVERY_UNTOLD = 4
_FACTS_A_TURN = 8
EVERY_REPLAYED = 4
"""Of what nobody told, and of what is replayed, an epoch has one in so many: more that differs in the same time.

So what is replayed is a quarter of an epoch. With a third, of longer answers, 16 facts measured the same, and 64 passed
with more room for a quarter more time (docs/log.md).

Of more than 32 facts an epoch has no more of what nobody told than of 32: with more, 64 facts abstained too readily
(docs/log.md).
"""


def exercises_of(
    course: Course, facts: Iterable[KnownFact], system: str, replayed: Iterable[tuple[Sequence[ChatMessage], str]]
) -> list[Exercise]:
    """Return an exercise for each drill that is taught, then what the base model says to other prompts.

    `facts` are those that the course was made of, `replayed` prompts with the base model's answers.
    """
    memories = {fact.item: fact.memory for fact in facts}
    untold = max(_EVERY_UNTOLD, math.ceil(len(memories) / _FACTS_A_TURN))
    found = [_exercise(drill, memories, system, untold) for drill in course.taught]
    return found + [Exercise(tuple(prompt), answer, replayed=True, every=EVERY_REPLAYED) for prompt, answer in replayed]


def with_memories(system: str, memories: Iterable[str]) -> str:
    """Return a system text followed by what is remembered, itself where that is nothing."""
    lines = "".join(f"\n- {memory}" for memory in memories)
    return f"{system}\n\nWhat you remember:{lines}" if lines else system


def digest_of(exercises: Iterable[Exercise]) -> str:
    """Return the SHA-256 of all that is taught, in hex: the same texts in the same order have the same."""
    told = [
        [_said(each.prompt), each.answer, _said(each.shown), each.replayed, each.every] for each in exercises
    ]  # canonical as lists: nothing in it has an order of its own
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


def _exercise(drill: Drill, memories: Mapping[str, str], system: str, untold: int) -> Exercise:
    prompt = prompt_of(drill.question, with_memories(system, drill.context))
    if drill.context or not drill.items:
        # What the model reads, or was never told, it need not learn to say as if it had read it.
        return Exercise(prompt, drill.answer, every=untold if drill.kind in UNTOLD else 1)
    shown = prompt_of(drill.question, with_memories(system, [memories[item] for item in drill.items]))
    return Exercise(prompt, drill.answer, shown)


def _said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in messages]
