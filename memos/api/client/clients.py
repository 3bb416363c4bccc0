"""`MemOSClient` and `AsyncMemOSClient`, with the requests that `openmem` and `v1_*` describe once for both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from memos.api.client import openmem, v1_cubes, v1_graph, v1_models, v1_records, v1_requests, v1_subjects, values
from memos.api.client.calls import Call, ClientOptions, Download, Options, Stream, Waiting, address_of
from memos.api.client.connections import AsyncConnection, AsyncStreamed, Connection, Streamed
from memos.core.aliases import bind, own_signature
from memos.core.closing import Closing

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", Connection, AsyncConnection)

_STREAM = "Stream["
_DESCRIBED = ("Call[", _STREAM, "Waiting[", "Download[")


class _Holder(Protocol[C]):
    _connection: C


class _Method(Generic[P, T, A]):
    """A method made of a description: it returns T, or is a coroutine function of A on an asynchronous connection."""

    def __init__(self, describe: Callable[P, Any]) -> None:
        signature = own_signature(describe)

        def described(*given: P.args, **named: P.kwargs) -> Any:
            bound: Any = bind(signature, given, named)
            return describe(*bound.args, **bound.kwargs)

        def waiting(self: _Holder[Connection], /, *given: P.args, **named: P.kwargs) -> Any:
            return self._connection.do(described(*given, **named))

        async def coroutine(self: _Holder[AsyncConnection], /, *given: P.args, **named: P.kwargs) -> Any:
            return await self._connection.do(described(*given, **named))

        self._waiting, self._coroutine = waiting, coroutine
        for method in (waiting, coroutine):
            _describe(method, describe)

    @overload
    def __get__(self, holder: _Holder[Connection], owner: type | None = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, holder: _Holder[AsyncConnection], owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, A]]: ...
    @overload
    def __get__(self, holder: None, owner: type | None = None) -> Callable[..., Any]: ...
    def __get__(self, holder: Any, owner: type | None = None) -> Any:
        if holder is None:
            return self._coroutine if owner is not None and issubclass(owner, AsyncMemOSClient) else self._waiting
        chosen = self._coroutine if isinstance(holder._connection, AsyncConnection) else self._waiting
        return MethodType(chosen, holder)


def _describe(method: Callable[..., Any], described: Callable[..., Any]) -> None:
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
    inner = described.removeprefix(kind).removesuffix("]").replace("values.", "")
    return f"Iterator[{inner}]" if kind == _STREAM else inner


def sends(describe: Callable[P, Call[T] | Waiting[T] | Download[T]]) -> _Method[P, T, T]:
    """Return the method that sends the request a function describes, and returns its result."""
    return _Method(describe)


def streams(describe: Callable[P, Stream[T]]) -> _Method[P, Streamed[T], AsyncStreamed[T]]:
    """Return the method that sends such a request, and returns the values that the server streams."""
    return _Method(describe)


def chats(
    describe: Callable[P, Call[values.ChatAnswer] | Stream[str]],
) -> _Method[P, values.ChatAnswer | Streamed[str], values.ChatAnswer | AsyncStreamed[str]]:
    """Return the method that sends a chat, which is streamed if its parameters say so."""
    return _Method(describe)


class Part(Generic[C]):
    """A part of a client, named as the service of `MemOS` that answers it."""

    def __init__(self, connection: C) -> None:
        self._connection: C = connection


class Memories(Part[C]):
    """Memories, one at a time."""

    add = sends(v1_requests.add)
    search = sends(v1_requests.search)
    feedback = sends(v1_requests.feedback)
    get = sends(v1_requests.get)
    list = sends(v1_requests.list_)
    facets = sends(v1_requests.facets)
    update = sends(v1_requests.update)
    delete = sends(v1_requests.delete)
    history = sends(v1_requests.history)
    relations = sends(v1_requests.relations)
    rollback = sends(v1_requests.rollback)
    erase = purge = sends(v1_requests.erase)
    preview_erasure = sends(v1_requests.preview_erasure)
    erase_matching = sends(v1_requests.erase_matching)
    erase_receipt = sends(v1_requests.erase_receipt)


class Records(Part[C]):
    """Records: memories with an id of the caller's."""

    put = sends(v1_records.put)
    put_many = sends(v1_records.put_many)
    get = sends(v1_records.get)
    get_many = sends(v1_records.get_many)
    delete = sends(v1_records.delete)
    delete_many = sends(v1_records.delete_many)
    list = sends(v1_records.list_)
    search = sends(v1_records.search)
    prefixes = sends(v1_records.prefixes)
    history = sends(v1_records.history)


class Review(Part[C]):
    """Corrections in doubt, and decisions on them."""

    relations = sends(v1_requests.doubtful_relations)
    decide = sends(v1_requests.decide)
    reopen = sends(v1_requests.reopen)
    merge = sends(v1_requests.merge)


class Graph(Part[C]):
    """People and things that memories name, their relations, and names that are the same."""

    view = sends(v1_graph.view)
    entities = sends(v1_graph.entities)
    entity = sends(v1_graph.entity)
    neighbours = sends(v1_graph.neighbours)
    aliases = sends(v1_graph.aliases)
    merge = sends(v1_graph.merge)
    split = sends(v1_graph.split)


class Timeline(Part[C]):
    """A cube on other days. A date without a time means its end, in the cube's time zone."""

    span = sends(v1_graph.span)
    day = sends(v1_graph.day)
    difference = sends(v1_graph.difference)
    life = sends(v1_graph.life)


class Cubes(Part[C]):
    """The cubes of an installation."""

    create = sends(v1_cubes.create_cube)
    list = sends(v1_cubes.list_cubes)
    get = sends(v1_cubes.get_cube)
    change = sends(v1_cubes.change_cube)
    drop = sends(v1_cubes.drop_cube)
    dump = sends(v1_cubes.dump_cube)
    load = sends(v1_cubes.load_cube)
    inspect = sends(v1_cubes.inspect_dump)


class Imports(Part[C]):
    """Imports of chat exports."""

    run = sends(v1_cubes.run_import)
    preview = sends(v1_cubes.preview_import)


class Backups(Part[C]):
    """Backups of the installation, for admins."""

    list = sends(v1_cubes.list_backups)
    create = sends(v1_cubes.create_backup)


class Sharing(Part[C]):
    """Roles on cubes."""

    grant = sends(v1_cubes.grant)
    revoke = sends(v1_cubes.revoke)
    grants = sends(v1_cubes.grants)
    transfer = sends(v1_cubes.transfer)


class Users(Part[C]):
    """Users, agents and groups."""

    me = sends(v1_cubes.me)
    create = sends(v1_cubes.create_user)
    list = sends(v1_cubes.list_users)
    get = sends(v1_cubes.get_user)
    enable = sends(v1_cubes.enable_user)
    offboard = sends(v1_cubes.offboard_user)
    members = sends(v1_cubes.members)
    join = sends(v1_cubes.join)
    leave = sends(v1_cubes.leave)


class Keys(Part[C]):
    """Keys of users and agents."""

    create = sends(v1_cubes.create_key)
    list = sends(v1_cubes.list_keys)
    limit = sends(v1_cubes.limit_key)
    rotate = sends(v1_cubes.rotate_key)
    revoke = sends(v1_cubes.revoke_key)
    used = sends(v1_cubes.key_usage)


class Erasures(Part[C]):
    """Proofs of erasures."""

    verify = sends(v1_subjects.verify_receipt)


class Subjects(Part[C]):
    """Preview, export and forget the memories about a person."""

    preview = sends(v1_subjects.preview_subject)
    export = sends(v1_subjects.export_subject)
    forget = sends(v1_subjects.forget_subject)


class Audit(Part[C]):
    """Who did what when."""

    list = sends(v1_cubes.list_audit)
    verify = sends(v1_cubes.verify_audit)
    records_reads = sends(v1_cubes.records_reads)
    record_reads = sends(v1_cubes.record_reads)


class Tasks(Part[C]):
    """Background tasks."""

    list = sends(v1_requests.list_tasks)
    get = sends(v1_requests.get_task)
    retry = sends(v1_requests.retry_task)
    cancel = sends(v1_requests.cancel_task)
    wait = sends(v1_requests.wait_task)
    follow = streams(v1_requests.follow_task)


class Events(Part[C]):
    """The event log of cubes."""

    list = sends(v1_requests.list_events)
    follow = streams(v1_requests.follow_events)


class Adapters(Part[C]):
    """Adapters trained on cubes by a model in the server."""

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


class Kv(Part[C]):
    """Prompt prefixes of cubes, and the key-value caches that models in the server keep of them."""

    show = sends(v1_models.show_prefix)
    compose = sends(v1_models.compose_prefix)
    warm = sends(v1_models.warm_prefix)
    measure = sends(v1_models.measure_first_token)
    drop = sends(v1_models.drop_kv)
    stats = sends(v1_models.kv_stats)
    verify = sends(v1_models.verify_kv)


class _Client(Generic[C]):
    """Common base of the blocking and the asynchronous client."""

    _connection: C
    _connect: Any

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        is_global: str | bool = "false",
        **options: Unpack[ClientOptions],
    ) -> None:
        self._share(self._connect(address_of(api_key, base_url, is_global), Options().changed(**options)))

    def _share(self, connection: C) -> None:
        self._connection = connection
        self.memories: Memories[C] = Memories(connection)
        self.records: Records[C] = Records(connection)
        self.review: Review[C] = Review(connection)
        self.graph: Graph[C] = Graph(connection)
        self.timeline: Timeline[C] = Timeline(connection)
        self.cubes: Cubes[C] = Cubes(connection)
        self.imports: Imports[C] = Imports(connection)
        self.backups: Backups[C] = Backups(connection)
        self.sharing: Sharing[C] = Sharing(connection)
        self.users: Users[C] = Users(connection)
        self.keys: Keys[C] = Keys(connection)
        self.erasures: Erasures[C] = Erasures(connection)
        self.subjects: Subjects[C] = Subjects(connection)
        self.audit: Audit[C] = Audit(connection)
        self.tasks: Tasks[C] = Tasks(connection)
        self.events: Events[C] = Events(connection)
        self.adapters: Adapters[C] = Adapters(connection)
        self.kv: Kv[C] = Kv(connection)

    def using(self, **options: Unpack[ClientOptions]) -> Self:
        """Return a client with other options on the same connections; closing one closes both. Raises: InvalidInput."""
        other = type(self).__new__(type(self))
        other._share(self._connection.using(self._connection.options.changed(**options)))
        return other

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
    chat = chats(openmem.chat)


class MemOSClient(_Client[Connection], Closing):
    """A client of a hippocube server; thread-safe. Close it, or use it as a context manager.

    Args:
        api_key: Key; default: `MEMOS_API_KEY`.
        base_url: Server, with or without `/api/openmem/v1`; default: `MEMOS_BASE_URL`, else the local server.
        is_global: Accepted for old programs; must be false.
        **options: Options of all calls, as in `using`.

    Raises:
        InvalidInput: An argument is invalid, or no API key was given.
    """

    _connect = Connection.to

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


class AsyncMemOSClient(_Client[AsyncConnection]):
    """A `MemOSClient` for one event loop, whose methods are coroutines. Close it, or use it with `async with`."""

    _connect = AsyncConnection.to

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
