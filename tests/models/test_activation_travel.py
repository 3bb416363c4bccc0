"""Dumps with activation memory: the same model elsewhere begins prompts with the same and computes none of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from memos import MemOS, Settings
from memos.core.settings import ChatSettings
from memos.errors import BackendUnavailable, InvalidInput
from memos.memcube.activation import blocks
from memos.memcube.dump.load import Loaded
from tests.fakes import WordEmbedder
from tests.models.test_activation import NOTES, composed
from tests.support import tiny_models  # skips without the extra `local`
from tests.support.dumps import TakenApart

BEES = "bees"


def saved(folder: Path, kind: str = "llama") -> Path:
    made = tiny_models.saved(folder, kind)
    config = tiny_models.transformers.GenerationConfig.from_pretrained(made)
    config.eos_token_id = list(range(256))  # the first token ends each answer
    config.save_pretrained(made)
    return made


def opened(home: Path, settings: Settings, model: Path | None) -> MemOS:
    chat = ChatSettings() if model is None else ChatSettings(model=f"local:{model}", max_tokens=4)
    return MemOS.open(home, settings=settings.model_copy(update={"chat_model": chat}), embedder=WordEmbedder())


def warmed(memos: MemOS) -> int:
    """Return how many tokens of a prompt about bees are kept."""
    return memos.kv.show(BEES).blocks.get("host", 0) * 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A dump of a cube whose prompts begin with twelve notes, and what the model keeps of them."""
    home = tmp_path_factory.mktemp("from")
    with opened(home / "home", Settings(), model) as memos:
        memos.cubes.create(BEES)
        for text in NOTES:
            memos.tiers.pin(memos.add(text, cube=BEES).item_ids[0], cube=BEES)
        composed(memos)
        assert warmed(memos) > 1000
        made = memos.transfer.dump(BEES, home / "bees.memcube", kv=True)
        assert made.kv_blocks == warmed(memos) / 64
        assert memos.transfer.dump(BEES, home / "plain.memcube").kv_blocks == 0
    assert not [name for name in TakenApart((home / "plain.memcube").read_bytes()).parts if name.startswith("kv/")]
    return home / "bees.memcube"


def loaded(memos: MemOS, dump: Path | io.BytesIO, **options: object) -> Loaded:
    return memos.transfer.load(dump, **{"trust": True, **options})  # type: ignore[arg-type]


def test_the_same_model_elsewhere_computes_nothing_of_the_prefix(
    tmp_path: Path, settings: Settings, model: Path, dump: Path
) -> None:
    with opened(tmp_path / "home", settings, model) as memos:
        done = loaded(memos, dump)
        assert done.kv_left_out is None
        assert done.kv_blocks * 64 == warmed(memos) > 1000
        assert [entry.memory for entry in memos.kv.show(BEES).entries] == NOTES
        before = memos.kv.stats().tiers[1].hits
        memos.kv.warm(BEES)
        assert memos.kv.stats().tiers[1].hits - before == done.kv_blocks
        assert warmed(memos) == done.kv_blocks * 64, "nothing had to be computed beside them"
        memos.kv.verify()
    with opened(tmp_path / "home", settings, model) as memos:
        assert memos.kv.show(BEES).blocks == {"disk": done.kv_blocks}
        # A memory that goes takes them with it, here as there.
        memos.delete(memos.kv.show(BEES).entries[0].item, cube=BEES)
        composed(memos)
        assert memos.kv.show(BEES).blocks.get("disk", 0) < done.kv_blocks


def test_another_model_an_untrusted_file_and_another_name_leave_them_out_and_say_so(
    tmp_path: Path, settings: Settings, model: Path, dump: Path
) -> None:
    other = saved(tmp_path / "other", "mistral")
    for place, (of, options, why) in enumerate(
        [
            (other, {}, "another model"), (None, {}, "no model in this process"), (model, {"trust": False}, "trusted"),
            (model, {"cube": "wasps"}, "only into a new cube"), (tmp_path / "none", {}, "cannot open the model"),
        ]
    ):  # fmt: skip
        with opened(tmp_path / f"home{place}", settings, of) as memos:
            done = loaded(memos, dump, **options)
            assert done.items > 0
            assert done.kv_blocks == 0
            assert why in str(done.kv_left_out)
            assert done.left_out == ()
            assert memos.maintenance.verify().clean


def test_damaged_and_strange_parts_are_refused_and_nothing_is_loaded(
    tmp_path: Path, settings: Settings, model: Path, dump: Path
) -> None:
    raw = dump.read_bytes()
    names = sorted(name for name in TakenApart(raw).parts if name.endswith(".safetensors") and name.startswith("kv/"))
    prefix = [json.loads(line) for line in TakenApart(raw).parts["kv/prefix.jsonl"].splitlines()]

    def entries(**changed: object) -> bytes:
        return b"".join(json.dumps(row | changed).encode() + b"\n" for row in prefix[:1])

    with opened(tmp_path / "home", settings, model) as memos:
        for name, data, why in [
            ("kv/prefix.jsonl", entries(version=99), "a version that is missing"),
            ("kv/prefix.jsonl", entries(version=True), "not an entry"),
            ("kv/prefix.jsonl", entries(added_at=2**62), "not an entry"),
            ("kv/prefix.jsonl", entries(more=1), "not an entry"),
            ("kv/prefix.jsonl", entries(ordinal=2**63 - 1), "not an entry"),
            ("kv/prefix.jsonl", entries() * 2, "contradict"),
        ]:
            parts = TakenApart(raw)
            parts.parts[name] = data
            with pytest.raises(InvalidInput, match=why):
                loaded(memos, io.BytesIO(parts.whole()))
            assert BEES not in {cube.id for cube in memos.cubes.list()}
        for item in ("x", "\ud800", "a\0b"):
            parts = TakenApart(raw)
            parts.parts["kv/prefix.jsonl"] = entries(item_id=item)
            with pytest.raises(InvalidInput, match="not an entry"):
                loaded(memos, io.BytesIO(parts.whole()))
        # A block that is not what it says is found before anything is loaded, too.
        for name, data in [(names[0], b"no block"), (names[0], TakenApart(raw).parts[names[1]]), (names[0], b"")]:
            parts = TakenApart(raw)
            parts.parts[name] = data
            with pytest.raises(InvalidInput, match="block"):
                loaded(memos, io.BytesIO(parts.whole()))
            assert BEES not in {cube.id for cube in memos.cubes.list()}
        # Without its memories it stands for nothing.
        parts = TakenApart(raw)
        changed = entries(item_id="01a204f4-43f4-7118-a6ed-c55e4810fdeb")
        parts.parts["kv/prefix.jsonl"] = changed
        done = loaded(memos, io.BytesIO(parts.whole()))
        assert memos.kv.show(BEES).entries == ()
        assert done.kv_blocks > 0


def test_a_dump_that_fails_in_the_middle_holds_nothing_up(
    tmp_path: Path, settings: Settings, model: Path, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "home", settings, model) as memos:
        loaded(memos, dump)
    failed = False
    for with_model in (model, None):  # with blocks in memory, and with files alone
        with opened(tmp_path / "home", settings, with_model) as memos:
            if with_model is not None:
                memos.kv.warm(BEES)
            with monkeypatch.context() as patch:
                patch.setattr(blocks, "file_data", _full)
                try:
                    memos.transfer.dump(BEES, tmp_path / "new.memcube", kv=True)
                except BackendUnavailable:
                    failed = True
                    memos.close()  # while the error is still there
    assert failed
    assert not (tmp_path / "new.memcube").exists()


def _full(*_: object) -> list[bytes]:
    raise OSError(28, "No space left on device")
