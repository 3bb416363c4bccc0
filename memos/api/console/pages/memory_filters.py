"""The address of the table of memories: words, days, facets and order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple, Self

from memos.api.console.view import View, word

SORTS = {
    "-created_at": "Added last",
    "created_at": "Added first",
    "-said_at": "Said last",
    "said_at": "Said first",
    "-updated_at": "Changed last",
    "-heat": "Used most",
    "-confidence": "Most certain",
    "confidence": "Least certain",
}
FACETS = {
    "status": "Status",
    "type": "Type",
    "speaker": "Speaker",
    "tag": "Tag",
    "month": "Month",
    "conversation": "Conversation",
    "tier": "Tier",
}
_FIELDS = {"tag": "tags"}
_IN_WORDS = ("type", "status", "tier")


class Chip(NamedTuple):
    """A filter in force, and the address without it."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings read from a page's address."""

    q: str = ""
    since: str = ""
    until: str = ""
    sort: str = "-created_at"
    chosen: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Any) -> Self:
        """Read the query of an address, or a form that has its fields."""
        chosen = {name: [value for value in given.getlist(name) if value] for name in FACETS}
        sort = str(given.get("sort", ""))
        return cls(
            str(given.get("q", "")).strip(),
            _day(given.get("since")),
            _day(given.get("until")),
            sort if sort in SORTS else "-created_at",
            {name: values for name, values in chosen.items() if values},
        )

    @property
    def address(self) -> dict[str, Any]:
        """Return the parameters of the address, without those at their defaults."""
        plain = {"q": self.q, "since": self.since, "until": self.until}
        sort = {} if self.sort == "-created_at" else {"sort": self.sort}
        return {**{name: value for name, value in plain.items() if value}, **self.chosen, **sort}

    def filter(self, *, without: str = "") -> str:
        """Return the filter as JSON text, without one facet."""
        parts: list[dict[str, Any]] = []
        if self.q:
            parts.append({"memory": {"like": self.q}})
        if self.since:
            parts.append({"said_at": {"gte": self.since}})
        if self.until:
            parts.append({"said_at": _until(date.fromisoformat(self.until))})
        for name, values in self.chosen.items():
            if name == without:
                continue
            if name == "month":
                parts.append({"or": [{"said_at": _of_month(value)} for value in values]})
            else:
                parts.append({_FIELDS.get(name, name): {"in": values}})
        return json.dumps({"and": parts}) if parts else ""

    def chips(self, view: View) -> list[Chip]:
        """Return the filters in force, each with the address that takes it away."""
        address = self.address
        found = []
        for name, label in (("q", "Contains"), ("since", "Since"), ("until", "Until")):
            if name in address:
                rest = {key: value for key, value in address.items() if key != name}
                found.append(Chip(f"{label} {address[name]}", view.url("/memories", **rest)))
        for name, values in self.chosen.items():
            for value in values:
                rest = {**address, name: [each for each in values if each != value]}
                told = word(value) if name in _IN_WORDS else value
                found.append(Chip(f"{FACETS[name]}: {told}", view.url("/memories", **rest)))
        return found


def _day(given: Any) -> str:
    try:
        return date.fromisoformat(str(given or "")).isoformat()
    except ValueError:
        return ""


def _until(day: date) -> dict[str, str]:
    if day == date.max:
        return {"lte": day.isoformat()}
    return {"lt": (day + timedelta(days=1)).isoformat()}


def _of_month(text: str) -> dict[str, str]:
    try:
        first = date.fromisoformat(f"{text}-01")
        following = (first + timedelta(days=32)).replace(day=1)
    except (ValueError, OverflowError):
        return {"gte": "9999-01-01"}  # no such month: nothing was said in it
    return {"gte": first.isoformat(), "lt": following.isoformat()}
