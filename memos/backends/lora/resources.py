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

_CPUINFO = Path("/proc/cpuinfo")


def bfloat16_pays() -> bool:
    """Return True if this processor multiplies matrices faster in bfloat16 than in float32."""
    # AMD's with AVX-512 BF16 are twice as fast, Intel's half as fast unless they have AMX
    # (docs/reference/benchmarks/parametric.md, "Two makers").
    if not _multiplies_bfloat16():
        return False
    try:
        cpu = _CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return True
    return "GenuineIntel" not in cpu or "amx_bf16" in cpu.split()


def _multiplies_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_FLOAT32_BYTES, _BFLOAT16_BYTES = 4, 2
_MARGIN = 1.3
_LIBRARIES_BYTES = 1 << 29
# A prompt with a question and three memories, and its answer.
_TOKENS = 100
_MEMINFO = Path("/proc/meminfo")
# This process's control group; https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
_CGROUP = Path("/sys/fs/cgroup")


def check_memory(name: str, recipe: LoraRecipe) -> None:
    if torch.cuda.is_available():  # the weights go there, and PyTorch reports when it is full
        return
    needed, free = needed_bytes(name, recipe), _free_bytes()
    if needed > free:
        raise BackendUnavailable(
            f"An adapter for {name} takes about {needed / 2**30:.1f} GiB of memory to train, and "
            f"{free / 2**30:.1f} GiB are free: end other programs, or use a smaller model."
        )


def needed_bytes(name: str, recipe: LoraRecipe) -> int:
    """Estimate the memory that a training takes; 0 if the model's files cannot be read, which loading reports."""
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True).get_text_config()
        parameters = sum(map(_parameters, weight_files(name)))
        layers, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError):
        return 0
    intermediate = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    # Activations of a layer per token, kept for the backward pass: the peak of SmolLM2-135M was 4.1 GiB with an adapter
    # on the feed-forward layers and 4.7 with one on all linear layers; this estimates 4.6.
    activations = (15 * hidden + 7 * intermediate) * _FLOAT32_BYTES
    # With gradient checkpointing only one layer's are kept at a time, and the hidden states between layers.
    if recipe.checkpointing:
        activations += layers * hidden * _FLOAT32_BYTES
    else:
        activations *= layers
    # Matrices are also kept in bfloat16; their share of the parameters is unknown here, so all are counted.
    converted = parameters * _BFLOAT16_BYTES if recipe.half and bfloat16_pays() else 0
    weights = int(parameters * _FLOAT32_BYTES * _MARGIN)
    return _LIBRARIES_BYTES + weights + converted + recipe.batch * _TOKENS * activations


def _parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // _FLOAT32_BYTES
    with safe_open(file, "np") as weights:
        return sum(int(math.prod(weights.get_slice(key).get_shape())) for key in weights.keys())  # noqa: SIM118


def _free_bytes() -> int:
    meminfo = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines())
        # The page cache, which the kernel frees on demand.
        cached = int(stat["inactive_file"]) + int(stat["active_file"])
    except (OSError, ValueError, KeyError):  # no control group, or no limit: "max"
        return free
    return min(free, max(0, limit - used + cached))
