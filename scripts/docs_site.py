"""Hook of MkDocs (`mkdocs.yml`): generated reference, links that leave `docs`, and `llms.txt`.

- `<!-- generated: NAME -->` in a page becomes that part of the reference (`scripts/docs_reference.py`), instead
  of the line below it, which is for readers of the repository.
- A link to a file of the repository outside `docs` keeps its text alone: the site has no copy of the repository.
- `llms.txt` lists the pages for language models (https://llmstxt.org), each as Markdown beside its HTML;
  `llms-full.txt` has all but the reference in one file.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.docs_reference import part  # noqa: E402 - MkDocs loads this file without a package

MARK = re.compile(r"<!-- generated: ([a-z]+) -->(?:\n\*This part is made .*\*)?")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_written: dict[str, str] = {}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in what is generated, and take out links that lead nowhere on the site."""
    markdown = MARK.sub(lambda found: part(found[1]), markdown)
    folder = Path(page.file.src_path).parent

    def keep(found: re.Match[str]) -> str:
        target = found[3]
        if urlsplit(target).scheme or target.startswith("#"):
            return found[0]
        outside = os.path.normpath(folder / target).startswith("..")
        return found[2] if outside else found[0]

    blocks = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    markdown = "".join(text if text.startswith("```") else LINK.sub(keep, text) for text in blocks)
    _written[page.file.src_path] = markdown
    return markdown


def on_post_build(config: Any, **_: Any) -> None:
    """Write `llms.txt`, `llms-full.txt` and the pages as Markdown."""
    site = Path(config["site_dir"])
    for path, markdown in _written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(markdown, encoding="utf-8")
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    full = []
    for section in config["nav"]:
        [(title, entries)] = section.items()
        lines += ["", f"## {title}", ""]
        for name, path in _pages(title, entries):
            lines.append(f"- [{name}]({path}): {_summary(_written[path])}")
            if not path.startswith("reference/"):
                full.append(_written[path])
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(full) + "\n", encoding="utf-8")


def _pages(title: str, entries: Any) -> list[tuple[str, str]]:
    """Return titles and paths of a part of the navigation, in its order."""
    if isinstance(entries, str):
        return [(title, entries)]
    found = []
    for entry in entries:
        if isinstance(entry, str):
            found.append((_heading(_written[entry]), entry))
        else:
            found += [page for name, inner in entry.items() for page in _pages(name, inner)]
    return found


def _heading(markdown: str) -> str:
    return markdown.lstrip().partition("\n")[0].lstrip("# ")


def _summary(markdown: str) -> str:
    """Return the first sentence of a page's text, without links."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    paragraphs = [each for each in re.split(r"\n{2,}", text) if re.match(r"[\w`*]", each)]
    sentence = re.split(r"(?<=\.)\s", " ".join(paragraphs[0].split()))[0] if paragraphs else ""
    return LINK.sub(lambda found: found[2], sentence).rstrip(":")
