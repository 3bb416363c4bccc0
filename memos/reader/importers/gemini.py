"""Gemini's part of Google Takeout: "My Activity" as JSON or HTML, with what was asked and answered.

Takeout knows no conversations and lists the newest first: what was said on one day becomes one, oldest first.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, BinaryIO

from memos.core.message_shapes import file_part, text_part
from memos.core.types import Json, Role
from memos.errors import InvalidInput
from memos.reader.importers.base import (
    SERVICE,
    ExportRecord,
    content_of,
    left_out,
    list_in,
    message_of,
    read_date,
    text_in,
)
from memos.reader.importers.sources import Export, SourceFile, printable
from memos.reader.importers.stream import BLOCK, read_entries

_PRODUCT = re.compile(r"\b(?:gemini|bard)\b", re.IGNORECASE)
_ASKED = re.compile(r"(?:Prompted|Said|Asked)\s+", re.IGNORECASE)
_ZONE = re.compile(r"\s+[A-Z]{2,5}$")
_BREAKS = {"br", "p", "div", "li", "h1", "h2", "h3", "h4", "tr", "pre", "ul", "ol", "table"}
_LOOKED_AT = 20
_MOST_CELL_BYTES = 4_194_304
_CELL, _CONTENT = b'<div class="outer-cell', '<div class="content-cell'
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)[^<>]*>")
_COMMENT = re.compile(r"<!--[^<>]*-->")


@dataclass(frozen=True, slots=True)
class _Activity:
    place: str
    asked: str
    answer: str
    at: str
    files: int = 0
    problem: str | None = None


def is_gemini(value: Json) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("title"), str) or "time" not in value:
        return False
    products = [value.get("header"), *list_in(value, "products")]
    return any(isinstance(each, str) and _PRODUCT.search(each) for each in products)


def is_takeout(export: Export) -> bool:
    return bool(_activities(export))


def _activities(export: Export) -> list[SourceFile]:
    """Return the files of activity; those in HTML only where there are none in JSON."""
    found = [file for file in export.files if file.suffix in (".json", "") and _is_json(file)]
    return found or [file for file in export.files if file.suffix in (".html", ".htm", "") and _is_html(file)]


def _is_json(file: SourceFile) -> bool:
    head = file.head(2_048)
    if b'"time"' not in head or b'"title"' not in head:
        return False
    try:
        entries = (entry.value for _, entry in zip(range(_LOOKED_AT), read_entries(file), strict=False))
        return any(is_gemini(value) for value in entries)
    except InvalidInput:
        return False


def _is_html(file: SourceFile) -> bool:
    head = file.head().decode("utf-8", "ignore")
    return "outer-cell" in head and _PRODUCT.search(head) is not None


def gemini_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    files = _activities(export)
    if not files:
        yield ExportRecord("the export", fallback, {}, "holds no activity of Gemini")
    for file in files:
        try:
            found = _of_html(file) if _is_html(file) else _of_json(file)
            for _, day in groupby(found, key=lambda activity: activity.at[:10]):
                for activity in reversed(list(day)):
                    yield from _records(activity, fallback)
        except InvalidInput as error:
            yield ExportRecord(printable(file.name), fallback, {}, error.reason)
    yield from left_out(export.others(files))


def _records(activity: _Activity, fallback: str) -> Iterator[ExportRecord]:
    conversation = f"gemini {activity.at[:10]}" if activity.at else fallback
    if activity.problem is not None:
        yield ExportRecord(activity.place, conversation, {}, activity.problem)
        return
    if not activity.asked:
        yield ExportRecord(activity.place, conversation, {}, left_out=1, reason=SERVICE)
        return
    asked = content_of([text_part(activity.asked), *(file_part() for _ in range(activity.files))])
    for role, content in ((Role.USER, asked), (Role.ASSISTANT, activity.answer)):
        if not content:
            continue
        message = message_of(role, content=content, chat_time=activity.at)
        yield ExportRecord(f"{activity.place}, {role}", conversation, message)


def _of_json(file: SourceFile) -> Iterator[_Activity]:
    for entry in read_entries(file):
        value = entry.value
        if entry.problem is not None:
            yield _Activity(entry.place, "", "", "", problem=entry.problem)
        elif not is_gemini(value):
            yield _Activity(entry.place, "", "", text_in(value, "time"))
        else:
            yield _of_entry(value, entry.place)


def _of_entry(value: Mapping[str, Any], place: str) -> _Activity:
    title = value["title"].replace("\xa0", " ").strip()
    answers = [text_in(item, "html") for item in list_in(value, "safeHtmlItem")]
    asked = _ASKED.match(title)
    if asked is None and not any(answers):
        return _Activity(place, "", "", text_in(value, "time"))  # a setting, feedback, something that was made
    files = sum("file" in text_in(each, "name").lower() for each in list_in(value, "subtitles"))
    answer = "\n\n".join(_text_of(each) for each in answers).strip()
    return _Activity(place, title[asked.end() :] if asked else title, answer, text_in(value, "time"), files)


def _text_of(markup: str) -> str:
    """Return markup as text. Nothing in it makes this slow: each pattern ends at the next angle bracket."""
    markup = _COMMENT.sub("", markup)
    text = _TAG.sub(lambda found: "\n" if found[1].lower() in _BREAKS else "", markup)
    kept = (line.strip() for line in html.unescape(text).replace("\xa0", " ").split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _of_html(file: SourceFile) -> Iterator[_Activity]:
    with file.open() as opened:
        for number, cell in enumerate(_cells(opened), start=1):
            # The first cell has what was asked and answered; empty ones and the product's name follow.
            content = cell.split(_CONTENT, 2)
            if len(content) > 1:
                yield _of_cell(_text_of(content[1].partition(">")[2]), f"entry {number}")


def _cells(file: BinaryIO) -> Iterator[str]:
    """Yield the markup of each activity, held one at a time; what is far too long for one is cut."""
    held = bytearray()
    began = False
    while block := file.read(BLOCK):
        held += block
        *cells, rest = held.split(_CELL)
        for cell in cells:
            if began:
                yield cell[:_MOST_CELL_BYTES].decode("utf-8", "replace")
            began = True
        # A mark may be cut in the middle; of too long a cell its beginning is enough.
        held = bytearray(rest if len(rest) <= _MOST_CELL_BYTES else rest[:_MOST_CELL_BYTES] + rest[-len(_CELL) :])
    if began:
        yield held[:_MOST_CELL_BYTES].decode("utf-8", "replace")


def _of_cell(text: str, place: str) -> _Activity:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        at = _date(line)
        if at is not None:
            title = " ".join(lines[:number]).strip()
            asked = _ASKED.match(title)
            answer = "\n".join(lines[number + 1 :]).strip()
            if asked is None and not answer:
                return _Activity(place, "", "", at)
            return _Activity(place, title[asked.end() :] if asked else title, answer, at)
    return _Activity(place, "", "", "", problem="has no date that can be read; export My Activity as JSON instead")


def _date(line: str) -> str | None:
    told = _ZONE.sub("", line.replace("\u202f", " ").strip()) if not line.endswith(("UTC", "GMT")) else line
    if not 8 <= len(told) <= 60 or not any(character.isdigit() for character in told):
        return None
    try:
        return read_date(told).isoformat()
    except InvalidInput:
        return None
