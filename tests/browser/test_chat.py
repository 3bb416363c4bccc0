"""The page Chat: streamed answers with what was recalled and written, the prompt, and what it says without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest
from playwright.sync_api import expect

from memos import MemOS, Settings
from memos.api.console.view import csrf_token
from memos.core.ports import ChatRequest
from memos.core.settings import IndexSettings, LimitSettings
from memos.errors import ModelError
from tests.api.keys import keys_of
from tests.api.running import running
from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way, assert_fits
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import Answer, ScriptedChat

HOSTILE = "<img src=x onerror=alert(1)> [here](javascript:alert(2)) \u202etxet\u202c " + "y" * 10_000


def a_blue_door(_: ChatRequest) -> Answer:
    return "A blue door [m1]."


SCRIPT: list[Callable[[ChatRequest], Answer]] = [a_blue_door]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server whose model says what `SCRIPT` has; Ana and Ben have a secret each."""
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home = tmp_path_factory.mktemp("chat")

    def answer(request: ChatRequest) -> Answer:
        return SCRIPT[0](request)

    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=ScriptedChat(answer)) as memos,
        running(memos) as url,
    ):
        found = Site(memos, url, *keys_of(memos))
        memos.add("My secret is a blue door.", cube="ana", actor="ana")
        memos.add("My secret is a red door.", cube="ben", actor="ben")
        yield found


@pytest.fixture
def says() -> Iterator[Callable[[Answer], None]]:
    def script(answer: Answer) -> None:
        SCRIPT[:] = [lambda _: answer]

    yield script
    SCRIPT[:] = [a_blue_door]


def test_an_answer_shows_what_was_recalled_and_what_was_written(open_page: Open, site: Site) -> None:
    page = open_page("/chat", "ana")
    page.get_by_label("Message").fill("What is my secret?")
    page.get_by_role("button", name="Send").click()
    answer = page.locator(".turn.theirs")
    expect(answer.locator(".said")).to_have_text("A blue door.")
    recalled = answer.locator(".recalled li", has_text="My secret is a blue door.")
    expect(recalled).to_contain_text("cited")
    assert "/console/memories/" in (recalled.get_by_role("link").get_attribute("href") or "")
    expect(answer.locator(".written li")).to_have_text(["What is my secret?", "A blue door."])
    expect(answer.locator(".numbers")).to_contain_text("tokens read")
    assert "conversation=console-" in page.url
    assert_accessible(page)
    page.reload()
    expect(page.locator(".turn .said")).to_have_text(["What is my secret?", "A blue door."])
    expect(recalled).to_contain_text("cited")
    expect(answer.locator(".written li")).to_have_text(["What is my secret?", "A blue door."])
    assert_accessible(page)
    page.get_by_role("link", name="New conversation").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_without_remembering_nothing_is_written(open_page: Open, site: Site) -> None:
    before = len(site.memos.memories.list(cube="ana", actor="ana"))
    page = open_page("/chat", "ana")
    page.get_by_label("Remember this exchange").uncheck()
    page.get_by_label("Message").fill("And the door?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".theirs .written")).to_have_text("Nothing")
    assert len(site.memos.memories.list(cube="ana", actor="ana")) == before


@pytest.mark.parametrize("store", ["1", ""])
def test_without_scripts_the_answer_is_a_page(site: Site, store: str) -> None:
    secret = site.memos.sessions.start(site.memos.keys.authenticate(site.ana)).secret
    fields = {"csrf": csrf_token(secret), "q": "What is my secret?", "conversation": f"plain{store}", "store": store}
    path = f"{site.url}/console/chat/ask?cube=ana"
    with httpx2.Client(cookies={"memos_session": secret}, follow_redirects=True, timeout=60) as http:
        answer = http.post(path, data=fields)
        assert len(answer.history) == (1 if store else 0)  # what is stored has an address
        assert "A blue door." in answer.text
        assert "My secret is a blue door." in answer.text
        assert ("Nothing" in answer.text) is not bool(store)
        page = http.post(path, data={**fields, "part": "prompt"}).text
    assert "[user]\nWhat is my secret?" in page


def test_a_failure_keeps_the_question(open_page: Open, says: Callable[[Answer], None]) -> None:
    says(ModelError("The model is out of order."))
    page = open_page("/chat", "ana")
    page.get_by_label("Message").fill("What is my secret?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.wrong")).to_contain_text("The model is out of order.")
    expect(page.get_by_label("Message")).to_have_value("What is my secret?")


def test_by_keyboard_alone_with_the_prompt(open_page: Open) -> None:
    page = open_page("/", "ana")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/chat**")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("What is my secret?")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Show the prompt")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#prompt-text")).to_contain_text("My secret is a blue door.")
    page.get_by_label("Message").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".turn.theirs .said")).to_have_text("A blue door.")


def test_hostile_text_stays_text_and_nobody_is_told_anothers(
    open_page: Open, says: Callable[[Answer], None], site: Site
) -> None:
    says(HOSTILE)
    page = open_page("/chat", "ben", phone=True)
    page.get_by_label("Message").fill(HOSTILE)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.theirs")).to_contain_text("[here](javascript:alert(2))")
    expect(page.locator(".theirs .numbers")).to_be_visible()
    assert page.locator("main img").count() == 0
    assert_fits(page)
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)
    assert page.locator("main img").count() == 0
    expect(page.locator("main")).not_to_contain_text("blue")
    page.goto(f"{site.url}/console/chat?cube=ana&q=secret&part=prompt")
    expect(page.get_by_role("alert").filter(has_text="ana")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("blue")


def test_every_way(open_page: Open, site: Site) -> None:
    site.memos.chat("What is my secret?", cubes=["ana"], actor="ana", conversation="kept")
    assert_every_way(open_page, "/chat?conversation=kept&q=door&part=prompt", "#prompt-text", "ana")


def test_without_a_model_it_says_how_to_set_one_and_shows_the_prompt(
    open_page: Open, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(site.memos.models), "chat_named", lambda self, model: None)
    page = open_page("/chat", "ana")
    expect(page.locator("#no-model")).to_contain_text("MEMOS_CHAT_MODEL__BASE_URL")
    expect(page.get_by_role("button", name="Send")).to_have_count(0)
    page.get_by_label("Message").fill("What is my secret?")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.locator("#prompt-text")).to_contain_text("My secret is a blue door.")
    assert_accessible(page)
    assert_fits(page)
