"""Memories of tools: one item per definition and per distinct call, with arguments, result and success counts.

Always rebuilt from the messages, so add, change, delete and erase are the same operation. Runs inside the caller's
transaction; the cost depends on the messages within reach, not on the cube.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.text import tool_calls
from memos.core.text.matching import entities, keywords
from memos.core.text.tool_calls import Pair, Run, Turn
from memos.core.types import UNUSED, Fact, Item, ItemType, Json, LinkKind, Message, Role, Span, Status, Trust
from memos.memcube import changes, facts
from memos.memcube.changes import Change
from memos.memcube.facts import WITHDRAWN
from memos.memcube.ledger import cubes, items, outbox, tools
from memos.memcube.ledger import schema as t

SCHEMA_KEY = "tool_schema:"
SCHEMA_READER = "tools/1"
_SPEAKER = "tool"


def define(change: Change, name: str, memory: str, message: Message, info: Mapping[str, Json]) -> str:
    """Make a message the current definition of a tool; return its item. Repeating a definition changes nothing."""
    connection, key = change.connection, f"{SCHEMA_KEY}{name}"
    known = [
        state
        for state in items.with_keys(connection, change.cube, [key])
        if state.type is ItemType.TOOL_SCHEMA and state.status is not Status.DELETED
    ]
    if not known:
        return _store(change, key, memory, message, info)
    item = max(known, key=lambda state: (state.created_at, state.id))
    sources = items.sources_of(connection, [item.id])[item.id]
    said = {"memory": memory, "entities": entities(memory), "keywords": keywords(memory)}
    # The order of keys says nothing.
    same = json.loads(sources[-1].passage) == json.loads(message.text)
    if same and item.status is not Status.SUPERSEDED:
        return item.id
    _add_source(change, item.id, message, len(sources))
    edits: dict[str, Any] = {**said, "info": {**item.info, **info}, "status": Status.ACTIVE, "superseded_by": None}
    changes.edit(change, item, edits, "defined otherwise")
    return item.id


def _store(change: Change, key: str, memory: str, message: Message, info: Mapping[str, Json]) -> str:
    state = items.blank(
        change.cube,
        change.now,
        memory=memory,
        type=ItemType.TOOL_SCHEMA,
        speaker=_SPEAKER,
        role=Role.TOOL,
        key=key,
        info=info,
        entities=entities(memory),
        keywords=keywords(memory),
        said_at=message.chat_time,
        valid_from=message.chat_time,
    )
    change.connection.execute(sa.insert(t.items), [items.first_row(state)])
    items.insert_versions(change.connection, [state], change.actor, "defined")
    _add_source(change, state.id, message, 0)
    outbox.enqueue(change.connection, change.cube, [state.id])
    changes.record_item(change, "define", state.id, {})
    return state.id


def _add_source(change: Change, item_id: str, message: Message, ordinal: int) -> None:
    id_ = new_id()
    said = {"role": message.role, "text": message.text, "chat_time": message.chat_time, "trust": message.trust}
    row = {"id": id_, "cube_id": change.cube, "name": _SPEAKER, "created_at": change.now, **said}
    change.connection.execute(sa.insert(t.messages), [row])
    source = items.source_row(item_id, ordinal, id_, (0, len(message.text)), SCHEMA_READER)
    change.connection.execute(sa.insert(t.sources), [source])


READER = "tools/1"
KEY = "tool_call:"
SUBJECT = "tool"
MOST_RUNS = 20
"""Calls one item stands for; the next begins an item that follows it, so that none grows without end."""

_KEPT = (Status.ACTIVE, Status.ARCHIVED, Status.SUPERSEDED)
_PASSAGE_CHARS = 2_000


@dataclass(slots=True)
class Refreshed:
    stored: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)


def key_of(salt: bytes, tool: str, arguments: str) -> str:
    """Return the key of a call: equal ones meet, and nobody can tell from it, or try out, what was called with."""
    digest = hashlib.blake2b(tool_calls.normalised(arguments).encode(), key=salt, digest_size=8).hexdigest()
    return f"{KEY}{tool}:{digest}"


def refresh(change: Change, messages: Collection[str]) -> Refreshed:
    """Make the items anew that stand on these messages, and those of the calls that are among them now."""
    connection, done = change.connection, Refreshed()
    touched = tools.turns(connection, change.cube, messages)
    if not touched:
        return done
    made = tools.derived_items(connection, change.cube, messages, ItemType.TOOL_TRAJECTORY)
    stale = items.current(connection, [change.cube], made)
    scene = _Scene.of(change, touched)
    wanted = scene.wanted({turn.item for turn in touched})
    keys = {*wanted, *(state.key for state in stale.values() if state.key is not None)}
    for key, line in _lines(change, keys).items():
        _record_outcome(change, scene.salt, key, _grown(change, line, wanted.get(key, _Wanted()), stale), done)
    return done


@dataclass(slots=True)
class _Wanted:
    runs: list[Run] = field(default_factory=list)
    beside: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Scene:
    salt: bytes
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, change: Change, touched: Sequence[Turn]) -> _Scene:
        connection = change.connection
        ids = {turn.item for turn in touched}
        found = tool_calls.pairs(tools.around(connection, touched))
        mine = [pair for pair in found if pair.turn.item in ids or any(turn.item in ids for turn in pair.answers)]
        here = {(pair.turn.conversation, pair.turn.page, pair.call.name) for pair in mine}
        near = [pair for pair in found if (pair.turn.conversation, pair.turn.page, pair.call.name) in here]
        return cls(cubes.entity_salt(connection, change.cube), tuple(runs_of(connection, change.cube, near)))

    def key(self, run: Run) -> str:
        return key_of(self.salt, run.tool, run.pair.call.arguments)

    def wanted(self, ids: set[str]) -> dict[str, _Wanted]:
        found: dict[str, _Wanted] = {}
        for run in self.runs:
            if not ids.isdisjoint(_messages(run)):
                found.setdefault(self.key(run), _Wanted()).runs.append(run)
        for failed, worked in tool_calls.lessons(self.runs):
            if not ids.isdisjoint(_messages(failed) | _messages(worked)):
                found.setdefault(self.key(failed), _Wanted()).beside |= _messages(worked)
                found.setdefault(self.key(worked), _Wanted()).beside |= _messages(failed)
        return found


def runs_of(connection: sa.Connection, cube: str, found: Sequence[Pair]) -> list[Run]:
    ids = {turn.item for pair in found for turn in (pair.turn, *pair.answers)}
    states = items.with_sources(connection, [cube], ids)
    calling = {pair.turn.item for pair in found}
    usable = {
        id_
        for id_, state in states.items()
        # A message that was changed makes the calls no more that it made.
        if state.status not in UNUSED and (id_ not in calling or state.memory == state.sources[0].passage)
    }
    return tool_calls.runs(found, states, frozenset(usable))


def _messages(run: Run) -> set[str]:
    return {run.call.id, *(answer.id for answer in run.answers)}


def _lines(change: Change, keys: Iterable[str]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {key: [] for key in sorted(keys)}
    for batch in items.in_batches(found):
        for state in items.with_keys(change.connection, change.cube, batch):
            if state.type is ItemType.TOOL_TRAJECTORY and state.status in _KEPT and state.key is not None:
                found[state.key].append(state)
    for line in found.values():
        line.sort(key=lambda state: (state.created_at, _earlier(state)[0], state.id))
    return found


@dataclass(slots=True)
class _Link:
    item: Item | None
    messages: set[str]
    beside: set[str] = field(default_factory=set)
    changed: bool = True


def _grown(change: Change, line: Sequence[Item], wanted: _Wanted, stale: Mapping[str, Item]) -> list[_Link]:
    origins = items.origins_of(change.connection, [state.id for state in line])
    chain = [_Link(state, set(origins.get(state.id, ())), changed=state.id in stale) for state in line]
    room = MOST_RUNS - (_own_counts(line[-1])[0] if line else MOST_RUNS)
    for run in sorted(wanted.runs, key=lambda run: run.place):
        holder = next((link for link in chain if run.call.id in link.messages), None)
        if holder is None:
            if room < 1:
                chain.append(_Link(None, set()))
                room = MOST_RUNS
            holder, room = chain[-1], room - 1
        holder.messages |= _messages(run)
        holder.changed = True
    if chain and wanted.beside:
        chain[-1].beside, chain[-1].changed = wanted.beside, True
    return chain


def _earlier(item: Item) -> tuple[int, int, int]:
    held = item.info.get("earlier")
    if not (isinstance(held, list) and len(held) == 3 and all(isinstance(count, int) for count in held)):
        return 0, 0, 0
    return held[0], held[1], held[2]


def _own_counts(item: Item) -> tuple[int, int, int]:
    held = [item.info.get(name) for name in ("calls", "successes", "failures")]
    calls, successes, failures = (count if isinstance(count, int) else 0 for count in held)
    earlier = _earlier(item)
    return calls - earlier[0], successes - earlier[1], failures - earlier[2]


@dataclass(frozen=True, slots=True)
class _Outcome:
    link: _Link
    fact: Fact
    origins: frozenset[str]


def _record_outcome(change: Change, salt: bytes, key: str, chain: Sequence[_Link], done: Refreshed) -> None:
    """Write the items of one key: the last is current, each before it is superseded by the next."""
    earlier = (0, 0, 0)
    left: list[_Outcome | Item] = []
    for link in chain:
        if not link.changed and link.item is not None and earlier == _earlier(link.item):
            left.append(link.item)
            counts = _own_counts(link.item)
        else:
            own, lesson, shown = _read(change, salt, key, link)
            if not own:
                if link.item is not None:
                    _withdraw(change, link.item, done)
                continue
            left.append(_Outcome(link, _fact(key, own, lesson, shown, earlier), frozenset(shown)))
            counts = tool_calls.counted(own)
        earlier = (earlier[0] + counts[0], earlier[1] + counts[1], earlier[2] + counts[2])
    successor: str | None = None
    for entry in reversed(left):
        successor = _write(change, entry, successor, done)


def _read(
    change: Change, salt: bytes, key: str, link: _Link
) -> tuple[list[Run], tuple[Run, Run] | None, dict[str, Span]]:
    turns = tools.turns(change.connection, change.cube, link.messages | link.beside)
    odd = [turn for turn in turns if len({call.id for call in turn.calls}) < len(turn.calls)]
    # If several calls of a message share an id, only all answers with that id together show which belongs to which.
    known = {turn.item: turn for turn in (*turns, *tools.around(change.connection, odd))}
    held = {turn.item for turn in turns}
    found = [pair for pair in tool_calls.pairs(known.values()) if pair.turn.item in held]
    around = runs_of(change.connection, change.cube, found)
    own = [run for run in around if key_of(salt, run.tool, run.pair.call.arguments) == key]
    own.sort(key=lambda run: (tool_calls.at_of(run), run.place))
    mine = {run.place for run in own}
    taught = [pair for pair in tool_calls.lessons(around) if mine & {pair[0].place, pair[1].place}]
    lesson = max(taught, key=lambda pair: (tool_calls.at_of(pair[1]), pair[1].place), default=None)
    shown: dict[str, Span] = {}
    for run in [*own, *(lesson or ())]:
        start, end = tool_calls.span_of(run.call.memory, run.pair.turn.calls, run.pair.place)
        shown.setdefault(run.call.id, Span(run.call.id, start, end))
        for answer in run.answers:
            shown.setdefault(answer.id, Span(answer.id, 0, min(len(answer.memory), _PASSAGE_CHARS)))
    return own, lesson, shown


def _fact(
    key: str,
    own: Sequence[Run],
    lesson: tuple[Run, Run] | None,
    shown: Mapping[str, Span],
    earlier: tuple[int, int, int],
) -> Fact:
    taught = None if lesson is None else tool_calls.lesson_of(*lesson)
    info = tool_calls.info_of(own, taught, earlier)
    text = tool_calls.told(own[-1])
    if info["calls"] > 1:
        text += f" (called {info['calls']} times, {info['successes']} worked)"
    if taught is not None:
        text += f"\nLesson: {taught}"
    first, last = tool_calls.at_of(own[0]), tool_calls.at_of(own[-1])
    what = (ItemType.TOOL_TRAJECTORY, text, tuple(shown.values()), SUBJECT, READER, first)
    return Fact(*what, key=key, valid_from=last, trust=Trust.UNTRUSTED, info=info)


def _write(change: Change, entry: _Outcome | Item, successor: str | None, done: Refreshed) -> str:
    status = Status.ACTIVE if successor is None else Status.SUPERSEDED
    if isinstance(entry, Item):
        _edit(change, entry, _standing(entry, status, successor))
        return entry.id
    item, fact = entry.link.item, entry.fact
    if item is None:
        stored = facts.store(change, fact, status=status, superseded_by=successor)
        done.stored.append(stored.id)
        _relate(change, stored.id, entry.origins)
        return stored.id
    lost = items.origins_of(change.connection, [item.id]).get(item.id, set()) - entry.origins
    if lost:
        facts.remove_sources(change, item.id, lost)
    if facts.add_sources(change, item.id, fact):
        changes.requeue_indexing(change, item.id)
        _relate(change, item.id, entry.origins)
    own_words = {name: value for name, value in item.info.items() if name not in tool_calls.INFO}
    said = {
        "memory": fact.memory,
        "info": {**own_words, **fact.info},
        "valid_from": fact.valid_from,
        "entities": entities(fact.memory),
        "keywords": keywords(fact.memory),
        **_standing(item, status, successor),
    }
    _edit(change, item, said)
    done.stored.append(item.id)
    return item.id


def _standing(item: Item, status: Status, successor: str | None) -> dict[str, Any]:
    if successor is None and item.status is not Status.SUPERSEDED:
        return {}
    return {"status": status, "superseded_by": successor}


def _edit(change: Change, item: Item, edits: Mapping[str, Any]) -> None:
    if any(getattr(item, name) != value for name, value in edits.items()):
        changes.edit(change, item, edits, "what its calls say now")


def _withdraw(change: Change, item: Item, done: Refreshed) -> None:
    edits = {"status": Status.DELETED, "info": {**item.info, WITHDRAWN: True}}
    changes.edit(change, item, edits, "what it was read from was deleted or changed", kind="delete")
    done.withdrawn.append(item.id)


def _relate(change: Change, item_id: str, origins: Collection[str]) -> None:
    asked = tools.turns(change.connection, change.cube, origins)
    goals = tools.goals(change.connection, asked)
    pairs = [(item_id, LinkKind.RELATES, goal) for goal in dict.fromkeys(goals.values())]
    items.link(change.connection, pairs, change.cube, change.now)


def call_worked(change: Change, ids: Collection[str]) -> bool:
    return any(state.info.get("ok") for state in items.current(change.connection, [change.cube], ids).values())
