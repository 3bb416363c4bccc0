"""Many coroutines on one asynchronous client, against a server that this program starts and ends."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from memos.api.client import AsyncMemOSClient
from memos.errors import PermissionDenied

ROOMS = {"kitchen": "The kettle is in the kitchen.", "cellar": "The wine is in the cellar.", "attic": "Bats live here."}


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Run `memos serve` on a free port; give its address and the admin's key, which it prints once."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--data-dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url, key = (process.stdout.readline().split()[-1] for _ in range(2))
            yield url, key
        finally:
            process.terminate()
            process.communicate()


async def main(url: str, key: str) -> None:
    async with AsyncMemOSClient(key, url) as client:
        await client.cubes.create("house", description="what is where")
        receipts = await asyncio.gather(
            *(client.memories.add(text, cube="house", tags=[room]) for room, text in ROOMS.items())
        )
        questions = ["Where is the kettle?", "Where is the wine?"]
        for question, found in zip(
            questions,
            await asyncio.gather(*(client.memories.search(q, cubes=["house"]) for q in questions)),
            strict=True,
        ):
            print(f"{question}  {found[0].item.memory}")

        item = receipts[0].item_ids[0]
        await client.memories.update(item, "The kettle is in the garden.", expected_version=1)
        print("history:", [version.after.memory for version in await client.memories.history(item)])

        read = await client.memories.add("I work as a beekeeper.", cube="house", mode="fine", conversation="monday")
        assert read.task is not None
        async for task in await client.tasks.follow(read.task):
            print("task:", task.kind, task.state)

        guest = await client.users.create("guest")
        made = await client.keys.create(guest.id, "visit")
        assert made.secret is not None
        async with AsyncMemOSClient(made.secret, url) as visitor:
            await client.sharing.grant("house", guest.id)
            print("the guest sees", [cube.id for cube in await visitor.cubes.list()])
            try:
                await visitor.memories.add("I was here.", cube="house")
            except PermissionDenied as error:
                print(error.status, error)

        erased = await client.memories.erase([item])
        print("erased:", erased.state)


with server() as started:
    asyncio.run(main(*started))
