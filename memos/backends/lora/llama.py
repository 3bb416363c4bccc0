"""Forward and backward passes of a Llama with a LoRA adapter, in a quarter of the matrix products that peft makes.

peft multiplies each linear layer and the two matrices of its adapter separately, with casts in between. Here the linear
layers with a common input are one product, [W | B] by [x | A x], and the gradients are computed explicitly instead of
being recorded by autograd. Common prefixes of a batch's prompts are computed once (`PrefixTree`). Sources: Touvron et
al., LLaMA, arXiv 2302.13971 (the layer); Hu et al., LoRA, arXiv 2106.09685; Zhang and Sennrich, arXiv 1910.07467
(RMSNorm); Su et al., arXiv 2104.09864 (rotary position embedding); Ainslie et al., arXiv 2305.13245 (grouped-query
attention); Shazeer, arXiv 2002.05202 (SwiGLU).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import LlamaForCausalLM, MistralForCausalLM

Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its answer."""

_Attended = TypeVar("_Attended")


def supports(model: Any) -> bool:
    """Return True if `FusedLlama` can compute this model (without its adapter), which must use full attention."""
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM):
        return False
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    config = model.config
    unsupported = ("attention_bias", "mlp_bias", "attention_dropout")
    return config.hidden_act == "silu" and not any(getattr(config, name, None) for name in unsupported)


class FusedLlama:
    """The layers of a supported model with a peft adapter, multiplied in one dtype.

    The frozen weights are copied to `dtype`; weights that have it already are moved, and the model's own parameters
    become views of them. The adapter's weights are peft's parameters, which receive the gradients.
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._model, self.dtype = model, dtype
        self.layers = [_Layer(each, model.config, dtype) for each in model.model.layers]
        self._head = nn.Parameter(model.lm_head.weight.to(dtype), requires_grad=False)

    def frozen_weights(self) -> Iterator[tuple[nn.Linear, nn.Parameter]]:
        """Yield each frozen linear layer with its weights in `dtype`, as views."""
        for layer in self.layers:
            for linear in layer.linears:
                yield from linear.frozen_weights()
        yield self._model.lm_head, self._head

    def logits(self, rows: Sequence[Row], *, adapter: bool) -> Tensor:
        """Return the logits of each row's answer tokens, shape (all answer tokens, vocabulary), in `dtype`.

        Without the adapter there are no gradients.
        """
        # Nothing is predicted from the last token.
        tree = PrefixTree([(prompt + answer)[:-1] for prompt, answer in rows])
        answers = zip(tree.paths, (len(answer) for _, answer in rows), strict=True)
        predicting = torch.tensor([index for path, count in answers for index in path[-count:]])
        with _without_autocast(gradients=adapter and torch.is_grad_enabled()):
            batch = self.attention_batch(tree)
            hidden = self.embed(torch.tensor(tree.ids))
            for layer in self.layers:
                # Of the last layer only these outputs are needed.
                selected = predicting if layer is self.layers[-1] else None
                hidden = _LayerFunction.apply(hidden, layer, batch, adapter, selected, *layer.adapter_weights)
            return self.head(hidden)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the token embeddings, float32 (tokens, hidden)."""
        found: Tensor = self._model.model.embed_tokens(ids)
        return found

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits (tokens, vocabulary), in `dtype`, of the last layer's output."""
        return functional.linear(self._model.model.norm(hidden).to(self.dtype), self._head)

    def attention_batch(self, tree: PrefixTree) -> AttentionBatch:
        layer = self.layers[0]
        return attention_batch(
            tree, layer.heads, layer.kv_heads, self.dtype, *self.rotary(torch.tensor(tree.positions))
        )

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of the rotary embedding, shape (tokens, query and key heads, head_dim / 2).

        Those of the query heads include the attention scale, which saves a product.
        """
        layer = self.layers[0]
        cos, sin = self._model.model.rotary_emb(torch.zeros((), dtype=torch.float32), positions[None])
        half = cos.shape[-1] // 2  # the second half repeats the first
        scales = torch.ones(layer.heads + layer.kv_heads, 1)
        scales[: layer.heads] = layer.scale
        return cos[0, :, None, :half] * scales, sin[0, :, None, :half] * scales


class LlamaDecoder:
    """A `BatchDecoder` on a `FusedLlama`, without gradients; common prefixes of the prompts are prefilled once."""

    can_drop_rows = True

    def __init__(self, fused: FusedLlama, prompts: Sequence[list[int]], max_new_tokens: int, *, adapter: bool) -> None:
        """Prefill the prompts and allocate a key/value cache for `max_new_tokens` more."""
        tree = PrefixTree(prompts)
        paths = nn.utils.rnn.pad_sequence(list(map(torch.tensor, tree.paths)), batch_first=True)
        last = torch.tensor([path[-1] for path in tree.paths])
        capacity = paths.shape[1] + max_new_tokens
        self._fused, self._positions = fused, torch.tensor(list(map(len, tree.paths)))
        self._caches = [_LayerCache(layer, len(paths), capacity, fused.dtype) for layer in fused.layers]
        with _without_autocast():
            self._lora_a = [layer.load_adapters(layer.adapter_weights, adapter=adapter) for layer in fused.layers]
            batch, hidden = fused.attention_batch(tree), fused.embed(torch.tensor(tree.ids))
            for layer, lora_a, cache in zip(fused.layers, self._lora_a, self._caches, strict=True):
                attend = partial(cache.prefill, batch, paths)
                selected = last if layer is fused.layers[-1] else None
                hidden = _layer_forward(layer, lora_a, hidden, selected, attend)[0]
            self.logits = fused.head(hidden)

    def step(self, tokens: Tensor) -> None:
        with _without_autocast():
            hidden, rotary = self._fused.embed(tokens), self._fused.rotary(self._positions)
            for layer, lora_a, cache in zip(self._fused.layers, self._lora_a, self._caches, strict=True):
                attend = partial(cache.attend, self._positions, rotary)
                hidden = _layer_forward(layer, lora_a, hidden, None, attend)[0]
            self._positions = self._positions + 1
            self.logits = self._fused.head(hidden)

    def select_rows(self, rows: Tensor) -> None:
        self._positions, self.logits = self._positions[rows], self.logits[rows]
        for cache in self._caches:
            cache.select_rows(rows)


class _LayerCache:
    """The key/value cache of one layer, each of shape (rows, kv_heads, capacity, head_dim), padded on the right."""

    def __init__(self, layer: _Layer, rows: int, capacity: int, dtype: torch.dtype) -> None:
        self._layer = layer
        shape = (rows, layer.kv_heads, capacity, layer.head_dim)
        self._keys, self._values = (torch.zeros(shape, dtype=dtype) for _ in range(2))

    def prefill(self, batch: AttentionBatch, paths: Tensor, qkv: Tensor, buffer: Tensor) -> None:
        """Attend within a prefix tree, and cache keys and values along `paths`, shape (rows, longest)."""
        layer, longest = self._layer, paths.shape[1]
        rotated = _rotate(qkv[:, : -layer.kv_heads], batch.cos, batch.sin)
        self._keys[:, :, :longest] = rotated[:, layer.heads :][paths].transpose(1, 2)
        self._values[:, :, :longest] = qkv[:, -layer.kv_heads :][paths].transpose(1, 2)
        _attention(layer, batch, qkv, rotated, buffer)

    def attend(self, positions: Tensor, rotary: tuple[Tensor, Tensor], qkv: Tensor, buffer: Tensor) -> None:
        """Cache the key and value of one more token of each row at `positions`, and attend to the row."""
        layer, rows, end = self._layer, torch.arange(len(positions)), int(positions.max()) + 1
        rotated = _rotate(qkv[:, : -layer.kv_heads], *rotary)
        self._keys[rows, :, positions] = rotated[:, layer.heads :]
        self._values[rows, :, positions] = qkv[:, -layer.kv_heads :]
        queries = rotated[:, : layer.heads].view(len(positions), layer.kv_heads, -1, layer.head_dim)
        scores = queries @ self._keys[:, :, :end].transpose(2, 3)
        scores.masked_fill_((torch.arange(end) > positions[:, None])[:, None, None], -math.inf)
        weights = functional.softmax(scores, -1, dtype=torch.float32).to(qkv.dtype)
        buffer[:, : layer.heads * layer.head_dim] = (weights @ self._values[:, :, :end]).view(len(positions), -1)

    def select_rows(self, rows: Tensor) -> None:
        self._keys, self._values = self._keys[rows], self._values[rows]


class _FusedLinear:
    """Linear layers with a common input, computed as one product with their adapters; rank 0 without an adapter."""

    def __init__(self, layers: Sequence[Any], dtype: torch.dtype) -> None:
        self._layers = layers
        bases = [_base_layer(each) for each in layers]
        self.in_features, self._out_features = bases[0].in_features, [each.out_features for each in bases]
        adapters = [each if isinstance(each, LoraLinear) else None for each in layers]
        pairs = [(each.lora_A["default"], each.lora_B["default"]) if each else None for each in adapters]
        self._ranks = [pair[0].out_features if pair else 0 for pair in pairs]
        self._scales = [each.scaling["default"] if each else 0.0 for each in adapters]
        # A and B of each adapter, alternating.
        self.adapter_weights = [each.weight for pair in pairs if pair for each in pair]
        # [W | B]: (sum of out_features, in_features + sum of ranks); B holds the scaled matrices of the adapters.
        self._weight = torch.zeros(sum(self._out_features), self.in_features + sum(self._ranks), dtype=dtype)
        torch.cat([each.weight for each in bases], out=self._weight[:, : self.in_features])
        for layer, view in self.frozen_weights():
            if layer.weight.dtype == dtype:
                layer.weight = view

    def frozen_weights(self) -> Iterator[tuple[nn.Linear, nn.Parameter]]:
        for layer, (rows, _, _) in zip(self._layers, self._slices(), strict=True):
            yield _base_layer(layer), nn.Parameter(self._weight[rows, : self.in_features], requires_grad=False)

    def load_adapters(self, weights: Sequence[Tensor], *, adapter: bool) -> Tensor | None:
        """Copy the B matrices into the fused weight; return the A matrices, shape (sum of ranks, in_features).

        Returns None if the adapter is not used.
        """
        if not adapter:
            return None
        for (rows, columns, scale), lora_b in zip(self._slices(adapted=True), weights[1::2], strict=True):
            self._weight[rows, self.in_features + columns.start : self.in_features + columns.stop] = lora_b * scale
        matrices = weights[::2] or [torch.zeros(0, self.in_features)]
        return torch.cat(tuple(matrices)).to(self._weight.dtype)

    def input_buffer(self, tokens: int, lora_a: Tensor | None) -> Tensor:
        """Return an empty buffer for [x | A x], shape (tokens, in_features + sum of ranks); for x alone without A."""
        width = self.in_features if lora_a is None else self._weight.shape[1]
        return torch.empty(tokens, width, dtype=self._weight.dtype)

    def forward(self, buffer: Tensor, lora_a: Tensor | None) -> Tensor:
        """Return the outputs for the input x in a buffer, concatenated: (tokens, sum of out_features). Adds A x."""
        if lora_a is None:
            return buffer @ self._weight[:, : self.in_features].t()
        buffer[:, self.in_features :] = buffer[:, : self.in_features] @ lora_a.t()
        return buffer @ self._weight.t()

    def backward(self, buffer: Tensor, lora_a: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the gradients of the input (tokens, in_features), and of the adapters' weights in their order."""
        buffer_gradient = gradient @ self._weight
        ax_gradient = buffer_gradient[:, self.in_features :]
        a_gradient = (ax_gradient.t() @ buffer[:, : self.in_features]).float()
        b_gradient = (gradient.t() @ buffer[:, self.in_features :]).float()
        weight_gradients = [
            each
            for rows, columns, scale in self._slices(adapted=True)
            for each in (a_gradient[columns], b_gradient[rows, columns] * scale)
        ]
        return buffer_gradient[:, : self.in_features].addmm(ax_gradient, lora_a), weight_gradients

    def _slices(self, *, adapted: bool = False) -> Iterator[tuple[slice, slice, float]]:
        """Yield the output rows of each layer, the rank columns and scale of its adapter; `adapted` skips rank 0."""
        row = column = 0
        for out_features, rank, scale in zip(self._out_features, self._ranks, self._scales, strict=True):
            if rank or not adapted:
                yield slice(row, row + out_features), slice(column, column + rank), scale
            row, column = row + out_features, column + rank


class _Layer:
    """A decoder layer: fused q/k/v, output, gate/up and down projections, and the weights of both norms."""

    def __init__(self, layer: Any, config: Any, dtype: torch.dtype) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.linears = tuple(
            _FusedLinear(each, dtype)
            for each in (
                (attention.q_proj, attention.k_proj, attention.v_proj),
                (attention.o_proj,),
                (mlp.gate_proj, mlp.up_proj),
                (mlp.down_proj,),
            )
        )
        self.adapter_weights = [each for linear in self.linears for each in linear.adapter_weights]
        self.norms = (layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach())
        self.eps: float = config.rms_norm_eps
        self.kv_heads: int = config.num_key_value_heads
        self.heads: int = config.num_attention_heads
        self.head_dim: int = attention.head_dim
        self.scale: float = attention.scaling

    def load_adapters(self, weights: Sequence[Tensor], *, adapter: bool) -> list[Tensor | None]:
        """Load the adapter weights of each fused linear; return its stacked A matrices, None without the adapter."""
        lora_a: list[Tensor | None] = []
        begin = 0
        for linear in self.linears:
            end = begin + len(linear.adapter_weights)
            lora_a.append(linear.load_adapters(weights[begin:end], adapter=adapter))
            begin = end
        return lora_a


class _LayerFunction(torch.autograd.Function):  # type: ignore[misc]
    """A decoder layer: float32 (all tokens, hidden) to the same; with `selected` only those rows of the output.

    `weights` are the adapter's, passed so that autograd sees them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        layer: _Layer,
        batch: AttentionBatch,
        adapter: bool,
        selected: Tensor | None,
        *weights: Tensor,
    ) -> Tensor:
        def attend(qkv: Tensor, buffer: Tensor) -> tuple[Tensor, ...]:
            return _attention(layer, batch, qkv, _rotate(qkv[:, : -layer.kv_heads], batch.cos, batch.sin), buffer)

        lora_a = layer.load_adapters(weights, adapter=adapter)
        output, saved, attended = _layer_forward(layer, lora_a, hidden, selected, attend)
        if any(ctx.needs_input_grad):
            ctx.layer, ctx.batch, ctx.selected = layer, batch, selected
            ctx.save_for_backward(hidden, *saved, *lora_a, *attended)
        return output

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, rstd, residual, mlp_rstd, gate_up, activated, *others = ctx.saved_tensors
        buffers, lora_a, attended = others[:4], others[4:8], others[8:]
        layer, batch = ctx.layer, ctx.batch
        qkv_proj, out_proj, gate_up_proj, down_proj = layer.linears
        dtype = gate_up.dtype
        # d_x is the gradient of x; d_qkv_weights and the like are those of the adapter's weights.
        d_product, d_down_weights = down_proj.backward(buffers[3], lora_a[3], gradient.to(dtype))
        gate, up = gate_up.chunk(2, -1)
        d_gate_up = torch.empty_like(gate_up)
        d_gate, d_up = d_gate_up.chunk(2, -1)
        torch.mul(d_product, activated, out=d_up)
        torch.ops.aten.silu_backward(d_product.mul_(up), gate, grad_input=d_gate)
        d_normed, d_gate_up_weights = gate_up_proj.backward(buffers[2], lora_a[2], d_gate_up)
        d_residual = _rms_norm_backward(d_normed, residual, layer.norms[1], mlp_rstd).add_(gradient)
        d_attended, d_out_weights = out_proj.backward(buffers[1], lora_a[1], d_residual.to(dtype))
        if ctx.selected is not None:
            d_attended, d_residual = (
                each.new_zeros(len(hidden), each.shape[1]).index_add_(0, ctx.selected, each)
                for each in (d_attended, d_residual)
            )
        d_qkv = _attention_backward(layer, batch, attended, d_attended)
        d_normed, d_qkv_weights = qkv_proj.backward(buffers[0], lora_a[0], d_qkv)
        d_hidden = _rms_norm_backward(d_normed, hidden, layer.norms[0], rstd).add_(d_residual)
        d_weights = (*d_qkv_weights, *d_out_weights, *d_gate_up_weights, *d_down_weights)
        return d_hidden, None, None, None, None, *d_weights


@contextmanager
def _without_autocast(*, gradients: bool = False) -> Iterator[None]:
    with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(gradients):
        yield


def _layer_forward(
    layer: _Layer,
    lora_a: Sequence[Tensor | None],
    hidden: Tensor,
    selected: Tensor | None,
    attend: Callable[[Tensor, Tensor], _Attended],
) -> tuple[Tensor, tuple[Tensor, ...], _Attended]:
    """Return a layer's output for hidden states (tokens, hidden), what its backward pass needs, and `attend`'s result.

    `attend` is given queries, keys and values, shape (tokens, heads + 2 * kv_heads, head_dim), and the buffer to write
    the attention output to. With `selected` only those rows are computed after the attention.
    """
    qkv_proj, out_proj, gate_up_proj, down_proj = layer.linears
    tokens, kept = len(hidden), len(hidden) if selected is None else len(selected)
    buffers = [
        linear.input_buffer(rows, matrices)
        for linear, matrices, rows in zip(layer.linears, lora_a, (tokens, tokens, kept, kept), strict=True)
    ]
    rstd = _rms_norm(hidden, layer.norms[0], layer.eps, buffers[0])
    attended = attend(qkv_proj.forward(buffers[0], lora_a[0]).view(tokens, -1, layer.head_dim), buffers[1])
    if selected is not None:
        buffers[1] = buffers[1][selected]
    skipped = hidden if selected is None else hidden[selected]
    residual = out_proj.forward(buffers[1], lora_a[1]).float().add_(skipped)
    mlp_rstd = _rms_norm(residual, layer.norms[1], layer.eps, buffers[2])
    gate_up = gate_up_proj.forward(buffers[2], lora_a[2])
    gate, up = gate_up.chunk(2, -1)
    activated = functional.silu(gate)
    torch.mul(activated, up, out=buffers[3][:, : down_proj.in_features])
    output = down_proj.forward(buffers[3], lora_a[3]).float().add_(residual)
    return output, (rstd, residual, mlp_rstd, gate_up, activated, *buffers), attended


def _base_layer(layer: Any) -> nn.Linear:
    found: nn.Linear = layer.base_layer if isinstance(layer, LoraLinear) else layer
    return found


def _rms_norm(hidden: Tensor, weight: Tensor, eps: float, buffer: Tensor) -> Tensor:
    """Write the RMSNorm of hidden states into a buffer; return the reciprocal root mean square, (tokens, 1)."""
    rstd = hidden.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    buffer[:, : hidden.shape[1]] = (hidden * rstd).mul_(weight)
    return rstd


def _rms_norm_backward(gradient: Tensor, hidden: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
    weighted, normed = gradient * weight, hidden * rstd
    projection = (weighted * normed).mean(-1, keepdim=True)
    return weighted.sub_(normed.mul_(projection)).mul_(rstd)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to query and key heads, shape (tokens, heads, head_dim)."""
    rotated = torch.empty_like(heads, memory_format=torch.contiguous_format)
    first, second = heads.float().chunk(2, -1)
    rotated_first, rotated_second = rotated.chunk(2, -1)
    rotated_first.copy_((first * cos).addcmul_(second, sin, value=-1))
    rotated_second.copy_((second * cos).addcmul_(first, sin))
    return rotated


def _rotate_backward(gradient: Tensor, batch: AttentionBatch, out: Tensor) -> None:
    first, second = gradient.chunk(2, -1)
    out_first, out_second = out.chunk(2, -1)
    out_first.copy_((first * batch.cos).addcmul_(second, batch.sin))
    out_second.copy_((second * batch.cos).addcmul_(first, batch.sin, value=-1))


def _attention(
    layer: _Layer, batch: AttentionBatch, qkv: Tensor, rotated: Tensor, buffer: Tensor
) -> tuple[Tensor, ...]:
    """Write the attention output of each token into a buffer; return what the backward pass needs.

    `rotated` are the query and key heads after the rotary embedding.
    """
    rotated = rotated.flatten(0, 1)
    groups, count, context = batch.mask.shape
    queries = rotated.index_select(0, batch.query_index).view(groups, count, layer.head_dim)
    keys = rotated.index_select(0, batch.key_index).view(groups, context, layer.head_dim)
    values = qkv.flatten(0, 1).index_select(0, batch.value_index).view(groups, context, layer.head_dim)
    scores = torch.baddbmm(batch.mask, queries, keys.transpose(1, 2))
    probabilities = functional.softmax(scores, -1, dtype=torch.float32)
    weights = probabilities.to(qkv.dtype)
    output = (weights @ values).flatten(0, 1).index_select(0, batch.output_index)
    buffer[:, : layer.heads * layer.head_dim] = output.view(len(buffer), -1)
    return queries, keys, values, probabilities, weights


def _attention_backward(layer: _Layer, batch: AttentionBatch, saved: Sequence[Tensor], gradient: Tensor) -> Tensor:
    """Return the gradient of queries, keys and values, (tokens, q, k and v features), from that of the output."""
    queries, keys, values, probabilities, weights = saved
    d_output = gradient.view(-1, layer.head_dim).index_select(0, batch.gradient_index)
    d_output = d_output.index_fill_(0, batch.padding_index, 0).view_as(queries)
    d_weights = (d_output @ values.transpose(1, 2)).float()
    d_scores = torch._softmax_backward_data(d_weights, probabilities, -1, torch.float32).to(weights.dtype)
    d_qkv = gradient.new_empty(len(gradient), layer.heads + 2 * layer.kv_heads, layer.head_dim)
    d_rotated = torch.empty(len(gradient), layer.heads + layer.kv_heads, layer.head_dim)
    d_queries, d_keys = d_rotated[:, : layer.heads], d_rotated[:, layer.heads :]
    d_queries.copy_((d_scores @ keys).flatten(0, 1).index_select(0, batch.output_index).view_as(d_queries))
    d_keys.copy_(batch.sum_branches(d_scores.transpose(1, 2) @ queries, d_keys.shape))
    d_qkv[:, -layer.kv_heads :] = batch.sum_branches(weights.transpose(1, 2) @ d_output, d_keys.shape)
    _rotate_backward(d_rotated, batch, d_qkv[:, : -layer.kv_heads])
    return d_qkv.flatten(1)


# Prefix trees of token sequences, and the indices for attention over them.

_BRANCH_COST = 8
"""Estimated cost of one more branch, in tokens: from 2 to 32, the padding differs by 2 %."""


class PrefixTree:
    """A prefix tree of token sequences, in which a common prefix is stored once.

    `ids` are the tokens of all nodes, `positions` their positions in the sequences, and `paths` the nodes of each
    sequence.
    """

    def __init__(self, sequences: Sequence[list[int]]) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self._children: dict[tuple[int, int], int] = {}  # node by parent (-1: none) and token
        self._branches: list[tuple[list[int], int]] = []
        self.paths = [self._insert(each) for each in sequences]

    def branches(self) -> list[tuple[list[int], int]]:
        """Return paths that together add each node once, in order, with the number of nodes that earlier ones added.

        Paths are split at a length that balances padding against nodes that are attended to again.
        """
        added = [len(path) - shared for path, shared in self._branches]
        sizes = range(1, max(added) + 1)
        best = min(sizes, key=lambda size: (size + _BRANCH_COST) * sum(-(-each // size) for each in added))
        return [
            (path[: begin + best], begin) for path, shared in self._branches for begin in range(shared, len(path), best)
        ]

    def _insert(self, sequence: Sequence[int]) -> list[int]:
        path, node, shared = [], -1, 0
        for position, token in enumerate(sequence):
            node = self._children.setdefault((node, token), len(self.ids))
            if node < len(self.ids):
                shared += 1
            else:
                self.ids.append(token)
                self.positions.append(position)
            path.append(node)
        if shared < len(path):
            self._branches.append((path, shared))
        return path


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Gather and scatter indices for attention over a prefix tree, batched by branch and key/value head.

    `query_index` gathers the queries that each branch adds, padded on the right; `gradient_index` gathers the gradients
    of their outputs the same way, and `padding_index` lists the padding among them. `output_index` finds each token's
    output. `key_index` and `value_index` gather all that a branch attends to; `kv_index` is the token and head of each,
    to sum their gradients. `mask`, shape (branches * kv_heads, queries, context), is -inf for later tokens; `cos` and
    `sin` are those of `FusedLlama.rotary`.
    """

    query_index: Tensor
    gradient_index: Tensor
    padding_index: Tensor
    key_index: Tensor
    value_index: Tensor
    output_index: Tensor
    kv_index: Tensor
    mask: Tensor
    cos: Tensor
    sin: Tensor

    def sum_branches(self, heads: Tensor, shape: torch.Size) -> Tensor:
        """Sum the gradients of each token's keys or values over branches: float32 (tokens, kv_heads, head_dim)."""
        total = heads.new_zeros(shape, dtype=torch.float32)
        total.flatten(0, 1).index_add_(0, self.kv_index, heads.flatten(0, 1).float())
        return total


def attention_batch(
    tree: PrefixTree, heads: int, kv_heads: int, dtype: torch.dtype, cos: Tensor, sin: Tensor
) -> AttentionBatch:
    branches = tree.branches()
    begins, lengths = torch.tensor([begin for _, begin in branches]), torch.tensor([len(path) for path, _ in branches])
    added = nn.utils.rnn.pad_sequence([torch.tensor(path[begin:]) for path, begin in branches], batch_first=True)
    context = nn.utils.rnn.pad_sequence([torch.tensor(path) for path, _ in branches], batch_first=True)
    query_at, key_at = torch.arange(added.shape[1]), torch.arange(context.shape[1])
    is_token = query_at < (lengths - begins)[:, None]
    is_later = key_at > (begins[:, None] + query_at)[..., None]
    mask = torch.zeros(is_later.shape, dtype=dtype).masked_fill_(is_later, -math.inf)[:, None, None]
    # (branches, kv_heads, query heads of each, added) and (branches, kv_heads, context)
    added, head = added[:, None, None], torch.arange(heads).view(1, kv_heads, -1, 1)
    context, kv_head = context[:, None], torch.arange(kv_heads)[:, None]
    queries = added * (heads + kv_heads) + head
    slots = torch.arange(queries.numel()).view_as(queries).permute(0, 3, 1, 2)
    return AttentionBatch(
        query_index=queries.flatten(),
        gradient_index=(added * heads + head).flatten(),
        padding_index=is_token.logical_not()[:, None, None].expand_as(queries).flatten().nonzero()[:, 0],
        key_index=(context * (heads + kv_heads) + heads + kv_head).flatten(),
        value_index=(context * (heads + 2 * kv_heads) + heads + kv_heads + kv_head).flatten(),
        output_index=slots[is_token].flatten(),
        kv_index=(context * kv_heads + kv_head).flatten(),
        mask=mask.expand(*queries.shape, len(key_at)).reshape(-1, queries[0, 0].numel(), len(key_at)),
        cos=cos,
        sin=sin,
    )
