"""Tiers in a browser: topics by heat, moves with reasons, presets, by mouse and keys; nobody sees another's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from memos.memcube.ledger import segments
from tests.browser.conftest import Open, Site, assert_every_way

GARDEN, ENGINE = "Tomato plants in our garden need compost", "My motorcycle engine lost oil today"
HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(2)) \u202egnp.exe " + "walrus" * 1_600


@pytest.fixture(scope="module", autouse=True)
def topics(site: Site) -> None:
    """Give ana two topics; what was asked about the garden made it hot, and it was read."""
    memos, ana = site.memos, {"cube": "ana", "actor": "ana"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "_GATHERING", timedelta(0))
        for name, text in (("garden", GARDEN), ("engine", ENGINE), ("hostile", HOSTILE)):
            said = [f"{text}, {number}." for number in range(2)] + [f"Thing {number}." for number in range(10)]
            memos.add([{"role": "user", "content": each} for each in said], conversation=name, **ana)
            memos.tasks.wait(timeout_s=60)
        for _ in range(7):
            memos.search("garden compost tomato", cubes=["ana"], actor="ana", top_k=2)
        memos._scheduler.accesses.flush()
        for topic in memos.tiers.segments(**ana):
            memos.tasks.wait(timeout_s=60)
            memos.tiers.move(topic.id, "long", **ana)
        memos.tasks.wait(timeout_s=60)


def test_the_page_every_way(open_page: Open) -> None:
    assert_every_way(open_page, "/tiers", ".presets", "ana")


def test_a_topic_is_pinned_archived_and_brought_back(open_page: Open, site: Site) -> None:
    page = open_page("/tiers", "ana")
    engine = page.locator(".topics tbody tr", has_text="motorcycle")
    expect(page.locator(".topics tbody tr").first).to_contain_text("Tomato")
    engine.get_by_role("button", name="Pin").click()
    expect(engine).to_contain_text("pinned")
    engine.get_by_role("button", name="Unpin").click()
    expect(engine).not_to_contain_text("pinned")
    engine.get_by_role("button", name="Archive").click()
    expect(engine.locator(".badge")).to_have_text("archive")
    expect(page.get_by_role("status").filter(has_text="Archived")).to_be_visible()
    page.get_by_label("Show", exact=True).select_option("archived")
    expect(page.locator(".topics tbody tr")).to_have_count(1)
    engine.get_by_role("button", name="Bring back").click()
    expect(engine.get_by_role("button", name="Archive")).to_be_visible()
    page.reload()
    expect(page.locator(".moves")).to_contain_text("moved by hand by ana")
    expect(page.locator(".days")).to_be_visible()


def test_a_topic_has_its_messages_and_what_was_read_from_it(open_page: Open) -> None:
    page = open_page("/tiers", "ana")
    page.get_by_role("link", name="Tomato").first.click()
    page.wait_for_url("**/tiers/topic**")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tomato plants")
    expect(page.locator(".memories").last.get_by_role("link")).to_have_count(2)
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()


def test_moves_say_why_and_presets_are_compared(open_page: Open) -> None:
    page = open_page("/tiers/moves", "ana")
    expect(page.locator(".moves")).to_contain_text("hot: a heat of 5 or more")
    page.goto(page.url.replace("/tiers/moves", "/tiers/presets"))
    expect(page.get_by_role("columnheader", name="standard in use")).to_be_visible()
    for name in ("early", "lasting", "memoryos"):
        expect(page.get_by_role("columnheader", name=name)).to_be_visible()
    expect(page.locator(".presets")).to_contain_text("Tomato")


def test_by_keys_alone(open_page: Open) -> None:
    page = open_page("/tiers", "ana")
    expect(page.locator(".presets")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator(".topics tr.active")).to_contain_text("Tomato")
    page.keyboard.press("p")
    expect(page.locator(".topics tr", has_text="Tomato")).to_contain_text("pinned")
    page.keyboard.press("p")
    expect(page.locator(".topics tr", has_text="Tomato")).not_to_contain_text("pinned")
    page.keyboard.press("j")
    expect(page.locator(".topics tr.active")).not_to_contain_text("Tomato")
    page.keyboard.press("Enter")
    page.wait_for_url("**/tiers/topic**")


def test_nobody_else_sees_them_and_text_stays_text(open_page: Open, site: Site) -> None:
    other = open_page("/tiers", "ben")
    expect(other.locator("main")).not_to_contain_text("Tomato")
    segment = site.memos.tiers.segments(cube="ana", actor="ana")[0].id
    other.goto(f"{site.url}/console/tiers/topic?cube=ana&id={segment}")
    expect(other.locator("main")).not_to_contain_text("Tomato")
    page = open_page("/tiers", "ana")
    hostile = page.locator(".topics tbody tr", has_text="onerror")
    expect(hostile).to_contain_text("<img src=x onerror=alert(1)>")
    hostile.get_by_role("link").click()
    expect(page.locator(".memories").last).to_contain_text("[click](javascript:alert(2))")
    assert page.locator("main img").count() == 0
    assert page.locator('main a[href^="javascript"]').count() == 0


def test_an_empty_cube_says_what_to_do(open_page: Open, site: Site) -> None:
    site.memos.cubes.create("bare", actor="ana")
    page = open_page("/tiers?cube=bare", "ana")
    expect(page.locator("main")).to_contain_text("No topics yet")
    expect(page.locator("main")).to_contain_text("No history to compare on")
