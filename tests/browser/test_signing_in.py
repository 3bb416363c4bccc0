"""Signing in: with a link or a key; sessions end; without one nothing is shown."""

from __future__ import annotations

import httpx2
from playwright.sync_api import Browser, expect

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
