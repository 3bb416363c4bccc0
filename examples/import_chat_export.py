"""Read a chat export into a cube, twice: the second time nothing is added."""

import tempfile
from pathlib import Path

from memos import MemOS
from memos.importing import import_export

EXPORTS = Path(__file__).parent / "data"

with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
    for name in ("chat_export.json", "chat_export.jsonl"):
        for attempt in ("first", "second"):
            summary = import_export(memos, EXPORTS / name, cube="default", on_bad="skip")
            print(f"{name}, {attempt} time: {summary.added} added, {summary.known} known, {len(summary.bad)} bad")
    for hit in memos.search("What was decided about the trip?", top_k=3):
        print(f"{hit.sources[0].at:%Y-%m-%d} {hit.item.speaker}: {hit.sources[0].passage[:80]}")
