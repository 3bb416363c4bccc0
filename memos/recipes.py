"""How an adapter is trained and from what, as its trainer sees it. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memos.ports import ChatMessage


@dataclass(frozen=True, slots=True)
class Recipe:
    """A LoRA adapter's shape and its training; the defaults are those of a first trial, not yet measured together.

    `layers` are those it is put on: the feed-forward part of each layer, or every linear one. `imitation` weighs the
    distance to the base model that reads the fact, over its `top` likeliest tokens, `replay` that to the base model
    itself on other prompts.
    """

    rank: int = 4
    alpha: int = 8
    layers: Literal["mlp", "all"] = "mlp"
    learning_rate: float = 2e-3
    epochs: int = 6
    batch: int = 16
    imitation: float = 0.5
    replay: float = 0.1
    top: int = 20
    seed: int = 5


@dataclass(frozen=True, slots=True)
class Exercise:
    """A prompt and the answer that is taught; with `shown` the base model given these imitates what it would say."""

    prompt: Sequence[ChatMessage]
    answer: str
    shown: Sequence[ChatMessage] = ()
    replayed: bool = False
