"""A bot in a group chat: it knows who said what, and keeps the people of one chat apart."""

import tempfile

from memos import MemOS

CHAT = [
    ("Ana", "Who is in for dinner on Saturday?"),
    ("Ben", "Me! But I'm vegetarian, remember."),
    ("Chloé", "I'll come. I am allergic to peanuts, no satay please."),
    ("Dev", "I live in Leeds now, so I'll take the train at five."),
    ("Ana", "I live in York, you can sleep on my sofa, Dev."),
    ("Ben", "I'm bringing a lemon cake."),
    ("Chloé", "Ben, bring the chocolate cake instead, please!"),
    ("Ben", "OK, I'm bringing the chocolate cake, not the lemon one."),
    ("Dev", "My train leaves at six now, start without me."),
]


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        memos.cubes.create("dinner")
        for minute, (who, text) in enumerate(CHAT):
            said = {"role": "user", "name": who, "content": text, "chat_time": f"2026-05-04T18:{minute:02}"}
            memos.add([said], cube="dinner", conversation="group")

        for question in (
            "What must Chloé not eat?",
            "What must Ben not eat?",
            "Where does Dev live?",
            "Where does Ana live?",
            "Which cake does Ben bring?",
            "When does Dev's train leave?",
            "Where can Dev sleep?",
        ):
            hit = memos.search(question, cubes=["dinner"]).hits[0]
            print(f"{question:30} {hit.item.speaker}: {hit.item.memory}")

        # "I" is whoever asks: the bot knows the sender of each message.
        for who in ("Dev", "Ana"):
            mine = memos.search("Where do I live?", cubes=["dinner"], filter={"speaker": who}).hits[0]
            print(f"{who} asks where they live: {mine.item.memory}")

        print("\nFor the cook:")
        print(memos.search("allergies and diets of the guests", cubes=["dinner"], top_k=2, token_budget=150).context)
        print("\nWho is named:", sorted(each.name for each in memos.graph.entities(cube="dinner").entities))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
