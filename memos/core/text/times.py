"""Find time expressions in English, Chinese and Japanese, and those of `times_by_language`; resolve them to days.

A cheap pattern proposes spans; `dateparser`, with fixed languages, reads them. What it cannot read (weekends, Chinese
weekdays) is computed here. Vague times ("a few days ago", "last summer") are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.text.periods import moved, occurrences, period, weekday
from memos.core.text.times_by_language import Found, time_expressions_by_language

LANGUAGES = ("en", "zh", "ja")
_MAX = 16
# What looks like a date and is none costs a parser's call, too.
_MAX_TRIED = 64

_FULL_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAY = rf"(?:{_FULL_DAY}|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?"
)
_COUNT = r"(?:\d{1,3}|a\ couple\ of|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_DAY_OF_MONTH = r"\d{1,2}(?:st|nd|rd|th)?(?:\ of)?"
_YEAR = r"(?:19|20)\d\d"
_HAN_COUNT = r"[\d一二两三四五六七八九十]{1,3}"

_EXPRESSION = re.compile(
    rf"""
    (?P<around>(?i:\b(?:the\ )?day\ (?:before\ yesterday|after\ tomorrow)\b))
    |(?P<near>(?i:\b(?:yesterday|today|tonight|tomorrow|last\ night|this\ (?:morning|afternoon|evening))\b))
    |(?P<weekend>(?i:\b(?:last|past|this|next|coming)\ weekend\b))
    |(?P<step>(?i:\b(?:last|past|this|next|coming)\ (?:week|month|year|{_DAY})\b))
    |(?P<weekends_ago>(?i:\b{_COUNT}\ weekends\ ago\b))
    |(?P<ago>(?i:\b{_COUNT}\ (?:day|week|month|year)s?\ (?:ago|earlier|later|from\ now)\b))
    |(?P<within>(?i:\bin\ {_COUNT}\ (?:day|week|month|year)s?\b))
    |(?P<iso>\b{_YEAR}[-/]\d{{1,2}}[-/]\d{{1,2}}\b)
    |(?P<dmy>\b{_DAY_OF_MONTH}\ {_MONTH}(?:,?\ {_YEAR})?\b)
    |(?P<mdy>\b{_MONTH}\ \d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\ {_YEAR}\b)?)
    |(?P<my>\b{_MONTH},?\ {_YEAR}\b)
    |(?P<month>(?i:\b(?:in|during|since|until|last|next|early|late|of|by)\ )(?P<name>{_MONTH})(?!\w|,?\ \d))
    |(?P<year>(?i:\b(?:in|since|until|during|of|by)\ )(?P<number>{_YEAR})\b(?![-/]\d))
    |(?P<weekday>(?i:\bon\ (?P<named>{_FULL_DAY})\b)(?!,?\ (?:the\ )?(?:{_DAY_OF_MONTH}\ {_MONTH}|{_MONTH}\ \d)))
    |(?P<han_full>\d{{4}}年(?:\d{{1,2}}月(?:\d{{1,2}}[日号])?)?)
    |(?P<han_date>(?<!\d)\d{{1,2}}月\d{{1,2}}[日号])
    |(?P<han_weekend>[上这本下]个?(?:周末|週末)|先週末|今週末|来週末)
    |(?P<han_weekday>(?P<which>[上这本下]个?)(?:周|星期|礼拜|週)(?P<on>[一二三四五六日天]))
    |(?P<han_near>大前天|大后天|前天|昨天|昨晚|今天|今晚|明天|后天|[上这本下]个?(?:周|星期|礼拜|月)|前年|去年|今年|明年
       |一昨日|昨日|今日|明日|明後日|先週|今週|来週|先月|今月|来月|昨年|来年)
    |(?P<han_ago>{_HAN_COUNT}(?:天|日|周|週間?|个星期|个月|[ヶか]月|年)(?:以)?(?P<side>前|后|後))
    """,
    re.VERBOSE,
)
_WILL = re.compile(
    r"""
    \b(?:will|going\ to|gonna|plan|planning|next|upcoming|see\ you|let['’]s)\b|['’]ll\b
    |\b(?:(?:signed\ up|registered)\ for|scheduled|due(?!\ to)|deadline|looking\ forward)\b|\bbooked\b.*\bfor\ $
    |\b(?:have|has|got)\ (?:an?|my|our|the|his|her|their)\ (?:[\w'’-]+\ ){0,3}(?:appointment|exam|interview)\b
    |\b(?:am|is|are|['’](?:m|s|re))\ (?!ending\b)\w+ing\b
    |\b(?:comes?|leaves?|arrives?|departs?|starts?|begins?|opens?|fly|flies|returns?|gets?\ married|moves?)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Wording of plans; the present tense with a date is one, too ("she comes on Friday", "we are flying on 5 May")."""

# After what speaks of plans it says that something is over: "it is amazing, we watched it on 5 May".
_OVER = re.compile(
    r"\b(?:since|as of|back (?:in|on)|was|were|had|did|met|went|saw|got|came|took|bought|made|gave|left|told|said"
    r"|\w+ed)\b", re.IGNORECASE,
)  # fmt: skip
_PLAN_CHARS = 60
_CLAUSE = re.compile(r"[.!?;。！？；\n]")
_BEFORE_DATE = re.compile(rf"\b({_DAY}),?\ (?:the\ )?$", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# "Until June 20" is the next one.
_UNTIL = re.compile(r"\b(?:until|till|til|through|up to)\s+(?:the )?$|(?:直到|到|截[至止]到?)$", re.IGNORECASE)
_DIGITS = {sign: str(number) for number, sign in enumerate("一二三四五六七八九", start=1)} | {"两": "2", "十": "10"}
_WEEKDAYS = {sign: number for number, sign in enumerate("一二三四五六日")} | {"天": 6}
_SHIFT = {"上": -1, "先": -1, "这": 0, "本": 0, "今": 0, "下": 1, "来": 1, "last": -1, "past": -1, "this": 0}
# What dateparser's locales lack or read otherwise, in days from today.
_DAYS_AWAY = {
    "大前天": -3, "前天": -2, "一昨日": -2, "昨天": -1, "昨晚": -1, "昨日": -1, "今天": 0, "今晚": 0, "今日": 0,
    "明天": 1, "明日": 1, "后天": 2, "明後日": 2, "大后天": 3,
    "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "tomorrow": 1,
    "this morning": 0, "this afternoon": 0, "this evening": 0,
}  # fmt: skip
_HAN_PERIODS = {"周": "week", "週": "week", "期": "week", "拜": "week", "月": "month", "年": "year"}
_HAN_UNITS = {"天": "day", "日": "day", "周": "week", "週": "week", "星期": "week", "月": "month", "年": "year"}


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """A time expression in characters `start` to `end`: from `valid_from` up to, not including, `valid_to`."""

    text: str
    start: int
    end: int
    valid_from: datetime
    valid_to: datetime


def time_expressions(text: str, anchor: datetime, zone: ZoneInfo) -> tuple[TimeExpression, ...]:
    """Return the time expressions of a text relative to `anchor` (aware) in `zone`, in order, at most 16."""
    # Days, weeks (from Monday), months and years are whole ones of that zone; `valid_from` and `valid_to` are UTC.
    try:
        today = anchor.astimezone(zone).date()
    except OverflowError:  # the calendar's first or last hours, in a zone beyond them
        return ()
    found = time_expressions_by_language(text, today)
    own = [(each.start, each.end) for each in found]
    for match in islice(_EXPRESSION.finditer(text), _MAX_TRIED):
        if any(match.start() < end and start < match.end() for start, end in own):
            continue
        span = _days(match, text, today)
        if span is not None:
            found.append(Found(match.start(), match.end(), *span))
        if len(found) == _MAX:
            break
    return tuple(_expression(text, each, zone) for each in sorted(found)[:_MAX])


def _expression(text: str, found: Found, zone: ZoneInfo) -> TimeExpression:
    first, last = (datetime.combine(day, time(), zone).astimezone(UTC) for day in (found.first, found.after))
    return TimeExpression(text[found.start : found.end], found.start, found.end, first, last)


def _days(match: re.Match[str], text: str, today: date) -> tuple[date, date] | None:
    """Return the first day and the day after the last; None for invalid dates."""
    try:
        return _READERS[str(match.lastgroup)](match, text, today)
    except (OverflowError, ValueError):
        return None


def _parsed(said: str, today: date, *, past: bool = True) -> tuple[date, date] | None:
    data = _parser(past, today).get_date_data(said)
    return None if data.date_obj is None else period(data.period, data.date_obj.date())


@lru_cache(maxsize=64)
def _parser(past: bool, today: date) -> Any:
    # Imported here: it takes a third of a second, and most texts name no date.
    from dateparser.date import DateDataParser  # noqa: PLC0415

    settings = {
        "RELATIVE_BASE": datetime.combine(today, time(12)),
        "PREFER_DATES_FROM": "past" if past else "future",
        "PREFER_DAY_OF_MONTH": "first",
        "DATE_ORDER": "YMD",
    }
    return DateDataParser(languages=list(LANGUAGES), settings=settings)


def _near(match: re.Match[str], _text: str, today: date) -> tuple[date, date] | None:
    said = match.group(0).casefold()
    if said in _DAYS_AWAY:
        return period("day", today + timedelta(days=_DAYS_AWAY[said]))
    if said == "前年":
        return moved("year", -2, today)
    unit = next((unit for sign, unit in _HAN_PERIODS.items() if said.endswith(sign)), "day")
    return moved(unit, _SHIFT.get(said[0], {"去": -1, "昨": -1, "明": 1}.get(said[0], 0)), today)


def _weekend(match: re.Match[str], _text: str, today: date) -> tuple[date, date]:
    said = match.group(0).casefold()
    shift = _SHIFT.get(said.split()[0], _SHIFT.get(said[0], 1))
    monday, after = moved("week", shift, today)
    return monday + timedelta(days=5), after


def _weekends_ago(match: re.Match[str], text: str, today: date) -> tuple[date, date] | None:
    weeks = _parsed(match.group(0).casefold().replace("a couple of", "2").replace("weekends", "weeks"), today)
    return None if weeks is None else (weeks[0] + timedelta(days=5), weeks[1])


def _step(match: re.Match[str], _text: str, today: date) -> tuple[date, date] | None:
    which, unit = match.group(0).casefold().split()
    if unit in ("week", "month", "year"):
        return moved(unit, _SHIFT.get(which, 1), today)
    return weekday(_weekday(unit), today, _SHIFT.get(which, 1))


def _weekday(name: str) -> int:
    return ("mon", "tue", "wed", "thu", "fri", "sat", "sun").index(name[:3].casefold())


def _on_weekday(match: re.Match[str], text: str, today: date) -> tuple[date, date]:
    plans = _speaks_of_plans(text, match.start())
    ahead = (_weekday(match.group("named")) - today.weekday()) % 7
    return period("day", today + timedelta(days=ahead if plans or not ahead else ahead - 7))


def _month(match: re.Match[str], text: str, today: date) -> tuple[date, date] | None:
    plans = _speaks_of_plans(text, match.start() + len("next "))
    return _parsed(match.group("name"), today, past=not plans)


def _ago(match: re.Match[str], _text: str, today: date) -> tuple[date, date] | None:
    said = match.group(0).casefold().replace("a couple of", "2").replace("earlier", "ago")
    return _parsed(said, today)


def _han_ago(match: re.Match[str], _text: str, today: date) -> tuple[date, date]:
    said = match.group(0)
    number = "".join(_DIGITS.get(sign, sign) for sign in said if sign.isdigit() or sign in _DIGITS)
    count = int(number) if said[0] != "十" or len(number) == 2 else 10 + int(number[2:])
    unit = next(unit for sign, unit in _HAN_UNITS.items() if sign in said)
    return moved(unit, -count if match.group("side") == "前" else count, today)


def _han_weekday(match: re.Match[str], _text: str, today: date) -> tuple[date, date]:
    monday, _ = moved("week", _SHIFT[match.group("which")[0]], today)
    return period("day", monday + timedelta(days=_WEEKDAYS[match.group("on")]))


def _written(match: re.Match[str], text: str, today: date) -> tuple[date, date] | None:
    said = match.group(0).casefold()
    named, day, year = (re.search(pattern, said) for pattern in (r"\b[a-z]{3}", r"\b\d{1,2}(?!\d)", _YEAR))
    assert named is not None
    month = _MONTHS.index(named[0]) + 1
    if year is not None:
        return period("day" if day else "month", date(int(year[0]), month, int(day[0]) if day else 1))
    assert day is not None  # what has no day has a year
    near = occurrences(month, int(day[0]), today)
    before = max((each for each in near if each <= today), default=None)
    after = min((each for each in near if each >= today), default=None)
    if before is None or after is None:  # no month has such a day, or the calendar ends
        return None
    named_day = _BEFORE_DATE.search(text[max(0, match.start() - 16) : match.start()])
    of_that = {each for each in (before, after) if named_day and each.weekday() == _weekday(named_day[1])}
    if len(of_that) == 1:
        return period("day", of_that.pop())
    ahead = _UNTIL.search(text[max(0, match.start() - 16) : match.start()]) or _speaks_of_plans(text, match.start())
    return period("day", after if ahead else before)


def _speaks_of_plans(text: str, end: int) -> bool:
    clause = _CLAUSE.split(text[max(0, end - _PLAN_CHARS) : end])[-1]
    plans = list(_WILL.finditer(clause))
    return bool(plans) and _OVER.search(clause, plans[-1].end()) is None


def _han_written(match: re.Match[str], text: str, today: date) -> tuple[date, date]:
    numbers = [int(number) for number in re.findall(r"\d+", match.group(0))]
    if match.group("han_date") is not None:
        day = date(today.year, *numbers)
        if _UNTIL.search(text[max(0, match.start() - 16) : match.start()]):
            return period("day", day if day >= today else day.replace(year=day.year + 1))
        return period("day", day if day <= today else day.replace(year=day.year - 1))
    unit = ("year", "month", "day")[len(numbers) - 1]
    return period(unit, date(*[*numbers, 1, 1][:3]))


_READERS: dict[str, Callable[[re.Match[str], str, date], tuple[date, date] | None]] = {
    "around": _ago, "near": _near, "weekend": _weekend, "weekends_ago": _weekends_ago, "step": _step,
    "ago": _ago, "within": _ago, "dmy": _written, "mdy": _written, "my": _written,
    "iso": lambda match, _text, _today: period("day", date(*map(int, re.split("[-/]", match[0])))),
    "year": lambda match, _text, _today: period("year", date(int(match["number"]), 1, 1)),
    "month": _month, "weekday": _on_weekday, "han_full": _han_written, "han_date": _han_written,
    "han_weekend": _weekend, "han_weekday": _han_weekday, "han_near": _near, "han_ago": _han_ago,
}  # fmt: skip
