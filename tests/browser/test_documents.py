"""Documents: add them, watch them being read, see their passages, read them again, remove them."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from memos.core.types import FileState, StoredFile
from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way
from tests.support import documents as make

HOSTILE = "<img src=x onerror=alert(1)> [here](javascript:alert(1)) **bold** \u202eright to left\u202c "
MANUAL = b"# Pump manual\n\n## Safety\n\nWear gloves near the impeller.\n\n## Parts\n\nA seal costs 12 euros.\n"


def cube_of(site: Site, name: str) -> str:
    site.memos.cubes.create(name, actor="ana")
    return name


def put(site: Site, cube: str, name: str, data: bytes) -> StoredFile:
    """Add a document of ana and wait until it is read or given up."""
    return site.memos.documents.wait(site.memos.documents.add((name, data), cube=cube, actor="ana").id, 60)


def opened(open_page: Open, path: str, who: str = "ana") -> Page:
    page = open_page(path, who)
    page.wait_for_selector("main h1")
    return page


def test_every_way_with_hostile_text(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "library")
    data = f"# {HOSTILE}\n\n{HOSTILE}{'long text ' * 1_000}".encode()
    file = put(site, cube, "<b>bold \u05d0\u05d1.md", data)
    put(site, cube, "broken.pdf", b"%PDF-1.7 and nothing else")
    assert_every_way(open_page, f"/documents?cube={cube}", "#files-list tr", who="ana")
    assert_every_way(open_page, f"/documents/{file.id}?cube={cube}", ".passage", who="ana")
    page = opened(open_page, f"/documents/{file.id}?cube={cube}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<b>bold")
    expect(page.locator(".passage").first).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator(".passage img, .passage .text a").count() == 0


def test_files_are_added_and_followed_until_they_are_read(open_page: Open, site: Site, tmp_path: Path) -> None:
    cube = cube_of(site, "added")
    page = opened(open_page, f"/documents?cube={cube}")
    expect(page.get_by_text("No documents yet")).to_be_visible()
    (tmp_path / "pump.md").write_bytes(MANUAL)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    page.get_by_label("Drop files here").set_input_files([tmp_path / "pump.md", tmp_path / "broken.pdf"])
    expect(page.locator("#files-list tr")).to_have_count(2)
    expect(page.locator("tr", has_text="pump.md")).to_contain_text("available")
    expect(page.locator("tr", has_text="broken.pdf")).to_contain_text("It cannot be read as PDF")
    expect(page.get_by_text("No documents yet")).to_have_count(0)


def test_files_are_dropped(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "dropped")
    page = opened(open_page, f"/documents?cube={cube}")
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["# Dropped\\n\\nIt fell."], "dropped.md"));
          const target = document.querySelector("[data-drop]");
          target.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator("tr", has_text="dropped.md")).to_contain_text("available")


def test_pages_and_passages_are_shown_and_the_file_comes_back_as_it_was(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "pages")
    data = make.pdf([f"Chapter {number} is about valve {number}." for number in range(1, 81)])
    file = put(site, cube, "valves.pdf", data)
    page = opened(open_page, f"/documents/{file.id}?cube={cube}")
    expect(page.locator(".passage")).to_have_count(50)
    page.get_by_role("link", name="Show more").click()
    expect(page.locator(".passage")).to_have_count(80)
    page.get_by_label("Page", exact=True).fill("77")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".passage")).to_have_count(1)
    expect(page.locator(".passage")).to_contain_text("valve 77")
    page.keyboard.press("t")
    page.wait_for_url("**show=text**")
    expect(page.locator(".show-text .passage")).to_contain_text("valve 77")
    with page.expect_download() as download:
        page.keyboard.press("d")
    assert download.value.path().read_bytes() == data
    assert download.value.suggested_filename == "valves.pdf"


def test_by_keyboard_a_file_is_opened_read_again_and_deleted(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "keyboard")
    file = put(site, cube, "pump.md", MANUAL)
    page = opened(open_page, f"/documents?cube={cube}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/documents/{file.id}**")
    page.keyboard.press("r")
    page.wait_for_url(lambda url: file.id not in url)
    expect(page.locator(".passage").first).to_contain_text("Wear gloves")
    assert site.memos.documents.get(file.id, actor="ana").state is FileState.SUPERSEDED
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("It is deleted")).to_be_visible()
    assert site.memos.search("gloves impeller", cubes=[cube], actor="ana").hits == ()
    page.keyboard.press("r")
    expect(page.locator(".passage").first).to_contain_text("Wear gloves")


def test_a_file_is_erased_with_a_receipt(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "erased")
    file = put(site, cube, "pump.md", MANUAL)
    page = opened(open_page, f"/documents/{file.id}?cube={cube}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Erase").click()
    expect(page.get_by_role("heading", name="Receipt of an erasure")).to_be_visible()
    expect(page.get_by_text("Erased from every store")).to_be_visible()
    assert_accessible(page)
    assert site.memos.documents.list(cube=cube, actor="ana", states=list(FileState)) == ()


def test_a_form_adds_a_file_without_scripts(open_page: Open, site: Site, tmp_path: Path) -> None:
    cube = cube_of(site, "plain")
    page = opened(open_page, f"/documents?cube={cube}")
    page.route("**/*.js*", lambda route: route.abort())
    page.reload()
    (tmp_path / "pump.md").write_bytes(MANUAL)
    page.get_by_label("Drop files here").set_input_files(tmp_path / "pump.md")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="pump.md")).to_be_visible()


def test_another_person_sees_no_file(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "private")
    file = put(site, cube, "secret-plans.md", b"# The door code is 4711")
    page = opened(open_page, f"/documents?cube={cube}", "ben")
    assert "secret-plans" not in page.content()
    page.goto(f"{site.url}/console/documents/{file.id}")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    assert "4711" not in page.content()
