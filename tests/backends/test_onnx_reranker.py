"""A cross-encoder in a folder: what it takes and gives, long texts, and folders that have no such thing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from memos.backends.encoders import cross_encoder as onnx_reranker
from memos.backends.encoders.cross_encoder import OnnxReranker
from memos.errors import BackendTimeout, InvalidInput, ModelError
from tests.backends.tiny_onnx import make_reranker

TEXTS = ["The bus is late.", "Green tea is a drink.", "tea " * 3]


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
@pytest.mark.parametrize("narrow", [False, True])
def test_pairs_are_read_together_and_equal_tokens_counted(tmp_path: Path, place: str, narrow: bool) -> None:
    reranker = OnnxReranker(make_reranker(tmp_path / "counting", place=place, narrow=narrow))
    # One of each is the mark at the end of both.
    assert reranker.scores("green tea", TEXTS) == [1, 3, 4]
    assert reranker.name == "counting"
    assert "dull" not in repr(reranker)


def test_of_two_columns_the_last_counts(tmp_path: Path) -> None:
    assert OnnxReranker(make_reranker(tmp_path, columns=2)).scores("green tea", TEXTS) == [1, 3, 4]


def test_a_model_that_takes_no_types_gets_none(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path, inputs=("input_ids", "attention_mask"))
    assert OnnxReranker(folder).scores("a b", ["c", "c d e"]) == [6, 8]


def test_a_score_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    reranker = OnnxReranker(make_reranker(tmp_path))
    texts = [f"tea {'cup ' * (n * 37 % 300)}" for n in range(60)]
    together = reranker.scores("tea", texts)
    assert together == [reranker.scores("tea", [text])[0] for text in texts]
    assert set(together) == {2}


def test_a_long_text_is_cut_and_the_question_is_not(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 24}))
    reranker = OnnxReranker(make_reranker(tmp_path))
    # Of 24 tokens three are marks and two the question's, so 19 of the text are read.
    assert reranker.scores("green tea", ["tea " * 10_000, "bus " * 500 + "tea", "bus " * 18 + "tea"]) == [20, 1, 2]


def test_a_long_question_leaves_half_of_the_room_to_the_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 40}))
    reranker = OnnxReranker(make_reranker(tmp_path))
    assert reranker.scores("tea " * 5_000, ["tea", "bus"]) == [21, 1]
    assert reranker.scores("x" * 100_000, ["tea"]) == [1]


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "x" * 1_000_000, "[CLS] [SEP] [PAD]", "花" * 9_000])
def test_any_text_can_be_read(tmp_path: Path, text: str) -> None:
    reranker = OnnxReranker(make_reranker(tmp_path))
    assert len(reranker.scores(text, [text, "tea"])) == 2


@pytest.mark.parametrize("gone", ["model.onnx", "tokenizer.json"])
def test_a_folder_without_the_files_is_told_at_once(tmp_path: Path, gone: str) -> None:
    (make_reranker(tmp_path) / gone).unlink()
    with pytest.raises(InvalidInput, match=gone):
        OnnxReranker(tmp_path)
    with pytest.raises(InvalidInput, match="has no"):
        OnnxReranker(tmp_path / "none")


def test_damaged_files_are_told_when_they_are_read(tmp_path: Path) -> None:
    make_reranker(tmp_path)
    reranker = OnnxReranker(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="Cannot load"):
        reranker.scores("x", ["y"])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="Cannot read"):
        reranker.scores("x", ["y"])


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="a cross-encoder returns"):
        OnnxReranker(make_reranker(tmp_path / "wide", columns=3)).scores("x", ["y"])
    others = make_reranker(tmp_path / "others", inputs=("input_ids", "attention_mask", "token_type_ids", "pixels"))
    with pytest.raises(ModelError, match="pixels: no reranker"):
        OnnxReranker(others).scores("x", ["y"])
    with pytest.raises(ModelError, match="finite"):
        OnnxReranker(make_reranker(tmp_path / "nan", nan=True)).scores("x", ["y"])
    (make_reranker(tmp_path / "short") / "config.json").write_text('{"max_position_embeddings": 4}')
    with pytest.raises(ModelError, match="takes only 4 tokens"):
        OnnxReranker(tmp_path / "short").scores("x", ["y"])


def test_it_ends_between_two_batches_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = OnnxReranker(make_reranker(tmp_path), timeout_s=1)
    moments = iter([0.0, 0.5, 2.0])
    # Not of the module time itself, by which servers of other tests go.
    monkeypatch.setattr(onnx_reranker, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    with pytest.raises(BackendTimeout, match="use a smaller model"):
        reranker.scores("tea", ["tea " * 400] * 12)
