"""Signing in: with a link or a key; sessions end; without one nothing is shown."""

from __future__ import annotations

import httpx2
from playwright.sync_api import Browser, Page, expect

from memos.api.console.view import COOKIE
from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way, assert_fits


def test_a_link_signs_in_once(browser: Browser, site: Site) -> None:
    link = f"{site.url}/console/sign-in?link={site.memos.sessions.create_link().secret}"
    first, second = browser.new_page(), browser.new_page()
    first.goto(link)
    first.wait_for_url("**/console/")
    second.goto(link)
    expect(second.get_by_role("alert")).to_contain_text("used or expired")
    first.close()
    second.close()


def test_the_page_that_was_wanted_opens_after_a_key(browser: Browser, site: Site) -> None:
    page = browser.new_page()
    page.goto(f"{site.url}/console/ask?q=Where")
    page.get_by_label("API key").fill(site.ana)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in" not in url)
    assert page.url.endswith("/console/ask?q=Where")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    page.go_back()
    page.reload()
    assert "/sign-in" in page.url
    page.close()


def test_a_wrong_key_says_so_and_the_page_is_accessible(browser: Browser, site: Site) -> None:
    page = browser.new_page()
    page.goto(f"{site.url}/console/")
    page.get_by_label("API key").fill("mst_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    assert_accessible(page)
    assert_fits(page)
    page.close()


def test_a_revoked_key_ends_its_sessions(open_page: Open, site: Site) -> None:
    new = site.memos.keys.create("ana", "short")
    session = site.memos.sessions.start(site.memos.keys.authenticate(new.secret))
    cookies = {"memos_session": session.secret}
    assert httpx2.get(f"{site.url}/console/", cookies=cookies).status_code == 200
    site.memos.keys.revoke(new.key.id)
    answer = httpx2.get(f"{site.url}/console/", cookies=cookies)
    assert answer.status_code == 303
    assert "/sign-in" in answer.headers["location"]


def test_the_start_page_every_way(open_page: Open) -> None:
    assert_every_way(open_page, "/", "main h1")


def test_the_menu_opens_by_keys(open_page: Open) -> None:
    page = open_page("/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/ask**")
    page.get_by_role("heading", name="Ask").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def _ended(site: Site, page: Page) -> None:
    """End the session of a page on the server, and in the browser, as after twelve hours."""
    [cookie] = [each for each in page.context.cookies() if each["name"] == COOKIE]
    site.memos.sessions.end(cookie["value"])
    page.context.clear_cookies()


def test_a_form_is_sent_after_signing_in_again(open_page: Open, site: Site) -> None:
    item = site.memos.add("A note about owls.", cube="ana", actor="ana").item_ids[0]
    page = open_page(f"/memories/{item}", "ana")
    page.locator("#edit > summary").click()
    page.get_by_label("Text").fill("A long note about owls & <b>mice</b>.")
    _ended(site, page)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("what you typed is kept")
    assert_accessible(page)
    page.get_by_label("API key").fill(site.ana)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("A long note about owls & <b>mice</b>.")).to_be_visible()
    assert_accessible(page)
    assert_fits(page)
    assert site.memos.get(item).memory == "A note about owls."
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_text("Saved as a new version")).to_be_visible()
    assert site.memos.get(item).memory == "A long note about owls & <b>mice</b>."


def test_a_page_goes_on_after_signing_in_again_in_another_tab(open_page: Open, site: Site) -> None:
    site.memos.add("The gate's code is 1111.", cube="ana", actor="ana")
    page = open_page("/ask?q=gate+code", "ana")
    hit = page.locator("article", has_text="1111").first
    hit.get_by_text("Correct", exact=True).first.click()
    hit.get_by_label("What is right").fill("The gate's code is 2222.")
    _ended(site, page)
    hit.get_by_role("button", name="Correct").click()
    told = page.locator("#problem")
    expect(told).to_contain_text("Your session has ended")
    with page.context.expect_page() as opened:
        told.get_by_role("link", name="Sign in again").click()
    tab = opened.value
    tab.get_by_label("API key").fill(site.ana)
    tab.get_by_role("button", name="Sign in").click()
    tab.wait_for_url("**/console/")
    tab.close()
    page.bring_to_front()
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator("#notice")).to_contain_text("signed in again")
    expect(hit.get_by_label("What is right")).to_have_value("The gate's code is 2222.")
    hit.get_by_role("button", name="Correct").click()
    expect(hit.locator(".told")).to_be_visible()
    assert "The gate's code is 2222." in [item.memory for item in site.memos.memories.list(cube="ana", actor="ana")]


def test_a_second_click_does_nothing_twice(open_page: Open, site: Site) -> None:
    site.memos.add("There is something.", cube="ana", actor="ana")
    page = open_page("/?cube=ana", "ana")
    page.get_by_label("What should be remembered?").fill("The twins were born on the same day.")
    page.get_by_role("button", name="Remember").dblclick()
    expect(page.get_by_text("Remembered.")).to_be_visible()
    texts = [item.memory for item in site.memos.memories.list(cube="ana", actor="ana")]
    assert texts.count("The twins were born on the same day.") == 1
