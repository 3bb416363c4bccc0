"""How PyTorch's threads wait for one another; is imported without it."""

from __future__ import annotations

import os

# Some ten microseconds; alone on a machine as quick as spinning on.
_SPINS = "10000"


def let_threads_sleep() -> None:
    """Have PyTorch's threads soon sleep while they wait for one another, unless it is told otherwise or loaded already.

    They spin for milliseconds otherwise: beside other work a step took three times as long (docs/log.md).
    Source: https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
