"""An S3-compatible store on loopback: moto's server, from an environment of its own (`scripts/install_servers.sh`).

Its client of AWS and hippocube's reader of dates want different versions of one package.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.support.servers.postgres_server import free_port

_START_S = 60


def program() -> Path:
    """Return where the server's program is installed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hippocube" / "moto-server" / "bin" / "moto_server"


class S3Server:
    """The server; any key may do anything."""

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", program(), "-H", "127.0.0.1", "-p", self.url.rpartition(":")[2]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_S
        while not self.answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.__exit__()
                raise RuntimeError("moto's server did not start")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=20)

    def answers(self) -> bool:
        """Return True if it answers."""
        try:
            with urllib.request.urlopen(self.url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
