"""Measure memory on your own data before you trust it: your questions, what is found, and where answers are lost."""

import tempfile

from memos import MemOS

# Yours: lines of a chat, notes, an export (see import_chat_export.py).
MEMORIES = [
    "I keep seven hives behind the old chapel.",
    "The queen of hive three is two years old.",
    "I sold forty jars of honey at the market in Arles.",
    "I'm allergic to penicillin, not to bees.",
    "My daughter Lou helps me on Sundays.",
    "The varroa treatment starts in August.",
    "I live in Fontvieille.",
    "Hive five swarmed on 3 May.",
    "The new extractor cost 480 euros.",
    "My neighbour Mr Roux lends me his trailer.",
]
# The best questions are those that people really asked; `contains` is text of the memory that answers.
QUESTIONS = [
    {"question": "How many hives do I have?", "contains": "seven hives"},
    {"question": "Which medicine can't I take?", "contains": "penicillin"},
    {"question": "Who helps with the bees?", "contains": "Lou"},
    {"question": "When do I treat against mites?", "contains": "varroa"},
    {"question": "What did the machine for extracting honey cost?", "contains": "480 euros"},
    {"question": "Whose trailer can I use?", "contains": "Mr Roux"},
    {"question": "Where is my home?", "contains": "Fontvieille"},
    {"question": "How old is the queen in hive 3?", "contains": "two years"},
]


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        for text in MEMORIES:
            memos.add(text)

        own = memos.evaluation.run(questions=QUESTIONS)
        print(f"own questions: {own.all.questions}, first hit {own.all.first:.2f}, among five {own.all.in_5:.2f}")
        for asked in own.questions:
            print(
                f"  {asked.place or '-':>2}  {asked.question}" + (f"  lost at {asked.lost_at}" if asked.lost_at else "")
            )
        print("answers that a `min_relevance` keeps:", dict(own.kept))

        made = memos.evaluation.run(sample=20)
        print(f"questions made from the memories: {made.all.questions}, first hit {made.all.first:.2f}")

        # After a change of yours, ask the same again: here the answers are buried under 200 other memories.
        memos.add([{"role": "user", "content": f"Order {n}: {n % 9 + 1} jars for shop {n % 13}."} for n in range(200)])
        again = memos.evaluation.run(questions=QUESTIONS)
        worse = [
            new.question for old, new in zip(own.questions, again.questions, strict=True) if new.place != old.place
        ]
        print(f"with 200 more memories: first hit {again.all.first:.2f}; another place for {worse or 'no question'}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
