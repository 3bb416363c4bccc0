"""A key/value cache for one request of a transformers model, in one buffer that KV blocks are copied to and from.

It replaces transformers' dynamic cache but is allocated once instead of being concatenated. Layers with a sliding
window keep all tokens; the model masks those outside its window.
Source: https://huggingface.co/docs/transformers/cache_explanation
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

log = logging.getLogger("memos.backends.local")

# Names as in safetensors. numpy has no bfloat16, so both 16-bit types are viewed as integers of the same bits.
DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_BITS = {torch.float16: torch.uint16, torch.bfloat16: torch.uint16}


class _Layer(DynamicLayer):  # type: ignore[misc]
    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self._keys, self._values = keys, values
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True
        self.show(0)

    def show(self, tokens: int) -> None:
        self.keys, self.values = self._keys[:, :, :tokens], self._values[:, :, :tokens]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        self._keys[:, :, begin:end] = key_states
        self._values[:, :, begin:end] = value_states
        self.show(end)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return int(self.keys.shape[-2])


class KvBuffer:
    """A `KvCache` for `tokens` of a prompt and its answer; `block` is of shape (2, layers, kv_heads, 64, head_dim).

    `logits` are those of the last token computed, float32 (vocabulary,).
    """

    def __init__(self, model: Any, block: tuple[int, ...], tokens: int) -> None:
        two, layers, heads, self._block_tokens, head_dim = block
        self._model = model
        self._kv = torch.empty((two, layers, heads, tokens, head_dim), dtype=model.dtype, device=model.device)
        self._layers = [
            _Layer(self._kv[0, layer].unsqueeze(0), self._kv[1, layer].unsqueeze(0)) for layer in range(layers)
        ]
        self._cache = DynamicCache()
        self._cache.layers = list(self._layers)
        self.logits: torch.Tensor | None = None

    @property
    def tokens(self) -> int:
        return self._layers[0].get_seq_length()

    @property
    def layers(self) -> Sequence[DynamicLayer]:
        return self._layers

    def cut(self, tokens: int) -> None:
        """Keep only the first tokens."""
        for layer in self._layers:
            layer.show(tokens)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def compute(self, ids: Sequence[int]) -> None:
        begin = self.tokens
        input_ids = torch.tensor([list(ids)], device=self._model.device)
        positions = torch.arange(begin, begin + len(ids), device=self._model.device).unsqueeze(0)
        output = self._model(
            input_ids=input_ids, position_ids=positions, past_key_values=self._cache, use_cache=True, logits_to_keep=1
        )
        self.logits = output.logits[0, -1].float()
        self.synchronize()
        if self.tokens != begin + len(ids):  # the model does not use the cache as it should
            raise RuntimeError("the model did not fill its cache")

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def put(self, held: Sequence[object]) -> None:
        for block in held:
            tensor = block if isinstance(block, torch.Tensor) else of_array(block, self._kv.dtype)
            begin = self.tokens
            self._kv[:, :, :, begin : begin + self._block_tokens].copy_(tensor, non_blocking=True)
            for layer in self._layers:
                layer.show(begin + self._block_tokens)
        self.synchronize()

    def take(self, place: int) -> object:
        begin = place * self._block_tokens
        block = self._kv[:, :, :, begin : begin + self._block_tokens]
        copy = block.clone(memory_format=torch.contiguous_format)
        return array_of(copy) if copy.device.type == "cpu" else copy

    def synchronize(self) -> None:
        """Wait for the GPU: callers measure rates by the clock, and take turns by step."""
        if self._kv.device.type == "cuda":
            torch.cuda.current_stream(self._kv.device).synchronize()


def array_of(tensor: torch.Tensor) -> Any:
    return tensor.view(_BITS.get(tensor.dtype, tensor.dtype)).numpy()


def of_array(array: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array).view(dtype)


class TorchDevice:
    """GPU memory for KV blocks; host buffers are pinned, so that copies run at full bus bandwidth.

    Where the system has no more memory to pin, buffers are ordinary ones, and copies slower.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._can_pin = device.type == "cuda"

    def upload(self, array: Any, _: object) -> torch.Tensor:
        try:
            # PyTorch keeps pinned memory that is freed during the copy from being used again before its end.
            return of_array(array, self._dtype).to(self._device, non_blocking=True)
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    def download(self, held: object, _: object) -> Any:
        tensor = held if isinstance(held, torch.Tensor) else of_array(held, self._dtype)
        return array_of(self._host(tensor.shape, tensor.dtype).copy_(tensor))

    def room(self, block: Any) -> Any:
        return array_of(self._host(block.shape, self._dtype))

    def _host(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if self._can_pin:
            try:
                return torch.empty(shape, dtype=dtype, pin_memory=True)
            except RuntimeError as error:
                self._can_pin = False
                log.warning("no more memory can be pinned, KV is copied more slowly: %s", str(error).split("\n")[0])
        return torch.empty(shape, dtype=dtype)
