"""Ask, see which arm and which boost put each memory where it is, and ask why another one is not there."""

import tempfile

from memos import MemOS

TALK = [
    ("Mira", "2024-03-04T18:00", "I finally signed up for the pottery course at the Kiln House."),
    ("Jon", "2024-03-04T18:01", "Nice! When does it start?"),
    ("Mira", "2024-03-04T18:02", "Next Tuesday, it runs for six weeks."),
    ("Jon", "2024-03-21T20:10", "How are the bowls coming along?"),
    ("Mira", "2024-03-21T20:12", "I broke two last week, but the blue one survived the oven."),
    ("Mira", "2024-03-21T20:15", "昨天我还买了新的陶土。"),
]

with tempfile.TemporaryDirectory() as folder, MemOS.open(folder) as memos:
    said = [{"role": "user", "name": who, "chat_time": at, "content": text} for who, at, text in TALK]
    ids = memos.add(said, conversation="mira and jon").item_ids

    question = "When did Mira's pottery course start?"
    for hit in memos.search(question, top_k=3, explain=True, reference_time="2024-04-01"):
        print(f"{hit.score:.3f}  relevance {hit.relevance:.2f}  {hit.sources[0].at:%Y-%m-%d}  {hit.sources[0].passage}")
        for vote in hit.arms:
            print(f"       {vote.arm:12} #{vote.rank:<3} gave {vote.gave:.3f}")
        for boost in hit.boosts:
            print(f"       {boost.name:12}      gave {boost.gave:+.3f}")

    started = memos.get(ids[2])
    print(f"'Next Tuesday' was read as {started.valid_from:%Y-%m-%d} up to {started.valid_to:%Y-%m-%d}.")

    why = memos.search.explain_missing(ids[4], question, top_k=1)
    print(f"The broken bowls are not there: {why.stage}, {why.reason}.")

    context = memos.search("What did Mira make and buy?", token_budget=60).context
    print(context)
