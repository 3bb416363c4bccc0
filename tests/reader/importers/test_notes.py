"""Notes in Markdown: vaults of Obsidian and projects of basic-memory, with their dates, tags and links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from memos.reader.importers.formats import Format
from memos.reader.importers.sources import LINK
from tests.reader.importers.exports import left_out, problems, read, said, times, write, zipped

VAULT = {
    ".obsidian/app.json": "{}",
    ".trash/old.md": "thrown away",
    "daily/2026-01-05.md": "Met [[People/Ana|Ana]] about the [[Garden#beds]].\r\n#garden and `#code`",
    "People/Ana.md": (
        "---\ntitle: Ana Lopez\ncreated: 2025-11-03\ntags: [friend, garden]\naliases:\n  - Annie\n---\n"
        "# Ana\n\n%% private %%Keeps bees. ![[bees.png]] See [[Garden]].\n"
    ),
    "empty.md": "   ",
    "bees.png": b"\x89PNG",
    "board.canvas": "{}",
    "broken.md": b"caf\xe9",
}


@pytest.mark.parametrize("pack", [zipped, write])
def test_a_vault_is_read_note_by_note(tmp_path: Path, pack: Any) -> None:
    files = VAULT if pack is write else {name: held for name, held in VAULT.items() if not name.startswith(".")}
    format_, records = read(pack(tmp_path / "vault.zip", files))
    assert format_ is Format.NOTES
    assert said(records) == [
        ("People/Ana", "notes", "# Ana\n\nKeeps bees. [file bees.png] See Garden."),
        ("daily/2026-01-05", "notes", "# 2026-01-05\n\nMet Ana about the Garden.\n#garden and `#code`"),
    ]
    ana, day = (each for each in records if each.message)
    assert ana.tags == ("notes:note", "friend", "garden")
    assert day.tags == ("notes:note", "garden")
    assert ana.message["info"] == {
        "created": "2025-11-03", "aliases": ["Annie"], "title": "Ana Lopez", "path": "People/Ana.md",
        "links": ["Garden"],
    }  # fmt: skip
    assert times(records) == ["2025-11-03 00:00:00", "2026-01-05 00:00:00"]
    assert problems(records) == [("broken.md", "is not UTF-8: byte 0xe9 in line 1; convert the file to UTF-8")]
    assert left_out(records) == {
        "hidden or empty turns": 1, "files of the type .png": 1, "files of the type .canvas": 1,
    }  # fmt: skip


def test_a_note_without_a_date_has_that_of_its_file_and_a_link_is_not_followed(tmp_path: Path) -> None:
    vault = write(tmp_path / "vault", {"a.md": "Water the beds."})
    os.utime(vault / "a.md", (1_767_607_200, 1_767_607_200))
    (vault / "b.md").symlink_to("/etc/hostname")
    records = read(vault)[1]
    assert times(records) == ["2026-01-05 10:00:00+00:00"]
    assert left_out(records) == {LINK: 1}
    assert said(read(vault / "a.md")[1]) == [("a", "notes", "# a\n\nWater the beds.")]


BASIC = {
    "people/ana.md": (
        "---\ntitle: Ana\ntype: person\npermalink: people/ana\ntags:\n- friend\n---\n\n# Ana\n\nMet in Lyon.\n\n"
        "## Observations\n- [work] Keeps bees #garden (told me in May)\n- [ ] an open task\n\n"
        "## Relations\n- works_with [[Ben]] (since 2024)\n- [[Garden]]\n\n```\n- [code] not one\n```\n"
    ),
}


def test_observations_and_relations_of_basic_memory_are_read_by_themselves(tmp_path: Path) -> None:
    format_, records = read(write(tmp_path / "project", BASIC))
    assert format_ is Format.BASIC_MEMORY
    note, *rest = (each for each in records if each.message)
    assert "Met in Lyon." in note.message["content"]
    assert "- [ ] an open task" in note.message["content"]
    assert "Keeps bees" not in note.message["content"]
    assert [(each.message["content"], each.tags) for each in rest] == [
        ("Ana: Keeps bees #garden", ("basic-memory:observation", "garden")),
        ("Ana works with Ben", ("basic-memory:relation",)),
    ]
    assert rest[0].message["info"]["category"] == "work"
    assert rest[0].message["info"]["context"] == "told me in May"
    assert [each.message["message_id"] for each in rest] == [
        each.message["message_id"] for each in read(tmp_path / "project")[1] if each.message
    ][1:]
