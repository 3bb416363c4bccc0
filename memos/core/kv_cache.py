"""Values of the KV cache: prompt prefixes, layouts of KV, and what reuse saved."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Protocol

from pydantic import SecretStr

BLOCK_TOKENS = 64
"""Tokens of a block of KV; prompts are computed in steps of it, or of a multiple."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of a request's first message that other requests begin with, too: its first `chars` characters.

    `cube` owns it: requests of other cubes never reuse its KV. `items` are (first character, id) of the
    memories that stand in it, in order.
    """

    cube: str
    chars: int
    items: tuple[tuple[int, str], ...] = ()


def salt_of(cube: str, key: SecretStr | None) -> str:
    """Return the cache salt of a cube, so that nobody learns by timing what another cube holds.

    Source: https://docs.vllm.ai/en/latest/design/prefix_caching.html (cache isolation).
    """
    secret = b"" if key is None else key.get_secret_value().encode()
    return hmac.new(secret, b"memstrata " + cube.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of a rendered request; the first `stable` tokens recur in requests of the `cube`.

    `items` are (token, id): where the text of a memory begins.
    """

    ids: Sequence[int]
    cube: str = ""
    stable: int = 0
    items: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Activation:
    """Statistics of processing one prompt up to the first token of its answer.

    `cached_tokens` of `prompt_tokens` came from the cache; `tier` is where they were: device, host, disk or server.
    Seconds: `load_s` to load them, `compute_s` for the rest of the prompt, `first_token_s` in total. A server reports
    only the counts. `exact` is True if the cached KV is bit-identical to recomputed KV, None if nothing was cached or
    it is not known. `reason` says why nothing could be reused.
    """

    prompt_tokens: Annotated[int, "Tokens of the prompt"]
    cached_tokens: Annotated[int, "Tokens taken from the cache"] = 0
    tier: Annotated[str | None, "Tier they came from: `device`, `host`, `disk` or `server`"] = None
    load_s: Annotated[float | None, "Seconds to load them"] = None
    compute_s: Annotated[float | None, "Seconds to compute the rest"] = None
    first_token_s: Annotated[float | None, "Seconds until the first token of the answer"] = None
    reason: Annotated[str | None, "Why nothing came from the cache"] = None
    exact: Annotated[bool | None, "Whether the cached KV is identical, to the bit, to computed KV"] = None


@dataclass(frozen=True, slots=True)
class KvShape:
    """The layout of a model's KV: `dtype` is F32, F16 or BF16, a block is (2, layers, kv_heads, 64, head_dim).

    A `dtype` ending in +I8 is stored in 8 bits on disk. `chunk_blocks` blocks are computed in one step; reuse ends at
    a step boundary, otherwise results would differ.
    """

    fingerprint: str
    dtype: str
    shape: tuple[int, ...]
    chunk_blocks: int = 1


class KvCache(Protocol):
    """The growing keys and values of one prompt."""

    def compute(self, ids: Sequence[int]) -> None:
        """Compute the next tokens."""

    def put(self, held: Sequence[object]) -> None:
        """Append stored blocks."""

    def take(self, place: int) -> object:
        """Return a copy of the block at a position, as the store holds it."""


class Fill(Protocol):
    """Fills an empty cache with a prompt from stored blocks or by computing, and stores new blocks."""

    def steps(
        self, prompt: Prompt, cache: KvCache, turn: Callable[[], AbstractContextManager[object]]
    ) -> Generator[None, None, Activation]:
        """Yield after each step and return the result; `turn` is entered around each. Closing stops it."""


@dataclass(frozen=True, slots=True)
class PrefixEntry:
    """A memory of a prefix; `changed` if it is different from when the prefix was composed."""

    mark: Annotated[str, "Citation mark, such as `m1`"]
    item: Annotated[str, "Id of the memory"]
    version: Annotated[int, "Version in the prefix"]
    memory: Annotated[str, "Its text now"]
    added_at: Annotated[datetime, "When it was added to the prefix"]
    changed: Annotated[bool, "Whether the memory has changed since"]


@dataclass(frozen=True, slots=True)
class CubePrefix:
    """The prompt prefix of a cube; `blocks` counts its KV blocks by the fastest tier that holds each.

    `room` is how many tokens of memories it may have, 0 where no model keeps them.
    """

    cube: Annotated[str, "The cube"]
    entries: Annotated[tuple[PrefixEntry, ...], "Its memories, in order"]
    tokens: Annotated[int, "Estimated tokens of the text"]
    room: Annotated[int, "Maximum tokens of memories; 0 if no model keeps them"]
    text: Annotated[str, "Section of the prompt; empty if there is none"]
    blocks: Annotated[dict[str, int], "Number of the cube's blocks, by the fastest tier of each"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """Result of precomputing a cube's prompt prefix in the model: the time it took."""

    cube: Annotated[str, "The cube"]
    tokens: Annotated[int, "Estimated tokens of the prefix"]
    seconds: Annotated[float, "Seconds it took"]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Time until the first token of an answer, measured without and with what is kept of a cube's prompt prefix."""

    cube: Annotated[str, "The cube"]
    tokens: Annotated[int, "Estimated tokens of the prefix"]
    without_s: Annotated[float, "Seconds when nothing was kept"]
    with_s: Annotated[float, "Seconds when the prefix was kept"]
    measured_at: Annotated[datetime, "When it was measured"]


@dataclass(frozen=True, slots=True)
class TierFill:
    """Usage of a tier, with its hits and evictions since the store was opened."""

    tier: Annotated[str, "`device`, `host` or `disk`"]
    blocks: Annotated[int, "Blocks in it"]
    size_bytes: Annotated[int, "Bytes of these"]
    budget_bytes: Annotated[int, "Maximum bytes"]
    hits: Annotated[int, "Number of hits"]
    evictions: Annotated[int, "Number of evicted blocks"]
    bytes_per_s: Annotated[float | None, "Measured read rate; null before the first read"]


@dataclass(frozen=True, slots=True)
class ServerPrefixCache:
    """What the endpoint of the chat model says of its prefix cache, for all its clients, since it started.

    `external_…` are tokens looked up in a store behind it, such as LMCache.
    """

    asked_tokens: Annotated[int | None, "Tokens of prompts looked up in it"] = None
    cached_tokens: Annotated[int | None, "Tokens of these that were there"] = None
    external_asked_tokens: Annotated[int | None, "Tokens looked up in a store behind it, such as LMCache"] = None
    external_cached_tokens: Annotated[int | None, "Tokens of these that were there"] = None
    used: Annotated[float | None, "Share of its KV memory in use, from 0 to 1"] = None
    reason: Annotated[str | None, "Why nothing is known"] = None


@dataclass(frozen=True, slots=True)
class KvStats:
    """Statistics of the KV store since it was opened."""

    tiers: Annotated[tuple[TierFill, ...], "Tiers; empty if no model in the server has cached anything"] = ()
    misses: Annotated[int, "Blocks of prompts that were in no tier and had to be computed"] = 0
    dropped_writes: Annotated[int, "Blocks not written to disk, because it was too slow, full or failed"] = 0
    damaged: Annotated[int, "Damaged files found"] = 0
    forgotten: Annotated[int, "Blocks removed because a memory in them was changed or erased"] = 0
    server: Annotated[ServerPrefixCache | None, "Prefix cache of the endpoint; null if none is configured"] = None
