"""The child process that converts one document to Markdown, under limits of memory, time and output.

It writes lines of JSON to an inherited descriptor; the last one counts. The text of a PDF is written before its images
are read, so it survives whatever they do. A hostile file meets no keys, settings or standard streams here.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

from memos.backends.child import die_with_parent, ignore_interrupts
from memos.backends.documents.formats import IMAGES, Format, Unreadable, format_of

OCR_S = 1_200
"""Seconds that the pictures of one document may take together; a full page takes 3 to 8 of one core."""

MOST_OCR_PAGES = 500
MOST_IMAGE_PIXELS = 50_000_000
"""Of an image before it is made smaller; A4 at 600 dots an inch has 35 million."""

EXTRA = "pip install '.[ocr]' in the clone"
_LONGEST = 2_000  # pixels of a side as it is read; beyond it the models make it smaller themselves
_MOST_PIXELS = 3_000_000
_DPI = 200
_UNSURE = 0.8  # below it a page may lie on its side or head
_TURNS = (180, 90, 270)

Box = Sequence[Sequence[float]]
"""Four corners (x, y), from the top left one clockwise."""


@dataclass(frozen=True, slots=True)
class RecognisedPage:
    text: str
    confidence: float


def available() -> bool:
    return find_spec("rapidocr") is not None


class OcrEngine:
    """Recognises text in images until `deadline` (monotonic seconds) or its page limit."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._left = MOST_OCR_PAGES
        self._engine = _engine()

    def may_go_on(self) -> bool:
        return self._left > 0 and time.monotonic() < self._deadline

    def read(self, picture: Image.Image) -> RecognisedPage:
        self._left -= 1
        best, upright = self._read(picture)
        for turn in _TURNS:
            if (best.confidence >= _UNSURE and upright) or not best.text or not self.may_go_on():
                break
            other, stands = self._read(picture.rotate(turn, expand=True))
            if other.text and (stands, other.confidence) > (upright, best.confidence):
                best, upright = other, stands
        return best

    def _read(self, picture: Image.Image) -> tuple[RecognisedPage, bool]:
        import numpy  # noqa: PLC0415 - only here

        found = self._engine(numpy.ascontiguousarray(numpy.asarray(_smaller(picture))[:, :, ::-1]))
        if found.boxes is None or not found.txts:
            return RecognisedPage("", 0.0), True
        boxes = [[[float(x), float(y)] for x, y in box] for box in found.boxes]
        weights = [len(text) for text in found.txts]
        sure = sum(float(score) * weight for score, weight in zip(found.scores, weights, strict=True))
        lying = 0
        for box, weight in zip(boxes, weights, strict=True):
            width = max(x for x, _ in box) - min(x for x, _ in box)
            lying += weight if width >= _height(box) else 0
        text = in_lines(boxes, found.txts)
        return RecognisedPage(text, round(sure / max(1, sum(weights)), 3)), 2 * lying >= sum(weights)


def _engine() -> Callable[[Any], Any]:
    try:
        import cv2  # noqa: PLC0415 - an optional extra
        import rapidocr  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise Unreadable(
            f"has text in pictures, and the extra `ocr` is broken ({error.name}); reinstall it: {EXTRA}"
        ) from error
    cv2.setNumThreads(1)
    models = Path(rapidocr.__file__).with_name("models")
    params: dict[str, Any] = {"Global.log_level": "critical", "Global.max_side_len": _LONGEST}
    for part, kind in (("Det", "det"), ("Rec", "rec")):
        found = sorted(models.glob(f"*_{kind}_*.onnx"))
        if not found:
            raise Unreadable(
                f"has text in pictures, and the installed rapidocr has no model to read it; reinstall it: {EXTRA}"
            )
        params[f"{part}.model_path"] = str(found[0])
    # The third model turns lines by half; it takes good ones for turned too.
    params |= {"Global.use_cls": False, "Rec.rec_batch_num": 1}
    params |= {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    engine: Callable[[Any], Any] = rapidocr.RapidOCR(params=params)
    return engine


def in_lines(boxes: Sequence[Box], texts: Sequence[str]) -> str:
    """Return texts in page layout: boxes at one height are one line. Columns are read across."""
    lines: list[tuple[float, list[tuple[float, str]]]] = []
    for box, text in sorted(zip(boxes, texts, strict=True), key=lambda one: _middle(one[0])):
        if lines and abs(_middle(box) - lines[-1][0]) < _height(box) / 2:
            lines[-1][1].append((min(x for x, _ in box), text))
        else:
            lines.append((_middle(box), [(min(x for x, _ in box), text)]))
    return "\n".join(" ".join(text for _, text in sorted(line)) for _, line in lines)


def _middle(box: Box) -> float:
    return sum(y for _, y in box) / len(box)


def _height(box: Box) -> float:
    return max(y for _, y in box) - min(y for _, y in box)


def _smaller(picture: Image.Image) -> Image.Image:
    share = _share(*picture.size)
    if share < 1:
        picture = picture.resize((max(1, round(picture.width * share)), max(1, round(picture.height * share))))
    return picture.convert("RGB")


def _share(width: float, height: float) -> float:
    return min(1.0, _LONGEST / max(width, height), math.sqrt(_MOST_PIXELS / (width * height)))


# Pictures


def is_image_page(page: Any) -> bool:
    import pypdfium2  # noqa: PLC0415 - an optional extra

    return bool(pypdfium2.raw.FPDFPage_CountObjects(page.raw) > 0)


def _of_pdf(raw: bytes, numbers: Sequence[int]) -> Iterator[Image.Image]:
    import pypdfium2  # noqa: PLC0415 - an optional extra

    document = pypdfium2.PdfDocument(raw)
    for number in numbers:
        page = document[number - 1]
        scale = _DPI / 72
        width, height = (max(1.0, side * scale) for side in page.get_size())
        bitmap = page.render(scale=scale * _share(width, height))
        picture: Image.Image = bitmap.to_pil().copy()
        bitmap.close()
        page.close()
        yield picture


def frames(format_: Format, raw: bytes) -> int:
    with _opened(format_, raw) as image:
        # Other formats may hold animations; the first frame is enough.
        return int(getattr(image, "n_frames", 1)) if format_ is Format.TIFF else 1


def _of_image(format_: Format, raw: bytes, numbers: Sequence[int]) -> Iterator[Image.Image]:
    with _opened(format_, raw) as image:
        for number in numbers:
            image.seek(number - 1)
            _check_size(image)
            image.draft("RGB", (_LONGEST, _LONGEST))
            yield _on_white(ImageOps.exif_transpose(image))


def _opened(format_: Format, raw: bytes) -> Image.Image:
    Image.MAX_IMAGE_PIXELS = None  # we say ourselves what is too large
    try:
        image = Image.open(io.BytesIO(raw), formats=[format_.name])
    except UnidentifiedImageError as error:
        raise Unreadable(f"cannot be read as {format_.name}; the file is damaged or of another format") from error
    _check_size(image)
    return image


def _check_size(image: Image.Image) -> None:
    pixels = image.width * image.height
    if pixels > MOST_IMAGE_PIXELS:
        raise Unreadable(f"has {pixels:,} pixels, more than the limit of {MOST_IMAGE_PIXELS:,}; make it smaller")


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    share = _share(*image.size)
    image = image.convert("RGBA").resize((max(1, round(image.width * share)), max(1, round(image.height * share))))
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


MEMORY_BYTES = 1536 * 1024 * 1024
"""Address space of the child; onnxruntime, which one of the parsers loads, takes 300 MiB of it."""

OCR_MEMORY_BYTES = 2048 * 1024 * 1024
"""Memory limit during OCR: the models and their working memory, in addition to a large image."""

CPU_S = 300
MOST_CHARS = 8_000_000
"""Characters of Markdown one document may have, about 4,000 pages."""

MOST_PAGES = 10_000
_ANSWER_BYTES = MOST_CHARS * 6  # as JSON escapes it
_OCR_CPU_S = 2 * OCR_S  # the time that ends it is the other one
_EXTRA = "pip install '.[documents]' in the clone"
_NICE = 5
_GUESSED_FROM = 200  # bytes; an encoding guessed from fewer is as often wrong
_DATA_IMAGE = re.compile(r"!\[([^\]\n]{0,2000})\]\(data:[^)\s]*\)")
_SLIDE = re.compile(r"^<!-- Slide number: (\d+) -->$", re.MULTILINE)
_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")

Page = dict[str, Any]
"""`text`, and where there are any `number` (from 1) and `path` (titles of the outline above it).

`is_image_page` is a page without text that shows something, `ocr` how sure one is of a text that was recognised.
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

        say(read_file(name, raw, say))
        os._exit(0)  # not by way of the parsers' destructors


def _more() -> None:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
        most = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most, most))


def read_file(name: str, raw: bytes, early: Callable[[Answer], object] = lambda _: None) -> Answer:
    """Return the pages of a document, or the `reason` it has none; `early` gets partial results."""
    format_: Format | None = None
    left = 0
    try:
        format_ = format_of(name, raw)
        pages = _read(format_, name, raw)
        left = sum("drawn" in page for page in pages)
        if left and available():
            if _has_text(pages):
                early({"format": format_, "pages": pages, "unread": left})
            left = _recognise(format_, raw, pages)
        if not _has_text(pages):
            raise Unreadable(_no_text(format_, len(pages), left))
    except Unreadable as error:
        return {"format": format_, "reason": str(error)}
    except ImportError as error:
        missing = f"cannot be read as {_called(format_)} without the extra `documents` ({error.name} is missing)"
        return {"format": format_, "reason": f"{missing}; install it ({_EXTRA}), then add the file again"}
    except MemoryError:
        most = resource.getrlimit(resource.RLIMIT_AS)[0] // 1_048_576
        told = f"needs more than {most:,} MiB of memory to be read; split it, or save it again from its program"
        return {"format": format_, "reason": told}
    except RecursionError:
        return {"format": format_, "reason": "is nested too deeply to be read; save it again from its program"}
    except Exception as error:  # noqa: BLE001 - what parsers raise has no common root, and may quote the document
        told = (
            f"cannot be read as {_called(format_)} ({type(error).__name__}); the file is damaged or of another format"
        )
        return {"format": format_, "reason": told}
    return {"format": format_, "pages": pages, "unread": left}


def _has_text(pages: Sequence[Page]) -> bool:
    return any(page["text"].strip() for page in pages)


def _called(format_: Format | None) -> str:
    return "a document" if format_ is None else format_.upper()


def _no_text(format_: Format, pages: int, left: int) -> str:
    if format_ is not Format.PDF and format_ not in IMAGES:
        return "has no text"
    what = f"is an image ({format_.name})"
    if format_ is Format.PDF:
        what = f"has no text on its {pages:,} pages, only scans or drawings"
    if not available():
        return f"{what}. Install the extra `ocr`, which reads text in pictures ({EXTRA}), then add the file again"
    if left:
        return f"{what}; {left:,} of them were not read in time, so split the file"
    return f"{what}; no text was recognised"


def _recognise(format_: Format, raw: bytes, pages: list[Page]) -> int:
    """Add recognised text to image pages; return how many were not read."""
    # If it fails, existing text is kept.
    _more()
    wanted = [page for page in pages if "drawn" in page]
    left, size = len(wanted), sum(len(page["text"]) for page in pages)
    try:
        reader = OcrEngine(time.monotonic() + OCR_S)
        numbers = [page["number"] for page in wanted]
        pictures = _of_pdf(raw, numbers) if format_ is Format.PDF else _of_image(format_, raw, numbers)
        while left and size <= MOST_CHARS and reader.may_go_on():
            found = reader.read(next(pictures))
            if found.text:
                wanted[-left] |= {"text": found.text, "ocr": found.confidence}
            left -= 1
            size += len(found.text)
    except Exception:  # as in `read_file`
        if not _has_text(pages):
            raise
    return left


def _read(format_: Format, name: str, raw: bytes) -> list[Page]:
    match format_:
        case Format.PDF:
            pages = list(_pdf(raw))
        case _ if format_ in IMAGES:
            count = frames(format_, raw)
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
    return Unreadable(f"has more than {MOST_CHARS:,} characters of text; split it")


def _decoded(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return raw.decode("utf-32", "replace")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _guessed(raw)


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
    info = StreamInfo(extension=f".{format_}")
    if format_ is Format.HTML:
        with suppress(UnicodeDecodeError):  # it is then what it is declared to be
            raw.decode("utf-8-sig")
            info = StreamInfo(extension=".html", charset="utf-8")
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
            raise Unreadable("is protected by a password; save a copy without one and add the copy") from error
        raise
    count = len(document)
    if count > MOST_PAGES:
        raise Unreadable(f"has {count:,} pages, more than the limit of {MOST_PAGES:,}; split it")
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
        if not text.strip() and is_image_page(page):
            read["drawn"] = True
        yield read


def _outline(document: Any) -> dict[int, list[tuple[int, str]]]:
    found: dict[int, list[tuple[int, str]]] = {}
    for mark in document.get_toc(max_depth=6):
        target = mark.get_dest()
        page = None if target is None else target.get_index()
        title = " ".join(mark.get_title().split())
        if page is not None and title:
            found.setdefault(page, []).append((mark.level, title))
    return found


def _csv(name: str, text: str) -> str:
    delimiter = "\t" if name.lower().endswith(".tsv") else ","
    if delimiter == ",":
        with suppress(csv.Error):
            delimiter = csv.Sniffer().sniff(text[:8_192], delimiters=",;\t|").delimiter
    csv.field_size_limit(MOST_CHARS)
    return "\n".join(_table(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)))


def _xlsx(raw: bytes) -> Iterator[str]:
    import openpyxl  # noqa: PLC0415 - an optional extra

    book = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    for sheet in book.worksheets:
        rows = sheet.iter_rows(values_only=True)
        lines = list(_table(["" if value is None else str(value) for value in row] for row in rows))
        if lines:
            yield f"## {' '.join(sheet.title.split())}\n"
            yield from lines
            yield ""


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
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
