"""The timeline, people and things: days, differences, lives, the graph, merged names, other tenants, hostile text."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way, assert_fits

_LIFE = [
    ("I live in Paris.", "2025-01-14T09:00:00Z"),
    ("Zoe and I went to the opera with Bruno.", "2025-02-03T09:00:00Z"),
    ("I moved to Lyon.", "2025-05-17T09:00:00Z"),
    ("Bruno Keller met Zoe in Lyon.", "2025-06-01T09:00:00Z"),
]
_HOSTILE = "<img src=x onerror=alert(1)> [Mallory](https://evil.example) met Zoe \u202etxet \u202c" + "Evil " * 2000


@pytest.fixture(scope="module", autouse=True)
def told(site: Site) -> None:
    ids = []
    for text, at in _LIFE:
        message = {"role": "user", "name": "Ana", "content": text, "chat_time": at}
        ids += site.memos.add([message], cube="ana", actor="ana", conversation="life").item_ids
    site.memos.review.decide(ids[2], ids[0], holds=True, cube="ana", actor="ana")
    message = {"role": "user", "name": "<b>Eve</b>", "content": _HOSTILE, "chat_time": "2025-03-01T09:00:00Z"}
    site.memos.add([message], cube="ana", actor="ana", conversation="evil")


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        ("/timeline?at=2025-06-15", "article"),
        ("/timeline/difference?since=2025-03-01&until=2025-06-15", "article"),
        ("/timeline/life?name=Ana", ".life-line"),
        ("/people?all=1", "table"),
        ("/people/Ana", "table"),
        ("/people/graph", "#graph[data-ready]"),
    ],
)
def test_every_page_every_way(open_page: Open, path: str, ready: str) -> None:
    assert_every_way(open_page, path, ready, "ana")


def test_the_slider_and_the_date_show_a_day(open_page: Open) -> None:
    page = open_page("/timeline", "ana")
    values = page.get_by_role("region", name="Known values")
    expect(values).to_contain_text("Lyon")
    page.get_by_label("Day", exact=True).nth(1).fill("2025-02-10")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("heading", name="10 February 2025")).to_be_visible()
    expect(values).to_contain_text("Paris")
    expect(values).not_to_contain_text("Lyon")
    assert "at=2025-02-10" in page.url
    slider = page.get_by_role("slider", name="Day")
    slider.press("End")
    expect(page.get_by_role("heading", name="1 June 2025")).to_be_visible()
    expect(values).to_contain_text("Lyon")


def test_a_day_without_scripts(site: Site, open_page: Open) -> None:
    page = open_page("/timeline", "ana")
    cookies = page.context.cookies()
    plain = page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr]
    plain.add_cookies(cookies)  # type: ignore[arg-type]
    page = plain.new_page()
    page.goto(f"{site.url}/console/timeline?offset=20")
    expect(page.get_by_role("heading", name="3 February 2025")).to_be_visible()
    page.get_by_role("button", name="Show this day").click()
    assert "offset=20" in page.url
    plain.close()


def test_two_days_differ_and_a_life_is_a_line(open_page: Open) -> None:
    page = open_page("/timeline/difference?since=2025-03-05&until=2025-06-15", "ana")
    change = page.locator("article.change")
    expect(change.locator(".was")).to_contain_text("I live in Paris.")
    expect(change.locator(".now")).to_contain_text("I moved to Lyon.")
    page.goto(page.url.split("/timeline")[0] + "/timeline/life?name=ANA")
    steps = page.locator(".life-line li")
    expect(steps.nth(0)).to_contain_text("Paris")
    expect(steps.nth(1)).to_contain_text("Lyon")
    expect(steps.nth(1)).to_contain_text("I moved to Lyon.")


def test_names_are_merged_and_split(open_page: Open, site: Site) -> None:
    page = open_page("/people/Bruno%20Keller", "ana")
    page.get_by_label("The same as").fill("Bruno")
    page.get_by_role("button", name="Merge").click()
    split = page.get_by_role("button", name="Split bruno off")
    expect(split).to_be_visible()
    assert site.memos.graph.entity("Bruno", cube="ana", actor="ana").name == "Bruno Keller"
    assert_accessible(page)
    split.click()
    expect(page.get_by_text("No other name was merged into this one.")).to_be_visible()


def test_the_graph_is_walked(open_page: Open) -> None:
    page = open_page("/people/graph?name=Lyon", "ana")
    page.wait_for_selector("#graph[data-ready]")
    chosen = page.get_by_label("What is chosen")
    expect(chosen).to_contain_text("residence")
    expect(chosen).to_contain_text("I moved to Lyon.")
    page.get_by_label("Find").fill("Zoe")
    page.get_by_label("Find").press("Enter")
    chosen.get_by_role("button", name="Add what is around it").click()
    expect(chosen).to_contain_text("Bruno")
    page.get_by_label("only relations that a memory states").check()
    page.get_by_label("Find").fill("Lyon")
    page.get_by_label("Find").press("Enter")
    expect(chosen).not_to_contain_text("named with")
    assert_fits(page)


def test_by_keyboard_only(open_page: Open) -> None:
    page = open_page("/people", "ana")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/people/**")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("w")
    page.wait_for_url("**/people/graph**")
    page.goto(page.url.split("/people")[0] + "/timeline?at=2025-05-18")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="17 May 2025")).to_be_visible()


def test_another_tenant_sees_nothing(open_page: Open, site: Site) -> None:
    for path in ("/timeline", "/timeline/difference", "/people", "/people/graph"):
        page = open_page(path, "ben")
        expect(page.locator(".empty").first).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("Lyon")
        page.goto(f"{site.url}/console{path}?cube=ana")
        expect(page.locator("main")).not_to_contain_text("Paris")
    page = open_page("/people/Ana?cube=ana", "ben")
    expect(page.locator("main")).not_to_contain_text("Paris")


def test_hostile_text_stays_text(open_page: Open) -> None:
    for path in (
        "/timeline?at=2025-03-01&kind=all",
        "/timeline/life?name=Zoe",
        "/people/Zoe",
        "/people/%3Cb%3EEve%3C%2Fb%3E",
    ):
        page = open_page(path, "ana")
        expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.locator("main img").count() == 0
        assert page.locator('main a[href*="evil.example"]').count() == 0
        assert_fits(page)
        page.context.close()
