"""Turn a document's pages into Markdown and passages."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from memos.core.ports import DocumentPages, Page

Split = Callable[[str, int], list[tuple[int, int]]]
"""Cuts text into spans of at most so many tokens: `Embedder.split`."""

PROSE_TOKENS = 190
"""A passage with its title stays under the 256 tokens that one vector is made of."""

WHOLE_TOKENS = 4 * PROSE_TOKENS
_CHARS_A_TOKEN = 16
"""A passage has no more, whatever its tokenizer makes of white space and unknown signs; English has four or five."""

_LEAST_TOKENS = 8  # what every embedder can split by
_TITLE_CHARS = 120
_HEADER_CHARS = 300
_DEEPEST = 6
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(?:(=+)|(-+))[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ROW = re.compile(r" {0,3}\|.*\|[ \t]*$")
_RULE = re.compile(r" {0,3}\|[ \t:|-]+\|[ \t]*$")


@dataclass(frozen=True, slots=True)
class Mark:
    offset: int
    page: int | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    start: int
    end: int
    path: tuple[str, ...]
    page: int | None
    header: str | None = None


class _Kind(StrEnum):
    HEADING = "heading"
    PROSE = "prose"
    TABLE = "table"
    CODE = "code"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block(Passage):
    kind: _Kind


def passages(markdown: str, split: Split, marks: Sequence[Mark] = (), *, structured: bool = True) -> list[Passage]:
    whole = _blocks(markdown, marks, structured=structured)
    pieces = [piece for block in whole for piece in _bounded(markdown, block, split)]
    return [Passage(one.start, one.end, one.path, one.page, one.header) for one in _packed(markdown, pieces, split)]


# Blocks


def _blocks(text: str, marks: Sequence[Mark], *, structured: bool) -> list[_Block]:
    cuts = sorted({mark.offset for mark in marks if 0 < mark.offset < len(text)})
    offsets = [mark.offset for mark in marks]
    found: list[_Block] = []
    path: tuple[str, ...] = ()
    for start, end in pairwise([0, *cuts, len(text)]):
        place = bisect_right(offsets, start) - 1
        mark = marks[place] if place >= 0 else Mark(0)
        for block in _page_blocks(text, start, end, structured=structured):
            if block.kind is _Kind.HEADING:
                path = _under(path, text[block.start : block.end])
            found.append(replace(block, path=_shown((*mark.path, *path)), page=mark.page))
    return _without_blank(text, found)


def _page_blocks(text: str, start: int, end: int, *, structured: bool) -> Iterator[_Block]:
    lines = _lines(text, start, end)
    place = 0
    while place < len(lines):
        kind, stop = _extent(lines, place, structured=structured)
        while stop < len(lines) and not lines[stop][1].strip():
            stop += 1
        yield _Block(lines[place][0], lines[stop][0] if stop < len(lines) else end, (), None, kind=kind)
        place = stop


def _lines(text: str, start: int, end: int) -> list[tuple[int, str]]:
    found = []
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop + 1
        found.append((start, text[start:stop].rstrip("\n")))
        start = stop
    return found


def _extent(lines: Sequence[tuple[int, str]], place: int, *, structured: bool) -> tuple[_Kind, int]:
    line = lines[place][1]
    stop = place + 1
    if structured and (fence := _FENCE.match(line)):
        return _Kind.CODE, _closed(lines, place, fence[1])
    if structured and _ROW.match(line):
        while stop < len(lines) and _ROW.match(lines[stop][1]):
            stop += 1
        return _Kind.TABLE, stop
    if structured and _HEADING.match(line):
        return _Kind.HEADING, stop
    if structured and _is_underlined(lines, place):
        return _Kind.HEADING, place + 2
    while stop < len(lines) and lines[stop][1].strip() and not (structured and _begins(lines, stop)):
        stop += 1
    return _Kind.PROSE, stop


def _closed(lines: Sequence[tuple[int, str]], place: int, fence: str) -> int:
    for stop in range(place + 1, len(lines)):
        end = _FENCE.match(lines[stop][1])
        if end and end[1].startswith(fence) and not lines[stop][1].strip().strip(fence[0]):
            return stop + 1
    return len(lines)


def _begins(lines: Sequence[tuple[int, str]], place: int) -> bool:
    line = lines[place][1]
    return bool(_FENCE.match(line) or _ROW.match(line) or _HEADING.match(line)) or _is_underlined(lines, place)


def _is_underlined(lines: Sequence[tuple[int, str]], place: int) -> bool:
    line = lines[place][1]
    if not line.strip() or place + 1 >= len(lines) or not _UNDERLINE.match(lines[place + 1][1]):
        return False
    alone = place == 0 or not lines[place - 1][1].strip()
    return alone and not _UNDERLINE.match(line) and len(line) <= _HEADER_CHARS


def _under(path: tuple[str, ...], heading: str) -> tuple[str, ...]:
    first, _, rest = heading.partition("\n")
    found = _HEADING.match(first)
    if found is not None:
        level, title = len(found[1]), found[2] or ""
    else:
        level, title = (1 if rest.lstrip().startswith("=") else 2), first
    # A level that was jumped over leaves no gap.
    return (*path[: level - 1], _title(title))


def _title(text: str) -> str:
    text = " ".join(text.replace("*", "").replace("`", "").split())
    return text if len(text) <= _TITLE_CHARS else text[: _TITLE_CHARS - 1] + "…"


def _shown(path: tuple[str, ...]) -> tuple[str, ...]:
    titles = [_title(title) for title in path]
    return tuple(title for title in titles if title)[-_DEEPEST:]


def _without_blank(text: str, blocks: Sequence[_Block]) -> list[_Block]:
    found: list[_Block] = []
    begin: int | None = None
    for block in blocks:
        if text[block.start : block.end].strip():
            found.append(block if begin is None else replace(block, start=begin))
            begin = None
        elif found:
            found[-1] = replace(found[-1], end=block.end)
        elif begin is None:
            begin = block.start
    return found


# Bounds


def _fits(text: str, tokens: int, split: Split) -> bool:
    return len(text) <= tokens * _CHARS_A_TOKEN and _is_one(text, tokens, split)


def _is_one(text: str, tokens: int, split: Split) -> bool:
    # A token has at least one character.
    return len(text) <= tokens - 2 or len(split(text, tokens)) <= 1


def _limit(block: _Block) -> int:
    return WHOLE_TOKENS if block.kind in (_Kind.TABLE, _Kind.CODE) else PROSE_TOKENS


def _bounded(text: str, block: _Block, split: Split) -> Iterator[_Block]:
    limit = _limit(block)
    if _fits(text[block.start : block.end], limit, split):
        yield block
    elif block.kind in (_Kind.TABLE, _Kind.CODE):
        yield from _by_lines(text, block, split)
    else:
        for start, end in _hard(text, block.start, block.end, limit, split):
            yield replace(block, start=start, end=end)


def _by_lines(text: str, block: _Block, split: Split) -> Iterator[_Block]:
    lines = _lines(text, block.start, block.end)
    has_header = block.kind is _Kind.TABLE and len(lines) > 1 and _RULE.match(lines[1][1])
    header = lines[0][1].strip()[:_HEADER_CHARS] if has_header else None
    edges = [*(start for start, _ in lines), block.end]
    begin = 0
    while begin < len(lines):
        stop = _most(text, edges, begin, split)
        part = replace(block, start=edges[begin], end=edges[stop], header=header if begin else None)
        if stop == begin + 1 and not _fits(text[part.start : part.end], WHOLE_TOKENS, split):
            for start, end in _hard(text, part.start, part.end, PROSE_TOKENS, split):
                yield replace(part, start=start, end=end)
        else:
            yield part
        begin = stop


def _most(text: str, edges: Sequence[int], begin: int, split: Split) -> int:
    low = begin + 1
    high = len(edges) - 1
    step = 1
    # First upwards in doubled steps: what is looked at stays in proportion to what fits.
    while low + step <= high:
        if not _fits(text[edges[begin] : edges[low + step]], WHOLE_TOKENS, split):
            high = low + step - 1
            break
        low, step = low + step, step * 2
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(text[edges[begin] : edges[middle]], WHOLE_TOKENS, split):
            low = middle
        else:
            high = middle - 1
    return low


def _hard(text: str, start: int, end: int, tokens: int, split: Split) -> Iterator[tuple[int, int]]:
    spans = split(text[start:end], tokens)
    cuts = [start, *(start + first for first, _ in spans[1:]), end]
    for left, right in pairwise(cuts):
        # A word that was cut may have more tokens than it had inside the whole.
        if tokens // 2 >= _LEAST_TOKENS and not _is_one(text[left:right], tokens, split):
            yield from _hard(text, left, right, tokens // 2, split)
        else:
            most = PROSE_TOKENS * _CHARS_A_TOKEN
            yield from ((begin, min(begin + most, right)) for begin in range(left, right, most))


# Packing


def _packed(text: str, pieces: Sequence[_Block], split: Split) -> Iterator[_Block]:
    current: _Block | None = None
    for piece in pieces:
        if current is not None and _joins(text, current, piece, split):
            # Headings alone take the path of what they stand above.
            kind = piece.kind if current.kind is _Kind.HEADING else current.kind
            current = replace(piece, start=current.start, kind=kind, header=current.header or piece.header)
            continue
        if current is not None:
            yield current
        current = piece
    if current is not None:
        yield current


def _joins(text: str, current: _Block, piece: _Block, split: Split) -> bool:
    if current.page != piece.page:
        return False
    limit = _limit(piece) if current.kind is _Kind.HEADING else PROSE_TOKENS
    same = piece.kind is not _Kind.HEADING and current.path == piece.path and current.header == piece.header
    return (current.kind is _Kind.HEADING or same) and _fits(text[current.start : piece.end], limit, split)


_PLAIN = frozenset({"pdf", "text", "png", "jpeg", "gif", "bmp", "tiff", "webp"})
_BETWEEN = "\n\n"
_BLANK = re.compile(r"\s{501,}")
_MOST_BLANK = 500


@dataclass(frozen=True, slots=True)
class Document:
    markdown: str
    passages: tuple[Passage, ...]
    format: str
    media_type: str
    pages: int
    """Number of pages; 0 for a format without pages."""
    blank_pages: int
    ocr: Mapping[int, float]
    """Confidence of the text recognition, by page; only pages recognised in a picture."""
    unread: int
    """Number of pages that are pictures which nothing has read."""


def read(read_pages: DocumentPages, split: Split) -> Document:
    pages = read_pages.pages
    text, marks = _joined(pages)
    found = passages(text, split, marks, structured=read_pages.format not in _PLAIN)
    numbered = [page for page in pages if page.number is not None]
    blank = sum(not page.text.strip() for page in numbered)
    return Document(
        text,
        tuple(found),
        read_pages.format,
        read_pages.media_type,
        len(numbered),
        blank,
        {page.number: page.ocr for page in numbered if page.number is not None and page.ocr is not None},
        read_pages.unread,
    )


def _joined(pages: Sequence[Page]) -> tuple[str, list[Mark]]:
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
