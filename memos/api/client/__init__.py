"""`MemOSClient` and `AsyncMemOSClient`; importing them imports neither the server nor a storage engine."""

from memos.api.client.calls import Options
from memos.api.client.clients import AsyncMemOSClient, MemOSClient
from memos.api.client.connections import AsyncStreamed, Streamed

__all__ = ["AsyncMemOSClient", "AsyncStreamed", "MemOSClient", "Options", "Streamed"]
