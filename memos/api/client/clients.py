"""`MemOSClient`: every request a client can make, as a method that waits for the answer."""

from __future__ import annotations

from typing import Self, Unpack

from memos.api.client import openmem
from memos.api.client.address import Choices, Options, address_of
from memos.api.client.blocking import Connection, sends, sends_chat
from memos.api.client.parts import Adapters, Cubes, Events, Keys, Kv, Memories, Sharing, Tasks, Users


class MemOSClient:
    """A client of a memstrata server; thread-safe. Close it, or use it as a context manager.

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
        self._share(Connection.to(address_of(api_key, base_url, is_global), Options().changed(**options)))

    def _share(self, connection: Connection) -> None:
        self._connection = connection
        self.memories, self.cubes, self.sharing = Memories(connection), Cubes(connection), Sharing(connection)
        self.users, self.keys = Users(connection), Keys(connection)
        self.tasks, self.events, self.adapters = Tasks(connection), Events(connection), Adapters(connection)
        self.kv = Kv(connection)

    def using(self, **options: Unpack[Choices]) -> Self:
        """Return this client with other options for the calls made through it; closing one closes both.

        Raises: InvalidInput.
        """
        other = type(self).__new__(type(self))
        other._share(self._connection.using(self._connection.options.changed(**options)))
        return other

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
