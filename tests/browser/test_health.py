"""Health in a browser: the doctor, settings, slow calls and verification, by mouse and keys; of others nothing."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from memos.memcube.ledger import schema as t
from tests.browser.conftest import Open, Site, assert_every_way

HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(2)) \u202egnp.exe " + "walrus " * 1_400


@pytest.fixture(scope="module", autouse=True)
def used(site: Site) -> None:
    memos, ana = site.memos, {"cube": "ana", "actor": "ana"}
    memos.add("The heron nests at the mill.", **ana)
    memos.search("Where does the heron nest?", cubes=["ana"], actor="ana")
    memos.search(HOSTILE, cubes=["ana"], actor="ana")


def test_the_page_every_way(open_page: Open) -> None:
    assert_every_way(open_page, "/health", ".findings", "admin")
    assert_every_way(open_page, "/health", "#slow-title", "ana")


def test_admins_see_the_doctor_and_the_settings(open_page: Open) -> None:
    page = open_page("/health", "admin")
    findings = page.locator(".findings")
    expect(findings).to_contain_text("ledger")
    expect(findings.locator("li", has_text="server").first).to_contain_text("open and answers")
    row = page.get_by_role("row", name="MEMOS_INDEX__WAIT_S")
    expect(row).to_contain_text("argument or program")
    expect(row).to_contain_text("default: 5.0")
    page.locator("summary").click()
    expect(page.get_by_role("row", name="MEMOS_EMBED__MODEL")).to_contain_text("minilm")
    page.get_by_role("link", name="Look again").click()
    expect(findings).to_contain_text("ledger")


def test_slow_calls_link_to_the_question(open_page: Open) -> None:
    page = open_page("/health", "ana")
    expect(page.locator("main")).to_contain_text("are for admins")
    page.get_by_role("link", name="Where does the heron nest?").click()
    page.wait_for_url("**/ask?**")
    assert "q=Where+does+the+heron+nest" in page.url


def test_all_cubes_are_verified_with_progress_and_what_differs_is_told(open_page: Open, site: Site) -> None:
    site.memos.cubes.create("second", actor="ana")
    page = open_page("/health", "ana")
    page.get_by_label("What").select_option("")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.locator("[data-step]")).to_contain_text("2 of 2 verified, 0 differences")
    expect(page.locator(".report")).to_have_count(2)
    expect(page.locator(".report .badge.good")).to_have_count(2)
    with site.memos.ledger.write() as connection:
        connection.execute(sa.update(t.cubes).where(t.cubes.c.id == "second").values(segments=7))
    page.get_by_label("What").select_option("second")
    page.get_by_role("button", name="Verify", exact=True).click()
    expect(page.locator(".report")).to_contain_text("has a wrong segment count")
    expect(page.locator(".report .badge")).to_have_text("1 difference")
    with site.memos.ledger.write() as connection:
        connection.execute(sa.update(t.cubes).where(t.cubes.c.id == "second").values(segments=0))


def test_by_keys_alone_and_without_scripts(open_page: Open, site: Site) -> None:
    page = open_page("/health", "ana")
    page.keyboard.press("v")
    expect(page.locator("[data-step]")).to_contain_text("1 of 1 verified")
    context = page.context.browser.new_context(java_script_enabled=False)  # type: ignore[union-attr] # it has one
    context.add_cookies(page.context.cookies())  # type: ignore[arg-type] # they are what it takes
    plain = context.new_page()
    plain.goto(f"{site.url}/console/health?cube=ana")
    plain.get_by_role("button", name="Verify", exact=True).click()
    expect(plain.locator(".report")).to_contain_text("no differences")
    context.close()


def test_the_page_of_models_says_how_to_set_one_where_there_is_none(open_page: Open) -> None:
    page = open_page("/models", "ana")
    expect(page.locator(".models")).to_contain_text("set MEMOS_CHAT_MODEL__BASE_URL")
    expect(page.locator("#kept")).to_contain_text("No model keeps what prompts begin with")
    expect(page.get_by_role("button", name="Train")).to_have_count(0)


def test_nobody_else_sees_what_was_asked_and_text_stays_text(open_page: Open) -> None:
    other = open_page("/health", "ben")
    expect(other.locator("main")).to_contain_text("Slowest calls")
    for word in ("heron", "walrus", "ana"):
        expect(other.locator("main table", has_text=word)).to_have_count(0)
    page = open_page("/health", "ana")
    expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0
