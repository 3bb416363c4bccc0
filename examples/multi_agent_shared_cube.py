"""Two agents with a private cube each and one they share: a scout finds things out, a planner plans with them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from memos.api.client import MemOSClient
from memos.errors import NotFound, PermissionDenied


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Run `memos serve` on a free port; give its address and the admin's key, which it prints once."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--data-dir", folder]
        quiet = {**os.environ, "MEMOS_SERVER__LOG_LEVEL": "warning"}
        process = subprocess.Popen(command, env=quiet, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url, key = (process.stdout.readline().split()[-1] for _ in range(2))
            yield url, key
        finally:
            process.terminate()
            process.communicate()


def agent_key(admin: MemOSClient, name: str) -> str:
    """Make an agent; it gets a cube of its own under its name."""
    admin.users.create(name, kind="agent")
    secret = admin.keys.create(name, "example").secret
    assert secret is not None
    return secret


with server() as (url, key), MemOSClient(key, url) as admin:
    keys = agent_key(admin, "scout"), agent_key(admin, "planner")
    admin.cubes.create("expedition", description="what both need to know")
    admin.sharing.grant("expedition", "scout", "editor")
    admin.sharing.grant("expedition", "planner", "reader")

    with MemOSClient(keys[0], url) as scout, MemOSClient(keys[1], url) as planner:
        found = scout.memories.add("The north bridge is closed until May.", cube="expedition", tags=["route"])
        scout.memories.add("I doubt the ferryman's word.")  # into the scout's own cube
        planner.memories.add("Draft: leave in April, by the north bridge.")

        mine = planner.memories.search(
            "Can we use the north bridge?", cubes=["planner", "expedition"], token_budget=200
        )
        print(mine.context)
        assert {hit.item.cube for hit in mine} == {"planner", "expedition"}

        for what, call in (
            ("read what the scout keeps to itself", lambda: planner.memories.search("ferryman", cubes=["scout"])),
            ("write into the shared cube", lambda: planner.memories.add("Leave in June.", cube="expedition")),
        ):
            try:
                call()
            except (NotFound, PermissionDenied) as error:
                print(f"The planner may not {what}: {error}")

        scout.memories.update(found.item_ids[0], "The north bridge opens on 3 May.", expected_version=1)
        print("now:", planner.memories.search("north bridge", cubes=["expedition"])[0].item.memory)

        admin.sharing.revoke("expedition", "planner")
        print("the planner still sees", [cube.id for cube in planner.cubes.list()])

    for event in admin.events.list("expedition"):
        print(event.seq, event.actor, event.kind)
