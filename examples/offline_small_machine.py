"""On a small machine without a network: no request leaves it, one thread, little memory, little disk."""

import resource
import socket
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memos import MemOS, Settings
from memos.core.settings import EmbedSettings, LimitSettings, TaskSettings

SETTINGS = Settings(
    embed=EmbedSettings(threads=1),
    tasks=TaskSettings(workers=1),
    limits=LimitSettings(min_free_bytes=50_000_000),  # a small disk: go on writing until 50 MB are left
)
CONNECT = socket.socket.connect
NOTES = [f"Sensor {number} in greenhouse {number % 7} reads {15 + number % 11} degrees." for number in range(200)]


def connect(this: socket.socket, address: Any) -> None:
    """Stand in for a machine without a network: connections to others fail."""
    if this.family != socket.AF_UNIX:
        raise OSError(f"no network here, but something called {address}")
    CONNECT(this, address)


def megabytes_of(folder: Path) -> float:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


def main(folder: Path) -> None:
    with patch.object(socket.socket, "connect", connect), MemOS.open(folder, settings=SETTINGS) as memos:
        memos.add([{"role": "user", "content": note} for note in NOTES], conversation="sensors")
        memos.add("The spare key of the greenhouse is under the red pot.", conversation="notes")
        memos.add("I water the tomatoes every second morning.", conversation="notes")
        for question in ("Where is the spare key?", "How often are the tomatoes watered?", "What does sensor 42 read?"):
            print(question, memos.search(question).hits[0].item.memory)
        print("clean:", memos.maintenance.verify().clean)

    # The embedding model is a part of the installation: 23 MB of int8 weights, run by the processor.
    kept = [resource.getrusage(who).ru_maxrss / 1000 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"memory: at most {kept[0]:.0f} MB, and {kept[1]:.0f} MB for the index")
    print(f"disk: {megabytes_of(folder):.0f} MB for {len(NOTES) + 2} memories")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
