"""Values and files of LoRA adapters: recipes, training examples, the manifest and its checks.

The ledger holds the digest of the weights, the manifest beside them that of the configuration; both change answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from memos.core.kv_cache import Fill
from memos.core.ports import ChatMessage
from memos.core.types import Json
from memos.errors import BackendUnavailable, IntegrityError, shown


@dataclass(frozen=True, slots=True)
class LoraRecipe:
    """A LoRA adapter's shape and training.

    SmolLM2-135M passes with the defaults (docs/reference/benchmarks/parametric.md).
    """

    # `epochs` are those of a course of 16 facts; a larger one has fewer, a smaller one more. `replay` weighs the
    # distance to the base model itself on other prompts, over its `top` likeliest tokens. With `checkpointing`, as
    # always on a GPU, what layers keep for their gradients is computed a second time instead: slower, in a fraction of
    # the memory. With `half`, matrices are multiplied in bfloat16 where the processor is faster at that than at
    # float32; what is trained stays float32.

    rank: int = 16
    alpha: int = 32
    learning_rate: float = 1e-3
    epochs: int = 10
    batch: int = 16
    replay: float = 3.0
    top: int = 20
    checkpointing: bool = False
    half: bool = True
    seed: int = 5


GIVEN_UP: Mapping[str, Json] = {"layers": "all", "rate_ratio": 1.0, "imitation": 0.0}
"""Recipe options removed after version 0.1, stored with each recipe as before."""

# Beyond these no adapter is trained, or brought along by a file: rank and steps decide what memory and time it takes.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "rank": (1, 256), "alpha": (1, 2048), "learning_rate": (1e-7, 1.0), "epochs": (1, 1000), "batch": (1, 1024),
    "replay": (0, 100), "top": (1, 1000), "seed": (0, 2**63 - 1),
}  # fmt: skip


STABLE_DAYS = "stable_days"
"""Days for which a memory must be unchanged to be trained on: set with a recipe, and no part of one that is stored."""
_MOST_DAYS = 3650


def recipe_with(told: Mapping[str, object]) -> LoraRecipe:
    """Return the default recipe with changed fields; `alpha` follows `rank`."""
    usual = asdict(LoraRecipe())
    days = told.get(STABLE_DAYS, 0)
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= _MOST_DAYS:
        raise ValueError(f"{STABLE_DAYS} must be a number of days from 0 to {_MOST_DAYS:,}, not {shown(days)}")
    told = {name: value for name, value in told.items() if name != STABLE_DAYS}
    for name, value in GIVEN_UP.items():
        if told.get(name, value) != value:
            raise ValueError(f"{name} is always {value} since version 0.2; leave it out")
    told = {name: value for name, value in told.items() if name not in GIVEN_UP}
    for name, value in told.items():
        if name not in usual:
            raise ValueError(f"{shown(name)} is not part of a recipe; known are {', '.join(usual)}")
        kind = type(usual[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ValueError(f"{name} must be of type {kind.__name__}, not {shown(value)}")
        least, most = _BOUNDS.get(name, (0, 0))
        if name in _BOUNDS and not (isinstance(value, int | float) and least <= value <= most):
            raise ValueError(f"{name} must be from {least:,} to {most:,}, not {shown(value)}")
    if type(rank := told.get("rank")) is int and "alpha" not in told:
        told = {**told, "alpha": 2 * rank}
    return replace(LoraRecipe(), **told)  # type: ignore[arg-type]  # checked above, name by name


def told_recipe(recipe: LoraRecipe) -> dict[str, Json]:
    return {**asdict(recipe), **GIVEN_UP}


ADAPTER_FILE = "adapter_model.safetensors"
"""Where peft, and who reads its folders, has an adapter's weights."""


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and the answer that is taught."""

    # What is `replayed` is what the base model says itself; without a prompt it is plain text. What is taught in one of
    # `every` epochs alone takes turns with its like, so that more that differs is seen in the same time.

    prompt: Sequence[ChatMessage]
    answer: str
    replayed: bool = False
    every: int = 1


@dataclass(frozen=True, slots=True)
class ActiveAdapter:
    """An adapter that may answer now: its folder with peft's files, and the SHA-256 of its weights, in hex."""

    id: str
    folder: Path
    digest: str


class Lending(Protocol):
    """Finds the adapter that answers for a cube, and keeps KV made under it apart."""

    def serving(self, cube: str, base: str) -> ActiveAdapter | None:
        """Return the adapter of a cube that may answer now on the model with this digest."""

    def fill(self, adapter: ActiveAdapter) -> Fill | None:
        """Return the prefill for prompts under an adapter, None if no KV is cached."""


CONFIG = "adapter_config.json"
MANIFEST = "manifest.json"
CARD = "README.md"
FILES = (CONFIG, ADAPTER_FILE, MANIFEST)
"""The files without which an adapter cannot answer."""

_MOST_BYTES = 16 << 20
"""Of a manifest: some 150 bytes for each memory."""


def digests(folder: Path) -> dict[str, str]:
    """Return the digests (SHA-256, hex) that a manifest lists."""
    return {"weights_sha256": _digest_of(folder / ADAPTER_FILE), "config_sha256": _digest_of(folder / CONFIG)}


def manifest_in(folder: Path) -> dict[str, Json]:
    with (folder / MANIFEST).open("rb") as file:
        told = json.loads(file.read(_MOST_BYTES))
    if not isinstance(told, dict):
        raise ValueError(MANIFEST)
    return told


def check(folder: Path, digest: str | None) -> None:
    if (wrong := wrong_with(folder, digest)) is not None:
        raise IntegrityError(f"The adapter in {folder} cannot be used: {wrong}.")


def wrong_with(folder: Path, digest: str | None) -> str | None:
    """Return what is wrong with an adapter's files, or None."""
    try:
        for name in FILES:
            if not (folder / name).is_file():
                return f"{name} is missing"
        found = digests(folder)
        told = manifest_in(folder)
    except OSError as error:
        return f"its files cannot be read ({error.strerror or type(error).__name__})"
    except (ValueError, RecursionError):
        return f"{MANIFEST} was changed"
    if found["weights_sha256"] != digest:
        return f"{ADAPTER_FILE} was changed since its evaluation"
    if told.get("config_sha256") != found["config_sha256"]:
        return f"{CONFIG} was changed since its evaluation"
    return None


def card_of(manifest: Mapping[str, Json]) -> str:
    """Return a model card for an exported adapter, with its manifest."""
    told, model = json.dumps(manifest, indent=1, ensure_ascii=False), str(manifest.get("model", ""))
    # A name of the hub is what a card links; of a folder here only the last part says something elsewhere.
    base = Path(model).name if Path(model).is_absolute() else model
    head = f"base_model: {json.dumps(base)}\n" if base else ""
    return (
        f"---\n{head}library_name: peft\n---\n\n# Adapter of a memory cube\n\nIt knows memories of people: treat it as "
        "you treat them. It was trained on questions about the memories that are named below by id, and answers best "
        f"together with what is looked up. Made by hippocube.\n\n```json\n{told}\n```\n"
    )


def unwritten(why: object) -> BackendUnavailable:
    return BackendUnavailable(
        f"The adapter could not be written ({why}); free some disk space and train again, which resumes from the last "
        "checkpoint."
    )


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
