"""Which model serves which purpose, when it is opened, and that an erasure empties what it remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from memos import MemOS, Settings
from memos.core.ports import ChatMessage
from memos.core.settings import ChatSettings
from memos.errors import BackendUnavailable
from memos.llm.client import LLMClients
from memos.llm.usage import UsageMeter
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.openai_server import OpenAIServer, answer

CHAT = ChatSettings(base_url="http://127.0.0.1:1/v1", model="small", api_key=SecretStr("k"), timeout_s=7)
OTHER = ChatSettings(base_url="http://127.0.0.1:2/v1", model="large")


def made(settings: Settings) -> tuple[LLMClients, list[ScriptedChat]]:
    opened: list[ScriptedChat] = []

    def open_model(each: ChatSettings) -> ScriptedChat:
        opened.append(ScriptedChat(lambda _: f"answer {len(opened)}", name=each.model or ""))
        return opened[-1]

    return LLMClients(settings, open_model), opened


def test_without_a_model_there_are_no_askers() -> None:
    askers, opened = made(Settings())
    assert (askers.reader, askers.chat) == (None, None)
    assert opened == []


def test_one_model_serves_every_purpose_and_is_opened_when_asked_for() -> None:
    askers, opened = made(Settings(chat_model=CHAT))
    assert opened == []
    assert askers.reader is askers.chat is askers.get("chat")
    assert len(opened) == 1


def test_a_purpose_may_have_a_model_of_its_own() -> None:
    askers, opened = made(Settings(chat_model=CHAT, reader_model=OTHER))
    assert askers.reader is not askers.chat
    assert [model.name for model in opened] == ["large", "small"]


def test_images_are_for_a_model_that_is_said_to_see() -> None:
    askers, opened = made(Settings(chat_model=CHAT))
    assert (askers.vision, askers.has("vision"), opened) == (None, False, [])
    askers, opened = made(Settings(chat_model=CHAT, vision_model=OTHER))
    assert askers.has("vision")
    assert askers.vision is not askers.chat
    assert [model.name for model in opened] == ["large", "small"]


def test_given_models_serve_what_they_are_given_for() -> None:
    chat, seer = ScriptedChat(["x"], name="chat"), ScriptedChat(["x"], name="seer")

    def opens(settings: ChatSettings) -> ScriptedChat:
        raise AssertionError("a configured model is opened beside a given one")

    askers = LLMClients(Settings(), opens, chat, seer)
    assert (askers.has("chat"), askers.has("vision")) == (True, True)
    assert askers.chat is askers.reader is not askers.vision
    assert askers.vision is not None
    assert askers.vision.model == "seer"
    askers.close()
    assert not (chat.closed or seer.closed)
    assert LLMClients(Settings(), opens, chat).vision is None


def test_a_reader_may_be_the_only_one() -> None:
    askers, _ = made(Settings(reader_model=OTHER))
    assert askers.reader is not None
    assert askers.chat is None


def test_closing_closes_what_was_opened_and_opens_nothing_more() -> None:
    askers, opened = made(Settings(chat_model=CHAT, reader_model=OTHER))
    assert askers.chat is not None
    askers.close()
    askers.close()
    assert [model.closed for model in opened] == [True]
    with pytest.raises(BackendUnavailable):
        _ = askers.reader


def test_forgetting_reaches_every_asker() -> None:
    askers, opened = made(Settings(chat_model=CHAT, reader_model=OTHER))
    meter = UsageMeter("x")
    for _ in range(2):
        for each in (askers.chat, askers.reader):
            assert each is not None
            each.complete_text([ChatMessage("user", "hi")], meter=meter)
        askers.forget()
    assert [len(model.requests) for model in opened] == [2, 2]


# Settings


def test_a_purpose_changes_single_fields_of_the_chat_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "CHAT_MODEL__BASE_URL": "http://127.0.0.1:1/v1/",
        "CHAT_MODEL__MODEL": "small",
        "CHAT_MODEL__API_KEY": "k",
        "CHAT_MODEL__TIMEOUT_S": "5",
        "CHAT_MODEL__PREFIX_CACHE": "salt",
        "READER_MODEL__MODEL": "large",
        "VISION_MODEL__BASE_URL": "http://127.0.0.1:2/v1",
        "VISION_MODEL__MODEL": "other",
    }.items():
        monkeypatch.setenv(f"MEMOS_{name}", value)
    settings = Settings()
    chat, reader, vision = (settings.model_for(purpose) for purpose in ("chat", "reader", "vision"))
    assert chat is not None
    assert reader == chat.model_copy(update={"model": "large"})
    assert vision is not None
    assert vision.api_key is None  # a key goes to no endpoint but its own
    assert (vision.timeout_s, vision.prefix_cache) == (5, "off")


@pytest.mark.parametrize(
    "groups",
    [
        {"chat_model": {"model": "m"}},
        {"chat_model": {"api_key": "k"}},
        {"reader_model": {"model": "m"}},
        {"vision_model": {"base_url": "http://h/v1", "model": "m"}, "reader_model": {"model": "m"}},
    ],
    ids=str,
)
def test_a_model_without_an_endpoint_is_refused(groups: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="BASE_URL"):
        Settings(**groups)


@pytest.mark.parametrize(
    "wrong",
    [{"timeout_s": 0}, {"parallel": 0}, {"max_tokens": 0}, {"prefix_cache": "yes"}, {"modle": "m"}],
    ids=str,
)  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatSettings(base_url="http://h/v1", model="m", **wrong)


# An open installation


def test_an_erasure_leaves_no_remembered_answer(tmp_path: Path, settings: Settings) -> None:
    model = ScriptedChat(lambda request: f"heard: {request.messages[-1].content}")
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos:
        [item] = memos.add(["Caroline lives in Lyon"]).item_ids
        reader = memos._installation.askers.reader
        assert reader is not None
        asked, meter = [ChatMessage("user", "Caroline lives in Lyon")], UsageMeter("reading")
        for _ in range(2):
            assert "Lyon" in reader.complete_text(asked, meter=meter)
        assert len(model.requests) == 1
        assert memos.erase(item).state == "purged"
        reader.complete_text(asked, meter=meter)
        assert len(model.requests) == 2
    assert not model.closed  # whoever gave it may go on using it


def test_an_installation_asks_the_endpoint_in_its_settings(tmp_path: Path, settings: Settings) -> None:
    with OpenAIServer([answer("In Lyon.")]) as server:
        configured = settings.model_copy(update={"chat_model": server.settings()})
        with MemOS.open(tmp_path, settings=configured, embedder=WordEmbedder()) as memos:
            asker = memos._installation.askers.reader
            assert asker is not None
            assert asker.complete_text([ChatMessage("user", "hi")], meter=UsageMeter("x")) == "In Lyon."
        with pytest.raises(BackendUnavailable):
            asker.complete_text([ChatMessage("user", "again")], meter=UsageMeter("x"))


def test_an_installation_whose_model_is_down_opens_and_works(tmp_path: Path, settings: Settings) -> None:
    configured = settings.model_copy(update={"chat_model": CHAT})
    with MemOS.open(tmp_path, settings=configured, embedder=WordEmbedder()) as memos:
        memos.add(["Caroline lives in Lyon"])
        assert memos.search("Caroline").hits


def test_an_unknown_argument_is_refused_and_an_unknown_variable_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOS_EMBEDDER", "e5")
    monkeypatch.setenv("MEMOS_EMBED__THREADS", "3")
    assert Settings().embed.threads == 3
    with pytest.raises(ValidationError, match="time_zne") as told:
        Settings(time_zne="Mandrake")  # type: ignore[call-arg]
    assert "Mandrake" not in str(told.value)
