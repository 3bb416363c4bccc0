"""Requests of persons: all that is held about them, as an archive; forgetting them; and nothing of anybody else."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.errors import Conflict, InvalidInput, PermissionDenied
from tests.fakes import WordEmbedder
from tests.support import forks

ANA, BEN = "zq-ana", "ben"
NAME = "Ana Quillfeather"
IDS = [ANA, "zq-bot", "zq-laptop", "zq-notes", "zq-house", "zq-once"]


def told(memos: MemOS) -> None:
    """Ana has cubes, an agent and a key, adds to Ben's cube, and is spoken of there."""
    memos.users.create(ANA, name=NAME)
    memos.users.create(BEN)
    memos.users.create("zq-bot", kind="agent", acts_for=ANA)
    memos.users.create("team", kind="group")
    memos.users.join("team", ANA)
    memos.keys.create(ANA, "zq-laptop")
    memos.add("I keep the pangolin in Zanzibar.", cube=ANA, actor=ANA, idempotency_key="zq-once")
    memos.update(memos.memories.list(cube=ANA)[0].id, "I keep the pangolin in Mombasa.", actor=ANA)
    memos.add("The bot noted a giraffe.", cube="zq-bot", actor="zq-bot")
    memos.documents.wait(memos.documents.add(("zq-house.md", b"# Doors\n\n47B19"), cube=ANA, actor=ANA).id, 60)
    memos.sharing.grant(BEN, "team", "editor", actor=BEN)
    memos.cubes.create("zq-notes", actor=ANA)
    memos.sharing.grant("zq-notes", BEN, "editor", actor=ANA)
    memos.add("Ben wrote of a wombat here.", cube="zq-notes", actor=BEN)
    memos.add("Ana added a numbat for Ben.", cube=BEN, actor=ANA)
    memos.add(f"Yesterday {NAME} was at the lake.", cube=BEN, actor=BEN)
    memos.add("Nobody else is in this one.", cube=BEN, actor=BEN)


def of_ben(memos: MemOS) -> list[str]:
    return [item.memory for item in memos.memories.list(cube=BEN)]


def test_an_archive_has_all_that_is_held_and_opens_without_a_program(memos: MemOS, tmp_path: Path) -> None:
    told(memos)
    made = memos.subjects.export(ANA, tmp_path / "ana.zip", actor=ANA)
    assert made.memories == 6
    with zipfile.ZipFile(made.path) as archive:
        head = json.loads(archive.read("archive.json"))
        account = json.loads(archive.read("account.json"))
        read: dict[tuple[str, str], list[dict[str, Any]]] = {
            (each["cube"], each["relation"]): [json.loads(line) for line in archive.read(each["file"]).splitlines()]
            for each in head["cubes"]
        }
        pages = "".join(archive.read(each["page"]).decode() for each in head["cubes"])
        originals = [archive.read(name) for name in archive.namelist() if name.startswith("files/")]
        index = archive.read("index.html").decode()
    assert set(read) == {
        (ANA, "owned"),
        ("zq-bot", "owned"),
        ("zq-notes", "owned"),
        (BEN, "shared"),
        (BEN, "mentions by others"),
    }
    said = [version["memory"] for memory in read[ANA, "owned"] for version in memory["versions"]]
    assert said[:2] == ["I keep the pangolin in Zanzibar.", "I keep the pangolin in Mombasa."]
    assert read[ANA, "owned"][0]["messages"][0]["text"] == "I keep the pangolin in Zanzibar."
    assert [memory["versions"][0]["memory"] for memory in read[BEN, "shared"]] == ["Ana added a numbat for Ben."]
    assert originals == [b"# Doors\n\n47B19"]
    assert {row["id"] for row in account["identities"]} == {ANA, "zq-bot"}
    assert "digest" not in account["api_keys"][0]
    for text in ("Zanzibar", "Mombasa", "giraffe", "wombat", "numbat", NAME, "zq-house.md"):
        assert text in pages
    assert "Nobody else" not in pages
    assert 'href="cubes/001.html"' in index
    assert "<script" not in index + pages
    with pytest.raises(Conflict, match="exists"):
        memos.subjects.export(ANA, tmp_path / "ana.zip", actor=ANA)


def test_a_user_is_forgotten_as_the_preview_said_and_nothing_of_others(memos: MemOS) -> None:
    told(memos)
    preview = memos.subjects.preview(ANA, actor=ANA)
    assert {cube.cube: (cube.relation, cube.goes, cube.by_others, cube.mentions) for cube in preview.cubes} == {
        ANA: ("owned", 2, 0, 0),
        "zq-bot": ("owned", 1, 0, 0),
        "zq-notes": ("owned", 1, 1, 0),
        BEN: ("shared", 1, 0, 1),
    }
    assert [item.memory for item in preview.sample] == [f"Yesterday {NAME} was at the lake."]
    assert [item.memory for item in preview.examples][::-1][:2] == [
        "I keep the pangolin in Mombasa.",
        "The bot noted a giraffe.",
    ]
    assert len(preview.examples) == preview.goes
    with pytest.raises(Conflict, match="look at the preview"):
        memos.subjects.forget(ANA, expected=preview.goes + 1, actor=ANA)
    done = memos.subjects.forget(ANA, expected=preview.goes, actor=ANA)
    assert (done.erased, done.left, len(done.receipts)) == (5, 1, 4)
    assert of_ben(memos) == [f"Yesterday {NAME} was at the lake.", "Nobody else is in this one."]
    assert memos.audit.verify().intact
    assert memos.audit.verify(BEN).intact
    assert memos.maintenance.verify().clean
    assert all(memos.erasures.verify(receipt, scan=False).passed for receipt in done.receipts)
    texts = [*IDS, "pangolin", "Mombasa", "giraffe", "wombat", "numbat", "47B19"]
    scan = memos.erasures.verify(done.receipts[0], texts=texts).scan
    assert scan is not None
    assert scan.remnants == ()
    with pytest.raises(PermissionDenied):
        memos.search("pangolin", actor=ANA)
    again = memos.subjects.forget(ANA, expected=0)
    assert (again.erased, again.receipts) == (0, ())
    assert of_ben(memos) == [f"Yesterday {NAME} was at the lake.", "Nobody else is in this one."]


def test_a_person_who_is_spoken_of_is_forgotten_in_the_cubes_one_may_change(memos: MemOS) -> None:
    told(memos)
    memos.add([{"role": "user", "name": NAME, "content": "I sail at night."}], cube=BEN, actor=BEN)
    memos.add(f"{NAME} sent a postcard.", cube=ANA, actor=ANA)
    seen = memos.subjects.preview("ana  quillfeather", kind="person", actor=BEN)
    assert {cube.cube: (cube.goes, cube.mentions) for cube in seen.cubes} == {BEN: (1, 1)}
    every = memos.subjects.preview(NAME, kind="person", mentions=True, cubes=[BEN], actor=BEN)
    assert (every.goes, every.mentions) == (2, 0)
    done = memos.subjects.forget(NAME, kind="person", mentions=True, expected=2, actor=BEN)
    assert (done.erased, done.left, done.name) == (2, 0, None)
    assert of_ben(memos) == ["Ana added a numbat for Ben.", "Nobody else is in this one."]
    assert f"{NAME} sent a postcard." in [item.memory for item in memos.memories.list(cube=ANA)]


def test_nobody_asks_about_another_user_and_readers_forget_nothing(memos: MemOS, tmp_path: Path) -> None:
    told(memos)
    for call in (
        lambda: memos.subjects.preview(ANA, actor=BEN),
        lambda: memos.subjects.export(ANA, tmp_path / "x.zip", actor=BEN),
        lambda: memos.subjects.forget(ANA, expected=0, actor=BEN),
    ):
        with pytest.raises(PermissionDenied, match="not an admin"):
            call()
    assert not (tmp_path / "x.zip").exists()
    memos.sharing.grant(BEN, "team", "reader", actor=BEN)
    seen = memos.subjects.preview(ANA, actor=ANA)
    assert (seen.goes, seen.out_of_reach) == (4, 1)
    assert memos.subjects.preview(ANA).goes == 5  # an admin may
    assert memos.subjects.forget(ANA, expected=4, actor=ANA).out_of_reach == 1
    assert "Ana added a numbat for Ben." in of_ben(memos)
    for wrong, field in (
        (lambda: memos.subjects.preview(BEN, kind="dog"), "kind"),
        (lambda: memos.subjects.preview(" ", kind="person"), "subject"),
        (lambda: memos.subjects.forget(BEN, expected=0, cubes=[BEN]), "cubes"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            wrong()
        assert refusal.value.field == field


FORGET = """
import os, signal, sys
import sqlalchemy as sa
from memos import MemOS
from tests.fakes import WordEmbedder
left = int(sys.argv[2])
with MemOS.open(sys.argv[1], embedder=WordEmbedder()) as memos:
    memos._worker.stop()
    goes = memos.subjects.preview("zq-ana").goes
    @sa.event.listens_for(memos.ledger._engine, "before_cursor_execute")
    def count(connection, cursor, statement, *_):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    memos.subjects.forget("zq-ana", expected=goes, wait=False)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.heavy
def test_a_kill_in_the_middle_leaves_everything_or_nothing(tmp_path: Path, settings: Settings) -> None:
    """A child is killed before one of the statements, and at last between the commit and the purge."""
    home = tmp_path / "home"
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        told(memos)
    for statement in (20, 150, 300, 10_000):
        with forks.Script(FORGET, str(home), str(statement)) as process:
            assert process.wait() != 0
        with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
            seen = memos.subjects.preview(ANA)
            assert memos.audit.verify().intact
            assert seen.goes in (0, 5)
            if seen.goes:
                assert [cube.id for cube in memos.cubes.list()] == [BEN, "default", ANA, "zq-bot", "zq-notes"]
                continue
            memos.maintenance.finish_erasures()
            receipt = next(each.subject for each in memos.audit.list(kinds=["erasure"]))
            scan = memos.erasures.verify(str(receipt), texts=[*IDS, "pangolin", "numbat"]).scan
            assert scan is not None
            assert scan.remnants == ()
            assert memos.maintenance.verify().clean
    assert seen.goes == 0
    assert statement == 10_000  # the last kill came behind the commit
