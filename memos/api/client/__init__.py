"""Clients of a memstrata server: `MemOSClient`, which waits, and `AsyncMemOSClient`, whose methods are coroutines.

Importing them imports neither the server nor an engine. Both make the same requests: `openmem` and `own` describe them
and read the answers, `calls` says when one is sent again, `blocking` and `asynchronous` send.
"""

from memos.api.client.asynchronous import AsyncMemOSClient, AsyncStreamed
from memos.api.client.blocking import MemOSClient, Streamed
from memos.api.client.calls import Options

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
