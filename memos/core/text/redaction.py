"""Mask secrets of known formats and, where asked, personal data; masking is deterministic.

A format is what an issuer documents (`ghp_` and 36 characters), never a guess by entropy or by words such as
"password", which would mask names and ids. Invisible characters and full-width letters hide nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import partial
from itertools import chain, starmap
from typing import NamedTuple

from memos.core.text.secret_patterns import FORMATS, private_keys
from memos.core.text.validation import is_invisible

_EMAIL = re.compile(r"(?<![\w.+%'-])[\w.+%'-]++@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w@]|:[\w~/])")
_CARD = re.compile(
    r"(?<![\w+-])(?:[2-6]\d{3}(?P<gap>[ -]?)\d{4}(?P=gap)\d{4}(?P=gap)\d{1,7}|"
    r"3[47]\d{2}(?P<dash>[ -]?)\d{6}(?P=dash)\d{5})"
    r"(?![\w-]|[.,]\d)"
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?=[ \u00a0-]?[A-Za-z0-9]{2})")
_SSN = re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}(?P<gap>[ -])(?!00)\d{2}(?P=gap)(?!0000)\d{4}(?![\w-]|[.,]\d)")
_CHINESE_ID = re.compile(r"(?<![A-Za-z0-9])[1-9]\d{16}[\dXx](?![A-Za-z0-9])")
_S = r"[ \u00a0.\-/]"
_MONEY = r" ?(?:[$€£¥₹元円]|(?:EUR|USD|GBP|CHF|JPY|CNY|RMB|INR|BRL)\b)"
_PHONES = tuple(
    re.compile(rf"(?<![\w+.,/#=$€£¥₹-])(?<!\d:)(?:{written})(?![\w-]|{_S}?\d|[.,:/]\d|{_MONEY})", re.ASCII)
    for written in (
        # With the country's number: +49 (0)30 123456, 0049 30 123456, +14155552671
        rf"(?:\+|00)[1-9](?:(?:{_S}?\(\d{{1,4}}\){_S}?|{_S})?\d){{7,14}}",
        # North America: (415) 555-2671, 1-800-555-0199
        rf"(?:1{_S}?)?(?:\([2-9]\d{{2}}\) ?|[2-9]\d{{2}}{_S})[2-9]\d{{2}}{_S}\d{{4}}",
        # With an area code that begins with 0: 020 7946 0958, 06 12 34 56 78, (030) 123456, 0171/1234567, 010-62345678
        rf"(?:\(0\d{{1,4}}\){_S}?|0[1-9]\d{{0,3}}{_S})\d{{2,8}}(?:{_S}\d{{2,5}}){{0,4}}",
        # Mobile numbers written as one: France, Germany, the United Kingdom, Japan, China
        r"0[67]\d{8}|01[567]\d{8,9}|07\d{9}|0[789]0\d{8}",
        rf"(?:86{_S}?)?1[3-9]\d(?P<gap>{_S}?)\d{{4}}(?P=gap)\d{{4}}",
        # India 98765 43210, Brazil (11) 91234-5678, Spain 612 34 56 78
        r"[6-9]\d{4} \d{5}|\(\d{2}\) ?9?\d{4}-\d{4}|[6-9]\d{2} \d{2} \d{2} \d{2}",
    )
)
# Also the number of a case or an invoice with its year: 0171/2024.
_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:\d\d \d\d |0\d{2,4}/)(?:19|20)\d\d\Z")
_COUNTRIES = (
    "15:NO|16:BE|18:DK FI FO GL NL SD|19:MK SI|20:AT BA EE KZ LT LU XK MN|21:CH HR LI LV|22:BG BH CR DE GB GE IE ME RS "
    "VA|23:AE IL IQ TL OM SO|24:AD CZ ES MD PK RO SA SE SK TN VG|25:LY PT ST|26:IS TR|27:BI DJ FR GR IT MC MR SM|"
    "28:AL AZ BY CY DO GT HU LB NI PL SV|29:BR EG PS QA UA|30:JO KW MU YE|31:MT SC|32:LC|33:RU"
)
_IBAN_LENGTHS = {code: int(group[:2]) for group in _COUNTRIES.split("|") for code in group[3:].split()}
_CHINESE_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_LEAST_PHONE_DIGITS = 8
_LEAST_UNLIKE = 3  # of the digits: round numbers have fewer

Span = tuple[int, int, str]


def personal_data(text: str) -> Iterator[Span]:
    if "@" in text:
        yield from _matches(text, _EMAIL, "e-mail")
    if sum(map(str.isdigit, text)) < _LEAST_PHONE_DIGITS:
        return
    yield from _matches(text, _CARD, "card number", _is_card)
    yield from _matches(text, _SSN, "social security number")
    yield from _matches(text, _CHINESE_ID, "identity number", _is_chinese_id)
    yield from _ibans(text)
    for phone in _PHONES:
        yield from _matches(text, phone, "phone number", _is_phone)


def _matches(text: str, pattern: re.Pattern[str], kind: str, real: Callable[[str], bool] = bool) -> Iterator[Span]:
    return ((*match.span(), kind) for match in pattern.finditer(text) if real(match[0]))


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in text if sign.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) if place % 2 else digit for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _is_chinese_id(text: str) -> bool:
    """Return True if the date of birth and the check digit are valid (GB 11643-1999)."""
    try:
        date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    except ValueError:
        return False
    rest = sum(starmap(lambda weight, sign: weight * int(sign), zip(_CHINESE_WEIGHTS, text, strict=False))) % 11
    return "10X98765432"[rest] == text[17].upper()


def _is_phone(text: str) -> bool:
    digits = [sign for sign in text if sign.isdigit()]
    return len(digits) >= _LEAST_PHONE_DIGITS and len(set(digits)) >= _LEAST_UNLIKE and _DATE.match(text) is None


def _ibans(text: str) -> Iterator[Span]:
    """Yield account numbers of their country's length with valid check digits (ISO 13616)."""
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        if length is None:
            continue
        signs, end = match[0], match.end()
        while len(signs) < length and end < len(text):
            step = 2 if text[end] in " \u00a0-" and end + 1 < len(text) else 1
            sign = text[end + step - 1]
            if not (sign.isascii() and sign.isalnum()):
                break
            signs, end = signs + sign, end + step
        follows = text[end : end + 1]
        if len(signs) == length and not (follows.isascii() and follows.isalnum()) and _checks(signs):
            yield match.start(), end, "iban"


def _checks(signs: str) -> bool:
    return int("".join(str(int(sign, 36)) for sign in signs[4:] + signs[:4])) % 97 == 1


_MARK = re.compile(r"\[masked: ([a-z -]{1,40})\]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_MOST_PASSES = 4
# What makes Markdown of text writes "ghp\_..." for "ghp_..."; JSON in a text or in a string of JSON "\u0067hp_", "\/".
_ESCAPES = re.compile(r"(?<!\\)\\++(?:(?=[/_*~.+\-])|u00(?P<code>[2-7][0-9A-Fa-f]))")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


class Found(NamedTuple):
    start: int
    end: int
    kind: str


def mask(text: str, *, secrets: bool = True, personal: bool = False) -> tuple[str, Mapping[str, int]]:
    # JSON stays JSON. `personal` also masks e-mail addresses and the like. Masking is idempotent.
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
    return Counter(_MARK.findall(text))


def _find(text: str, *, secrets: bool, personal: bool) -> list[Found]:
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
    joined: list[Found] = []
    longest = 0
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        length = one.end - one.start
        if not joined or one.start >= joined[-1].end:
            joined.append(one)
            longest = length
        else:
            last = joined[-1]
            joined[-1] = Found(last.start, max(last.end, one.end), one.kind if length > longest else last.kind)
            longest = max(longest, length)
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
    """Normalize text for pattern search: no invisible characters or escape backslashes, full-width as ASCII."""
    # Also returns each character's position in the text, None if all stay in place.
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
        start = place
        sign = plain[place]
        end = place + 1
        if (escape := escapes.get(place)) is not None:
            sign, end = chr(int(escape["code"], 16)) if escape["code"] else "", escape.end()
        place = end
        if sign and not is_invisible(sign):
            signs.append(sign)
            places.append((start, end))
    return "".join(signs), places
