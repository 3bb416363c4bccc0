"""The term weights: what is a term, and that document and question agree."""

from __future__ import annotations

import time

import numpy as np
import pytest

from memos.backends.encoders.bm25 import QdrantBm25
from memos.core.ports import SparseVector

BM25 = QdrantBm25()


def shared(document: str, query: str) -> float:
    stored, asked = BM25.encode_document(document), BM25.encode_query(query)
    return float(stored.values[np.isin(stored.indices, asked.indices)].sum())


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("She is walking her dogs", "dog walk"),
        ("The café was closed", "cafe"),
        ("我对花生过敏", "花生"),
        ("The flight in 2023 left at 14:30", "2023"),
        ("The flight left at 14:30", "14:30"),
        ("It is room 101", "101"),
        ("一共 42 个", "42"),
        ("pytest(module=ledger) → 41 passed", "ledger module"),
        ("Paris→Osaka", "osaka"),
        ("a|pipe~and`code`", "code pipe"),
        ("✓deployed", "deployed"),
    ],
)
def test_words_meet_over_inflection_accents_scripts_and_numbers(document: str, query: str) -> None:
    assert shared(document, query) > 0


@pytest.mark.parametrize(("document", "query"), [("dogs", "cats"), ("room 101", "102"), ("the of and", "the of and")])
def test_other_words_and_stop_words_do_not(document: str, query: str) -> None:
    assert shared(document, query) == 0


@pytest.mark.parametrize("text", ["", " ", "?!", "👩‍👩‍👧", "the"])
def test_text_without_a_term_gives_an_empty_vector(text: str) -> None:
    assert len(BM25.encode_query(text).indices) == 0


def test_no_index_comes_twice() -> None:
    vector: SparseVector = BM25.encode_document("2023 and 2023 again, " * 50 + " ".join(f"w{n}" for n in range(5000)))
    assert len(set(vector.indices.tolist())) == len(vector.indices) == len(vector.values)
    assert vector.values.dtype == np.float32
    assert (vector.values > 0).all()


@pytest.mark.parametrize("letter", ["y", "ý", "y\u0301", "ay"])
def test_a_word_without_an_end_costs_what_its_letters_cost(letter: str) -> None:
    spent = []
    for letters in (75_000, 300_000):
        text = letter * (letters // len(letter))
        started = time.process_time()
        BM25.encode_document(text)
        BM25.encode_query(text)
        spent.append(time.process_time() - started)
    assert spent[1] < 10 * spent[0], spent


def test_long_words_that_exist_stay_one_term() -> None:
    word = "methionyl" * 100
    assert len(BM25.encode_query(word).indices) == 1
    assert shared(f"the {word} molecule", word) > 0
