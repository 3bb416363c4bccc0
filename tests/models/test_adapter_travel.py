"""Adapters that travel in dumps: examined where they arrive, ready only then, and answering only if that is allowed."""

from __future__ import annotations

import io
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from memos import MemOS
from memos.core.clock import new_id
from memos.core.lora import recipe_with
from memos.errors import Conflict, IntegrityError, InvalidInput
from memos.memcube.activation.blocks import is_adapted
from memos.memcube.dump import adapters as dump_adapters
from memos.memcube.dump.load import Loaded
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.parametric import training
from memos.memcube.parametric.training import Bounds
from tests.fakes import WordEmbedder
from tests.models.test_adapters import (
    LIMIT_S,
    SETTINGS,
    answered_by,
    facts,
    folders,
    learn_by,
    model,
    opened,
    read,
    shortened,
    until,
)
from tests.support import tiny_models
from tests.support.dumps import Rows, TakenApart

__all__ = ["model", "read", "short_examination"]  # fixtures


@pytest.fixture(autouse=True)
def short_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    shortened(monkeypatch)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, read: Path, model: Path) -> Path:
    """A folder in which one cube has an active adapter, which has answered."""
    base = tmp_path_factory.mktemp("there")
    shutil.copytree(read, base / "home")
    with pytest.MonkeyPatch.context() as patched, opened(base, model) as memos:
        shortened(patched)
        memos.adapters.allow()
        memos.adapters.train()
        assert answered_by(memos)
    return base


@pytest.fixture(scope="module")
def raw(there: Path) -> bytes:
    """A dump with that adapter."""
    with MemOS.open(there / "home", settings=SETTINGS, embedder=WordEmbedder()) as memos:
        assert memos.transfer.dump("default", there / "with.memcube", adapters=True).adapters == 1
        assert memos.transfer.dump("default", there / "without.memcube").adapters == 0
    parts = TakenApart((there / "without.memcube").read_bytes()).parts
    assert not [name for name in parts if name.startswith("adapters/")]
    return (there / "with.memcube").read_bytes()


@pytest.fixture
def here(tmp_path: Path, model: Path) -> Iterator[MemOS]:
    with opened(tmp_path, model) as made:
        made.cubes.drop("default")
        yield made


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[MemOS]:
    """An installation that takes in cubes and no adapter."""
    with opened(tmp_path_factory.mktemp("elsewhere"), model) as made:
        made.cubes.drop("default")
        yield made


def cubes(memos: MemOS) -> set[str]:
    return {cube.id for cube in memos.cubes.list()}


def loaded(memos: MemOS, raw: bytes, **options: Any) -> Loaded:
    return memos.transfer.load(io.BytesIO(raw), **{"trust": True, **options})


def part_of(raw: bytes, kind: str) -> str:
    [name] = [name for name in TakenApart(raw).parts if name.startswith("adapters/") and name.endswith(kind)]
    return name


def changed(raw: bytes, change: Callable[[Rows], object]) -> bytes:
    """Return a dump in which an adapter's row says something else."""
    parts = TakenApart(raw)
    told = json.loads(parts.parts[part_of(raw, ".json")])
    change(told)
    parts.parts[part_of(raw, ".json")] = json.dumps(told).encode()
    return parts.whole()


def weighed(raw: bytes, data: bytes) -> bytes:
    """Return a dump with other weights."""
    parts = TakenApart(raw)
    parts.parts[part_of(raw, ".safetensors")] = data
    return parts.whole()


def test_it_is_examined_where_it_arrives_and_answers_if_that_is_allowed(here: MemOS, raw: bytes) -> None:
    told = here.transfer.inspect(io.BytesIO(raw))
    assert (told.adapters, told.left_out) == (1, ())
    done = loaded(here, raw)
    assert (done.adapters, done.adapters_left_out) == (1, None)
    [made] = here.adapters.list()
    assert (made.state, made.stale, made.facts) == ("ready", False, len(facts(here)))
    assert made.measures is not None
    assert here.maintenance.verify().clean
    assert answered_by(here) is None
    assert not here.adapters.preview().allowed
    with pytest.raises(Conflict, match="not allowed"):
        here.adapters.activate(made.id)
    here.adapters.allow()
    assert answered_by(here) is None
    here.adapters.activate(made.id)
    assert answered_by(here) == made.id
    folder = here.home / "adapters" / made.id
    assert not (folder / "arrived.safetensors").exists()
    arrived, sent = load((folder / "adapter_model.safetensors").read_bytes()), TakenApart(raw)
    assert {name: each.tobytes() for name, each in arrived.items()} == {
        name: each.tobytes() for name, each in load(sent.parts[part_of(raw, ".safetensors")]).items()
    }


def test_beside_the_cube_it_comes_from_it_is_of_the_other_memories(tmp_path: Path, there: Path, model: Path) -> None:
    shutil.copytree(there / "home", tmp_path / "home")
    with opened(tmp_path, model) as memos:
        memos.transfer.dump("default", tmp_path / "own.memcube", adapters=True)
        done = memos.transfer.load(tmp_path / "own.memcube", cube="copy", trust=True)
        assert done.adapters == 1
        [first], [second] = memos.adapters.list(), memos.adapters.list("copy")
        assert first.id != second.id
        memos.adapters.allow("copy")
        memos.adapters.activate(second.id)
        assert answered_by(memos, cubes=["copy"]) == second.id
        receipt = memos.erase(next(iter(facts(memos, "copy").values())).id, cube="copy")
        assert receipt.stores["parametric"] == "purged"
        assert folders(memos) == {first.id}
        assert answered_by(memos) == first.id
        # Nor does what was updated come back with a merge.
        item = next(iter(facts(memos, "copy").values()))
        memos.update(item.id, "I live in Porto.", cube="copy")
        merged = memos.transfer.load(tmp_path / "own.memcube", cube="copy", merge=True, trust=True)
        assert merged.adapters == 0
        assert merged.adapters_left_out
        assert memos.adapters.list("copy") == []
        assert folders(memos) == {first.id}


def test_where_it_cannot_be_examined_it_is_left_out_with_a_reason(tmp_path: Path, raw: bytes, model: Path) -> None:
    other = tiny_models.saved(tmp_path / "other", seed=1)
    cases = [
        (model, {"trust": False}, "only from a trusted file"), (other, {}, "another model"),
        (tmp_path / "none", {}, "there is no folder"),
    ]  # fmt: skip
    for place, (of, options, why) in enumerate(cases):
        with opened(tmp_path / str(place), of) as memos:
            done = loaded(memos, raw, cube="new", **options)
            assert done.items > 0
            assert done.adapters == 0
            assert why in str(done.adapters_left_out)
            assert memos.adapters.list("new") == []
            assert folders(memos) == set()
    with MemOS.open(tmp_path / "without", settings=SETTINGS, embedder=WordEmbedder()) as memos:
        assert "needs a model in this process" in str(loaded(memos, raw, cube="new").adapters_left_out)


def test_one_that_fails_here_is_refused_and_loses_its_files(here: MemOS, raw: bytes) -> None:
    learn_by(here, bounds=Bounds())
    done = loaded(here, raw)
    assert done.adapters == 0
    assert "failed its evaluation: recall is" in str(done.adapters_left_out)
    [refused] = here.adapters.list()
    assert refused.state == "refused"
    assert refused.measures is not None
    assert refused.measures["arrived"] is True
    assert folders(here) == set()
    with here.ledger.read() as connection:  # it does not count as a training that failed here
        assert [row.failed_here for row in adapter_rows.of(connection, refused.cube)] == [False]
    here.adapters.allow()
    with pytest.raises(Conflict, match="passed its evaluation"):
        here.adapters.activate(refused.id)


def _renamed(told: Rows, **values: object) -> None:
    told["memories"][0].update(values)


FORGED: list[tuple[str, Callable[[Rows], object], str]] = [
    ("a memory of nobody", lambda told: _renamed(told, item="01a204f4-43f4-7118-a6ed-c55e4810fdeb"), "missing here"),
    ("another version", lambda told: _renamed(told, version=7), "changed or removed"),
    ("another text", lambda told: _renamed(told, sha256="0" * 64), "differ here"),
    ("another base", lambda told: told.update(base_sha256="0" * 64), "another model"),
    ("a huge rank", lambda told: told["recipe"].update(rank=1 << 30), "recipe"),
    ("another rank", lambda told: told["recipe"].update(rank=2), "of another shape"),
    ("other layers", lambda told: told["recipe"].update(layers="mlp"), "recipe"),
    ("strange layers", lambda told: told["recipe"].update(layers="../x"), "recipe"),
    ("a recipe of nobody", lambda told: told.update(recipe={"steps": 5}), "recipe"),
]


def test_what_is_forged_is_left_out_and_nothing_of_it_stays(elsewhere: MemOS, raw: bytes) -> None:
    here = elsewhere
    for place, (what, change, why) in enumerate(FORGED):
        done = loaded(here, changed(raw, change), cube=f"cube{place}")
        assert done.items > 0
        assert done.adapters == 0, what
        assert why in str(done.adapters_left_out), what
        assert here.adapters.list(f"cube{place}") == [], what
        assert folders(here) == set(), what


def test_what_would_hold_up_the_examination_for_long_is_left_out(
    elsewhere: MemOS, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = replace(elsewhere.adapters.training, most=3)
    monkeypatch.setattr(elsewhere, "adapters", replace(elsewhere.adapters, training=learner))
    monkeypatch.setattr(dump_adapters, "MOST", 2)
    parts = TakenApart(raw)
    told, weights = json.loads(parts.parts[part_of(raw, ".json")]), parts.parts[part_of(raw, ".safetensors")]
    for id_ in (new_id() for _ in range(3)):
        parts.parts[f"adapters/{id_}.json"] = json.dumps({**told, "id": id_}).encode()
        parts.parts[f"adapters/{id_}.safetensors"] = weights
    done = loaded(elsewhere, parts.whole(), cube="many")
    assert done.items > 0
    assert done.adapters == 0
    assert done.adapters_left_out == (
        "they were trained on more memories than are allowed here (3); 2 exceed the limit of 2 adapters per file"
    )
    assert elsewhere.adapters.list("many") == []


def test_weights_that_are_none_are_left_out(elsewhere: MemOS, raw: bytes) -> None:
    here = elsewhere
    good = load(TakenApart(raw).parts[part_of(raw, ".safetensors")])
    name = min(good)
    for place, data in enumerate([
        b"", b"no tensors", save(good)[:-8], save({**good, name: np.full_like(good[name], np.nan)}),
        save({**good, name: good[name].astype(np.int64)}), save({**good, "one.more": good[name]}), save({}),
    ]):  # fmt: skip
        done = loaded(here, weighed(raw, data), cube=f"weights{place}")
        assert "Its weights are damaged" in str(done.adapters_left_out)
        assert here.adapters.list(f"weights{place}") == []
        assert folders(here) == set()


REFUSED: list[Callable[[Rows], object]] = [
    lambda told: told.update(id="01a204f4-43f4-7118-a6ed-c55e4810fdeb"),
    lambda told: told.update(id="../../../etc"),
    lambda told: told.update(more=1),
    lambda told: told.pop("recipe"),
    lambda told: told.update(memories=[]),
    lambda told: told["memories"].append(told["memories"][0]),
    lambda told: told.update(memories=[5]),
    lambda told: told.update(memories=[None, "x", []]),
    lambda told: _renamed(told, item=5),
    lambda told: _renamed(told, sha256=None),
    lambda told: _renamed(told, item="../other"),
    lambda told: _renamed(told, version=True),
    lambda told: _renamed(told, version=2**62),
    lambda told: told.update(model="m" * 5000),
    lambda told: told.update(shard="a\nb"),
    lambda told: told.update(base_sha256="x"),
    lambda told: told.update(measures=[]),
]


def test_what_no_dump_says_is_refused_and_nothing_is_loaded(elsewhere: MemOS, raw: bytes) -> None:
    before = cubes(elsewhere)
    for change in REFUSED:
        with pytest.raises(InvalidInput, match="does not describe an adapter"):
            loaded(elsewhere, changed(raw, change))
    assert cubes(elsewhere) == before


def test_parts_without_one_another_paths_and_damage_are_refused(elsewhere: MemOS, raw: bytes) -> None:
    here, before = elsewhere, cubes(elsewhere)
    row, weights = part_of(raw, ".json"), part_of(raw, ".safetensors")
    for without in (row, weights):
        parts = TakenApart(raw)
        del parts.parts[without]
        with pytest.raises(InvalidInput, match="without weights"):
            loaded(here, parts.whole())
    for name in ("adapters/../../x.json", "/adapters/x.json", "adapters/a/b.json"):
        parts = TakenApart(raw)
        parts.parts[name] = b"{}"
        with pytest.raises(InvalidInput, match="an unknown part"):
            loaded(here, parts.whole())
    parts = TakenApart(raw)
    parts.parts[row] = b" " * (5 << 20)
    with pytest.raises(InvalidInput, match="larger than allowed"):
        loaded(here, parts.whole())
    at = raw.index(TakenApart(raw).parts[weights]) + 5_000
    with pytest.raises(InvalidInput, match="changed or damaged"):
        loaded(here, raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    assert cubes(here) == before
    assert folders(here) == set()


def test_an_erasure_in_the_middle_of_the_examination_leaves_nothing_of_it(
    here: MemOS, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, told, real = threading.Event(), list[Loaded](), training.examined

    def wait(*given: Any) -> object:
        there = len(facts(here))
        reached.set()
        until(lambda: len(facts(here)) < there)  # the erasure has begun
        return real(*given)

    monkeypatch.setattr(training, "examined", wait)
    thread = threading.Thread(target=lambda: told.append(loaded(here, raw)))
    thread.start()
    assert reached.wait(LIMIT_S)
    receipt = here.erase(next(iter(facts(here).values())).id)
    assert receipt.stores["parametric"] == "purged"
    assert folders(here) == set()
    thread.join(LIMIT_S)
    assert told[0].adapters == 0
    assert told[0].adapters_left_out
    assert here.adapters.list() == []
    assert folders(here) == set()


def test_only_what_answers_is_dumped_and_damaged_weights_are_not(tmp_path: Path, there: Path, model: Path) -> None:
    shutil.copytree(there / "home", tmp_path / "home")
    with opened(tmp_path, model) as memos:
        [made] = memos.adapters.list()
        file = memos.home / "adapters" / made.id / "adapter_model.safetensors"
        good = file.read_bytes()
        for harm in (lambda: file.write_bytes(good[:-1] + b"x"), file.unlink):
            harm()
            with pytest.raises(IntegrityError, match="cannot be dumped"):
                memos.transfer.dump("default", tmp_path / "bad.memcube", adapters=True)
            assert not (tmp_path / "bad.memcube").exists()
        file.write_bytes(good)
        memos.update(next(iter(facts(memos).values())).id, "I live in Porto.")
        assert memos.transfer.dump("default", tmp_path / "stale.memcube", adapters=True).adapters == 0


@pytest.mark.parametrize("how", ["erase", "forget", "remove"])
def test_keys_and_values_go_with_the_adapter_they_were_made_under(
    tmp_path: Path, there: Path, model: Path, how: str
) -> None:
    shutil.copytree(there / "home", tmp_path / "home")
    with opened(tmp_path, model) as memos:
        [made], item = memos.adapters.list(), next(iter(facts(memos).values())).id
        for _ in range(3):
            assert answered_by(memos) == made.id
        kept = [
            block for block, _, _ in memos._installation.activations.blocks("default") if is_adapted(block.fingerprint)
        ]
        assert kept
        if how == "erase":
            assert memos.erase(item).removed["kv_blocks"] >= len(kept)
        elif how == "forget":
            memos.adapters.forget(item)
        else:
            memos.adapters.remove(made.id)
        left = [block for block, _, _ in memos._installation.activations.blocks("default")]
        assert not [block for block in left if is_adapted(block.fingerprint)]


def test_keys_and_values_made_under_an_adapter_stay(tmp_path: Path, there: Path, model: Path) -> None:
    shutil.copytree(there / "home", tmp_path / "home")
    with opened(tmp_path, model) as memos:
        [made] = memos.adapters.list()
        for _ in range(3):
            assert answered_by(memos) == made.id
        kept = memos._installation.activations.blocks("default")
        assert kept
        assert all(is_adapted(block.fingerprint) for block, _, _ in kept)
        assert memos.transfer.dump("default", tmp_path / "kv.memcube", kv=True).kv_blocks == 0
        memos.adapters.disallow()
        for _ in range(3):
            assert answered_by(memos) is None
        assert memos.transfer.dump("default", tmp_path / "base.memcube", kv=True).kv_blocks > 0


def test_a_recipe_goes_with_it(raw: bytes) -> None:
    told = json.loads(TakenApart(raw).parts[part_of(raw, ".json")])
    assert recipe_with(told["recipe"]).epochs == 1
    assert told["measures"]["recall"] is not None
