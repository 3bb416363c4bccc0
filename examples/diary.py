"""A personal diary on your own disk: what holds now, what held then, what changed, and what shall be forgotten."""

import tempfile
from pathlib import Path

from memos import MemOS

ENTRIES = {
    "2026-01-05": "Today I started cello lessons with Mrs Novak.",
    "2026-02-14": "Dinner with Sam at Casa Lucio, the best tortilla of my life.",
    "2026-03-01": "I live in Madrid now, in a flat with a green door.",
    "2026-05-02": "I ran ten kilometres in 58 minutes.",
    "2026-06-11": "I moved to Valencia. The sea at last!",
    "2026-08-30": "I ran ten kilometres in 51 minutes, faster than ever.",
    "2026-09-14": "Sam and I broke up.",
    "2026-10-03": "Mrs Novak has retired, my cello teacher is Pablo now.",
}
TODAY = "2026-11-01"


def main(folder: Path) -> None:
    with MemOS.open(folder / "diary") as memos:
        for day, text in ENTRIES.items():
            memos.add([{"role": "user", "content": text, "chat_time": f"{day}T21:00"}], conversation=day)

        for question in (
            "Where do I live?",
            "Where did I live in April?",
            "Where did I live before Valencia?",
            "Who is my cello teacher?",
            "Who was my cello teacher before Pablo?",
            "How fast do I run ten kilometres?",
            "How fast was I in May?",
            "Am I still with Sam?",
            "What did I do in February?",
        ):
            hit = memos.search(question, reference_time=TODAY).hits[0]
            print(f"{question:39} {hit.sources[0].at:%d %b}: {hit.item.memory}")

        print("\nWhat changed between May and October:")
        for change in memos.timeline.difference("2026-05-01", "2026-10-31").replaced:
            print(f"  {change.item.memory}  ->  {change.by.memory}")

        forgotten = memos.search("the tortilla at Casa Lucio").hits[0].item.id
        print("\nerased:", memos.erase(forgotten).state)
        print("left:", memos.search("Casa Lucio", min_relevance=0.03).hits)

        copy = memos.transfer.dump("default", folder / "diary.memcube")  # passphrase=… seals it (extra `sealing`)
        print("a copy to keep elsewhere:", copy.counts["items"], "memories")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
