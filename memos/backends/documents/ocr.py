"""Reads the text in pictures of pages, with the models that come inside the package rapidocr; knows no answer's form.

Runs in the child that reads a document, within bounds of pages, pixels and time; nothing is fetched or written.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps, UnidentifiedImageError

from memos.backends.documents.formats import Format, Unreadable

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
class Recognised:
    """Text that was read in a picture, and how sure the models are of it, from 0 to 1."""

    text: str
    confidence: float


def available() -> bool:
    """Say whether the extra `ocr` is installed."""
    return find_spec("rapidocr") is not None


class Recogniser:
    """Reads pictures until `deadline` (monotonic seconds) or until it has read as many as it may."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._left = MOST_OCR_PAGES
        self._engine = _engine()

    def may_go_on(self) -> bool:
        """Say whether there is time for another picture."""
        return self._left > 0 and time.monotonic() < self._deadline

    def read(self, picture: Image.Image) -> Recognised:
        """Return what a picture says, in lines from top to bottom, whichever side of it is up."""
        self._left -= 1
        best, upright = self._read(picture)
        for turn in _TURNS:
            if (best.confidence >= _UNSURE and upright) or not best.text or not self.may_go_on():
                break
            other, stands = self._read(picture.rotate(turn, expand=True))
            if other.text and (stands, other.confidence) > (upright, best.confidence):
                best, upright = other, stands
        return best

    def _read(self, picture: Image.Image) -> tuple[Recognised, bool]:
        """Return also whether the lines lie, as they do on a page that is not turned to its side."""
        import numpy  # noqa: PLC0415 - only here

        found = self._engine(numpy.ascontiguousarray(numpy.asarray(_smaller(picture))[:, :, ::-1]))
        if found.boxes is None or not found.txts:
            return Recognised("", 0.0), True
        boxes = [[[float(x), float(y)] for x, y in box] for box in found.boxes]
        weights = [len(text) for text in found.txts]
        sure = sum(float(score) * weight for score, weight in zip(found.scores, weights, strict=True))
        lying = sum(weight for box, weight in zip(boxes, weights, strict=True) if _width(box) >= _height(box))
        text = in_lines(boxes, found.txts)
        return Recognised(text, round(sure / max(1, sum(weights)), 3)), 2 * lying >= sum(weights)


def _engine() -> Callable[[Any], Any]:
    """Return the models of the package, named by their files so that none is ever looked for elsewhere."""
    try:
        import cv2  # noqa: PLC0415 - an optional extra
        import rapidocr  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise Unreadable(f"has pictures of text, and the extra `ocr` is broken ({error.name}): {EXTRA}") from error
    cv2.setNumThreads(1)
    models = Path(rapidocr.__file__).with_name("models")
    params: dict[str, Any] = {"Global.log_level": "critical", "Global.max_side_len": _LONGEST}
    for part, kind in (("Det", "det"), ("Rec", "rec")):
        found = sorted(models.glob(f"*_{kind}_*.onnx"))
        if not found:
            raise Unreadable(f"has pictures of text, and the installed rapidocr has no model to read them: {EXTRA}")
        params[f"{part}.model_path"] = str(found[0])
    # The third model turns lines by half; it takes good ones for turned too.
    params |= {"Global.use_cls": False, "Rec.rec_batch_num": 1}
    params |= {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    engine: Callable[[Any], Any] = rapidocr.RapidOCR(params=params)
    return engine


def in_lines(boxes: Sequence[Box], texts: Sequence[str]) -> str:
    """Return texts as they stand on a page: what is at one height is one line. Columns are read across."""
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


def _width(box: Box) -> float:
    return max(x for x, _ in box) - min(x for x, _ in box)


def _smaller(picture: Image.Image) -> Image.Image:
    """Return a picture in three colours, of no more pixels than the models are given."""
    share = _share(*picture.size)
    if share < 1:
        picture = picture.resize((max(1, round(picture.width * share)), max(1, round(picture.height * share))))
    return picture.convert("RGB")


def _share(width: float, height: float) -> float:
    return min(1.0, _LONGEST / max(width, height), math.sqrt(_MOST_PIXELS / (width * height)))


# Pictures


def drawn(page: Any) -> bool:
    """Say whether a page of a PDF shows anything."""
    import pypdfium2  # noqa: PLC0415 - an optional extra

    return bool(pypdfium2.raw.FPDFPage_CountObjects(page.raw) > 0)


def pictures(format_: Format, raw: bytes, numbers: Sequence[int]) -> Iterator[Image.Image]:
    """Yield the pages (from 1) of these numbers as they look. Raises: Unreadable."""
    return _of_pdf(raw, numbers) if format_ is Format.PDF else _of_image(format_, raw, numbers)


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
    """Return how many pictures an image file holds that are pages. Raises: Unreadable."""
    with _opened(format_, raw) as image:
        # Other kinds hold films, whose first picture stands for all.
        return int(getattr(image, "n_frames", 1)) if format_ is Format.TIFF else 1


def _of_image(format_: Format, raw: bytes, numbers: Sequence[int]) -> Iterator[Image.Image]:
    """Yield them turned as the camera was held."""
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
        raise Unreadable(f"cannot be read as {format_.name}: it is damaged, or not what it claims") from error
    _check_size(image)
    return image


def _check_size(image: Image.Image) -> None:
    pixels = image.width * image.height
    if pixels > MOST_IMAGE_PIXELS:
        raise Unreadable(f"has {pixels:,} pixels, at most {MOST_IMAGE_PIXELS:,} are taken; make it smaller")


def _on_white(image: Image.Image) -> Image.Image:
    """Return an image with white where it is transparent, since text is rarely white."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    share = _share(*image.size)
    image = image.convert("RGBA").resize((max(1, round(image.width * share)), max(1, round(image.height * share))))
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
