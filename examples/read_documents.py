"""Read documents into a knowledge base, and ask it together with what was said."""

import tempfile
from pathlib import Path

from memos import MemOS

MANUAL = """# Pump P-12

## Safety

Wear gloves near the impeller, and close the inlet valve first.

## Spare parts

| part | number | price |
| --- | --- | --- |
| seal | S-77 | 12 EUR |
| bearing | B-03 | 48 EUR |
"""
PRICES = "part,price\nseal,14 EUR\nbearing,51 EUR\n"

with tempfile.TemporaryDirectory() as folder, MemOS.open(Path(folder) / "memory") as memos:
    memos.add("The seal of my pump leaks again.")
    memos.knowledge.create("manuals", "manuals of our machines")

    # A path or a name with bytes; kept when `add` returns, read in the background.
    path = Path(folder) / "pump.md"
    path.write_text(MANUAL, encoding="utf-8")
    added = [memos.knowledge.add("manuals", file) for file in (path, ("prices.csv", PRICES.encode()))]
    for file in added:
        read = memos.documents.wait(file.id, timeout_s=60)
        print(f"{read.name}: {read.state}, {read.info['passages']} passages")

    for hit in memos.search("What does a new seal cost?", cubes=["default", "manuals"], top_k=4):
        place = " > ".join([hit.item.speaker, *hit.item.info.get("path", [])])
        print(f"{hit.relevance:.2f}  {hit.item.cube}  {place}  {hit.sources[0].passage[:60]!r}")

    # The same bytes again change nothing; new ones of the same name take the place of the old.
    assert memos.knowledge.add("manuals", path).id == added[0].id
    newer = memos.knowledge.add("manuals", ("prices.csv", PRICES.replace("14", "15").encode()))
    memos.documents.wait(newer.id, timeout_s=60)
    for file in memos.knowledge.files("manuals"):
        print(f"{file.name}: {file.state}")

    # What cannot be read says why.
    broken = memos.knowledge.add("manuals", ("photo.pdf", b"\x89PNG\r\n\x1a\n" + bytes(100)))
    print("photo.pdf:", memos.documents.wait(broken.id, timeout_s=60).error)

    memos.knowledge.delete("manuals", newer.id)
    print("verify clean:", memos.maintenance.verify().clean)
    print("dropped:", memos.knowledge.drop("manuals").state)
