"""Adapters exported, put to answer and made to forget: rows and files by hand, no model."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.identities import Right
from memos.core.lora import ADAPTER_FILE, CONFIG, FILES
from memos.core.types import LOCAL_OWNER, Fingerprint, Scope
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound, PermissionDenied
from memos.kernel.adapters.service import Adapter, open_export
from memos.kernel.adapters.training import pruned
from memos.kernel.adapters.transfer import EXPORTED, WEIGHTS
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger.adapters import AdapterState
from memos.memcube.parametric.forgetting import FOLDER
from tests.fakes import WordEmbedder
from tests.support.adapters import REFUSED, SIZE, active, begun, finished, of_shard, serving, with_card, with_files

SAID = ("I live in Lyon.", "I keep bees.", "I am a baker.")


@pytest.fixture
def memos(tmp_path: Path, settings: Settings) -> Iterator[MemOS]:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as made:
        made.adapters.allow()
        yield made


@pytest.fixture
def ids(memos: MemOS) -> list[str]:
    return [memos.add(text).item_ids[0] for text in SAID]


def made(memos: MemOS, items: list[str], version: int = 1) -> str:
    """Return an adapter that answers, with files."""
    assert memos.home is not None
    id_ = active(memos.ledger, items, version)
    with_card(with_files(memos.home / FOLDER, id_))
    return id_


def folders(memos: MemOS) -> set[str]:
    assert memos.home is not None
    folder = memos.home / FOLDER
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


class OtherEmbedder(WordEmbedder):
    """One that vectors of cubes made with `WordEmbedder` are not of."""

    @property
    def fingerprint(self) -> Fingerprint:
        return replace(super().fingerprint, name="other")


def test_what_a_killed_erasure_left_goes_at_the_next_start_with_another_embedder_too(
    tmp_path: Path, settings: Settings
) -> None:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        memos.adapters.allow()
        id_ = made(memos, [memos.add(SAID[0]).item_ids[0]])
        with memos.ledger.write() as connection:  # as it is after the erasing transaction
            adapter_rows.remove(connection, id_)
        assert folders(memos) == {id_}
    with MemOS.open(tmp_path / "home", settings=settings, embedder=OtherEmbedder()) as memos:
        assert folders(memos) == set()


def test_what_was_arriving_when_its_process_was_killed_is_gone_at_the_next_start(
    tmp_path: Path, settings: Settings
) -> None:
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        memos.adapters.allow()
        item = memos.add(SAID[0]).item_ids[0]
        ended, arriving = begun(memos.ledger, [item]).id, begun(memos.ledger, [item]).id
        for id_ in (ended, arriving):
            with_files(tmp_path / "home" / FOLDER, id_, training=True)
        (tmp_path / "home" / FOLDER / arriving / WEIGHTS).write_bytes(b"weights")
    with MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos:
        assert [each.id for each in memos.adapters.list()] == [ended]  # a training goes on
        assert folders(memos) == {ended}


def test_what_is_of_no_use_any_more_is_removed(memos: MemOS, ids: list[str]) -> None:
    stale, kept = of_shard(memos.ledger, ids[:1]), active(memos.ledger, ids[1:2])
    ended = begun(memos.ledger, ids[2:]).id
    memos.update(ids[0], tags=("x",))
    memos.delete(ids[2])
    with memos.adapters.context.change(Scope(LOCAL_OWNER, ("default",), right=Right.OWN)) as change:
        assert sorted(pruned(change)) == sorted((stale, ended))
        assert pruned(change) == []
    assert serving(memos.ledger) == [kept]


# Dumped


def test_a_dump_has_the_adapter_that_answers(
    memos: MemOS, ids: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    made(memos, ids[:1])
    with_files(memos.home / FOLDER, of_shard(memos.ledger, ids[1:2]))
    assert memos.transfer.dump("default", tmp_path / "one.memcube", adapters=True).adapters == 1
    assert not caplog.records
    monkeypatch.setitem(dump_adapters._LARGEST, "safetensors", 3)
    assert memos.transfer.dump("default", tmp_path / "none.memcube", adapters=True).adapters == 0
    assert "is left out of the cube file: it is too large" in caplog.text


def test_a_program_without_a_folder_says_that_it_dumps_no_adapters(memos: MemOS, tmp_path: Path) -> None:
    training = replace(memos.adapters.training, folder=None)
    memos.adapters = replace(memos.adapters, training=training)
    with pytest.raises(InvalidInput, match="dump without them"):
        memos.transfer.dump("default", tmp_path / "with.memcube", adapters=True)
    assert not (tmp_path / "with.memcube").exists()
    assert memos.transfer.dump("default", tmp_path / "without.memcube").adapters == 0


# Forgotten


def test_what_is_to_be_forgotten_leaves_every_adapter_and_is_never_learned_again(memos: MemOS, ids: list[str]) -> None:
    saw, other = made(memos, ids[:2]), begun(memos.ledger, ids[2:]).id
    done = memos.adapters.forget(ids[0])
    assert (done.items, done.adapters) == ((ids[0],), (saw,))
    assert (done.files, done.size_bytes) == (len(EXPORTED), SIZE + len("# Adapter"))
    assert folders(memos) == set()
    assert [each.id for each in memos.adapters.list()] == [other]
    assert memos.get(ids[0]).memory == SAID[0]  # it stays, and is found
    assert memos.search("Lyon").hits[0].item.id == ids[0]
    with pytest.raises(Conflict):
        begun(memos.ledger, ids)
    assert memos.adapters.forget(ids[0]).adapters == ()
    [event] = memos.events.list(kinds=["exclude_learning"])
    assert event.body == {"items": [ids[0]], "adapters": [saw]}
    for _ in range(2):
        memos.adapters.allow(items=[ids[0], ids[1]])
    assert [event.body for event in memos.events.list(kinds=["include_learning"])] == [{"items": [ids[0]]}]
    assert begun(memos.ledger, ids)
    memos.adapters.forget(ids)
    memos.erase(ids[0])
    assert memos.maintenance.verify().clean
    with pytest.raises(NotFound):
        memos.adapters.allow(items=ids[0])


def test_what_another_process_made_to_be_forgotten_leaves_this_one_too(
    memos: MemOS, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memos.home is not None
    memos._worker.stop()  # what it would do is done here
    kept, saw = made(memos, ids[1:]), begun(memos.ledger, ids[:1]).id
    with_files(memos.home / FOLDER, saw, training=True)
    with memos.ledger.write() as connection:  # as if another process had: nothing here hears of it
        adapter_rows.remove(connection, saw)
    memos.maintenance.forget_if_due()
    assert folders(memos) == {kept, saw}, "a folder of one's own has no other processes"
    monkeypatch.setattr(type(memos.ledger), "is_sqlite", False)
    for chore in memos._worker._chores:
        chore()
    assert folders(memos) == {kept}


def test_a_preview_counts_what_is_excluded_and_what_is_of_no_kind_to_be_learned(memos: MemOS) -> None:
    memos.add(["I live in Lyon.", "I love hiking."], mode="fine")
    memos.tasks.wait()
    facts = [item for item in memos.memories.list(limit=100) if item.type in ("user", "preference")]
    before = memos.adapters.preview().left_out
    assert before["no fact about somebody"] == len(memos.memories.list(limit=100)) - len(facts) > 0
    assert "excluded from learning" not in before
    memos.adapters.forget([facts[0].id])
    assert memos.adapters.preview().left_out["excluded from learning"] == 1


def test_nobody_forgets_what_is_not_there_or_not_theirs(memos: MemOS, ids: list[str]) -> None:
    id_ = made(memos, ids)
    memos.cubes.create("other")
    theirs = memos.add("elsewhere", cube="other").item_ids[0]
    for wrong in ("none", [], [ids[0], "none"], theirs, ["x" * 100], ["\0"], [3], None, b"x", ["a"] * 20_000):
        with pytest.raises((NotFound, InvalidInput)):
            memos.adapters.forget(wrong)  # type: ignore[arg-type]
        if wrong:
            with pytest.raises((NotFound, InvalidInput)):
                memos.adapters.allow(items=wrong)  # type: ignore[arg-type]
    assert serving(memos.ledger) == [id_]
    memos.users.create("eve")
    memos.sharing.grant("default", "eve", "editor")
    for decide in (
        lambda: memos.adapters.forget(ids[0], actor="eve"),
        lambda: memos.adapters.allow(items=ids[0], actor="eve"),
        lambda: memos.adapters.export(id_, memos.home / "away", actor="eve"),
        lambda: memos.adapters.train(actor="eve"),
    ):
        with pytest.raises(PermissionDenied):
            decide()
    assert memos.adapters.get(id_, actor="eve").facts == len(ids)  # who may read the memories may
    memos.sharing.revoke("default", "eve")
    with pytest.raises(NotFound):
        memos.adapters.get(id_, actor="eve")


# Handed out


def test_an_export_is_what_others_load_and_nothing_of_what_was_taught(
    memos: MemOS, ids: list[str], tmp_path: Path
) -> None:
    id_ = made(memos, ids)
    place = memos.home / FOLDER / id_
    (place / "exercises.jsonl").write_text("What was taught.")
    done = memos.adapters.export(id_, tmp_path / "out")
    assert (done.adapter, done.folder, set(done.files)) == (id_, str(tmp_path / "out"), set(EXPORTED))
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert written.keys() == set(EXPORTED)
    assert {name: written[name] for name in FILES} == {name: (place / name).read_bytes() for name in FILES}
    assert done.size_bytes == sum(map(len, written.values()))
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0
    with open_export(memos.adapters, id_) as packed, zipfile.ZipFile(packed) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == written
    assert {path.name for path in tmp_path.iterdir()} == {"home", "out"}


@pytest.mark.parametrize("harm", ["weights", "configuration", "stale", "refused", "consent", "training"])
def test_what_may_not_answer_is_handed_to_nobody(memos: MemOS, ids: list[str], tmp_path: Path, harm: str) -> None:
    id_ = made(memos, ids) if harm not in ("refused", "training") else begun(memos.ledger, ids).id
    place = memos.home / FOLDER / id_
    if harm == "weights":
        (place / ADAPTER_FILE).write_bytes(b"weightz")
    elif harm == "configuration":
        (place / CONFIG).write_text("{} ")
    elif harm == "stale":
        memos.update(ids[0], "I live in Porto.")
    elif harm == "refused":
        finished(memos.ledger, id_, REFUSED)
    elif harm == "consent":
        with memos.ledger.write() as connection:
            adapter_rows.disallow(connection, "default")
    for call in (lambda: memos.adapters.export(id_, tmp_path / "out"), lambda: open_export(memos.adapters, id_)):
        with pytest.raises((Conflict, BackendUnavailable)):
            call()
    assert {path.name for path in tmp_path.iterdir()} == {"home"}


@pytest.mark.parametrize("harm", ["missing", "a folder", "a link"])
def test_a_card_that_is_harmed_is_handed_out_as_it_was(memos: MemOS, ids: list[str], tmp_path: Path, harm: str) -> None:
    id_ = made(memos, ids)
    card = memos.home / FOLDER / id_ / "README.md"
    card.unlink(missing_ok=True)
    if harm == "a folder":
        card.mkdir()
    elif harm == "a link":
        (tmp_path / "private").write_text("nobody's business")
        card.symlink_to(tmp_path / "private")
    memos.adapters.export(id_, tmp_path / "out")
    told = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert told.startswith("---\n")
    assert "Adapter of a memory cube" in told
    assert "business" not in told


def test_an_export_overwrites_nothing(memos: MemOS, ids: list[str], tmp_path: Path) -> None:
    id_ = made(memos, ids)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for there in ("empty", "file", "link"):
        with pytest.raises(Conflict):
            memos.adapters.export(id_, tmp_path / there)
    inside = memos.home / FOLDER / "mine"
    for wrong in (tmp_path / "none" / "out", tmp_path / "file" / "out", inside, "a\0b", 3, None):
        with pytest.raises((InvalidInput, NotFound)):
            memos.adapters.export(id_, wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        memos.adapters.export("none", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "empty", "file", "link"}
    assert list((tmp_path / "empty").iterdir()) == []


# Put to answer


def test_only_whole_files_are_put_to_answer(memos: MemOS, ids: list[str]) -> None:
    first, second, third = made(memos, ids), made(memos, ids), made(memos, ids)
    (memos.home / FOLDER / second / CONFIG).write_text('{"lora_alpha": 640}')
    with pytest.raises(Conflict, match=f"{CONFIG} was changed since its evaluation"):
        memos.adapters.activate(second)
    assert serving(memos.ledger) == [third]
    assert memos.adapters.activate(first).state == AdapterState.ACTIVE
    assert memos.adapters.activate(third).state == AdapterState.ACTIVE
    shutil.rmtree(memos.home / FOLDER / first)
    with pytest.raises(Conflict, match="is missing"):
        memos.adapters.activate(first)
    assert serving(memos.ledger) == [third]


def test_where_a_model_lies_is_told_to_owners(memos: MemOS, ids: list[str]) -> None:
    made(memos, ids)
    memos.users.create("eve")
    memos.sharing.grant("default", "eve", "reader")

    def told(actor: str) -> set[str]:
        found: list[Adapter] = memos.adapters.list(actor=actor)
        return {each.model for each in [*found, *(memos.adapters.get(each.id, actor=actor) for each in found)]}

    assert told(LOCAL_OWNER) == {"local:/models/tiny"}
    assert told("eve") == {"local:tiny"}
    memos.sharing.grant("default", "eve", "owner")
    assert told("eve") == {"local:/models/tiny"}
