"""Check for enough memory to train an adapter on the CPU, before a model is loaded rather than when memory runs out."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from memos.backends.local.loading import weight_files
from memos.core.lora import LoraRecipe
from memos.errors import BackendUnavailable

# Whether a processor gains by bfloat16.

_CPUINFO = Path("/proc/cpuinfo")


def halves_pay() -> bool:
    """Return True if this processor multiplies matrices faster in bfloat16 than in float32."""
    # AMD's with AVX-512 BF16 are twice as fast, Intel's half as fast unless they have AMX (docs/log.md, "Two makers").
    if not _multiplies_halves():
        return False
    try:
        told = _CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return True
    return "GenuineIntel" not in told or "amx_bf16" in told.split()


def _multiplies_halves() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_FLOAT, _HALF = 4, 2
_MARGIN = 1.3
_LIBRARIES = 1 << 29
# A question with three memories in its prompt, and the answer.
_TOKENS = 100
_MEMINFO = Path("/proc/meminfo")
# Of this process's own group; https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
_GROUP = Path("/sys/fs/cgroup")


def check_memory(name: str, recipe: LoraRecipe) -> None:
    needed, free = needed_bytes(name, recipe), _free_bytes()
    # A GPU, to which the weights go then, says by itself that it is full.
    if needed > free and not torch.cuda.is_available():
        raise BackendUnavailable(
            f"An adapter for {name} takes about {needed / 2**30:.1f} GiB of memory to train, and "
            f"{free / 2**30:.1f} GiB are free: end other programs, or use a smaller model."
        )


def needed_bytes(name: str, recipe: LoraRecipe) -> int:
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
    kept = (15 * hidden + 7 * wide) * _FLOAT
    # Computed again, one layer's is kept at a time, and between layers what goes from one to the next.
    kept = kept + layers * hidden * _FLOAT if recipe.checkpointing else kept * layers
    # Matrices are also kept in bfloat16; their share of the parameters is unknown here, so all are counted.
    halves = parameters * _HALF if recipe.half and halves_pay() else 0
    return _LIBRARIES + int(parameters * _FLOAT * _MARGIN) + halves + recipe.batch * _TOKENS * kept


def _parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // _FLOAT
    with safe_open(file, "np") as weights:
        return sum(int(math.prod(weights.get_slice(key).get_shape())) for key in weights.keys())  # noqa: SIM118


def _free_bytes() -> int:
    told = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
    free = int(told["MemAvailable"].split()[0]) * 1024
    try:
        most, used = (int((_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        counted = dict(line.split() for line in (_GROUP / "memory.stat").read_text(encoding="ascii").splitlines())
        # Files that were read lately: what needs the memory gets it.
        cached = int(counted["inactive_file"]) + int(counted["active_file"])
    except (OSError, ValueError, KeyError):  # no such group, or no limit: "max"
        return free
    return min(free, max(0, most - used + cached))
