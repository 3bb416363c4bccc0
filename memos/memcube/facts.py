"""Store extracted facts as items with sources, and keep the facts of one key in order of time.

Runs inside the caller's transaction; the scheduler decides which facts are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.text.matching import entities, keywords
from memos.core.text.times import time_expressions
from memos.core.types import DERIVED, Fact, Item, ItemType, Json, LinkKind, Role, Span, Status, Trust
from memos.errors import IntegrityError
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import expiry, items, outbox
from memos.memcube.ledger import schema as t

_UTC = ZoneInfo("UTC")
_SUBJECTS_ROLE = {"assistant": Role.ASSISTANT}

WITHDRAWN = "withdrawn"
"""In `info` of what was deleted since its message says it no more: reading that again may bring it back."""


def store(
    change: Change,
    fact: Fact,
    *,
    status: Status = Status.ACTIVE,
    valid_to: datetime | None = None,
    superseded_by: str | None = None,
    info: Mapping[str, Json] | None = None,
) -> Item:
    """Store a fact as a new item with its sources and links; `valid_to` overrides the fact's own end."""
    names = ("memory", "type", "key", "value", "tags", "confidence", "said_at", "valid_from")
    state = items.blank(
        change.cube,
        change.now,
        **{name: getattr(fact, name) for name in names},
        status=status,
        speaker=fact.subject,
        role=Role.TOOL if fact.type is ItemType.TOOL_TRAJECTORY else _SUBJECTS_ROLE.get(fact.subject, Role.USER),
        info={**fact.info, **(info or {})},
        entities=tuple(dict.fromkeys([*entities(fact.memory), *fact.entities])),
        keywords=keywords(fact.memory),
        valid_to=fact.valid_to if valid_to is None else valid_to,
        superseded_by=superseded_by,
    )
    change.connection.execute(sa.insert(t.items), [items.first_row(state)])
    items.insert_versions(change.connection, [state], change.actor, f"read by {fact.reader}")
    add_sources(change, state.id, fact)
    if status is Status.SUPERSEDED:
        items.mark_outdated(change.connection, {span.item for span in fact.spans})
    outbox.enqueue(change.connection, change.cube, [state.id])
    changes.record_item(change, "derive", state.id, {"from": sorted({span.item for span in fact.spans})})
    return state


def add_sources(change: Change, item_id: str, fact: Fact) -> int:
    connection = change.connection
    here = t.sources.c.item_id == item_id
    columns = (t.sources.c.message_id, t.sources.c.start, t.sources.c.end, t.sources.c.ordinal)
    known = connection.execute(sa.select(*columns).where(here)).all()
    have = {(row.message_id, row.start, row.end) for row in known}
    ordinal = max((row.ordinal for row in known), default=-1)
    rows = []
    for message_id, start, end in _passages(connection, change.cube, fact.spans):
        if (message_id, start, end) not in have:
            have.add((message_id, start, end))
            ordinal += 1
            rows.append(items.source_row(item_id, ordinal, message_id, (start, end), fact.reader, fact.extraction))
    if rows:
        connection.execute(sa.insert(t.sources), rows)
    origins = [(item_id, LinkKind.DERIVED_FROM, origin) for origin in dict.fromkeys(span.item for span in fact.spans)]
    items.link(connection, origins, change.cube, change.now)
    return len(rows)


def remove_sources(change: Change, item_id: str, origins: Collection[str]) -> None:
    connection = change.connection
    said = sa.select(t.sources.c.message_id).where(t.sources.c.item_id.in_(list(origins)))
    connection.execute(sa.delete(t.sources).where(t.sources.c.item_id == item_id, t.sources.c.message_id.in_(said)))
    of_them = (t.links.c.from_id == item_id, t.links.c.kind == LinkKind.DERIVED_FROM)
    connection.execute(sa.delete(t.links).where(*of_them, t.links.c.to_id.in_(list(origins))))
    expiry.inherit(connection, [item_id])
    changes.requeue_indexing(change, item_id)


def copy_sources(change: Change, item_id: str, from_id: str) -> None:
    connection, columns = change.connection, (t.sources.c.message_id, t.sources.c.start, t.sources.c.end)
    rows = connection.execute(sa.select(t.sources).where(t.sources.c.item_id.in_([item_id, from_id]))).all()
    have = {(row.message_id, row.start, row.end) for row in rows if row.item_id == item_id}
    ordinal = max((row.ordinal for row in rows if row.item_id == item_id), default=-1)
    for row in rows:
        passage = tuple(row._mapping[column] for column in columns)
        if row.item_id == from_id and passage not in have:
            have.add(passage)
            ordinal += 1
            connection.execute(sa.insert(t.sources), [{**row._mapping, "item_id": item_id, "ordinal": ordinal}])
    origins = items.origins_of(connection, [from_id]).get(from_id, set())
    pairs = [(item_id, LinkKind.DERIVED_FROM, origin) for origin in sorted(origins)]
    items.link(connection, pairs, change.cube, change.now)


def _passages(connection: sa.Connection, cube: str, spans: Sequence[Span]) -> list[tuple[str, int, int]]:
    states = items.current(connection, [cube], {span.item for span in spans})
    sources = items.sources_of(connection, states)
    found = []
    for span in spans:
        state = states.get(span.item)
        if state is None or not sources.get(span.item):
            raise IntegrityError(f"A fact names item {span.item}, which is not in cube {cube!r} or has no source.")
        first = sources[span.item][0]
        if state.memory == first.passage and 0 <= span.start < span.end <= len(state.memory):
            found.append((first.message_id, first.start + span.start, first.start + span.end))
        else:
            # The item says something else than its message by now: all of its passage is where that comes from.
            found.append((first.message_id, first.start, first.end))
    return list(dict.fromkeys(found))


def merge(change: Change, item: Item, fact: Fact, *, says_more: bool = False) -> bool:
    """Add a fact's sources to an item that says the same, and its words if it `says_more`; False if it had them all."""
    if not add_sources(change, item.id, fact):
        return False
    if item.status is Status.SUPERSEDED:
        items.mark_outdated(change.connection, {span.item for span in fact.spans})
    items.raise_revisions(change.connection, [item.id])  # the graph follows its links
    outbox.enqueue(change.connection, change.cube, [item.id])
    changes.record_item(change, "merge", item.id, {"from": sorted({span.item for span in fact.spans})})
    edits: dict[str, Any] = {}
    if fact.valid_from is not None and (item.valid_from is None or fact.valid_from < item.valid_from):
        edits["valid_from"] = fact.valid_from
    if fact.confidence > item.confidence:
        edits["confidence"] = fact.confidence
    if says_more:
        edits |= {"memory": fact.memory, "entities": entities(fact.memory), "keywords": keywords(fact.memory)}
    if edits:
        changes.edit(change, item, edits, "said again")
    return True


def restored_fact(change: Change, item: Item, after: datetime) -> Fact | None:
    """Return what an item's sources said again after a moment, at which it was replaced, and before its end."""
    rows = _sources_between(change.connection, item, after)
    origins = items.origins_of(change.connection, [item.id]).get(item.id, set())
    sources = items.sources_of(change.connection, origins)
    held = {of_one[0].message_id: (origin, of_one[0]) for origin, of_one in sources.items()}
    told = [(row, *held[row.message_id]) for row in rows if row.message_id in held]
    if not told:
        return None
    first = told[0][0]
    spans = [Span(origin, max(0, row.start - whole.start), row.end - whole.start) for row, origin, whole in told]
    untrusted = any(row.trust == Trust.UNTRUSTED for row, _, _ in told)
    return Fact(
        type=item.type,
        # A trait is worded by its value; a fact in the words that said it again.
        memory=item.memory if item.type is ItemType.PROFILE else first.text[first.start : first.end],
        spans=tuple(spans),
        subject=item.speaker,
        reader=first.reader,
        said_at=first.chat_time,
        key=item.key,
        value=item.value,
        confidence=item.confidence,
        valid_from=first.chat_time,
        tags=item.tags,
        trust=Trust.UNTRUSTED if untrusted else Trust.TRUSTED,
        extraction=first.extraction_id,
    )


def _sources_between(connection: sa.Connection, item: Item, after: datetime) -> list[Any]:
    s, m = t.sources, t.messages
    query = (
        sa.select(s.c.message_id, s.c.start, s.c.end, s.c.reader, s.c.extraction_id, m.c.chat_time, m.c.text, m.c.trust)
        .join(m, m.c.id == s.c.message_id)
        .where(s.c.item_id == item.id, m.c.chat_time > after)
        .order_by(m.c.chat_time, s.c.ordinal)
    )
    if item.valid_to is not None:
        query = query.where(m.c.chat_time < item.valid_to)
    return [row for row in connection.execute(query) if not _of_the_past(row.text[row.start : row.end], row.chat_time)]


def _of_the_past(passage: str, said_at: datetime) -> bool:
    """Return True if a passage names a past time: "I moved here in 2019" does not date from its message."""
    return any(each.valid_to <= said_at for each in time_expressions(passage, said_at, _UTC))


def supersede(change: Change, old: Item, new: str, at: datetime | None) -> None:
    items.mark_outdated(change.connection, items.origins_of(change.connection, [old.id]).get(old.id, ()))
    edits = {"status": Status.SUPERSEDED, "valid_to": at, "superseded_by": new}
    changes.edit(change, old, edits, f"superseded by {new}", kind="supersede")
    link_superseded(change, new, old.id)


def link_superseded(change: Change, new: str, old: str) -> None:
    items.link(change.connection, [(new, LinkKind.SUPERSEDES, old)], change.cube, change.now)
    items.raise_revisions(change.connection, [new])
    outbox.enqueue(change.connection, change.cube, [new])


def end(change: Change, item: Item, at: datetime) -> None:
    changes.edit(change, item, {"valid_to": at}, "it is over", kind="end")


def with_keys(connection: sa.Connection, cube: str, keys: Iterable[str]) -> dict[str, list[Item]]:
    """Return the undeleted derived items of these keys, by key, in order of event time."""
    found: dict[str, list[Item]] = {}
    for batch in items.in_batches(set(keys)):
        for state in items.with_keys(connection, cube, batch):
            if state.type in DERIVED and state.key is not None and state.status is not Status.DELETED:
                found.setdefault(state.key, []).append(state)
    for states in found.values():
        states.sort(key=lambda state: (event_time(state), state.id))
    return found


def event_time(state: Item) -> datetime:
    return state.valid_from or state.said_at or state.created_at


def keep_record(change: Change, reader: str, model: str, output: str, shown: Iterable[str]) -> str:
    answer = new_id()
    values = {"id": answer, "cube_id": change.cube, "reader": reader, "model": model, "output": output}
    change.connection.execute(sa.insert(t.extractions), [{**values, "created_at": change.now}])
    rows = [{"item_id": item, "extraction_id": answer, "cube_id": change.cube} for item in dict.fromkeys(shown)]
    if rows:
        change.connection.execute(sa.insert(t.extraction_items), rows)
    return answer
