"""Says where a benchmark ran and what ran."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import memos

_ENGINES = ("numpy", "onnxruntime", "qdrant-edge-py", "sqlalchemy", "tokenizers")


def machine() -> dict[str, Any]:
    """Return the machine, the versions and the commit, `+changes` when the working tree is not that commit."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    commit = _git("rev-parse", "--short", "HEAD")
    changes = "+changes" if commit and _git("status", "--porcelain", "--", "memos", "benchmarks") else ""
    return {
        "machine": {
            "cpu": models[0] if models else platform.processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1),
            "system": f"{platform.system()} {platform.release()}",
        },
        "versions": {
            "python": platform.python_version(),
            "hippocube": memos.__version__,
            **{name: version(name) for name in _ENGINES},
        },
        "commit": commit + changes or None,
    }


def _git(*arguments: str) -> str:
    """Return what git says, or nothing where there is no repository."""
    return subprocess.run(
        ["git", "-C", str(Path(__file__).parent.parent), *arguments], capture_output=True, text=True, check=False
    ).stdout.strip()
