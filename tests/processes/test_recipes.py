"""The recipes of CONTRIBUTING.md, followed step by step in a copy of the code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = {
    title: steps
    for title, text in re.findall(r"^## (Add .*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    if (steps := re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
}


def apply(diff: str, file: Path) -> None:
    """Replace the lines of a diff without line numbers, which must be in the file once."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    text = file.read_text(encoding="utf-8")
    if not before.rstrip().endswith((")", ":", "(", ",", "{", "]")):  # the beginning of a line is enough
        before, after = before.rstrip("\n"), after.rstrip("\n")
    assert text.count(before) == 1, f"{file.name} has it {text.count(before)} times:\n{before}"
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.parametrize("title", sorted(RECIPES))
def test_a_recipe_works_as_written(title: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in ("memos", "tests", "docs"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, copy)
    env = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(copy),
        "MEMOS_HOME": str(tmp_path / "home"),
    }
    for kind, place, text in RECIPES[title]:
        if kind == "diff":
            apply(text, copy / place)
        elif kind == "console":
            for line in re.findall(r"^\$ (.*)", text, re.MULTILINE):
                words = shlex.split(line)
                set_, words = [w for w in words if re.match(r"[A-Z_]+=", w)], [w for w in words if "=" not in w]
                program = {"memos": ["-m", "memos.cli"], "python": []}[words[0]]
                ended = subprocess.run(
                    [sys.executable, *program, *words[1:]],
                    cwd=copy,
                    env=env | dict(w.split("=", 1) for w in set_),
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                )
                assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        else:
            (copy / place).write_text(text, encoding="utf-8")


def test_every_recipe_is_followed() -> None:
    assert sorted(RECIPES) == [
        "Add a REST route",
        "Add a backend",
        "Add a command",
        "Add a page of the console",
        "Add an integration",
    ]
