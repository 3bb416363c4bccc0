"""A key/value cache for one request of a transformers model, in one buffer that KV blocks are copied to and from.

It replaces transformers' dynamic cache but is allocated once instead of being concatenated. Layers with a sliding
window keep all tokens; the model masks those outside its window.
Source: https://huggingface.co/docs/transformers/cache_explanation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

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

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def compute(self, ids: Sequence[int]) -> None:
        begin = self.tokens
        input_ids = torch.tensor([list(ids)], device=self._model.device)
        positions = torch.arange(begin, begin + len(ids), device=self._model.device).unsqueeze(0)
        output = self._model(
            input_ids=input_ids, position_ids=positions, past_key_values=self._cache, use_cache=True, logits_to_keep=1
        )
        self.logits = output.logits[0, -1].float()
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

    def take(self, place: int) -> object:
        begin = place * self._block_tokens
        copy = self._kv[:, :, :, begin : begin + self._block_tokens].contiguous().clone()
        return array_of(copy) if copy.device.type == "cpu" else copy


def array_of(tensor: torch.Tensor) -> Any:
    return tensor.view(_BITS.get(tensor.dtype, tensor.dtype)).numpy()


def of_array(array: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array).view(dtype)


class TorchDevice:
    """GPU memory for KV blocks; host buffers are pinned, so that copies run at full bus bandwidth."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    def upload(self, array: Any, _: object) -> torch.Tensor:
        try:
            return of_array(array, self._dtype).to(self._device, non_blocking=True)
        except torch.cuda.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    def download(self, held: object, _: object) -> Any:
        assert isinstance(held, torch.Tensor)
        room = torch.empty(held.shape, dtype=held.dtype, pin_memory=self._device.type == "cuda")
        return array_of(room.copy_(held))

    def room(self, block: Any) -> Any:
        return array_of(torch.empty(block.shape, dtype=self._dtype, pin_memory=self._device.type == "cuda"))
