"""Finds what a sentence in the first person states about its speaker, as attribute and value, by pattern.

Only attributes a person has one of at a time, since the key decides what a correction replaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statement:
    """`attribute` of the speaker is `value`; the span is that of the whole match."""

    attribute: str
    value: str
    start: int
    end: int


_PLACE = r"(?P<v>[^\W\d_a-z][\w'’\-]*(?:[ ,]+(?:[A-Z][\w'’\-]*|de|la|le|du|of|am|an der))*)"
_NAME = r"(?P<v>[A-Z][\w'’&.\-]*(?: +(?:[A-Z][\w'’&.\-]*|of|and|&|de|du))*)"
_REST = r"(?P<v>[^.,;:!?\n。，；！？]{1,80})"
_HAVE = r"(?:['’]ve| have| just| recently| finally)*"
_BE = r"(?:['’]m| am)"
_ADVERB = r"(?: (?:now|currently|actually|still|also|just))?"
_HAN = r"(?P<v>[^，。！？；,.!?;\s]{1,30}?)"

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (attribute, re.compile(pattern))
    for attribute, pattern in (
        ("residence", rf"\b(?:I|[Ww]e){_HAVE}{_ADVERB} (?:moved|relocated) (?:over |back )?to {_PLACE}"),
        ("residence", rf"\b(?:I|[Ww]e){_ADVERB} live{_ADVERB} in {_PLACE}"),
        ("residence", rf"\bI{_BE}{_ADVERB} (?:living|based) in {_PLACE}"),
        ("employer", rf"\bI{_ADVERB} work{_ADVERB} (?:at|for) {_NAME}"),
        ("employer", rf"\bI{_BE}{_ADVERB} working (?:at|for) {_NAME}"),
        ("employer", rf"\bI{_HAVE} (?:joined|started (?:at|with)|started working (?:at|for)) {_NAME}"),
        ("name", rf"\b[Mm]y name is {_NAME}"),
        (
            "my:{0}",
            r"\b[Mm]y (?:new |current )?(?P<a>phone number|phone|laptop|car|email|e-mail|address|birthday|job|flight|"
            r"doctor|dentist|landlord|flat|bike|favou?rite [a-z]+) "
            rf"(?:is|was|are|will be) (?:now |actually |currently )?{_REST}",
        ),
        ("residence", rf"我们?(?:现在|已经|刚刚?)?(?:住在|搬到了?|搬去了?){_HAN}(?=[了，。！？；,.!?;\s]|$)"),
        ("employer", rf"我(?:现在|目前)?在{_HAN}(?:工作|上班)"),
        ("name", rf"我(?:的名字)?(?:叫|是叫){_HAN}(?=[，。！？；,.!?;\s]|$)"),
        ("my:{0}", rf"我的(?P<a>手机|电话|电脑|邮箱|地址|生日|工作)(?:现在)?是{_HAN}(?=[，。！？；,.!?;\s]|$)"),
    )
)
_DENIED = re.compile(r"(?:don['’]t|do not|not|never|no longer|used to|不再?|没有?)\s*$")


def statements(text: str) -> list[Statement]:
    """Return what the text states about its speaker, in order; denials and 'used to' state nothing."""
    found = []
    for attribute, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if _denied(text, match):
                continue
            groups = match.groupdict()
            name = attribute.format((groups.get("a") or "").lower().replace("favourite", "favorite"))
            value = groups["v"].strip(" .,'’-").removesuffix(" now").strip()
            if value:
                found.append(Statement(name, value, match.start(), match.end()))
    return sorted(found, key=lambda statement: (statement.start, -statement.end))


def _denied(text: str, match: re.Match[str]) -> bool:
    """'I don't live in' never matches by itself; 'I used to ... I live' and '不住在' need a look around."""
    before = text[max(0, match.start() - 12) : match.start()]
    return bool(_DENIED.search(before)) or "used to" in match.group(0)


def key_of(subject: str, attribute: str) -> str:
    """Return the key under which statements of one subject's attribute replace each other."""
    return f"{' '.join(subject.casefold().split())}|{attribute}"
