"""Work: tasks and events as they happen, retried, cancelled, and followed for one thing."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from playwright.sync_api import Page, expect

from memos.core.types import TaskState
from memos.memcube.ledger import schema as t
from memos.memcube.ledger import tasks
from memos.memcube.ledger.tasks import NewTask
from tests.browser.conftest import Open, Site, assert_every_way

HOSTILE = "<img src=x onerror=alert(1)> [here](javascript:alert(1)) **bold** \u202eright to left\u202c "
NOBODYS = "nobodys-job"
"""A kind that no job runs, so that its tasks stay as they are."""


def cube_of(site: Site, name: str) -> str:
    site.memos.cubes.create(name, actor="ana")
    return name


def task_of(site: Site, cube: str, *, error: str | None = None, kind: str = NOBODYS) -> str:
    """Add a task that waits for ever, or has failed with an error."""
    now = datetime.now(UTC)
    with site.memos.ledger.write() as connection:
        [task] = tasks.enqueue(connection, cube, [NewTask(kind)], now)
        if error is not None:
            failed = {"state": TaskState.FAILED, "error": error, "finished_at": now, "attempts": 3}
            connection.execute(sa.update(t.tasks).where(t.tasks.c.id == task).values(failed))
    return task


def opened(open_page: Open, path: str, who: str = "ana") -> Page:
    page = open_page(path, who)
    page.wait_for_selector("#live-body")
    return page


def test_every_way_with_hostile_text(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "all-ways")
    task_of(site, cube, error=HOSTILE + "long text " * 40)
    item = site.memos.add(HOSTILE * 100, cube=cube, actor="ana").item_ids[0]
    assert_every_way(open_page, f"/work?cube={cube}", ".tasks tbody tr", who="ana")
    page = opened(open_page, f"/work?cube={cube}&item={item}")
    expect(page.locator(".followed")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img, .followed a").count() == 0


def test_what_happens_appears_by_itself(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "live")
    page = opened(open_page, f"/work?cube={cube}")
    expect(page.locator("#live-state")).to_have_text("Live")
    item = site.memos.add("I live in Oslo.", cube=cube, actor="ana").item_ids[0]
    expect(page.locator(".events li", has_text="added").first).to_be_visible()
    page.keyboard.press("j")
    site.memos.update(item, "I live in Rome.", actor="ana")
    expect(page.locator(".events li", has_text="changed").first).to_be_visible()
    expect(page.locator("[data-row].active")).to_have_count(1)


def test_it_says_when_it_is_not_live(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "cut-off")
    page = opened(open_page, f"/work?cube={cube}")
    page.route("**/events/stream*", lambda route: route.fulfill(status=503, body=""))
    page.reload()
    expect(page.locator("#live-state")).to_contain_text("Not live")


def test_a_failure_is_explained_retried_and_cancelled_by_keyboard(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "failure")
    task = task_of(site, cube, error="The disk is full.")
    page = opened(open_page, f"/work?cube={cube}")
    row = page.locator(f"#task-{task}")
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text("The disk is full.")
    page.keyboard.press("r")
    expect(page.locator("#notice")).to_contain_text("Choose a task first")
    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(row).to_contain_text("waiting")
    expect(page.locator(".active")).to_have_attribute("id", f"task-{task}")
    assert site.memos.tasks.get(task, actor="ana").state is TaskState.WAITING
    expect(page.locator("#notice")).to_contain_text("it waits for its turn again")
    page.keyboard.press("c")
    expect(row).to_contain_text("cancelled")
    assert site.memos.tasks.get(task, actor="ana").state is TaskState.CANCELLED


def test_tasks_are_filtered_and_paged(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "filtered")
    for number in range(22):
        task_of(site, cube, error=f"Failure {number}.")
    other = task_of(site, cube, kind="nobodys-other-job")
    page = opened(open_page, f"/work?cube={cube}")
    expect(page.locator(f"#task-{other}")).to_be_visible()
    page.get_by_role("link", name="Problems 22").click()
    page.wait_for_url("**state=problems**")
    expect(page.locator(".tasks tbody tr")).to_have_count(20)
    page.get_by_role("link", name="Older tasks").click()
    expect(page.locator(".tasks tbody tr")).to_have_count(2)
    page.goto(f"{site.url}/console/work?cube={cube}&kind=nobodys-other-job")
    expect(page.locator(".tasks tbody tr")).to_have_count(1)
    page.get_by_label("Kind").select_option("file")
    page.wait_for_url("**kind=file**")
    expect(page.get_by_text("No tasks")).to_be_visible()


def test_one_thing_is_followed_even_after_its_deletion(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "followed")
    file = site.memos.documents.add(("pump.md", b"# Pump"), cube=cube, actor="ana")
    site.memos.documents.wait(file.id, 60, actor="ana")
    item = site.memos.add("I live in Oslo.", cube=cube, actor="ana").item_ids[0]
    site.memos.delete(item, actor="ana")
    page = opened(open_page, f"/work?cube={cube}")
    page.get_by_label("Follow one memory or document").fill(file.id)
    page.keyboard.press("Enter")
    page.wait_for_url("**item=**")
    expect(page.locator(".followed")).to_have_text("pump.md")
    expect(page.locator(".tasks tbody tr")).to_contain_text("Read a document")
    expect(page.locator(".events li")).to_have_count(2)
    page.goto(f"{site.url}/console/work?cube={cube}&item={item}")
    expect(page.locator(".followed")).to_have_text("I live in Oslo.")
    expect(page.locator(".events li", has_text="deleted")).to_have_count(1)
    page.goto(f"{site.url}/console/work?cube={cube}&item=nothing")
    expect(page.get_by_text("There is no memory or document with this id")).to_be_visible()


def test_another_person_sees_and_changes_nothing(open_page: Open, site: Site) -> None:
    cube = cube_of(site, "private")
    task = task_of(site, cube, error="The door code 4711 is wrong.")
    item = site.memos.add("Ana's door code is 4711.", cube=cube, actor="ana").item_ids[0]
    for path in (f"/work?cube={cube}", "/work?scope=all", f"/work?item={item}"):
        page = opened(open_page, path, "ben")
        assert "4711" not in page.content(), path
        assert task not in page.content(), path
    csrf = page.locator('meta[name="csrf"]').get_attribute("content") or ""
    answer = page.request.post(f"{site.url}/console/work/retry", form={"csrf": csrf, "task": task})
    assert answer.status == 404
    assert site.memos.tasks.get(task, actor="ana").state is TaskState.FAILED
