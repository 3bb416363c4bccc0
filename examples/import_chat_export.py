"""Read chat exports into a cube, each twice: the format is recognised, and the second time nothing is added."""

import tempfile
from pathlib import Path

from memos import MemOS
from memos.kernel.importing import import_export

EXPORTS = Path(__file__).parent / "data"

with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
    for name in ("chat_export.json", "chat_export.jsonl", "chatgpt_conversations.json"):
        for attempt in ("first", "second"):
            summary = import_export(memos, EXPORTS / name, cube="default", on_bad="skip")
            print(f"{name} ({summary.format}), {attempt} time: {summary.added} added, {summary.known} known")
            print(f"  {summary.left_out} left out, {summary.out_of_order} out of order, {len(summary.bad)} bad")
            for record in summary.bad:
                print(f"  {record.place} {record.problem}")
    for hit in memos.search("Which train was booked?", top_k=3):
        print(f"{hit.sources[0].at:%Y-%m-%d} {hit.item.speaker}: {hit.sources[0].passage[:80]}")
