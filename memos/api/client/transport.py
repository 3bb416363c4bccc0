"""What both clients share of HTTP: building requests, reading answers, translating failures."""

from __future__ import annotations

import inspect
import mimetypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx2

from memos.api.client.calls import Address, Call, ClientUsageError, Options, Reply, problem
from memos.core.clock import new_id
from memos.errors import BackendTimeout, BackendUnavailable, ConnectionLost, MemosError
from memos.version import __version__

CHUNK_BYTES = 1 << 16

_STREAM = "Stream["
_DESCRIBED = ("Call[", _STREAM, "Waiting[", "Download[")
_UNKNOWN_TYPE = "application/octet-stream"

Client = TypeVar("Client", httpx2.Client, httpx2.AsyncClient)


def request_of(
    http: Client, call: Call[Any], address: Address, options: Options, request_id: str, **content: Any
) -> httpx2.Request:
    """Return the HTTP request of a call. Raises: InvalidInput (the URL cannot be one)."""
    headers = {
        "Authorization": f"Bearer {address.key}",
        "User-Agent": f"hippocube/{__version__}",
        "X-Request-Id": request_id,
        **call.headers,
    }
    limit_s = None if options.timeout_s is None else max(options.timeout_s, call.least_s)
    if call.body is not None:
        headers["Content-Type"] = "application/json"
        content["content"] = call.body
    try:
        return http.build_request(
            call.method,
            address.root + call.path,
            params=dict(call.query) or None,
            headers={name.encode(): value.encode() for name, value in headers.items()},
            timeout=httpx2.Timeout(limit_s, connect=options.connect_timeout_s),
            **content,
        )
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ClientUsageError("base_url", f"or an id in the path cannot be sent ({type(error).__name__})") from None


def reply_of(response: httpx2.Response, body: bytes) -> Reply:
    """Return an answer without its HTTP objects."""
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def refusal(response: httpx2.Response, body: bytes) -> MemosError:
    """Return the error of an answer whose status is one."""
    error = problem(reply_of(response, body))
    assert error is not None
    return error


@contextmanager
def failures(address: Address, request_id: str) -> Iterator[None]:
    """Translate HTTP failures in the block into errors of this package."""
    try:
        yield
    except MemosError as error:
        error.request_id = error.request_id or request_id
        raise
    except httpx2.RequestError as error:
        told = _failure(address.root, error)
        told.request_id = request_id
        raise told from error
    except RuntimeError as error:
        if "closed" not in str(error):
            raise
        raise BackendUnavailable("The client is closed: make another.", permanent=True) from None


@contextmanager
def form_of(paths: tuple[Path, ...]) -> Iterator[list[tuple[str, tuple[str, Any, str]]]]:
    """Return open files as parts of a form; they are closed after the block. Raises: InvalidInput."""
    with ExitStack() as opened:
        try:
            form = []
            for path in paths:
                media_type = mimetypes.guess_type(path.name)[0] or _UNKNOWN_TYPE
                form.append(("file", (path.name, opened.enter_context(path.open("rb")), media_type)))
        except OSError as error:
            raise ClientUsageError("files", f"cannot be read ({error.strerror or type(error).__name__})") from None
        yield form


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file to send. Raises: InvalidInput."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ClientUsageError("path", f"cannot be read ({error.strerror or type(error).__name__})") from None
    with file:
        yield file


@contextmanager
def appearing(target: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name and rename it when complete. Raises: InvalidInput, BackendUnavailable."""
    beside = target.with_name(f"{target.name}.{new_id()}.part")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(target)
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise BackendUnavailable(f"{target} cannot be written ({told}).", permanent=True) from error
    finally:
        beside.unlink(missing_ok=True)


def told_like(method: Callable[..., Any], described: Callable[..., Any]) -> None:
    """Give a client's method the name, docstring and signature of the function that describes its request."""
    signature = inspect.signature(described)
    told = " | ".join(_returned(part) for part in str(signature.return_annotation).split(" | "))
    holder = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__name__, method.__doc__ = described.__name__.rstrip("_"), described.__doc__
    parameters = [holder, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters, return_annotation=told)  # type: ignore[attr-defined]


def _returned(described: str) -> str:
    """Return the annotation of a description as that of its result."""
    kind = next((kind for kind in _DESCRIBED if described.startswith(kind)), None)
    if kind is None:
        return described
    inner = described.removeprefix(kind).removesuffix("]")
    return f"Iterator[{inner}]" if kind == _STREAM else inner


def _failure(root: str, error: httpx2.RequestError) -> MemosError:
    if isinstance(error, httpx2.ConnectTimeout):
        return BackendTimeout(f"{root} did not accept a connection in time: is the server there? (connect_timeout_s)")
    if isinstance(error, httpx2.TimeoutException):
        return BackendTimeout(f"{root} did not answer in time: give the call more with using(timeout_s=…).")
    if isinstance(error, httpx2.ConnectError):
        return BackendUnavailable(f"Nothing answers at {root}: start the server with `memos serve`, or check base_url.")
    if isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError):
        return ConnectionLost(f"The connection to {root} broke: whether a change was made is not known.")
    return BackendUnavailable(f"The request to {root} cannot be sent ({type(error).__name__}).", permanent=True)
