"""Load a transformers model from a folder or by its hub name, and test whether its KV can be reused.

The test computes a prompt cold and after cached blocks of itself; the results must be equal.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache, DynamicLayer

from memos.backends.local.adapters import LocalAdapters
from memos.backends.local.batching import batch_error
from memos.backends.local.kv_buffer import DTYPES, KvBuffer
from memos.core.kv_cache import BLOCK_TOKENS
from memos.errors import BackendUnavailable, InvalidInput

_LATER_AFTER = 8
"""Consecutive turns of others after which a waiting `later` caller gets one."""


class FairLock:
    """A first-in, first-out lock, in which callers with `later` yield to others. Not reentrant.

    Requests hold it for one step at a time, so that none waits for another to finish.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._later: deque[threading.Event] = deque()
        self._passed = 0
        self._taken = False

    @contextmanager
    def __call__(self, *, later: bool = False) -> Iterator[None]:
        mine: threading.Event | None = None
        with self._lock:
            if self._taken:
                mine = threading.Event()
                (self._later if later else self._waiting).append(mine)
            self._taken = True
        if mine is not None:
            mine.wait()
        try:
            yield
        finally:
            with self._lock:
                self._release()

    def _release(self) -> None:
        if self._waiting and not (self._later and self._passed >= _LATER_AFTER):
            self._passed = self._passed + 1 if self._later else 0
            self._waiting.popleft().set()
        elif self._later:
            self._passed = 0
            self._later.popleft().set()
        else:
            self._taken = False


log = logging.getLogger("memos.backends.local")

_GPU_CHUNK_BLOCKS = 8
"""Blocks in one prefill step on a GPU: kernel launches, 25 to 30 ms, dominate steps below about 500 tokens."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_KNOWN_LAYERS = {"full_attention", "sliding_attention"}
_BASE_FIELDS = ("config", "weights", "tokenizer", "template")
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model with its tokenizer.

    `ends` are the end-of-sequence tokens, `made_by` is everything that determines its KV, `block` is the shape of a KV
    block, `unusable` is why KV cannot be reused, None if it can, and `unbatched` the same of batches. Every step on the
    model is computed within `turns`, where `adapters` may be switched.
    """

    name: str
    model: Any
    tokenizer: Any
    context: int
    ends: frozenset[int]
    made_by: dict[str, Any]
    dtype: str
    chunk_blocks: int
    block: tuple[int, ...]
    unusable: str | None
    unbatched: str | None = "it has no blocks of keys and values"
    turns: FairLock = field(init=False, default_factory=FairLock)
    adapters: LocalAdapters = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapters", LocalAdapters(self.model))

    @property
    def base(self) -> str:
        return base_of(self.made_by)


def base_of(made_by: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of what an adapter depends on: weights and configuration, not the device or dtype."""
    fields = {key: made_by[key] for key in _BASE_FIELDS}
    # transformers writes its own version there, which does not change the model.
    fields["config"] = {key: value for key, value in fields["config"].items() if key != "transformers_version"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def load(name: str, *, device: str | None = None, remembered: Path | None = None) -> Loaded:
    """Load a model from a folder or by its hub name, such as `Qwen/Qwen3-0.6B`; bfloat16 on a GPU, otherwise float32.

    The file `remembered` caches digests of weight files.
    """
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    _check_name(name)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    model, tokenizer = _loaded(name, dtype, where)
    if not tokenizer.chat_template:
        raise InvalidInput("model", f"{name} has a tokenizer without a chat template; use a model made for chats")
    return ready(name, model, tokenizer, weights_digest(name, remembered))


def _check_name(name: str) -> None:
    path = Path(name)
    if path.is_file():
        is_packed = (
            " To use a GGUF file, start llama.cpp's server on it and set BASE_URL." if path.suffix == ".gguf" else ""
        )
        raise InvalidInput("model", f"{name} is a file; give the folder of a transformers model.{is_packed}")
    if not name or not (path.is_dir() or _HUB_NAME.fullmatch(name)):
        raise InvalidInput("model", f"there is no folder {name}; models of the hub are named OWNER/NAME")


def ready(name: str, model: Any, tokenizer: Any, weights: str) -> Loaded:
    model.eval().requires_grad_(False)
    chunk_blocks = _GPU_CHUNK_BLOCKS if model.device.type == "cuda" else 1
    eos = getattr(model.generation_config, "eos_token_id", None)
    ends = {eos} if isinstance(eos, int) else set(eos or ())
    block, unusable = _block_shape(model)
    if unusable is None:
        unusable = _reuse_error(model, block, chunk_blocks)
    if unusable is not None:
        log.warning("the model %s runs without activation memory: %s", name, unusable)
    unbatched = batch_error(model, block) if block else "it has no blocks of keys and values"
    if unbatched is not None:
        log.warning("the model %s answers one request at a time: %s", name, unbatched)
    return Loaded(
        name=name,
        model=model,
        tokenizer=tokenizer,
        context=int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1_048_576),
        ends=frozenset(ends | {tokenizer.eos_token_id} - {None}),
        made_by=_made_by(model, tokenizer, weights, chunk_blocks),
        dtype=DTYPES[model.dtype],
        chunk_blocks=chunk_blocks,
        block=block,
        unusable=unusable,
        unbatched=unbatched,
    )


def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(sorted(special, key=len, reverse=True))


def without_tokens(text: str, special: Sequence[str]) -> str:
    """Return text in which no special token is recognised; the length and all other characters stay the same."""
    for token in special:
        text = text.replace(token, "·" + token[1:])
    return text


def weight_files(name: str) -> list[Path]:
    folder = Path(name)
    if not folder.is_dir():
        found = transformers.utils.cached_file(name, "config.json", local_files_only=True)
        folder = Path(str(found)).parent
    return sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern))


def weights_digest(name: str, remembered: Path | None = None) -> str:
    """Return the SHA-256, in hex, of a model's weight files.

    The file `remembered` caches digests by path, size and modification times: reading 16 GB takes some ten seconds.
    """
    known = _remembered(remembered)
    digest = hashlib.sha256()
    for file in weight_files(name):
        stat = file.stat()
        # The inode's change time also differs for files copied or unpacked with the original modification time.
        key = json.dumps([str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
        if key not in known:
            with file.open("rb") as source:
                known[key] = hashlib.file_digest(source, "sha256").hexdigest()
        digest.update(json.dumps([file.name, known[key]]).encode())
    if remembered is not None:
        with suppress(OSError):  # on a full disk they are read again at the next start
            remembered.parent.mkdir(parents=True, exist_ok=True)
            remembered.write_text(json.dumps(known), encoding="utf-8")
    return digest.hexdigest()


def _remembered(file: Path | None) -> dict[str, str]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file is not None else {}
    except (OSError, ValueError, TypeError):
        return {}


def _loaded(name: str, dtype: torch.dtype, where: torch.device) -> tuple[Any, Any]:
    try:
        config = AutoConfig.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, config=config, dtype=dtype)
        return model.to(where), tokenizer
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise BackendUnavailable(f"Not enough memory for the model {name}; use a smaller one.") from error
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput("model", f"{name} cannot be loaded ({reason:.200}); check the folder or hub name") from error


def _block_shape(model: Any) -> tuple[tuple[int, ...], str | None]:
    """Return the shape of a KV block, (2, layers, kv_heads, tokens, head_dim), or why the model has none."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - _KNOWN_LAYERS:
        return (), f"it has layers of type {', '.join(sorted(kinds - _KNOWN_LAYERS))}, whose state cannot be truncated"
    if getattr(config, "is_encoder_decoder", False):
        return (), "it is an encoder-decoder model"
    cache, tokens = DynamicCache(), 3
    try:
        with torch.inference_mode():
            model(input_ids=torch.zeros((1, tokens), dtype=torch.long, device=model.device), past_key_values=cache)
    except Exception as error:  # noqa: BLE001 - whatever an unknown architecture does with a cache
        return (), f"it does not accept a cache ({type(error).__name__})"
    if len(cache.layers) != config.num_hidden_layers:
        return (), "not every layer keeps keys and values of its own"
    shapes = set()
    for layer in cache.layers:
        if not isinstance(layer, DynamicLayer) or layer.get_seq_length() != tokens:
            return (), "a layer keeps something other than keys and values"
        shapes |= {tuple(layer.keys.shape), tuple(layer.values.shape)}
    if len(shapes) != 1:
        return (), "its layers' keys and values differ in shape"
    _, heads, _, head_dim = shapes.pop()
    return (2, len(cache.layers), heads, BLOCK_TOKENS, head_dim), None


def _reuse_error(model: Any, block: Sequence[int], chunk_blocks: int) -> str | None:
    """Return why KV reuse would change answers, or None: logits after cached blocks must be bit-identical."""
    step = BLOCK_TOKENS * chunk_blocks
    config = model.config.get_text_config()
    ids = [(place * 7919 + 13) % config.vocab_size for place in range(2 * step + 5)]
    try:
        cold, warm = (KvBuffer(model, tuple(block), len(ids)) for _ in range(2))
        for begin in range(0, len(ids), step):
            cold.compute(ids[begin : begin + step])
        warm.put([cold.take(place) for place in range(chunk_blocks)])
        for begin in range(step, len(ids), step):
            warm.compute(ids[begin : begin + step])
    except Exception as error:  # noqa: BLE001 - whatever an unknown architecture does with a cache
        return f"it does not work with kept keys and values ({type(error).__name__})"
    assert cold.logits is not None and warm.logits is not None
    is_same = torch.equal(cold.logits, warm.logits)
    return None if is_same else "answers with kept keys and values differ from those without"


def _made_by(model: Any, tokenizer: Any, weights: str, chunk_blocks: int) -> dict[str, Any]:
    config = {key: value for key, value in model.config.to_dict().items() if key not in ("_name_or_path", "dtype")}
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else model.device.type
    return {
        "config": json.loads(json.dumps(config, default=str)),
        "weights": weights,
        "tokenizer": hashlib.sha256(_tokenizer_json(tokenizer).encode()).hexdigest(),
        "template": tokenizer.chat_template,
        "dtype": str(model.dtype),
        "attention": getattr(model.config, "_attn_implementation", None),
        "adapter": "base",
        "chunk_blocks": chunk_blocks,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device,
    }


def _tokenizer_json(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
