"""A browser, a server with three people, and pages whose errors, strange requests and accessibility are checked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from memos import MemOS, Settings
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.keys import keys_of
from tests.api.running import running
from tests.fakes import WordEmbedder

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_SERIOUS = ("serious", "critical")
_OPTIONS = ("--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-sync", "--no-first-run")
LIGHT, DARK, PHONE = {"width": 1280, "height": 900}, {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium: `MEMOS_CHROMIUM`, or the one of the system."""
    program = os.environ.get("MEMOS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        told = "no chromium here: install Debian's package `chromium`, or set MEMOS_CHROMIUM"
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)
    expect.set_options(timeout=15_000)  # a busy machine is slow
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(_OPTIONS))
        yield started
        started.close()


@dataclass(frozen=True, slots=True)
class Site:
    """A running server; `admin`, `ana` and `ben` are API keys."""

    memos: MemOS
    url: str
    admin: str
    ana: str
    ben: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for the tests of a module: they must not expect it to be empty."""
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home = tmp_path_factory.mktemp("site")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos, running(memos) as url:
        yield Site(memos, url, *keys_of(memos))


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[Open]:
    """Return a function that opens a page of the console as somebody: `open_page("/ask?q=…", "ana")`.

    `who` is a name of a key of the site, "owner" for the local owner. At the end of the test no script may have failed,
    and no request may have gone to another host.
    """
    problems: list[str] = []
    contexts = []

    def heard(message: ConsoleMessage) -> None:
        if (
            message.type == "error"
            and "Failed to load resource" not in message.text
            and "Response Status" not in message.text
        ):
            problems.append(message.text)

    def asked(request: Request) -> None:
        if not request.url.startswith((site.url, "data:", "blob:")):
            problems.append(f"a request to {request.url}")

    def open_(path: str = "/", who: str = "owner", *, dark: bool = False, phone: bool = False) -> Page:
        context = browser.new_context(
            viewport=PHONE if phone else LIGHT, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", asked)
        if who == "owner":
            page.goto(f"{site.url}/console/sign-in?link={site.memos.sessions.create_link().secret}")
            page.wait_for_url("**/console/")
            page.goto(f"{site.url}/console{path}")
        else:
            page.goto(f"{site.url}/console{path}")
            page.get_by_label("API key").fill(getattr(site, who))
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(lambda url: "/sign-in" not in url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert problems == []


def assert_accessible(page: Page) -> None:
    """Have axe-core look at a page as it is now; nothing serious may be found."""
    page.evaluate(_AXE.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    told = [
        f"{each['id']}: {each['help']} ({', '.join(node['html'][:150] for node in each['nodes'][:3])})"
        for each in found
        if each["impact"] in _SERIOUS
    ]
    assert told == [], "\n".join(told)


def assert_fits(page: Page) -> None:
    """Check that a page needs no sideways scrolling at this width."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} pixels too wide"


def assert_every_way(open_page: Open, path: str, ready: str, who: str = "owner") -> None:
    """Open a page in light, dark and at a phone's width, and check each; `ready` is a selector that must appear."""
    assert_all_every_way(open_page, {path: ready}, who)


def assert_all_every_way(open_page: Open, pages: Mapping[str, str], who: str = "owner") -> None:
    """Do so with several pages, given by path with their selectors; signs in once a way."""
    for dark, phone in ((False, False), (True, False), (False, True)):
        page = open_page("/", who, dark=dark, phone=phone)
        root = page.url.partition("/console")[0] + "/console"
        for path, ready in pages.items():
            page.goto(root + path)
            page.wait_for_selector(ready)
            assert_accessible(page)
            assert_fits(page)
        page.context.close()
