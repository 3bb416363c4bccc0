"""A real Qdrant server on loopback: the binary that QDRANT_BIN names, or that `scripts/build_qdrant.sh` has built.

An empty QDRANT_BIN asks for the double of `qdrant_rest.py` although there is one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.support.servers.postgres_server import free_port

_ROOT = Path(__file__).resolve().parents[3]
_START_S = 120


def binary() -> Path | None:
    """Return the server's binary, None where there is none or none is wanted."""
    named = os.environ.get("QDRANT_BIN")
    if named is not None:
        return Path(named) if named else None
    return _built()


def description() -> str:
    """Return a line that says which Qdrant server the tests ask, and how to get the real one."""
    if url := os.environ.get("QDRANT_URL"):
        return f"the server at {urlsplit(url).netloc.rpartition('@')[2]}"
    if (program := binary()) is not None:
        return f"{program.name} (QDRANT_BIN= uses the stand-in)"
    return "a stand-in; `sh scripts/build_qdrant.sh` builds the real one once, in an hour"


@cache
def _built() -> Path | None:
    script = ["sh", str(_ROOT / "scripts/build_qdrant.sh"), "--path"]
    if not Path(script[1]).exists():  # a copy of the tests alone
        return None
    built = Path(subprocess.run(script, capture_output=True, text=True, check=True).stdout.strip())
    return built if built.is_file() else None


class QdrantServer:
    """One server with its data in a temporary folder; `configuration` is merged into its own."""

    def __init__(self, program: Path, configuration: dict[str, Any] | None = None) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory(prefix="memos-qdrant-")
        self._process: subprocess.Popen[bytes] | None = None
        given = configuration or {}
        self.port = free_port()
        folder = Path(self._folder.name)
        self._service = {
            "host": "127.0.0.1",
            "http_port": self.port,
            "grpc_port": None,
            "max_workers": 1,
            **given.get("service", {}),
        }
        storage = {
            "storage_path": str(folder / "storage"),
            "snapshots_path": str(folder / "snapshots"),
            "performance": {"max_search_threads": 1, "optimizer_cpu_budget": 1},
            **given.get("storage", {}),
        }
        told = {**given, "service": self._service, "storage": storage, "telemetry_disabled": True, "log_level": "WARN"}
        self._configuration = folder / "config.yaml"
        self._configuration.write_text(yaml.safe_dump(told), encoding="utf-8")
        self._log = folder / "log"
        self.start()

    @property
    def url(self) -> str:
        """Return its REST URL."""
        return f"{'https' if self._service.get('enable_tls') else 'http'}://127.0.0.1:{self.port}"

    @property
    def snapshots(self) -> Path:
        """Return the folder of its snapshots."""
        return Path(self._folder.name) / "snapshots"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        """Start it on its data and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", self._program, "--config-path", self._configuration],
                cwd=self._folder.name,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._is_ready():
                return
            time.sleep(0.05)
        raise RuntimeError(f"Qdrant did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """End it as a failing machine would; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)

    def _is_ready(self) -> bool:
        if self._service.get("enable_tls"):
            import ssl  # noqa: PLC0415 - for these servers alone

            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context = None
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
