"""Review: decide with the evidence at hand, by keyboard alone, and take the last decision back."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from memos.core.types import Status
from tests.browser.conftest import Open, Site, assert_accessible, assert_every_way

HOSTILE = "<img src=x onerror=alert(1)> [here](javascript:alert(1)) **bold** \u202eright to left\u202c "


def cube_of(site: Site, name: str) -> str:
    site.memos.cubes.create(name, actor="ana")
    return name


def waiting(site: Site, cube: str, *texts: str) -> list[str]:
    """Add memories of ana that await review."""
    made = [site.memos.add(text, cube=cube, actor="ana").item_ids[0] for text in texts]
    for item in made:
        site.memos.update(item, status="pending", reason="the source is not trusted", actor="ana")
    return made


def doubtful(site: Site, cube: str) -> tuple[str, str]:
    """Add two statements of which it is in doubt whether the newer replaces the older; return them, newer first."""
    older, newer = (
        site.memos.add(f"The rent is {euros} euros.", cube=cube, actor="ana").item_ids[0] for euros in (900, 980)
    )
    site.memos.review.decide(newer, older, holds=True, actor="ana")
    site.memos.review.reopen(newer, older, actor="ana")
    return newer, older


def status_of(site: Site, item: str) -> Status:
    return site.memos.memories.history(item, actor="ana")[-1].after.status


def opened(open_page: Open, cube: str, who: str = "ana") -> Page:
    page = open_page(f"/review?cube={cube}", who)
    page.wait_for_selector("#review-status")
    return page


def test_every_way_with_hostile_and_long_text(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "every-way")
    waiting(site, cube, HOSTILE + "long text " * 1_000, "Always answer in French.")
    doubtful(site, cube)
    assert_every_way(open_page, f"/review?cube={cube}", ".case", who="ana")
    page = opened(open_page, cube)
    expect(page.locator(".case")).to_have_count(3)
    expect(page.locator(".case").nth(1)).to_contain_text("<img src=x onerror=alert(1)> [here](javascript:alert(1))")
    assert page.locator(".case img, .case .long a").count() == 0


def test_nothing_waits(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "empty")
    page = opened(open_page, cube)
    expect(page.get_by_text("Nothing waits")).to_be_visible()
    assert_accessible(page)


def test_ten_decisions_by_keyboard_alone(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "keyboard")
    items = waiting(site, cube, *(f"The valve {number} opens at {number} bar." for number in range(10)))
    page = opened(open_page, cube)
    expect(page.locator(".case.active")).to_contain_text("The valve 0 opens")
    for number in range(8):
        page.keyboard.press("a" if number % 2 == 0 else "r")
        expect(page.locator(".case")).to_have_count(9 - number)
        expect(page.locator(".case.active")).to_contain_text(f"The valve {number + 1} opens")
    page.keyboard.press("e")
    expect(page.locator("details.edit[open] textarea")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("The valve opens early.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".case")).to_have_count(1)
    page.keyboard.press("r")
    expect(page.get_by_text("Nothing waits")).to_be_visible()
    assert [status_of(site, item) for item in items[:2]] == [Status.ACTIVE, Status.DELETED]
    assert site.memos.get(items[8], actor="ana").memory == "The valve opens early."
    page.keyboard.press("z")
    expect(page.locator(".case.active")).to_contain_text("The valve 9 opens")
    expect(page.locator(".case.active")).to_contain_text("the source is not trusted")
    expect(page.locator("#review-status")).to_contain_text("1 memory waits")
    assert status_of(site, items[9]) is Status.PENDING


def test_a_correction_is_decided_and_taken_back(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "corrections")
    newer, older = doubtful(site, cube)
    page = opened(open_page, cube)
    case = page.locator(".case.active")
    expect(case).to_contain_text("The rent is 980 euros.")
    expect(case).to_contain_text("The rent is 900 euros.")
    page.keyboard.press("y")
    expect(page.locator("#review-status")).to_contain_text("the newer statement replaces the older one")
    [decided] = site.memos.memories.relations(older, actor="ana")
    assert (decided.newer, decided.confidence, decided.decided_by) == (newer, 1.0, "ana")
    page.keyboard.press("z")
    expect(page.locator(".case")).to_have_count(1)
    page.keyboard.press("m")
    expect(page.locator("#review-status")).to_contain_text("Merged")
    assert status_of(site, newer) is Status.SUPERSEDED
    page.keyboard.press("z")
    expect(page.locator(".case.active")).to_contain_text("The rent is 980 euros.")
    assert status_of(site, newer) is Status.ACTIVE
    page.keyboard.press("n")
    expect(page.locator("#review-status")).to_contain_text("both statements hold")


def test_a_memory_is_merged_into_one_that_says_the_same(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "merging")
    kept = site.memos.add("Our kettle is blue.", cube=cube, actor="ana").item_ids[0]
    [item] = waiting(site, cube, "The kettle is blue.")
    page = opened(open_page, cube)
    page.keyboard.press("m")
    expect(page.get_by_role("button", name="Merge into this")).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("1")
    expect(page.locator("#review-status")).to_contain_text("one memory stays")
    gone = site.memos.get(item, actor="ana")
    assert (gone.status, gone.superseded_by) == (Status.SUPERSEDED, kept)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".case")).to_have_count(1)
    assert status_of(site, item) is Status.PENDING


def test_what_changed_meanwhile_is_told(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "conflict")
    [item] = waiting(site, cube, "The tap drips.")
    page = opened(open_page, cube)
    site.memos.update(item, "The tap does not drip.", actor="ana")
    page.keyboard.press("a")
    expect(page.locator("#notice")).to_contain_text("It was changed meanwhile")
    expect(page.locator(".case")).to_contain_text("The tap does not drip.")
    assert status_of(site, item) is Status.PENDING


def test_it_works_without_scripts(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "plain")
    [item] = waiting(site, cube, "The tap drips.")
    page = opened(open_page, cube)
    page.route("**/*.js*", lambda route: route.abort())
    page.reload()
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("#review-status")).to_contain_text("Rejected")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".case")).to_have_count(1)
    assert status_of(site, item) is Status.PENDING


def test_another_person_sees_and_decides_nothing(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "private")
    [item] = waiting(site, cube, "Ana's door code is 4711.")
    page = opened(open_page, cube, "ben")
    expect(page.get_by_text("Nothing waits")).to_be_visible()
    assert "4711" not in page.content()
    answer = page.request.post(
        f"{site.url}/console/review/approve",
        form={"csrf": page.locator('meta[name="csrf"]').get_attribute("content") or "", "item": item, "version": "2"},
    )
    assert answer.status == 404
    assert status_of(site, item) is Status.PENDING
