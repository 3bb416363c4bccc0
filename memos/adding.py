"""Takes in what is said: checks it, reads it roughly and stores it in one transaction; knows no search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from memos.handles import Handles
from memos.memcube import changes
from memos.memcube.changes import Request
from memos.model import AddReceipt, Draft, Json, Scope
from memos.reader import fast
from memos.reader.fields import info_of, plain, tags_of
from memos.reader.messages import read_messages
from memos.text.checks import check_name


class Adding:
    """`MemOS.add` of one open installation."""

    def __init__(self, handles: Handles, short_capacity: int) -> None:
        self._handles = handles
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
        masking = self._handles.masking(scope)
        # Before anything is checked, so that no error shows what must not be shown either. What a request is known by
        # again is a salted digest of it as it was given.
        given, said = (messages, tags, info), masking.messages(messages, self._handles.limits.messages_per_add)
        tags, info = tags_of(masking.any("tags", tags)), info_of(masking.any("info", info), self._handles.limits)
        conversation = None if conversation is None else check_name("conversation", conversation)
        key = None if idempotency_key is None else check_name("idempotency_key", idempotency_key)
        request = None if key is None else _request(key, conversation, *given)
        conversation = None if conversation is None else masking.name("conversation", conversation)
        drafts = self.read(said, scope, tags, info)
        with self._handles.changing(scope) as change:
            receipt = changes.add(change, drafts, conversation, request, self._short_capacity)
            if not receipt.replayed:
                masking.record(change)
        return replace(receipt, indexed=self._handles.settle(), masked=masking.masked)

    def read(self, messages: Json, scope: Scope, tags: Sequence[str], info: Mapping[str, Json]) -> list[Draft]:
        """Return what would be stored of messages. Raises: InvalidInput."""
        zone = ZoneInfo(scope.time_zone)
        read = read_messages(messages, zone, self._handles.clock.now(), self._handles.limits)
        return fast.read(read, tags, info, zone)


def _request(key: str, conversation: str | None, messages: Json, tags: Sequence[str], info: Json) -> Request:
    return Request(key, plain([messages, conversation, list(dict.fromkeys(tags)), info or {}]))
