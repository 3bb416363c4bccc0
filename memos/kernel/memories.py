"""Takes in what is said: checks it, reads it roughly and stores it in one transaction; knows no search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo

from memos.core.filters import And, Condition, Node, Op, fields_of, parse
from memos.core.ports import ImageSource
from memos.core.settings import ImageSettings
from memos.core.telemetry import StageClock
from memos.core.text.validation import check_name
from memos.core.types import AddReceipt, Draft, ExtractionRecord, Item, Json, Mode, Scope, Status
from memos.errors import NotFound
from memos.kernel.context import Handles
from memos.kernel.tools import remember_tools
from memos.memcube import changes
from memos.memcube import images as pictures
from memos.memcube.changes import Request
from memos.memcube.ledger import items, reading
from memos.memcube.ledger.engine import Ledger
from memos.reader import messages as fast
from memos.reader.arguments import info_of, member_of, plain, tags_of, within
from memos.reader.images import ImageParts
from memos.reader.messages import read_messages, read_tools

# `MemOS.read_finely` and what was read by what: has stored messages read into facts, and tells the records of it.


class FineReading:
    """Fine reading of one open installation, as callers ask for it."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def want(self, scope: Scope, conversation: str | None) -> tuple[str, ...]:
        """Have what never was read finely, of a conversation or of the cube; return the tasks. Raises: NotFound."""
        with self._handles.changing(scope) as change:
            connection, cube = change.connection, change.cube
            if conversation is not None and not reading.is_conversation(connection, cube, conversation):
                raise NotFound("conversation", conversation, "See what there is with `memos list`.")
            return tuple(reading.want_all(connection, cube, conversation, change.now))

    def records(self, item: str, scope: Scope) -> tuple[ExtractionRecord, ...]:
        """Return what read a message, or what a derived item was read by, oldest first. Raises: NotFound."""
        with self._handles.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(reading.records(connection, item))


# A cube's memories one after the other, or page by page with how many there are; knows no search.

LISTED = (Status.ACTIVE, Status.PENDING, Status.SUPERSEDED, Status.ARCHIVED)
"""Statuses of items that are listed when a filter names none."""


@dataclass(frozen=True, slots=True)
class Page:
    """Items of one page, the newest first, and how many pass the filter in all."""

    items: tuple[Item, ...]
    total: int


def listed(ledger: Ledger, scope: Scope, filter: Json, limit: int, offset: int) -> list[Item]:
    """Return the items that pass a filter, the oldest first. Raises: InvalidInput."""
    wanted = _Wanted.of(filter, limit, offset)
    with ledger.read() as connection:
        return items.matching(connection, scope.cubes, wanted.node, limit=wanted.limit, offset=wanted.offset)


def page(ledger: Ledger, scope: Scope, filter: Json, limit: int, offset: int) -> Page:
    """Return the items that pass a filter with their sources, the newest first. Raises: InvalidInput."""
    wanted = _Wanted.of(filter, limit, offset)
    with ledger.read() as connection:
        found = items.matching(
            connection, scope.cubes, wanted.node, limit=wanted.limit, offset=wanted.offset, newest=True
        )
        sources = items.sources_of(connection, [item.id for item in found])
        total = items.count(connection, scope.cubes, wanted.node)
    return Page(tuple(replace(item, sources=sources.get(item.id, ())) for item in found), total)


class _Wanted(NamedTuple):
    """Which items, and which of them; deleted ones only when the filter names status."""

    node: Node | None
    limit: int
    offset: int

    @classmethod
    def of(cls, filter: Json, limit: int, offset: int) -> Self:
        node = parse(filter)
        limit, offset = within("limit", limit, 1, 10_000), within("offset", offset, 0, 10**9)
        if "status" not in fields_of(node):
            listed = Condition("status", Op.IN, tuple(str(status) for status in LISTED))
            node = listed if node is None else And((listed, node))
        return cls(node, limit, offset)


class Adding:
    """`MemOS.add` of one open installation."""

    def __init__(
        self, handles: Handles, short_capacity: int, images: ImageSettings, source: ImageSource | None
    ) -> None:
        self._handles = handles
        self._images = images
        self._source = source
        self._short_capacity = short_capacity

    def add(  # noqa: PLR0913 - what `MemOS.add` takes
        self,
        messages: Json,
        scope: Scope,
        *,
        conversation: str | None,
        tags: Sequence[str],
        info: Mapping[str, Json] | None,
        idempotency_key: str | None,
        tools: Json = None,
        mode: str = Mode.ROUGH,
        clock: StageClock | None = None,
    ) -> AddReceipt:
        """Store messages, and have them read finely later. Raises: InvalidInput, Conflict, BackendUnavailable."""
        limits, masking, clock = self._handles.limits, self._handles.masking(scope), clock or StageClock()
        finely = member_of("mode", mode, Mode) is Mode.FINE
        with clock.stage("read"):
            # Before anything is checked, so that no error shows what must not be shown either. What a request is
            # known by again is a salted digest of it as it was given.
            given, said = (messages, tags, info, tools), masking.messages(messages, limits.messages_per_add)
            tags, info = tags_of(masking.any("tags", tags)), info_of(masking.any("info", info), limits)
            conversation = None if conversation is None else check_name("conversation", conversation)
            key = None if idempotency_key is None else check_name("idempotency_key", idempotency_key)
            drafts = self.read(said, scope, tags, info)
            defined = read_tools(masking.any("tools", tools), self._handles.clock.now(), limits)
            request = None if key is None else _request(key, conversation, *given)
            conversation = None if conversation is None else masking.name("conversation", conversation)
        with clock.stage("store"), self._handles.changing(scope) as change:
            receipt = changes.add(change, drafts, conversation, request, self._short_capacity)
            remember_tools(change, defined, drafts, receipt)
            pictures.store(change, drafts, receipt)
            if finely:
                found = reading.want(change.connection, change.cube, receipt.item_ids, change.now)
                receipt = replace(receipt, task=found[0] if found else None)
            if not receipt.replayed:
                masking.record(change)
        with clock.stage("index"):
            indexed = self._handles.settle()
        return replace(receipt, indexed=indexed, masked=masking.masked)

    def read(self, messages: Json, scope: Scope, tags: Sequence[str], info: Mapping[str, Json]) -> list[Draft]:
        """Return what would be stored of messages. Raises: InvalidInput."""
        zone = ZoneInfo(scope.time_zone)
        images = ImageParts(self._images, self._source)
        read = read_messages(messages, zone, self._handles.clock.now(), self._handles.limits, images)
        return fast.read(read, tags, info, zone)


def _request(
    key: str, conversation: str | None, messages: Json, tags: Sequence[str], info: Json, tools: Json
) -> Request:
    body = [messages, conversation, list(dict.fromkeys(tags)), info or {}]
    return Request(key, plain([*body, tools] if tools else body))
