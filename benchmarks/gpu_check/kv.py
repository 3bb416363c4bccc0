"""Steps on activation memory: exactness, time to the first token by tier, batches, eviction, and a full GPU."""

from __future__ import annotations

import random
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_check.machine import drop_cached
from benchmarks.gpu_check.models import parameters
from benchmarks.gpu_check.steps import Skip, Step
from memos.backends.local.kv_buffer import KvBuffer, TorchDevice
from memos.backends.local.loading import Loaded
from memos.backends.local.model import LocalModel
from memos.core.clock import SystemClock
from memos.core.kv_cache import BLOCK_TOKENS, Activation, KvShape, Prefix, Prompt
from memos.core.ports import ChatMessage, ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.errors import BackendUnavailable, InvalidAnswer
from memos.memcube.activation.blocks import Tier, block_keys, fingerprint_of
from memos.memcube.activation.prefill import PrefillEngine
from memos.memcube.activation.store import BlockStore

_ROOM = 2**36
_QUESTION = 32
_LONG_S = 1.5
"""What takes longer cold is measured once."""
_CUBE = "home"


@dataclass(frozen=True)
class Bench:
    """A loaded model, and where stores may write."""

    loaded: Loaded
    work: Path

    @property
    def device(self) -> str:
        """Return `cuda` or `cpu`."""
        return str(self.loaded.model.device.type)

    @property
    def shape(self) -> KvShape:
        """Return the layout of the model's KV."""
        loaded = self.loaded
        if loaded.unusable is not None:
            raise Skip(f"KV cannot be reused: {loaded.unusable}")
        return KvShape(fingerprint_of(loaded.made_by), loaded.dtype, loaded.block, loaded.chunk_blocks)

    @property
    def step_tokens(self) -> int:
        """Return the tokens of one step of a prefill, after which reuse may end."""
        return BLOCK_TOKENS * self.loaded.chunk_blocks

    @property
    def token_bytes(self) -> int:
        """Return the bytes of KV of one token."""
        return int(np.prod(self.loaded.block)) // BLOCK_TOKENS * self.loaded.model.dtype.itemsize

    @contextmanager
    def store(self, folder: Path | None = None, **budgets: int) -> Iterator[BlockStore]:
        """Open a store with these budgets in bytes, by tier."""
        device = TorchDevice(self.loaded.model.device, self.loaded.model.dtype)
        room = {tier: budgets.get(tier.value, 0) for tier in Tier}
        made = BlockStore(room, SystemClock(), folder=folder, device=device)
        try:
            yield made
        finally:
            made.close()

    def prompt(self, stable: int, rest: int = _QUESTION, seed: int = 1) -> Prompt:
        """Return a prompt of random tokens."""
        vocabulary = self.loaded.model.config.get_text_config().vocab_size
        ids = np.random.default_rng(seed).integers(0, vocabulary, stable + rest).tolist()
        return Prompt(ids, _CUBE, stable)

    def fill(self, prompt: Prompt, store: BlockStore | None) -> tuple[KvBuffer, Activation, float]:
        """Prefill a prompt as the product does, from whatever is stored; return the seconds to the first token."""
        engine = PrefillEngine(self.shape, store, Tier.DEVICE, choose=lambda load, _: len(load))
        began = time.perf_counter()
        cache = KvBuffer(self.loaded.model, self.loaded.block, len(prompt.ids) + 1)
        told = engine(prompt, cache)
        assert cache.logits is not None
        int(cache.logits.argmax())
        return cache, told, time.perf_counter() - began

    def one_shot(self, prompt: Prompt) -> tuple[KvBuffer, float]:
        """Compute a whole prompt in one step."""
        began = time.perf_counter()
        cache = KvBuffer(self.loaded.model, self.loaded.block, len(prompt.ids) + 1)
        cache.compute(prompt.ids)
        assert cache.logits is not None
        int(cache.logits.argmax())
        return cache, time.perf_counter() - began

    def write_all(self, prompt: Prompt, store: BlockStore) -> None:
        """Have every stored block of a prompt written to disk: a lease queues a few at a time."""
        keys = block_keys(self.shape.fingerprint, prompt.cube, prompt.ids[: prompt.stable])
        for _ in range(2 + len(keys)):
            with store.checkout(keys):
                pass
            store.settle()
            on_disk = sum(Tier.DISK in tiers for _, tiers, _ in store.blocks())
            if on_disk == len(keys):
                return
        raise RuntimeError(f"{on_disk} of {len(keys)} blocks were written to disk")


def exactness(step: Step, bench: Bench, lengths: Sequence[int]) -> dict[str, Any]:
    """Compare warm prefills from each tier with a cold one, KV and logits bit by bit, and with one in one shot."""
    shape, rows = bench.shape, []
    for seed, tokens in enumerate(lengths):
        if not step.has_time(f"{tokens} tokens", 3 if bench.device == "cuda" else 0):
            continue
        prompt = bench.prompt(tokens, 7 + 11 * seed, seed)
        cold, _, _ = bench.fill(prompt, None)
        row: dict[str, Any] = {"tokens": len(prompt.ids), "dtype": shape.dtype}
        reused = min(tokens, len(prompt.ids) - 1) // bench.step_tokens * bench.step_tokens
        folder = bench.work / "exact"
        with bench.store(device=_ROOM) as store:
            row["device"] = _same(step, bench, prompt, cold, store, reused)
        with bench.store(folder, host=_ROOM, disk=_ROOM) as store:
            row["host"] = _same(step, bench, prompt, cold, store, reused)
            bench.write_all(prompt, store)
        with bench.store(folder, disk=_ROOM) as store:
            row["disk"] = _same(step, bench, prompt, cold, store, reused, made=True)
        shutil.rmtree(folder)
        whole, _ = bench.one_shot(prompt)
        row |= _distance(cold, whole)
        rows.append(row)
    names = ("device", "host", "disk")
    return {
        "cases": rows,
        "all_bits_equal": bool(rows) and all(row[name] for row in rows for name in names),
        "most_logit_difference_to_one_shot": max((row["logit_difference"] for row in rows), default=None),
    }


def _same(
    step: Step, bench: Bench, prompt: Prompt, cold: KvBuffer, store: BlockStore, reused: int, *, made: bool = False
) -> bool:
    tier = next(str(each.tier) for each in store.stats().tiers if each.budget_bytes)  # the fastest
    if not made:
        first, _, _ = bench.fill(prompt, store)
        step.check(f"{tier}: storing blocks changed logits", torch.equal(_logits(first), _logits(cold)))
    warm, told, _ = bench.fill(prompt, store)
    case = f"{len(prompt.ids)} tokens from {tier}"
    step.check(f"{case}: {told.cached_tokens} reused, expected {reused}", told.cached_tokens == reused)
    if reused:
        step.check(f"{case}: they came from {told.tier}", told.tier == tier)
    logits = torch.equal(_logits(warm), _logits(cold))
    blocks = range(len(prompt.ids) // BLOCK_TOKENS)
    kv = all(_equal(warm.take(place), cold.take(place)) for place in blocks)
    step.check(f"{case}: logits differ", logits)
    step.check(f"{case}: KV differs", kv)
    return logits and kv


def ttft(
    step: Step, bench: Bench, prefixes: Sequence[int], runs: int, limits: Mapping[str, float], disk_most: int
) -> dict[str, Any]:
    """Measure the time to the first token cold and from each tier, by the length of what is kept."""
    rows: dict[str, Any] = {}
    count, took = parameters(bench.loaded.model), 0.0
    for tokens in prefixes:
        if not step.has_time(f"{tokens} tokens", 2.6 * took):
            break
        began = time.monotonic()
        prompt = bench.prompt(tokens, seed=tokens)
        kept = tokens // bench.step_tokens * bench.step_tokens
        size = kept * bench.token_bytes
        try:
            row = _first_tokens(step, bench, prompt, runs, on_disk=size <= disk_most)
        except (BackendUnavailable, MemoryError, torch.OutOfMemoryError) as error:
            step.left_out.append(f"{tokens} tokens and more: {type(error).__name__}: {str(error)[:200]}")
            break
        row["kv_bytes"] = size
        row["gain_device"] = round(row["cold_s"] / row["device_s"], 2)
        row["gain_host"] = round(row["cold_s"] / row["host_s"], 2)
        row["cold_share_of_flop_limit"] = _share(2 * count * tokens / row["cold_s"], limits.get("bfloat16_flop_per_s"))
        row["host_share_of_bandwidth"] = _share(size / row["host_load_s"], limits.get("host_to_device_bytes_per_s"))
        # A copy on the device reads and writes each byte, and its limit counts both.
        row["device_share_of_bandwidth"] = _share(
            2 * size / row["device_load_s"], limits.get("device_copy_bytes_per_s")
        )
        if row.get("disk_s"):
            row["gain_disk"] = round(row["cold_s"] / row["disk_s"], 2)
            row["disk_share_of_bandwidth"] = _share(size / row["disk_load_s"], limits.get("disk_read_bytes_per_s"))
        else:
            step.left_out.append(f"{tokens} tokens from disk: {size / 2**30:.1f} GiB, most {disk_most / 2**30:.1f}")
        rows[str(tokens)] = row
        took = time.monotonic() - began
        if bench.device == "cuda":
            torch.cuda.empty_cache()
    return {"parameters": count, "kv_bytes_per_token": bench.token_bytes, "prefixes": rows}


def _first_tokens(step: Step, bench: Bench, prompt: Prompt, runs: int, *, on_disk: bool) -> dict[str, Any]:
    one_shot = [bench.one_shot(prompt)[1]]
    cold_runs = 1 if one_shot[0] > _LONG_S else runs
    if cold_runs > 1:  # the first of a length also chooses kernels, which matters for short ones
        one_shot = [bench.one_shot(prompt)[1] for _ in range(cold_runs)]
    steps = [bench.fill(prompt, None)[2] for _ in range(cold_runs)]
    row: dict[str, Any] = {"one_shot_s": _median(one_shot), "steps_s": _median(steps)}
    row["cold_s"] = min(row["one_shot_s"], row["steps_s"])
    with bench.store(device=_ROOM) as store:
        bench.fill(prompt, store)
        row |= _warm(step, bench, prompt, store, "device", runs)
    folder = bench.work / "ttft"
    with bench.store(folder if on_disk else None, host=_ROOM, disk=_ROOM) as store:
        bench.fill(prompt, store)
        row |= _warm(step, bench, prompt, store, "host", runs)
        if on_disk:
            bench.write_all(prompt, store)
    if on_disk:
        for file in folder.glob("*/*.safetensors"):
            drop_cached(file)
        with bench.store(folder, disk=_ROOM) as store:
            row |= _warm(step, bench, prompt, store, "disk", 1)
        shutil.rmtree(folder)
    return row


def _warm(step: Step, bench: Bench, prompt: Prompt, store: BlockStore, tier: str, runs: int) -> dict[str, float]:
    times, loads = [], []
    for _ in range(runs):
        _, told, seconds = bench.fill(prompt, store)
        step.check(f"{len(prompt.ids)} tokens: from {told.tier}, expected {tier}", told.tier == tier)
        times.append(seconds)
        loads.append(told.load_s or 0.0)
    return {f"{tier}_s": _median(times), f"{tier}_load_s": max(1e-9, _median(loads))}


def batches(step: Step, bench: Bench, sizes: Sequence[int], prefix: int, answer: int) -> dict[str, Any]:
    """Answer requests with different kept prefixes one by one and together: answers, throughput, first tokens."""
    rows: dict[str, Any] = {}
    with bench.store(device=_ROOM, host=_ROOM) as store:
        model = LocalModel(
            bench.loaded, ChatSettings(max_tokens=answer), PrefillEngine(bench.shape, store, Tier.DEVICE)
        )
        requests = [_request(number, prefix) for number in range(max(sizes))]
        for request in requests:
            _answer(model, request)  # what they begin with is kept from now on
        alone = [_answer(model, request) for request in requests]
        alone_s = statistics.median(each.seconds for each in alone)
        for size in sizes:
            if not step.has_time(f"{size} requests", 3 * alone_s * size):
                break
            began = time.perf_counter()
            found = _together(model, requests[:size])
            took = time.perf_counter() - began
            for number, (one, other) in enumerate(zip(alone, found, strict=False)):
                step.check(f"request {number} of {size} failed: {other.error}", other.error is None)
                step.check(f"request {number} of {size} reused nothing", other.cached > 0)
                step.check(f"request {number} of {size} has no answer", one.tokens == other.tokens > 0)
            one_by_one = sum(each.seconds for each in alone[:size])
            rows[str(size)] = {
                "one_by_one_s": round(one_by_one, 4),
                "together_s": round(took, 4),
                "throughput_ratio": round(one_by_one / took, 2),
                "tokens_per_s": round(size * answer / took, 1),
                "first_token_s": round(max(each.first_s for each in found), 4),
                "answers_the_same": sum(one.text == other.text for one, other in zip(alone, found, strict=False)),
            }
        model.close()
    # Of random weights many tokens are about equally likely, so that the last bits decide which is said.
    return {"prefix_tokens": prefix, "answer_tokens": answer, "requests": rows, **_decode_distance(step, bench, sizes)}


def _decode_distance(step: Step, bench: Bench, sizes: Sequence[int]) -> dict[str, Any]:
    """Compare the logits of one decoding step in a batch with those alone."""
    from memos.backends.local.batching import decode_together  # noqa: PLC0415 - beside what uses it

    count = max(sizes)
    prompts = [bench.prompt(bench.step_tokens, 5 + 9 * number, number) for number in range(count)]
    alone = [bench.fill(prompt, None)[0] for prompt in prompts]
    together = [bench.fill(prompt, None)[0] for prompt in prompts]
    for cache in alone:
        cache.compute([1])
    decode_together(bench.loaded.model, together, [1] * count)
    most = max(float((_logits(one) - _logits(other)).abs().max()) for one, other in zip(alone, together, strict=True))
    scale = max(float(_logits(one).abs().max()) for one in alone)
    allowed = {"F32": 1e-4, "F16": 0.02, "BF16": 0.1}[bench.shape.dtype] * max(1.0, scale)
    step.check(f"logits of a batch are {most:.3g} from those alone, allowed {allowed:.3g}", most <= allowed)
    return {"batch_logit_difference": float(f"{most:.3g}"), "largest_logit": float(f"{scale:.3g}")}


def eviction(step: Step, bench: Bench, prompts: int, blocks: int) -> dict[str, Any]:
    """Ask from four threads for prompts that do not all fit: budgets hold, and results stay the same to the bit."""
    size = bench.token_bytes * BLOCK_TOKENS
    kept = [bench.prompt(blocks * BLOCK_TOKENS * bench.loaded.chunk_blocks, 9, number) for number in range(8)]
    cold = [_logits(bench.fill(prompt, None)[0]) for prompt in kept]
    chance, lock, wrong, done = random.Random(5), threading.Lock(), list[str](), list[float]()  # noqa: S311
    asked = [min(7, int(chance.expovariate(0.5))) for _ in range(prompts)]
    total = 8 * blocks * bench.loaded.chunk_blocks
    budgets = {"device": size * total // 8, "host": size * total // 4, "disk": size * total // 2}
    folder = bench.work / "eviction"
    with bench.store(folder, **budgets) as store:
        turns = bench.loaded.turns

        def work() -> None:
            while asked and step.left_s() > 2:
                with lock:
                    number = asked.pop() if asked else 0
                try:
                    engine = PrefillEngine(bench.shape, store, Tier.DEVICE)
                    began = time.perf_counter()
                    cache = KvBuffer(bench.loaded.model, bench.loaded.block, len(kept[number].ids) + 1)
                    engine(kept[number], cache, turns)
                    done.append(time.perf_counter() - began)
                    if not torch.equal(_logits(cache), cold[number]):
                        wrong.append(f"prompt {number} differs")
                except Exception as error:  # noqa: BLE001 - reported with the step
                    wrong.append(f"{type(error).__name__}: {error}")
                for tier in store.stats().tiers:
                    if tier.size_bytes > tier.budget_bytes:
                        wrong.append(f"{tier.tier} holds {tier.size_bytes} of {tier.budget_bytes} bytes")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.settle()
        stats = store.stats()
        removed = store.drop(_CUBE)
        step.check("blocks are left after they were dropped", not store.blocks())
    for each in dict.fromkeys(wrong):
        step.check(each, False)
    shutil.rmtree(folder, ignore_errors=True)
    tiers = {each.tier: {"blocks": each.blocks, "hits": each.hits, "evictions": each.evictions} for each in stats.tiers}
    step.check("nothing was evicted", any(each.evictions for each in stats.tiers))
    return {
        "prompts": len(done),
        "left_unasked": len(asked),
        "median_s": _median(done),
        "tiers": tiers,
        "misses": stats.misses,
        "dropped_writes": stats.dropped_writes,
        "damaged": stats.damaged,
        "removed": removed,
    }


def full_gpu(step: Step, bench: Bench, tokens: int) -> dict[str, Any]:
    """Fill the GPU so that a prompt does not fit: its request fails and says so, and the next one is answered."""
    model = LocalModel(bench.loaded, ChatSettings(max_tokens=4))
    small, large = _request(0, bench.step_tokens), _request(1, tokens)
    before = _answer(model, small)
    torch.cuda.empty_cache()
    left = max(2**27, tokens * bench.token_bytes // 2)
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    refused = _answer(model, large)
    step.check(f"a prompt that does not fit: {refused.error!r}", isinstance(refused.error, BackendUnavailable))
    del ballast
    torch.cuda.empty_cache()
    after, again = _answer(model, small), _answer(model, large)
    step.check(f"after that a small prompt failed: {after.error}", after.error is None and after.text == before.text)
    step.check(f"after that the same prompt failed: {again.error}", again.error is None)
    model.close()
    return {"refused": str(refused.error)}


@dataclass(slots=True)
class _Answered:
    text: str = ""
    tokens: int = 0
    cached: int = 0
    seconds: float = 0.0
    first_s: float = 0.0
    error: BaseException | None = None


def _request(number: int, prefix: int) -> ChatRequest:
    """Return a request whose prefix, of about so many tokens, only requests of this number begin with."""
    sentence = f"Memory {number}: the harbour master keeps bees behind house {number * 7 + 3} by the lighthouse. "
    system = (sentence * (prefix // len(sentence) + 1))[:prefix]
    messages = (ChatMessage("system", system), ChatMessage("user", f"What is kept in house {number}?"))
    return ChatRequest(messages, prefix=Prefix(f"cube {number}", len(system)))


def _answer(model: LocalModel, request: ChatRequest) -> _Answered:
    found, began = _Answered(), time.perf_counter()
    pieces: list[str] = []
    try:
        for piece in model.stream(request):
            if isinstance(piece, ChatReply):
                continue
            if piece and not found.first_s:
                found.first_s = time.perf_counter() - began
            pieces.append(piece)
    except InvalidAnswer as cut_off:  # as always: the model never ends an answer itself
        found.tokens, found.cached = cut_off.tokens.completion, cut_off.tokens.cached
    except Exception as error:  # noqa: BLE001 - reported with the step
        found.error = error
    found.text, found.seconds = "".join(pieces), time.perf_counter() - began
    return found


def _together(model: LocalModel, requests: Sequence[ChatRequest]) -> list[_Answered]:
    found = [_Answered() for _ in requests]

    def work(number: int) -> None:
        found[number] = _answer(model, requests[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _logits(cache: KvBuffer) -> torch.Tensor:
    assert cache.logits is not None
    return cache.logits


def _equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other))  # type: ignore[arg-type]


def _distance(cold: KvBuffer, whole: KvBuffer) -> dict[str, Any]:
    one, other = (torch.log_softmax(_logits(each).double(), -1) for each in (whole, cold))
    return {
        "logit_difference": float(f"{float((_logits(cold) - _logits(whole)).abs().max()):.3g}"),
        "divergence": float(f"{float((one.exp() * (one - other)).sum()):.3g}"),
        "same_token": bool(one.argmax() == other.argmax()),
    }


def _median(times: Sequence[float]) -> float:
    return float(f"{statistics.median(times):.4g}") if times else 0.0


def _share(rate: float, limit: float | None) -> float | None:
    return round(rate / limit, 3) if limit else None
