"""What else could be done with kept KV, measured and not offered as exact: 8 bits, other places, trained prefixes.

Each compares the distribution of the next token with that of the whole prompt computed in one go: how often both have
the same likeliest token, and the divergence (Kullback-Leibler, in nats).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.dialogues import Dialogues
from benchmarks.report import progress
from memos.core.kv_cache import BLOCK_TOKENS
from memos.memcube.activation import blocks as compact

_BEFORE, _MOVED, _QUERY = 128, 256, 32
_VIRTUAL = 64
_STEPS, _RATE = 200, 1e-3
_TAUGHT = ("What is {0}'s {1}? It is", "The {1} of {0} is", "{0} has this {1}:", "Question: {1} of {0}? Answer:")
_ASKED = ("Do you know {0}'s {1}? Yes:", "About {0}: the {1} is")
FACTS = (
    ("Ana", "city", "Lyon"), ("Ben", "pet", "parrot"), ("Carla", "job", "baker"), ("Dario", "car", "red van"),
    ("Elif", "instrument", "cello"), ("Farid", "drink", "mint tea"), ("Greta", "sport", "rowing"),
    ("Hugo", "color", "green"),
)  # fmt: skip
"""Who, what of theirs, and what it is."""


class _Compared:
    """How near one distribution is to another, over many prompts."""

    def __init__(self) -> None:
        self._same: list[bool] = []
        self._divergence: list[float] = []

    def take(self, exact: Any, other: Any) -> None:
        """Compare the logits of two next tokens."""
        wanted, found = exact.log_softmax(-1), other.log_softmax(-1)
        self._same.append(int(exact.argmax()) == int(other.argmax()))
        self._divergence.append(float((wanted.exp() * (wanted - found)).sum()))

    def figures(self) -> dict[str, float]:
        """Return the share of the same tokens, and the mean and the largest divergence."""
        return {
            "same_token": round(float(np.mean(self._same)), 3),
            "divergence_mean": float(f"{np.mean(self._divergence):.3g}"),
            "divergence_max": float(f"{np.max(self._divergence):.3g}"),
        }


def eight_bits(bench: Any, prompts: int, seed: int) -> dict[str, Any]:
    """Return how near a prompt is whose kept part was in 8 bits, and the bytes of a file against exact ones."""
    compared, size = _Compared(), 0.0
    for stable, query in progress(list(_texts(bench, prompts, seed, _MOVED)), "8 bits"):
        exact, other = bench.cache(len(stable) + _QUERY), bench.cache(len(stable) + _QUERY)
        exact.compute(stable)
        blocks = [exact.take(place) for place in range(len(stable) // BLOCK_TOKENS)]
        packed = [compact.packed(compact.to_float(block, bench.shape.dtype)) for block in blocks]
        other.put([compact.from_float(compact.unpacked(*each), bench.shape.dtype) for each in packed])
        size = sum(whole.nbytes + scales.nbytes for whole, scales in packed) / sum(block.nbytes for block in blocks)
        for cache in (exact, other):
            cache.compute(query)
        compared.take(exact.logits, other.logits)
    return compared.figures() | {"bytes_of_exact": round(size, 3)}


def elsewhere(bench: Any, prompts: int, seed: int) -> dict[str, Any]:
    """Return how near blocks are that were computed at a prompt's beginning and are put behind another beginning.

    `moved`: keys turned to their new places. Source: Gim et al., Prompt Cache: Modular Attention Reuse, MLSys 2024, and
    Su et al., RoFormer, 2021 (equation 34) for turning. `as_they_are`: keys left as they were. `left_out`: without the
    blocks, to see what they matter.
    """
    kinds = {name: _Compared() for name in ("moved", "as_they_are", "left_out")}
    for text, query in progress(list(_texts(bench, prompts, seed, _BEFORE + _MOVED)), "other places"):
        before, moved = text[:_BEFORE], text[_BEFORE:]
        exact, alone = bench.cache(len(text) + _QUERY), bench.cache(len(moved))
        exact.compute(text)
        exact.compute(query)
        alone.compute(moved)
        blocks = [alone.take(place) for place in range(len(moved) // BLOCK_TOKENS)]
        for name, compared in kinds.items():
            cache = bench.cache(len(text) + _QUERY)
            cache.compute(before)
            if name != "left_out":
                cache.put([_turned(bench, block, _BEFORE) if name == "moved" else block for block in blocks])
            cache.compute(query)
            compared.take(exact.logits, cache.logits)
    return {name: compared.figures() for name, compared in kinds.items()}


def trained(bench: Any, _: int, seed: int) -> dict[str, Any]:
    """Return how near 64 trained positions come to a text of facts, asked in words that were not trained on.

    Source: Eyuboglu et al., Cartridges: Lightweight and general-purpose long context representations via self-study,
    2025; peft's `CartridgeConfig`. Begun with the KV of the text's first tokens; the text's own answers are the goal.
    """
    import torch  # noqa: PLC0415 - the extra `local`
    from peft import CartridgeConfig, get_peft_model  # noqa: PLC0415 - the extra `local`
    from peft.tuners.cartridge.utils import initialize_kv_prefix_from_past_key_values  # noqa: PLC0415
    from transformers.cache_utils import DynamicCache  # noqa: PLC0415

    base, tokenizer = bench.loaded.model, bench.loaded.tokenizer
    text = list(tokenizer(_known(), add_special_tokens=False)["input_ids"])

    def asked(form: str, fact: tuple[str, str, str], *, answered: bool) -> list[int]:
        said = form.format(*fact[:2]) + (f" {fact[2]}." if answered else "")
        return list(tokenizer(said, add_special_tokens=False)["input_ids"])

    def wanted(query: list[int]) -> Any:
        with torch.inference_mode():
            told = base(input_ids=torch.tensor([[*text, *query]])).logits[0, -len(query) :]
        return told.float().clone()

    lessons = [asked(form, fact, answered=True) for form in _TAUGHT for fact in FACTS]
    questions = [asked(form, fact, answered=False) for form in _ASKED for fact in FACTS]
    goals, aims = [wanted(each) for each in lessons], [wanted(each)[-1] for each in questions]
    cache = DynamicCache()
    with torch.inference_mode():
        base(input_ids=torch.tensor([text]), past_key_values=cache, use_cache=True)
    model = get_peft_model(base, CartridgeConfig(task_type="CAUSAL_LM", num_virtual_tokens=_VIRTUAL))
    initialize_kv_prefix_from_past_key_values(model, past_key_values=cache)
    before = _judged(model, questions, aims)
    optimiser = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=_RATE)
    order = np.random.default_rng(seed).integers(0, len(lessons), _STEPS)
    began = time.perf_counter()
    for place in progress(order.tolist(), "training"):
        query, goal = lessons[place], goals[place].log_softmax(-1)
        told = model(input_ids=torch.tensor([query])).logits[0, -len(query) :].float().log_softmax(-1)
        loss = (goal.exp() * (goal - told)).sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = time.perf_counter() - began
    after = _judged(model, questions, aims)
    return {
        "tokens": {"text": len(text), "trained": _VIRTUAL}, "steps": _STEPS, "seconds": round(seconds, 1),
        "before": before, "after": after,
    }  # fmt: skip


def _known() -> str:
    """Return the facts as a text, told twice."""
    told = "{0} has this {1}: {2}. The {1} of {0} is {2}."
    return "\n".join(told.format(*fact) for fact in FACTS)


def _judged(model: Any, questions: Sequence[list[int]], aims: Sequence[Any]) -> dict[str, float]:
    import torch  # noqa: PLC0415 - the extra `local`

    compared = _Compared()
    for question, aim in zip(questions, aims, strict=True):
        with torch.inference_mode():
            told = model(input_ids=torch.tensor([question])).logits[0, -1].float()
        compared.take(aim, told)
    return compared.figures()


def _texts(bench: Any, count: int, seed: int, tokens: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield so many beginnings of so many tokens of talk, each with a question of 32 tokens behind it."""
    dialogues, tokenizer = Dialogues(seed), bench.loaded.tokenizer
    said = " ".join(str(message["content"]) for message in dialogues.messages(40 * count))
    ids = tokenizer(said, add_special_tokens=False)["input_ids"]
    step = tokens + _QUERY
    for place in range(count):
        part = ids[place * step % (len(ids) - step) :][:step]
        yield part[:tokens], part[tokens:]


def _turned(bench: Any, block: Any, by: int) -> Any:
    """Return a block whose keys stand so many places further back."""
    import torch  # noqa: PLC0415 - the extra `local`

    keys = torch.from_numpy(compact.to_float(block[0], bench.shape.dtype))
    angles = by * bench.loaded.model.model.rotary_emb.inv_freq.float()
    cos, sin = (torch.cat([part, part]) for part in (angles.cos(), angles.sin()))
    first, second = keys.chunk(2, dim=-1)
    turned = keys * cos + torch.cat([-second, first], dim=-1) * sin
    both = np.stack([turned.numpy(), compact.to_float(block[1], bench.shape.dtype)])
    return compact.from_float(both, bench.shape.dtype)
