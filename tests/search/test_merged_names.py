"""Names of a question that were merged: which words are one, and the question with the others in their places."""

from __future__ import annotations

import pytest

from memos import MemOS
from memos.search.merged_names import merged_names, spelled_otherwise
from tests.fakes import WordEmbedder


@pytest.mark.parametrize(
    ("question", "otherwise"),
    [
        ("What is Bob's dog called?", ["What is Robert Miller's dog called?", "What is Robin's dog called?"]),
        ("ROBERT  MILLER and bob", ["Bob and Robert Miller", "Robin and Robin"]),
        ("Bobby", []),
        ("小明住在哪里？", ["王明住在哪里？"]),
        ("?", []),
    ],
)
def test_names_are_found_as_whole_words(tmp_path: object, question: str, otherwise: list[str]) -> None:
    with MemOS.open(str(tmp_path), embedder=WordEmbedder()) as memos:
        for text in (
            "Bob sails.",
            "We saw Robert Miller.",
            "We saw Robin.",
            "We saw Robert.",
            "我和小明见面。",
            "王明。",
        ):
            memos.add(text)
        for name in ("小明", "王明"):
            memos.add({"role": "user", "name": name, "content": "你好，今天天气很好。"})
        for name, into in (("bob", "robert miller"), ("robin", "bob"), ("小明", "王明")):
            memos.graph.merge(name, into)
        with memos.ledger.read() as connection:
            found = merged_names(connection, ["default"], question)
            assert merged_names(connection, ["default"], question + " " * 1_000 + "bob") == found
    assert spelled_otherwise(question, found, 3) == otherwise
