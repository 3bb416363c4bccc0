"""Blocks in tiers: found, evicted, written, forgotten."""

import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memos.errors import BackendUnavailable
from memos.memcube.activation import blocks as files
from memos.memcube.activation.blocks import Tier
from memos.memcube.activation.store import BlockStore, DiskTier
from memos.memcube.activation.tiers import Heat
from tests.fakes import FixedClock
from tests.memcube.activation.made import SIZE, array_of, chain, keys_of, tiers_of


def opened(folder=None, host=100, disk=100, **more):
    return BlockStore({Tier.HOST: host * SIZE, Tier.DISK: disk * SIZE}, FixedClock(), folder=folder, **more)


def use(store, blocks):
    """Do what a prompt does: take what is there, make the rest. Return how many were there."""
    with store.checkout([block.key for block in blocks]) as lent:
        found = len(lent)
        got = list(lent.load(found))
        for block, (_, array) in zip(blocks, got, strict=False):
            assert np.array_equal(array, array_of(block))
        for block in blocks[len(got) :]:
            if not lent.add(block, array_of(block), Tier.HOST):
                break
    return found


def test_what_was_made_once_is_found_again():
    store, made = opened(), chain(keys_of(1, 3))
    assert use(store, made) == 0
    assert use(store, made) == 3
    assert use(store, chain(keys_of(2, 3))) == 0


def test_hits_and_misses_are_counted_once_for_each_prompt():
    store = opened()
    use(store, chain(keys_of(1, 4, shared=2)))
    use(store, chain(keys_of(2, 4, shared=2)))
    with store.checkout(keys_of(2, 4, shared=2), counted=False):  # what a prompt takes after it computed the rest
        pass
    stats = store.stats()
    assert (sum(tier.hits for tier in stats.tiers), stats.misses) == (2, 6)


def test_prompts_with_the_same_beginning_share_it():
    store = opened()
    use(store, chain(keys_of(1, 4, shared=2)))
    assert use(store, chain(keys_of(2, 4, shared=2))) == 2
    assert tiers_of(store)[Tier.HOST].blocks == 6


def test_the_second_use_writes_to_disk_and_a_new_process_finds_it(tmp_path):
    store, made = opened(tmp_path), chain(keys_of(1, 3))
    use(store, made)
    store.settle()
    assert not list(tmp_path.glob("*/*.safetensors"))
    use(store, made)
    store.close()
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 3
    again = opened(tmp_path)
    assert use(again, made) == 3
    with again.checkout([block.key for block in made]) as lent:
        assert [tier for tier, _ in lent.load(3)] == [Tier.HOST] * 3  # it moved up when it was used
    again.close()


def test_files_are_safetensors_that_others_can_read(tmp_path):
    numpy_reader = pytest.importorskip("safetensors.numpy", reason="needs safetensors, which `make setup-dev` installs")
    store, made = opened(tmp_path), chain(keys_of(1, 1), [["item"]])
    use(store, made)
    use(store, made)
    store.close()
    (file,) = tmp_path.glob("*/*.safetensors")
    assert np.array_equal(numpy_reader.load_file(file)["kv"], array_of(made[0]))
    assert file.stat().st_mode & 0o077 == 0


def test_budgets_hold_whatever_comes(tmp_path):
    store = opened(tmp_path, host=5, disk=3)
    for round_ in range(40):
        use(store, chain(keys_of(round_ % 7, 3)))
        store.settle()
        stats = tiers_of(store)
        assert stats[Tier.HOST].size_bytes <= 5 * SIZE
        assert stats[Tier.DISK].size_bytes <= 3 * SIZE
        assert len(list(tmp_path.glob("*/*.safetensors"))) == stats[Tier.DISK].blocks
    store.close()


def test_the_end_of_a_chain_goes_before_its_beginning():
    store = opened(host=4)
    first = chain(keys_of(1, 3))
    use(store, first)
    use(store, first)
    second = chain(keys_of(2, 4))
    for _ in range(4):
        use(store, second)
    left = store.has([block.key for block in first])
    assert left < 3
    assert store.has([block.key for block in second]) + left == 4


def test_what_is_lent_is_not_evicted():
    store, mine = opened(host=3), chain(keys_of(1, 3))
    use(store, mine)
    with store.checkout([block.key for block in mine]) as lent:
        for _ in range(5):
            use(store, chain(keys_of(2, 3)))
        assert store.has([block.key for block in mine]) == 3
        assert len(list(lent.load(3))) == 3
    for _ in range(5):
        use(store, chain(keys_of(2, 3)))
    assert store.has(keys_of(2, 3)) > 0


def test_a_block_larger_than_the_budget_is_not_held():
    store = BlockStore({Tier.HOST: SIZE - 1}, FixedClock())
    made = chain(keys_of(1, 2))
    assert use(store, made) == 0
    assert use(store, made) == 0
    assert tiers_of(store)[Tier.HOST].size_bytes == 0


@pytest.mark.parametrize("where", [0, 1, 2])
def test_forgetting_an_item_takes_its_block_and_all_behind_it_from_every_tier(tmp_path, where):
    items = [["a"], ["b"], ["c"]]
    store, made = opened(tmp_path), chain(keys_of(1, 3), items)
    use(store, made)
    use(store, made)
    store.settle()
    other = chain(keys_of(2, 2), [["z"]])
    use(store, other)
    assert store.forget(items[where]) == 3 - where
    assert store.has([block.key for block in made]) == where
    assert store.has([block.key for block in other]) == 2
    assert {file.stem for file in tmp_path.glob("*/*.safetensors")} == {block.key for block in made[:where]}
    store.close()
    again = opened(tmp_path)
    assert again.has([block.key for block in made]) == where
    again.close()


def test_what_is_forgotten_while_it_is_lent_is_not_found_again(tmp_path):
    store, made = opened(tmp_path), chain(keys_of(1, 3), [["a"]])
    use(store, made)
    with store.checkout([block.key for block in made]) as lent:
        store.forget(["a"])
        assert list(lent.load(3)) == []
    assert use(store, made) == 0
    store.close()


def test_what_may_not_be_held_any_more_is_not_taken_in():
    dead = set()
    store = opened(alive=lambda _, items: dead.isdisjoint(items))
    made = chain(keys_of(1, 3), [["a"], ["b"]])
    dead.add("b")  # erased after the prompt was written and before its blocks were made
    use(store, made)
    assert store.has([block.key for block in made]) == 1
    dead.clear()
    use(store, made)
    dead.add("a")
    assert store.reconcile() == 3
    assert store.has([block.key for block in made]) == 0


def test_dropping_a_cube_leaves_the_others():
    store = opened()
    use(store, chain(keys_of(1, 2, salt="home"), cube="home"))
    use(store, chain(keys_of(1, 2, salt="work"), cube="work"))
    assert store.drop("home") == 2
    assert [block.cube for block, *_ in store.blocks()] == ["work", "work"]


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "gone", "other"])
def test_a_damaged_file_is_never_used(tmp_path, harm):
    store, made = opened(tmp_path), chain(keys_of(1, 3))
    use(store, made)
    use(store, made)
    store.close()
    file = files.file_of(tmp_path, made[1].key)
    data = file.read_bytes()
    match harm:
        case "cut":
            file.write_bytes(data[:-1])
        case "flipped":
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "empty":
            file.write_bytes(b"")
        case "gone":
            file.unlink()
        case "other":
            file.write_bytes(files.file_of(tmp_path, made[2].key).read_bytes())
    again = opened(tmp_path)
    use(again, made)  # asserts that what is loaded is right
    assert use(again, made) == 3
    again.close()


def test_verify_names_damage_and_removes_it(tmp_path):
    store, made = opened(tmp_path), chain(keys_of(1, 3))
    use(store, made)
    use(store, made)
    store.settle()
    assert store.verify() == []
    file = files.file_of(tmp_path, made[1].key)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert store.verify() == [made[1].key]
    assert store.has([block.key for block in made]) == 1
    store.close()


@pytest.mark.parametrize("harm", [b"", b"not a database at all" * 99])
def test_a_lost_or_damaged_index_is_made_again_from_the_files(tmp_path, harm):
    store, made = opened(tmp_path), chain(keys_of(1, 3), [["a"], [], ["c"]])
    use(store, made)
    use(store, made)
    store.close()
    (tmp_path / "index.db").write_bytes(harm)
    again = opened(tmp_path)
    assert use(again, made) == 3
    assert again.forget(["c"]) == 1
    again.close()


def test_a_full_disk_does_not_pass_for_a_damaged_index(tmp_path):
    tier, _ = DiskTier.open(tmp_path)
    [block] = chain(keys_of(0, 1))
    tier.write(block, array_of(block), Heat(7.0, 5.0))
    tier.close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        with pytest.raises(BackendUnavailable, match="cannot be used"):
            DiskTier.open(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    tier, found = DiskTier.open(tmp_path)
    tier.close()
    assert found == {block.key: (block, Heat(7.0, 5.0))}


def test_leftovers_of_a_killed_process_are_cleared(tmp_path):
    store, made = opened(tmp_path), chain(keys_of(1, 2))
    use(store, made)
    use(store, made)
    store.close()
    files.file_of(tmp_path, made[0].key).unlink()
    strange = tmp_path / "ab" / ("ab" + "0" * 62 + ".safetensors")
    strange.parent.mkdir(exist_ok=True)
    strange.write_bytes(b"\xff" * 100)
    strange.with_suffix(".new").write_bytes(b"half")
    again = opened(tmp_path)
    assert again.blocks() == []
    again.close()
    assert not [file for file in tmp_path.glob("*/*") if file.is_file()]


def test_a_smaller_budget_evicts_when_opened(tmp_path):
    store, made = opened(tmp_path), chain(keys_of(1, 4))
    use(store, made)
    use(store, made)
    store.close()
    again = opened(tmp_path, disk=2)
    assert again.has([block.key for block in made]) == 2
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 2
    again.close()


def test_a_full_disk_costs_no_answer(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write", full)
    store, made = opened(tmp_path), chain(keys_of(1, 2))
    for _ in range(3):
        use(store, made)
        store.settle()
    assert use(store, made) == 2
    assert store.stats().dropped_writes > 0
    store.close()


def test_a_file_that_cannot_be_removed_is_removed_with_the_next_try(tmp_path, monkeypatch):
    store, made = opened(tmp_path), chain(keys_of(1, 2), [["a"]])
    use(store, made)
    use(store, made)
    store.settle()

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with pytest.raises(PermissionError):
            store.forget(["a"])
        with pytest.raises(PermissionError):
            store.reconcile()
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 2
    assert store.has([block.key for block in made]) == 0
    store.reconcile()
    assert not list(tmp_path.glob("*/*.safetensors"))
    store.close()


def test_what_a_file_says_of_its_worth_is_not_believed():
    store = opened(host=4)
    own = chain(keys_of(1, 2), compute_s=0.02)
    use(store, own)
    strange = chain(keys_of(2, 3), compute_s=80_000.0)
    taken = [store.adopt(block, array_of(block)) for block in strange]
    assert taken[:2] == [True, True]
    told = {block.key: block.compute_s for block, *_ in store.blocks()}
    assert {told[block.key] for block in strange if block.key in told} == {0.02}
    alone = opened(host=4)
    assert alone.adopt(strange[0], array_of(strange[0]))
    assert [block.compute_s for block, *_ in alone.blocks()] == [0.1]


def test_one_of_many_builds_and_the_others_look_again():
    store, made = opened(), chain(keys_of(1, 2))
    built, start = [], threading.Barrier(8)

    def prompt():
        start.wait()
        while not store.begin(made[0].key):
            time.sleep(0.001)
        with store.checkout([block.key for block in made]) as lent:
            for block in made[len(lent) :]:
                built.append(block.key)
                lent.add(block, array_of(block), Tier.HOST)
        store.end(made[0].key)

    threads = [threading.Thread(target=prompt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built) == sorted(block.key for block in made)


def test_eight_threads_get_only_right_blocks_while_others_are_evicted_and_forgotten(tmp_path):
    store, wrong = opened(tmp_path, host=6, disk=6), []

    def prompts(seed):
        random = np.random.default_rng(seed)
        try:
            for _ in range(60):
                prompt = int(random.integers(6))
                use(store, chain(keys_of(prompt, 3, shared=1), [[], [f"item-{prompt}"]]))
                if random.random() < 0.1:
                    store.forget([f"item-{int(random.integers(6))}"])
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)

    threads = [threading.Thread(target=prompts, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats = tiers_of(store)
    assert stats[Tier.HOST].size_bytes <= 6 * SIZE
    assert stats[Tier.DISK].size_bytes <= 6 * SIZE
    store.close()
    assert opened(tmp_path, disk=6).verify() == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["use", "forget"]), st.integers(0, 4), st.integers(1, 4)), max_size=30))
def test_used_bytes_are_those_of_the_blocks_that_are_there(steps):
    store = opened(host=5)
    for step, prompt, count in steps:
        if step == "use":
            use(store, chain(keys_of(prompt, count, shared=1), [[f"{prompt}"]] * count))
        else:
            store.forget([f"{prompt}"])
        held = store.blocks()
        assert tiers_of(store)[Tier.HOST].size_bytes == len(held) * SIZE <= 5 * SIZE
        keys = {block.key for block, *_ in held}
        assert all(block.parent is None or block.parent in keys for block, *_ in held)
