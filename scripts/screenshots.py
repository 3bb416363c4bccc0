"""Take the pictures of the console in docs/images/console, from the bundled demo.

`python scripts/screenshots.py [FOLDER]`. Needs Debian's package `chromium`, or MEMOS_CHROMIUM.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "Which city does Maya live in?"
# The name of a picture and the page.
PICTURES = (
    ("start", "/?cube=demo"),
    ("ask", f"/ask?cube=demo&q={QUESTION.replace(' ', '+')}"),
    ("memories", "/memories?cube=demo"),
    ("people", "/people?cube=demo"),
)
_SIZE = {"width": 1200, "height": 800}


def take(folder: Path) -> None:
    """Run the demo, serve it, and write a picture of each page."""
    with tempfile.TemporaryDirectory() as home:
        memos = [sys.executable, "-m", "memos"]
        subprocess.run([*memos, "demo", "--data-dir", home], check=True, capture_output=True)
        serving = [*memos, "console", "--no-browser", "--port", "0", "--data-dir", home]
        with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
            try:
                _walk(_link(server), folder)
            finally:
                server.terminate()


def _link(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"Console: (\S+)", line):
            return found[1]
    raise SystemExit("The server did not start.")


def _walk(link: str, folder: Path) -> None:
    program = os.environ.get("MEMOS_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(viewport=_SIZE, reduced_motion="reduce")
        page = context.new_page()
        page.goto(link)
        page.wait_for_url("**/console/")
        for name, path in PICTURES:
            _picture(page, link.partition("/sign-in")[0] + path, folder / f"{name}.png")
        browser.close()


def _picture(page: Page, address: str, file: Path) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.activeElement?.blur()")
    page.screenshot(path=file)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/console"
    target.mkdir(parents=True, exist_ok=True)
    take(target)
