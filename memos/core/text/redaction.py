"""Masks secrets of known formats in a text, and personal data where asked; the same text always gives the same.

A format is what an issuer documents (`ghp_` and 36 signs), never a guess by entropy or by a word such as "password",
which would mask names and ids. Invisible characters and full-width letters hide nothing. Pure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

from memos.core.text.invisible import is_invisible
from memos.core.text.personal import personal_data
from memos.core.text.private_keys import private_keys
from memos.core.text.secret_patterns import FORMATS

_MARK = re.compile(r"\[masked: ([a-z -]{1,40})\]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_MOST_PASSES = 4
# What makes Markdown of text writes "ghp\_..." for "ghp_..."; JSON in a text or in a string of JSON "\u0067hp_", "\/".
_ESCAPES = re.compile(r"(?<!\\)\\++(?:(?=[/_*~.+\-])|u00(?P<code>[2-7][0-9A-Fa-f]))")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


class Found(NamedTuple):
    """Characters `start` to `end` of a text that are of one kind."""

    start: int
    end: int
    kind: str


def mask(text: str, *, secrets: bool = True, personal: bool = False) -> tuple[str, Mapping[str, int]]:
    """Return a text with each secret replaced by `[masked: kind]`, and how many there were of each kind.

    JSON stays JSON. With `personal` e-mail addresses and the like are masked too. Masked text is masked no further.
    """
    counts: Counter[str] = Counter()
    for _ in range(_MOST_PASSES):
        # What stood right behind a secret may be one too, and is seen when that is gone.
        text, found = _once(text, secrets=secrets, personal=personal)
        if not found:
            break
        counts += found
    return text, counts


def _once(text: str, *, secrets: bool, personal: bool) -> tuple[str, Counter[str]]:
    counts: Counter[str] = Counter()
    find = partial(_find, secrets=secrets, personal=personal)
    found = find(text)
    masked = _without(text, found, counts)
    if not _is_json(text):
        return masked, counts
    if found and not _is_json(masked):
        masked = text
        counts.clear()
    return _in_strings(masked, find, counts), counts


def marks(text: str) -> Mapping[str, int]:
    """Return how many passages of each kind a text says are masked."""
    return Counter(_MARK.findall(text))


def _find(text: str, *, secrets: bool, personal: bool) -> list[Found]:
    """Return the passages to mask, in order; those that overlap are one."""
    plain, places = _plain(text)
    found = _joined(chain(_secrets(plain) if secrets else (), starmap(Found, personal_data(plain) if personal else ())))
    if places is None:
        return found
    return [Found(places[start][0], places[end - 1][1], kind) for start, end, kind in found]


def _secrets(text: str) -> Iterator[Found]:
    low = text.lower()
    if "private key" in low:
        yield from (Found(start, end, "private key") for start, end in private_keys(text))
    for form in FORMATS:
        if not any(needle in low for needle in form.needles):
            continue
        group = "secret" if "secret" in form.pattern.groupindex else 0
        for match in form.pattern.finditer(text):
            if form.real(match[group]):
                yield Found(*match.span(group), form.kind)


def _joined(found: Iterable[Found]) -> list[Found]:
    """Return passages in order, overlapping ones as one, of the kind of the longest of them."""
    joined: list[Found] = []
    longest = 0
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if not joined or one.start >= joined[-1].end:
            joined.append(one)
            longest = one.end - one.start
            continue
        last = joined[-1]
        kind = one.kind if one.end - one.start > longest else last.kind
        longest = max(longest, one.end - one.start)
        joined[-1] = Found(last.start, max(last.end, one.end), kind)
    return joined


def _without(text: str, found: Iterable[Found], counts: Counter[str]) -> str:
    pieces, done = [], 0
    for start, end, kind in found:
        pieces += [text[done:start], f"[masked: {kind}]"]
        counts[kind] += 1
        done = end
    return "".join([*pieces, text[done:]])


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _in_strings(text: str, find: Callable[[str], list[Found]], counts: Counter[str]) -> str:
    r"""Return JSON text with what its strings say masked, which may be written with escapes such as `\u0067`."""

    def masked(match: re.Match[str]) -> str:
        if "\\" not in match[0]:
            return match[0]
        said = json.loads(match[0])
        if not (found := find(said)):
            return match[0]
        rest = _without(said, found, counts)
        # An escaped half of a surrogate pair is valid JSON, and no store can keep it unescaped.
        return json.dumps(rest, ensure_ascii=any("\ud800" <= sign <= "\udfff" for sign in rest))

    return _STRING.sub(masked, text)


def _plain(text: str) -> tuple[str, list[tuple[int, int]] | None]:
    """Return text as formats are looked for in it: without invisible characters and the backslashes of escapes.

    Full-width characters are ASCII in it. With it comes where each character stands in the text, None when all stand
    where they did.
    """
    escapes = {match.start(): match for match in _ESCAPES.finditer(text)} if "\\" in text else {}
    if text.isascii() and not escapes:
        return text, None
    plain = text.translate(_FULL_WIDTH)
    if not escapes and not any(map(is_invisible, set(plain))):
        return plain, None
    signs: list[str] = []
    places: list[tuple[int, int]] = []
    place = 0
    while place < len(plain):
        start, sign, end = place, plain[place], place + 1
        if (escape := escapes.get(place)) is not None:
            sign, end = chr(int(escape["code"], 16)) if escape["code"] else "", escape.end()
        place = end
        if sign and not is_invisible(sign):
            signs.append(sign)
            places.append((start, end))
    return "".join(signs), places
