"""A Llama's layers with an adapter, forwards and backwards, in a quarter of the products that peft makes of them.

peft multiplies each linear layer and the two matrices of its adapter apart, and casts in between. Here the layers that
read one input are one product, [W | B] by [x | A x], and what gradients need is written out instead of recorded. What
all prompts of a batch begin with stands once before them, in the same products; only where tokens look at one another
are prompts padded, on the right, where nothing looks. Sources: Touvron et al., LLaMA, arXiv 2302.13971 (the layer); Hu
et al., LoRA, arXiv 2106.09685; Zhang and Sennrich, arXiv 1910.07467 (the norm); Su et al., arXiv 2104.09864 (turned
positions); Ainslie et al., arXiv 2305.13245 (heads that share keys); Shazeer, arXiv 2002.05202 (the gated part).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers import LlamaForCausalLM, MistralForCausalLM

Row = tuple[list[int], list[int]]
"""The token ids of a prompt, and of the answer to it."""


def fits(model: Any) -> bool:
    """Say whether these are the layers of a model (without its adapter) that looks at all that came before."""
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM):
        return False
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    config = model.config
    odd = ("attention_bias", "mlp_bias", "attention_dropout")
    return config.hidden_act == "silu" and not any(getattr(config, name, None) for name in odd)


class LlamaPass:
    """The layers of a model that fits and that peft put an adapter on, computed in one kind of number.

    The frozen weights are kept once more, in that kind; those of the adapter are peft's own, and get their gradients.
    """

    def __init__(self, model: Any, kind: torch.dtype) -> None:
        self._model, self._kind = model, kind
        self._layers = [_Layer(each, model.config, kind) for each in model.model.layers]
        self._head = nn.Parameter(model.lm_head.weight.to(kind), requires_grad=False)

    def frozen(self) -> Iterator[tuple[nn.Linear, nn.Parameter]]:
        """Yield each frozen linear layer with its weights in the pass's kind of number, which are no copies."""
        for layer in self._layers:
            for joined in layer.joined:
                yield from joined.frozen()
        yield self._model.lm_head, self._head

    def logits(self, rows: Sequence[Row], shared: int, *, adapter: bool) -> Tensor:
        """Return the logits (all answers, vocabulary), of the pass's kind, at the places of each row's answer.

        The first `shared` tokens of all prompts are the same, and fewer than any prompt has. Without the adapter there
        are no gradients.
        """
        batch, ids, places = self._batch(rows, shared)
        grown = adapter and torch.is_grad_enabled()
        with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(grown):
            state = self._model.model.embed_tokens(ids)
            for layer in self._layers:
                # What the last layer makes of other places is read by nobody.
                read = places if layer is self._layers[-1] else None
                state = _Pass.apply(state, layer, batch, adapter, read, *layer.weights)
            return functional.linear(self._model.model.norm(state).to(self._kind), self._head)

    def _batch(self, rows: Sequence[Row], shared: int) -> tuple[_Batch, Tensor, Tensor]:
        """Return how rows lie, all their token ids in one sequence, and where in it their answers are told."""
        # What comes last tells nothing.
        told = [(prompt + answer)[shared:-1] for prompt, answer in rows]
        tokens = max(map(len, told))
        ids, at = rows[0][0][:shared], list(range(shared))
        padded: list[int] = []
        places: list[int] = []
        for row, ((_, answer), each) in enumerate(zip(rows, told, strict=True)):
            ids = ids + each
            at += range(shared, shared + len(each))
            padded += range(row * tokens, row * tokens + len(each))
            places += range(len(ids) - len(answer), len(ids))
        cos, sin = self._model.model.rotary_emb(torch.zeros((), dtype=torch.float32), torch.tensor([at]))
        half = cos.shape[-1] // 2  # the other half is the same
        angles = cos[0, :, None, :half], sin[0, :, None, :half]
        batch = _Batch(shared, len(rows), tokens, torch.tensor(padded), *angles)
        return batch, torch.tensor(ids), torch.tensor(places, dtype=torch.long)


@dataclass(frozen=True, slots=True)
class _Batch:
    """How prompts lie in one sequence: `shared` tokens, then those of each of the rows; angles (all, 1, half a head).

    `padded` are the places of the latter where each row is padded to so many `tokens`.
    """

    shared: int
    rows: int
    tokens: int
    padded: Tensor
    cos: Tensor
    sin: Tensor

    def parts(self) -> Iterator[_Part]:
        """Yield what looks at itself: what is shared, then the rows, which look at that, too."""
        if self.shared:
            yield _Part(slice(0, self.shared), 1, self.shared, 0, None)
        yield _Part(slice(self.shared, None), self.rows, self.tokens, self.shared, self.padded)


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens at some places of a sequence, which look at those of their row and at `before` others."""

    places: slice
    rows: int
    tokens: int
    before: int
    padded: Tensor | None

    def spread(self, heads: Tensor) -> Tensor:
        """Return its heads (rows, tokens, heads, size) of those of all tokens: zeros where a row is padded."""
        mine = heads[self.places]
        if self.padded is not None and len(mine) < self.rows * self.tokens:
            mine = mine.new_zeros(self.rows * self.tokens, *mine.shape[1:]).index_copy_(0, self.padded, mine)
        return mine.reshape(self.rows, self.tokens, *mine.shape[1:])

    def gathered(self, heads: Tensor) -> Tensor:
        """Return heads (rows, tokens, heads, size) as (its tokens, heads, size) again."""
        flat = heads.reshape(-1, *heads.shape[2:])
        return flat if self.padded is None or len(self.padded) == len(flat) else flat.index_select(0, self.padded)


class _Joined:
    """Linear layers that read one input, as one product with their adapters: those without one have rank 0."""

    def __init__(self, layers: Sequence[Any], kind: torch.dtype) -> None:
        self._layers = layers
        whole = [_base(each) for each in layers]
        self.reads, self._gives = whole[0].in_features, [each.out_features for each in whole]
        adapters = [each if isinstance(each, LoraLinear) else None for each in layers]
        pairs = [(each.lora_A["default"], each.lora_B["default"]) if each else None for each in adapters]
        self._ranks = [pair[0].out_features if pair else 0 for pair in pairs]
        self._scales = [each.scaling["default"] if each else 0.0 for each in adapters]
        self.weights = [each.weight for pair in pairs if pair for each in pair]
        self._whole = torch.zeros(sum(self._gives), self.reads + sum(self._ranks), dtype=kind)
        torch.cat([each.weight for each in whole], out=self._whole[:, : self.reads])

    def frozen(self) -> Iterator[tuple[nn.Linear, nn.Parameter]]:
        """Yield each layer with its part of the frozen weights."""
        for layer, (rows, _, _) in zip(self._layers, self._parts(), strict=True):
            yield _base(layer), nn.Parameter(self._whole[rows, : self.reads], requires_grad=False)

    def taken(self, weights: Sequence[Tensor], *, adapter: bool) -> Tensor | None:
        """Take the second matrices of adapters; return the first ones as one (ranks, reads), None without adapters."""
        if not adapter:
            return None
        for (rows, columns, scale), second in zip(self._parts(adapted=True), weights[1::2], strict=True):
            self._whole[rows, self.reads + columns.start : self.reads + columns.stop] = second * scale
        firsts = weights[::2] or [torch.zeros(0, self.reads)]
        return torch.cat(tuple(firsts)).to(self._whole.dtype)

    def room(self, tokens: int, first: Tensor | None) -> Tensor:
        """Return room for an input (tokens, reads), with places behind it for what the first matrices make of it."""
        width = self.reads if first is None else self._whole.shape[1]
        return torch.empty(tokens, width, dtype=self._whole.dtype)

    def product(self, given: Tensor, first: Tensor | None) -> Tensor:
        """Return what the layers make of an input in its room: (tokens, gives), one beside another."""
        if first is None:
            return given @ self._whole[:, : self.reads].t()
        given[:, self.reads :] = given[:, : self.reads] @ first.t()
        return given @ self._whole.t()

    def gradients(self, given: Tensor, first: Tensor, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the gradients of an input (tokens, reads), and of its adapters' weights in their order."""
        wide = gradient @ self._whole
        inner = wide[:, self.reads :]
        firsts = (inner.t() @ given[:, : self.reads]).float()
        seconds = (gradient.t() @ given[:, self.reads :]).float()
        of_weights = [
            each
            for rows, columns, scale in self._parts(adapted=True)
            for each in (firsts[columns], seconds[rows, columns] * scale)
        ]
        return wide[:, : self.reads].addmm(inner, first), of_weights

    def _parts(self, *, adapted: bool = False) -> Iterator[tuple[slice, slice, float]]:
        """Yield the rows of each layer, the columns of its adapter, and its scale; `adapted`, only where one is."""
        row = column = 0
        for gives, rank, scale in zip(self._gives, self._ranks, self._scales, strict=True):
            if rank or not adapted:
                yield slice(row, row + gives), slice(column, column + rank), scale
            row, column = row + gives, column + rank


class _Layer:
    """The parts of one layer, in the order in which they are gone through."""

    def __init__(self, layer: Any, config: Any, kind: torch.dtype) -> None:
        seen, fed = layer.self_attn, layer.mlp
        self.joined = tuple(
            _Joined(each, kind)
            for each in (
                (seen.q_proj, seen.k_proj, seen.v_proj), (seen.o_proj,), (fed.gate_proj, fed.up_proj), (fed.down_proj,),
            )
        )  # fmt: skip
        self.weights = [each for joined in self.joined for each in joined.weights]
        self.norms = (layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach())
        self.tiny: float = config.rms_norm_eps
        self.keys: int = config.num_key_value_heads
        self.queries: int = config.num_attention_heads
        self.size: int = seen.head_dim
        self.scale: float = seen.scaling

    def shares(self, weights: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
        """Yield what of a layer's adapters is of each of the joined."""
        begin = 0
        for joined in self.joined:
            yield weights[begin : begin + len(joined.weights)]
            begin += len(joined.weights)


class _Pass(torch.autograd.Function):  # type: ignore[misc]
    """One layer: its input and output are (all tokens, hidden), float32; `weights` are those of its adapters.

    With `read` its output is that at these places alone.
    """

    @staticmethod
    def forward(
        ctx: Any, state: Tensor, layer: _Layer, batch: _Batch, adapter: bool, read: Tensor | None, *weights: Tensor
    ) -> Tensor:
        asks, gives, opens, closes = layer.joined
        firsts = [
            joined.taken(share, adapter=adapter)
            for joined, share in zip(layer.joined, layer.shares(weights), strict=True)
        ]
        tokens, later = len(state), len(state) if read is None else len(read)
        rooms = [
            joined.room(many, first)
            for joined, first, many in zip(layer.joined, firsts, (tokens, tokens, later, later), strict=True)
        ]
        root = _normed(state, layer.norms[0], layer.tiny, rooms[0])
        made = asks.product(rooms[0], firsts[0]).view(tokens, -1, layer.size)
        turned, values = _turned(made[:, : -layer.keys], batch), made[:, -layer.keys :]
        looked = _looked(layer, batch, turned, values, rooms[1])
        if read is not None:
            rooms[1] = rooms[1][read]
        middle = gives.product(rooms[1], firsts[1]).float().add_(state if read is None else state[read])
        root_later = _normed(middle, layer.norms[1], layer.tiny, rooms[2])
        opened = opens.product(rooms[2], firsts[2])
        gate, up = opened.chunk(2, -1)
        passed = functional.silu(gate)
        torch.mul(passed, up, out=rooms[3][:, : closes.reads])
        ended = closes.product(rooms[3], firsts[3]).float().add_(middle)
        if any(ctx.needs_input_grad):
            ctx.layer, ctx.batch, ctx.read = layer, batch, read
            ctx.save_for_backward(state, root, middle, root_later, opened, passed, *rooms, *firsts, *looked)
        return ended

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        state, root, middle, root_later, opened, passed, *others = ctx.saved_tensors
        rooms, firsts, looked = others[:4], others[4:8], others[8:]
        layer, batch = ctx.layer, ctx.batch
        asks, gives, opens, closes = layer.joined
        kind = opened.dtype
        of_fed, of_closes = closes.gradients(rooms[3], firsts[3], gradient.to(kind))
        gate, up = opened.chunk(2, -1)
        of_opened = torch.empty_like(opened)
        of_gate, of_up = of_opened.chunk(2, -1)
        torch.mul(of_fed, passed, out=of_up)
        of_gate.copy_(torch.ops.aten.silu_backward(of_fed.mul_(up), gate))
        of_normed, of_opens = opens.gradients(rooms[2], firsts[2], of_opened)
        of_middle = _of_normed(of_normed, middle, layer.norms[1], root_later).add_(gradient)
        of_looked, of_gives = gives.gradients(rooms[1], firsts[1], of_middle.to(kind))
        if ctx.read is not None:
            of_looked, of_middle = (
                each.new_zeros(len(state), each.shape[1]).index_copy_(0, ctx.read, each)
                for each in (of_looked, of_middle)
            )
        of_made = _of_looked(layer, batch, looked, of_looked)
        of_normed, of_asks = asks.gradients(rooms[0], firsts[0], of_made)
        of_state = _of_normed(of_normed, state, layer.norms[0], root).add_(of_middle)
        return of_state, None, None, None, None, *of_asks, *of_gives, *of_opens, *of_closes


def _base(layer: Any) -> nn.Linear:
    found: nn.Linear = layer.base_layer if isinstance(layer, LoraLinear) else layer
    return found


def _normed(state: Tensor, weight: Tensor, tiny: float, room: Tensor) -> Tensor:
    """Put a state by its root mean square, times a weight, into its room; return what it was multiplied by."""
    root = state.square().mean(-1, keepdim=True).add_(tiny).rsqrt_()
    room[:, : state.shape[1]] = (state * root).mul_(weight)
    return root


def _of_normed(gradient: Tensor, state: Tensor, weight: Tensor, root: Tensor) -> Tensor:
    """Return the gradient of a state from that of its norm."""
    weighed, unit = gradient * weight, state * root
    along = (weighed * unit).mean(-1, keepdim=True)
    return weighed.sub_(unit.mul_(along)).mul_(root)


def _turned(made: Tensor, batch: _Batch) -> Tensor:
    """Return heads (all tokens, heads, size) turned by where their tokens are."""
    turned = torch.empty_like(made, memory_format=torch.contiguous_format)
    one, other = made.float().chunk(2, -1)
    to_one, to_other = turned.chunk(2, -1)
    to_one.copy_((one * batch.cos).addcmul_(other, batch.sin, value=-1))
    to_other.copy_((other * batch.cos).addcmul_(one, batch.sin))
    return turned


def _turned_back(gradient: Tensor, batch: _Batch, into: Tensor) -> None:
    one, other = gradient.chunk(2, -1)
    to_one, to_other = into.chunk(2, -1)
    to_one.copy_((one * batch.cos).addcmul_(other, batch.sin))
    to_other.copy_((other * batch.cos).addcmul_(one, batch.sin, value=-1))


def _of_queries(heads: Tensor, keys: int) -> Tensor:
    """Return queries (rows, tokens, heads, size) as (rows, keys, heads of one key times tokens, size)."""
    rows, tokens, _, size = heads.shape
    return heads.view(rows, tokens, keys, -1, size).permute(0, 2, 3, 1, 4).reshape(rows, keys, -1, size)


def _as_queries(split: Tensor, tokens: int) -> Tensor:
    """Return what `_of_queries` split as it was."""
    rows, keys, _, size = split.shape
    return split.view(rows, keys, -1, tokens, size).permute(0, 3, 1, 2, 4).reshape(rows, tokens, -1, size)


def _looked(layer: _Layer, batch: _Batch, turned: Tensor, values: Tensor, room: Tensor) -> list[Tensor]:
    """Put what each token finds by looking back into its room; return what its gradients need, of each part."""
    kept: list[Tensor] = []
    for part in batch.parts():
        asked = _of_queries(part.spread(turned[:, : layer.queries]), layer.keys)
        seen = [part.spread(each).transpose(1, 2) for each in (turned[:, layer.queries :], values)]
        if part.before:
            shared = kept[1:3]
            seen = [
                torch.cat((one.expand(part.rows, -1, -1, -1), two), 2) for one, two in zip(shared, seen, strict=True)
            ]
        there = part.before + part.tokens
        scores = (asked @ seen[0].transpose(-1, -2)).float().mul_(layer.scale)
        ahead = torch.full((part.tokens, there), -math.inf).triu_(1 + part.before)
        chances = functional.softmax(scores.view(part.rows, layer.keys, -1, part.tokens, there).add_(ahead), -1)
        weights = chances.view_as(scores).to(turned.dtype)
        found = part.gathered(_as_queries(weights @ seen[1], part.tokens))
        room[part.places, : layer.queries * layer.size] = found.flatten(1)
        kept += [asked, *seen, weights]
    return kept


def _of_looked(layer: _Layer, batch: _Batch, kept: Sequence[Tensor], gradient: Tensor) -> Tensor:
    """Return the gradient of queries, keys and values (all tokens, all of them) from that of what was found."""
    of_found = gradient.view(len(gradient), layer.queries, layer.size)
    of_made = gradient.new_empty(len(gradient), layer.queries + 2 * layer.keys, layer.size)
    of_turned = torch.empty(len(gradient), layer.queries + layer.keys, layer.size)
    of_shared: list[Tensor] = []
    for number, part in reversed(list(enumerate(batch.parts()))):
        asked, keys, values, weights = kept[4 * number : 4 * number + 4]
        given = _of_queries(part.spread(of_found), layer.keys)
        of_values = weights.transpose(-1, -2) @ given
        of_weights = (given @ values.transpose(-1, -2)).float().mul_(weights)
        along = of_weights.sum(-1, keepdim=True)
        of_scores = of_weights.addcmul_(weights.float(), along, value=-1).mul_(layer.scale).to(weights.dtype)
        of_seen = [of_scores.transpose(-1, -2) @ asked, of_values]
        if of_shared:
            of_seen = [mine.float() + theirs for mine, theirs in zip(of_seen, of_shared, strict=True)]
        if part.before:
            of_shared = [each[:, :, : part.before].float().sum(0, keepdim=True) for each in of_seen]
        of_keys, of_values = (part.gathered(each[:, :, part.before :].transpose(1, 2)) for each in of_seen)
        of_turned[part.places, : layer.queries] = part.gathered(_as_queries(of_scores @ keys, part.tokens))
        of_turned[part.places, layer.queries :] = of_keys
        of_made[part.places, -layer.keys :] = of_values
    _turned_back(of_turned, batch, of_made[:, : -layer.keys])
    return of_made.flatten(1)
