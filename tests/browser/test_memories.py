"""Memories: a table to filter and page through, actions on many, a memory with its history, and receipts."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way, assert_fits

HOSTILE = "<img src=x onerror=alert(1)> **bold** [link](javascript:alert(1)) \u202eesrever " + "long " * 2_000


@pytest.fixture(scope="module")
def talk(site: Site) -> list[str]:
    said = [
        {"role": "user", "content": f"Number {number} of the otters swims.", "chat_time": f"2025-03-{day:02}"}
        for number in range(60)
        for day in [number // 3 + 1]
    ]
    ids = site.memos.add(said, cube="ana", actor="ana", conversation="otters", tags=["zoo"]).item_ids
    site.memos.add("Ben keeps a walrus.", cube="ben", actor="ben", tags=["secret"])
    return list(ids)


def _add(site: Site, text: str) -> str:
    return site.memos.add(text, cube="ana", actor="ana").item_ids[0]


def _select(page: Page, text: str) -> None:
    page.locator("tr", has_text=text).get_by_role("checkbox").check()


def test_every_way(open_page: Open, site: Site, talk: list[str]) -> None:
    site.memos.update(talk[0], "Number 0 of the otters dives.", actor="ana")
    assert_every_way(open_page, "/memories?cube=ana", "tbody tr[data-row]", "ana")
    assert_every_way(open_page, f"/memories/{talk[0]}", "#history", "ana")


def test_filters_narrow_and_pages_go_on(open_page: Open, talk: list[str]) -> None:
    page = open_page("/memories?cube=ana&conversation=otters", "ana")
    rows = page.locator("tbody tr[data-row]")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Show more").click()
    expect(rows).to_have_count(60)
    page.get_by_label("Contains").fill("number 7 of")
    expect(rows).to_have_count(1)
    assert "q=number+7+of" in page.url
    page.get_by_role("link", name="Contains number 7 of").click()
    expect(rows).to_have_count(50)
    page.locator("#facets").get_by_label("2025-03").check()
    expect(page).to_have_url(re.compile("month=2025-03"))
    page.get_by_label("Order").select_option("said_at")
    expect(rows.first).to_contain_text("2025-03-01")
    page.reload()
    expect(rows.first).to_contain_text("2025-03-01")
    page.get_by_label("Contains").fill("no such words")
    expect(page.get_by_text("Nothing matches")).to_be_visible()


def test_many_are_tagged_forgotten_and_brought_back(open_page: Open, site: Site, talk: list[str]) -> None:
    first, second = _add(site, "The heron stands."), _add(site, "The heron flies.")
    page = open_page("/memories?cube=ana&q=heron", "ana")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert").filter(has_text="Select memories first")).to_be_visible()
    page.get_by_role("link", name="Back to the memories").click()
    page.get_by_label("Select all shown").check()
    expect(page.locator("#selected")).to_have_text("2 selected")
    page.get_by_label("What to do with them").select_option("tag")
    page.get_by_label("Tags to add or remove").fill("bird")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Add tags: 2 memories")).to_be_visible()
    assert site.memos.get(first, actor="ana").tags == ()
    page.get_by_role("button", name="Add tags").click()
    expect(page.get_by_text("Tagged: 2 memories.")).to_be_visible()
    assert site.memos.get(second, actor="ana").tags == ("bird",)
    page.get_by_role("link", name="Back to the memories").click()
    assert "q=heron" in page.url
    _select(page, "stands")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Forget: 1 memory")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Restored: 1 memory.")).to_be_visible()
    assert site.memos.get(first, actor="ana").memory == "The heron stands."
    page.goto(f"{site.url}/console/memories?cube=ana&q=heron")
    page.get_by_label("All that match").check()
    page.get_by_label("What to do with them").select_option("export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Continue").click()
    told = json.loads(download.value.path().read_text())
    assert {each["id"] for each in told["memories"]} == {first, second}


def test_erasing_ends_with_a_receipt(open_page: Open, site: Site) -> None:
    gone = _add(site, "The safe's number is 7319.")
    page = open_page(f"/memories/{gone}", "ana")
    page.get_by_role("link", name="Erase").click()
    expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    page.get_by_label("I understand").check()
    page.get_by_role("button", name="Erase for good").click()
    expect(page.get_by_role("heading", name="Receipt of an erasure")).to_be_visible()
    expect(page.get_by_text("Erased from every store.")).to_be_visible(timeout=30_000)
    assert_accessible(page)
    assert_fits(page)
    assert "7319" not in page.content()
    receipt = page.url
    page.goto(f"{site.url}/console/memories/{gone}")
    expect(page.get_by_role("heading", name="Receipt of an erasure")).to_be_visible()
    other = open_page(receipt.removeprefix(f"{site.url}/console"), "ben")
    expect(other.get_by_role("heading", name="Not found")).to_be_visible()


def test_an_edit_makes_a_version_and_a_conflict_overwrites_nothing(open_page: Open, site: Site) -> None:
    item = _add(site, "The fox lives in the north wood.")
    page = open_page(f"/memories/{item}", "ana")
    page.locator("#edit > summary").click()
    page.get_by_label("Text").fill("The fox lives in the south wood.")
    page.get_by_label("Why, for the history").fill("it moved")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved as a new version")).to_be_visible()
    history = page.get_by_role("region", name="History")
    expect(history.locator("ins").first).to_have_text("south")
    expect(history.locator("del").first).to_have_text("north")
    expect(history.get_by_text("it moved")).to_be_visible()
    page.locator("#edit > summary").click()
    page.get_by_label("Text").fill("The fox lives in the east wood.")
    site.memos.update(item, "The fox lives in the west wood.", actor="ana")
    page.get_by_role("button", name="Save").click()
    alert = page.get_by_role("alert").filter(has_text="Not saved")
    expect(alert.locator("ins")).to_have_text("east")
    expect(page.get_by_label("Text")).to_have_value("The fox lives in the east wood.")
    assert site.memos.get(item, actor="ana").memory == "The fox lives in the west wood."
    assert_accessible(page)
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.locator(".memory-text")).to_have_text("The fox lives in the north wood.")


def test_a_memory_shows_its_conversation_and_is_pinned_and_forgotten(
    open_page: Open, site: Site, talk: list[str]
) -> None:
    page = open_page(f"/memories/{talk[30]}", "ana")
    expect(page.locator("mark")).to_have_text("Number 30 of the otters swims.")
    expect(page.locator(".beside")).to_have_count(6)
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    page.get_by_role("button", name="It is right").click()
    expect(page.get_by_text("Noted that it is right")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget").click()
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_text("Restored as a new version.")).to_be_visible()


def test_by_keyboard_alone(open_page: Open, site: Site) -> None:
    item = _add(site, "The kingfisher dives.")
    page = open_page("/memories?cube=ana", "ana")
    page.locator("#facets fieldset").first.wait_for()
    page.keyboard.press("f")
    page.keyboard.type("kingfisher")
    expect(page.locator("tbody tr[data-row]")).to_have_count(1)
    page.locator("#words").blur()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("#selected")).to_have_text("1 selected")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/memories/{item}**")
    page.keyboard.press("e")
    page.keyboard.press("End")
    page.keyboard.type(" Often.")
    page.get_by_role("button", name="Save").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".memory-text")).to_contain_text("Often.")


def test_another_tenant_sees_nothing(open_page: Open, site: Site, talk: list[str]) -> None:
    page = open_page("/memories?cube=ana", "ben")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.goto(f"{site.url}/console/memories/{talk[3]}")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.goto(f"{site.url}/console/memories?cube=ben")
    expect(page.locator("#facets fieldset").first).to_be_visible()
    assert "otters" not in page.content()


def test_hostile_text_stays_text(open_page: Open, site: Site) -> None:
    item = site.memos.add(HOSTILE, cube="ana", actor="ana", conversation=HOSTILE[:60], tags=[HOSTILE[:60]]).item_ids[0]
    for path in (f"/memories/{item}", f"/memories?cube=ana&q={quote('onerror')}"):
        page = open_page(path, "ana", phone=True)
        expect(page.locator(".memory-text, .memories .open").first).to_contain_text("<img src=x")
        assert page.locator("main img").count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
        assert_fits(page)


def test_the_table_is_quick(open_page: Open, talk: list[str]) -> None:
    page = open_page("/memories?cube=ana", "ana")
    began = time.perf_counter()
    page.reload()
    page.wait_for_selector("tbody tr[data-row]")
    assert time.perf_counter() - began < 2
