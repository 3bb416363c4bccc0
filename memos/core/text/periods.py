"""Days, weeks, months and years around a day; a period is its first day and the day after its last."""

from __future__ import annotations

import calendar
from datetime import date, timedelta

Period = tuple[date, date]


def period(unit: str, day: date) -> Period:
    """Return the week (from Monday), month or year of a day, or the day itself."""
    match unit:
        case "week":
            monday = day - timedelta(days=day.weekday())
            return monday, monday + timedelta(days=7)
        case "weekend":
            monday = day - timedelta(days=day.weekday())
            return monday + timedelta(days=5), monday + timedelta(days=7)
        case "month":
            first = day.replace(day=1)
            return first, (first + timedelta(days=32)).replace(day=1)
        case "year":
            return date(day.year, 1, 1), date(day.year + 1, 1, 1)
    return day, day + timedelta(days=1)


def moved(unit: str, count: int, today: date) -> Period:
    """Return the period of a unit `count` units after that of today; before it if negative."""
    match unit:
        case "month":
            months = today.year * 12 + today.month - 1 + count
            return period(unit, date(months // 12, months % 12 + 1, 1))
        case "year":
            return period(unit, date(today.year + count, 1, 1))
        case "week" | "weekend":
            return period(unit, today + timedelta(days=7 * count))
    return period(unit, today + timedelta(days=count))


def weekday(number: int, today: date, step: int) -> Period:
    """Return a day of the week, Monday is 0: with a step of -1 before today, of 0 in this week, of 1 after today."""
    ahead = (number - today.weekday()) % 7
    days = {-1: ahead - 7, 0: number - today.weekday(), 1: ahead or 7}[step]
    return period("day", today + timedelta(days=days))


def occurrences(month: int, day: int, today: date) -> list[date]:
    """Return the days of this name around today; 29 February may be eight years away."""
    years = range(max(1, today.year - 8), min(9999, today.year + 8) + 1)
    return [date(year, month, day) for year in years if 1 <= day <= calendar.monthrange(year, month)[1]]
