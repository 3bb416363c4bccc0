"""Clients of a hippocube server: `MemOSClient`, which blocks, and `AsyncMemOSClient`, whose methods are coroutines.

Importing them imports neither the server nor a storage engine. Both send the same requests, which `openmem` and `v1_*`
describe; `calls` decides when one is sent again, and `blocking` and `asynchronous` send them.
"""

from memos.api.client.asynchronous import AsyncStreamed
from memos.api.client.blocking import Streamed
from memos.api.client.calls import Options
from memos.api.client.clients import AsyncMemOSClient, MemOSClient

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
