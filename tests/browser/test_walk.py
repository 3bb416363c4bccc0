"""A newcomer's walk: import a chat, ask, see why, correct, see the history, forget, read the receipt."""

from __future__ import annotations

import time
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Open

EXPORT = Path(__file__).parents[2] / "examples/data/chat_export.json"
WITHIN_S = 120
"""Two minutes, which a person has."""


def test_the_first_two_minutes(open_page: Open) -> None:
    began = time.monotonic()
    page = open_page("/", "ana")

    page.locator("#files").set_input_files(EXPORT)
    page.get_by_role("link", name="Ask about them").click()

    page.get_by_label("Question").first.fill("Gas or induction hob for the kitchen?")
    page.keyboard.press("Enter")
    hit = page.locator("article", has_text="Induction. Priya wants to get rid of the gas altogether.").first
    expect(hit).to_be_visible()

    hit.get_by_text("Why it is here").click()
    expect(hit.locator("svg.bar").first).to_be_visible()

    hit.get_by_text("Correct", exact=True).first.click()
    hit.get_by_role("textbox").first.fill("No, we took gas in the end, not induction.")
    hit.get_by_role("button", name="Correct").last.click()
    expect(page.locator("main")).to_contain_text("Undo")

    page.locator("article", has_text="Induction.").first.get_by_role("link").first.click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    expect(page.get_by_role("heading", name="Where it comes from")).to_be_visible()

    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("link", name="Erase…").click()
    page.get_by_label("I understand").check()
    page.get_by_role("button", name="Erase").last.click()
    expect(page.locator("main")).to_contain_text("eceipt")

    assert time.monotonic() - began < WITHIN_S
