"""ChatGPT's export: trees of messages, of which the branch shown last is read.

Source: the format of `conversations.json`, and of the numbered files of that name, in the archive that is sent by mail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import file_part, text_part
from memos.core.types import Json
from memos.errors import shown
from memos.reader.importers.base import (
    BRANCH,
    ExportRecord,
    content_of,
    image_part,
    mapping_in,
    message_of,
    name_of,
    numbered,
)

# What the program tells the model, or the model itself, and nobody says.
_INNER = ("thoughts", "reasoning_recap", "model_editable_context", "user_editable_context")
_TEXT_FIELDS = ("text", "result")


def is_chatgpt(value: Json) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("mapping"), Mapping)


def chatgpt_records(entry: Json, place: str, fallback: str) -> Iterator[ExportRecord]:
    """Yield messages from the root to `current_node`, without hidden ones and other branches."""
    if not is_chatgpt(entry):
        yield ExportRecord(place, fallback, {}, "is not a ChatGPT conversation: it has no mapping of messages")
        return
    mapping = entry["mapping"]
    own = (entry.get("conversation_id"), entry.get("id"), entry.get("title"))
    name = name_of(own, numbered(fallback, place))
    branch, problem = _branch(mapping, entry.get("current_node"))
    if problem:
        yield ExportRecord(place, name, {}, problem)
    # A message without a time was written no earlier than the one before it.
    time = entry.get("create_time")
    number = 0
    for node in branch:
        message = mapping[node].get("message")
        if message is not None:
            number += 1
            record = _chatgpt_record(message, node, name, f"{place}, message {number}", time)
            time = record.message.get("chat_time", time)
            yield record
    others = sum(_is_said(mapping[key]) for key in mapping.keys() - set(branch))
    if branch and others:
        yield ExportRecord(place, name, {}, left_out=others, reason=BRANCH)


def _branch(mapping: Mapping[str, Json], current: Json) -> tuple[list[str], str | None]:
    if current is None:
        leaves = [key for key, node in mapping.items() if isinstance(node, Mapping) and not node.get("children")]
        current = leaves[0] if len(leaves) == 1 else None
    if current is None:
        return [], "has no current_node, so it is unknown which branch was shown"
    branch: dict[str, None] = {}
    while current is not None:
        node = mapping.get(current) if isinstance(current, str) else None
        if not isinstance(node, Mapping):
            return [*reversed(branch)], f"names the node {shown(current)}, which is missing"
        if current in branch:
            return [], f"has a cycle at the node {shown(current)}"
        branch[current] = None
        current = node.get("parent")
    return [*reversed(branch)], None


def _chatgpt_record(raw: Json, node: str, conversation: str, place: str, time: Json) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    author = mapping_in(raw, "author")
    metadata = mapping_in(raw, "metadata")
    content = raw.get("content")
    if not isinstance(content, Mapping | None):
        return ExportRecord(place, conversation, {}, f"has content that is {type(content).__name__}, not an object")
    kind = content.get("content_type") if content is not None else None
    if kind in _INNER or metadata.get("is_visually_hidden_from_conversation"):
        return ExportRecord(place, conversation, {}, left_out=1)
    if content is not None and not any(field in content for field in ("parts", *_TEXT_FIELDS)):
        return ExportRecord(place, conversation, {}, f"has the content type {shown(kind)}, which is unknown")
    text = content_of([*_parts(content), *_attachments(metadata)])
    if not text:
        return ExportRecord(place, conversation, {}, left_out=1)
    message = message_of(
        author.get("role"),
        content=text,
        name=author.get("name") or None,
        message_id=raw.get("id") or node,
        chat_time=raw.get("create_time") or time,
    )
    return ExportRecord(place, conversation, message)


def _parts(content: Json) -> Iterator[Json]:
    if not isinstance(content, Mapping):
        return
    for text_field in _TEXT_FIELDS:
        if isinstance(content.get(text_field), str):
            yield text_part(content[text_field])
    pieces = content.get("parts")
    for piece in pieces if isinstance(pieces, list) else ():
        if isinstance(piece, str):
            yield text_part(piece)
        elif isinstance(piece, Mapping) and isinstance(piece.get("text"), str):
            yield text_part(piece["text"])
        elif isinstance(piece, Mapping) and piece.get("content_type") == "image_asset_pointer":
            yield image_part(piece.get("asset_pointer"))
        elif piece is not None:
            yield file_part()


def _attachments(metadata: Mapping[str, Any]) -> Iterator[Json]:
    files = metadata.get("attachments")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, Mapping) and not str(file.get("mime_type") or file.get("mimeType")).startswith("image/"):
            yield file_part(file.get("name"))


def _is_said(node: Json) -> bool:
    message = node.get("message") if isinstance(node, Mapping) else None
    return isinstance(message, Mapping) and bool(content_of([*_parts(message.get("content"))]))
