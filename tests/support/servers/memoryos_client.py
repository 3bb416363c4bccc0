"""The public client of the PyPI package `MemoryOS`, unmodified, in a virtual environment of its own.

Its import name is `memos`, as ours: only a process of that environment may import it. It is installed once for all test
runs of this user, into the cache, with its own dependencies (about 670 MB). `python_of` raises `Missing`.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import platformdirs

VERSION = "2.0.33"
INSTALL_S = 1_800


class Missing(Exception):
    """The package cannot be installed; the message says why."""


def python_of() -> Path:
    """Return the Python that can import the client. Raises: Missing."""
    cache = platformdirs.user_cache_path("hippocube-tests", appauthor=False)
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"memoryos-{VERSION}"
    done = home / "complete"
    with (cache / "memoryos.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)
            _install(home)
            done.touch()
    return home / "bin" / "python"


def _install(home: Path) -> None:
    python = home / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(home)],
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), f"MemoryOS=={VERSION}"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Missing(f"MemoryOS {VERSION} cannot be installed: {type(error).__name__}") from error
        if done.returncode:
            raise Missing(f"MemoryOS {VERSION} cannot be installed: {done.stderr[-500:].strip()}")
