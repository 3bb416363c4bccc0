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
from memos.backends.local.kv_buffer import DTYPES, KvBuffer
from memos.core.kv_cache import BLOCK_TOKENS
from memos.errors import BackendUnavailable, InvalidInput

# Takes turns at a model: one call at a time, in the order of asking, so that no request waits for another's end.

_FIRST = 8


class FairLock:
    """A lock that is given to who has waited longest, `later` ones last. Not reentrant."""

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
                self._give_on()

    def _give_on(self) -> None:
        if self._waiting and not (self._later and self._passed >= _FIRST):
            self._passed = self._passed + 1 if self._later else 0
            self._waiting.popleft().set()
        elif self._later:
            self._passed = 0
            self._later.popleft().set()
        else:
            self._taken = False


log = logging.getLogger("memos.backends.local")

_GPU_CHUNK_BLOCKS = 8
"""Blocks of one step on a GPU: below some 500 tokens a step costs as much as 500 (the launches, 25 to 30 ms)."""

_AT_THE_HUB = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
_KNOWN_LAYERS = {"full_attention", "sliding_attention"}
_FITTED = ("config", "weights", "tokenizer", "template")
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready; `block` is the shape of a block's KV, and `unusable` why there is none, or no reuse."""

    # All that ask it take `turns`, and put `adapters` on it in them.

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
    turns: FairLock = field(init=False, default_factory=FairLock)
    adapters: LocalAdapters = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapters", LocalAdapters(self.model))

    @property
    def base(self) -> str:
        return base_of(self.made_by)


def base_of(made_by: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of what an adapter fits: weights and form of a model, not where it runs."""
    told = {key: made_by[key] for key in _FITTED}
    # Its version changes with each version of transformers, and nothing with it.
    told["config"] = {key: value for key, value in told["config"].items() if key != "transformers_version"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def load(name: str, *, device: str | None = None, remembered: Path | None = None) -> Loaded:
    """Load `name`, a folder or a name at the hub such as `Qwen/Qwen3-0.6B`; on a GPU in bfloat16, else in float32."""
    # Digests of weights are kept in the file `remembered`.
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
    if not name or not (path.is_dir() or _AT_THE_HUB.fullmatch(name)):
        raise InvalidInput("model", f"there is no folder {name}; models of the hub are named OWNER/NAME")


def ready(name: str, model: Any, tokenizer: Any, weights: str) -> Loaded:
    model.eval().requires_grad_(False)
    chunk_blocks = _GPU_CHUNK_BLOCKS if model.device.type == "cuda" else 1
    told = getattr(model.generation_config, "eos_token_id", None)
    ends = {told} if isinstance(told, int) else set(told or ())
    block, unusable = _block_of(model)
    if unusable is None:
        unusable = _inexact(model, block, chunk_blocks)
    if unusable is not None:
        log.warning("the model %s runs without activation memory: %s", name, unusable)
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
    )


def special_tokens(tokenizer: Any) -> tuple[str, ...]:
    special = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(sorted(special, key=len, reverse=True))


def without_tokens(text: str, special: Sequence[str]) -> str:
    """Return text in which nothing passes for a token of the template; every character keeps its place."""
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
    """Return a digest of all that is in a model's weight files."""
    # Digests are `remembered` in a file by path, size and times of change: reading 16 GB takes some ten seconds.
    known = _remembered(remembered)
    digest = hashlib.sha256()
    for file in weight_files(name):
        stat = file.stat()
        # What is copied with its times, or unpacked with those of an image, has another change of its inode.
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


def _block_of(model: Any) -> tuple[tuple[int, ...], str | None]:
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


def _inexact(model: Any, block: Sequence[int], chunk_blocks: int) -> str | None:
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
        "tokenizer": hashlib.sha256(_told(tokenizer).encode()).hexdigest(),
        "template": tokenizer.chat_template,
        "dtype": str(model.dtype),
        "attention": getattr(model.config, "_attn_implementation", None),
        "adapter": "base",
        "chunk_blocks": chunk_blocks,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": device,
    }


def _told(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
