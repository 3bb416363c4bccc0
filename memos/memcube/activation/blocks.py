"""What a block of activation memory is, as values; and its file: one `safetensors` with one tensor, checked when read.

Knows no tiers. Source of the format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from memos.errors import IntegrityError
from memos.memcube.tensor_head import tensor_head
from memos.model import Json

Array: TypeAlias = npt.NDArray[np.generic]

SUFFIX = ".safetensors"
_TENSOR = "kv"
_LARGEST_HEADER = 1_048_576
# The arrays' own types: numpy has no bfloat16, whose bits are carried as integers.
_CARRIED: dict[str, str] = {"F32": "<f4", "F16": "<u2", "BF16": "<u2"}


class Tier(StrEnum):
    """Where a block is, the fastest first."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Block:
    """One block without its keys and values.

    `items` are those whose text stands in it; what stands in its parents is not repeated. `compute_s` are the seconds
    that computing it took. `dtype` is F32, F16 or BF16; the array is (2, layers, kv_heads, 64, head_dim).
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
        """Bytes of its keys and values."""
        return int(np.prod(self.shape)) * np.dtype(_CARRIED[self.dtype]).itemsize


def empty(block: Block) -> Array:
    """Return an array for the block's keys and values; F16 and BF16 as uint16 with the same bits."""
    return np.empty(block.shape, dtype=_CARRIED[block.dtype])


def file_of(folder: Path, key: str) -> Path:
    """Return where a block's file is: folders of 256, so that none gets too long."""
    return folder / key[:2] / f"{key}{SUFFIX}"


def write(folder: Path, block: Block, array: Array) -> int:
    """Write a block's file, whole or not at all; return its bytes. Raises: OSError."""
    file = file_of(folder, block.key)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = np.ascontiguousarray(array)
    head = _header(block, hashlib.sha256(data.data).hexdigest())
    temporary = file.with_suffix(".new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as out:
            out.write(head)
            out.write(data.data)
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return len(head) + data.nbytes


def read_head(file: Path) -> Block:
    """Return what a file says it holds. Raises: IntegrityError (no such block, cut off), OSError."""
    with file.open("rb") as source:
        block, _, start = _read_header(source.read(8), source.read)
    if file.name != f"{block.key}{SUFFIX}" or file.stat().st_size != start + block.size_bytes:
        raise IntegrityError(f"The file {file.name} is not the block it should be.")
    return block


def read(folder: Path, key: str, room: Callable[[Block], Array] = empty) -> tuple[Block, Array]:
    """Return a block with its keys and values, put into the array that `room` gives.

    Raises: IntegrityError (damaged), FileNotFoundError, OSError.
    """
    file = file_of(folder, key)
    with file.open("rb", buffering=0) as source:
        block, digest, _ = _read_header(source.read(8), source.read)
        array = room(block)
        filled = source.readinto(array.reshape(-1).view(np.uint8).data)
        whole = filled == block.size_bytes and not source.read(1)
    if block.key != key or not whole or hashlib.sha256(array.data).hexdigest() != digest:
        raise IntegrityError(f"The file of block {key[:12]} is damaged.")
    return block, array


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
        },
        _TENSOR: {"dtype": block.dtype, "shape": list(block.shape), "data_offsets": [0, block.size_bytes]},
    }
    return tensor_head(told)


def _read_header(length: bytes, more: Callable[[int], bytes]) -> tuple[Block, str, int]:
    """Return the block, the digest of its data, and where they begin."""
    try:
        (size,) = struct.unpack("<Q", length)
        if size > _LARGEST_HEADER:
            raise ValueError
        told = json.loads(more(size))
        meta, tensor = told["__metadata__"], told[_TENSOR]
        block = Block(
            key=meta["key"], parent=meta["parent"] or None, fingerprint=meta["fingerprint"], cube=meta["cube"],
            dtype=tensor["dtype"], shape=tuple(int(size) for size in tensor["shape"]),
            compute_s=float(meta["compute_s"]), items=frozenset(json.loads(meta["items"])),
        )  # fmt: skip
        if tensor["data_offsets"] != [0, block.size_bytes] or len(bytes.fromhex(block.key)) != 32:
            raise ValueError
        return block, meta["sha256"], 8 + size
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise IntegrityError("It is no file of a block.") from error
