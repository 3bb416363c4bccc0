"""The pages about integrations show parts of their examples, and the table on the first page is true."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/how-to/integrations"
EXAMPLES = {path.stem.rpartition("_")[0]: path for path in sorted((ROOT / "examples" / "integrations").glob("*.py"))}
SHARED = {"__init__", "memory", "transcript"}
MODULES = {path.stem for path in (ROOT / "memos" / "integrations").glob("*.py")} - SHARED
# On a busy machine two seconds may be too short.
GENEROUS = "as memos, AgentMemory(memos, timeout_s=60)"


def test_the_block_of_the_first_page_runs(tmp_path: Path) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```", (DOCS / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    command = [sys.executable, "-W", "error", "-c", block.replace("as memos, AgentMemory(memos)", GENEROUS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert "user: My parrot is called Hugo." in done.stdout, done.stderr


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_page_shows_its_example(name: str) -> None:
    example = EXAMPLES[name].read_text(encoding="utf-8")
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        rest = iter([line.strip() for line in example.splitlines()])
        for line in filter(None, map(str.strip, block.splitlines())):
            assert line in rest, line  # each behind the one before


def test_the_table_names_each_module_with_the_versions_it_is_tested_with() -> None:
    table = (DOCS / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[[^\]]+\]\((\w+)\.md\) \| ([^|]+) \|", table, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = [
        line
        for pins in Path(__file__).parent.glob("constraints*.txt")
        for line in pins.read_text(encoding="utf-8").splitlines()
    ]
    assert rows.keys() == MODULES
    for name, versions in rows.items():
        [needed] = project["optional-dependencies"][name.replace("_", "-")]
        package = re.split("[><=]", needed)[0]
        tested = {line.partition("==")[2] for line in pinned if line.startswith(f"{package}==")}
        assert set(re.findall(r"\d+(?:\.\d+)+", versions)) == tested, name
