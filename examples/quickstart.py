"""Remember, find, correct and forget, in a folder that is gone afterwards."""

import tempfile

from memos import MemOS

with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
    memos.cubes.create("alice")
    receipt = memos.add(
        [
            {"role": "user", "name": "Alice", "content": "I live in Paris."},
            {"role": "user", "name": "Alice", "content": "I'm allergic to peanuts."},
            {"role": "assistant", "content": "Noted: no peanuts."},
        ],
        cube="alice",
        conversation="monday",
    )
    for hit in memos.search("What must she not eat?", cubes=["alice"], top_k=2):
        print(f"{hit.score:.3f}  {hit.item.speaker}: {hit.sources[0].passage}")

    correction = memos.feedback("No, I moved to Lyon in May.", cube="alice", speaker="Alice")
    print("superseded:", correction.superseded)
    for entry in memos.memories.history(receipt.item_ids[0]):
        print(f"v{entry.version} {entry.reason}: {entry.after.status}")

    erased = memos.erase(receipt.item_ids[2])
    print("erased:", erased.state, dict(erased.stores))
    print("verify clean:", memos.maintenance.verify().clean)
