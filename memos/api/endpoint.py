"""The file in a data folder that says where its server listens, and how that server proves who it is.

Only the folder's owner can read the file. Imports no server and no client.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FILE = "server.json"
PATH, PROOF_PATH = "/local", "/proof"
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    token: str
    pid: int


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def proof(token: str, challenge: str) -> str:
    """Return the answer to a challenge that proves knowledge of the token, so that a tool can trust the server."""
    return hmac.new(token.encode(), challenge.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


@contextmanager
def announced(home: Path, endpoint: Endpoint) -> Iterator[None]:
    path = home / FILE
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"url": endpoint.url, "token": endpoint.token, "pid": endpoint.pid}, file)
        beside.replace(path)
        yield
    finally:
        beside.unlink(missing_ok=True)
        if (found := find(home)) is not None and found.token == endpoint.token:
            path.unlink(missing_ok=True)


def find(home: Path) -> Endpoint | None:
    """Return where a folder's server listens, None if none was announced; it may have died since."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads((home / FILE).read_text(encoding="utf-8"))
        return Endpoint(str(told["url"]), str(told["token"]), int(told["pid"]))
    return None
