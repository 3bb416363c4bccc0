"""Takes in what is said: checks it, reads it roughly and stores it in one transaction; knows no search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from memos.core.ports import ImageSource
from memos.core.settings import ImageSettings
from memos.core.telemetry import StageClock
from memos.core.text.validation import check_name
from memos.core.types import AddReceipt, Draft, Json, Mode, Scope
from memos.kernel.handles import Handles
from memos.kernel.tools import remember_tools
from memos.memcube import changes
from memos.memcube import images as pictures
from memos.memcube.changes import Request
from memos.memcube.ledger import reading
from memos.reader import fast
from memos.reader.arguments import info_of, member_of, plain, tags_of
from memos.reader.images import ImageParts
from memos.reader.messages import read_messages
from memos.reader.tools import read_tools


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
