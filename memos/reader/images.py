"""Read the image parts of messages: data URLs, bytes and, where allowed, web addresses; pixels are not decoded.

An image becomes a mark in the text, the part without its bytes, and a `Picture` stored with the message.
"""

from __future__ import annotations

import binascii
import hashlib
import io
import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from PIL import Image as Pillow
from PIL import UnidentifiedImageError

from memos.core.clock import new_id
from memos.core.ports import ImageSource
from memos.core.text.validation import check_text
from memos.core.types import Json, Picture
from memos.errors import InvalidInput, shown

MEDIA_TYPES: Final = {kind: f"image/{kind.lower()}" for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP")}
_MOST_SIDE: Final = 32_767
MAX_IMAGE_BYTES: Final = 20 * 2**20
MAX_IMAGE_PIXELS: Final = 50_000_000
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
    format: str
    media_type: str
    width: int
    height: int
    taken_at: str | None
    orientation: int
    animated: bool


def read_header(where: str, data: bytes) -> Header:
    if not data:
        raise InvalidInput(where, "is an empty image; leave it out")
    if len(data) > MAX_IMAGE_BYTES:
        raise InvalidInput(
            where, f"has {len(data):,} bytes, more than the limit of {MAX_IMAGE_BYTES:,}; make the image smaller"
        )
    if _MARKUP.match(data[:1024].removeprefix(b"\xef\xbb\xbf")):
        raise InvalidInput(where, "is SVG or HTML, which can contain scripts; convert it to PNG")
    _check_webp(where, data)
    try:
        with Pillow.open(io.BytesIO(data), formats=tuple(MEDIA_TYPES)) as image:
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            _check_size(where, *image.size)
            taken_at, orientation = _exif(image.info.get("exif"))
            width, height = image.size[::-1] if orientation >= 5 else image.size
            # The other pictures in a phone's JPEG are no animation.
            animated = kind != "JPEG" and bool(getattr(image, "is_animated", False))
            _check_whole(where, kind, data, image)
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise InvalidInput(where, f"has far more than {MAX_IMAGE_PIXELS:,} pixels; make the image smaller") from error
    except UnidentifiedImageError as error:
        raise InvalidInput(where, f"is not an image of a supported format; use {', '.join(MEDIA_TYPES)}") from error
    except _DAMAGED as error:
        raise InvalidInput(where, "is a damaged image; send another copy") from error
    return Header(kind, MEDIA_TYPES[kind], width, height, taken_at, orientation, animated)


def _check_size(where: str, width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise InvalidInput(where, f"is {width}×{height} pixels; an image needs at least 1×1")
    if width * height > MAX_IMAGE_PIXELS or max(width, height) > _MOST_SIDE:
        raise InvalidInput(
            where,
            f"is {width:,}×{height:,} pixels, more than the limit of {MAX_IMAGE_PIXELS:,} pixels or {_MOST_SIDE:,} "
            "per side; make the image smaller",
        )


def _check_webp(where: str, data: bytes) -> None:
    """Check a WebP's size first: its decoder allocates the canvas on opening."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return
    if len(data) < 30 or len(data) < int.from_bytes(data[4:8], "little") + 8:
        raise InvalidInput(where, "is a truncated WebP; send another copy")
    match data[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    _check_size(where, width, height)


def _check_whole(where: str, kind: str, data: bytes, image: Pillow.Image) -> None:
    if kind == "PNG":
        image.verify()
    if (kind == "PNG" and b"IEND" not in data) or (kind == "JPEG" and not _has_end(data)):
        raise InvalidInput(where, f"is a truncated {kind}; send another copy")


def _has_end(data: bytes) -> bool:
    """Return True if a JPEG is complete: thumbnails have an end marker too, and phones append whole videos."""
    at = 2
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, at)
        if found is None:
            return False
        if data[found.end() - 1] == 0xD9:
            return True
        at = found.end() + max(2, int.from_bytes(data[found.end() : found.end() + 2], "big"))
    return False


def _exif(raw: object) -> tuple[str | None, int]:
    """Return when a picture was taken, and its orientation, from 1 (upright) to 8."""
    if not isinstance(raw, bytes):
        return None, 1
    exif = Pillow.Exif()
    try:
        exif.load(raw)
        details = exif.get_ifd(_DETAILS)
    except _DAMAGED:
        return None, 1
    given = exif.get(_ORIENTATION)
    orientation = given if isinstance(given, int) and 1 <= given <= 8 else 1
    return _taken(details.get(_TAKEN), details.get(_TAKEN_OFFSET)), orientation


def _taken(value: object, offset: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        # The camera's own time: it has no zone of its own.
        moment = datetime.strptime(value.strip("\0 "), "%Y:%m:%d %H:%M:%S")  # noqa: DTZ007
    except ValueError:
        return None
    known = isinstance(offset, str) and _OFFSET.fullmatch(offset.strip("\0 "))
    return moment.isoformat() + (known[0] if known else "")


KINDS: Final = ("image_url", "image")
"""Types of content parts that are images: OpenAI's, and one with bytes."""

_MOST_IMAGES: Final = 100
_MOST_BYTES_OF_ONE: Final = 10
_CAPTION_BYTES: Final = 4_096
_NAME_CHARS: Final = 200
_URL_BYTES: Final = 8_192
_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*)(?P<more>(?:;[^;,]*)*),", re.IGNORECASE)
_REMOTE: Final = re.compile(r"https?:", re.IGNORECASE)
# Control characters and what turns the direction of writing: a name must not look like another one.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


@dataclass(frozen=True, slots=True)
class ImagePart:
    mark: str
    kept: Json
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class _GivenImage:
    data: bytes
    media_type: str = ""
    name: str = ""
    source: str = ""


@dataclass(slots=True)
class ImageParts:
    source: ImageSource | None = None
    count: int = 0
    size_bytes: int = 0

    def read(self, where: str, part: Mapping[str, Json], rest: Mapping[str, Json]) -> ImagePart:
        caption, name = _label(where, part, "caption"), _label(where, part, "name")
        given = self._given(where, part)
        if given is None:
            words = [word for word in (caption, name) if word]
            return ImagePart(f"[image: {' · '.join(words)}]" if words else "[image]", dict(rest))
        self._count(where, given)
        header = read_header(where, given.data)
        name = name or file_name(given.name)
        digest = hashlib.sha256(given.data).hexdigest()
        stored_as = name or f"image.{header.format.lower()}"
        picture = Picture(new_id(), stored_as, header.media_type, given.data, digest, _info(header, given.source))
        told = {
            "id": picture.file,
            "name": picture.name,
            "media_type": header.media_type,
            "sha256": digest,
            "bytes": len(given.data),
            "width": header.width,
            "height": header.height,
        }
        return ImagePart(mark(caption, name, header), {**rest, "file": told}, picture)

    def _given(self, where: str, part: Mapping[str, Json]) -> _GivenImage | None:
        if part["type"] == "image":
            return self._of_data(f"{where}.data", part.get("data"), part.get("media_type"))
        inner = part.get("image_url")
        url = inner.get("url") if isinstance(inner, Mapping) else inner
        if url is None or url == "":
            return None
        if not isinstance(url, str):
            raise InvalidInput(f"{where}.image_url", "must be {'url': …} with a data URL or an http(s) URL")
        here = f"{where}.image_url.url"
        if url[:5].lower() == "data:":
            return self._of_data_url(here, url)
        check_text(here, url, _URL_BYTES)
        if not _REMOTE.match(url):
            raise InvalidInput(here, "is neither a data URL nor an http(s) URL; give the image's bytes")
        if self.source is None:
            raise InvalidInput(
                here,
                "is a URL, but fetching images is off; give the image as a data URL, or set MEMOS_SERVER__FETCH_FILES",
            )
        got = self.source.fetch(here, url)
        return _GivenImage(got.data, got.media_type, got.name, got.source)

    def _of_data(self, where: str, data: Json, media_type: Json) -> _GivenImage:
        if media_type is not None:
            _check_media_type(where, media_type)
        if isinstance(data, bytes | bytearray | memoryview):
            return _GivenImage(bytes(data))
        if isinstance(data, str):
            return _GivenImage(self._decoded(where, data))
        raise InvalidInput(where, f"must be bytes, or base64 as a string, not {type(data).__name__}")

    def _of_data_url(self, where: str, url: str) -> _GivenImage:
        head = _DATA_URL.match(url, 0, 256)
        if head is None or not head["more"].lower().endswith(";base64"):
            raise InvalidInput(where, "must be a data URL with base64, such as data:image/png;base64,iVBORw0…")
        _check_media_type(where, head["type"])
        return _GivenImage(self._decoded(where, url[head.end() :]), head["type"])

    def _decoded(self, where: str, text: str) -> bytes:
        if len(text) * 3 // 4 > MAX_IMAGE_BYTES + 2:
            raise InvalidInput(where, f"has more than {MAX_IMAGE_BYTES:,} bytes; make the image smaller")
        try:
            return b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(where, "is not valid base64; use letters, digits, + and /, with = as padding") from error

    def _count(self, where: str, given: _GivenImage) -> None:
        self.count += 1
        self.size_bytes += len(given.data)
        most = _MOST_BYTES_OF_ONE * MAX_IMAGE_BYTES
        if self.count > _MOST_IMAGES or self.size_bytes > most:
            raise InvalidInput(where, f"exceeds {_MOST_IMAGES} images or {most:,} bytes per add; use several adds")


def without_bytes(part: Mapping[str, Json]) -> dict[str, Json]:
    rest = {key: value for key, value in part.items() if key not in ("data", "file")}
    inner = rest.get("image_url")
    if isinstance(inner, Mapping):
        rest["image_url"] = {key: value for key, value in inner.items() if key != "url"}
    elif isinstance(inner, str):
        rest["image_url"] = {}
    return rest


def mark(caption: str, name: str, header: Header) -> str:
    # In small letters: the format is no name of anything.
    size = f"{header.width}×{header.height} {header.format.lower()}"
    words = [caption, name, "" if header.taken_at is None else header.taken_at[:10], size]
    return f"[image: {' · '.join(word for word in words if word)}]"


def file_name(raw: str) -> str:
    name = _UNSHOWN.sub(" ", re.split(r"[/\\]", unquote(raw))[-1])
    return " ".join(name.split())[:_NAME_CHARS]


def _label(where: str, part: Mapping[str, Json], key: str) -> str:
    value = part.get(key)
    if value is None:
        return ""
    text = check_text(f"{where}.{key}", value, _CAPTION_BYTES)
    return file_name(text) if key == "name" else " ".join(_UNSHOWN.sub(" ", text).split())


def _check_media_type(where: str, value: Json) -> None:
    if not isinstance(value, str) or not (value == "" or value.lower().startswith("image/")):
        raise InvalidInput(where, f"is {shown(value)}; expected an image type such as image/png")
    if "svg" in value.lower():
        raise InvalidInput(where, f"is SVG, which can contain scripts; convert it to {', '.join(MEDIA_TYPES)}")


def _info(header: Header, source: str) -> dict[str, Json]:
    info: dict[str, Json] = {"width": header.width, "height": header.height, "format": header.format}
    more = {"taken_at": header.taken_at, "source": source, "animated": header.animated}
    if header.orientation != 1:
        info["orientation"] = header.orientation
    return info | {key: value for key, value in more.items() if value}
