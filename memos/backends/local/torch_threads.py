"""The wait policy of PyTorch's threads; importable without PyTorch."""

from __future__ import annotations

import os

# Some ten microseconds; on an idle machine this is as fast as the default.
_SPINS = "10000"


def let_threads_sleep() -> None:
    """Make PyTorch's idle threads sleep soon instead of spinning; call before importing it. OMP_WAIT_POLICY wins."""
    # Spinning made a step take three times as long during other work (docs/development/log.md).
    # Source: https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
