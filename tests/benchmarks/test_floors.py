"""Floors by hand: IDF, votes, windows, sessions."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from benchmarks.floors import Engines, MessageFloors, TermIndex, TurnFloors, VectorTexts, best_first, fused, ranks
from memos.backends.encoders.bm25 import QdrantBm25
from tests.fakes import WordEmbedder

ENGINES = Engines(WordEmbedder(dimension=4096), QdrantBm25())


def test_terms_weigh_by_how_few_texts_have_them() -> None:
    index = TermIndex(["parrot", "parrot", "cello"], QdrantBm25())
    weight = float(QdrantBm25().encode_document("cello").values[0])
    scores = index.scores("a cello or a parrot")
    assert scores[2] == pytest.approx(weight * log(1 + 2.5 / 1.5))
    assert scores[0] == pytest.approx(weight * log(1 + 1.5 / 2.5))
    assert index.scores("nothing known").tolist() == [0, 0, 0]


def test_what_scores_nothing_gets_no_vote() -> None:
    first, second = ranks(np.array([0.0, 3.0, 1.0])), ranks(np.array([0.0, 0.0, 5.0]))
    assert first.tolist() == [np.inf, 1, 2]
    total = fused([first, second])
    assert total.tolist() == pytest.approx([0, 1 / 21, 1 / 22 + 1 / 21])
    assert best_first(total) == [2, 1]


def test_a_long_text_counts_by_its_best_chunk() -> None:
    long_text = " ".join(["filler"] * 300 + ["parrot"] * 100)
    texts = VectorTexts([long_text, "cello"], WordEmbedder(dimension=4096))
    assert texts.scores(WordEmbedder(dimension=4096).embed_query("parrot")).tolist() == pytest.approx(
        [100 / (100**2 + 100**2) ** 0.5, 0]
    )


def test_windows_and_sessions_lift_the_neighbours_of_what_was_said() -> None:
    sessions = [["rain", "a grey parrot", "snow"], ["sun", "wind"]]
    found = TurnFloors(sessions, ENGINES, seed=1).rank("parrot")
    assert found["bm25"] == [1, 0, 2]
    assert found["minilm"] == [1, 0, 2]
    assert found["fusion"] == [1, 0, 2]
    assert sorted(found["random"]) == [0, 1, 2, 3, 4]


def test_message_floors_rank_messages_and_repeat_with_their_seed() -> None:
    messages = ["the cello", "the parrot", "nothing"]
    found = MessageFloors(messages, ENGINES, seed=3).rank("parrot")
    assert (found["bm25"], found["minilm"], found["fusion"]) == ([1], [1], [1])
    assert found == MessageFloors(messages, ENGINES, seed=3).rank("parrot")
