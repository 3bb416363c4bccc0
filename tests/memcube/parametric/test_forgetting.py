"""What was learned of a memory leaves with it: rows first, then files, also after a kill in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.clock import new_id
from memos.core.lora import ADAPTER_FILE, CONFIG, FILES
from memos.errors import BackendUnavailable
from memos.memcube.backup import backups
from memos.memcube.backup.restore import copy_ledger, restore_archive
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.engine import Ledger, sqlite_url
from memos.memcube.parametric.forgetting import FOLDER, Forgotten, differences, forget
from tests.fakes import FixedClock, WordEmbedder
from tests.support.adapters import NOW, REFUSED, SIZE, active, allow, begun, finished, of_shard, serving, with_files
from tests.support.ledgers import Store, sqlite_ledger


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    on_file = request.param == "sqlite"
    url = sqlite_url(tmp_path / "ledger.db") if on_file else request.getfixturevalue("postgres_server").url()
    ledger = Ledger.open(url)
    store = Store(ledger, FixedClock())
    store.make("default")
    allow(ledger)
    yield store
    ledger.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


def ids_of(store: Store) -> set[str]:
    with store.ledger.read() as connection:
        return {row.id for cube in ("default", "other") for row in adapter_rows.of(connection, cube)}


def test_who_saw_what_is_gone_is_removed_with_its_files(store: Store, folder: Path) -> None:
    items = [store.add(text).item_ids[0] for text in ("I live in Lyon.", "I keep bees.")]
    saw, training, refused = active(store.ledger, items), begun(store.ledger, items).id, begun(store.ledger, items).id
    finished(store.ledger, refused, REFUSED)
    other = of_shard(store.ledger, items[1:])
    for id_ in (saw, refused, other):
        with_files(folder, id_)
    with_files(folder, training, training=True)
    # What was refused keeps its row, not what it was taught.
    assert forget(store.ledger, folder) == [Forgotten(refused, "", 3, SIZE)]
    store.erase(items[0])
    assert forget(store.ledger, folder) == [
        Forgotten(id_, "default", files, size)
        for id_, files, size in sorted([(saw, 3, SIZE), (training, 5, SIZE + 4), (refused, 0, 0)])
    ]
    assert {path.name for path in folder.iterdir()} == ids_of(store) == {other} == set(serving(store.ledger))
    assert forget(store.ledger, folder) == []


def test_only_the_cubes_that_are_named_lose_what_is_stale(store: Store, folder: Path) -> None:
    store.make("other")
    allow(store.ledger, "other")
    here, there = store.add("here").item_ids[0], store.add("there", cube="other").item_ids[0]
    mine, theirs = active(store.ledger, [here]), active(store.ledger, [there], cube="other")
    store.update(here, "here, changed")
    store.update(there, "there, changed", cube="other")
    assert forget(store.ledger, folder, ()) == []
    assert forget(store.ledger, folder, ["other"]) == [Forgotten(theirs, "other", 0, 0)]
    assert forget(store.ledger, None) == [Forgotten(mine, "default", 0, 0)]
    assert ids_of(store) == set()


def test_a_kill_between_the_rows_and_the_files_leaves_nothing_for_good(store: Store, folder: Path) -> None:
    item = store.add("I live in Lyon.").item_ids[0]
    first, second = active(store.ledger, [item]), of_shard(store.ledger, [item])
    with_files(folder, first, training=True)
    half = with_files(folder, second)
    with store.ledger.write() as connection:  # killed when the rows were gone
        adapter_rows.remove(connection, first)
        adapter_rows.remove(connection, second)
    (half / ADAPTER_FILE).unlink()  # and while files were deleted
    assert forget(store.ledger, folder, ()) == [
        Forgotten(id_, "", files, size) for id_, files, size in sorted([(first, 5, SIZE + 4), (second, 2, SIZE - 7)])
    ]
    assert list(folder.iterdir()) == []


def test_a_kill_after_the_end_of_a_training_leaves_nothing_of_how_far_it_was(store: Store, folder: Path) -> None:
    item = store.add("I live in Lyon.").item_ids[0]
    ended, harmed = (active(store.ledger, [item]) for _ in range(2))
    under_way = begun(store.ledger, [item]).id
    for id_ in (ended, under_way):
        (with_files(folder, id_, training=True) / "training.safetensors.new").write_bytes(b"half")
    (folder / harmed).write_text("no folder")
    assert forget(store.ledger, folder) == []
    assert {path.name for path in (folder / ended).iterdir()} == {*FILES, "exercises.jsonl"}
    assert len(list((folder / under_way).iterdir())) == len(FILES) + 3  # it goes on from there


def test_rows_whose_files_are_gone_already_are_removed(store: Store, folder: Path) -> None:
    item = store.add("I live in Lyon.").item_ids[0]
    id_ = active(store.ledger, [item])
    folder.mkdir()
    store.erase(item)
    assert forget(store.ledger, folder) == [Forgotten(id_, "default", 0, 0)]


def test_the_files_of_a_dropped_cube_go(store: Store, folder: Path) -> None:
    id_ = active(store.ledger, store.add("I live in Lyon.").item_ids)
    with_files(folder, id_)
    store.drop("default")
    assert forget(store.ledger, folder, ["default"]) == [Forgotten(id_, "", 3, SIZE)]
    assert list(folder.iterdir()) == []


def test_what_a_link_points_at_stays(store: Store, folder: Path, tmp_path: Path) -> None:
    away = with_files(tmp_path / "away", "kept")
    folder.mkdir()
    (folder / new_id()).symlink_to(away)
    (folder / "stray.txt").write_text("left by a hand")
    inside = with_files(folder, new_id())
    (inside / "linked").symlink_to(away / ADAPTER_FILE)
    assert len(forget(store.ledger, folder)) == 3
    assert list(folder.iterdir()) == []
    assert len(list(away.iterdir())) == 3


def test_a_folder_that_cannot_be_emptied_is_told(store: Store, folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("no folder")
    with pytest.raises(BackendUnavailable, match="could not be removed"):
        forget(store.ledger, folder)


def test_files_that_are_not_what_was_examined_are_told(store: Store, folder: Path) -> None:
    item = store.add("I live in Lyon.").item_ids[0]
    whole, short, changed, scaled = (active(store.ledger, [item]) for _ in range(4))
    refused = begun(store.ledger, [item]).id
    finished(store.ledger, refused, REFUSED)
    begun(store.ledger, [item])
    for id_ in (whole, short, changed, scaled):
        with_files(folder, id_)
    assert differences(store.ledger, folder) == []
    (folder / short / "manifest.json").unlink()
    (folder / changed / ADAPTER_FILE).write_bytes(b"weightz")
    (folder / scaled / CONFIG).write_text('{"lora_alpha": 64}')
    assert differences(store.ledger, folder) == sorted(
        [
            (short, "manifest.json is missing"), (changed, f"{ADAPTER_FILE} was changed since its evaluation"),
            (scaled, f"{CONFIG} was changed since its evaluation"),
        ]
    )  # fmt: skip
    for wrong in ("", "[]", "{", "[" * 100_000, "null"):
        (folder / whole / "manifest.json").write_text(wrong)
        assert whole in dict(differences(store.ledger, folder))
    assert len(differences(store.ledger, None)) == 4


def test_copies_of_a_ledger_have_the_consent_and_no_adapter(store: Store, folder: Path, tmp_path: Path) -> None:
    items = store.add("I live in Lyon.").item_ids
    id_, kept = active(store.ledger, items), store.add("I keep bees.").item_ids[0]
    with store.ledger.write() as connection:
        adapter_rows.exclude(connection, "default", [kept], "local", NOW)
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    with sqlite_ledger(tmp_path / "moved") as moved:
        copy_ledger(store.ledger, moved)
        assert serving(moved) == []
        assert active(moved, items)
        with moved.read() as connection:
            assert adapter_rows.excluded(connection, "default") == {kept}
    restore_archive(tmp_path / "backup", store.ledger, NOW, replace=True)
    with_files(folder, id_)
    with store.ledger.read() as connection:
        assert adapter_rows.excluded(connection, "default") == {kept}
    assert ids_of(store) == set()
    assert forget(store.ledger, folder, ()) == [Forgotten(id_, "", 3, SIZE)]
    assert active(store.ledger, items)
    with store.ledger.write() as connection:
        adapter_rows.disallow(connection, "default")
    restore_archive(tmp_path / "backup", store.ledger, NOW, replace=True)
    with store.ledger.read() as connection:
        assert not adapter_rows.is_allowed(connection, "default")  # it was taken back since
    with sqlite_ledger(tmp_path / "elsewhere") as elsewhere:
        restore_archive(tmp_path / "backup", elsewhere, NOW)
        with elsewhere.read() as connection:
            assert adapter_rows.is_allowed(connection, "default")


def test_a_restore_keeps_what_was_excluded_since_of_what_it_brings(store: Store, tmp_path: Path) -> None:
    before, since, erased = [store.add(text).item_ids[0] for text in ("I live in Lyon.", "I keep bees.", "I sing.")]

    def exclude(*ids: str) -> None:
        with store.ledger.write() as connection:
            adapter_rows.exclude(connection, "default", ids, "local", NOW)

    exclude(before)
    backups.back_up(store.ledger, tmp_path / "backup", store.clock)
    exclude(since, erased, store.add("I am new.").item_ids[0])
    store.erase(erased)
    restore_archive(tmp_path / "backup", store.ledger, NOW, replace=True)
    with store.ledger.read() as connection:
        assert adapter_rows.excluded(connection, "default") == {before, since}


# Through the kernel


def test_an_erasure_takes_along_what_learned_of_it(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        items = [memos.add(text).item_ids[0] for text in ("I live in Lyon.", "I keep bees.", "I am a baker.")]
        allow(memos.ledger)
        saw, other = active(memos.ledger, items[:2]), of_shard(memos.ledger, items[2:])
        for id_ in (saw, other):
            with_files(tmp_path / FOLDER, id_, training=True)
        receipt = memos.erase(items[0])
        assert receipt.state == "purged"
        assert receipt.stores["parametric"] == "purged"
        assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [other]
        assert serving(memos.ledger) == [other]
        assert memos.cubes.drop("default").stores["parametric"] == "purged"
        assert list((tmp_path / FOLDER).iterdir()) == []


def test_an_erasure_without_adapters_makes_no_folder(memos: MemOS) -> None:
    assert memos.erase(memos.add("some text").item_ids).stores["parametric"] == "purged"
    assert not (memos.home / FOLDER).exists()


def test_an_erasure_that_was_cut_off_is_finished_with_its_adapters(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        item = memos.add("I live in Lyon.").item_ids[0]
        allow(memos.ledger)
        id_ = active(memos.ledger, [item])
        place = with_files(tmp_path / FOLDER, id_)
        memos._worker.stop()
        receipt = memos.erase(item, wait=False)
        assert receipt.stores["parametric"] == "purging"
        assert serving(memos.ledger) == []
        assert place.exists()
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        memos.maintenance.purge()
        assert memos.memories.erase_receipt(receipt.id).stores["parametric"] == "purged"
    assert not place.exists()


def test_a_start_removes_files_without_an_adapter_and_nothing_else(tmp_path: Path, settings: Settings) -> None:
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()) as memos:
        item = memos.add("I live in Lyon.").item_ids[0]
        allow(memos.ledger)
        stale = active(memos.ledger, [item])
        memos.update(item, "I live in Paris.")
    for id_ in (stale, new_id()):
        with_files(tmp_path / FOLDER, id_)
    with MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder()):
        assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [stale]
