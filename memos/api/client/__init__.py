"""Clients of a hippocube server: `MemOSClient`, which blocks, and `AsyncMemOSClient`, whose methods are coroutines.

Importing them imports neither the server nor a storage engine. Both send the same requests, which `openmem` and `v1_*`
describe; `calls` decides when one is sent again, and `connections` sends them.
"""

from memos.api.client.calls import Options
from memos.api.client.clients import AsyncMemOSClient, MemOSClient
from memos.api.client.connections import AsyncStreamed, Streamed

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
