"""Research notes with documents: ask your own notes and the papers together, and cite where each answer stands."""

import tempfile

from memos import MemOS

# Files of yours: Markdown, text, CSV; PDF, Office, HTML and EPUB with the extra `documents`.
PAPERS = {
    "heat-pumps.md": b"""# Heat pumps in old buildings

## Method

We measured 120 houses built before 1960 over two winters.

## Results

The seasonal performance factor was 3.1 on average. Houses with radiators larger than 2 square metres reached 3.6.

## Limits

No house was north of the sixtieth parallel.
""",
    "insulation.md": b"""# Insulation of roofs

## Results

Cellulose in the roof saved 24 percent of the heat. Payback took nine years.
""",
}
REVISED = PAPERS["insulation.md"].replace(b"nine years", b"seven years")


def main(folder: str) -> None:
    with MemOS.open(folder) as memos:
        memos.knowledge.create("papers", "papers on heating")
        for name, content in PAPERS.items():
            memos.documents.wait(memos.knowledge.add("papers", (name, content)).id, timeout_s=60)
        memos.add("My hypothesis: large radiators matter more than insulation.", conversation="notes", tags=["idea"])
        memos.add("Ask Ines for the raw data of the heat pump study.", conversation="notes", tags=["todo"])

        for question in (
            "What seasonal performance factor did they measure?",
            "How many houses were measured?",
            "What is my hypothesis?",
            "Whom do I have to ask for the raw data?",
            "How long is the payback of roof insulation?",
        ):
            hit = memos.search(question, cubes=["default", "papers"], top_k=1).hits[0]
            place = " > ".join([hit.item.speaker, *hit.item.info.get("path", [])])
            print(f"{question}\n  {' '.join(hit.sources[0].passage.split())}  [{place}]")

        # A new version of a file takes the place of the old one.
        memos.documents.wait(memos.knowledge.add("papers", ("insulation.md", REVISED)).id, timeout_s=60)
        found = memos.search("How long is the payback of roof insulation?", cubes=["papers"], top_k=1).hits[0]
        print("after a new version of the paper:", found.item.memory.splitlines()[-1])

        unknown = memos.search("Who won the football world cup?", cubes=["default", "papers"], min_relevance=0.03)
        print("not in these notes:", list(unknown.hits))
        print("to do:", [item.memory for item in memos.memories.list(filter={"tags": {"contains": "todo"}})])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
