"""What an adapter is taught, as its trainer sees it, and what is lent to a model. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memos.core.kv_cache import Fill
from memos.core.ports import ChatMessage

ADAPTER_FILE = "adapter_model.safetensors"
"""Where peft, and who reads its folders, has an adapter's weights."""


@dataclass(frozen=True, slots=True)
class Exercise:
    """A prompt and the answer that is taught; with `shown` the base model given these is imitated, too.

    What is `replayed` is what the base model says itself; without a prompt it is plain text. What is taught in one of
    `every` epochs alone takes turns with its like, so that more that differs is seen in the same time.
    """

    prompt: Sequence[ChatMessage]
    answer: str
    shown: Sequence[ChatMessage] = ()
    replayed: bool = False
    every: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a training will take from now on, by a trial of one step: seconds without its examination, and memory."""

    steps: int
    seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class LentAdapter:
    """An adapter that may answer now: its folder with peft's files, and the SHA-256 of its weights, in hexadecimal."""

    id: str
    folder: Path
    digest: str


class Lending(Protocol):
    """Says which adapter answers for a cube, and keeps the KV that is made under it apart."""

    def serving(self, cube: str, base: str, about: Sequence[str]) -> LentAdapter | None:
        """Return the adapter of a cube that may answer now on the model with this digest, and knows these memories."""
        ...

    def fill(self, adapter: LentAdapter) -> Fill | None:
        """Return what fills prompts under an adapter, None where nothing is kept."""
        ...
