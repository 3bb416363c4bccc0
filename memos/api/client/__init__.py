"""Clients of a hippocube server: `MemOSClient`, which blocks, and `AsyncMemOSClient`, whose methods are coroutines.

Importing them imports neither the server nor a storage engine. Both send the same requests, which `openmem` and `v1_*`
describe; `calls` decides when one is sent again, and `blocking` and `asynchronous` send them.
"""

from memos.api.client.asynchronous import AsyncMemOSClient, AsyncStreamed
from memos.api.client.blocking import MemOSClient, Streamed
from memos.api.client.calls import Options

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
