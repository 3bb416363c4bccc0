"""A program written for the public `MemOSClient`, unchanged, with its own server: only the address is another.

The package `MemoryOS` has the import name of this one, so it lives in another environment:

    python -m venv other && other/bin/pip install MemoryOS==2.0.33
    EXAMPLE_CLIENT_PYTHON=other/bin/python python examples/existing_memos_client.py

Without it the same program runs with the client of this package, which has the same methods.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
from memos.api.client import MemOSClient

client = MemOSClient(api_key=sys.argv[1], base_url=sys.argv[2])
added = client.add_message(
    messages=[
        {"role": "user", "content": "I moved to Lyon in May, and I like green tea."},
        {"role": "assistant", "content": "Noted!"},
    ],
    user_id="ana",
    conversation_id="hello",
    async_mode=False,
)
print("add:", added.success, added.status)
print("task:", client.get_task_status(task_id=added.task_id).data.status)
found = client.search_memory(query="Where does she live, and what does she drink?", user_id="ana")
print("memory:", found.memories[0].memory_value)
print("preference:", found.preferences[0].preference)
client.add_feedback(user_id="ana", conversation_id="hello", feedback_content="No, I live in Oslo now.")
print("then:", client.search_memory(query="Where does she live?", user_id="ana").memories[0].memory_value)
"""


def main() -> None:
    other = os.environ.get("EXAMPLE_CLIENT_PYTHON")
    if other is None:
        print("EXAMPLE_CLIENT_PYTHON names no Python with the package MemoryOS: this package's own client is used.")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "memos", "serve", "--port", "0", "--data-dir", str(Path(folder) / "data")]
        # Its log is left aside here.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                url, key = (next(server.stdout).split()[-1] for _ in range(2))
                # Apart from this environment's paths, where the other package's name is this one's.
                python = [sys.executable] if other is None else [str(Path(other).absolute()), "-I"]
                arguments = [*python, "-c", PROGRAM, key, f"{url}/api/openmem/v1"]
                subprocess.run(arguments, cwd=folder, check=True)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
