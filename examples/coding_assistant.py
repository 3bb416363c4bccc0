"""A coding assistant that knows the project: conventions, decisions and what they replaced.

`prompt` builds what your own model would be given. Nothing here asks a model.
"""

import tempfile

from memos import MemOS

SESSIONS = {
    "monday": [
        "Always run ruff before you commit.",
        "Never use print in library code, use the logger.",
        "Our database is SQLite, since the app runs on one machine.",
        "The test for invoices was flaky because a fixture had no time zone.",
    ],
    "thursday": ["Our database is PostgreSQL now, because two workers write at the same time."],
    "friday": ["Staging is deployed from the branch release, production by a tag."],
}


def prompt(memos: MemOS, task: str) -> str:
    """Return what a model is told before a task: what is known about it, dated, within 200 tokens."""
    return memos.search(task, cubes=["webshop"], top_k=2, min_relevance=0.2, token_budget=200).context


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        memos.cubes.create("webshop", description="the web shop's repository")
        for session, said in SESSIONS.items():
            for text in said:
                memos.add(text, cube="webshop", conversation=session)

        for task in (
            "Write the migration for our database.",
            "Commit the change.",
            "The invoice test fails sometimes, why?",
            "How do I deploy to production?",
        ):
            print(f"# {task}\n{prompt(memos, task)}\n")

        # What held before is kept, and found by who asks for it.
        now, before = "Which database do we use?", "Which database did we use before PostgreSQL?"
        for question in (now, before):
            hit = memos.search(question, cubes=["webshop"]).hits[0]
            print(f"{question} {hit.item.memory} ({hit.standing})")

        # The developer takes a rule back in plain words.
        receipt = memos.feedback("Forget the rule about print in library code.", cube="webshop")
        print(f"feedback: {receipt.outcome}: {receipt.forgotten}")
        print([item.memory for item in memos.memories.list(cube="webshop") if "print" in item.memory])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
