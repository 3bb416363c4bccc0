"""The pages of the console, one module each. `NAVIGATION` is the menu; it lists pages that exist."""

from __future__ import annotations

from typing import NamedTuple

from memos.api.console.pages import (
    access,
    ask,
    chat,
    data,
    documents,
    health,
    memories,
    models,
    people,
    review,
    start,
    tiers,
    timeline,
    work,
)
from memos.api.console.view import Page, View, environment

__all__ = ["NAVIGATION", "PAGES"]

PAGES: tuple[Page, ...] = (
    *access.PAGES,
    *ask.PAGES,
    *chat.PAGES,
    *data.PAGES,
    *documents.PAGES,
    *health.PAGES,
    *memories.PAGES,
    *models.PAGES,
    *people.PAGES,
    *review.PAGES,
    *start.PAGES,
    *tiers.PAGES,
    *timeline.PAGES,
    *work.PAGES,
)


_PATHS = {page.path for page in PAGES}


class Entry(NamedTuple):
    """An entry of the menu; `key` opens it after `g`."""

    path: str
    name: str
    key: str
    current: bool = False


NAVIGATION: tuple[tuple[Entry, ...], ...] = (
    (Entry("/", "Start", "s"), Entry("/ask", "Ask", "a"), Entry("/chat", "Chat", "c")),
    (
        Entry("/memories", "Memories", "m"),
        Entry("/timeline", "Timeline", "t"),
        Entry("/people", "People and things", "p"),
        Entry("/documents", "Documents", "d"),
        Entry("/tiers", "Tiers", "i"),
        Entry("/review", "Review", "r"),
    ),
    (
        Entry("/models", "Models", "o"),
        Entry("/work", "Work", "w"),
        Entry("/access", "Access", "u"),
        Entry("/data", "Data", "b"),
        Entry("/health", "Health", "h"),
    ),
)


def navigation(view: View) -> list[list[Entry]]:
    """Return the menu for a page."""
    below = view.request.url.path.removeprefix(view.request.scope.get("root_path", ""))
    return [
        [
            entry._replace(current=below == entry.path or below.startswith(f"{entry.path}/"))
            for entry in group
            if entry.path in _PATHS
        ]
        for group in NAVIGATION
    ]


environment().globals["navigation"] = navigation
