"""Clients of a memstrata server: `MemOSClient`, which waits, and `AsyncMemOSClient`, whose methods are coroutines.

Importing them imports neither the server nor an engine. Both make the same requests: `openmem` and `own` describe them
and read the answers, `calls` says when one is sent again, `blocking` and `asynchronous` send.
"""

from memos.api.client.address import Options
from memos.api.client.asynchronous import AsyncStreamed
from memos.api.client.blocking import Streamed
from memos.api.client.clients import MemOSClient
from memos.api.client.clients_async import AsyncMemOSClient

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
