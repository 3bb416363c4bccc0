"""Steps on a whole installation: prefixes, chats, and an adapter that is trained, swapped and forgotten."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_check.steps import Skip, Step
from memos import MemOS, Settings
from memos.backends.local.kv_buffer import KvBuffer
from memos.backends.local.loading import load
from memos.core.lora import ActiveAdapter, LoraRecipe
from memos.core.settings import ChatSettings, IndexSettings, LimitSettings, ParametricSettings
from memos.core.types import Fingerprint
from memos.errors import InvalidAnswer
from memos.memcube.parametric import data as course
from memos.memcube.parametric import training
from memos.memcube.parametric.training import Bounds

_TOLD = (
    "I live in Lyon.",
    "My phone is a Pixel 9.",
    "My favourite colour is teal.",
    "I love hiking.",
    "My dog is called Biscuit.",
    "My favourite food is ramen.",
    "I work as a nurse.",
    "I like chess.",
)
_ANY = Bounds(recall=0, abstention=0, perplexity=1e9, lost=50)
"""Random weights learn nothing worth knowing, so whatever comes out passes; the examination runs all the same."""

_WAIT_S = 120


class _Words:
    """An embedder of hashed words, for an installation that has none of the models."""

    fingerprint = Fingerprint("gpu-check words", 64, "none", normalised=True)
    max_tokens = 256

    def embed_documents(self, texts: Sequence[str]) -> Any:
        vectors = np.zeros((len(texts), 64), dtype=np.float32)
        for place, text in enumerate(texts):
            for word in re.findall(r"\w+", text.casefold()) or [""]:
                vectors[place, hashlib.blake2b(word.encode(), digest_size=8).digest()[0] % 64] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_query(self, text: str) -> Any:
        return self.embed_documents([text])[0]

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        words = list(re.finditer(r"\S+", text))
        return [(words[at].start(), words[at : at + max_tokens][-1].end()) for at in range(0, len(words), max_tokens)]


@dataclass(frozen=True)
class Home:
    """An installation, and the folder of the model that answers in it."""

    folder: Path
    model: Path
    tiny: bool

    @contextmanager
    def open(self, *, chats: bool) -> Iterator[MemOS]:
        """Open the installation, with the model or without."""
        settings = Settings(
            index=IndexSettings(wait_s=30),
            limits=LimitSettings(min_free_bytes=1_000_000),
            parametric=ParametricSettings(stable_days=0),
        )
        if chats:
            chat = ChatSettings(model=f"local:{self.model}", max_tokens=40)
            settings = settings.model_copy(update={"chat_model": chat})
        with MemOS.open(self.folder, settings=settings, embedder=_Words()) as memos:
            recipe = LoraRecipe(epochs=1, batch=8, checkpointing=True) if self.tiny else LoraRecipe(epochs=4)
            trained = replace(memos.adapters.training, bounds=_ANY, recipe=recipe)
            memos.adapters = replace(memos.adapters, training=trained)
            yield memos


def prefixes(step: Step, home: Home) -> dict[str, Any]:
    """Pin memories, compute their KV, and answer with it: the product as its users call it."""
    with home.open(chats=False) as memos:
        for text in _TOLD:
            memos.add(text, mode="fine")
        memos.tasks.wait(timeout_s=_WAIT_S)
        found = memos.memories.list(filter={"type": {"in": ["user", "preference"]}}, limit=100)
        for item in found:
            memos.tiers.pin(item.id)
        step.check("no facts were read", bool(found))
    with home.open(chats=True) as memos:
        memos.tasks.wait(memos.kv.compose(), timeout_s=_WAIT_S)
        opening = time.perf_counter()
        warmed = memos.kv.warm()
        loaded_s = time.perf_counter() - opening
        measured = memos.kv.measure()
        asked = _asked(memos)
        step.check("a chat reused nothing", asked.activation.cached_tokens > 0)
        receipt, erase_s = _timed(lambda: memos.erase(found[-1].id))
        step.check("KV is left after an erasure", sum(memos.kv.show().blocks.values()) == 0)
        return {
            "facts": len(found),
            "prefix_tokens": warmed.tokens,
            "load_and_warm_s": round(loaded_s, 3),
            "first_token_without_s": round(measured.without_s, 4),
            "first_token_with_s": round(measured.with_s, 4),
            "cached_tokens": asked.activation.cached_tokens,
            "tier": asked.activation.tier,
            "erase_s": round(erase_s, 3),
            "erased": str(receipt.state),
        }


def adapters(step: Step, home: Home) -> dict[str, Any]:
    """Train an adapter in its process, examine and use it, and take it out of service by forgetting a fact."""
    with _short_course(tiny=home.tiny), home.open(chats=True) as memos:
        memos.adapters.allow()
        began = time.perf_counter()
        at: dict[str, float] = {}
        steps = 0

        def progress(done: int, total: int) -> None:
            nonlocal steps
            at.setdefault("first", time.perf_counter() - began)
            at["last"], steps = time.perf_counter() - began, total
            if step.left_s() < 0:
                raise Skip("the budget of the step was spent during the training")

        adapter = memos.adapters.train(on_progress=progress)
        took = time.perf_counter() - began
        step.check(f"the adapter is {adapter.state}: {adapter.reason}", adapter.state == "active")
        asked = _asked(memos)
        step.check("the adapter did not answer", asked.adapter == adapter.id)
        exported = home.folder.parent / "exported"
        memos.adapters.export(adapter.id, exported)
        fact = memos.memories.list(filter={"type": {"in": ["user", "preference"]}}, limit=1)[0]
        forgotten, forget_s = _timed(lambda: memos.adapters.forget(fact.id))
        step.check("forgetting removed no adapter", adapter.id in forgotten.adapters)
        step.check("it still answers", _asked(memos).adapter is None)
        files = [path for path in (home.folder / "adapters").rglob("*") if path.is_file()]
        step.check(f"{len(files)} files are left", not files)
        return {
            "facts": adapter.facts,
            "steps": steps,
            "load_and_teacher_s": round(at.get("first", 0.0), 2),
            "training_s": round(at.get("last", 0.0) - at.get("first", 0.0), 2),
            "examination_s": round(took - at.get("last", took), 2),
            "in_all_s": round(took, 2),
            "size_bytes": adapter.size_bytes,
            "measures": dict(adapter.measures or {}),
            "forget_s": round(forget_s, 3),
        }


def swaps(step: Step, home: Home) -> dict[str, Any]:
    """Switch between the model, an adapter and a second one: the times, and the same bits as before without one."""
    exported = home.folder.parent / "exported"
    if not exported.exists():
        raise Skip("no adapter was trained")
    second = home.folder.parent / "second"
    shutil.copytree(exported, second)
    digest = hashlib.sha256((exported / "adapter_model.safetensors").read_bytes()).hexdigest()
    first, other = ActiveAdapter("first", exported, digest), ActiveAdapter("second", second, digest)
    loaded = load(str(home.model))
    prompt = list(range(2, 98))

    def logits() -> torch.Tensor:
        cache = KvBuffer(loaded.model, loaded.block, len(prompt))
        cache.compute(prompt)
        assert cache.logits is not None
        return cache.logits

    def used(adapter: ActiveAdapter | None) -> float:
        _synchronize(loaded.model)
        began = time.perf_counter()
        loaded.adapters.use(adapter)
        _synchronize(loaded.model)
        return time.perf_counter() - began

    base = logits()
    times = {"first_load_s": used(first)}
    adapted = logits()
    times |= {"second_load_s": used(other), "swap_s": used(first), "off_s": used(None)}
    step.check("without an adapter the bits are others than before", torch.equal(base, logits()))
    times["on_s"] = used(first)
    step.check("with the adapter the bits are others than before", torch.equal(adapted, logits()))
    step.check("the adapter changes nothing", not torch.equal(base, adapted))
    loaded.adapters.keep_only(lambda _: False)
    step.check("after unloading the bits are others", torch.equal(base, logits()))
    return {name: round(seconds, 5) for name, seconds in times.items()}


def checkpoints(step: Step, home: Home) -> dict[str, Any]:
    """Interrupt a training and go on from its checkpoint: the weights are those of a training without a break."""
    from memos.backends.lora.training import LoraTraining  # noqa: PLC0415 - torch beside it
    from memos.core.lora import TrainingExample  # noqa: PLC0415
    from memos.core.ports import ChatMessage  # noqa: PLC0415

    examples = [
        TrainingExample((ChatMessage("user", f"What is in house {number}?"),), f"Bees and {number} lamps.")
        for number in range(8)
    ]
    recipe = LoraRecipe(rank=4, alpha=8, epochs=1, batch=2, checkpointing=True)  # as always on a GPU
    file = home.folder.parent / "checkpoint.safetensors"
    loaded = load(str(home.model))
    trainer = LoraTraining(loaded, recipe)
    trainer.prepare(examples)
    trainer.advance(2)
    trainer.save_checkpoint(file)
    losses, step_s = [], []
    while trainer.step < trainer.steps:
        began = time.perf_counter()
        losses.append(trainer.advance(1))
        step_s.append(time.perf_counter() - began)
    whole = [each.detach().clone() for each in trainer.weights]
    trainer.detach()
    resumed = LoraTraining(loaded, recipe)
    resumed.prepare(examples)
    resumed.resume(file)
    step.check(f"it went on at step {resumed.step}", resumed.step == 2)
    again = [resumed.advance(1) for _ in range(resumed.steps - resumed.step)]
    difference = max(
        float((one - other.detach()).abs().max()) for one, other in zip(whole, resumed.weights, strict=True)
    )
    resumed.detach()
    step.check(f"losses differ: {losses}, {again}", bool(np.allclose(losses, again, rtol=0.02)))
    return {"step_s": round(min(step_s), 4), "losses": losses, "largest_weight_difference": difference}


def _asked(memos: MemOS) -> Any:
    """Ask until an answer comes to its end, as one of random weights does at some point."""
    for _ in range(60):
        try:
            return memos.chat("Where do I live?", store=False, temperature=1.0, max_tokens=40)
        except InvalidAnswer:
            continue
    raise RuntimeError("no answer came to its end")


@contextmanager
def _short_course(*, tiny: bool) -> Iterator[None]:
    """Replay and ask less where only the way counts."""
    if not tiny:
        yield
        return
    usual = course.QUESTIONS, course.PROSE, course.TEXT, training._LEAST_REPLAYED
    course.QUESTIONS, course.PROSE, course.TEXT = usual[0][:2], usual[1][:1], usual[2][:1]
    training._LEAST_REPLAYED = 2
    try:
        yield
    finally:
        course.QUESTIONS, course.PROSE, course.TEXT, training._LEAST_REPLAYED = usual


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _synchronize(model: Any) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()
