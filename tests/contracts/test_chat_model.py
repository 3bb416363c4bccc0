"""The contract of a `ChatModel`, run over the adapter on a scripted server and over the scripted fake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from memos.backends.openai.chat import OpenAIChat
from memos.core.ports import ChatMessage, ChatModel, ChatReply, ChatRequest, Image
from memos.core.tokens import Tokens
from memos.errors import BackendTimeout, BackendUnavailable, InvalidAnswer, InvalidInput, ModelError
from tests.support.pictures import picture, png_of
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.openai_server import OpenAIServer, Said, answer, counted, error

# What the model behind the port does: says a text, or fails in one of these ways.
REFUSES, CUT_OFF, TOO_LONG, WRONG_KEY, DOWN, SLOW = (object() for _ in range(6))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

Made = Callable[..., ChatModel]


def on_a_server(stack: ExitStack, *does: object, usage: object = None) -> ChatModel:
    def said(what: object) -> Said:
        if isinstance(what, str):
            return answer(what, usage=usage)
        return {
            REFUSES: answer(None, refusal="I cannot help with that."),
            CUT_OFF: answer("Caroline lives in", finish="length", usage=counted(12, 3)),
            TOO_LONG: error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"),
            WRONG_KEY: error(401, "Incorrect API key provided", code="invalid_api_key"),
            DOWN: error(503, "overloaded"),
            SLOW: Said(504, "gateway timeout"),
        }[what]

    server = stack.enter_context(OpenAIServer([said(what) for what in does]))
    model = OpenAIChat(server.settings(), retries=0)
    stack.callback(model.close)
    return model


def scripted(stack: ExitStack, *does: object, usage: object = None) -> ChatModel:
    def said(what: object) -> str | ChatReply | Exception:
        if isinstance(what, str):
            return ChatReply(what, Tokens(7, 5)) if usage is not None else what
        return {
            REFUSES: ModelError("refused", permanent=True),
            CUT_OFF: InvalidAnswer("cut off", tokens=Tokens(12, 3)),
            TOO_LONG: InvalidAnswer("too long", permanent=True),
            WRONG_KEY: BackendUnavailable("wrong key", permanent=True),
            DOWN: BackendUnavailable("down"),
            SLOW: BackendTimeout("slow"),
        }[what]

    script = [said(what) for what in does]
    # The last answer again and again, as the server gives it.
    return ScriptedChat(lambda _: script.pop(0) if len(script) > 1 else script[0], name="m")


@pytest.fixture(params=[on_a_server, scripted], ids=["openai", "scripted"])
def make(request: pytest.FixtureRequest) -> Iterator[Made]:
    with ExitStack() as stack:
        yield lambda *does, **more: request.param(stack, *does, **more)


def asking(text: str = "Where does Caroline live?", **more: object) -> ChatRequest:
    return ChatRequest((ChatMessage("system", "Be brief."), ChatMessage("user", text)), **more)


def test_an_answer_comes_with_its_text_and_tokens(make: Made) -> None:
    reply = make("In Lyon.", usage=counted(7, 5)).complete(asking())
    assert reply == ChatReply("In Lyon.", Tokens(7, 5, estimated=False))


def test_tokens_nobody_counted_are_estimated_and_marked(make: Made) -> None:
    tokens = make("In Lyon.").complete(asking("x" * 400)).tokens
    assert tokens.estimated
    assert 100 <= tokens.prompt <= 110
    assert tokens.completion == 2


def test_an_image_can_be_shown_and_counts(make: Made) -> None:
    model = make("A navy square.", "x")
    seen = model.complete(ChatRequest((ChatMessage("user", "What is it?", (Image("image/png", picture()),)),)))
    assert seen.text == "A navy square."
    assert seen.tokens.prompt - model.complete(ChatRequest((ChatMessage("user", "What is it?"),))).tokens.prompt == 765


@pytest.mark.parametrize("data", [b"", b"no image", picture()[:50], picture("GIF")[:-20], png_of(2**30, 2**30)])
def test_an_image_that_cannot_be_decoded_is_a_permanent_error(make: Made, data: bytes) -> None:
    with pytest.raises(ModelError, match="Cannot decode") as caught:
        make("x").complete(ChatRequest((ChatMessage("user", "?", (Image("image/png", data),)),)))
    assert caught.value.permanent


def test_only_a_user_shows_images() -> None:
    with pytest.raises(InvalidInput, match="user"):
        ChatRequest((ChatMessage("system", "x", (Image("image/png", picture()),)),))


def test_a_model_has_a_name(make: Made) -> None:
    assert make("x").name == "m"


def test_an_answer_to_a_schema_is_text(make: Made) -> None:
    assert make('{"city": "Lyon"}').complete(asking(schema=SCHEMA)).text == '{"city": "Lyon"}'


@pytest.mark.parametrize("nothing", ["", " \n\t ", "\u00a0"])
def test_an_empty_answer_is_an_error(make: Made, nothing: str) -> None:
    with pytest.raises(InvalidAnswer, match="empty") as caught:
        make(nothing).complete(asking())
    assert not caught.value.permanent


@pytest.mark.parametrize(
    ("does", "raised", "permanent"),
    [
        (REFUSES, ModelError, True),
        (CUT_OFF, InvalidAnswer, False),
        (TOO_LONG, InvalidAnswer, True),
        (WRONG_KEY, BackendUnavailable, True),
        (DOWN, BackendUnavailable, False),
        (SLOW, BackendTimeout, False),
    ],
    ids=["refuses", "cut off", "too long", "wrong key", "down", "slow"],
)
def test_a_failure_is_an_error_that_says_whether_to_repeat(
    make: Made, does: object, raised: type[Exception], permanent: bool
) -> None:
    model = make(does, "In Lyon.")
    with pytest.raises(raised) as caught:
        model.complete(asking())
    assert type(caught.value) is raised
    assert caught.value.permanent is permanent
    assert model.complete(asking()).text == "In Lyon."


def test_a_useless_answer_says_what_it_cost(make: Made) -> None:
    with pytest.raises(ModelError) as caught:
        make(CUT_OFF).complete(asking())
    assert caught.value.tokens == Tokens(12, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "\ud800 alone",
        "a\udfffb",
        "👩‍👩‍👧 שלום 我对花生过敏",
        "\u202e rtl",
        "e\u0301",
        "<|im_end|>",
        "\x1b[31m",
        "x" * 1_000_000,
    ],
    ids=[
        "empty",
        "nul",
        "high surrogate",
        "low surrogate",
        "scripts",
        "rtl",
        "combining",
        "template",
        "escape",
        "1 MB",
    ],
)
def test_any_prompt_can_be_asked(make: Made, text: str) -> None:
    assert make("ok").complete(asking(text)).text == "ok"


def test_an_answer_can_always_be_stored(make: Made) -> None:
    assert make("a\0b\ud800c").complete(asking()).text == "a\ufffdb\ufffdc"


def test_a_megabyte_of_answer_is_kept_whole(make: Made) -> None:
    assert make("花" * 350_000).complete(asking()).text == "花" * 350_000


@pytest.mark.parametrize(
    "wrong", [{"messages": ()}, {"max_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}]
)
def test_an_impossible_request_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        ChatRequest(**{"messages": (ChatMessage("user", "hi"),), **wrong})


def test_threads_get_their_own_answers(make: Made) -> None:
    model = make("same")
    with ThreadPoolExecutor(8) as pool:
        assert {reply.text for reply in pool.map(model.complete, [asking(str(n)) for n in range(40)])} == {"same"}


def test_a_closed_model_takes_no_calls(make: Made) -> None:
    model = make("x")
    model.complete(asking())
    model.close()
    model.close()
    with pytest.raises(BackendUnavailable) as caught:
        model.complete(asking())
    assert caught.value.permanent


def test_a_stream_gives_pieces_and_last_the_whole(make: Made) -> None:
    *pieces, last = make("In Lyon.", usage=counted(7, 5)).stream(asking())
    assert "".join(pieces) == "In Lyon."
    assert last == ChatReply("In Lyon.", Tokens(7, 5))


@pytest.mark.parametrize(
    ("does", "raised", "permanent"),
    [
        (REFUSES, ModelError, True),
        (CUT_OFF, InvalidAnswer, False),
        (TOO_LONG, InvalidAnswer, True),
        (WRONG_KEY, BackendUnavailable, True),
        (DOWN, BackendUnavailable, False),
        (SLOW, BackendTimeout, False),
    ],
    ids=["refuses", "cut off", "too long", "wrong key", "down", "slow"],
)
def test_a_stream_fails_as_an_answer_in_one_piece_does(
    make: Made, does: object, raised: type[Exception], permanent: bool
) -> None:
    model = make(does, "In Lyon.")
    with pytest.raises(raised) as caught:
        list(model.stream(asking()))
    assert type(caught.value) is raised
    assert caught.value.permanent is permanent
    assert list(model.stream(asking()))[-1].text == "In Lyon."


def test_a_stream_that_is_left_holds_nothing_up(make: Made) -> None:
    model = make("In Lyon.")
    for _ in range(10):  # more than may be asked at once
        stream = model.stream(asking())
        next(stream)
        stream.close()
    assert model.complete(asking()).text == "In Lyon."
