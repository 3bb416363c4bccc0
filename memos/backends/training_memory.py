"""Whether there is memory to train an adapter on the CPU: asked before a model is loaded, not found out by its end."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from memos.backends.local_loading import weight_files
from memos.errors import BackendUnavailable
from memos.recipes import Recipe

_FLOAT = 4
_MARGIN = 1.3
_LIBRARIES = 1 << 29
# A question with three memories in its prompt, and the answer.
_TOKENS = 100
_MEMINFO = Path("/proc/meminfo")


def check_memory(name: str, recipe: Recipe) -> None:
    """Refuse a model whose training does not fit in what is free. Raises: BackendUnavailable."""
    if torch.cuda.is_available():  # the weights go to the GPU, which says by itself that it is full
        return
    needed, free = needed_bytes(name, recipe), _free_bytes()
    if needed > free:
        raise BackendUnavailable(
            f"An adapter for {name} takes about {needed / 2**30:.1f} GiB of memory to train, and "
            f"{free / 2**30:.1f} GiB are free: end other programs, or use a smaller model."
        )


def needed_bytes(name: str, recipe: Recipe) -> int:
    """Return about how much memory a training takes, 0 where that cannot be seen: loading then says what is wrong."""
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True).get_text_config()
        parameters = sum(map(_parameters, weight_files(name)))
        layers, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError):
        return 0
    wide = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    # What a layer keeps of each token until its gradients are made: SmolLM2-135M took 4.1 GiB at most with an adapter
    # on its feed-forward parts and 4.7 with one on all layers; by this it is 4.6.
    kept = layers * (15 * hidden + 7 * wide) * _FLOAT
    return _LIBRARIES + int(parameters * _FLOAT * _MARGIN) + recipe.batch * _TOKENS * kept


def _parameters(file: Path) -> int:
    """Return how many numbers a file of weights has."""
    if file.suffix != ".safetensors":
        return file.stat().st_size // _FLOAT
    with safe_open(file, "np") as weights:
        return sum(int(math.prod(weights.get_slice(key).get_shape())) for key in weights.keys())  # noqa: SIM118


def _free_bytes() -> int:
    told = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
    return int(told["MemAvailable"].split()[0]) * 1024
