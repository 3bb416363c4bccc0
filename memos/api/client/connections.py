"""Send requests and read answers: shared parts, the blocking connection and the asynchronous one."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar
from uuid import uuid4

import httpx2

from memos.api.client.calls import (
    Address,
    Call,
    ClientUsageError,
    Download,
    Options,
    Reply,
    Stream,
    Waiting,
    exchange,
    problem,
)
from memos.core.closing import Closing
from memos.errors import BackendTimeout, BackendUnavailable, ConnectionLost, MemosError
from memos.version import __version__

CHUNK_BYTES = 1 << 16

_UNKNOWN_TYPE = "application/octet-stream"

Client = TypeVar("Client", httpx2.Client, httpx2.AsyncClient)
T = TypeVar("T")

Described = Call[Any] | Stream[Any] | Download[Any] | Waiting[Any]
Guarded = Callable[[], AbstractContextManager[None]]


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
        raise ClientUsageError(
            "base_url", f"or an id in the path is not valid in a URL ({type(error).__name__})"
        ) from None


def reply_of(response: httpx2.Response, body: bytes) -> Reply:
    """Return an answer without its HTTP objects."""
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


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
        raise BackendUnavailable("The client is closed; create a new one.", permanent=True) from None


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
    beside = target.with_name(f"{target.name}.{uuid4()}.part")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(target)
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise BackendUnavailable(f"{target} cannot be written ({told}).", permanent=True) from error
    finally:
        beside.unlink(missing_ok=True)


def _failure(root: str, error: httpx2.RequestError) -> MemosError:
    if isinstance(error, httpx2.ConnectTimeout):
        return BackendTimeout(
            f"{root} did not accept a connection in time; check that the server runs, or raise connect_timeout_s."
        )
    if isinstance(error, httpx2.TimeoutException):
        return BackendTimeout(f"{root} did not answer in time; give the call more with using(timeout_s=…).")
    if isinstance(error, httpx2.ConnectError):
        return BackendUnavailable(f"Cannot connect to {root}: start the server with `memos serve`, or check base_url.")
    if isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError):
        return ConnectionLost(
            f"The connection to {root} was lost; a change may or may not have been made. Check before you repeat it."
        )
    return BackendUnavailable(f"The request to {root} cannot be sent ({type(error).__name__}).", permanent=True)


class Streamed(Closing, Generic[T]):
    """Values that a server streams; iterate it once. Close it, or use `with`, to end it early."""

    def __init__(self, response: httpx2.Response, each: Callable[[str, str], T | None], guard: Guarded) -> None:
        self._response, self._each, self._guard = response, each, guard
        self._events = iter(httpx2.EventSource(response))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Wait for the next value. Raises: ConnectionLost, BackendTimeout."""
        try:
            with self._guard():
                for event in self._events:
                    if (found := self._each(event.event, event.data)) is not None:
                        return found
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Release the connection."""
        self._response.close()


class AsyncStreamed(Generic[T]):
    """Values that a server streams; iterate it once. Close it, or use `async with`, to end it early."""

    def __init__(self, response: httpx2.Response, each: Callable[[str, str], T | None], guard: Guarded) -> None:
        self._response, self._each, self._guard = response, each, guard
        self._events = aiter(httpx2.EventSource(response))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for the next value. Raises: ConnectionLost, BackendTimeout."""
        try:
            with self._guard():
                async for event in self._events:
                    if (found := self._each(event.event, event.data)) is not None:
                        return found
        except BaseException:
            await self.aclose()
            raise
        await self.aclose()
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release the connection."""
        await self._response.aclose()


class _Exchanges(Generic[Client]):
    """A connection pool to one server, with the options it is used with, and what is sent through it.

    The coroutines are those of both connections: those of the blocking one never wait.
    """

    streamed: type[Streamed[Any]] | type[AsyncStreamed[Any]]
    _http: Client
    _sleep: Callable[[float], Awaitable[None]]
    _send: Callable[[httpx2.Request, bool], Awaitable[httpx2.Response]]
    _read: Callable[[httpx2.Response], Awaitable[bytes]]
    _write: Callable[[httpx2.Response, Path], Awaitable[None]]
    _chunks: Callable[[BinaryIO], Any]

    def __init__(self, http: Client, address: Address, options: Options) -> None:
        self._http, self._address, self.options = http, address, options

    def using(self, options: Options) -> Self:
        """Return a connection that shares the pool and has other options."""
        return type(self)(self._http, self._address, options)

    async def _do(self, described: Described) -> Any:
        if isinstance(described, Download):
            return await self._repeated(described.call, partial(self._fetched, described))
        if isinstance(described, Stream):
            return await self._streamed(described)
        if isinstance(described, Waiting):
            return await self._waited(described)
        return await self._repeated(described, partial(self._once, described))

    async def _repeated(self, call: Call[T], once: Callable[[str], Awaitable[Reply]]) -> T:
        request_id = str(uuid4())
        steps = exchange(call, self.options)
        pause = next(steps)
        while True:
            if pause:
                await self._sleep(pause)
            outcome: Reply | MemosError
            try:
                with failures(self._address, request_id):
                    outcome = await once(request_id)
            except MemosError as error:
                outcome = error
            try:
                pause = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result

    async def _waited(self, waiting: Waiting[T]) -> T:
        turns = waiting.turns()
        call = next(turns)
        while True:
            found = await self._repeated(call, partial(self._once, call))
            try:
                call = turns.send(found)
            except StopIteration as done:
                result: T = done.value
                return result

    async def _once(self, call: Call[Any], request_id: str) -> Reply:
        if call.upload is not None:
            with reading(call.upload) as file:
                return await self._sent(call, request_id, content=self._chunks(file))
        if call.files:
            with form_of(call.files) as form:
                return await self._sent(call, request_id, files=form)
        return await self._sent(call, request_id)

    async def _sent(self, call: Call[Any], request_id: str, **content: Any) -> Reply:
        request = request_of(self._http, call, self._address, self.options, request_id, **content)
        response = await self._send(request, False)
        return reply_of(response, response.content)

    async def _opened(self, call: Call[Any], request_id: str) -> httpx2.Response:
        request = request_of(self._http, call, self._address, self.options, request_id)
        response = await self._send(request, True)
        if response.status_code >= 300:
            error = problem(reply_of(response, await self._read(response)))
            assert error is not None
            raise error
        return response

    async def _fetched(self, download: Download[Any], request_id: str) -> Reply:
        response = await self._opened(download.call, request_id)
        await self._write(response, download.target)
        return reply_of(response, b"")

    async def _streamed(self, stream: Stream[Any]) -> Any:
        opened: list[httpx2.Response] = []

        async def once(request_id: str) -> Reply:
            opened.append(await self._opened(stream.call, request_id))
            return Reply(200, {}, b"")

        await self._repeated(replace(stream.call, read=lambda _: None), once)
        id_ = opened[-1].request.headers["X-Request-Id"]
        return self.streamed(opened[-1], stream.each, lambda: failures(self._address, id_))


class Connection(_Exchanges[httpx2.Client]):
    """A connection whose calls block."""

    streamed = Streamed

    @classmethod
    def to(cls, address: Address, options: Options) -> Connection:
        """Return a connection with a new pool; nothing is sent yet."""
        return cls(httpx2.Client(), address, options)

    def close(self) -> None:
        """Close the pool for all that share it."""
        self._http.close()

    def do(self, described: Described) -> Any:
        """Send a request, again if needed and allowed, and return its result. Raises: MemosError."""
        try:
            self._do(described).send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("nothing here waits for an event loop")

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _send(self, request: httpx2.Request, stream: bool) -> httpx2.Response:
        return self._http.send(request, stream=stream)

    async def _read(self, response: httpx2.Response) -> bytes:
        with closing(response):
            return response.read()

    async def _write(self, response: httpx2.Response, target: Path) -> None:
        with closing(response), appearing(target) as file:
            for chunk in response.iter_bytes(CHUNK_BYTES):
                file.write(chunk)

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        return iter(lambda: file.read(CHUNK_BYTES), b"")


class AsyncConnection(_Exchanges[httpx2.AsyncClient]):
    """A connection for one event loop."""

    streamed = AsyncStreamed

    @classmethod
    def to(cls, address: Address, options: Options) -> AsyncConnection:
        """Return a connection with a new pool; nothing is sent yet."""
        return cls(httpx2.AsyncClient(), address, options)

    async def aclose(self) -> None:
        """Close the pool for all that share it."""
        await self._http.aclose()

    async def do(self, described: Described) -> Any:
        """Send a request, again if needed and allowed, and return its result. Raises: MemosError."""
        return await self._do(described)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _send(self, request: httpx2.Request, stream: bool) -> httpx2.Response:
        return await self._http.send(request, stream=stream)

    async def _read(self, response: httpx2.Response) -> bytes:
        async with aclosing(response):
            return await response.aread()

    async def _write(self, response: httpx2.Response, target: Path) -> None:
        async with aclosing(response):
            with appearing(target) as file:
                async for chunk in response.aiter_bytes(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)

    async def _chunks(self, file: BinaryIO) -> AsyncIterator[bytes]:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
