"""Takes in what is said: checks it, reads it roughly and stores it in one transaction; knows no search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from memos.handles import Handles
from memos.memcube import changes, pictures
from memos.memcube.changes import Request
from memos.model import AddReceipt, Draft, Json, Scope
from memos.ports import ImageSource
from memos.reader import fast
from memos.reader.fields import info_of, plain, tags_of
from memos.reader.images import ImageParts
from memos.reader.messages import read_messages
from memos.settings import ImageSettings
from memos.text.checks import check_name


class Adding:
    """`MemOS.add` of one open installation."""

    def __init__(
        self, handles: Handles, short_capacity: int, images: ImageSettings, source: ImageSource | None
    ) -> None:
        self._handles = handles
        self._images = images
        self._source = source
        self._short_capacity = short_capacity

    def add(
        self,
        messages: Json,
        scope: Scope,
        *,
        conversation: str | None,
        tags: Sequence[str],
        info: Mapping[str, Json] | None,
        idempotency_key: str | None,
    ) -> AddReceipt:
        """Store messages. Raises: InvalidInput, Conflict, BackendUnavailable."""
        tags, info = tags_of(tags), info_of(info, self._handles.limits)
        conversation = None if conversation is None else check_name("conversation", conversation)
        key = None if idempotency_key is None else check_name("idempotency_key", idempotency_key)
        drafts = self.read(messages, scope, tags, info)
        request = None if key is None else Request(key, plain([messages, conversation, list(tags), info]))
        with self._handles.changing(scope) as change:
            receipt = changes.add(change, drafts, conversation, request, self._short_capacity)
            pictures.store(change, drafts, receipt)
        return replace(receipt, indexed=self._handles.settle())

    def read(self, messages: Json, scope: Scope, tags: Sequence[str], info: Mapping[str, Json]) -> list[Draft]:
        """Return what would be stored of messages. Raises: InvalidInput."""
        zone = ZoneInfo(scope.time_zone)
        images = ImageParts(self._images, self._source)
        read = read_messages(messages, zone, self._handles.clock.now(), self._handles.limits, images)
        return fast.read(read, tags, info, zone)
