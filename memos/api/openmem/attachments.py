"""Takes the files out of messages, so that they are kept as documents; knows no store and fetches nothing."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Final

from memos.core.text.validation import check_name
from memos.core.types import Json
from memos.errors import InvalidInput

MOST_FILES: Final = 20

_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

File = tuple[str, bytes]
_Taking = Callable[[str, str | None, Json], File]


Fetch = Callable[[str, str], File]
"""Returns what is at a web address; the first argument names it in errors. Raises: InvalidInput, BackendUnavailable."""


def file_of(where: str, name: str | None, content: Json, most: int, fetch: Fetch) -> File:
    """Return a file that is given as base64, as a data URL or by its web address.

    Raises: InvalidInput, BackendUnavailable (it cannot be fetched).
    """
    if not isinstance(content, str) or not content:
        raise InvalidInput(where, "must be the file's bytes as base64")
    if _REMOTE.match(content):
        called, data = fetch(where, content)
        return name or called, data
    data = _decoded(where, content, most)
    # Files of one name would replace each other.
    return name or f"file-{hashlib.sha256(data).hexdigest()[:12]}", data


def _decoded(where: str, content: str, most: int) -> bytes:
    head = _DATA_URL.match(content, 0, 256)
    data = content[head.end() :] if head else content
    if len(data) // 4 * 3 > most + 2:
        raise InvalidInput(where, f"has over {most:,} bytes; split it, or raise MEMOS_LIMITS__FILE_BYTES")
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(where, "is no strict base64: letters, digits, + and /, then = to fill up") from error


def without_files(messages: Json, most: int, fetch: Fetch) -> tuple[Json, tuple[File, ...]]:
    """Return messages whose file parts have names and digests only, and the files. Raises: InvalidInput."""
    if not isinstance(messages, list):
        return messages, ()
    files: list[File] = []

    def taking(where: str, name: str | None, content: Json) -> File:
        return file_of(where, name, content, most, fetch)

    return [_message(f"messages[{n}]", message, files, taking) for n, message in enumerate(messages)], tuple(files)


def _message(where: str, message: Json, files: list[File], taking: _Taking) -> Json:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [_part(f"{where}.content[{n}]", part, files, taking) for n, part in enumerate(content)]
    return {**message, "content": parts}


def _part(where: str, part: Json, files: list[File], taking: _Taking) -> Json:
    file = part.get("file") if isinstance(part, Mapping) and part.get("type") == "file" else None
    if not isinstance(file, Mapping) or file.get("file_data") is None:
        return part
    given = file.get("filename")
    given = None if given is None else check_name(f"{where}.file.filename", given)
    if len(files) >= MOST_FILES:
        raise InvalidInput(where, f"is beyond the {MOST_FILES} files of one request; send the others in another")
    name, data = taking(f"{where}.file.file_data", given, file["file_data"])
    files.append((name, data))
    rest = {key: value for key, value in file.items() if key != "file_data"}
    return {**part, "file": {**rest, "filename": name, "sha256": hashlib.sha256(data).hexdigest()}}
