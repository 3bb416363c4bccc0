"""Prefill a prompt: load cached blocks while that is faster, compute the rest in equal steps.

Every prefill, cold or warm, uses the same steps (`BLOCK_TOKENS` times the model's `chunk_blocks`), so results are
bitwise equal. It drives a `KvCache` with token ids and knows no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext

from memos.core.kv_cache import BLOCK_TOKENS, Activation, KvCache, KvShape, Prompt
from memos.memcube.activation import tiers as policy
from memos.memcube.activation.blocks import COMPACT, Block, Tier, block_keys, usable_blocks
from memos.memcube.activation.store import BlockStore
from memos.memcube.activation.tiers import BlockLease, Rate

_LOOK_S = 0.02
# After that, compute the prompt in parallel: the consumer of the first one may never ask for its next step.
_LONGEST_WAIT_S = 60.0


class PrefillEngine:
    """Prefills for one model over one store. Thread-safe."""

    def __init__(
        self,
        shape: KvShape,
        store: BlockStore | None,
        held_in: Tier = Tier.HOST,
        choose: Callable[[Sequence[float], Sequence[float]], int] = policy.blocks_to_load,
    ) -> None:
        self._shape = shape
        self._store = store
        self._held_in = held_in
        self._choose = choose
        self._computing = Rate()
        self._is_compact = shape.dtype.endswith(COMPACT)

    def __call__(
        self, prompt: Prompt, cache: KvCache, turn: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Activation:
        """Fill an empty cache with the whole prompt, in one step at least; `turn` is entered around each."""
        filling = self.steps(prompt, cache, turn)
        while True:
            try:
                next(filling)
            except StopIteration as ended:
                told: Activation = ended.value
                return told

    def steps(
        self, prompt: Prompt, cache: KvCache, turn: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Generator[None, None, Activation]:
        """Do the same, yielding after each step; closed before its end it makes no more, and what is stored stays."""
        began = time.perf_counter()
        keys = block_keys(self._shape.fingerprint, prompt.cube, prompt.ids[: prompt.stable])
        if self._store is None or not keys:
            yield from self._compute(prompt, 0, [], None, cache, turn)
            took = time.perf_counter() - began
            return Activation(len(prompt.ids), compute_s=took, first_token_s=took)
        with self._store.checkout(keys) as lent:
            if len(lent) == len(keys):
                return (yield from self._fill(prompt, keys, lent, cache, turn, began))
            missing = keys[len(lent)]
        # Who builds them may be kept from its next step by the very threads that wait here, so nobody holds one.
        mine = self._store.begin(missing)
        while not mine and time.perf_counter() - began < _LONGEST_WAIT_S:
            time.sleep(_LOOK_S)
            yield
            mine = self._store.begin(missing)
        try:
            with self._store.checkout(keys, counted=False) as lent:
                return (yield from self._fill(prompt, keys, lent, cache, turn, began))
        finally:
            if mine:
                self._store.end(missing)

    def _fill(
        self,
        prompt: Prompt,
        keys: Sequence[str],
        lent: BlockLease,
        cache: KvCache,
        turn: Callable[[], AbstractContextManager[object]],
        began: float,
    ) -> Generator[None, None, Activation]:
        usable = min(len(lent), usable_blocks(len(prompt.ids)))
        usable -= usable % self._shape.chunk_blocks
        compute_s = [self._computing.seconds(BLOCK_TOKENS)] * usable
        wanted = self._choose(lent.load_s()[:usable], compute_s)
        wanted -= wanted % self._shape.chunk_blocks
        loading = time.perf_counter()
        loaded, tiers = [], set()
        for tier, held in lent.load(wanted):
            loaded.append(held)
            tiers.add(tier)
        del loaded[len(loaded) - len(loaded) % self._shape.chunk_blocks :]
        if loaded:
            with turn():
                cache.put(loaded)
            assert self._store is not None
            if tiers == {Tier.HOST}:  # of the disk the store knows itself, and the device's are there
                size = len(loaded) * lent.blocks[0].size_bytes
                self._store.measured(Tier.HOST, size, time.perf_counter() - loading)
        computing = time.perf_counter()
        yield from self._compute(prompt, len(loaded), keys, lent, cache, turn)
        ended = time.perf_counter()
        return Activation(
            len(prompt.ids),
            len(loaded) * BLOCK_TOKENS,
            str(max(tiers, key=list(Tier).index)) if loaded else None,
            computing - loading,
            ended - computing,
            ended - began,
            exact=not self._is_compact if loaded else None,
        )

    def _compute(
        self,
        prompt: Prompt,
        blocks: int,
        keys: Sequence[str],
        lent: BlockLease | None,
        cache: KvCache,
        turn: Callable[[], AbstractContextManager[object]],
    ) -> Generator[None, None, None]:
        step = BLOCK_TOKENS * self._shape.chunk_blocks
        kept = True
        for start in range(blocks * BLOCK_TOKENS, len(prompt.ids), step):
            ids = prompt.ids[start : start + step]
            with turn():
                began = time.perf_counter()
                cache.compute(ids)
                took = time.perf_counter() - began
            if len(ids) == step:
                self._computing.measured(len(ids), took)
            first = start // BLOCK_TOKENS
            for place in range(first, min(first + len(ids) // BLOCK_TOKENS, len(keys))):
                if lent is not None and kept and place == len(lent):
                    block = self._block(prompt, keys, place, took * BLOCK_TOKENS / len(ids))
                    kept = lent.add(block, cache.take(place), self._held_in)
            yield

    def _block(self, prompt: Prompt, keys: Sequence[str], place: int, compute_s: float) -> Block:
        begin, end = place * BLOCK_TOKENS, (place + 1) * BLOCK_TOKENS
        return Block(
            keys[place],
            keys[place - 1] if place else None,
            self._shape.fingerprint,
            prompt.cube,
            self._shape.dtype,
            self._shape.shape,
            compute_s,
            frozenset(id_ for token, id_ in prompt.items if begin <= token < end),
        )
