"""`AsyncMemOSClient`: every request a client can make, as a coroutine."""

from __future__ import annotations

from typing import Self, Unpack

from memos.api.client import openmem
from memos.api.client.address import Choices, Options, address_of
from memos.api.client.asynchronous import AsyncConnection, sends, sends_chat
from memos.api.client.parts_async import (
    AsyncAdapters,
    AsyncCubes,
    AsyncEvents,
    AsyncKeys,
    AsyncKv,
    AsyncMemories,
    AsyncSharing,
    AsyncTasks,
    AsyncUsers,
)


class AsyncMemOSClient:
    """A client of a memstrata server for one event loop. Close it, or use it with `async with`.

    `base_url` may name `/api/openmem/v1` or only the server; without it `MEMOS_BASE_URL` says it, else it is the local
    server. Without `api_key` it is that of `MEMOS_API_KEY`. `is_global` is taken from old programs and must be false.
    Raises: InvalidInput.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        is_global: str | bool = "false",
        **options: Unpack[Choices],
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

    def using(self, **options: Unpack[Choices]) -> Self:
        """Return this client with other options for the calls made through it; closing one closes both.

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
