"""Meeting notes: who said what, what was decided, who promised what, and what a later meeting changed."""

import tempfile

from memos import MemOS

KICK_OFF = """
Priya: The launch is on 3 March.
Tom: I will write the press release by Friday.
Priya: The budget is 40,000 euros.
Lena: I'm worried about the payment provider, their sandbox was down twice this week.
Tom: I'll ask them for a second account.
Lena: Let's not ship dark mode in the first version.
"""
REVIEW = """
Priya: The launch is on 17 March now, because legal needs two more weeks.
Tom: The press release is written, it's with Lena for review.
Lena: The payment provider gave us a second account, that works.
Priya: Remember that nobody announces anything before legal agrees.
"""


def messages(notes: str, day: str) -> list[dict[str, str]]:
    """Return a message for each line; a speech-to-text tool with speakers gives you the same."""
    lines = (line.partition(": ") for line in notes.strip().splitlines())
    return [{"role": "user", "name": who, "content": said, "chat_time": day} for who, _, said in lines]


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        memos.cubes.create("launch", description="meetings about the launch", time_zone="Europe/Berlin")
        memos.add(messages(KICK_OFF, "2026-02-02T10:00"), cube="launch", conversation="kick-off", tags=["meeting"])
        memos.add(messages(REVIEW, "2026-02-16T10:00"), cube="launch", conversation="review", tags=["meeting"])

        for question in (
            "When is the launch?",
            "When was the launch planned before?",
            "Who writes the press release?",
            "What did Lena worry about?",
            "What is our budget?",
            "Does the first version have dark mode?",
        ):
            hit = memos.search(question, cubes=["launch"], reference_time="2026-02-20").hits[0]
            source = hit.sources[0]
            print(f"{question:40} {source.speaker}, {source.at:%d %b}: {hit.item.memory}")

        print("\nWhat Tom said:")
        for item in memos.memories.list(cube="launch", filter={"speaker": "Tom"}, sort="said_at"):
            print("  ", item.memory)

        print("\nChanged since the kick-off:")
        for change in memos.timeline.difference("2026-02-02", "2026-02-16", cube="launch").replaced:
            print(f"   {change.item.memory}  ->  {change.by.memory}")

        print("\nFor the invitation to the next meeting:")
        print(memos.search("launch date and open risks", cubes=["launch"], token_budget=120).context)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
