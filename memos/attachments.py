"""Takes the files out of messages, so that they are kept as documents; knows no store and fetches nothing."""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Final

from memos.errors import InvalidInput
from memos.model import Json
from memos.text.checks import check_name

MOST_FILES: Final = 20
FETCHING_IS_OFF: Final = "is a web address, and this server fetches no files: give the file's bytes as base64"

_DATA_URL: Final = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

File = tuple[str, bytes]


def file_bytes(where: str, content: Json, most: int) -> bytes:
    """Return the bytes of a file given as base64 or as a data URL. Raises: InvalidInput (also for a web address)."""
    if not isinstance(content, str) or not content:
        raise InvalidInput(where, "must be the file's bytes as base64")
    if _REMOTE.match(content):
        raise InvalidInput(where, FETCHING_IS_OFF)
    head = _DATA_URL.match(content, 0, 256)
    data = content[head.end() :] if head else content
    if len(data) // 4 * 3 > most + 2:
        raise InvalidInput(where, f"has over {most:,} bytes; split it, or raise MEMOS_LIMITS__FILE_BYTES")
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(where, "is no strict base64: letters, digits, + and /, then = to fill up") from error


def without_files(messages: Json, most: int) -> tuple[Json, tuple[File, ...]]:
    """Return messages whose file parts have names and digests only, and the files. Raises: InvalidInput."""
    if not isinstance(messages, list):
        return messages, ()
    files: list[File] = []
    return [_message(f"messages[{n}]", message, most, files) for n, message in enumerate(messages)], tuple(files)


def _message(where: str, message: Json, most: int, files: list[File]) -> Json:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    parts = [_part(f"{where}.content[{n}]", part, most, files) for n, part in enumerate(content)]
    return {**message, "content": parts}


def _part(where: str, part: Json, most: int, files: list[File]) -> Json:
    file = part.get("file") if isinstance(part, Mapping) and part.get("type") == "file" else None
    if not isinstance(file, Mapping) or file.get("file_data") is None:
        return part
    name = check_name(f"{where}.file.filename", file.get("filename") or f"file-{len(files) + 1}")
    data = file_bytes(f"{where}.file.file_data", file["file_data"], most)
    if len(files) >= MOST_FILES:
        raise InvalidInput(where, f"is beyond the {MOST_FILES} files of one request; send the others in another")
    files.append((name, data))
    rest = {key: value for key, value in file.items() if key != "file_data"}
    return {**part, "file": {**rest, "filename": name, "sha256": hashlib.sha256(data).hexdigest()}}
