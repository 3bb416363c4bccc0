"""Finds private key blocks (PEM, OpenSSH, PGP, SSH2) whole, and what is left of ones whose begin or end is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = re.compile(r"-{4,5} ?(?P<what>BEGIN|END) (?:[A-Z0-9]{1,12}+ ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
# A key of 16,384 bits has 13,000 characters; a PGP block may hold several, with their certificates.
_LONGEST = 200_000
# How the lines of a key are parted: by line ends, also spelt \n as in JSON, with quotation marks, "+" or ">".
_GAP = r"(?:[\s>|\"',+]|\\[nr])"
_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|Subject|x-[a-z-]{1,30}): [^\n\\]{1,200}"
_LINE = r"[A-Za-z0-9+/=_-]{16,}+"
_CUT_END = r"-{1,5}(?: ?E(?:N(?:D[A-Z0-9 ]{0,50}-{0,4})?)?)?\s*\Z"
_BODY_AFTER = re.compile(
    rf"(?:{_GAP}*+(?:{_HEADER}|{_LINE}))*+(?:{_GAP}*+[A-Za-z0-9+/=]{{1,63}}\s*(?:\Z|{_CUT_END})|{_GAP}*+{_CUT_END})?"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{16}")
_BODY_BEFORE = re.compile(r"(?:(?:[\s>|\"',+]|[nr]\\)*+[A-Za-z0-9+/=]{16,}+)++")
_FIRST_CUT = re.compile(r"(?:[\s>|]|[nr]\\)++[A-Za-z0-9+/=]{1,15}\s*\Z")


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys, in order. A begin or an end that no key follows or precedes is none."""
    marks = list(_MARK.finditer(text))
    done = 0
    for place, mark in enumerate(marks):
        if mark.start() < done:
            continue
        after = marks[place + 1] if place + 1 < len(marks) else None
        if mark["what"] == "END":
            start = _begin(text, max(done, marks[place - 1].end() if place else 0), mark.start())
            if start < mark.start():
                done = mark.end()
                yield start, done
            continue
        limit = after.start() if after is not None else len(text)
        if after is not None and after["what"] == "END" and limit - mark.end() <= _LONGEST:
            if _KEY_LINE.search(text, mark.end(), limit):
                done = after.end()
                yield mark.start(), done
            continue
        end = _end(text, mark.end(), limit)
        if _KEY_LINE.search(text, mark.end(), end):
            done = end
            yield mark.start(), done


def _end(text: str, start: int, limit: int) -> int:
    """Return where a key that has no end stops."""
    found = _BODY_AFTER.match(text, start, limit)
    return start if found is None else found.end()


def _begin(text: str, floor: int, end: int) -> int:
    """Return where a key that has no beginning starts."""
    before = text[floor:end][::-1]
    found = _BODY_BEFORE.match(before)
    if found is None:
        return end
    rest = _FIRST_CUT.match(before, found.end())
    return end - (rest or found).end()
