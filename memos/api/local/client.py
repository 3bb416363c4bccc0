"""`RemoteMemOS`: the `MemOS` of a folder that another process has open; that process says which methods exist.

A command that finds a server takes most of its time to start, so nothing here imports the kernel, pydantic or numpy
before it is needed.
"""

from __future__ import annotations

import inspect
import json
import secrets
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memos.api import serialization
from memos.api.endpoint import PATH, PROOF_PATH, Endpoint, find, proof
from memos.api.local.values import NotPlain, value_of
from memos.core import aliases
from memos.core.clock import SystemClock
from memos.core.closing import Closing
from memos.errors import BackendUnavailable, ConnectionLost, shown
from memos.version import __version__

if TYPE_CHECKING:
    from memos.core.settings import Settings
    from memos.kernel.memos import MemOS

_ASK_S = 5.0
# The server sends a heartbeat twice a second; a busy one may be late.
_SILENCE_S = 60.0


def served(home: Path) -> MemOS | None:
    """Return a folder's installation through the server that has it open, None if none has it."""
    endpoint = find(home)
    if endpoint is None or not endpoint.url.startswith("http://"):
        return None
    about = _introduced(endpoint)
    if about is None:
        return None
    if about.version != __version__:
        raise BackendUnavailable(
            f"The server that has {home} open is hippocube {about.version}, this program {__version__}: "
            "stop the server, or use the same version."
        )
    # It has every public method that another process can call; what only its own process has is not there.
    remote: Any = RemoteMemOS(home, endpoint, about)
    memos: MemOS = remote
    return memos


@dataclass(frozen=True, slots=True)
class _Call:
    """Signature of a method that the server offers, and how its result is sent."""

    signature: inspect.Signature
    streams: bool
    ends: bool
    progress: str | None
    stops: str | None
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class _About:
    """Description of the running server, from `/local/about` and `/local/calls`."""

    version: str
    settings: dict[str, Any]
    parts: list[str]
    alone: frozenset[str]
    calls: dict[str, dict[str, Any]]

    def call(self, name: str) -> _Call:
        told = self.calls[name]
        kinds = {int(kind): kind for kind in inspect._ParameterKind}
        parameters = [
            inspect.Parameter(each, kinds[kind], default=None if optional else inspect.Parameter.empty)
            for each, kind, optional in told["parameters"]
        ]
        signature = inspect.Signature(parameters)
        paths = frozenset(told["paths"])
        return _Call(signature, told["streams"], told["ends"], told["progress"], told["stops"], paths)


def _introduced(endpoint: Endpoint) -> _About | None:
    """Return the description of the running server; None without one, or if another program has its address."""
    challenge = secrets.token_hex(16)
    with suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
        with closing(_connection(endpoint, _ASK_S)) as connection:
            connection.request("GET", PATH + PROOF_PATH, headers={"Challenge": challenge})
            answer = connection.getresponse()
            said = answer.read()
            # Send nothing to the server before it proves that it knows the token: another program may have the
            # address now.
            if answer.status != 200 or not secrets.compare_digest(json.loads(said), proof(endpoint.token, challenge)):
                return None
            told = _asked(connection, endpoint, "/about")
            version, settings = str(told["version"]), dict(told["settings"])
            if version != __version__:
                return _About(version, settings, [], frozenset(), {})
            told = _asked(connection, endpoint, "/calls")
        return _About(version, settings, list(told["parts"]), frozenset(told["alone"]), dict(told["calls"]))
    return None


def _asked(connection: HTTPConnection, endpoint: Endpoint, path: str) -> dict[str, Any]:
    connection.request("GET", PATH + path, headers=_headers(endpoint))
    answer = connection.getresponse()
    told = json.loads(answer.read())
    if answer.status != 200 or not isinstance(told, dict):
        raise ValueError("refused")
    return told


def _connection(endpoint: Endpoint, timeout_s: float) -> HTTPConnection:
    address = urlsplit(endpoint.url)
    return HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token}"}


class _Part:
    def __init__(self, remote: RemoteMemOS, part: str) -> None:
        self._remote = remote
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        full = f"{self._part}.{name}"
        if full in self._remote.about.alone:
            raise BackendUnavailable(
                f"`memos {name}` needs the data folder for itself; stop the server that has it open, then run it again."
            )
        if full not in self._remote.about.calls:
            raise AttributeError(f"{full!r} cannot be called through a server")
        return partial(self._remote.call, full)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._remote.call(self._part, *given, **named)


class RemoteMemOS(Closing):
    """An installation that a server has open. The local owner makes each call there. Thread-safe."""

    memories: _Part
    tiers: _Part

    def __init__(self, home: Path, endpoint: Endpoint, about: _About) -> None:
        self.home = home
        self.about = about
        self.clock = SystemClock()
        self._endpoint = endpoint
        self._closed = False
        for part in about.parts:
            setattr(self, part, _Part(self, part))
        self.add, self.get, self.update = self.memories.add, self.memories.get, self.memories.update
        self.feedback, self.delete, self.erase = self.memories.feedback, self.memories.delete, self.memories.erase
        self.purge, self.context = self.memories.purge, self.tiers.context

    @cached_property
    def settings(self) -> Settings:
        """The settings of this process, and those of the server that tools of the same person go by."""
        from pydantic import BaseModel  # noqa: PLC0415 - see above

        from memos.core.settings import Settings  # noqa: PLC0415

        shared: dict[str, Any] = {}
        for name, value in self.about.settings.items():
            kind = Settings.model_fields[name].annotation
            is_group = isinstance(kind, type) and issubclass(kind, BaseModel)
            shared[name] = kind.model_validate(value) if is_group else value  # type: ignore[union-attr]
        return Settings().model_copy(update={"home": self.home, **shared})

    def close(self) -> None:
        self._closed = True

    def call(self, name: str, /, *given: Any, **named: Any) -> Any:
        """Make one call; one that streams returns an iterator, and is made when its first entry is asked for."""
        call = self.about.call(name)
        bound = aliases.bind(call.signature, given, named).arguments
        on_progress = bound.pop(call.progress, None) if call.progress else None
        stop = bound.pop(call.stops, None) if call.stops else None
        told = {"call": name, "arguments": _sent(call, bound), "progress": on_progress is not None}
        lines = self._lines(serialization.as_json(told))
        if call.streams:
            entries = _entries(name, lines, stop)
            return _chat_stream(entries) if call.ends else entries
        with closing(lines):
            for line in lines:
                if on_progress is not None and "progress" in line:
                    on_progress(*serialization.unpacked(line["progress"]))
                if "result" in line:
                    return _typed(name, line["result"])
        raise _lost()

    def _lines(self, body: bytes) -> Generator[dict[str, Any], None, None]:
        """Make a call and yield its lines, an empty mapping for a heartbeat. Raises: what the call raises."""
        if self._closed:
            raise BackendUnavailable("This MemOS is closed; open it again with MemOS.open().")
        with closing(_connection(self._endpoint, _ASK_S)) as connection:
            try:
                connection.connect()
            except OSError as error:
                raise BackendUnavailable(
                    "The server that had the data folder open has stopped; run the command again."
                ) from error
            connection.sock.settimeout(_SILENCE_S)
            try:
                connection.request("POST", f"{PATH}/call", body, _headers(self._endpoint))
                answer = connection.getresponse()
            except TimeoutError as error:
                raise BackendUnavailable(
                    "The server that has the data folder open does not answer; check its log."
                ) from error
            except (OSError, HTTPException) as error:
                raise _lost() from error
            try:
                yield from _answered(answer)
            except (OSError, HTTPException) as error:
                raise _lost() from error
            except (ValueError, KeyError, TypeError) as error:
                raise _unreadable() from error


def _answered(answer: HTTPResponse) -> Generator[dict[str, Any], None, None]:
    if answer.status != 200:
        told = json.loads(answer.read())
        message = told["error"]["message"] if isinstance(told, dict) and "error" in told else shown(told)
        raise BackendUnavailable(f"The server that has the data folder open refused the call: {message}")
    while line := answer.readline():
        told = json.loads(line) if line.strip() else {}
        if "error" in told:
            raise serialization.error_of(serialization.unpacked(told["error"]))
        yield told


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


def _chat_stream(entries: Generator[Any, None, Any]) -> Any:
    from memos.kernel.chat.chat import ChatStream  # noqa: PLC0415 - see above

    return ChatStream(entries)


def _sent(call: _Call, bound: Mapping[str, Any]) -> dict[str, Any]:
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


def _typed(name: str, told: Any, *, end: bool = False) -> Any:
    """Return a result with the types that the call has in the kernel."""
    try:
        try:
            return value_of(told)
        except NotPlain:
            from memos.api.local import routes  # noqa: PLC0415 - see above

            return routes.adapter(name, end=end).validate_python(serialization.unpacked(told))
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable() from error


def _unreadable() -> BackendUnavailable:
    return BackendUnavailable(
        "The server that has the data folder open sent an answer that cannot be read; check its log."
    )


def _lost() -> ConnectionLost:
    return ConnectionLost(
        "The server that has the data folder open stopped during the call. A change may or may not have been saved; "
        "check before you run the command again."
    )
