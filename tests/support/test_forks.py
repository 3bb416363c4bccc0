"""The processes that others are forked from outlive whoever asks them."""

from __future__ import annotations

import json
import socket

from tests.support import forks


def test_who_is_killed_while_it_asks_ends_nothing_for_others() -> None:
    request = json.dumps({"command": ["--version"], "env": {}}).encode()
    for said in (b"", request, b"") * 5:
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asking.connect(forks._programs())
        if said:
            asking.send(said)
        asking.close()
    assert forks.command(["--version"]).returncode == 0
