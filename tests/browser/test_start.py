"""The first page: what to do on a first run, and later how much is remembered and what changed."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Open, Site, assert_every_way
from tests.reader.importers.exports import zipped

HOSTILE = "<img src=x onerror=alert(1)> **bold** [link](javascript:alert(1)) \u202egnp.exe"


def test_a_first_memory_is_added_and_asked_for(open_page: Open) -> None:
    page = open_page("/", "ana")
    expect(page.get_by_text("Nothing is remembered here yet")).to_be_visible()
    page.get_by_label("What should be remembered?").fill("I live in Lyon and work at the harbour.")
    page.get_by_role("button", name="Remember").click()
    page.get_by_role("link", name="Ask about it").click()
    page.get_by_label("Question").fill("Where do I live?")
    page.keyboard.press("Enter")
    expect(page.locator("#results")).to_contain_text("I live in Lyon")


def test_changes_are_listed_newest_first_as_text_and_by_keyboard(open_page: Open, site: Site) -> None:
    first, last = (site.memos.add(text, cube="ana", actor="ana").item_ids[0] for text in ("I have a cat.", HOSTILE))
    page = open_page("/?cube=ana")
    rows = page.locator(".changes li")
    expect(rows.first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(rows.nth(1)).to_contain_text("I have a cat.")
    assert page.locator(".changes img, .changes a[href^=javascript]").count() == 0
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(1)).to_have_class("active")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith(f"/console/memories/{first}")
    assert last != first


def test_another_tenant_sees_nothing_of_it(open_page: Open, site: Site) -> None:
    site.memos.add("My locker code is 4711.", cube="ana", actor="ana")
    page = open_page("/", "ben")
    expect(page.get_by_role("heading", name="ben")).to_be_visible()
    assert "4711" not in page.content()
    page.goto(f"{site.url}/console/?cube=ana")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    assert "4711" not in page.content()


def test_files_are_uploaded_with_their_outcome(open_page: Open, tmp_path: Path) -> None:
    good, bad = tmp_path / "note.txt", tmp_path / "broken.json"
    good.write_text("The harbour opens at six.", encoding="utf-8")
    bad.write_text('{"messages": [', encoding="utf-8")
    page = open_page("/?cube=ana", "ana")
    chats = zipped(tmp_path / "chats.zip", {"chat.json": [{"role": "user", "content": "The ferry leaves at seven."}]})
    page.locator("#files").set_input_files([good, bad, chats])
    expect(page.locator("[data-uploads] li", has_text="chats.zip")).to_contain_text("1 messages of 1 conversations")
    expect(page.locator("[data-uploads] li", has_text="note.txt")).to_contain_text("is read: 1 passage")
    expect(page.locator("[data-uploads] li", has_text="broken.json")).to_contain_text("JSON")


def test_the_page_every_way(open_page: Open, site: Site) -> None:
    site.memos.add("I play the cello.", cube="ana", actor="ana")
    assert_every_way(open_page, "/?cube=ana", ".changes")
    assert_every_way(open_page, "/", "#add-title", "ben")
