"""Prefill a prompt: load cached blocks while that is faster, compute the rest in equal steps.

Every prefill, cold or warm, uses the same steps (`BLOCK_TOKENS` times the model's `chunk_blocks`), so the results are
bit-identical. It operates on a `KvCache` with token ids, independent of the model.
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

_POLL_S = 0.02
_PUT_BLOCKS = 32
"""Blocks loaded at a time: on a GPU they are there twice meanwhile, 256 MiB for Llama-3-8B."""
# Then compute the prompt as well: the consumer of the other generator may never take its next step.
_MAX_WAIT_S = 60.0


class PrefillEngine:
    """Prefills prompts of one model with blocks of one store. Thread-safe."""

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
        """Prefill an empty cache with the prompt, in one or more steps; each is computed within `turn()`."""
        filling = self.steps(prompt, cache, turn)
        while True:
            try:
                next(filling)
            except StopIteration as ended:
                activation: Activation = ended.value
                return activation

    def steps(
        self, prompt: Prompt, cache: KvCache, turn: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Generator[None, None, Activation]:
        """Do the same as a generator that yields after each step; blocks stored before it is closed are kept."""
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
        # Poll and yield instead of blocking: the other generator may need one of the threads that wait here.
        mine = self._store.begin(missing)
        while not mine and time.perf_counter() - began < _MAX_WAIT_S:
            time.sleep(_POLL_S)
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
        loaded, tiers = 0, set[Tier]()
        group = max(1, _PUT_BLOCKS // self._shape.chunk_blocks) * self._shape.chunk_blocks
        while loaded < wanted:
            began_group = time.perf_counter()
            asked = min(group, wanted - loaded)
            found = list(lent.load(asked, loaded))
            del found[len(found) - len(found) % self._shape.chunk_blocks :]
            took = time.perf_counter() - began_group
            if found:
                with turn():  # how long it is waited for is not part of the rate
                    began_group = time.perf_counter()
                    cache.put([held for _, held in found])
                    took += time.perf_counter() - began_group
            loaded += len(found)
            its = {tier for tier, _ in found}
            tiers |= its
            assert self._store is not None
            if its == {Tier.HOST}:  # the store measures the disk tier itself; the device tier needs no copy
                self._store.measured(Tier.HOST, len(found) * lent.blocks[0].size_bytes, took)
            if len(found) < asked:  # one was damaged, or removed
                break
        computing = time.perf_counter()
        yield from self._compute(prompt, loaded, keys, lent, cache, turn)
        ended = time.perf_counter()
        return Activation(
            len(prompt.ids),
            loaded * BLOCK_TOKENS,
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
