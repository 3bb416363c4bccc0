"""Responses that were stored: ordinary messages of a conversation, found by the response's id.

The id is the idempotency key of the add that stored the exchange. What a response has besides its messages is a note in
the answer's message, so that everything of it is deleted, erased, backed up and dumped as any memory is. A response one
of whose messages was deleted, erased or corrected is gone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memos.api.dialects import RequestIdentity
from memos.api.proxy.requests import Message, call_message, since_answer, text_of
from memos.core.browsing import StoredMessage
from memos.core.clock import new_id
from memos.core.types import Json, Role
from memos.errors import InvalidInput, NotFound
from memos.kernel.memos import MemOS

MOST = 1_000
"""Messages of a conversation that an answer can continue, and responses before one."""

_ID = re.compile(r"resp_[0-9a-f]{32}")
_PART = re.compile(r"(?P<kind>msg|fc|rs)_(?P<of>[0-9a-f]{32})(?:_(?P<place>\d{1,4}))?")
_UNKEPT = {"input_audio": "audio", "file": "files", "image_url": "images"}
"""Parts of messages that are stored as marks."""


def new_response_id() -> str:
    return f"resp_{new_id().replace('-', '')}"


def item_id(kind: str, response: str, place: int = 0) -> str:
    """Return the id of an item of a response, from which the response's can be told."""
    return f"{kind}_{response.removeprefix('resp_')}" + (f"_{place}" if place else "")


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response; `note` is what it has besides its messages."""

    id: str
    conversation: str
    note: Mapping[str, Json]
    inputs: Sequence[StoredMessage]
    answer: StoredMessage

    @property
    def resource(self) -> dict[str, Json]:
        """Return the response as it was returned first."""
        return {**self.note["response"], "id": self.id, "object": "response", "output": self.output}

    @property
    def output(self) -> list[Json]:
        items: list[Json] = []
        if text := self.answer.words:
            items.append(message_item(item_id("msg", self.id), text))
        for place, call in enumerate(self.answer.tool_calls):
            items.append(call_item(item_id("fc", self.id, place), call.id, call.name, call.arguments))
        return items


class StoredResponses:
    """The responses in the cube of whom a request acts for."""

    def __init__(self, memos: MemOS, acting: RequestIdentity) -> None:
        self._memos = memos
        self._acting = acting
        self._mine: dict[str, Any] = {"cube": acting.home, "actor": acting.actor}

    def get(self, response: str) -> StoredResponse:
        """Return a response. Raises: NotFound."""
        missing = NotFound("response", response[:128], "It was not stored, or one of its messages is gone.")
        if not _ID.fullmatch(response):
            raise missing
        try:
            receipt = self._memos.memories.receipt(response, **self._mine)
        except NotFound:
            raise missing from None
        messages = self._memos.conversations.messages(receipt.item_ids, **self._mine)
        note = note_of(messages[-1]) if messages else None
        if note is None or len(messages) < len(receipt.item_ids):
            raise missing
        return StoredResponse(response, receipt.conversation or response, note, messages[:-1], messages[-1])

    def erase(self, response: str) -> None:
        """Erase a response: its messages and what was read out of them alone. Raises: NotFound."""
        found = self.get(response)
        ids = [message.item for message in (*found.inputs, found.answer)]
        self._memos.erase(ids, wait=False, **self._mine)

    def before(self, response: StoredResponse) -> list[StoredResponse]:
        """Return the responses that one continues, those that are still there, the oldest first."""
        found = []
        for earlier in response.note.get("chain", ()):
            try:
                found.append(self.get(earlier))
            except NotFound:  # erased since: what nobody may see any more is not sent either
                continue
        return found

    def chain(self, previous: str) -> list[StoredResponse]:
        """Return a response to continue, behind those before it. Raises: InvalidInput."""
        try:
            last = self.get(previous)
        except NotFound as error:
            raise InvalidInput("previous_response_id", str(error)) from None
        chain = [*self.before(last), last]
        if len(chain) >= MOST:
            raise InvalidInput("previous_response_id", f"is the end of {MOST:,} responses; begin anew")
        for each in chain:
            check_whole("previous_response_id", each.note)
        return chain

    def resent(self, given: Json, messages: Sequence[Message]) -> list[StoredResponse]:
        """Return the responses that a request sends again in front of its new messages, instead of naming the last."""
        items = given if isinstance(given, list) else []
        parts = [_PART.fullmatch(str(item.get("id"))) for item in items if isinstance(item, dict)]
        named = [part["of"] for part in parts if part is not None]
        if not named:
            return []
        try:
            last = self.get(f"resp_{named[-1]}")
        except NotFound:
            return []
        chain = [*self.before(last), last]
        whole = not any(each.note.get("missing") for each in chain)
        known = self.messages_of(chain)
        same = len(known) < len(messages) and all(map(_same, known, messages[: len(known)]))
        return chain if whole and same else []

    def messages_of(self, responses: Sequence[StoredResponse]) -> list[Message]:
        """Return what was said in responses as messages of chat completions."""
        return [message for each in responses for message in self.messages([*each.inputs, each.answer])]

    def transcript(self, conversation: str) -> list[StoredMessage]:
        """Return the messages of a conversation. Raises: InvalidInput."""
        messages = self._memos.conversations.transcript(conversation, limit=MOST, **self._mine)
        if len(messages) >= MOST:
            raise InvalidInput("conversation", f"has {MOST:,} messages or more; begin another")
        for message in messages:
            check_whole("conversation", note_of(message) or {})
        return list(messages)

    def messages(self, stored: Sequence[StoredMessage]) -> list[Message]:
        """Return stored messages as those of chat completions, with the instructions that came with them."""
        told: list[Message] = []
        for message in stored:
            told.append(self._message(message))
            if (note := note_of(message)) is None:
                continue
            first = len(told) - 1 - note["inputs"]
            for place, text in reversed(note["system"]):
                told.insert(first + min(place, note["inputs"]), {"role": "system", "content": text})
        return told

    def input_items(self, response: StoredResponse) -> list[Json]:
        """Return all items that a response was made from, the oldest first."""
        items: list[Json] = []
        for each in (*self.before(response), response):
            inputs = [self._input_item(message) for message in each.inputs]
            for place, text in reversed(each.note["system"]):
                content = [{"type": "input_text", "text": text}]
                id_ = f"{item_id('msg', each.id)}_s{place}"
                item = {"id": id_, "type": "message", "role": "system", "status": "completed", "content": content}
                inputs.insert(place, item)
            items += inputs if each is response else [*inputs, *each.output]
        return items

    def resolve(self, item: str) -> Json:
        """Return the output item that an id names. Raises: InvalidInput."""
        found = _PART.fullmatch(item)
        try:
            output = self.get(f"resp_{found['of']}").output if found else []
        except NotFound:
            output = []
        if found and found["kind"] == "rs" and output:
            return {"type": "reasoning"}  # not stored, as it is not sent either
        for each in output:
            if each["id"] == item:
                return each
        raise InvalidInput("input", f"refers to the item {item[:128]!r}, which is not stored; send the item itself")

    def _message(self, message: StoredMessage) -> Message:
        if message.role is Role.TOOL:
            return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.text}
        if message.role is Role.ASSISTANT:
            calls = [call_message(call.id, call.name, call.arguments) for call in message.tool_calls]
            said: Message = {"role": "assistant", "content": message.words or None}
            return {**said, "tool_calls": calls} if calls else said
        if not any(_is_picture(part) for part in message.content):
            return {"role": str(message.role), "content": message.text}
        return {"role": str(message.role), "content": [self._part(part) for part in message.content]}

    def _part(self, part: Mapping[str, Json]) -> dict[str, Json]:
        """Return a stored part of a user's message as one of chat completions."""
        if not _is_picture(part):
            return {"type": "text", "text": part.get("text", "")}
        if isinstance(url := part["image_url"], str):
            return {"type": "image_url", "image_url": {"url": url}}
        data = b64encode(self._memos.images.content(part["file"]["id"], **self._mine)).decode()
        return {"type": "image_url", "image_url": {"url": f"data:{part['file']['media_type']};base64,{data}"}}

    def _input_item(self, message: StoredMessage) -> dict[str, Json]:
        id_ = f"msg_{message.item.replace('-', '')}"
        said = self._message(message)
        if message.role is Role.TOOL:
            told = {"call_id": said["tool_call_id"], "output": said["content"], "status": "completed"}
            return {"id": id_, "type": "function_call_output", **told}
        parts = said["content"] if isinstance(said["content"], list) else [{"type": "text", "text": said["content"]}]
        content = [
            {"type": "input_text", "text": part["text"]}
            if part["type"] == "text"
            else {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
            for part in parts
        ]
        return {"id": id_, "type": "message", "role": "user", "status": "completed", "content": content}


def _same(stored: Message, sent: Message) -> bool:
    if any(stored.get(name) != sent.get(name) for name in ("role", "tool_calls", "tool_call_id")):
        return False
    return text_of(stored).strip() == text_of(sent).strip()


def _is_picture(part: Mapping[str, Json]) -> bool:
    return isinstance(part.get("image_url"), str) or isinstance(part.get("file"), Mapping)


def note_of(message: StoredMessage) -> dict[str, Any] | None:
    """Return what an answer's message says of its response, None if it is none of a response."""
    notes = (part.get("response") for part in message.content if message.role is Role.ASSISTANT)
    return next((note for note in notes if isinstance(note, dict) and "response" in note), None)


def note_for(
    response: Mapping[str, Json], own: list[Message], chain: Sequence[str], *, inputs: int, whole: bool
) -> dict[str, Json]:
    """Return the note for the answer to a request that sent its `own` messages, so many of which are stored.

    Not `whole`, images are stored as marks, and neither definitions of tools nor schemas are.
    """
    new = since_answer(own)
    system: list[Json] = []
    before = 0
    for message in new:
        if message["role"] == "system":
            system.append([before, message["content"]])
        else:
            before += 1
    missing = ["messages"] if len(new) < len(own) else []
    kinds = {part["type"] for message in new if isinstance(message["content"], list) for part in message["content"]}
    missing += [name for kind, name in _UNKEPT.items() if kind in kinds and not (whole and kind == "image_url")]
    kept = response if whole else {**response, "tools": [], "text": {"format": {"type": "text"}}}
    return {"response": kept, "inputs": inputs, "system": system, "chain": [*chain], "missing": missing}


def check_whole(where: str, note: Mapping[str, Json]) -> None:
    """Check that everything a response was made from is stored. Raises: InvalidInput."""
    if missing := note.get("missing"):
        raise InvalidInput(
            where,
            f"cannot be continued: {', '.join(missing)} of an earlier request were not stored and would be missing; "
            "send the whole conversation as `input`",
        )


def message_item(id_: str, text: str, status: str = "completed") -> dict[str, Json]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": id_, "type": "message", "role": "assistant", "status": status, "content": [part]}


def call_item(id_: str, call: str, name: str, arguments: str, status: str = "completed") -> dict[str, Json]:
    told = {"call_id": call, "name": name, "arguments": arguments, "status": status}
    return {"id": id_, "type": "function_call", **told}
