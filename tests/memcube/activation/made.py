"""Chains of small blocks, as a model would make them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memos.core.kv_cache import BLOCK_TOKENS
from memos.memcube.activation.blocks import Array, Block, block_keys
from memos.memcube.activation.store import BlockStore, TierFill

SHAPE = (2, 2, 1, BLOCK_TOKENS, 4)


def keys_of(prompt: int, count: int, shared: int = 0, salt: str = "home") -> list[str]:
    """Keys of `count` blocks; prompts share their first `shared` blocks and differ behind."""
    ids = [0] * (BLOCK_TOKENS * shared) + [prompt + 1] * (BLOCK_TOKENS * (count - shared))
    return block_keys("model", salt, ids)


def chain(
    keys: Sequence[str], items: Sequence[Sequence[str]] = (), cube: str = "home", compute_s: float = 0.01
) -> list[Block]:
    return [
        Block(
            key,
            keys[place - 1] if place else None,
            "model",
            cube,
            "F32",
            SHAPE,
            compute_s,
            frozenset(items[place] if place < len(items) else ()),
        )
        for place, key in enumerate(keys)
    ]


def array_of(block: Block) -> Array:
    """Keys and values that only this block has."""
    random = np.random.default_rng(int(block.key[:12], 16))
    return random.standard_normal(block.shape).astype("<f4")


SIZE = chain(["00"])[0].size_bytes


def tiers_of(store: BlockStore) -> dict[str, TierFill]:
    return {fill.tier: fill for fill in store.stats().tiers}
