"""Read the JSON folders of MemoryOS: pages of a user oldest first, knowledge and profiles.

Embeddings, heat, summaries and chain notes are not read; they are rebuilt from the pages.
Source: https://github.com/BAI-LAB/MemoryOS (memoryos-pypi), the `save` methods of its memories.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from memos.core.types import Json, Role
from memos.errors import InvalidInput
from memos.reader.importers.base import ExportRecord, read_date
from memos.reader.importers.stream import Entry, read_entries, read_members

FORMAT = "memoryos"
SHORT = "short_term.json"
MID = "mid_term.json"
LONG = "long_term_user.json"
OF_ASSISTANT = "long_term_assistant.json"
SPEAKER = "imported knowledge"
USER_KNOWLEDGE = f"{FORMAT}:user_knowledge"
ASSISTANT_KNOWLEDGE = f"{FORMAT}:assistant_knowledge"
PROFILE = f"{FORMAT}:profile"

_SESSIONS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"sessions"\s*:\s*(?=\{)')
_LISTS = {"user_profiles", "knowledge_base", "assistant_knowledge"}
# The original stores its client's error as an answer, and as whatever else it asked the model for.
_ERROR = "error: could not get response from llm."
_NOTHING = {"", "none", "- none", "- none."}
# An unknown time sorts last: in the file it stood behind what is known.
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Owner:
    kind: Literal["user", "assistant"]
    id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class _Page:
    value: Mapping[str, Json]
    place: str
    at: datetime


def owners(root: Path) -> list[Owner]:
    """Return users and assistants with files in a folder, by kind and id."""
    # An id with slashes is a nested folder.
    found = [
        Owner(kind, folder.relative_to(root / name).as_posix(), folder)
        for kind, name, files in _LAYOUT
        for folder in (Path(walked) for walked, *_ in os.walk(root / name))  # follows no links
        if folder != root / name and any((folder / file).is_file() for file in files)
    ]
    if not found:
        raise InvalidInput(
            _printable(str(root)), "has no users and no assistants; give the data_storage_path of a MemoryOS program"
        )
    return sorted(found, key=lambda owner: (owner.kind, owner.id))


_LAYOUT: tuple[tuple[Literal["user", "assistant"], str, tuple[str, ...]], ...] = (
    ("user", "users", (SHORT, MID, LONG)),
    ("assistant", "assistants", (OF_ASSISTANT,)),
)


def records(owner: Owner, root: Path, conversation: str, knowledge: str) -> Iterator[ExportRecord]:
    prefix = f"{_printable(owner.folder.relative_to(root).as_posix())}/"
    if owner.kind == "user":
        yield from _pages(owner.folder, prefix, conversation)
    yield from _long_term(owner, prefix, LONG if owner.kind == "user" else OF_ASSISTANT, knowledge)


def _pages(folder: Path, prefix: str, conversation: str) -> Iterator[ExportRecord]:
    """Yield problems first, then the messages of all pages, oldest first."""
    # MemoryOS keeps a page in every session whose topic it touches; it is stored once.
    pages: dict[str, _Page] = {}
    copies = 0
    for entry in (*_entries(folder / MID, prefix), *_entries(folder / SHORT, prefix)):
        value = entry.value
        problem = entry.problem if entry.problem is not None else _problem(value)
        if problem is not None:
            yield ExportRecord(entry.place, conversation, {}, problem)
            continue
        key = _digest([value.get(name) for name in ("timestamp", "user_input", "agent_response")])
        copies += key in pages
        pages.setdefault(key, _Page(value, entry.place, _moment(value.get("timestamp"))))
    for key, page in sorted(pages.items(), key=lambda pair: pair[1].at):
        for role, name in ((Role.USER, "user_input"), (Role.ASSISTANT, "agent_response")):
            text, at = page.value.get(name), page.value.get("timestamp")
            if text is None or text.strip().casefold() in ("", _ERROR):
                yield ExportRecord(page.place, conversation, {}, left_out=1)
                continue
            message = {"role": str(role), "content": text, "message_id": f"{FORMAT}:{key}:{role}"}
            yield ExportRecord(
                f"{page.place}, {name}", conversation, message if at is None else {**message, "chat_time": at}
            )
    if copies:
        yield ExportRecord(f"{prefix}{MID}", conversation, {}, left_out=2 * copies, reason="pages of several sessions")


def _entries(path: Path, prefix: str) -> Iterator[Entry]:
    """Yield the pages of a file with their places; an unreadable file is one bad entry."""
    if not path.exists():
        return
    where = f"{prefix}{path.name}"
    if not path.is_file():
        yield Entry(where, problem="is not a regular file")
        return
    try:
        for entry in read_members(path, _SESSIONS) if path.name == MID else read_entries(path):
            if entry.problem is not None:
                yield Entry(f"{where}, {entry.place}", problem=entry.problem)
            elif path.name == MID:
                yield from _of_session(entry, where)
            else:
                yield Entry(f"{where}, {entry.place}", entry.value)
    except InvalidInput as error:
        yield Entry(where, problem=error.reason)


def _of_session(entry: Entry, where: str) -> Iterator[Entry]:
    value = entry.value
    held = value.get("sessions") if isinstance(value, Mapping) and "sessions" in value else value
    if not isinstance(held, Mapping):
        yield Entry(f"{where}, {entry.place}", problem="has no sessions")
        return
    for name, session in held.items():
        here = f"{where}, session {_printable(name)[:80]}"
        pages = session.get("details") if isinstance(session, Mapping) else None
        if not isinstance(pages, list):
            yield Entry(here, problem="has no list of pages (details)")
            continue
        for number, page in enumerate(pages, start=1):
            kept = {key: page[key] for key in _KEPT if key in page} if isinstance(page, Mapping) else page
            yield Entry(f"{here}, page {number}", kept)


_KEPT = ("user_input", "agent_response", "timestamp")


def _problem(page: Json) -> str | None:
    if not isinstance(page, Mapping):
        return f"is {type(page).__name__}, not a page"
    if "user_input" not in page and "agent_response" not in page:
        return "has neither user_input nor agent_response"
    for name in ("user_input", "agent_response"):
        if not isinstance(page.get(name), str | None):
            return f"has a {name} that is {type(page[name]).__name__}, not text"
    return None


def _long_term(owner: Owner, prefix: str, file: str, conversation: str) -> Iterator[ExportRecord]:
    path, where = owner.folder / file, f"{prefix}{file}"
    if not path.exists():
        return
    try:
        entry = next(read_entries(path), Entry(where, problem="holds nothing"))
    except InvalidInput as error:
        entry = Entry(where, problem=error.reason)
    problem = entry.problem
    if problem is None and not (isinstance(entry.value, Mapping) and _LISTS & set(entry.value)):
        problem = "is not an object with knowledge or profiles"
    if problem is not None:
        yield ExportRecord(where, conversation, {}, problem)
        return
    mine = USER_KNOWLEDGE if owner.kind == "user" else ASSISTANT_KNOWLEDGE
    for name, tag in (("knowledge_base", mine), ("assistant_knowledge", ASSISTANT_KNOWLEDGE)):
        lines = entry.value.get(name) or []
        if not isinstance(lines, list):
            yield ExportRecord(f"{where}, {name}", conversation, {}, f"is {type(lines).__name__}, not a list")
            continue
        for number, line in enumerate(lines, start=1):
            given = line if isinstance(line, Mapping) else {}
            text, at = given.get("knowledge"), given.get("timestamp")
            yield _known(f"{where}, {name} {number}", conversation, text, at, tag)
    yield from _profiles(owner, entry.value.get("user_profiles") or {}, where, conversation)


def _profiles(owner: Owner, profiles: Json, where: str, conversation: str) -> Iterator[ExportRecord]:
    if not isinstance(profiles, Mapping):
        yield ExportRecord(f"{where}, user_profiles", conversation, {}, f"is {type(profiles).__name__}, not an object")
        return
    for name, profile in profiles.items():
        here = f"{where}, profile of {_printable(name)[:80]}"
        if owner.kind != "user" or name != owner.id:
            # The original never shows it either.
            yield ExportRecord(here, conversation, {}, left_out=1, reason="profiles of other users")
            continue
        given = profile if isinstance(profile, Mapping) else {}
        yield _known(here, conversation, given.get("data"), given.get("last_updated"), PROFILE)


def _known(place: str, conversation: str, text: Json, at: Json, tag: str) -> ExportRecord:
    if not isinstance(text, str):
        return ExportRecord(place, conversation, {}, "has no text")
    if text.strip().casefold() in {*_NOTHING, _ERROR}:
        return ExportRecord(place, conversation, {}, left_out=1)
    message = {"role": str(Role.SYSTEM), "name": SPEAKER, "content": text.strip()}
    message["message_id"] = f"{FORMAT}:{_digest([tag, text.strip(), at])}"
    if at is None:
        return ExportRecord(place, conversation, message, tags=(tag,))
    info = {"timestamp": at} if isinstance(at, str | int | float) else {}
    return ExportRecord(place, conversation, {**message, "chat_time": at}, tags=(tag,), info=info)


def _moment(value: Json) -> datetime:
    """Return a time to sort by; unreadable ones are reported when the record is checked."""
    try:
        moment = read_date(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (InvalidInput, OverflowError):
        return _LAST


def _digest(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
