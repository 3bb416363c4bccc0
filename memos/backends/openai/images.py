"""Makes images as small as a model needs them, upright, on white and without metadata; knows no endpoint."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Final

from PIL import Image as Pillow
from PIL import ImageOps

from memos.core.ports import ChatRequest, Image
from memos.errors import ModelError

MOST_SIDE: Final = 1024
_QUALITY: Final = 85
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# What Pillow's decoders raise for damaged files; the last two are its guard against decompression bombs.
_UNREADABLE: Final = (
    OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, ZeroDivisionError,
    MemoryError, Pillow.DecompressionBombError, Warning,
)  # fmt: skip


def with_small_images(request: ChatRequest) -> ChatRequest:
    """Return a request whose images are ready to be sent. Raises: ModelError for one that cannot be decoded."""
    if not any(message.images for message in request.messages):
        return request
    messages = (replace(each, images=tuple(map(small, each.images))) for each in request.messages)
    return replace(request, messages=tuple(messages))


def small(image: Image) -> Image:
    """Return an image of at most `MOST_SIDE` pixels a side; of an animated one its first frame. Raises: ModelError."""
    try:
        data = _jpeg(image.data)
    except _UNREADABLE as error:
        raise ModelError(
            f"The image cannot be decoded ({type(error).__name__}): it is damaged or too large; add it again whole.",
            permanent=True,
        ) from error
    return Image("image/jpeg", data)


def _jpeg(data: bytes) -> bytes:
    with Pillow.open(io.BytesIO(data), formats=_FORMATS) as opened:
        opened.draft("RGB", (MOST_SIDE, MOST_SIDE))  # a JPEG is decoded at a fraction of its size
        opened.thumbnail((MOST_SIDE, MOST_SIDE))
        upright = _upright(opened)
        if upright.has_transparency_data:
            canvas = Pillow.new("RGBA", upright.size, "white")
            canvas.alpha_composite(upright.convert("RGBA"))
            upright = canvas
        flat = upright.convert("RGB")
    out = io.BytesIO()
    # A new image: nothing of the file's own `info` is written.
    clean = Pillow.new("RGB", flat.size)
    clean.paste(flat)
    clean.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()


def _upright(image: Pillow.Image) -> Pillow.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _UNREADABLE:  # odd metadata is no reason not to look at the picture
        return image
