"""Keeps one current item for each tool that was defined; its source is the definition, a message nobody said.

Runs inside the caller's transaction; what a definition has to look like is checked before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.text.entities import entities
from memos.core.text.keywords import keywords
from memos.core.types import Item, ItemType, Json, Message, Role, Status, Tier
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items, outbox
from memos.memcube.ledger import schema as t

KEY = "tool_schema:"
READER = "tools/1"
_SPEAKER = "tool"


def define(change: Change, name: str, memory: str, message: Message, info: Mapping[str, Json]) -> str:
    """Let a tool be defined by a message from now on; return its item. The same definition again changes nothing."""
    connection, key = change.connection, f"{KEY}{name}"
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
    state = Item(
        id=new_id(), cube=change.cube, version=1, version_id=new_id(), memory=memory, type=ItemType.TOOL_SCHEMA,
        tier=Tier.LONG, status=Status.ACTIVE, speaker=_SPEAKER, role=Role.TOOL, key=key, value=None, tags=(),
        info=info, confidence=1.0, entities=entities(memory), keywords=keywords(memory), conversation=None,
        position=None, page=None, session=None, said_at=message.chat_time, valid_from=message.chat_time,
        valid_to=None, created_at=change.now, updated_at=change.now,
    )  # fmt: skip
    row = {
        "id": state.id, "cube_id": change.cube, "said_at": state.said_at, "version": 1,
        "version_id": state.version_id, "revision": 1, "created_at": change.now,
    }  # fmt: skip
    change.connection.execute(sa.insert(t.items), [row])
    items.insert_versions(change.connection, [state], change.actor, "defined")
    _add_source(change, state.id, message, 0)
    outbox.enqueue(change.connection, change.cube, [state.id])
    changes.record_item(change, "define", state.id, {})
    return state.id


def _add_source(change: Change, item_id: str, message: Message, ordinal: int) -> None:
    row = {
        "id": new_id(), "cube_id": change.cube, "conversation_id": None, "external_id": None, "role": message.role,
        "name": _SPEAKER, "text": message.text, "content": None, "tool_calls": None, "tool_call_id": None,
        "chat_time": message.chat_time, "created_at": change.now, "trust": message.trust,
    }  # fmt: skip
    change.connection.execute(sa.insert(t.messages), [row])
    source = {
        "item_id": item_id, "ordinal": ordinal, "message_id": row["id"], "start": 0, "end": len(message.text),
        "reader": READER,
    }  # fmt: skip
    change.connection.execute(sa.insert(t.sources), [source])
