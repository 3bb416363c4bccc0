"""A TCP proxy on loopback that can cut connections, refuse new ones and delay bytes, as a broken network does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self


class Proxy:
    """Passes bytes on to a port of this machine until it is `cut`."""

    def __init__(self, target: int) -> None:
        self.target = target
        """The port that new connections go to."""
        self.delay_s = 0.0
        """How long every piece of bytes is held up, both ways."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._broken = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Drop every connection, in the middle of whatever is sent, and every new one."""
        self._broken.set()
        self.drop()

    def drop(self) -> None:
        """Drop the connections there are; new ones are passed on."""
        with self._lock:
            victims, self._open = self._open, set()
        for victim in victims:
            with contextlib.suppress(OSError):
                victim.shutdown(socket.SHUT_RDWR)
            victim.close()

    def mend(self) -> None:
        """Pass new connections on again, without delay."""
        self._broken.clear()
        self.delay_s = 0.0

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._broken.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self.delay_s:
                    time.sleep(self.delay_s)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
