"""Find pages that used the same tools with success for the same goal, and word them as a skill.

Two goals are the same if they share most words besides the arguments, or their vectors are close.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memos.core.text import tool_calls
from memos.core.text.matching import overlap, words
from memos.core.text.tool_calls import LOOKED_CHARS, Run, decoded, truncated
from memos.core.text.tool_calls import call_succeeded as outcome_of
from memos.core.types import Fact, Item, ItemType, Json, Role, Span
from memos.reader.facts.grounding import said_at, trust_of

_SHOWN_CHARS = 180
_OUTCOME_CHARS = 200
_CALL = re.compile(r"^(?P<name>[A-Za-z_][\w.\-]{0,63})\((?=\{)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: str
    spans: tuple[Span, ...]
    items: tuple[Item, Item]
    worked: bool


def skills(messages: Sequence[Item], reader: str) -> list[Fact]:
    """Return a fact for each call that worked after the same tool's last call failed."""
    found = []
    failed: dict[str, _Call] = {}
    for call in _calls(messages):
        if call is None:
            failed.clear()
        elif not call.worked:
            failed[call.name] = call
        elif (before := failed.pop(call.name, None)) is not None and before.arguments != call.arguments:
            found.append(_fact(before, call, reader))
    return found


def tools_called(messages: Sequence[Item]) -> dict[str, str]:
    callers: dict[str, str] = {}
    for item in messages:
        if item.role is Role.ASSISTANT:
            for name, *_ in _written(item.memory[:LOOKED_CHARS]):
                callers.setdefault(name, item.speaker)
    for item in messages:
        if item.role is Role.TOOL and item.speaker != Role.TOOL:
            callers.setdefault(item.speaker, Role.ASSISTANT)
    return callers


def _calls(messages: Sequence[Item]) -> Iterator[_Call | None]:
    """Yield the clear calls in order, and None where a user speaks."""
    for place, item in enumerate(messages):
        if item.role is Role.USER:
            yield None
        follower = messages[place + 1] if place + 1 < len(messages) else None
        if item.role is not Role.ASSISTANT or follower is None or follower.role is not Role.TOOL:
            continue
        if place + 2 < len(messages) and messages[place + 2].role is Role.TOOL:
            continue  # several outcomes: ambiguous which belongs to which
        written = _written(item.memory[:LOOKED_CHARS])
        worked = outcome_of(follower.memory)
        if len(written) != 1 or worked is None or item.conversation != follower.conversation:
            continue
        name, arguments, start, end = written[0]
        if follower.speaker not in (Role.TOOL, name):
            continue
        begun = len(follower.memory) - len(follower.memory.lstrip())
        told = follower.memory[begun : begun + _OUTCOME_CHARS].rstrip()
        spans = (Span(item.id, start, end), Span(follower.id, begun, begun + len(told)))
        yield _Call(name, arguments, spans, (item, follower), worked)


def _written(text: str) -> list[tuple[str, str, int, int]]:
    found = []
    decoder = json.JSONDecoder()
    for match in _CALL.finditer(text):
        try:
            _, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if text[end : end + 1] == ")":
            found.append((match.group("name"), text[match.end() : end], match.start(), end + 1))
    return found


def _fact(failed: _Call, worked: _Call, reader: str) -> Fact:
    caller = worked.items[0]
    return Fact(
        type=ItemType.SKILL,
        memory=f"{worked.name}: {_shown(worked.arguments)} worked after {_shown(failed.arguments)} failed.",
        spans=(*failed.spans, *worked.spans),
        subject=caller.speaker,
        reader=reader,
        said_at=said_at(caller),
        confidence=0.6,
        valid_from=said_at(caller),
        trust=trust_of([*failed.items, *worked.items]),
    )


def _shown(arguments: str) -> str:
    line = " ".join(arguments.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"


READER = "skills/1"
SUBJECT = "skill"
KEY = "skill:"
LEAST_RUNS = 3
MOST_RUNS = 50
"""Runs one skill is shown by; more say nothing new, and what it quotes has to stay erasable."""

SHARED_WORDS = 0.5
NEAR = 0.8
"""Two goals with this part of their words in common are the same, or with this cosine and some words in common."""

_SOME_WORDS = 0.2
_MOST_STEPS = 20
_VALUE_CHARS = 120
_GOAL_CHARS = 300
_EXAMPLES = 3
_PASSAGE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Attempt:
    goal: Item
    runs: tuple[Run, ...]

    @property
    def steps(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.ok)

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(run.tool for run in self.steps)

    @property
    def succeeded(self) -> bool:
        return bool(self.runs) and self.runs[-1].ok is True and len(self.steps) <= _MOST_STEPS

    @property
    def messages(self) -> frozenset[str]:
        said = (message for run in self.steps for message in (run.call, *run.answers))
        return frozenset({self.goal.id, *(message.id for message in said)})


def same_goal(one: Attempt, other: Attempt, cosine: float = 0.0) -> bool:
    mine, its = _wanted(one), _wanted(other)
    if not (mine or its):  # nothing but values, as in "Paris": then these have to be the same
        mine, its = _said(one), _said(other)
    shared = overlap(mine, its)
    return shared >= SHARED_WORDS or (cosine >= NEAR and shared >= _SOME_WORDS)


def _wanted(attempt: Attempt) -> frozenset[str]:
    """Return the words of a goal without its arguments: "flights to Osaka" and "to Lima" are one goal."""
    values = {word for run in attempt.runs for value in _arguments(run).values() for word in words(_text(value))}
    return _said(attempt) - values


def _said(attempt: Attempt) -> frozenset[str]:
    return words(attempt.goal.memory[:_GOAL_CHARS])


def skill_of(shown: Sequence[Attempt], failures: int, key: str) -> Fact:
    """Return the skill of attempts with the same tools and goal, oldest first; `failures` missed it."""
    steps, holes = _steps(shown)
    newest = shown[-1]
    description = _described(newest, holes)
    needed = sorted({name for step in holes for name, always in step.items() if always})
    told = "; ".join(f"{number}. {_step(step)}" for number, step in enumerate(steps, start=1))
    examples: list[Json] = [
        {"goal": truncated(_line(attempt.goal.memory), _GOAL_CHARS), "item": attempt.goal.id}
        for attempt in shown[-_EXAMPLES:]
    ]
    skill: dict[str, Json] = {
        "name": " then ".join(dict.fromkeys(newest.tools)),
        "description": description,
        "steps": steps,
        "preconditions": [f"{name} is known" for name in needed],
        "examples": examples,
        "tools": list(newest.tools),
        "runs": len(shown),
        "success_rate": round(len(shown) / (len(shown) + failures), 3),
    }
    said = [attempt.goal for attempt in shown] + [run.call for attempt in shown for run in attempt.steps]
    return Fact(
        ItemType.SKILL,
        f"How to: {description}\nSteps: {told}\nWorked {len(shown)} times.",
        tuple(span for attempt in shown for span in _passages(attempt)),
        SUBJECT,
        READER,
        said_at(shown[0].goal),
        key=key,
        confidence=0.9,
        valid_from=said_at(shown[0].goal),
        trust=trust_of(said),
        info={"skill": skill},
    )


def _passages(attempt: Attempt) -> list[Span]:
    goal = attempt.goal
    found = [Span(goal.id, 0, min(len(goal.memory), _PASSAGE_CHARS))]
    for run in attempt.steps:
        start, end = tool_calls.span_of(run.call.memory, run.pair.turn.calls, run.pair.place)
        found.append(Span(run.call.id, start, end))
        found += [Span(answer.id, 0, min(len(answer.memory), _PASSAGE_CHARS)) for answer in run.answers]
    return found


def _steps(shown: Sequence[Attempt]) -> tuple[list[Json], list[dict[str, bool]]]:
    steps: list[Json] = []
    holes: list[dict[str, bool]] = []
    for place, tool in enumerate(shown[-1].tools):
        given = [_arguments(attempt.steps[place]) for attempt in shown]
        names = list(dict.fromkeys(name for one in given for name in one))
        arguments: dict[str, Json] = {}
        varying: dict[str, bool] = {}
        for name in names:
            always = all(name in one for one in given)
            values = [_text(one[name]) for one in given if name in one]
            if always and len(set(values)) == 1 and len(values[0]) <= _VALUE_CHARS:
                arguments[name] = given[0][name]
            else:
                arguments[name] = f"<{name}>" if always else f"[{name}]"
                varying[name] = always
        steps.append({"tool": tool, "arguments": arguments})
        holes.append(varying)
    return steps, holes


def _described(attempt: Attempt, holes: Sequence[Mapping[str, bool]]) -> str:
    text = truncated(_line(attempt.goal.memory), _GOAL_CHARS)
    for run, varying in zip(attempt.steps, holes, strict=True):
        arguments = _arguments(run)
        for name in varying:
            value = _line(_text(arguments.get(name, ""))).strip()
            if len(value) > 1:
                text = text.replace(value, f"<{name}>")
    return text


def _step(step: Json) -> str:
    told = ", ".join(f"{name}={_text(value)}" for name, value in step["arguments"].items())
    return f"{step['tool']}({told})"


def _arguments(run: Run) -> dict[str, Json]:
    value = decoded(run.pair.call.arguments)
    return value if isinstance(value, dict) else {"arguments": run.pair.call.arguments}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else tool_calls.normalised_value(value)


def _line(text: str) -> str:
    return " ".join(text.split())
