"""Whether a processor gains by bfloat16."""

from __future__ import annotations

from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")


def halves_pay() -> bool:
    """Say whether this processor multiplies matrices faster in bfloat16 than in float32.

    AMD's with AVX-512 BF16 are twice as fast, Intel's half as fast unless they have AMX (docs/log.md, "Two makers").
    """
    if not _multiplies_halves():
        return False
    try:
        told = _CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return True
    return "GenuineIntel" not in told or "amx_bf16" in told.split()


def _multiplies_halves() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
