"""Makes of a document's pages its Markdown and the passages to store; knows no file, no parser and no rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memos.core.ports import DocumentPages, Page
from memos.reader.chunking import Mark, Passage, Split, passages

_PLAIN = frozenset({"pdf", "text", "png", "jpeg", "gif", "bmp", "tiff", "webp"})
_BETWEEN = "\n\n"
_BLANK = re.compile(r"\s{501,}")
_MOST_BLANK = 500


@dataclass(frozen=True, slots=True)
class Document:
    """What a document says; the passages in order are all of `markdown`."""

    markdown: str
    passages: tuple[Passage, ...]
    format: str
    media_type: str
    pages: int
    """How many it has; 0 when it has no pages."""
    blank_pages: int
    ocr: Mapping[int, float]
    """The pages whose text was recognised in a picture, with how sure one is of it."""
    unread: int
    """How many pages are pictures that nothing has read."""


def read(read_pages: DocumentPages, split: Split) -> Document:
    """Return a document as it is stored."""
    pages = read_pages.pages
    text, marks = _joined(pages)
    found = passages(text, split, marks, structured=read_pages.format not in _PLAIN)
    numbered = [page for page in pages if page.number is not None]
    blank = sum(not page.text.strip() for page in numbered)
    return Document(
        text, tuple(found), read_pages.format, read_pages.media_type, len(numbered), blank,
        {page.number: page.ocr for page in numbered if page.number is not None and page.ocr is not None},
        read_pages.unread,
    )  # fmt: skip


def _joined(pages: Sequence[Page]) -> tuple[str, list[Mark]]:
    """Return the pages as one text, and where each begins; blank ones leave nothing."""
    parts: list[str] = []
    marks: list[Mark] = []
    offset = 0
    for page, text in _trimmed(pages):
        if parts:
            parts.append(_BETWEEN)
            offset += len(_BETWEEN)
        marks.append(Mark(offset, page.number, page.path))
        parts.append(text)
        offset += len(text)
    return "".join(parts), marks


def _trimmed(pages: Sequence[Page]) -> Iterator[tuple[Page, str]]:
    for page in pages:
        # The only page of a text is kept to the last blank.
        text = page.text if len(pages) == 1 else page.text.strip("\n")
        # No passage is nothing but white space.
        text = _BLANK.sub(lambda found: found[0][:_MOST_BLANK], text)
        if text.strip():
            yield page, text
