"""A cross-encoder (ONNX) from a folder, on the CPU.

The folder is as sentence-transformers and Xenova export it: `model.onnx` or `onnx/model.onnx`, and `tokenizer.json`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
from tokenizers import Encoding, Tokenizer

from memos.errors import BackendTimeout, InvalidInput, ModelError

MOST_TOKENS: Final = 512
"""Of question and text together, also of a model that takes more: what is reranked is short, and time is not."""

_LEAST_TOKENS: Final = 16
_BATCH_TOKENS: Final = 2_048  # padded tokens a run
# More characters than these have more tokens than any text keeps, but for blanks.
_CHARS: Final = 16 * MOST_TOKENS
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_KNOWN: Final = ("input_ids", "attention_mask", "token_type_ids")
_TYPES: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_ORT_ERRORS = (
    ort_state.Fail, ort_state.InvalidArgument, ort_state.RuntimeException, ort_state.EPFail, ort_state.NotImplemented,
    MemoryError,
)  # fmt: skip
_LOAD_ERRORS = (
    *_ORT_ERRORS, ort_state.InvalidProtobuf, ort_state.InvalidGraph, ort_state.NoSuchFile, UnicodeDecodeError,
)  # fmt: skip


class OnnxReranker:
    """A logit a pair, loaded at the first use; thread-safe."""

    def __init__(self, folder: Path, *, threads: int = 2, timeout_s: float = 10.0) -> None:
        found = [path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.is_file()]
        for missing, there in (("model.onnx", bool(found)), ("tokenizer.json", (folder / "tokenizer.json").is_file())):
            if not there:
                raise InvalidInput(
                    "MEMOS_RERANK__MODEL",
                    "must name the folder of a cross-encoder, with model.onnx or onnx/model.onnx and tokenizer.json; "
                    f"{folder} has no {missing}",
                )
        self._folder, self._model = folder, found[0]
        self._threads, self._timeout_s = threads, timeout_s
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    @property
    def name(self) -> str:
        return self._folder.resolve().name

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        loaded = self._load()
        until = time.monotonic() + self._timeout_s
        scores = np.zeros(len(texts))
        pairs = loaded.pairs(question, texts)
        for batch in _batches([len(pair.ids) for pair in pairs]):
            if time.monotonic() > until:
                raise BackendTimeout(
                    f"The reranker {self.name} did not score {len(texts)} texts within {self._timeout_s:g} s; use a "
                    "smaller model."
                )
            scores[batch] = self._run(loaded, [pairs[place] for place in batch])
        if not np.isfinite(scores).all():
            raise ModelError(f"The reranker {self.name} returned a score that is infinite or NaN; use another model.")
        return [float(score) for score in scores]

    def _load(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                limit = _limit(self._folder)
                self._loaded = _Loaded(_tokenizer(self._folder), limit, *_session(self._model, self._threads))
            return self._loaded

    def _run(self, loaded: _Loaded, batch: list[Encoding]) -> NDArray[np.float64]:
        width = max(len(pair.ids) for pair in batch)
        feed = {name: np.zeros((len(batch), width), dtype=dtype) for name, dtype in loaded.inputs.items()}
        if "input_ids" in feed:
            feed["input_ids"] += loaded.pad
        for row, pair in enumerate(batch):
            parts = {"input_ids": pair.ids, "attention_mask": pair.attention_mask, "token_type_ids": pair.type_ids}
            for name, array in feed.items():
                array[row, : len(pair.ids)] = parts[name]
        try:
            logits = np.asarray(loaded.session.run([loaded.output], feed)[0], dtype=np.float64)
        except _ORT_ERRORS as error:
            raise ModelError(f"The reranker {self.name} failed: {error}. Use another model, or free memory.") from error
        if logits.shape not in ((len(batch),), (len(batch), 1), (len(batch), 2)):
            raise ModelError(
                f"The reranker {self.name} returned numbers of shape {logits.shape} for {len(batch)} pairs; a "
                "cross-encoder returns one number per pair. Use another model."
            )
        scores: NDArray[np.float64] = logits if logits.ndim == 1 else logits[:, -1]
        return scores


class _Loaded(NamedTuple):
    """A model that can be asked: its `limit` of tokens, `inputs` by name with their types, the name of `output`."""

    tokenizer: Tokenizer
    limit: int
    session: Any
    inputs: dict[str, Any]
    output: str

    @property
    def pad(self) -> int:
        found = (self.tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
        return next((number for number in found if number is not None), 0)

    def pairs(self, question: str, texts: Sequence[str]) -> list[Encoding]:
        room = self.limit - self.tokenizer.num_special_tokens_to_add(is_pair=True)
        asked = self._part(question, self.limit // 2)
        return [self.tokenizer.post_process(asked, self._part(text, room - len(asked.ids))) for text in texts]

    def _part(self, text: str, most: int) -> Encoding:
        encoding = self.tokenizer.encode(_clean(text), add_special_tokens=False)
        encoding.truncate(most)
        return encoding


def _clean(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text[:_CHARS])


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        if batch and (len(batch) + 1) * lengths[place] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    yield batch


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(f"Cannot read the tokenizer {path} ({error!s:.200}); copy the model again.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _limit(folder: Path) -> int:
    limit = MOST_TOKENS
    for name, field in (("tokenizer_config.json", "model_max_length"), ("config.json", "max_position_embeddings")):
        try:
            told = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        value = told.get(field) if isinstance(told, dict) else None
        # What is not known is written as a number of thirty digits.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < limit:
            limit = int(value)
    if limit < _LEAST_TOKENS:
        raise ModelError(f"The reranker in {folder} takes only {limit} tokens; use a model that takes more.")
    return limit


def _session(path: Path, threads: int) -> tuple[Any, dict[str, Any], str]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads sleep
    options.enable_mem_pattern = False  # it would keep a plan for each shape of batch ever seen
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _LOAD_ERRORS as error:
        raise ModelError(f"Cannot load the reranker {path} ({error!s:.300}); copy the model again.") from error
    inputs = {given.name: _TYPES.get(given.type) for given in session.get_inputs()}
    if "input_ids" not in inputs or None in inputs.values() or not inputs.keys() <= set(_KNOWN):
        raise ModelError(
            f"The model {path} takes {', '.join(inputs) or 'nothing'}: no reranker, which takes token ids (input_ids, "
            "attention_mask, token_type_ids)."
        )
    outputs = [given.name for given in session.get_outputs()]
    return session, inputs, "logits" if "logits" in outputs else outputs[0]
