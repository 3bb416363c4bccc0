"""How an adapter is trained: its shape, and how much of what it is taught. Values only, and which of them are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from memos.errors import shown


@dataclass(frozen=True, slots=True)
class Recipe:
    """A LoRA adapter's shape and its training; with the defaults SmolLM2-135M passes (docs/benchmarks.md).

    `epochs` are those of a course of 16 facts; a larger one has fewer, a smaller one more. `layers` are those it is put
    on: the feed-forward part of each layer, or every linear one. `imitation` weighs the distance to the base model that
    reads the fact, over its `top` likeliest tokens: of use where that reads well, from some 1.5B parameters. `replay`
    weighs that to the base model itself on other prompts. The second matrix of each pair (B) has `rate_ratio` times the
    learning rate of the first. Source: Hayou, Ghosh and Yu, "LoRA+: Efficient Low Rank Adaptation of Large Models",
    ICML 2024, arXiv 2402.12354. With `checkpointing`, as always on a GPU, what layers keep
    for their gradients is computed a second time instead: slower, in a fraction of the memory. With `half`, matrices
    are multiplied in bfloat16 where the processor is faster at that than at float32; what is trained stays float32.
    """

    rank: int = 16
    alpha: int = 32
    layers: Literal["mlp", "all"] = "all"
    learning_rate: float = 1e-3
    rate_ratio: float = 1.0
    epochs: int = 10
    batch: int = 16
    imitation: float = 0.0
    replay: float = 3.0
    top: int = 20
    checkpointing: bool = False
    half: bool = True
    seed: int = 5


# Beyond these no adapter is trained, or brought along by a file: rank and steps decide what memory and time it takes.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "rank": (1, 256), "alpha": (1, 2048), "learning_rate": (1e-7, 1.0), "rate_ratio": (1e-3, 1e3), "epochs": (1, 1000),
    "batch": (1, 1024), "imitation": (0, 100), "replay": (0, 100), "top": (1, 1000), "seed": (0, 2**63 - 1),
}  # fmt: skip


def recipe_with(told: Mapping[str, object]) -> Recipe:
    """Return the usual recipe with what is told of it, by the names of its fields; `alpha` follows `rank`.

    Raises: ValueError naming one.
    """
    usual = asdict(Recipe())
    for name, value in told.items():
        if name not in usual:
            raise ValueError(f"{shown(name)} is nothing of a recipe: there are {', '.join(usual)}")
        kind = type(usual[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ValueError(f"{name} must be of the kind {kind.__name__}, not {shown(value)}")
        if name == "layers" and value not in ("mlp", "all"):
            raise ValueError(f"layers must be mlp or all, not {shown(value)}")
        least, most = _BOUNDS.get(name, (0, 0))
        if name in _BOUNDS and not (isinstance(value, int | float) and least <= value <= most):
            raise ValueError(f"{name} must be from {least:,} to {most:,}, not {shown(value)}")
    if type(rank := told.get("rank")) is int and "alpha" not in told:
        told = {**told, "alpha": 2 * rank}
    return replace(Recipe(), **told)  # type: ignore[arg-type]  # checked above, name by name


def taught_alike(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Say whether two recipes, by the names of their fields, differ in nothing but the seed, if in that."""
    return {**one, "seed": 0} == {**other, "seed": 0}


def next_seed(recipe: Recipe, refused: Mapping[str, object]) -> int:
    """Return the seed with which to train again what a recipe alike failed at: the next one, or what is told now."""
    return max(recipe.seed, (int(str(refused["seed"])) + 1) % 2**63)
