"""Finds personal data of known form in a text: addresses, numbers of phones, cards, accounts and people. Pure.

Numbers count only where their check digits or the way they are written say what they are, so that years, prices and ids
stay. Names, postal addresses and IP addresses (a version number looks the same) are not looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from itertools import starmap

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
    """Yield where personal data stands, and its kind; passages may overlap."""
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


def _always(_: str) -> bool:
    return True


def _matches(text: str, pattern: re.Pattern[str], kind: str, real: Callable[[str], bool] = _always) -> Iterator[Span]:
    return ((*match.span(), kind) for match in pattern.finditer(text) if real(match[0]))


def _is_card(text: str) -> bool:
    """Say whether the last digit is the check digit of the others (Luhn, ISO/IEC 7812-1)."""
    digits = [int(sign) for sign in text if sign.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) if place % 2 else digit for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _is_chinese_id(text: str) -> bool:
    """Say whether a date of birth and a check digit stand where they must (GB 11643-1999)."""
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
    """Yield account numbers: as long as their country's are, with check digits that hold (ISO 13616)."""
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
