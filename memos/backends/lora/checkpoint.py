"""The file in which a LoRA training keeps how far it is: written whole or not at all, read whole before it is used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from memos.core.lora import unwritten
from memos.errors import IntegrityError

Named = Sequence[tuple[str, nn.Parameter]]
Told = Sequence[tuple[torch.Tensor, torch.Tensor]]
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of a weight once it was moved; the count of steps stays on the processor."""
_TOLD = ("told.tokens", "told.chances")
_FACTORS = (0.01, 100.0)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a training was: its weights and what its optimiser knew of each, in the order of their names.

    `told` are the tokens and log-probabilities that its teacher told, of all exercises: computed again they differ in
    the last bits.
    """

    step: int
    rebalanced: tuple[float, ...]
    weights: tuple[torch.Tensor, ...]
    states: tuple[dict[str, torch.Tensor], ...]
    told: tuple[torch.Tensor, ...]

    def put(self, named: Named, optimiser: torch.optim.Optimizer, told: Told) -> None:
        """Have a training's weights, optimiser and teacher's words be as they were."""
        for mine, its in zip(zip(*told, strict=True), self.told, strict=True):
            for each, were in zip(mine, its.split(list(map(len, mine))), strict=True):
                each.copy_(were)
        for (_, weight), its, state in zip(named, self.weights, self.states, strict=True):
            with torch.no_grad():
                weight.copy_(its)
            if state:
                moved = {key: state[key].to(weight.device) for key in _MOMENTS[1:]}
                optimiser.state[weight] = {**state, **moved}


def write(
    file: Path, named: Named, optimiser: torch.optim.Optimizer, step: int, rebalanced: Sequence[float], told: Told
) -> None:
    """Write a training's state: whole or not at all. Raises: BackendUnavailable (a full disk)."""
    tensors: dict[str, Any] = {
        name: torch.cat(each) for name, each in zip(_TOLD, zip(*told, strict=True), strict=False)
    }
    for name, weight in named:
        tensors[f"weight.{name}"] = weight.detach()
        tensors |= {f"{key}.{name}": value for key, value in optimiser.state[weight].items()}
    metadata = {"step": str(step), "rebalanced": " ".join(map(str, rebalanced))}
    aside = file.with_name(file.name + ".new")
    with writing(aside):
        save_file(tensors, aside, metadata=metadata)
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(file)


def read(file: Path, named: Named, told: Told, vocabulary: int) -> Checkpoint:
    """Return what was kept of a training with these weights, of whose exercises a teacher told as much.

    Its tokens are below `vocabulary`. Raises: IntegrityError (damaged, of another training).
    """
    try:
        with safe_open(file, "pt") as kept:
            metadata = kept.metadata()
            step = int(metadata["step"])
            rebalanced = tuple(float(each) for each in metadata.get("rebalanced", "").split())
            words = tuple(kept.get_tensor(name) for name in _TOLD) if told else ()
            weights = tuple(kept.get_tensor(f"weight.{name}") for name, _ in named)
            moments = _MOMENTS if step else ()
            states = tuple({key: kept.get_tensor(f"{key}.{name}") for key in moments} for name, _ in named)
        for (_, mine), its, state in zip(named, weights, states, strict=True):
            moved = [state[key] for key in moments[1:]]
            if any(mine.shape != each.shape or not each.isfinite().all() for each in (its, *moved)):
                raise ValueError
        for mine, its in zip(zip(*told, strict=True), words, strict=True):
            if torch.cat(mine).shape != its.shape or mine[0].dtype != its.dtype or not its.isfinite().all():
                raise ValueError
        if words and not (0 <= words[0].min() <= words[0].max() < vocabulary and words[1].max() <= 0):
            raise ValueError
        if step < 0 or not all(_FACTORS[0] <= each <= _FACTORS[1] for each in rebalanced):  # nor is any nan
            raise ValueError
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise damaged(file, type(error).__name__) from error
    return Checkpoint(step, rebalanced, weights, states, words)


def damaged(file: Path, why: str) -> IntegrityError:
    """Return the error that says so."""
    return IntegrityError(f"{file} is damaged, or of another training ({why}).")


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Write a file, of which nothing stays where that fails. Raises: BackendUnavailable."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        raise unwritten(error) from error
