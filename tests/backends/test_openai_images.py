"""Images as an OpenAI-compatible endpoint gets them: small, upright, on white, without metadata."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image as Pillow

from memos.backends.openai.chat import MOST_SIDE, OpenAIChat, small
from memos.core.ports import ChatMessage, ChatRequest, Image
from tests.support.pictures import animation, photo, picture
from tests.support.servers.openai_server import OpenAIServer, answer, error


def sent(data: bytes) -> Pillow.Image:
    shown = small(Image("image/whatever", data))
    assert shown.media_type == "image/jpeg"
    image = Pillow.open(io.BytesIO(shown.data))
    assert image.format == "JPEG"
    return image


def near(colour: object, red: int, green: int, blue: int) -> bool:
    assert isinstance(colour, tuple)
    return all(abs(one - other) < 60 for one, other in zip(colour, (red, green, blue), strict=True))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_a_large_image_is_made_smaller(kind: str) -> None:
    image = sent(picture(kind, (3000, 1500)))
    assert image.size == (MOST_SIDE, MOST_SIDE // 2)
    assert near(image.getpixel((500, 250)), 0, 0, 128)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_every_kind_of_pixel_is_sent(mode: str) -> None:
    out = io.BytesIO()
    Pillow.new(mode, (30, 20)).save(out, "PNG")
    assert sent(out.getvalue()).size == (30, 20)


def test_a_small_image_is_not_made_larger() -> None:
    assert sent(picture(size=(3, 2))).size == (3, 2)


def test_what_can_be_seen_through_is_white() -> None:
    image = sent(picture(mode="RGBA", colour=(0, 0, 0, 0)))
    assert near(image.getpixel((40, 40)), 255, 255, 255)


def test_a_turned_photo_is_upright() -> None:
    image = sent(photo(orientation=6, size=(64, 32)))
    assert image.size == (32, 64)
    assert near(image.getpixel((28, 4)), 255, 0, 0)


def test_of_an_animation_the_first_frame_is_sent() -> None:
    assert near(sent(animation()).getpixel((10, 5)), 0, 0, 128)


def test_nothing_a_camera_wrote_is_sent() -> None:
    given = photo()
    assert b"secret description" in given
    assert b"secret description" not in small(Image("image/jpeg", given)).data
    assert sent(given).getexif() == {}


def test_the_wire_has_parts_of_text_and_data_urls() -> None:
    with OpenAIServer([answer("a square")]) as server:
        model = OpenAIChat(server.settings())
        shown = (Image("image/png", picture()), Image("image/gif", animation()))
        model.complete(ChatRequest((ChatMessage("system", "Look."), ChatMessage("user", "What is it?", shown))))
        model.close()
    system, user = server.asked[0].body["messages"]
    assert system == {"role": "system", "content": "Look."}
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "image_url"]
    assert user["content"][0]["text"] == "What is it?"
    for part in user["content"][1:]:
        head, _, data = part["image_url"]["url"].partition(",")
        assert head == "data:image/jpeg;base64"
        assert Pillow.open(io.BytesIO(base64.b64decode(data, validate=True))).size[0] in (64, 20)


def test_the_schema_in_words_stands_in_the_text_beside_the_image() -> None:
    with OpenAIServer(lambda asked: error(400, "no response_format") if "response_format" in asked.body else
                      answer('{"city": "Lyon"}')) as server:  # fmt: skip
        model = OpenAIChat(server.settings())
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        asked = ChatMessage("user", "Where?", (Image("image/png", picture()),))
        model.complete(ChatRequest((asked,), schema=schema))
        model.close()
    text, image = server.asked[-1].body["messages"][0]["content"]
    assert text["text"].startswith("Where?\n\nAnswer with nothing but one JSON object")
    assert image["type"] == "image_url"
