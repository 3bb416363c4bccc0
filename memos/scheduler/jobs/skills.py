"""Learn skills from similar successful tool calls, and rebuild trajectories after an erasure.

A task lists messages; each of their pages is compared with the newest pages that used its first tool, at most 100 calls
and 100 pages, so the cost does not grow with the cube. Idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from memos.core.text import tool_calls
from memos.core.text.matching import entities, keywords
from memos.core.types import UNUSED, Fact, Item, ItemType, Status
from memos.errors import BackendUnavailable, ModelError
from memos.memcube import changes, facts
from memos.memcube import tools as tool_memories
from memos.memcube.changes import Change
from memos.memcube.facts import WITHDRAWN
from memos.memcube.ledger import items
from memos.memcube.ledger import tools as tool_rows
from memos.reader.facts import skills
from memos.reader.facts.skills import LEAST_RUNS, MOST_RUNS, Attempt
from memos.scheduler.consolidation import why_review
from memos.scheduler.jobs.segments import ACTOR, TurnsOf
from memos.scheduler.task import TaskRun

MOST_CALLS = 100
MOST_PAGES = 100

_Page = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SkillsJob:
    """Learns skills; `turns_of` returns vectors of messages, `settled` is called after a change."""

    turns_of: TurnsOf
    settled: Callable[[], object]

    def run(self, run: TaskRun) -> None:
        cube, named = run.task.cube, [str(id_) for id_ in run.task.payload.get("messages", ())]
        cosines: dict[frozenset[str], float] = {}
        with run.ledger.read() as connection:
            found = _attempts(connection, cube, _pages_of(connection, cube, named))
            known = {
                attempt.tools[0]: _with_tool(connection, cube, attempt.tools[0])
                for attempt in found.values()
                if attempt.tools
            }
        run.check_cancelled(0.3)
        for attempt in found.values():
            if attempt.succeeded:
                same = _same_tools(attempt, known.get(attempt.tools[0], ()))
                cosines |= self._cosines(attempt, [each for each in same if each.goal.id != attempt.goal.id])
        run.check_cancelled(0.6)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            if run.task.payload.get("again"):
                tool_memories.refresh(change, named)
            _learn(change, named, cosines)
        self.settled()

    def _cosines(self, attempt: Attempt, rivals: Sequence[Attempt]) -> dict[frozenset[str], float]:
        """Return the cosines between goals; empty if there are no vectors, so that shared words decide."""
        if not rivals:
            return {}
        try:
            vectors = self.turns_of([attempt.goal, *(rival.goal for rival in rivals)])
        except (BackendUnavailable, ModelError):
            return {}
        near = vectors[1:] @ vectors[0]
        return {_both(attempt, rival): float(cosine) for rival, cosine in zip(rivals, near, strict=True)}


def _learn(change: Change, named: Collection[str], cosines: Mapping[frozenset[str], float]) -> None:
    connection, cube = change.connection, change.cube
    found = _attempts(connection, cube, _pages_of(connection, cube, named))
    known: dict[str, list[Attempt]] = {}
    told: set[str] = set()
    for attempt in found.values():
        if not attempt.succeeded:
            continue
        first = attempt.tools[0]
        if first not in known:
            known[first] = _with_tool(connection, cube, first)
        same = [
            each
            for each in _same_tools(attempt, known[first])
            if skills.same_goal(attempt, each, cosines.get(_both(attempt, each), 0.0))
        ]
        held = _skill_of(change, attempt, same)
        if held is None:
            _make(change, attempt, same, known[first])
        elif held.status is not Status.DELETED:
            told.add(held.id)
            _update(change, held, same, known[first])
    left = set(tool_rows.derived_items(connection, cube, named, ItemType.SKILL)) - told
    for state in items.current(connection, [cube], sorted(left)).values():
        if skill_stated_in(state) is not None:
            _update(change, state, (), ())


def skill_stated_in(item: Item) -> Mapping[str, Any] | None:
    held = item.info.get("skill")
    return held if isinstance(held, dict) and isinstance(held.get("tools", []), list) else None


def _pages_of(connection: sa.Connection, cube: str, messages: Iterable[str]) -> list[_Page]:
    return sorted(dict.fromkeys(tool_rows.places(connection, cube, messages)))


def _attempts(connection: sa.Connection, cube: str, pages: Sequence[_Page]) -> dict[_Page, Attempt]:
    turns = tool_rows.of_pages(connection, pages)
    goals = tool_rows.goals(connection, turns)
    by_page: dict[_Page, list[tool_calls.Pair]] = {}
    for pair in tool_calls.pairs(turns):
        by_page.setdefault((pair.turn.conversation, pair.turn.page), []).append(pair)
    wanted = items.with_sources(connection, [cube], goals.values())
    found = {}
    for page, pairs in by_page.items():
        goal = wanted.get(goals.get(page, ""))
        if goal is None or goal.status in UNUSED:
            continue
        runs = tool_memories.runs_of(connection, cube, pairs)
        if runs:
            found[page] = Attempt(goal, tuple(sorted(runs, key=lambda run: run.place)))
    return found


def _with_tool(connection: sa.Connection, cube: str, tool: str) -> list[Attempt]:
    prefix = f"{tool_memories.KEY}{tool}:"
    ids = tool_rows.with_prefix(connection, cube, prefix, ItemType.TOOL_TRAJECTORY, MOST_CALLS, live=False)
    origins = set().union(*items.origins_of(connection, ids).values())
    found = _attempts(connection, cube, _pages_of(connection, cube, origins)[-MOST_PAGES:])
    return sorted(found.values(), key=lambda attempt: (attempt.goal.created_at, attempt.goal.id))


def _same_tools(attempt: Attempt, others: Iterable[Attempt]) -> list[Attempt]:
    return [each for each in others if each.succeeded and each.tools == attempt.tools]


def _both(one: Attempt, other: Attempt) -> frozenset[str]:
    return frozenset({one.goal.version_id, other.goal.version_id})


def _skill_of(change: Change, attempt: Attempt, same: Sequence[Attempt]) -> Item | None:
    """Return the skill that one of the attempts supports, also if a user deleted it: it must not be created again."""
    for shown in (attempt, *same):
        made = tool_rows.derived_items(change.connection, change.cube, [shown.goal.id], ItemType.SKILL, deleted=True)
        for state in items.current(change.connection, [change.cube], made).values():
            held = skill_stated_in(state)
            if held is not None and tuple(held.get("tools", ())) == attempt.tools and not state.info.get(WITHDRAWN):
                return state
    return None


def _make(change: Change, attempt: Attempt, same: Sequence[Attempt], known: Sequence[Attempt]) -> None:
    if len(same) < LEAST_RUNS:
        return
    shown = same[:MOST_RUNS]
    fact = skills.skill_of(shown, _failures(attempt, known), f"{skills.KEY}{shown[0].goal.id}")
    why = why_review(fact)
    pending = {} if why is None else {"pending": why}
    facts.store(change, fact, status=Status.ACTIVE if why is None else Status.PENDING, info=pending)


def _update(change: Change, skill: Item, more: Sequence[Attempt], known: Sequence[Attempt]) -> None:
    connection, held = change.connection, skill_stated_in(skill) or {}
    linked = items.origins_of(connection, [skill.id]).get(skill.id, set())
    mine = _attempts(connection, change.cube, _pages_of(connection, change.cube, linked)).values()
    tools = tuple(held.get("tools", ()))
    shown = [each for each in mine if each.succeeded and each.tools == tools]
    shown += [each for each in more if all(each.goal.id != one.goal.id for one in shown)][: MOST_RUNS - len(shown)]
    shown.sort(key=lambda each: (each.goal.created_at, each.goal.id))
    if len(shown) < LEAST_RUNS:
        edits = {"status": Status.DELETED, "info": {**skill.info, WITHDRAWN: True}}
        changes.edit(change, skill, edits, "too few of its runs are left", kind="delete")
        return
    fact = skills.skill_of(shown, _failures(shown[-1], known) if known else _failures_told(held), skill.key or "")
    lost = linked - frozenset().union(*(each.messages for each in shown))
    if lost:
        facts.remove_sources(change, skill.id, lost)
    if facts.add_sources(change, skill.id, fact):
        changes.requeue_indexing(change, skill.id)
    _apply_edits(change, skill, fact)


def _apply_edits(change: Change, skill: Item, fact: Fact) -> None:
    said = {
        "memory": fact.memory,
        "info": {**skill.info, **fact.info},
        "entities": entities(fact.memory),
        "keywords": keywords(fact.memory),
    }
    if any(getattr(skill, name) != value for name, value in said.items()):
        changes.edit(change, skill, said, "what its runs show now")


def _failures(attempt: Attempt, known: Sequence[Attempt]) -> int:
    tools = set(attempt.tools)
    return sum(
        not each.succeeded and {run.tool for run in each.runs} <= tools and skills.same_goal(attempt, each)
        for each in known
    )


def _failures_told(held: Mapping[str, Any]) -> int:
    runs, rate = held.get("runs"), held.get("success_rate")
    if not isinstance(runs, int) or not isinstance(rate, int | float) or not 0 < rate <= 1:
        return 0
    return round(runs / rate) - runs
