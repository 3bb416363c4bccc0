"""A support agent for two customers: each has a memory of its own, and neither ever sees the other's.

Put your own language model into `answer`. When a customer leaves, everything of theirs is erased, with a receipt.
"""

import tempfile

from memos import MemOS
from memos.errors import NotFound


def answer(question: str, context: str) -> str:
    """Answer a customer's question. Here is the place for your own model: give it the question and the context."""
    return f"{question}\n{context}"


def ask(memos: MemOS, customer: str, question: str, ticket: str) -> None:
    """Answer a question from what this customer told us before, and remember that it was asked."""
    found = memos.search(question, cubes=[customer], actor=customer, top_k=3, min_relevance=0.1, token_budget=200)
    print(f"[{customer}] {answer(question, found.context or '(nothing is known: ask back)')}\n")
    memos.add(question, cube=customer, actor=customer, conversation=ticket)


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        # Each customer is a user, who gets a cube of the same name. `actor` says on whose behalf a call is made.
        memos.users.create("acme")
        memos.users.create("globex")

        memos.add("Our plan is Business with 40 seats.", cube="acme", actor="acme", conversation="ticket 1")
        memos.add("We print on a LaserMax P-200 in Lyon.", cube="acme", actor="acme", conversation="ticket 2")
        memos.add(
            [
                {"role": "user", "content": "Since the update to firmware 2.4 every page comes out blank."},
                {"role": "assistant", "content": "Please go back to firmware 2.3; 2.4 has a fault on the P-200."},
                {"role": "user", "content": "That worked, thanks!"},
            ],
            cube="acme",
            actor="acme",
            conversation="ticket 2",
        )
        memos.add("Our plan is Starter with 5 seats.", cube="globex", actor="globex", conversation="ticket 1")
        memos.add("We have upgraded, our plan has 60 seats now.", cube="acme", actor="acme", conversation="ticket 3")

        ask(memos, "acme", "How many seats do we have?", "ticket 4")
        ask(memos, "globex", "How many seats do we have?", "ticket 2")
        ask(memos, "acme", "All pages are blank again, what helped last time?", "ticket 5")
        ask(memos, "globex", "All pages are blank, what can we do?", "ticket 3")

        try:  # what another customer's agent may not read is answered as if it were not there
            memos.search("Which printer is it?", cubes=["acme"], actor="globex")
        except NotFound as error:
            print(f"globex asks acme's memory: {error}")

        receipt = memos.cubes.drop("globex")
        print(f"globex leaves: {len(receipt.item_ids)} memories {receipt.state} from {', '.join(receipt.stores)}")
        print("cubes that are left:", [cube.id for cube in memos.cubes.list()])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
