"""What stands at the beginning of prompts and comes again, and what came of keeping its attention KV. Values only."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import SecretStr

BLOCK_TOKENS = 64
"""Tokens of a block of KV; prompts are computed in steps of it, or of a multiple."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of a request's first message that other requests begin with, too: its first `chars` characters.

    `cube` is whose it is: no other cube's requests meet what is kept of it. `items` are (first character, id) of the
    memories that stand in it, in order.
    """

    cube: str
    chars: int
    items: tuple[tuple[int, str], ...] = ()


def salt_of(cube: str, key: SecretStr | None) -> str:
    """Return what keeps a cube's prefixes apart in a server's cache: nobody learns by timing what another cube holds.

    Source: https://docs.vllm.ai/en/latest/design/prefix_caching.html (cache isolation).
    """
    secret = b"" if key is None else key.get_secret_value().encode()
    return hmac.new(secret, b"memstrata " + cube.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of a rendered request; its first `stable` tokens are what comes again in requests of the `cube`.

    `items` are (token, id): where the text of a memory begins.
    """

    ids: Sequence[int]
    cube: str = ""
    stable: int = 0
    items: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Activation:
    """What a model did for one prompt until the first token of its answer.

    `cached_tokens` of `prompt_tokens` were not computed; `tier` is where they were kept: device, host, disk or server.
    Times in seconds: `load_s` to bring them to the model, `compute_s` for the rest, `first_token_s` in all. Of a
    server nothing but the counts is known. `exact` says that what was cached is equal to what would have been
    computed, to the bit; None where nothing was cached, or nobody knows. `reason` says why nothing could be taken from
    memory.
    """

    prompt_tokens: Annotated[int, "Tokens of the prompt"]
    cached_tokens: Annotated[int, "Those of them that were not computed"] = 0
    tier: Annotated[str | None, "Where they were kept: `device`, `host`, `disk` or `server`"] = None
    load_s: Annotated[float | None, "Seconds to bring them to the model"] = None
    compute_s: Annotated[float | None, "Seconds to compute the rest"] = None
    first_token_s: Annotated[float | None, "Seconds until the first token of the answer"] = None
    reason: Annotated[str | None, "Why nothing could be taken from memory"] = None
    exact: Annotated[bool | None, "Whether what was cached equals what would have been computed, to the bit"] = None


@dataclass(frozen=True, slots=True)
class KvShape:
    """How a model's keys and values look: `dtype` is F32, F16 or BF16, a block is (2, layers, kv_heads, 64, head_dim).

    A `dtype` that ends in +I8 says that files have them in 8 bits.

    `chunk_blocks` are computed in one step; what is reused ends where a step ends, or results would not be equal.
    """

    fingerprint: str
    dtype: str
    shape: tuple[int, ...]
    chunk_blocks: int = 1


class KvCache(Protocol):
    """The growing keys and values of one prompt in a model."""

    def compute(self, ids: Sequence[int]) -> None:
        """Compute the next tokens behind what is there."""
        ...

    def put(self, held: Sequence[object]) -> None:
        """Take in blocks behind what is there, as the store holds them."""
        ...

    def take(self, place: int) -> object:
        """Return a copy of the block at a place, as the store holds it."""
        ...


class Fill(Protocol):
    """Fills an empty cache with a prompt, from what is kept or by computing; keeps what may be kept."""

    def steps(
        self, prompt: Prompt, cache: KvCache, turn: Callable[[], AbstractContextManager[object]]
    ) -> Generator[None, None, Activation]:
        """Yield after each step, and return what it took; `turn` is entered around each. Closed before, it stops."""
        ...
