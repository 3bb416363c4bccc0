"""A server of an open installation on a free loopback port, in a thread, for clients that need a real one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from memos import MemOS
from memos.api.app import create_app


@contextmanager
def running(memos: MemOS, local_token: str = "local-token", port: int = 0) -> Iterator[str]:
    """Yield the URL of a server; requests made before it has started wait in its queue."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        config = uvicorn.Config(create_app(memos, local_token=local_token), log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
