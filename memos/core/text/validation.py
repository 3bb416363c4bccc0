"""Refuse text that no store can keep: not a string, NUL, lone surrogates, invalid UTF-8, too long."""

from __future__ import annotations

import unicodedata
from typing import Final

from memos.core.types import Json
from memos.errors import InvalidInput

# Which characters show nothing and are read over, by people and by models alike: they may hide a word from a pattern.

# Those that are no format characters: joiner, fillers, variation selectors, Braille's blank.
_FILLERS = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0}
_FILLERS |= {*range(0x180B, 0x1810), *range(0xFE00, 0xFE10)}


def is_blank(text: str) -> bool:
    return all(sign.isspace() or is_invisible(sign) for sign in text)


def is_invisible(sign: str) -> bool:
    if sign.isascii():
        return False
    code = ord(sign)
    return code in _FILLERS or 0xE0000 <= code < 0xE1000 or unicodedata.category(sign) == "Cf"


_UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp"))  # controls, marks of direction, separators of lines
_JOINERS = "\u200c\u200d"


MAX_MESSAGE_BYTES: Final = 1_048_576
"""Longest message, and longest text of a memory, in bytes of UTF-8."""


def check_text(where: str, value: Json, max_bytes: int) -> str:
    if isinstance(value, bytes):
        raise InvalidInput(where, "is bytes; decode it to text first (UTF-8, errors='strict')")
    if not isinstance(value, str):
        raise InvalidInput(where, f"must be text, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidInput(where, f"contains a NUL character at {value.index(chr(0))}; remove it")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(where, f"contains a lone surrogate at {error.start}; fix the text's encoding") from error
    if size > max_bytes:
        raise InvalidInput(where, f"has {size:,} bytes, more than the limit of {max_bytes:,}; split it into parts")
    return value


def check_name(where: str, value: Json, max_chars: int = 256) -> str:
    text = check_text(where, value, max_chars * 4)
    if not text.strip():
        raise InvalidInput(where, "is empty; give it a name or leave it out")
    if len(text) > max_chars:
        raise InvalidInput(where, f"has {len(text)} characters, more than the limit of {max_chars}")
    return text


def check_new_id(where: str, value: Json) -> str:
    text = check_name(where, value, 128)
    if text != text.strip():
        raise InvalidInput(where, "begins or ends with a space; remove it")
    if text in (".", ".."):
        raise InvalidInput(where, f"must not be {text!r}, which no address can contain; add a letter")
    for place, character in enumerate(text):
        if unicodedata.category(character) in _UNSEEN and character not in _JOINERS:
            raise InvalidInput(where, f"contains an invisible character (U+{ord(character):04X}) at {place}; remove it")
    return text


def decode(where: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            where, f"is not UTF-8: byte 0x{raw[error.start]:02x} in line {line}; convert the file to UTF-8"
        ) from error
