"""Slack's export: a folder for each channel with a file of messages for each day, and the names of people.

Source: the archive that a workspace's export makes (https://slack.com/help/articles/220556107).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

from memos.core.message_shapes import file_part, text_part
from memos.core.types import Json, Role
from memos.errors import InvalidInput
from memos.reader.importers.base import (
    REMOVED,
    SERVICE,
    ExportRecord,
    content_of,
    flat,
    image_part,
    list_in,
    mapping_in,
    message_of,
    name_of,
    text_in,
)
from memos.reader.importers.sources import Export, SourceFile, printable
from memos.reader.importers.stream import read_entries

_DAY = re.compile(r"(?:.*/)?([^/]+)/\d{4}-\d{2}-\d{2}\.json")
_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
_REFERENCE = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
# What people and bots say has no subtype, or one of these.
_SAID = {
    None,
    "",
    "bot_message",
    "me_message",
    "file_share",
    "file_comment",
    "thread_broadcast",
    "file_mention",
    "assistant_app_thread",
    "document_mention",
}
_REMOVED = {"tombstone", "message_deleted"}


def is_slack(export: Export) -> bool:
    days = sum(_DAY.fullmatch(file.name) is not None for file in export.files)
    return days > 0 and any(export.named(name) is not None for name in ("users.json", *_LISTS))


def slack_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of all channels, channel by channel, day by day."""
    people = {user["id"]: _name(user) for user in _entries(export, "users.json") if isinstance(user.get("id"), str)}
    channels = dict(_channels(export, people))
    problems: list[ExportRecord] = []
    for file in export.files:
        day = _DAY.fullmatch(file.name)
        if day is None:
            if file.name.rpartition("/")[2] not in ("users.json", *_LISTS):
                yield ExportRecord(printable(file.name), fallback, {}, left_out=1, reason="files that are no messages")
            continue
        conversation = channels.get(day[1], f"#{day[1]}")
        try:
            for number, entry in enumerate(read_entries(file), start=1):
                place = f"{file.label}, message {number}"
                if entry.problem is not None:
                    yield ExportRecord(place, conversation, {}, entry.problem)
                else:
                    yield _message(entry.value, conversation, place, people)
        except InvalidInput as error:
            problems.append(ExportRecord(printable(file.name), conversation, {}, error.reason))
    yield from problems


def _entries(export: Export, name: str) -> Iterator[Mapping[str, Any]]:
    file: SourceFile | None = export.named(name)
    if file is None:
        return
    try:
        for entry in read_entries(file):
            if isinstance(entry.value, Mapping):
                yield entry.value
    except InvalidInput:
        return  # people are called by their ids then


def _name(user: Mapping[str, Any]) -> str:
    profile = mapping_in(user, "profile")
    names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"), user.get("name"))
    return name_of(names, str(user.get("id")))


def _channels(export: Export, people: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the folder of each channel with the name of its conversation."""
    for list_name in _LISTS:
        for channel in _entries(export, list_name):
            folder = name_of((channel.get("name"), channel.get("id")), "")
            members = [people.get(id_, id_) for id_ in list_in(channel, "members") if isinstance(id_, str)]
            if list_name in ("dms.json", "mpims.json"):
                told = f"dm: {', '.join(members)}"[:200] if members else folder
                yield from ((each, told) for each in {folder, name_of((channel.get("id"),), "")} if each)
            elif folder:
                yield folder, f"#{folder}"


def _message(raw: Json, conversation: str, place: str, people: Mapping[str, str]) -> ExportRecord:
    if not isinstance(raw, Mapping):
        return ExportRecord(place, conversation, {}, f"is {type(raw).__name__}, not a message")
    subtype = raw.get("subtype")
    if subtype in _REMOVED:
        return ExportRecord(place, conversation, {}, left_out=1, reason=REMOVED)
    if subtype not in _SAID:
        return ExportRecord(place, conversation, {}, left_out=1, reason=SERVICE)
    parts = [text_part(_plain(text_in(raw, "text") or _blocks(raw), people)), *_files(raw)]
    content = content_of(parts)
    if not content:
        return ExportRecord(place, conversation, {}, left_out=1)
    user, bot = raw.get("user"), subtype == "bot_message" or raw.get("bot_id") is not None
    profile = mapping_in(raw, "user_profile") or mapping_in(raw, "bot_profile")
    known = people.get(user) if isinstance(user, str) else None
    name = name_of((known, profile.get("real_name"), profile.get("name"), raw.get("username"), user), "unknown")
    message = message_of(
        Role.ASSISTANT if bot else Role.USER,
        content=content,
        name=name,
        message_id=raw.get("ts"),
        chat_time=_time(raw.get("ts")),
    )
    if info := flat({"thread": raw.get("thread_ts")} if raw.get("thread_ts") != raw.get("ts") else {}):
        message["info"] = info
    return ExportRecord(place, conversation, message, revised=True)


def _time(ts: Json) -> Json:
    return ts.partition(".")[0] if isinstance(ts, str) else ts


def _files(raw: Mapping[str, Any]) -> Iterator[Json]:
    for file in list_in(raw, "files"):
        if isinstance(file, Mapping) and file.get("mode") != "tombstone":
            image = str(file.get("mimetype")).startswith("image/")
            yield image_part() if image and not file.get("name") else file_part(file.get("name") or file.get("title"))


def _blocks(raw: Mapping[str, Any]) -> str:
    """Return the text of a message that has it in attachments alone."""
    told = (text_in(each, "text") or text_in(each, "fallback") for each in list_in(raw, "attachments"))
    return "\n".join(text for text in told if text)


def _plain(text: str, people: Mapping[str, str]) -> str:
    """Return Slack's markup as text: names in place of ids, links with what they are called."""

    def shown(found: re.Match[str]) -> str:
        mark, target, label = found[1], found[2], found[3]
        if mark == "@":
            return f"@{label or people.get(target, target)}"
        if mark == "#":
            return f"#{label or target}"
        if mark == "!":
            return f"@{label or target.partition('^')[0]}"
        return f"{label} ({target})" if label and label != target else target

    return html.unescape(_REFERENCE.sub(shown, text))
