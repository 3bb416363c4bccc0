"""Models in a browser: without one it says how to set one; with one what it keeps and learned, by mouse and by keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from memos.memcube.ledger import tasks
from memos.memcube.ledger.adapters import AdapterState, Outcome
from memos.memcube.ledger.tasks import NewTask
from tests.api.keys import keys_of
from tests.api.model_here import noted, opened, saved
from tests.api.running import running
from tests.browser.conftest import Open, Site, assert_every_way
from tests.support.adapters import activated, begun, finished

HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(2)) \u202egnp.exe " + "walrus " * 1_400


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a tiny chat model in its process."""
    home = tmp_path_factory.mktemp("models")
    with opened(home / "home", saved(home / "model")) as memos, running(memos) as url:
        yield Site(memos, url, *keys_of(memos))


def measures(recall: float, **others: object) -> dict[str, object]:
    return {"recall": recall, "base_recall": 0.02, "abstention": 0.86, "rise": 0.031, "lost": ["Who?"], **others}


@pytest.fixture(scope="module")
def cube(site: Site) -> str:
    """A cube of ana's with a prompt prefix, two adapters, and a training that failed."""
    memos = site.memos
    cube, ids = noted(memos, "ana")
    memos.add(HOSTILE, cube=cube, actor="ana")
    memos.adapters.allow(cube, actor="ana")
    digest = hashlib.sha256(b"weights").hexdigest()
    first, second = (begun(memos.ledger, ids[:count], cube=cube).id for count in (2, 3))
    finished(memos.ledger, first, Outcome(AdapterState.READY, measures(0.94), digest, 4_200_000))  # type: ignore[arg-type]
    activated(memos.ledger, first)
    refused = Outcome(AdapterState.REFUSED, measures(0.41), reason="recall is 0.41, below 0.90")  # type: ignore[arg-type]
    finished(memos.ledger, second, refused)
    with memos.ledger.write() as connection:
        [task] = tasks.enqueue(connection, cube, [NewTask("learn", {}, key="")], memos.clock.now())
    memos.tasks.wait(task, timeout_s=60)
    return cube


def test_the_page_every_way(open_page: Open, cube: str) -> None:
    assert_every_way(open_page, f"/models?cube={cube}", ".results", "ana")
    assert_every_way(open_page, f"/models/compare?cube={cube}", "table", "ana")


def test_activation_memory_is_dropped_warmed_and_measured(open_page: Open, cube: str) -> None:
    page = open_page(f"/models?cube={cube}", "ana")
    kept = page.locator("#kept")
    expect(kept.get_by_text("not measured yet")).to_have_count(2)
    page.on("dialog", lambda dialog: dialog.accept())
    kept.get_by_role("button", name="Drop").click()
    expect(kept).to_contain_text("nothing is kept yet")
    kept.get_by_role("button", name="Warm").click()
    expect(kept).to_contain_text("Main memory")
    kept.get_by_role("button", name="Measure the first token").click()
    expect(kept).to_contain_text("times as soon")
    expect(kept.get_by_text("not measured yet")).to_have_count(0)
    page.reload()
    expect(kept).to_contain_text("times as soon")


def test_admins_see_all_tiers_and_verify_the_disk(open_page: Open, cube: str) -> None:
    page = open_page("/models", "admin")
    tiers = page.get_by_role("region", name="Activation memory by tier")
    for name in ("GPU", "Main memory", "Disk"):
        expect(tiers.get_by_role("row", name=name)).to_be_visible()
    page.get_by_role("button", name="Verify the disk").click()
    expect(page.get_by_role("status").filter(has_text="is whole")).to_be_visible()


def test_adapters_are_compared_forgotten_and_allowed_again(open_page: Open, cube: str) -> None:
    page = open_page(f"/models?cube={cube}", "ana")
    expect(page.get_by_role("row", name="No. 1")).to_contain_text("94.0 %")
    expect(page.get_by_role("row", name="No. 2")).to_contain_text("recall is 0.41")
    expect(page.locator("#log")).to_contain_text("Trainings")
    page.get_by_role("button", name="Compare the two").click()
    page.wait_for_url("**/models/compare?**")
    expect(page.get_by_role("row", name="Questions about learned memories")).to_contain_text("+53.0 points")
    page.goto(page.url.split("/console")[0] + f"/console/models/forget?cube={cube}&q=hive+number")
    page.get_by_role("checkbox").first.check()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget the chosen ones").click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("1 memory is not learned any more")
    page.get_by_role("button", name="Allow it to be learned again").click()
    page.wait_for_url("**/models?**")
    expect(page.locator("main")).to_contain_text("learning is allowed")


def test_by_keys_alone(open_page: Open, cube: str) -> None:
    page = open_page(f"/models?cube={cube}", "ana")
    page.keyboard.press("w")
    expect(page.get_by_role("status").filter(has_text="Computed")).to_be_visible()
    expect(page.get_by_role("button", name="Train")).to_be_visible()
    page.keyboard.press("t")
    expect(page.locator("#problem")).to_contain_text("ready for training")


def test_nobody_else_sees_them_and_text_stays_text(open_page: Open, cube: str) -> None:
    other = open_page(f"/models?cube={cube}", "ben")
    expect(other.locator("main")).not_to_contain_text("hive")
    expect(other.locator("main")).not_to_contain_text("94.0")
    page = open_page(f"/models/forget?cube={cube}&q=walrus", "ana")
    expect(page.locator(".choices").first).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


def test_learning_is_allowed_and_disallowed(open_page: Open, site: Site) -> None:
    page = open_page("/models?cube=ben", "ben")
    page.get_by_role("button", name="Allow learning").click()
    expect(page.locator("main")).to_contain_text("learning is allowed")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Disallow learning").click()
    expect(page.locator("main")).to_contain_text("learning is not allowed")
