"""The page about licences: its table is what is installed, no licence is refused, no file of data is left out."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "licences.md").read_text(encoding="utf-8")
CODE = {".py", ".pyi", ".pyc", ".typed", ".mako", ".html", ".css", ".js", ".svg"}
# Written like code, and named there by its folder or not at all.
PROGRAMS = ("memos/api/hooks/plugin/*",)


def test_the_table_is_what_is_installed_and_no_licence_is_refused() -> None:
    """Otherwise: python scripts/licences.py."""
    check = [sys.executable, "scripts/licences.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_file_of_data_says_where_it_comes_from() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "memos", "scripts", "benchmarks", "tests/data"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = re.findall(r"`((?:memos|scripts|benchmarks|tests)/[^`]+)`", PAGE.partition("## Data")[2])
    data = [name for name in listed.stdout.split() if Path(name).suffix not in CODE | {".sh"}]
    unnamed = [
        name
        for name in data
        if not any(fnmatch(name, each) or name.startswith(f"{each}/") for each in (*named, *PROGRAMS))
    ]
    assert len(data) > 10
    assert unnamed == []
