"""Blocks in 8 bits on the disk: how near they are, how small, and that they are told apart from exact ones."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import numpy as numpy_reader

from memos.errors import IntegrityError
from memos.memcube.activation import blocks
from memos.memcube.activation import blocks as compact
from memos.memcube.activation.blocks import Tier
from memos.memcube.activation.store import BlockStore
from tests.fakes import FixedClock
from tests.memcube.activation.made import SHAPE, chain, keys_of

NUMBERS = st.floats(-1e4, 1e4, width=32)


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.float32, (2, 1, 2, 64, 3), elements=NUMBERS, fill=st.just(0.0)))
def test_each_number_is_within_half_a_step_of_what_it_was(array):
    whole, scales = compact.packed(array)
    back = compact.unpacked(whole, scales)
    keys = np.abs(array[0]).max(axis=-2, keepdims=True) / 127
    values = np.abs(array[1]).max(axis=-1, keepdims=True) / 127
    for half, steps in ((0, keys), (1, values)):
        assert (np.abs(back[half] - array[half]) <= steps * 0.5001 + 1e-30).all()
    assert scales.size == compact.scale_count(array.shape)


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float32, 50, elements=st.floats(-3e4, 3e4, width=32)))
def test_half_precision_is_rounded_as_torch_rounds_it(array):
    torch = pytest.importorskip("torch", reason="needs the extra `local`: make setup-local")
    told = torch.from_numpy(array).to(torch.bfloat16)
    assert np.array_equal(compact.from_float(array, "BF16"), told.view(torch.uint16).numpy())
    assert np.array_equal(compact.to_float(compact.from_float(array, "BF16"), "BF16"), told.float().numpy())
    half = compact.from_float(array, "F16")
    assert np.array_equal(compact.to_float(half, "F16"), torch.from_numpy(array).half().float().numpy())


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
def test_what_is_no_number_is_not_written(tmp_path: Path, number: float) -> None:
    array = np.zeros(SHAPE, dtype=np.float32)
    array[1, 0, 0, 3, 1] = number
    [block] = chain(keys_of(1, 1))
    block = replace(block, dtype="F32+I8")
    store = BlockStore({Tier.HOST: 2**20, Tier.DISK: 2**20}, FixedClock(), folder=tmp_path)
    assert store.adopt(block, array)
    store.settle()
    assert store.stats().dropped_writes == 1
    assert not list(tmp_path.glob("*/*"))
    store.close()


HEAD = {
    "key": "0" * 64,
    "parent": "",
    "fingerprint": "f",
    "cube": "c",
    "items": "[]",
    "compute_s": "0.1",
    "dtype": "F32",
}


@pytest.mark.parametrize(
    "told",
    [
        "abc", 5, [], {}, {"__metadata__": 5, "kv": {"shape": [2, 1, 1, 64, 1]}}, {"__metadata__": HEAD, "kv": []},
        *({"__metadata__": HEAD | {name: value}, "kv": {"shape": [2, 1, 1, 64, 1]}} for name, value in [
            ("fingerprint", ["x"]), ("parent", ["a"]), ("parent", "a"), ("key", ""), ("items", '[1, "a"]'),
            ("items", '"ab"'), ("items", '["\\ud800"]'), ("compute_s", "nan"), ("compute_s", "inf"),
            ("compute_s", "-1"), ("dtype", "F64"), ("dtype", "I8"), ("cube", {}),
        ]),
        *({"__metadata__": HEAD, "kv": {"shape": shape}} for shape in [
            [2, 1, 1, 64], [3, 1, 1, 64, 1], [2, -1, 1, 64, 1], [2, 0, 1, 64, 1], [2, 1, 1, 64, 2**43],
            [2, 2**31, 2**31, 2, 1], [2, 1.0, 1, 64, 1], [2, True, 1, 64, 1], ["2", 1, 1, 64, 1], 7,
        ]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compact_too", [False, True])
def test_hostile_headers_are_told_apart_from_blocks(tmp_path: Path, told: object, compact_too: bool) -> None:
    if isinstance(told, dict) and isinstance(told.get("kv"), dict):
        shape = told["kv"]["shape"]
        told = told | {"kv": {"dtype": "F32", "shape": shape, "data_offsets": [0, 512]}}
        if compact_too and told["__metadata__"] == HEAD:
            told["__metadata__"] = HEAD | {"dtype": "F32+I8"}
    raw = json.dumps(told).encode()
    data = struct.pack("<Q", len(raw)) + raw + bytes(512)
    for source, size in ((data, len(data)), (data[:20], 20), (struct.pack("<Q", 200_000) + b"[" * 200_000, 200_008)):
        with pytest.raises(IntegrityError):
            blocks.read_from(io.BytesIO(source), size)
    file = blocks.file_of(tmp_path, "0" * 64)
    file.parent.mkdir()
    file.write_bytes(data)
    store = BlockStore({Tier.DISK: 2**20}, FixedClock(), folder=tmp_path)
    assert store.blocks() == []
    store.close()


@pytest.mark.parametrize(("dtype", "share"), [("F32", 0.25), ("F16", 0.5), ("BF16", 0.5)])
def test_a_file_is_a_fraction_and_is_told_apart(tmp_path: Path, dtype: str, share: float) -> None:
    shape = (2, 3, 2, 64, 64)
    [block] = chain(keys_of(1, 1))
    block = replace(block, dtype=dtype + compact.COMPACT, shape=shape)
    array = compact.from_float(np.random.default_rng(1).normal(size=shape).astype(np.float32), dtype)
    written = blocks.write(tmp_path, block, array)
    assert share < written / block.size_bytes < share * 1.1
    read, back = blocks.read(tmp_path, block.key)
    assert read == block
    assert back.dtype == array.dtype
    near = np.abs(compact.to_float(back, dtype) - compact.to_float(array, dtype))
    assert 0 < near.max() < 0.03
    file = blocks.file_of(tmp_path, block.key)
    assert blocks.read_head(file) == block
    assert set(numpy_reader.load_file(file)) == {"kv", "scales"}, "any reader opens it"
    assert numpy_reader.load_file(file)["kv"].dtype == np.int8


def test_the_disk_has_room_for_more_of_them(tmp_path: Path) -> None:
    made = [replace(block, dtype="F32+I8") for block in chain(keys_of(1, 12))]
    room = made[0].stored_bytes
    assert room < 0.6 * made[0].size_bytes  # of blocks as small as these; a quarter of usual ones
    store = BlockStore({Tier.HOST: 12 * made[0].size_bytes, Tier.DISK: 12 * room}, FixedClock(), folder=tmp_path)
    arrays_of = {block.key: np.random.default_rng(n).normal(size=SHAPE).astype("f4") for n, block in enumerate(made)}
    for _ in range(3):
        with store.checkout([block.key for block in made]) as lent:
            for block in made[len(lent) :]:
                assert lent.add(block, arrays_of[block.key], Tier.HOST)
        store.settle()
    store.close()
    again = BlockStore({Tier.DISK: 12 * room}, FixedClock(), folder=tmp_path)
    with again.checkout([block.key for block in made]) as lent:
        assert len(lent) == 12
        for (tier, held), block in zip(lent.load(12), made, strict=True):
            assert tier is Tier.DISK
            assert np.abs(held - arrays_of[block.key]).max() < 0.05
    assert again.verify() == []
    file = blocks.file_of(tmp_path, made[-1].key)
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1  # of a scale
    file.write_bytes(bytes(raw))
    assert again.verify() == [made[-1].key]
    again.close()
