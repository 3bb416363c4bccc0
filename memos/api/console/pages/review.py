"""A page that is being built."""

from __future__ import annotations

from memos.api.console.view import Page

PAGES: tuple[Page, ...] = ()
