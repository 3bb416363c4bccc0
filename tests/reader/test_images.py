"""Image parts: what is read from headers, and everything odd or hostile that is refused before a pixel is decoded."""

from __future__ import annotations

import base64
import io
import struct
import tracemalloc
import zlib
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from PIL import Image

from memos.core.text.validation import MAX_MESSAGE_BYTES
from memos.core.types import Message
from memos.errors import InvalidInput
from memos.reader.arguments import json_copy
from memos.reader.images import MAX_IMAGE_BYTES, ImageParts, read_header
from memos.reader.messages import read_messages
from tests.support.pictures import animation, chunk, data_url, part, photo, picture, png_of


def read(*parts: Any) -> Message:
    given = [{"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}]
    [message] = read_messages(given, ZoneInfo("UTC"), datetime(2025, 1, 1, tzinfo=UTC))
    return message


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_each_format_is_known_by_its_bytes(kind: str) -> None:
    header = read_header("x", picture(kind))
    assert (header.format, header.media_type) == (kind, f"image/{kind.lower()}")
    assert (header.width, header.height, header.animated) == (64, 48, False)


@pytest.mark.parametrize("how", ["data URL", "bytes", "bytearray", "base64"])
def test_an_image_becomes_a_mark_a_reference_and_a_picture(how: str) -> None:
    data = picture()
    given: dict[str, Any] = {
        "data URL": part(data),
        "bytes": {"type": "image", "data": data},
        "bytearray": {"type": "image", "data": bytearray(data)},
        "base64": {"type": "image", "data": base64.b64encode(data).decode(), "media_type": "image/png"},
    }[how]
    message = read({**given, "name": "beach.png", "caption": "us at\nthe coast"})
    assert message.text == "look\n[image: us at the coast · beach.png · 64×48 png]"
    [one] = message.pictures
    assert (one.data, one.name, one.media_type) == (data, "beach.png", "image/png")
    assert "caption" not in one.info  # what people say stands in the message alone
    kept = message.content[1]
    assert kept["file"]["id"] == one.file
    assert base64.b64encode(data).decode()[:40] not in str(json_copy(message.content))


def test_what_else_a_part_says_is_kept() -> None:
    given = part(picture())
    given["image_url"] |= {"detail": "high", "crops": [[0, 1]]}
    kept = read(given).content[1]
    assert kept["type"] == "image_url"
    assert kept["image_url"] == {"detail": "high", "crops": [[0, 1]]}


def test_an_image_that_is_not_at_hand_is_a_mark() -> None:
    for inner in ({"url": ""}, {}, None):
        message = read({"type": "image_url", "image_url": inner})
        assert (message.text, message.pictures) == ("look\n[image]", ())
    assert read({"type": "image_url", "image_url": {}, "caption": "a dog"}).text == "look\n[image: a dog]"


def test_the_day_a_photo_was_taken_is_read_from_it() -> None:
    message = read(part(photo(), "image/jpeg", name="beach.jpg"))
    assert message.text == "look\n[image: beach.jpg · 2023-06-05 · 64×48 jpeg]"
    assert message.pictures[0].info["taken_at"] == "2023-06-05T10:11:12"
    assert read_header("x", photo(offset="+02:00")).taken_at == "2023-06-05T10:11:12+02:00"
    assert read_header("x", photo(offset="+99:99")).taken_at == "2023-06-05T10:11:12"
    assert read_header("x", photo(kind="WEBP")).taken_at == "2023-06-05T10:11:12"
    assert read_header("x", photo(kind="PNG")).taken_at == "2023-06-05T10:11:12"


@pytest.mark.parametrize("taken", ["0000:00:00 00:00:00", "soon", "", "2023:13:45 99:99:99", "\0" * 19, "9" * 4000])
def test_an_odd_date_is_no_date(taken: str) -> None:
    assert read_header("x", photo(taken)).taken_at is None
    assert read_header("x", photo(offset=taken)).taken_at == "2023-06-05T10:11:12"


def test_a_turned_photo_has_the_size_it_is_shown_in() -> None:
    header = read_header("x", photo(orientation=6))
    assert (header.width, header.height, header.orientation) == (48, 64, 6)
    assert read_header("x", photo(orientation=99)).orientation == 1


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # Pillow tells of it
@pytest.mark.parametrize("cut", [12, 20, 30, 60, 80])
def test_damaged_metadata_is_no_reason_to_refuse_a_photo(cut: int) -> None:
    data = bytearray(photo())
    at = data.index(b"Exif\0\0") + 6
    data[at + cut : at + cut + 24] = b"\xff" * 24
    assert read_header("x", bytes(data)).width == 64


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_an_animation_is_told(kind: str) -> None:
    assert read_header("x", animation(kind)).animated


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (2**31 - 1, 2**31 - 1), (200_000, 1), (0, 5)])
def test_a_bomb_is_refused_by_its_header(width: int, height: int) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidInput, match=r"pixels|damaged|not an image"):
        read(part(png_of(width, height)))
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_a_webp_that_says_to_be_huge_is_refused_before_it_is_opened() -> None:
    data = bytearray(animation("WEBP"))
    assert data[12:16] == b"VP8X"
    data[24:30] = struct.pack("<I", 16_382)[:3] * 2
    with pytest.raises(InvalidInput, match="16,383×16,383 pixels"):
        read(part(bytes(data), "image/webp"))


def test_a_second_header_does_not_hide_a_bomb() -> None:
    second = chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0))
    with pytest.raises(InvalidInput):
        read(part(png_of(8, 8, second)))


def test_a_text_that_unpacks_to_gigabytes_is_refused() -> None:
    bomb = chunk(b"zTXt", b"note\0\0" + zlib.compress(b"\0" * 50_000_000))
    with pytest.raises(InvalidInput, match="damaged"):
        read(part(png_of(8, 8, bomb)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.98])
def test_a_file_that_was_cut_off_is_refused(kind: str, share: float) -> None:
    out = io.BytesIO()
    Image.effect_noise((80, 80), 50).convert("RGB").save(out, kind)
    whole = out.getvalue()
    assert read_header("x", whole).width == 80
    with pytest.raises(InvalidInput, match=r"truncated|damaged|not an image"):
        read_header("x", whole[: int(len(whole) * share)])


@pytest.mark.parametrize("progressive", [False, True])
def test_a_photo_with_a_thumbnail_and_a_film_behind_it_is_whole(progressive: bool) -> None:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "a thumbnail " + "\u00ff"
    noise = Image.effect_noise((200, 200), 90).convert("RGB")
    noise.save(out, "JPEG", exif=exif.tobytes() + picture("JPEG"), progressive=progressive, restart_marker_rows=1)
    photo_alone = out.getvalue()
    film = b"\xff\xda\x00\x08" + bytes(range(256)) * 40 + b"\xff\xda"
    assert read_header("x", photo_alone + film).width == 200
    with pytest.raises(InvalidInput, match="truncated"):
        read_header("x", photo_alone[:-2])


def test_a_picture_of_several_pictures_is_a_jpeg() -> None:
    out = io.BytesIO()
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("navy", "white")]
    frames[0].save(out, "MPO", save_all=True, append_images=frames[1:])
    header = read_header("x", out.getvalue())
    assert (header.format, header.media_type, header.width) == ("JPEG", "image/jpeg", 30)


@pytest.mark.parametrize(
    "data",
    [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"\xef\xbb\xbf  <?xml version='1.0'?><svg/>", b"<!DOCTYPE html>"],
)
def test_svg_and_pages_are_refused_whatever_they_are_called(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="SVG"):
        read(part(data))


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"", "empty"), (b"hello", "not an"), (b"\x89PNG\r\n\x1a\n", "damaged|not an"), (b"%PDF-1.7", "not an"),
     (b"II*\0" + b"\0" * 400, "not an"), (b"\xff\xd8\xff\xe0", "damaged|not an image")],
)  # fmt: skip
def test_what_is_no_image_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read({"type": "image", "data": data})


@pytest.mark.parametrize(
    "url",
    ["data:image/png,abc", "data:image/png;base64", "data:;base64,***", "data:image/png;base64,iVBO Rw0=",
     "data:image/png;base64,abc", "data:image/png;base64,é", "data:text/html;base64,aGk=",
     "data:image/svg+xml;base64,PHN2Zy8+", "data:image/png;base64,%69VBORw0K", "file:///etc/passwd", "ftp://a/b.png",
     "beach.png", "DATA:image/png,x", "data:" + "x" * 5000],
)  # fmt: skip
def test_addresses_without_an_image_in_them_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[0\]\.content\[1\]"):
        read({"type": "image_url", "image_url": {"url": url}})


@pytest.mark.parametrize("data", [None, 5, [1, 2], {"a": 1}, True])
def test_data_is_bytes_or_their_base64(data: Any) -> None:
    with pytest.raises(InvalidInput, match="must be bytes"):
        read({"type": "image", "data": data})


def test_a_wrong_image_type_is_corrected_by_the_bytes() -> None:
    message = read(part(picture("JPEG"), "image/png"))
    assert message.pictures[0].media_type == "image/jpeg"
    assert message.content[1]["file"]["media_type"] == "image/jpeg"


def test_a_web_address_is_refused_while_fetching_is_off() -> None:
    with pytest.raises(InvalidInput, match="MEMOS_SERVER__FETCH_FILES"):
        read({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})


def test_what_is_too_large_is_refused() -> None:
    for large in (part(b"\0" * (MAX_IMAGE_BYTES + 1)), {"type": "image", "data": b"\0" * (MAX_IMAGE_BYTES + 1)}):
        with pytest.raises(InvalidInput, match="make the image smaller"):
            read(large)


def test_an_add_has_so_many_images_and_so_many_bytes() -> None:
    small = part(picture())
    assert len(read(*[small] * 100).pictures) == 100
    with pytest.raises(InvalidInput, match="100 images"):
        read(*[small] * 101)
    images = ImageParts(size_bytes=10 * MAX_IMAGE_BYTES)
    with pytest.raises(InvalidInput, match="bytes per add"):
        images.read("here", small, {})


@pytest.mark.parametrize(
    ("name", "shown"),
    [("/home/ann/../beach.png", "beach.png"), (r"C:\photos\beach.png", "beach.png"),
     ("a\nb\u202egnp.exe", "a b gnp.exe"),
     ("x" * 900, "x" * 200), ("   ", ""), ("a%2Fb.png", "b.png")],
)  # fmt: skip
def test_a_name_is_one_line_without_a_path(name: str, shown: str) -> None:
    message = read(part(picture(), name=name))
    assert message.text == f"look\n[image: {shown + ' · ' if shown else ''}64×48 png]"
    assert message.pictures[0].name == (shown or "image.png")


@pytest.mark.parametrize("key", ["caption", "name"])
@pytest.mark.parametrize("value", [5, "nul \0", "\ud800", "x" * 5000])
def test_odd_labels_are_refused(key: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        read(part(picture(), **{key: value}))


def test_the_same_request_with_bytes_has_the_same_digest() -> None:
    assert json_copy({"data": b"\0\1"}) == json_copy({"data": bytearray(b"\0\1")}) != json_copy({"data": b"\0\2"})


def test_a_data_url_is_not_counted_as_text() -> None:
    large = png_of(8, 8, *[chunk(b"tEXt", b"note\0" + b"x" * 500_000)] * 4)
    assert len(data_url(large)) > MAX_MESSAGE_BYTES
    assert read(part(large)).text == "look\n[image: 8×8 png]"
