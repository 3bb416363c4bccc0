"""The page Data: imports with preview and progress, cube files, retention, erasures with receipts, backups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from memos.errors import NotFound
from tests.browser.conftest import Open, Site, assert_accessible, assert_all_every_way

HOSTILE = "<img src=x onerror=alert(1)> **bold** [link](javascript:x) \u202eright to left "


def export(path: Path, texts: list[str]) -> Path:
    path.write_text(json.dumps([{"role": "user", "content": text} for text in texts]), encoding="utf-8")
    return path


PAGES = {
    "/data?cube=ana": "#import",
    "/data/cubes?cube=ana": "table",
    "/data/retention?cube=ana": "form",
    "/data/erase?cube=ana&what=cube&look=1": "#confirmed",
    "/data/backups?cube=ana": "#restore",
}


def test_every_page_every_way(open_page: Open) -> None:
    assert_all_every_way(open_page, PAGES)


def test_an_export_is_previewed_then_imported_once(open_page: Open, site: Site, tmp_path: Path) -> None:
    file = export(tmp_path / "birds.json", [HOSTILE + "x" * 10_000, *(f"I saw bird {n}." for n in range(120))])
    page = open_page("/data?cube=ana", "ana")
    page.get_by_label("Drop a file here").set_input_files(file)
    preview = page.locator("#import-preview")
    expect(preview).to_contain_text("121 messages in 1 conversation, read as generic. Nothing is stored yet.")
    expect(preview.locator(".said").first).to_contain_text("<img src=x onerror=alert(1)> **bold**")
    assert_accessible(page)
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#import-state")).to_contain_text("121 messages stored.")
    page.get_by_label("Drop a file here").set_input_files([])
    page.get_by_label("Drop a file here").set_input_files(file)
    expect(preview).to_contain_text("121 messages")
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#import-state")).to_contain_text("0 messages stored, 121 were there before.")
    assert len(site.memos.memories.list(cube="ana", actor="ana", limit=1000)) >= 121


def test_a_file_that_is_no_export_says_why(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text('[{"role": "user"}]')
    page = open_page("/data", "ben")
    page.get_by_label("Drop a file here").set_input_files(tmp_path / "note.json")
    expect(page.locator("#import-preview")).to_contain_text("1 record cannot be read")
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#import-state")).to_contain_text("1 record cannot be read")
    page.get_by_label("Skip records that cannot be read").uncheck()
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert").filter(has_text="has no content")).to_be_visible()


def test_a_conversation_is_erased_by_keyboard_after_its_name_is_typed(open_page: Open, site: Site) -> None:
    for text in ("Eva is a nurse.", HOSTILE):
        site.memos.add(text, cube="ana", actor="ana", conversation="family")
    page = open_page("/data/erase?cube=ana&what=conversation", "ana")
    page.get_by_label("Name of the person or conversation").fill("family")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="The conversation family")).to_be_visible()
    expect(page.locator("#erasure .figure").first).to_have_text("2")
    expect(page.get_by_text("onerror=alert(1)")).to_be_visible()
    page.get_by_label("To erase, type").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_text("nothing was erased")).to_be_visible()
    page.get_by_label("To erase, type").fill("family")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Erased from every store")).to_be_visible()
    assert_accessible(page)
    assert not site.memos.memories.list(cube="ana", actor="ana", filter={"conversation": "family"})


def test_a_person_and_then_a_whole_cube_go_with_a_receipt(open_page: Open, site: Site) -> None:
    site.memos.cubes.create("old project", actor="ben")
    site.memos.add([{"role": "user", "name": "Zoe", "content": "I like tea."}], cube="old project", actor="ben")
    page = open_page("/data/erase?cube=old project&what=person&name=Zoe", "ben")
    expect(page.get_by_text("I like tea.")).to_be_visible()
    page.get_by_label("What", exact=True).select_option("cube")
    page.get_by_role("button", name="Show what would go").click()
    expect(page.get_by_role("heading", name="The cube old project")).to_be_visible()
    page.get_by_label("To erase, type").fill("old project")
    page.get_by_role("button", name="Erase for good").click()
    expect(page.get_by_text("Erased from every store")).to_be_visible()
    with pytest.raises(NotFound):
        site.memos.cubes.get("old project")


def test_a_rule_shows_what_it_would_touch_and_is_removed(open_page: Open, site: Site) -> None:
    site.memos.add("A draft of mine.", cube="ben", actor="ben", tags=["draft"])
    page = open_page("/data/retention?cube=ben", "ben")
    page.get_by_label("Older than, days").fill("0")
    page.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_role("alert").filter(has_text="every memory")).to_be_visible()
    page.get_by_label("With one of the tags").fill("draft")
    page.get_by_label("Yes, every memory").check()
    page.get_by_role("button", name="Add the rule").click()
    row = page.get_by_role("row").filter(has_text="tagged draft")
    expect(row).to_contain_text("0 days")
    page.reload()
    expect(row.locator("td.number")).to_have_text("1")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Apply now").click()
    expect(page.locator("#notice")).to_contain_text("Applied: 1 memory.")
    row.get_by_role("button", name="Remove the rule").click()
    expect(page.get_by_text("No rules")).to_be_visible()
    assert site.memos.retention.list(cube="ben", actor="ben") == ()


def test_a_cube_goes_out_as_a_file_and_comes_back_as_another(open_page: Open, site: Site, tmp_path: Path) -> None:
    site.memos.cubes.create("travel", actor="ben")
    site.memos.add("I was in Rome.", cube="travel", actor="ben")
    page = open_page("/data/cubes", "ben")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export travel", exact=True).click()
    file = tmp_path / "travel.memcube"
    download.value.save_as(file)
    page.get_by_label("Drop a .memcube file here").set_input_files(file)
    expect(page.locator("#load-state")).to_contain_text("travel")
    page.get_by_label("Id of the cube").fill("travel-2")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#load-state")).to_contain_text("1 memory loaded into travel-2.")
    assert site.memos.cubes.get("travel-2").owner == "ben"


def test_another_tenant_sees_and_takes_nothing(open_page: Open, site: Site) -> None:
    site.memos.add("My door code is 4711.", cube="ana", actor="ana", conversation="codes")
    page = open_page("/data/cubes", "ben")
    expect(page.get_by_role("table")).to_be_visible()
    assert "ana" not in page.get_by_role("main").inner_text()
    page.goto(f"{site.url}/console/data/erase?cube=ana&what=conversation&name=codes")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    assert "4711" not in page.content()
    page.goto(f"{site.url}/console/data/backups")
    expect(page.get_by_text("For admins")).to_be_visible()
    page.goto(f"{site.url}/console/data/retention?cube=ana")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def test_without_a_folder_backups_say_what_to_set(open_page: Open) -> None:
    page = open_page("/data/backups")
    expect(page.get_by_text("MEMOS_UPKEEP__BACKUP_FOLDER")).to_be_visible()
    expect(page.get_by_role("button", name="Back up now")).to_have_count(0)
