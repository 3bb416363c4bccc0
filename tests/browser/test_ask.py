"""The page Ask: hits with their sources and scores, filters, corrections with undo, why not, and the prompt text."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way, assert_fits

HOSTILE = "<img src=x onerror=alert(1)> my [password](javascript:alert(2)) is \u202etxet\u202c **bold** " + "x" * 10_000
RENT = "/ask?q=How+much+is+the+rent%3F"


@pytest.fixture(scope="module", autouse=True)
def talk(site: Site) -> None:
    """What Ana said."""
    said = [
        ("We moved to the flat by the river.", "2026-01-05T10:00"),
        ("The rent is 900 euros.", "2026-01-05T10:01"),
        ("The landlord is called Aydin.", "2026-01-05T10:02"),
        ("The rent was raised to 980.", "2026-06-01T10:00"),
    ]
    messages = [{"role": "user", "name": "Ana", "content": text, "chat_time": at} for text, at in said]
    _, older, _, newer = site.memos.add(messages, cube="ana", actor="ana", conversation="flat").item_ids
    site.memos.review.decide(newer, older, holds=True, actor="ana")
    for text in ("My cake needs four eggs.", "The parrot is called Kiwi.", "The bike code is 4711.", HOSTILE):
        site.memos.add({"role": "user", "name": "Ana", "content": text}, cube="ana", actor="ana", tags=["things"])


def hit(page: Page, text: str) -> Locator:
    return page.locator("article", has_text=text).first


def test_hits_show_what_holds_where_it_was_said_and_why(open_page: Open) -> None:
    page = open_page(RENT, "ana")
    expect(page.locator("article").first).to_contain_text("raised to 980")
    old = hit(page, "The rent is 900 euros.")
    expect(old).to_contain_text("replaced by")
    expect(old.get_by_role("link", name="The rent was raised to 980.")).to_have_attribute(
        "href", re.compile("/console/memories/")
    )
    old.locator("summary", has_text="What was said around").click()
    expect(old.locator("mark")).to_have_text("The rent is 900 euros.")
    expect(old.locator(".talk")).to_contain_text("The landlord is called Aydin.")
    old.get_by_text("Why it is here").click()
    expect(old.locator("table.parts svg").first).to_be_visible()
    expect(old.locator("table.parts")).to_contain_text("It shares words")


def test_what_replaces_what_is_decided_and_taken_back(open_page: Open, site: Site) -> None:
    page = open_page(RENT, "ana")
    old = hit(page, "The rent is 900 euros.")
    old.get_by_role("button", name="Still true").click()
    expect(old.locator(".told")).to_contain_text("Still true.")
    assert {found.standing for found in site.memos.search("rent 900", cubes=["ana"], actor="ana")} == {"current"}
    old.get_by_role("button", name="Decide otherwise").click()
    expect(old.locator(".told")).to_contain_text("No longer true.")
    page.reload()
    expect(old).to_contain_text("replaced by")


def test_a_filter_is_built_and_is_in_the_address(open_page: Open) -> None:
    page = open_page(RENT, "ana")
    page.get_by_text("Filter and settings").click()
    page.get_by_label("Field of condition 1").fill("tags")
    page.get_by_label("Operator of condition 1").select_option("in")
    page.get_by_label("Value of condition 1").fill("things, others")
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("Field of condition 2").fill("memory")
    page.get_by_label("Operator of condition 2").select_option("like")
    page.get_by_label("Value of condition 2").fill("EGGS")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("article")).to_have_count(1)
    expect(page.locator("article")).to_contain_text("four eggs")
    asked = parse_qs(urlsplit(page.url).query)
    assert asked["filter"] == ['{"tags": {"in": ["things", "others"]}, "memory": {"like": "EGGS"}}']
    page.reload()
    expect(page.get_by_label("Value of condition 2")).to_have_value("EGGS")
    page.get_by_label("Field of condition 1").fill("speakr")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="speakr")).to_be_visible()


def test_two_settings_are_compared_side_by_side(open_page: Open) -> None:
    page = open_page(f"{RENT}&compare=1&b_top_k=1&b_as_of=2020-01-01", "ana")
    table = page.locator("table.compared")
    expect(table).to_contain_text("Compared with: 0 in")
    expect(table).to_contain_text("only here")
    assert_accessible(page)
    assert_fits(page)


def test_a_correction_says_what_it_did_and_is_undone(open_page: Open, site: Site) -> None:
    page = open_page("/ask?q=cake", "ana")
    found = hit(page, "four eggs")
    found.get_by_text("Correct", exact=True).first.click()
    found.get_by_label("What is right").fill("three eggs, not four")
    found.get_by_role("button", name="Correct").click()
    expect(found.locator(".told")).to_contain_text("Corrected.")
    expect(found.locator(".told")).to_contain_text("My cake needs three eggs.")
    expect(found.locator(".told code")).to_have_count(2)
    found.get_by_role("button", name="Undo").click()
    expect(found.locator(".told")).to_contain_text("Undone")
    texts = [item.memory for item in site.memos.memories.list(cube="ana", actor="ana")]
    assert "My cake needs four eggs." in texts
    assert not [text for text in texts if "three" in text]


def test_a_wrong_answer_a_forgotten_and_a_pinned_memory(open_page: Open, site: Site) -> None:
    page = open_page("/ask?q=parrot", "ana")
    found = hit(page, "Kiwi")
    found.get_by_text("Wrong answer").click()
    found.get_by_label("What is the right answer?").fill("The parrot is called Mango, not Kiwi")
    found.get_by_role("button", name="Tell memory").click()
    expect(found.locator(".told")).to_contain_text("The parrot is called Mango.")
    found.get_by_role("button", name="Forget").click()
    expect(found.locator(".told")).to_contain_text("Forgotten")
    listed = {item.memory for item in site.memos.memories.list(cube="ana", actor="ana")}
    assert "The parrot is called Mango." not in listed
    found.get_by_role("button", name="Undo").click()
    expect(found.locator(".told")).to_contain_text("Undone")
    found.get_by_role("button", name="Pin").click()
    expect(found.locator(".told")).to_contain_text("Pinned")
    working = site.memos.tiers.working_memory(cube="ana", actor="ana").items
    assert "The parrot is called Mango." in {item.memory for item in working}
    found.get_by_role("button", name="Unpin").click()
    expect(found.locator(".told")).to_contain_text("Unpinned")
    found.get_by_role("button", name="Confirm").click()
    expect(page.locator("#notice")).to_contain_text("Confirmed.")


def test_why_not_by_words_and_by_id(open_page: Open, site: Site) -> None:
    page = open_page(f"{RENT}&top_k=1", "ana")
    why = page.get_by_label("A memory that should have been found")
    why.fill("bike code")
    page.get_by_role("button", name="Find out").click()
    answer = page.locator(".answer").first
    expect(answer).to_contain_text("The bike code is 4711.")
    expect(answer).to_contain_text("place")
    [item] = site.memos.memories.list(cube="ana", actor="ana", filter={"memory": {"like": "raised to 980"}})
    why.fill(item.id)
    page.get_by_role("button", name="Find out").click()
    expect(page.locator(".answer")).to_have_count(1)
    expect(page.locator(".answer")).to_contain_text("It is found.")
    page.reload()
    expect(page.locator(".answer")).to_contain_text("It is found.")


def test_the_prompt_and_the_code_are_what_others_would_get(
    open_page: Open, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = open_page(f"{RENT}&top_k=2&budget=200&filter=%7B%22conversation%22%3A%22flat%22%7D", "ana")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expected = site.memos.search(
        "How much is the rent?", cubes=["ana"], actor="ana", top_k=2, token_budget=200, filter={"conversation": "flat"}
    )
    expect(page.locator("#prompt")).to_have_text(expected.context)
    expect(page.get_by_text(f"{expected.context_tokens} tokens, estimated")).to_be_visible()
    page.locator("section", has_text="What a model gets").get_by_role("button", name="Copy").click()
    expect(page.locator("#notice")).to_contain_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == expected.context
    monkeypatch.setenv("MEMOS_API_KEY", site.ana)
    exec(page.locator("#python").text_content() or "", {})
    assert expected.context in capsys.readouterr().out


def test_by_keyboard_alone(open_page: Open) -> None:
    page = open_page("/", "ana")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    page.keyboard.type("bike code")
    page.keyboard.press("Enter")
    found = hit(page, "4711")
    expect(found).to_be_visible()
    page.locator("h1").focus()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(found.locator("table.parts")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("The bike code is 4712")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(found.locator(".told")).to_contain_text("4712")


def test_nobody_finds_anothers_and_hostile_text_stays_text(open_page: Open) -> None:
    other = open_page("/ask?q=rent&cube=ben", "ben")
    expect(other.get_by_text("Nothing found")).to_be_visible()
    other.goto(other.url.replace("cube=ben", "cube=ana"))
    expect(other.get_by_role("heading", name="Not found")).to_be_visible()
    page = open_page("/ask?q=password", "ana", phone=True)
    found = hit(page, "<img src=x onerror=alert(1)>")
    expect(found).to_contain_text("[password](javascript:alert(2))")
    found.locator("summary", has_text="What was said around").click()
    expect(found.locator("mark")).to_be_visible()
    assert page.locator("main img").count() == 0
    assert_fits(page)


def test_every_way(open_page: Open) -> None:
    assert_every_way(open_page, "/ask", "h1", "ana")
    assert_every_way(open_page, f"{RENT}&min_relevance=0&why=bike+code", "article", "ana")
