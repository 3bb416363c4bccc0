"""What is particular to the bundled MiniLM: its pinned file, its spans, linear time on texts of any script."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import memos
from memos.backends.encoders.cache import CachedEmbedder
from memos.backends.encoders.minilm import MiniLmEmbedder
from memos.errors import IntegrityError, InvalidInput
from tests.fakes import WordEmbedder

SCRIPTS = {
    "english": "The cat sat on the mat. It was warm, and nobody moved.\n",
    "chinese": "我在里昂工作。今天天气很好，",
    "thai": "สวัสดีครับ",
    "korean": "한국어를 배우고 ",
    "no spaces": "abcdefghijklm",
    "emoji": "👩‍👩‍👧 🎻",
    "arabic": "مرحبا بالعالم ",
    "accents": "e\u0301te\u0301 ",
    "broken": "\ufffd\ud800\x00 ",
}


@pytest.fixture(scope="module")
def minilm() -> MiniLmEmbedder:
    return MiniLmEmbedder(threads=2)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("max_tokens", [8, 64, 256])
def test_no_span_has_more_tokens_than_asked(minilm: MiniLmEmbedder, script: str, max_tokens: int) -> None:
    text = SCRIPTS[script] * 300
    spans = minilm.split(text, max_tokens)
    assert len(spans) > 1 or script in ("broken", "thai")  # both are few [UNK] to this vocabulary
    for start, end in spans:
        # A span that fits is one span again: `split` counts the tokens of the piece itself.
        assert minilm.split(text[start:end], max_tokens) == [(0, end - start)]
    kept = "".join(text[start:end] for start, end in spans)
    assert "".join(kept.split()) == "".join(text.split())


def test_spans_end_at_sentences_and_never_inside_a_number(minilm: MiniLmEmbedder) -> None:
    text = "Pi is about 3.14159 they said. " * 40
    for start, end in minilm.split(text, 64):
        assert text[start:end].endswith("said.")
        assert text[start:end].startswith("Pi")


def test_spans_do_not_cut_words_when_there_are_spaces(minilm: MiniLmEmbedder) -> None:
    text = "electroencephalography immunohistochemistry " * 200
    words = {word for start, end in minilm.split(text, 32) for word in text[start:end].split()}
    assert words == {"electroencephalography", "immunohistochemistry"}


@pytest.mark.heavy
@pytest.mark.parametrize("script", ["english", "no spaces", "chinese"])
def test_a_text_four_times_as_long_takes_about_four_times_as_long(minilm: MiniLmEmbedder, script: str) -> None:
    unit = SCRIPTS[script]
    whole = unit * (1_000_000 // len(unit))
    spent = []
    for text in (whole[: len(whole) // 4], whole):
        started = time.process_time()
        assert minilm.split(text, 256)
        spent.append(time.process_time() - started)
    assert spent[1] < 10 * spent[0], spent


def test_a_span_may_not_be_too_short_for_a_syllable(minilm: MiniLmEmbedder) -> None:
    with pytest.raises(InvalidInput, match="at least 8"):
        minilm.split("text", 7)


def test_case_and_accents_do_not_count_as_in_the_reference(minilm: MiniLmEmbedder) -> None:
    first, second = minilm.embed_documents(["Café Zürich", "cafe zurich"])
    assert np.allclose(first, second, atol=1e-6)


def test_a_special_token_written_by_a_user_is_plain_text(minilm: MiniLmEmbedder) -> None:
    plain, written = minilm.embed_documents(["hello", "hello [SEP] [CLS]"])
    assert float(plain @ written) < 0.99


def test_a_script_without_spaces_is_not_one_unknown_word(minilm: MiniLmEmbedder) -> None:
    first, second = minilm.embed_documents(["a" * 200 + "violin", "a" * 200 + "tractor"])
    assert float(first @ second) < 0.999


def test_similarities_are_those_of_the_published_model(minilm: MiniLmEmbedder) -> None:
    # Source: the float model's card example, all-MiniLM-L6-v2: similar about 0.67, unrelated about 0.1.
    query = minilm.embed_query("The weather is lovely today.")
    sunny, stadium = minilm.embed_documents(["It's so sunny outside!", "He drove to the stadium."])
    assert float(query @ sunny) == pytest.approx(0.6660, abs=0.03)
    assert float(query @ stadium) == pytest.approx(0.1046, abs=0.03)


def test_threads_get_the_vectors_a_single_caller_gets(minilm: MiniLmEmbedder) -> None:
    texts = [f"number {n} of the list" for n in range(8)]
    expected = minilm.embed_documents(texts)
    got: dict[int, np.ndarray] = {}
    workers = [threading.Thread(target=lambda n=n: got.update({n: minilm.embed_query(texts[n])})) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.allclose(got[n], expected[n], atol=1e-5) for n in range(8))


def test_a_changed_model_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"something else")
    with pytest.raises(IntegrityError, match="pip install --force-reinstall"):
        MiniLmEmbedder(model=tmp_path / "model.onnx")
    with pytest.raises(IntegrityError, match="cannot be read"):
        MiniLmEmbedder(model=tmp_path / "none.onnx")


def test_the_cache_keeps_the_last_texts_and_computes_each_once() -> None:
    cached = CachedEmbedder(WordEmbedder(), 2)
    vectors = cached.embed_documents(["a", "b", "a", "c"])
    assert np.array_equal(vectors, WordEmbedder().embed_documents(["a", "b", "a", "c"]))
    assert len(cached) == 2
    cached.embed_query("a")[:] = 0
    assert float(np.linalg.norm(cached.embed_query("a"))) == pytest.approx(1)
    cached.forget()
    assert len(cached) == 0


def test_the_cache_is_bounded_by_bytes_too() -> None:
    each = WordEmbedder().embed_query("a").nbytes
    cached = CachedEmbedder(WordEmbedder(), 100, size_bytes=3 * (each + 10_000))
    for text in "abcdef":
        cached.embed_query(text * 9_500)
    assert len(cached) == 3
    cached.embed_query("g" * 40_000)
    assert len(cached) == 0
    cached.embed_query("h")
    assert len(cached) == 1


EMBED = """
from memos.backends.encoders.minilm import MiniLmEmbedder
MiniLmEmbedder().embed_documents(["what nobody else is to know"])
"""


def test_the_runtime_tells_its_makers_nothing(tmp_path: Path) -> None:
    """Without our setting it keeps an id of the device in the home folder, and events that it sends."""
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(memos.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", EMBED], env=env, check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
