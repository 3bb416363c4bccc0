"""The page about upgrading, followed on what version 0.1.0 wrote: its data folder, a cube's file and a backup.

`tests/data/release_0_1_0.zip` was made by the code of that release with its own embedder, and is not made anew; what
earlier development versions wrote is tested in tests/memcube/test_written_before.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memos import MemOS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
COMMANDS = [
    line.strip()
    for block in re.findall(r"^ *```bash\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with what 0.1.0 wrote: `home`, `backup`, `maya.memcube`, and the ids and the key in `made.json`."""
    shutil.unpack_archive(Path(__file__).parents[1] / "data" / "release_0_1_0.zip", tmp_path)
    return tmp_path


def check(memos: MemOS, old: Path, *, erased: bool = True) -> None:
    """Expect every memory of 0.1.0 with its versions and source, and what was erased only where it was not yet."""
    home, _, note, _ = json.loads((old / "made.json").read_text(encoding="utf-8"))["items"]
    listed = {item.memory: item for item in memos.memories.list(cube="maya", filter={"status": "active"})}
    assert {"I'm allergic to peanuts.", "Please always answer in French.", "No, I moved to Lyon in May."} <= set(listed)
    assert ("The secret word is xylophone." in listed) is not erased
    assert [version.after.memory for version in memos.memories.history(note)] == [
        "Noted: no peanuts.",
        "Noted: no peanuts, no cashews.",
    ]
    assert memos.get(home).superseded_by == listed["No, I moved to Lyon in May."].id
    [file] = memos.documents.list(cube="maya")
    assert b"seven hives" in memos.documents.content(file.id, cube="maya")
    [bees, *_] = memos.search("Where are the hives?", cubes=["maya"]).hits
    assert "behind the old chapel" in bees.item.memory
    assert memos.search("Where do I live?", cubes=["maya"]).hits[0].item.memory == "No, I moved to Lyon in May."
    assert memos.maintenance.verify().clean


@pytest.mark.heavy
def test_the_commands_of_the_page_upgrade_a_data_folder(old: Path) -> None:
    assert (old / "home" / "graph").is_dir()
    shutil.move(old / "backup", old / "memos-before-0.2")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(old),
        "MEMOS_HOME": str(old / "home"),
    }
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=old, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if "search" in command:
            assert done.stdout.index("moved to Lyon") < done.stdout.index("peanuts")
    assert not (old / "home" / "graph").exists()
    with MemOS.open(old / "home") as memos:
        check(memos, old)
        assert memos.search("Where did I live before?", cubes=["maya"]).hits[0].item.memory == "I live in Paris."
    with MemOS.open(old / "trial") as memos:
        check(memos, old)


def test_a_data_folder_opens_with_its_keys(old: Path) -> None:
    with MemOS.open(old / "home") as memos:
        check(memos, old)
        key = json.loads((old / "made.json").read_text(encoding="utf-8"))["key"]
        caller = memos.keys.authenticate(key)
        assert (caller.identity.id, memos.users.get("bot").acts_for) == ("maya", "maya")


def test_the_file_of_a_cube_loads(old: Path) -> None:
    with MemOS.open(old / "new") as memos:
        loaded = memos.transfer.load(old / "maya.memcube", trust=True)
        assert (loaded.items, loaded.left_out) == (7, ())
        check(memos, old, erased=False)
