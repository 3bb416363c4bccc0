"""Reads what an image's header says, and refuses what no model or browser should be made to decode; decodes no pixel.

Knows bytes and limits alone: not where they came from.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from memos.core.settings import ImageSettings
from memos.errors import InvalidInput

MEDIA_TYPES: Final = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
}
_MOST_SIDE: Final = 32_767
_TAKEN: Final = 0x9003  # DateTimeOriginal
_TAKEN_OFFSET: Final = 0x9011  # OffsetTimeOriginal
_DETAILS: Final = 0x8769  # the part of EXIF that has both
_ORIENTATION: Final = 0x0112
# In a JPEG's scan FF is followed by 00, or by a restart, which has no length.
_MARKER: Final = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
_MOST_SEGMENTS: Final = 100_000
_OFFSET: Final = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d", re.ASCII)
_MARKUP: Final = re.compile(rb"\s*<(?:svg|\?xml|!doctype|html)", re.IGNORECASE)
# Whatever Pillow's parsers raise for damaged headers; `struct.error` and the bomb errors are trees of their own.
_DAMAGED: Final = (
    OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, ZeroDivisionError,
    AttributeError, RecursionError, MemoryError, struct.error, Warning,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """Format, media type and the width and height as shown; `taken_at` is the camera's own time, as text."""

    format: str
    media_type: str
    width: int
    height: int
    taken_at: str | None
    orientation: int
    animated: bool


def read_header(where: str, data: bytes, limits: ImageSettings) -> Header:
    """Return what an image's header says. Raises: InvalidInput naming what is wrong and what to do."""
    if not data:
        raise InvalidInput(where, "is an empty image; leave it out")
    if len(data) > limits.max_bytes:
        raise InvalidInput(
            where,
            f"has {len(data):,} bytes, at most {limits.max_bytes:,} are taken; make the image smaller, or raise "
            "MEMOS_IMAGES__MAX_BYTES",
        )
    if _MARKUP.match(data[:1024].removeprefix(b"\xef\xbb\xbf")):
        raise InvalidInput(where, "is SVG or a web page, which may hold programs; convert it to PNG")
    _check_webp(where, data, limits)
    try:
        with Pillow.open(io.BytesIO(data), formats=tuple(MEDIA_TYPES)) as image:
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            _check_size(where, *image.size, limits)
            exif = _exif(image.info.get("exif"))
            turned = exif.orientation >= 5
            width, height = image.size[::-1] if turned else image.size
            # The other pictures in a phone's JPEG are no animation.
            animated = kind != "JPEG" and bool(getattr(image, "is_animated", False))
            _check_whole(where, kind, data, image)
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise InvalidInput(where, f"has far more than {limits.max_pixels:,} pixels; make the image smaller") from error
    except UnidentifiedImageError as error:
        raise InvalidInput(
            where, f"is no image of a known format; use {', '.join(MEDIA_TYPES)}, and the file's own bytes"
        ) from error
    except _DAMAGED as error:
        raise InvalidInput(where, "is a damaged image; save or send it again") from error
    return Header(kind, MEDIA_TYPES[kind], width, height, exif.taken_at, exif.orientation, animated)


def _check_size(where: str, width: int, height: int, limits: ImageSettings) -> None:
    if width < 1 or height < 1:
        raise InvalidInput(where, f"is {width}×{height} pixels; there is nothing to see")
    if width * height > limits.max_pixels or max(width, height) > _MOST_SIDE:
        raise InvalidInput(
            where,
            f"is {width:,}×{height:,} pixels, at most {limits.max_pixels:,} and {_MOST_SIDE:,} a side are taken; make "
            "the image smaller, or raise MEMOS_IMAGES__MAX_PIXELS",
        )


def _check_webp(where: str, data: bytes, limits: ImageSettings) -> None:
    """Look at a WebP's size and length first: its decoder takes memory for the canvas when it is opened."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return
    if len(data) < 30 or len(data) < int.from_bytes(data[4:8], "little") + 8:
        raise InvalidInput(where, "is a WebP that was cut off; save or send it again")
    match data[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    _check_size(where, width, height, limits)


def _check_whole(where: str, kind: str, data: bytes, image: Pillow.Image) -> None:
    """Refuse a file that was cut off, where that can be seen without decoding it."""
    if kind == "PNG":
        image.verify()
        cut = b"IEND" not in data
    elif kind == "JPEG":
        cut = not _has_end(data)
    else:
        cut = False
    if cut:
        raise InvalidInput(where, f"is a {kind} that was cut off; save or send it again")


def _has_end(data: bytes) -> bool:
    """Say whether a JPEG's own end is there: a thumbnail has one too, and phones append whole films behind it."""
    at = 2
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, at)
        if found is None:
            return False
        if data[found.end() - 1] == 0xD9:
            return True
        at = found.end() + max(2, int.from_bytes(data[found.end() : found.end() + 2], "big"))
    return False


@dataclass(frozen=True, slots=True)
class _Exif:
    taken_at: str | None = None
    orientation: int = 1


def _exif(raw: object) -> _Exif:
    """Return what a camera wrote; odd metadata is no reason to refuse the picture."""
    if not isinstance(raw, bytes):
        return _Exif()
    exif = Pillow.Exif()
    try:
        exif.load(raw)
        details = exif.get_ifd(_DETAILS)
    except _DAMAGED:
        return _Exif()
    orientation = exif.get(_ORIENTATION)
    upright = orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1
    return _Exif(_taken(details.get(_TAKEN), details.get(_TAKEN_OFFSET)), upright)


def _taken(value: object, offset: object) -> str | None:
    """Return a camera's time as ISO 8601, with an offset when the camera knew it."""
    if not isinstance(value, str):
        return None
    try:
        # The camera's own time: it has no zone of its own.
        moment = datetime.strptime(value.strip("\0 "), "%Y:%m:%d %H:%M:%S")  # noqa: DTZ007
    except ValueError:
        return None
    known = isinstance(offset, str) and _OFFSET.fullmatch(offset.strip("\0 "))
    return moment.isoformat() + (known[0] if known else "")
