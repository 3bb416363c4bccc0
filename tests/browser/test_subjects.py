"""What is held about a person: seen by keyboard, saved, forgotten, with a receipt that is saved and checked."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import PHONE, Open, Site, assert_accessible, assert_all_every_way, assert_fits

HOSTILE = "<img src=x onerror=alert(1)> \u202eMallory" + "x" * 60


def test_every_page_every_way(open_page: Open, site: Site) -> None:
    said = [{"role": "user", "name": HOSTILE, "content": f"{HOSTILE} sails. " + "y" * 400}]
    site.memos.add(said, cube="ana", actor="ana")
    site.memos.add("I keep bees.", cube="ana", actor="ana")
    assert_all_every_way(
        open_page,
        {
            "/data/subject?kind=user&who=ana": "#confirmed",
            f"/data/subject?kind=person&who={HOSTILE}": "#confirmed",
            "/data/subject?kind=person&who=nobody": ".empty",
            "/data/erase/check": "#texts",
        },
    )


def test_a_user_takes_everything_along_and_is_forgotten(open_page: Open, site: Site, tmp_path: Path) -> None:
    site.memos.cubes.create("team", actor="ana")
    site.memos.sharing.grant("team", "ben", "editor", actor="ana")
    site.memos.add("Ben's boat is the Albatross.", cube="ben", actor="ben")
    site.memos.add("I moor it in Zanzibar.", cube="team", actor="ben")
    site.memos.add("ben was late again.", cube="team", actor="ana")
    page = open_page("/data", "ben", phone=True)
    page.get_by_role("link", name="About a person").click()
    page.get_by_label("Forget also").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="What is held about you")).to_be_visible()
    expect(page.locator("#held .figure")).to_have_text(["2", "1", "0"])
    page.get_by_text("Read all 2 memories by or about you").click()
    expect(page.get_by_text("Ben's boat is the Albatross.")).to_be_visible()
    assert_fits(page)
    for _ in range(2):  # the page stays, and gives it again
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the archive").click()
    download.value.save_as(tmp_path / "ben.zip")
    with zipfile.ZipFile(tmp_path / "ben.zip") as archive:
        assert "index.html" in archive.namelist()
    page.get_by_label("To forget, type").fill("ben")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Forgotten: 2 memories of 2 cubes, and the account.")).to_be_visible()
    assert_accessible(page)
    assert_fits(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the receipt", exact=True).click()
    download.value.save_as(tmp_path / "receipt.json")
    assert json.loads((tmp_path / "receipt.json").read_text("utf-8"))["erased"] == 2
    assert [item.memory for item in site.memos.memories.list(cube="team")] == ["ben was late again."]

    site.memos.maintenance.finish_erasures()
    admin = open_page("/data/erase/check", "admin")
    admin.get_by_label("File of a receipt").set_input_files(tmp_path / "receipt.json")
    admin.get_by_label("What was erased").fill("Albatross")
    admin.get_by_role("button", name="Check").click()
    expect(admin.get_by_text("Nothing contradicts it.")).to_have_count(2)
    assert_accessible(admin)
    admin.set_viewport_size(PHONE)
    assert_fits(admin)


def test_an_admin_forgets_who_is_spoken_of_and_stays(open_page: Open, site: Site) -> None:
    said = [{"role": "user", "name": "Zoe", "content": "I like tea."}]
    site.memos.add(said, cube="ana", actor="ana")
    page = open_page("/data/subject?cube=ana&kind=person", "ana")
    page.get_by_label("Name of the person").fill("Zoe")
    page.keyboard.press("Enter")
    page.get_by_label("To forget, type").fill("Zoe")
    page.get_by_role("button", name="Forget for good").click()
    expect(page.get_by_text("Forgotten: 1 memory of 1 cube.")).to_be_visible()
    assert_accessible(page)
    assert_fits(page)
    expect(page.get_by_role("row").last).to_contain_text("finished")
    page.get_by_role("link", name="Open the receipt of ana").click()
    expect(page.get_by_text("Erased from every store")).to_be_visible()
    page.get_by_role("link", name="Check this receipt").click()
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("Nothing contradicts it.")).to_be_visible()
