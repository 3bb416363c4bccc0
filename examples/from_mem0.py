"""Move from mem0: take its memories along, and keep the program's calls."""

import json
import tempfile
from pathlib import Path

from memos import MemOS
from memos.compat.mem0 import Memory  # was: from mem0 import Memory
from memos.kernel.importing import import_export

# What `json.dump(memory.get_all(filters={"user_id": "ana"}), file)` wrote in the old program.
OLD = {
    "results": [
        {
            "id": "0b7c4a52-7f0e-4a57-9c55-6f0f6a3a5e01",
            "memory": "Allergic to nuts",
            "hash": "a1",
            "metadata": {"category": "health"},
            "created_at": "2026-03-02T09:00:00+00:00",
            "updated_at": None,
            "user_id": "ana",
        },
        {
            "id": "0b7c4a52-7f0e-4a57-9c55-6f0f6a3a5e02",
            "memory": "Lives in Lyon",
            "hash": "a2",
            "metadata": None,
            "created_at": "2026-03-05T09:00:00+00:00",
            "updated_at": None,
            "user_id": "ana",
        },
    ]
}


def main(folder: Path) -> None:
    export = folder / "mem0.json"
    export.write_text(json.dumps(OLD))
    with MemOS.open(folder / "memory") as memos:
        memos.users.create("ana")
        for attempt in ("first", "second"):  # import as often as you like while the old program still runs
            done = import_export(memos, export, cube="ana", owner="ana")
            print(f"{attempt} time ({done.format}): {done.added} added, {done.known} known")

        with Memory(memos=memos) as memory:  # from here on, mem0's own calls
            memory.add("I moved to Bergen in October.", user_id="ana", metadata={"category": "home"})
            for question in ("Where does Ana live?", "What is Ana allergic to?"):
                best = memory.search(question, filters={"user_id": "ana"})["results"][0]
                print(f"{question} {best['memory']}")
            health = memory.get_all(filters={"user_id": "ana", "category": "health"})["results"]
            print("health:", [(each["memory"], each["created_at"][:10]) for each in health])
            memory.update(health[0]["id"], "Allergic to hazelnuts")
            print("history:", [each["new_memory"] for each in memory.history(health[0]["id"])])

        # What held before is still there, with its source.
        for hit in memos.search("Where did Ana live before?", cubes=["ana"], top_k=1):
            print(f"before: {hit.item.memory} (said on {hit.sources[0].at:%d %B %Y})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
