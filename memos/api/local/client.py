"""`RemoteMemOS`: the `MemOS` of a folder that another process has open; `routes` says which methods exist."""

from __future__ import annotations

import inspect
import json
import secrets
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from pydantic import BaseModel, ValidationError

from memos.api import serialization
from memos.api.endpoint import Endpoint, find
from memos.api.local import routes
from memos.api.local.routes import PATH, PROOF_PATH, Call, proof
from memos.core import aliases
from memos.core.clock import SystemClock
from memos.core.closing import Closing
from memos.core.settings import Settings
from memos.errors import BackendUnavailable, ConnectionLost, shown
from memos.kernel.chat.chat import ChatStream
from memos.kernel.memos import MemOS
from memos.version import __version__

_ASK_S = 5.0
# The server sends a heartbeat twice a second; a busy one may be late.
_SILENCE_S = 60.0


def served(home: Path) -> MemOS | None:
    """Return a folder's installation through the server that has it open, None if none has it."""
    endpoint = find(home)
    if endpoint is None or not endpoint.url.startswith("http://"):
        return None
    client = httpx2.Client(
        base_url=endpoint.url + PATH,
        trust_env=False,
        follow_redirects=False,
        verify=False,
        timeout=httpx2.Timeout(_ASK_S, read=_SILENCE_S, write=_SILENCE_S),
    )
    try:
        about = _introduced(client, endpoint)
        if about is None:
            client.close()
            return None
        if about["version"] != __version__:
            raise BackendUnavailable(
                f"The server that has {home} open is hippocube {about['version']}, this program {__version__}: "
                "stop the server, or use the same version."
            )
        settings = Settings().model_copy(update={"home": home, **_settings(about["settings"])})
    except BaseException:
        client.close()
        raise
    # It has every public method that another process can call; what only its own process has is not there.
    remote: Any = RemoteMemOS(client, settings)
    memos: MemOS = remote
    return memos


def _introduced(client: httpx2.Client, endpoint: Endpoint) -> dict[str, Any] | None:
    """Return what the server says of itself, None if there is none or another program has its address."""
    challenge = secrets.token_hex(16)
    with suppress(httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
        answer = client.get(PROOF_PATH, headers={"Challenge": challenge}, timeout=_ASK_S)
        # Send nothing to the server before it proves that it knows the token: another program may have the address now.
        if answer.status_code != 200 or not secrets.compare_digest(answer.json(), proof(endpoint.token, challenge)):
            return None
        client.headers["Authorization"] = f"Bearer {endpoint.token}"
        answer = client.get("/about", timeout=_ASK_S)
        told = answer.raise_for_status().json()
        return {"version": str(told["version"]), "settings": dict(told["settings"])}
    return None


def _settings(told: Mapping[str, Any]) -> dict[str, Any]:
    now: dict[str, Any] = {}
    for name, value in told.items():
        kind = Settings.model_fields[name].annotation
        now[name] = kind.model_validate(value) if isinstance(kind, type) and issubclass(kind, BaseModel) else value
    return now


class _Part:
    def __init__(self, client: httpx2.Client, part: str) -> None:
        self._client = client
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        full = f"{self._part}.{name}"
        if full in routes.ALONE:
            raise BackendUnavailable(
                f"`memos {name}` needs the data folder for itself; stop the server that has it open, then run it again."
            )
        if full not in routes.names():
            raise AttributeError(f"{full!r} cannot be called through a server")
        return partial(_called, self._client, full)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return _called(self._client, self._part, *given, **named)


class RemoteMemOS(Closing):
    """An installation that a server has open. The local owner makes each call there. Thread-safe."""

    memories: _Part
    tiers: _Part

    def __init__(self, client: httpx2.Client, settings: Settings) -> None:
        self._client = client
        self.home = settings.home
        self.settings = settings
        self.clock = SystemClock()
        for part in routes.PARTS:
            setattr(self, part, _Part(client, part))
        self.add, self.get, self.update = self.memories.add, self.memories.get, self.memories.update
        self.feedback, self.delete, self.erase = self.memories.feedback, self.memories.delete, self.memories.erase
        self.purge, self.context = self.memories.purge, self.tiers.context

    def close(self) -> None:
        self._client.close()


def _called(client: httpx2.Client, name: str, /, *given: Any, **named: Any) -> Any:
    """Make one call; one that streams returns an iterator, and is made when its first entry is asked for."""
    call = routes.call_named(name)
    bound = aliases.bind(call.signature, given, named).arguments
    on_progress = bound.pop(call.progress, None) if call.progress else None
    stop = bound.pop(call.stops, None) if call.stops else None
    body = serialization.as_json({"call": name, "arguments": _sent(call, bound), "progress": on_progress is not None})
    lines = _lines(client, body)
    if call.streams:
        entries = _entries(name, lines, stop)
        return entries if call.ends is None else ChatStream(entries)
    for told in lines:
        if on_progress is not None and "progress" in told:
            on_progress(*told["progress"])
        if "result" in told:
            return _typed(name, told["result"])
    raise _lost()


def _entries(
    name: str, lines: Generator[dict[str, Any], None, None], stop: threading.Event | None
) -> Generator[Any, None, Any]:
    with closing(lines):
        for told in lines:
            if stop is not None and stop.is_set():
                return None
            if "entry" in told:
                yield _typed(name, told["entry"])
            if "result" in told:
                return None if told["result"] is None else _typed(name, told["result"], end=True)
    raise _lost()


def _sent(call: Call, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by name as they are sent: paths absolute, keyword arguments by themselves."""
    sent: dict[str, Any] = {}
    for name, value in bound.items():
        if call.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            sent |= value
        elif name in call.paths and isinstance(value, str | Path) and value and "\0" not in str(value):
            path = Path(value).absolute()
            sent[name] = path if isinstance(value, Path) else str(path)
        else:
            sent[name] = value
    return sent


def _lines(client: httpx2.Client, body: bytes) -> Generator[dict[str, Any], None, None]:
    """Make a call and yield its lines, an empty mapping for a heartbeat. Raises: what the call raises."""
    began = False
    try:
        with client.stream("POST", "/call", content=body) as answer:
            began = True
            if answer.status_code != 200:
                told = json.loads(answer.read())
                message = told["error"]["message"] if isinstance(told, dict) and "error" in told else shown(told)
                raise BackendUnavailable(f"The server that has the data folder open refused the call: {message}")
            for line in answer.iter_lines():
                told = serialization.unpacked(json.loads(line)) if line else {}
                if "error" in told:
                    raise serialization.error_of(told["error"])
                yield told
    except httpx2.ConnectError as error:
        raise BackendUnavailable(
            "The server that had the data folder open has stopped; run the command again."
        ) from error
    except httpx2.HTTPError as error:
        if not began and isinstance(error, httpx2.ReadTimeout):
            raise BackendUnavailable(
                "The server that has the data folder open does not answer; check its log."
            ) from error
        raise _lost() from error
    except (ValueError, KeyError, TypeError) as error:
        raise BackendUnavailable(
            "The server that has the data folder open sent an answer that cannot be read; check its log."
        ) from error


def _typed(name: str, told: Any, *, end: bool = False) -> Any:
    try:
        return routes.adapter(name, end=end).validate_python(told)
    except ValidationError as error:
        raise BackendUnavailable(
            "The server that has the data folder open sent an answer that cannot be read; check its log."
        ) from error


def _lost() -> ConnectionLost:
    return ConnectionLost(
        "The server that has the data folder open stopped during the call. A change may or may not have been saved; "
        "check before you run the command again."
    )
