"""Blocks of KV: their keys, 8-bit quantisation, and files in the `safetensors` format, validated when read.

Source of the format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from memos.core.kv_cache import BLOCK_TOKENS
from memos.core.types import Json
from memos.errors import IntegrityError

if TYPE_CHECKING:
    from memos.memcube.encryption.vault import BlockSealer

FORMAT = 1
"""Incremented when the computation or layout of blocks changes, so that older blocks are never found."""


_ADAPTED = "adapter-"


def fingerprint_of(made_by: Mapping[str, Json]) -> str:
    """Return a hex digest of everything that KV depends on besides the tokens; with an adapter it has a prefix."""
    told = {"format": FORMAT, "block_tokens": BLOCK_TOKENS, **made_by}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return digest if made_by.get("adapter", "base") == "base" else f"{_ADAPTED}{digest}"


def is_adapted(fingerprint: str) -> bool:
    return fingerprint.startswith(_ADAPTED)


def block_keys(fingerprint: str, salt: str, ids: Sequence[int]) -> list[str]:
    parent = hashlib.sha256(f"{fingerprint}\n{salt}".encode()).digest()
    keys = []
    tokens = np.asarray(ids, dtype="<u4")
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        parent = hashlib.sha256(parent + tokens[end - BLOCK_TOKENS : end].tobytes()).digest()
        keys.append(parent.hex())
    return keys


def usable_blocks(tokens: int) -> int:
    """Return how many blocks of a prompt may be loaded: at least its last token must be computed, for its logits."""
    return max(0, tokens - 1) // BLOCK_TOKENS


# 8-bit quantisation for the disk tier: a quarter or half of the size, and not exact.

COMPACT = "+I8"
"""Suffix of the dtype of a block whose file is quantised; arrays in memory have the dtype before the suffix."""

_LARGEST = 127.0
_BEYOND = 1e30


def packed(array: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Quantise an array (2, layers, kv_heads, tokens, head_dim) to integers from -127 to 127; return them and scales.

    The scales are flattened: per channel for keys (layers, kv_heads, head_dim), then per token for values (layers,
    kv_heads, tokens).
    """
    if not np.abs(array).max() < _BEYOND:
        raise ValueError("its numbers are not finite")
    steps = np.abs(array[0]).max(axis=-2) / _LARGEST, np.abs(array[1]).max(axis=-1) / _LARGEST
    scales = [np.where(step > 0, step, 1.0).astype(np.float32) for step in steps]
    whole = np.stack([array[0] / scales[0][..., None, :], array[1] / scales[1][..., :, None]])
    return np.rint(whole).astype(np.int8), np.concatenate([scale.reshape(-1) for scale in scales])


def unpacked(whole: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the dequantised array; each number is off by at most half its scale."""
    _, layers, heads, tokens, width = whole.shape
    keys = scales[: layers * heads * width].reshape(layers, heads, 1, width)
    values = scales[layers * heads * width :].reshape(layers, heads, tokens, 1)
    return np.stack([whole[0] * keys, whole[1] * values])


def scale_count(shape: tuple[int, ...]) -> int:
    _, layers, heads, tokens, width = shape
    return layers * heads * (width + tokens)


def to_float(array: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.float32]:
    """Convert a stored array (F16 and BF16 as uint16) to float32."""
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return (array.view(np.float16) if dtype == "F16" else array).astype(np.float32)


def from_float(array: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.generic]:
    """Convert float32 to a stored array (F16 and BF16 as uint16), rounding half to even."""
    if dtype == "BF16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return array.astype(np.float16).view(np.uint16) if dtype == "F16" else array


def tensor_head(told: Mapping[str, Json]) -> bytes:
    """Return the header of a safetensors file, padded so that the data after it is aligned to 8 bytes."""
    raw = json.dumps(told, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


Array: TypeAlias = npt.NDArray[np.generic]

SUFFIX = ".safetensors"
_TENSOR, _SCALES = "kv", "scales"
_LARGEST_HEADER = 1_048_576
_MOST = 2**32
_AXES = 5
_HALVES = 2
_ENDLESS_S = 86_400.0
_KEY = re.compile(r"[0-9a-f]{64}")
# Types of the arrays: numpy has no bfloat16, so its bits are stored as integers.
_CARRIED: dict[str, str] = {"F32": "<f4", "F16": "<u2", "BF16": "<u2"}


class Tier(StrEnum):
    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Block:
    """The metadata of a block, whose array has the shape (2, layers, kv_heads, 64, head_dim).

    `items` are the memories whose text begins in this block, without those of its ancestors. `compute_s` is the time
    that computing it took, in seconds. `dtype` is F32, F16 or BF16, with the suffix `+I8` if the file is quantised.
    """

    key: str
    parent: str | None
    fingerprint: str
    cube: str
    dtype: str
    shape: tuple[int, ...]
    compute_s: float
    items: frozenset[str] = field(default_factory=frozenset)

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * _carried(self.dtype).itemsize

    @property
    def stored_bytes(self) -> int:
        if not self.dtype.endswith(COMPACT):
            return self.size_bytes
        return int(np.prod(self.shape)) + 4 * scale_count(self.shape)

    def of_items(self, items: Iterable[str]) -> Block:
        return replace(self, items=frozenset(items))


def empty(block: Block) -> Array:
    """Return an uninitialised array for a block; F16 and BF16 as uint16 with the same bits."""
    return np.empty(block.shape, dtype=_carried(block.dtype))


def _carried(dtype: str) -> np.dtype[np.generic]:
    return np.dtype(_CARRIED[dtype.removesuffix(COMPACT)])


def name_of(key: str, sealer: BlockSealer | None) -> str:
    """Return the name of a block's file, which in an encrypted installation does not tell its key."""
    return key if sealer is None else sealer.name(key)


def file_of(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}{SUFFIX}"


def write(folder: Path, block: Block, array: Array, sealer: BlockSealer | None = None) -> int:
    parts, file = file_data(block, array), file_of(folder, name_of(block.key, sealer))
    if sealer is not None:
        parts = [sealer.seal(block.key, block.cube, b"".join(parts))]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as out:
            for part in parts:
                out.write(part)
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return sum(map(len, parts))


def file_data(block: Block, array: Array) -> list[bytes | memoryview]:
    parts: tuple[Array, ...] = (array,)
    if block.dtype.endswith(COMPACT):
        parts = packed(to_float(array, block.dtype.removesuffix(COMPACT)))
    data = [np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in parts]
    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    return [_header(block, digest.hexdigest()), *data]


def read_head(file: Path, sealer: BlockSealer | None = None) -> Block:
    if sealer is not None:
        content = sealer.unseal(file.name.removesuffix(SUFFIX), file.read_bytes())
        block, size = head_from(io.BytesIO(content), len(content)), len(content)
        start = size - block.stored_bytes
    else:
        with file.open("rb") as source:
            block, _, start = _read_header(source.read(8), source.read)
        size = file.stat().st_size
    if file.name != f"{name_of(block.key, sealer)}{SUFFIX}" or size != start + block.stored_bytes:
        raise IntegrityError(f"The file {file.name} does not contain the expected block.")
    return block


def read(
    folder: Path, key: str, room: Callable[[Block], Array] = empty, sealer: BlockSealer | None = None
) -> tuple[Block, Array]:
    name = name_of(key, sealer)
    with file_of(folder, name).open("rb", buffering=0) as source:
        if sealer is None:
            block, array = read_from(source, os.fstat(source.fileno()).st_size, room)
        else:
            content = sealer.unseal(name, source.readall())
            block, array = read_from(io.BytesIO(content), len(content), room)
    if block.key != key:
        raise IntegrityError(f"The file of block {key[:12]} contains another block.")
    return block, array


def head_from(source: IO[bytes], size: int) -> Block:
    return _checked(source, size)[0]


def read_from(source: IO[bytes] | FileIO, size: int, room: Callable[[Block], Array] = empty) -> tuple[Block, Array]:
    block, digest = _checked(source, size)
    is_compact = block.dtype.endswith(COMPACT)
    array = room(block)
    read = np.empty(block.stored_bytes, dtype=np.uint8) if is_compact else array.reshape(-1).view(np.uint8)
    filled = source.readinto(read.data)  # type: ignore[union-attr]
    whole = filled == block.stored_bytes and not source.read(1)
    if not whole or hashlib.sha256(read.data).hexdigest() != digest:
        raise IntegrityError(f"The file of block {block.key[:12]} is damaged.")
    if is_compact:
        count = int(np.prod(block.shape))
        numbers = unpacked(read[:count].view(np.int8).reshape(block.shape), read[count:].view(np.float32))
        array[...] = from_float(numbers, block.dtype.removesuffix(COMPACT))
    return block, array


def _checked(source: IO[bytes] | FileIO, size: int) -> tuple[Block, str]:
    block, digest, start = _read_header(source.read(8), source.read)
    if size != start + block.stored_bytes:
        raise IntegrityError(f"The file of block {block.key[:12]} is truncated or too long.")
    return block, digest


def _header(block: Block, digest: str) -> bytes:
    told: dict[str, Json] = {
        "__metadata__": {
            "key": block.key,
            "parent": block.parent or "",
            "fingerprint": block.fingerprint,
            "cube": block.cube,
            "items": json.dumps(sorted(block.items)),
            "compute_s": repr(block.compute_s),
            "sha256": digest,
            "dtype": block.dtype,
        },
        **_tensors(block),
    }
    return tensor_head(told)


def _tensors(block: Block) -> dict[str, Json]:
    shape: list[Json] = list(block.shape)
    if not block.dtype.endswith(COMPACT):
        return {_TENSOR: {"dtype": block.dtype, "shape": shape, "data_offsets": [0, block.size_bytes]}}
    count, end = int(np.prod(block.shape)), block.stored_bytes
    scales: list[Json] = [scale_count(block.shape)]
    return {
        _TENSOR: {"dtype": "I8", "shape": shape, "data_offsets": [0, count]},
        _SCALES: {"dtype": "F32", "shape": scales, "data_offsets": [count, end]},
    }


def _read_header(length: bytes, more: Callable[[int], bytes]) -> tuple[Block, str, int]:
    try:
        (size,) = struct.unpack("<Q", length)
        if size > _LARGEST_HEADER:
            raise ValueError
        told = json.loads(more(size))
        meta, shape = told.pop("__metadata__"), told[_TENSOR]["shape"]
        _check_told(meta, shape)
        block = Block(
            key=meta["key"],
            parent=meta["parent"] or None,
            fingerprint=meta["fingerprint"],
            cube=meta["cube"],
            dtype=meta.get("dtype") or told[_TENSOR]["dtype"],
            shape=tuple(shape),
            compute_s=float(meta["compute_s"]),
            items=frozenset(json.loads(meta["items"])),
        )
        if told != _tensors(block):
            raise ValueError
        return block, meta["sha256"], 8 + size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise IntegrityError("It is not a block file.") from error


def _check_told(meta: dict[str, object], shape: list[object]) -> None:
    sizes = [size for size in shape if type(size) is int and 0 < size <= _MOST]
    if len(sizes) != len(shape) or len(sizes) != _AXES or sizes[0] != _HALVES or math.prod(sizes) > _MOST:
        raise ValueError
    if not all(isinstance(value, str) for value in meta.values()) or not _KEY.fullmatch(str(meta["key"])):
        raise ValueError
    items, seconds = json.loads(str(meta["items"])), float(str(meta["compute_s"]))
    if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
        raise ValueError
    if not (meta["parent"] == "" or _KEY.fullmatch(str(meta["parent"]))) or not 0 <= seconds < _ENDLESS_S:
        raise ValueError
    str(meta["cube"]).encode(), str(meta["fingerprint"]).encode(), "".join(items).encode()
