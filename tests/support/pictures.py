"""Images made by tests: small real ones of each format, with EXIF, and hostile headers."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

from PIL import Image

TAKEN, OFFSET, DETAILS, ORIENTATION = 0x9003, 0x9011, 0x8769, 0x0112


def picture(kind: str = "PNG", size: tuple[int, int] = (64, 48), colour: Any = "navy", mode: str = "RGB") -> bytes:
    """Return an image file with a few pixels of another colour in its first corner."""
    image = Image.new(mode, size, colour)
    image.paste("red" if mode != "L" else 200, (0, 0, min(8, size[0]), min(8, size[1])))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def photo(
    taken: Any = "2023:06:05 10:11:12", offset: Any = None, orientation: Any = None, size: tuple[int, int] = (64, 48),
    kind: str = "JPEG",
) -> bytes:  # fmt: skip
    """Return a photo as a camera writes it."""
    exif = Image.Exif()
    details = exif.get_ifd(DETAILS)
    for tag, value in ((TAKEN, taken), (OFFSET, offset)):
        if value is not None:
            details[tag] = value
    if orientation is not None:
        exif[ORIENTATION] = orientation
    exif[0x010E] = "secret description of the camera"
    image = Image.new("RGB", size, "navy")
    image.paste("red", (0, 0, 16, 16))
    out = io.BytesIO()
    image.save(out, kind, exif=exif)
    return out.getvalue()


def animation(kind: str = "GIF") -> bytes:
    """Return an image of two frames, the first of them navy."""
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("navy", "white")]
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=100)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, *more: bytes) -> bytes:
    """Return a PNG whose header says this size, whatever its few pixels are."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body + chunk(b"IEND", b"")


def data_url(data: bytes, media_type: str = "image/png") -> str:
    """Return bytes as a data URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def part(data: bytes, media_type: str = "image/png", **more: Any) -> dict[str, Any]:
    """Return an image part in OpenAI's shape."""
    return {"type": "image_url", "image_url": {"url": data_url(data, media_type)}, **more}
