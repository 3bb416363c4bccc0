"""The asynchronous client: how it sends requests and waits. Knows no route. For one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import httpx2

from memos.api.client import openmem, v1_cubes, v1_models, v1_requests
from memos.api.client.calls import (
    Address,
    Call,
    ClientOptions,
    Download,
    Options,
    Reply,
    Stream,
    Waiting,
    address_of,
    exchange,
)
from memos.api.client.results import ChatAnswer
from memos.api.client.transport import (
    CHUNK_BYTES,
    appearing,
    failures,
    form_of,
    reading,
    refusal,
    reply_of,
    request_of,
    told_like,
)
from memos.core.clock import new_id
from memos.errors import MemosError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

Guarded = Callable[[], AbstractContextManager[None]]


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


class AsyncConnection:
    """A connection pool to one server, with the options it is used with."""

    def __init__(self, http: httpx2.AsyncClient, address: Address, options: Options) -> None:
        self._http, self._address, self._options = http, address, options

    @classmethod
    def to(cls, address: Address, options: Options) -> AsyncConnection:
        """Return a connection with a new pool; nothing is sent yet."""
        return cls(httpx2.AsyncClient(), address, options)

    @property
    def options(self) -> Options:
        """The options of its calls."""
        return self._options

    def using(self, options: Options) -> AsyncConnection:
        """Return a connection that shares the pool and has other options."""
        return AsyncConnection(self._http, self._address, options)

    async def aclose(self) -> None:
        """Close the pool for all that share it."""
        await self._http.aclose()

    async def do(self, described: Call[Any] | Stream[Any] | Download[Any] | Waiting[Any]) -> Any:
        """Send a request, again if needed and allowed, and return its result. Raises: MemosError."""
        if isinstance(described, Download):
            return await self._repeated(
                described.call, lambda id_: self._fetched(described.call, id_, described.target)
            )
        if isinstance(described, Stream):
            return await self._streamed(described)
        if isinstance(described, Waiting):
            return await self._waited(described)
        return await self._repeated(described, partial(self._once, described))

    async def _repeated(self, call: Call[T], once: Callable[[str], Awaitable[Reply]]) -> T:
        request_id = new_id()
        steps = exchange(call, self._options)
        pause = next(steps)
        while True:
            if pause:
                await asyncio.sleep(pause)
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
                return await self._sent(call, request_id, content=_chunks(file))
        if call.files:
            with form_of(call.files) as form:
                return await self._sent(call, request_id, files=form)
        return await self._sent(call, request_id)

    async def _sent(self, call: Call[Any], request_id: str, **content: Any) -> Reply:
        request = request_of(self._http, call, self._address, self._options, request_id, **content)
        response = await self._http.send(request)
        return reply_of(response, response.content)

    async def _opened(self, call: Call[Any], request_id: str) -> httpx2.Response:
        request = request_of(self._http, call, self._address, self._options, request_id)
        response = await self._http.send(request, stream=True)
        if response.status_code >= 300:
            async with aclosing(response):
                raise refusal(response, await response.aread())
        return response

    async def _fetched(self, call: Call[Any], request_id: str, target: Path) -> Reply:
        async with aclosing(await self._opened(call, request_id)) as response:
            with appearing(target) as file:
                async for chunk in response.aiter_bytes(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)
            return reply_of(response, b"")

    async def _streamed(self, stream: Stream[T]) -> AsyncStreamed[T]:
        opened: list[httpx2.Response] = []

        async def once(request_id: str) -> Reply:
            opened.append(await self._opened(stream.call, request_id))
            return Reply(200, {}, b"")

        await self._repeated(replace(stream.call, read=lambda _: None), once)
        response = opened[-1]
        id_ = response.request.headers["X-Request-Id"]
        return AsyncStreamed(response, stream.each, lambda: failures(self._address, id_))


class AsyncHolder(Protocol):
    """Base of classes whose methods send requests."""

    _connection: AsyncConnection


@overload
def sends(describe: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
@overload
def sends(
    describe: Callable[P, Stream[S]],
) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, AsyncStreamed[S]]]: ...
@overload
def sends(describe: Callable[P, Waiting[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
@overload
def sends(describe: Callable[P, Download[T]]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, T]]: ...
def sends(describe: Callable[P, Any]) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, Any]]:
    """Return the method that sends the request a function describes."""

    async def method(self: AsyncHolder, /, *given: P.args, **named: P.kwargs) -> Any:
        return await self._connection.do(describe(*given, **named))

    told_like(method, describe)
    return method


def sends_chat(
    describe: Callable[P, Call[ChatAnswer] | Stream[str]],
) -> Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, ChatAnswer | AsyncStreamed[str]]]:
    """Return the method that sends a chat, which is streamed if its parameters say so."""
    send: Any = sends
    method: Callable[Concatenate[AsyncHolder, P], Coroutine[Any, Any, ChatAnswer | AsyncStreamed[str]]] = send(describe)
    return method


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk


# The parts of `AsyncMemOSClient`, named as those of `MemOS`: cubes, users, memories, tasks, adapters and others.


class AsyncMemories:
    """Memories, one at a time."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    add = sends(v1_requests.add)
    search = sends(v1_requests.search)
    feedback = sends(v1_requests.feedback)
    get = sends(v1_requests.get)
    list = sends(v1_requests.list_)
    update = sends(v1_requests.update)
    delete = sends(v1_requests.delete)
    history = sends(v1_requests.history)
    rollback = sends(v1_requests.rollback)
    erase = sends(v1_requests.erase)
    erase_receipt = sends(v1_requests.erase_receipt)


class AsyncCubes:
    """The cubes of an installation."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    create = sends(v1_cubes.create_cube)
    list = sends(v1_cubes.list_cubes)
    get = sends(v1_cubes.get_cube)
    change = sends(v1_cubes.change_cube)
    drop = sends(v1_cubes.drop_cube)
    dump = sends(v1_cubes.dump_cube)
    load = sends(v1_cubes.load_cube)
    inspect = sends(v1_cubes.inspect_dump)


class AsyncSharing:
    """Roles on cubes."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    grant = sends(v1_cubes.grant)
    revoke = sends(v1_cubes.revoke)
    grants = sends(v1_cubes.grants)


class AsyncUsers:
    """Users, agents and groups."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    me = sends(v1_cubes.me)
    create = sends(v1_cubes.create_user)
    list = sends(v1_cubes.list_users)
    get = sends(v1_cubes.get_user)
    enable = sends(v1_cubes.enable_user)
    members = sends(v1_cubes.members)
    join = sends(v1_cubes.join)
    leave = sends(v1_cubes.leave)


class AsyncKeys:
    """Keys of users and agents."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    create = sends(v1_cubes.create_key)
    list = sends(v1_cubes.list_keys)
    limit = sends(v1_cubes.limit_key)
    revoke = sends(v1_cubes.revoke_key)


class AsyncTasks:
    """Background tasks."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    list = sends(v1_requests.list_tasks)
    get = sends(v1_requests.get_task)
    retry = sends(v1_requests.retry_task)
    cancel = sends(v1_requests.cancel_task)
    wait = sends(v1_requests.wait_task)
    follow = sends(v1_requests.follow_task)


class AsyncEvents:
    """The event log of cubes."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    list = sends(v1_requests.list_events)
    follow = sends(v1_requests.follow_events)


class AsyncAdapters:
    """Adapters trained on cubes by a model in the server."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    list = sends(v1_models.list_adapters)
    get = sends(v1_models.get_adapter)
    preview = sends(v1_models.preview_learning)
    allow = sends(v1_models.allow_learning)
    disallow = sends(v1_models.disallow_learning)
    train = sends(v1_models.train_adapter)
    activate = sends(v1_models.activate_adapter)
    forget = sends(v1_models.forget_learned)
    remove = sends(v1_models.remove_adapter)
    export = sends(v1_models.export_adapter)


class AsyncKv:
    """Prompt prefixes of cubes, and the key-value caches that models in the server keep of them."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    show = sends(v1_models.show_prefix)
    compose = sends(v1_models.compose_prefix)
    warm = sends(v1_models.warm_prefix)
    drop = sends(v1_models.drop_kv)
    stats = sends(v1_models.kv_stats)
    verify = sends(v1_models.verify_kv)


# `AsyncMemOSClient`: every request a client can make, as a coroutine.


class AsyncMemOSClient:
    """A client of a hippocube server for one event loop. Close it, or use it with `async with`.

    Args:
        api_key: Key; default: `MEMOS_API_KEY`.
        base_url: Server, with or without `/api/openmem/v1`; default: `MEMOS_BASE_URL`, else the local server.
        is_global: Accepted for old programs; must be false.
        **options: Options of all calls, as in `using`.

    Raises:
        InvalidInput: An argument is wrong, or there is no key.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        is_global: str | bool = "false",
        **options: Unpack[ClientOptions],
    ) -> None:
        self._share(AsyncConnection.to(address_of(api_key, base_url, is_global), Options().changed(**options)))

    def _share(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.memories, self.cubes, self.sharing = (
            AsyncMemories(connection),
            AsyncCubes(connection),
            AsyncSharing(connection),
        )
        self.users, self.keys = AsyncUsers(connection), AsyncKeys(connection)
        self.tasks, self.events = AsyncTasks(connection), AsyncEvents(connection)
        self.adapters, self.kv = AsyncAdapters(connection), AsyncKv(connection)

    def using(self, **options: Unpack[ClientOptions]) -> Self:
        """Return a client with other options that shares the connections; closing one closes both.

        Raises: InvalidInput.
        """
        other = type(self).__new__(type(self))
        other._share(self._connection.using(self._connection.options.changed(**options)))
        return other

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    add_message = sends(openmem.add_message)
    get_message = sends(openmem.get_message)
    search_memory = sends(openmem.search_memory)
    get_memory = sends(openmem.get_memory)
    get_memory_by_id = sends(openmem.get_memory_by_id)
    update_memory = sends(openmem.update_memory)
    delete_memory = sends(openmem.delete_memory)
    add_feedback = sends(openmem.add_feedback)
    get_task_status = sends(openmem.get_task_status)
    create_knowledgebase = sends(openmem.create_knowledgebase)
    delete_knowledgebase = sends(openmem.delete_knowledgebase)
    add_knowledgebase_file_json = sends(openmem.add_knowledgebase_file_json)
    add_knowledgebase_file_form = sends(openmem.add_knowledgebase_file_form)
    get_knowledgebase_file = sends(openmem.get_knowledgebase_file)
    delete_knowledgebase_file = sends(openmem.delete_knowledgebase_file)
    extract_memory = sends(openmem.extract_memory)
    rerank = sends(openmem.rerank)
    bind_profile_template = sends(openmem.bind_profile_template)
    edit_profile = sends(openmem.edit_profile)
    delete_profile = sends(openmem.delete_profile)
    chat = sends_chat(openmem.chat)
