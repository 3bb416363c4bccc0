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
from memos.api.console.view import COOKIE
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.keys import keys_of
from tests.api.running import running
from tests.fakes import WordEmbedder

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_PATIENCE_MS = 15_000  # the machine may be busy with other tests
expect.set_options(timeout=_PATIENCE_MS)
_SERIOUS = ("serious", "critical")
_WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-extensions",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
)
LIGHT, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="package")  # its event loop would stay in the way of other packages' tests
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


def session_of(site: Site, who: str) -> str:
    """Return the secret of a new session of somebody; `test_signing_in` gets one by the page."""
    sessions = site.memos.sessions
    if who == "owner":
        return sessions.redeem(sessions.create_link().secret).secret
    return sessions.start(site.memos.keys.authenticate(getattr(site, who))).secret


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
        context.set_default_timeout(_PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", asked)
        context.add_cookies([{"name": COOKIE, "value": session_of(site, who), "url": f"{site.url}/console"}])
        page.goto(f"{site.url}/console{path}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert problems == []


def assert_accessible(page: Page, *rules: str) -> None:
    """Have axe-core look at a page as it is now, by all its rules or these; nothing serious may be found."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    only = {"type": "rule", "values": list(rules)} if rules else {"type": "tag", "values": list(_WCAG)}
    options = {"runOnly": only, "resultTypes": ["violations"], "selectors": False, "iframes": False}
    # Rows of a table or a list are alike: the first three stand for all.
    context = {"include": [["html"]], "exclude": [["[data-row]:nth-of-type(n+4)"]]}
    found = page.evaluate(
        "async ([context, options]) => (await axe.run(context, options)).violations", [context, options]
    )
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
    """Look at a page in light, in dark and at a phone's width; `ready` is a selector that must appear."""
    assert_all_every_way(open_page, {path: ready}, who)


def assert_all_every_way(open_page: Open, pages: Mapping[str, str], who: str = "owner") -> None:
    """Do so with several pages, given by path with their selectors.

    What axe-core finds is the same in dark but for the contrasts, and at a phone's width but for the layout.
    """
    page = open_page("/", who)
    root = page.url.partition("/console")[0] + "/console"
    for path, ready in pages.items():
        page.set_viewport_size(LIGHT)
        page.emulate_media(color_scheme="light")
        page.goto(root + path)
        page.wait_for_selector(ready)
        assert_accessible(page)
        assert_fits(page)
        page.emulate_media(color_scheme="dark")
        assert_accessible(page, "color-contrast")
        page.set_viewport_size(PHONE)
        assert_fits(page)
    page.context.close()
