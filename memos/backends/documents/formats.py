"""Detect a file's format by its first bytes and its name.

Runs in the child process: even a zip's table of contents may be hostile.
"""

from __future__ import annotations

import io
import zipfile
from enum import StrEnum
from pathlib import PurePath


class Format(StrEnum):
    PDF = "pdf"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    EPUB = "epub"
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    TEXT = "text"
    PNG = "png"
    JPEG = "jpeg"
    GIF = "gif"
    BMP = "bmp"
    TIFF = "tiff"
    WEBP = "webp"


IMAGES = frozenset({Format.PNG, Format.JPEG, Format.GIF, Format.BMP, Format.TIFF, Format.WEBP})
"""Read by recognising the text in them."""

MEDIA_TYPES = {
    Format.PDF: "application/pdf",
    Format.DOCX: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    Format.PPTX: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    Format.XLSX: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    Format.EPUB: "application/epub+zip",
    Format.HTML: "text/html",
    Format.CSV: "text/csv",
    Format.MARKDOWN: "text/markdown",
    Format.TEXT: "text/plain",
    **{image: f"image/{image}" for image in IMAGES},
}

MOST_UNPACKED_BYTES = 512 * 1024 * 1024
"""Most bytes that the parts of one document may unpack to, together."""

MOST_RATIO = 200
"""Highest compression ratio of a large document; real text compresses to a tenth or a twentieth."""

_MOST_PARTS = 20_000
_SMALL_BYTES = 8 * 1024 * 1024
_HEAD_BYTES = 1024
_TEXT_ENDINGS = {
    ".csv": Format.CSV, ".tsv": Format.CSV, ".md": Format.MARKDOWN, ".markdown": Format.MARKDOWN,
    ".htm": Format.HTML, ".html": Format.HTML, ".xhtml": Format.HTML,
}  # fmt: skip
_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", Format.PNG),
    (b"\xff\xd8\xff", Format.JPEG),
    (b"GIF8", Format.GIF),
    (b"BM", Format.BMP),
    (b"II*\0", Format.TIFF),
    (b"MM\0*", Format.TIFF),
)
_OTHERS = (
    (b"RIFF", "sound or film (RIFF)"),
    (b"ID3", "sound (MP3)"),
    (b"OggS", "sound (Ogg)"),
    (b"fLaC", "sound (FLAC)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3\0", "a database (SQLite)"),
    (b"{\\rtf", "RTF (save it as DOCX or PDF)"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_PDF_END = b"startxref"


class Unreadable(Exception):
    """The document cannot be read; the reason never quotes its text."""


def format_of(name: str, data: bytes) -> Format:
    """Detect the format by content; the name only tells kinds of text apart."""
    if not data.strip(b"\0\t\r\n\f "):
        raise Unreadable("is empty")
    head = data[:_HEAD_BYTES]
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zipped(data)
    if head.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise Unreadable("is protected by a password; save a copy without one and add the copy")
        raise Unreadable("is an old Office file (DOC, XLS or PPT); save it as DOCX, XLSX or PPTX and add the copy")
    text = not head.startswith(_WIDE_MARKS) and b"\0" not in data
    # Other bytes may stand before a PDF's header; a text may speak of it.
    if b"%PDF-" in head and not (text and _is_utf8(head) and not head.startswith(b"%PDF-") and _PDF_END not in data):
        return Format.PDF
    # A text may begin with BM, MZ or ID3 too.
    readable = text and _is_utf8(head)
    for magic, image in _PICTURES:
        if head.startswith(magic) and not (readable and magic.isalnum()):
            return image
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Format.WEBP
    for magic, what in _OTHERS:
        if head.startswith(magic) and not (readable and magic.isalnum()):
            raise Unreadable(f"is {what} by its content, which cannot be read as a document")
    if b"\0" in data and not head.startswith(_WIDE_MARKS):
        raise Unreadable("is neither text nor a document of a supported format; supported are: " + ", ".join(Format))
    return _text_format(name, head)


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8", "strict" if len(head) < _HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return False
    return True


def _text_format(name: str, head: bytes) -> Format:
    begin = head.lstrip(b"\xef\xbb\xbf\t\r\n ").lower()
    if begin.startswith((b"<!doctype html", b"<html")):
        return Format.HTML
    return _TEXT_ENDINGS.get(PurePath(name).suffix.lower(), Format.TEXT)


def _zipped(data: bytes) -> Format:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            names = {part.filename for part in parts}
            first = archive.read("mimetype")[:64] if "mimetype" in names and _size(parts, "mimetype") < 64 else b""
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise Unreadable("is a damaged or truncated zip file; add another copy of the file") from error
    if len(parts) > _MOST_PARTS:
        raise Unreadable(f"has {len(parts):,} parts, more than the limit of {_MOST_PARTS:,}; it looks like a zip bomb")
    total = sum(part.file_size for part in parts)
    if total > MOST_UNPACKED_BYTES or (total > _SMALL_BYTES and total > MOST_RATIO * len(data)):
        raise Unreadable(
            f"would unpack to {total // 1_048_576:,} MiB, {total // max(1, len(data)):,} times its size; it looks like "
            "a zip bomb and was not opened"
        )
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("is protected by a password; save a copy without one and add the copy")
    for part, format_ in (
        ("word/document.xml", Format.DOCX),
        ("ppt/presentation.xml", Format.PPTX),
        ("xl/workbook.xml", Format.XLSX),
    ):
        if part in names:
            return format_
    if first.strip() == b"application/epub+zip":
        return Format.EPUB
    raise Unreadable("is a zip archive; unpack it and add its files one by one")


def _size(parts: list[zipfile.ZipInfo], name: str) -> int:
    return next(part.file_size for part in parts if part.filename == name)
