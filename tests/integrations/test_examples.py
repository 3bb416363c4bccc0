"""The examples of integrations run, and the pages about them show parts of these examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {path.stem.rpartition("_")[0]: path for path in sorted((ROOT / "examples" / "integrations").glob("*.py"))}
PAGES = [path for path in sorted((ROOT / "docs" / "integrations").glob("*.md")) if path.name != "README.md"]
NAMED = os.environ.get("INTEGRATIONS", "").split()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name in NAMED])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """`make test-integrations` names the frameworks that are installed; no others are tried."""
    command = [sys.executable, "-W", "ignore", str(EXAMPLES[name])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "tuesday: Your parrot is Hugo."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_its_example(page: Path) -> None:
    example = EXAMPLES[page.stem].read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        rest = iter([line.strip() for line in example.splitlines()])
        for line in filter(None, map(str.strip, block.splitlines())):
            assert line in rest, line  # each behind the one before


def test_every_integration_has_an_example_a_page_and_a_row() -> None:
    modules = {path.stem for path in (ROOT / "memos" / "integrations").glob("*.py")} - {
        "__init__",
        "memory",
        "transcript",
    }
    table = (ROOT / "docs" / "integrations" / "README.md").read_text(encoding="utf-8")
    assert set(EXAMPLES) == modules == {page.stem for page in PAGES}
    assert modules == set(re.findall(r"^\| \[[^\]]+\]\((\w+)\.md\)", table, re.MULTILINE))
