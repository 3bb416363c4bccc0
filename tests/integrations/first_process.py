"""The first of two processes, which learns. Give a module of tests, users by class, a folder, a server and its key."""

from __future__ import annotations

import importlib
import json
import sys

from memos import MemOS
from memos.api.client import MemOSClient
from memos.integrations import AgentMemory
from tests.integrations.contract import FACT, Ask

module, users, home, url, key = sys.argv[1:]
tests = importlib.import_module(module)
with MemOS.open(home) as memos, MemOSClient(key, url) as client:
    for over in (memos, client):
        with AgentMemory(over, timeout_s=60, fail_open=False) as memory:
            for name, user in json.loads(users).items():
                getattr(tests, name)().turn(memory, Ask(user, FACT))
