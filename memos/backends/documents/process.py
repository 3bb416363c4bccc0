"""The child process that reads one document into Markdown, under limits of memory, time and output.

Its answers are lines of JSON on an inherited descriptor, and the last one counts: pages of text, or why there are none.
What a PDF says in letters is answered before its pictures are read, and so is kept whatever they do. Whatever a hostile
file makes of a parser, it happens here, without the program's keys, settings or standard streams.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from memos.backends.child import die_with_parent, ignore_interrupts
from memos.backends.documents import ocr as document_ocr
from memos.backends.documents.formats import IMAGES, Format, Unreadable, format_of

MEMORY_BYTES = 1536 * 1024 * 1024
"""Address space of the child; onnxruntime, which one of the parsers loads, takes 300 MiB of it."""

OCR_MEMORY_BYTES = 2048 * 1024 * 1024
"""While text is recognised: the models and what they work on, beside a large image."""

CPU_S = 300
MOST_CHARS = 8_000_000
"""Characters of Markdown one document may have, about 4,000 pages."""

MOST_PAGES = 10_000
_ANSWER_BYTES = MOST_CHARS * 6  # as JSON escapes it
_OCR_CPU_S = 2 * document_ocr.OCR_S  # the time that ends it is the other one
_EXTRA = "pip install '.[documents]' in the clone"
_NICE = 5
_GUESSED_FROM = 200  # bytes; an encoding guessed from fewer is as often wrong
_DATA_IMAGE = re.compile(r"!\[([^\]\n]{0,2000})\]\(data:[^)\s]*\)")
_SLIDE = re.compile(r"^<!-- Slide number: (\d+) -->$", re.MULTILINE)
_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")

Page = dict[str, Any]
"""`text`, and where there are any `number` (from 1) and `path` (titles of the outline above it).

`drawn` is a page without text that shows something, `ocr` how sure one is of a text that was recognised.
"""

Answer = dict[str, Any]


def main(data: int, answer: int, parent: int) -> None:
    """Run as a child: read the document from one inherited descriptor, write the answer to another."""
    ignore_interrupts()
    os.nice(_NICE)
    die_with_parent(socket.socket(fileno=parent))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would make it an error like any other
    for limit, value, later in (
        (resource.RLIMIT_AS, MEMORY_BYTES, OCR_MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S, CPU_S + _OCR_CPU_S),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, _ANSWER_BYTES, 2 * _ANSWER_BYTES),
    ):
        resource.setrlimit(limit, (value, later))
    with os.fdopen(data, "rb") as file:
        name = json.loads(file.readline())
        raw = file.read()
    with os.fdopen(answer, "wb") as out:

        def say(answer: Answer) -> None:
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()

        say(answered(name, raw, say))
        os._exit(0)  # not by way of the parsers' destructors


def _more() -> None:
    """Take what recognising text may have more than reading it."""
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
        most = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most, most))


def answered(name: str, raw: bytes, early: Callable[[Answer], object] = lambda _: None) -> Answer:
    """Return the pages of a document, or the `reason` why there are none; `early` is told what is read already."""
    format_: Format | None = None
    left = 0
    try:
        format_ = format_of(name, raw)
        pages = _read(format_, name, raw)
        left = sum("drawn" in page for page in pages)
        if left and document_ocr.available():
            if _has_text(pages):
                early({"format": format_, "pages": pages, "unread": left})
            left = _recognise(format_, raw, pages)
        if not _has_text(pages):
            raise Unreadable(_no_text(format_, len(pages), left))
    except Unreadable as error:
        return {"format": format_, "reason": str(error)}
    except ImportError as error:
        missing = f"needs the extra `documents` to be read as {_called(format_)} ({error.name} is missing)"
        return {"format": format_, "reason": f"{missing}: {_EXTRA}, then add it again"}
    except MemoryError:
        most = resource.getrlimit(resource.RLIMIT_AS)[0] // 1_048_576
        told = f"needs more than {most:,} MiB of memory to be read; split it, or save it anew"
        return {"format": format_, "reason": told}
    except RecursionError:
        return {"format": format_, "reason": "is nested too deep to be read; save it anew"}
    except Exception as error:  # noqa: BLE001 - what parsers raise has no common root, and may quote the document
        told = f"cannot be read as {_called(format_)} ({type(error).__name__}): it is damaged, or not what it claims"
        return {"format": format_, "reason": told}
    return {"format": format_, "pages": pages, "unread": left}


def _has_text(pages: Sequence[Page]) -> bool:
    return any(page["text"].strip() for page in pages)


def _called(format_: Format | None) -> str:
    return "a document" if format_ is None else format_.upper()


def _no_text(format_: Format, pages: int, left: int) -> str:
    """Return why a document without text has none, and what would help."""
    if format_ is not Format.PDF and format_ not in IMAGES:
        return "has no text"
    what = f"is an image ({format_.name})"
    if format_ is Format.PDF:
        what = f"has no text on its {pages:,} pages: they are scanned or drawn"
    if not document_ocr.available():
        return f"{what}. Install the extra `ocr`, which reads text in pictures, and add it again: {document_ocr.EXTRA}"
    if left:
        return f"{what}, and there was no time to read {left:,} of them; split it"
    return f"{what}, and no text was recognised"


def _recognise(format_: Format, raw: bytes, pages: list[Page]) -> int:
    """Fill the drawn pages with the text in their pictures; return how many were not read.

    Whatever makes that fail, the text that is there already is kept.
    """
    _more()
    wanted = [page for page in pages if "drawn" in page]
    left, size = len(wanted), sum(len(page["text"]) for page in pages)
    try:
        reader = document_ocr.Recogniser(time.monotonic() + document_ocr.OCR_S)
        pictures = document_ocr.pictures(format_, raw, [page["number"] for page in wanted])
        while left and size <= MOST_CHARS and reader.may_go_on():
            found = reader.read(next(pictures))
            if found.text:
                wanted[-left] |= {"text": found.text, "ocr": found.confidence}
            left -= 1
            size += len(found.text)
    except Exception:  # as in `answered`
        if not _has_text(pages):
            raise
    return left


def _read(format_: Format, name: str, raw: bytes) -> list[Page]:
    match format_:
        case Format.PDF:
            pages = list(_pdf(raw))
        case _ if format_ in IMAGES:
            count = document_ocr.frames(format_, raw)
            pages = [{"text": "", "number": number + 1, "drawn": True} for number in range(count)]
        case Format.XLSX:
            pages = [{"text": "\n".join(_xlsx(raw))}]
        case Format.CSV:
            pages = [{"text": _csv(name, _decoded(raw))}]
        case Format.TEXT | Format.MARKDOWN:
            pages = [{"text": _decoded(raw)}]
        case _:
            pages = _by_markitdown(format_, raw)
    if sum(len(page["text"]) for page in pages) > MOST_CHARS:
        raise _too_long()
    return pages


def _too_long() -> Unreadable:
    return Unreadable(f"has over {MOST_CHARS:,} characters of text; split it")


def _decoded(raw: bytes) -> str:
    """Return text as it was meant: Unicode by its mark, else UTF-8, else what its bytes look like."""
    if raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        text = raw.decode("utf-32", "replace")
    elif raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = raw.decode("utf-16", "replace")
    else:
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = _guessed(raw)
    return text


def _guessed(raw: bytes) -> str:
    from charset_normalizer import from_bytes  # noqa: PLC0415 - an optional extra

    if len(raw) < _GUESSED_FROM:
        return raw.decode("cp1252", "replace")
    best = from_bytes(raw[:65_536]).best()
    if best is None:
        raise Unreadable("is text in an unknown encoding; convert it to UTF-8")
    return raw.decode(best.encoding, "replace")


# Formats


def _by_markitdown(format_: Format, raw: bytes) -> list[Page]:
    from markitdown import StreamInfo, converters  # noqa: PLC0415 - an optional extra

    kinds: dict[Format, Any] = {
        Format.DOCX: converters.DocxConverter,
        Format.PPTX: converters.PptxConverter,
        Format.HTML: converters.HtmlConverter,
        Format.EPUB: converters.EpubConverter,
    }
    if format_ is Format.HTML:
        # By what it is declared to be, unless its bytes are UTF-8.
        try:
            raw.decode("utf-8-sig")
            info = StreamInfo(extension=".html", charset="utf-8")
        except UnicodeDecodeError:
            info = StreamInfo(extension=".html")
    else:
        info = StreamInfo(extension=f".{format_}")
    text = kinds[format_]().convert(io.BytesIO(raw), info).markdown
    text = _DATA_IMAGE.sub(lambda found: found[1], text)
    return _slides(text) if format_ is Format.PPTX else [{"text": text}]


def _slides(text: str) -> list[Page]:
    pages: list[Page] = []
    places = [*_SLIDE.finditer(text)]
    for place, found in enumerate(places):
        end = places[place + 1].start() if place + 1 < len(places) else len(text)
        pages.append({"text": text[found.end() : end].strip("\n"), "number": int(found[1])})
    return pages or [{"text": text}]


def _pdf(raw: bytes) -> Iterator[Page]:
    import pypdfium2  # noqa: PLC0415 - an optional extra

    try:
        document = pypdfium2.PdfDocument(raw)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise Unreadable("is protected by a password; save it without one and add that") from error
        raise
    count = len(document)
    if count > MOST_PAGES:
        raise Unreadable(f"has {count:,} pages, at most {MOST_PAGES:,} are taken; split it")
    outline = _outline(document)
    path: list[str] = []
    size = 0
    for number in range(count):
        for level, title in outline.get(number, ()):
            path = [*path[:level], title]
        page = document[number]
        text = page.get_textpage().get_text_bounded()
        size += len(text)
        if size > MOST_CHARS:
            raise _too_long()
        read: Page = {"text": _HYPHEN.sub("", text), "number": number + 1, "path": list(path)}
        if not text.strip() and document_ocr.drawn(page):
            read["drawn"] = True
        yield read


def _outline(document: Any) -> dict[int, list[tuple[int, str]]]:
    """Return by page (from 0) the headings that begin there, with their levels."""
    found: dict[int, list[tuple[int, str]]] = {}
    for mark in document.get_toc(max_depth=6):
        target = mark.get_dest()
        page = None if target is None else target.get_index()
        title = " ".join(mark.get_title().split())
        if page is not None and title:
            found.setdefault(page, []).append((mark.level, title))
    return found


def _csv(name: str, text: str) -> str:
    delimiter = "\t" if name.lower().endswith(".tsv") else _delimiter(text)
    csv.field_size_limit(MOST_CHARS)
    return "\n".join(_table(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)))


def _delimiter(text: str) -> str:
    try:
        return csv.Sniffer().sniff(text[:8_192], delimiters=",;\t|").delimiter
    except csv.Error:
        return ","


def _xlsx(raw: bytes) -> Iterator[str]:
    import openpyxl  # noqa: PLC0415 - an optional extra

    book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    for sheet in book.worksheets:
        lines = list(_table([_shown(value) for value in row] for row in sheet.iter_rows(values_only=True)))
        if lines:
            yield f"## {' '.join(sheet.title.split())}\n"
            yield from lines
            yield ""


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; its first row is the header, empty rows are left out."""
    width = size = 0
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            continue
        size += sum(map(len, cells))
        if size > MOST_CHARS:
            raise _too_long()
        first = not width
        width = width or len(cells)
        yield f"| {' | '.join([*cells, *[''] * (width - len(cells))])} |"
        if first:
            yield f"|{' --- |' * width}"
