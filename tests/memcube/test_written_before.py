"""A store, dumps and a backup that version 0.1 wrote (tests/data) open, load and restore with the same rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from memos.core.types import ItemType
from memos.kernel.relocation import migrate, restore
from tests.data.make import CUBE, PASSPHRASE, SETTINGS, opened, shown
from tests.fakes import WordEmbedder

DATA = Path(__file__).parents[1] / "data"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


def unpacked(name: str, folder: Path) -> Path:
    shutil.unpack_archive(DATA / f"{name}.zip", folder / name)
    return folder / name


def test_a_store_opens_and_migrates(tmp_path: Path) -> None:
    home = unpacked("home", tmp_path)
    with opened(home) as memos:
        assert shown(memos) == EXPECTED["stored"]
        memos.maintenance.catch_up()
        assert memos.maintenance.verify().clean
        again = memos.add("a lone note about otters", cube=CUBE, idempotency_key="note")
        assert again.replayed
    source, target = (SETTINGS.model_copy(update={"home": place}) for place in (home, tmp_path / "moved"))
    assert migrate(source, target, embedder=WordEmbedder()).differences == ()
    with opened(tmp_path / "moved") as memos:
        assert shown(memos) == EXPECTED["stored"]
    for place in (home, tmp_path / "moved"):  # at the end, since what a search warms is moved and merged afterwards
        with opened(place) as memos:
            assert memos.search("ferry Oslo", cubes=[CUBE], top_k=3)


@pytest.mark.parametrize(("name", "passphrase"), [("plain", None), ("sealed", PASSPHRASE)])
def test_a_dump_loads(name: str, passphrase: str | None, tmp_path: Path) -> None:
    file = DATA / f"{name}.memcube"
    with opened(tmp_path) as memos:
        told = memos.transfer.inspect(file, passphrase=passphrase)
        assert (told.cube, told.sealed, told.fits) == (CUBE, passphrase is not None, True)
        done = memos.transfer.load(file, trust=True, passphrase=passphrase)
        assert (done.items, done.skipped, done.left_out) == (told.counts["items"], 0, ())
        assert shown(memos) == EXPECTED["dumped"]
        assert memos.maintenance.verify().clean
        memos.erase(next(iter(EXPECTED["dumped"]["items"])), cube=CUBE)
        assert memos.transfer.load(file, merge=True, trust=True, passphrase=passphrase).erased >= 1


def test_a_backup_restores_without_what_was_erased_since(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"home": tmp_path / "restored"})
    done = restore(unpacked("backup", tmp_path), settings, embedder=WordEmbedder())
    assert done.erased_again > 0
    assert done.differences == ()
    with opened(settings.home) as memos:
        found, stored, dumped = shown(memos)["items"], EXPECTED["stored"]["items"], EXPECTED["dumped"]["items"]
        derived = {ItemType.USER, ItemType.PROFILE, ItemType.SUMMARY}  # made again of what is left
        told = {id_: item for id_, item in found.items() if item[0] not in derived}
        assert told == {id_: item for id_, item in stored.items() if item[0] not in derived}
        assert len(told) > 25
        assert found.keys().isdisjoint(dumped.keys() - stored.keys())
