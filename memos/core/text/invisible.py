"""Which characters show nothing and are read over, by people and by models alike: they may hide a word from a pattern.

Source: Unicode's property Default_Ignorable_Code_Point, and all format characters (category Cf).
"""

from __future__ import annotations

import unicodedata

# Those that are no format characters: joiner, fillers, variation selectors, Braille's blank.
_FILLERS = frozenset(
    (
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x2065,
        0x2800,
        0x3164,
        0xFFA0,
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
    )
)


def is_blank(text: str) -> bool:
    """Say whether a text shows nothing at all."""
    return all(sign.isspace() or is_invisible(sign) for sign in text)


def is_invisible(sign: str) -> bool:
    """Say whether a character shows nothing; white space does."""
    if sign.isascii():
        return False
    code = ord(sign)
    return code in _FILLERS or 0xE0000 <= code < 0xE1000 or unicodedata.category(sign) == "Cf"
