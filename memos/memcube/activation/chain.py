"""Names blocks of a prompt's beginning: each by what made it and by all tokens up to its end. Pure.

A block's key is a digest of its parent's key and its token ids; the first one's parent is a digest of the model's
fingerprint and the tenant's salt. So equal keys mean equal keys and values, and nobody meets another tenant's blocks.
Source: vLLM's prefix caching, https://docs.vllm.ai/en/latest/design/prefix_caching/
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

from memos.core.kv_cache import BLOCK_TOKENS
from memos.core.types import Json

FORMAT = 1
"""Grows when blocks are computed or laid out otherwise; blocks of another format are never met."""


_ADAPTED = "adapter-"


def fingerprint_of(made_by: Mapping[str, Json]) -> str:
    """Return a digest of everything that keys and values depend on besides the tokens: 64 hexadecimal digits.

    That of a model with an adapter on it says so before them.
    """
    told = {"format": FORMAT, "block_tokens": BLOCK_TOKENS, **made_by}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return digest if made_by.get("adapter", "base") == "base" else f"{_ADAPTED}{digest}"


def is_adapted(fingerprint: str) -> bool:
    """Say whether a fingerprint is that of a model with an adapter on it."""
    return fingerprint.startswith(_ADAPTED)


def block_keys(fingerprint: str, salt: str, ids: Sequence[int]) -> list[str]:
    """Return the key of each whole block of token ids, in their order; what is left at the end has none."""
    parent = hashlib.sha256(f"{fingerprint}\n{salt}".encode()).digest()
    keys = []
    tokens = np.asarray(ids, dtype="<u4")
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        parent = hashlib.sha256(parent + tokens[end - BLOCK_TOKENS : end].tobytes()).digest()
        keys.append(parent.hex())
    return keys


def usable_blocks(tokens: int) -> int:
    """Return how many blocks of a prompt may come from memory: at least its last token has to be computed."""
    return max(0, tokens - 1) // BLOCK_TOKENS
