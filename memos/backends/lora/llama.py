"""A Llama's layers with an adapter, forwards and backwards, in a quarter of the products that peft makes of them.

peft multiplies each linear layer and the two matrices of its adapter apart, and casts in between. Here the layers that
read one input are one product, [W | B] by [x | A x], and what gradients need is written out instead of recorded. What
several prompts of a batch begin with stands once (`Tree`). Sources: Touvron et al., LLaMA, arXiv 2302.13971 (the
layer); Hu et al., LoRA, arXiv 2106.09685; Zhang and Sennrich, arXiv 1910.07467 (the norm); Su et al., arXiv 2104.09864
(turned positions); Ainslie et al., arXiv 2305.13245 (heads that share keys); Shazeer, arXiv 2002.05202 (the gated
part).
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
"""The token ids of a prompt, and of the answer to it."""

_Found = TypeVar("_Found")


def fits(model: Any) -> bool:
    """Return True if these are the layers of a model (without its adapter) that attends to all preceding tokens."""
    if type(model) not in (LlamaForCausalLM, MistralForCausalLM):
        return False
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    config = model.config
    odd = ("attention_bias", "mlp_bias", "attention_dropout")
    return config.hidden_act == "silu" and not any(getattr(config, name, None) for name in odd)


class LlamaPass:
    """The layers of a model that fits and that peft put an adapter on, computed in one kind of number.

    The frozen weights are kept once more in that kind, or moved where they are of it already: the model then has them
    from there. Those of the adapter are peft's own, and get their gradients.
    """

    def __init__(self, model: Any, kind: torch.dtype) -> None:
        self._model, self.kind = model, kind
        self.layers = [_Layer(each, model.config, kind) for each in model.model.layers]
        self._head = nn.Parameter(model.lm_head.weight.to(kind), requires_grad=False)

    def frozen(self) -> Iterator[tuple[nn.Linear, nn.Parameter]]:
        """Yield each frozen linear layer with its weights in the pass's kind of number, which are no copies."""
        for layer in self.layers:
            for joined in layer.joined:
                yield from joined.frozen()
        yield self._model.lm_head, self._head

    def logits(self, rows: Sequence[Row], *, adapter: bool) -> Tensor:
        """Return the logits (all answers, vocabulary), of the pass's kind, at the places of each row's answer.

        Without the adapter there are no gradients.
        """
        # What comes last tells nothing.
        tree = Tree([(prompt + answer)[:-1] for prompt, answer in rows])
        answers = zip(tree.paths, (len(answer) for _, answer in rows), strict=True)
        places = torch.tensor([place for path, count in answers for place in path[-count:]])
        with _as_written(gradients=adapter and torch.is_grad_enabled()):
            batch = self.batch(tree)
            state = self.embedded(torch.tensor(tree.ids))
            for layer in self.layers:
                # What the last layer makes of other places is read by nobody.
                read = places if layer is self.layers[-1] else None
                state = _Pass.apply(state, layer, batch, adapter, read, *layer.weights)
            return self.told(state)

    def embedded(self, ids: Tensor) -> Tensor:
        """Return the state (tokens, hidden), float32, that the first layer reads."""
        found: Tensor = self._model.model.embed_tokens(ids)
        return found

    def told(self, state: Tensor) -> Tensor:
        """Return the logits (tokens, vocabulary), of the pass's kind, of what the last layer made."""
        return functional.linear(self._model.model.norm(state).to(self.kind), self._head)

    def batch(self, tree: Tree) -> Batch:
        """Return where the heads of a tree's tokens lie, and how far they are turned."""
        layer = self.layers[0]
        return batch_of(tree, layer.queries, layer.keys, self.kind, *self.angles(torch.tensor(tree.at)))

    def angles(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (tokens, turned heads, half a head) by which heads of tokens at places are turned.

        Scores are scaled by them, too, as queries are turned anyway.
        """
        layer = self.layers[0]
        cos, sin = self._model.model.rotary_emb(torch.zeros((), dtype=torch.float32), at[None])
        half = cos.shape[-1] // 2  # the other half is the same
        scales = torch.ones(layer.queries + layer.keys, 1)
        scales[: layer.queries] = layer.scale
        return cos[0, :, None, :half] * scales, sin[0, :, None, :half] * scales


class LlamaContinuation:
    """Prompts continued token by token, each with its own output so far; their common prefix is computed once.

    Without gradients. `logits` (rows, vocabulary) tell what may come next of each.
    """

    leaves = True

    def __init__(self, whole: LlamaPass, prompts: Sequence[list[int]], most: int, *, adapter: bool) -> None:
        """Begin: at most `most` tokens come after the prompts."""
        tree = Tree(prompts)
        paths = nn.utils.rnn.pad_sequence(list(map(torch.tensor, tree.paths)), batch_first=True)
        read = torch.tensor([path[-1] for path in tree.paths])
        self._whole, self._at = whole, torch.tensor(list(map(len, tree.paths)))
        self._seen = [_Seen(layer, len(paths), paths.shape[1] + most, whole.kind) for layer in whole.layers]
        with _as_written():
            self._firsts = [layer.taken(layer.weights, adapter=adapter) for layer in whole.layers]
            batch, state = whole.batch(tree), whole.embedded(torch.tensor(tree.ids))
            for layer, firsts, seen in zip(whole.layers, self._firsts, self._seen, strict=True):
                look = partial(seen.begin, batch, paths)
                state = _through(layer, firsts, state, read if layer is whole.layers[-1] else None, look)[0]
            self.logits = whole.told(state)

    def say(self, tokens: Tensor) -> None:
        """Add a token (rows) to each row."""
        with _as_written():
            state, angles = self._whole.embedded(tokens), self._whole.angles(self._at)
            for layer, firsts, seen in zip(self._whole.layers, self._firsts, self._seen, strict=True):
                state = _through(layer, firsts, state, None, partial(seen.look, self._at, angles))[0]
            self._at = self._at + 1
            self.logits = self._whole.told(state)

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows alone."""
        self._at, self.logits = self._at[rows], self.logits[rows]
        for seen in self._seen:
            seen.keep(rows)


class _Seen:
    """Keys and values of one layer, (rows, keys, room, size) each, of all that rows said until now, from the left."""

    def __init__(self, layer: _Layer, rows: int, room: int, kind: torch.dtype) -> None:
        self._layer = layer
        self._keys, self._values = (torch.zeros(rows, layer.keys, room, layer.size, dtype=kind) for _ in range(2))

    def begin(self, batch: Batch, paths: Tensor, made: Tensor, room: Tensor) -> None:
        """Take those of paths (rows, longest) in a tree, padded on the right; look back in it."""
        layer, longest = self._layer, paths.shape[1]
        turned = _turned(made[:, : -layer.keys], batch.cos, batch.sin)
        self._keys[:, :, :longest] = turned[:, layer.queries :][paths].transpose(1, 2)
        self._values[:, :, :longest] = made[:, -layer.keys :][paths].transpose(1, 2)
        _looked(layer, batch, made, turned, room)

    def look(self, at: Tensor, angles: tuple[Tensor, Tensor], made: Tensor, room: Tensor) -> None:
        """Take those of one more token of each row, which stands at a place; it looks back."""
        layer, rows, last = self._layer, torch.arange(len(at)), int(at.max()) + 1
        turned = _turned(made[:, : -layer.keys], *angles)
        self._keys[rows, :, at], self._values[rows, :, at] = turned[:, layer.queries :], made[:, -layer.keys :]
        asked = turned[:, : layer.queries].view(len(at), layer.keys, -1, layer.size)
        scores = asked @ self._keys[:, :, :last].transpose(2, 3)
        scores.masked_fill_((torch.arange(last) > at[:, None])[:, None, None], -math.inf)
        chances = functional.softmax(scores, -1, dtype=torch.float32).to(made.dtype)
        room[:, : layer.queries * layer.size] = (chances @ self._values[:, :, :last]).view(len(at), -1)

    def keep(self, rows: Tensor) -> None:
        """Keep those of these rows alone."""
        self._keys, self._values = self._keys[rows], self._values[rows]


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
        for layer, mine in self.frozen():
            if layer.weight.dtype == kind:
                layer.weight = mine

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
                (seen.q_proj, seen.k_proj, seen.v_proj),
                (seen.o_proj,),
                (fed.gate_proj, fed.up_proj),
                (fed.down_proj,),
            )
        )
        self.weights = [each for joined in self.joined for each in joined.weights]
        self.norms = (layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach())
        self.tiny: float = config.rms_norm_eps
        self.keys: int = config.num_key_value_heads
        self.queries: int = config.num_attention_heads
        self.size: int = seen.head_dim
        self.scale: float = seen.scaling

    def taken(self, weights: Sequence[Tensor], *, adapter: bool) -> list[Tensor | None]:
        """Take the weights of its adapters: return the first ones of each of the joined, None without adapters."""
        found: list[Tensor | None] = []
        begin = 0
        for joined in self.joined:
            end = begin + len(joined.weights)
            found.append(joined.taken(weights[begin:end], adapter=adapter))
            begin = end
        return found


class _Pass(torch.autograd.Function):  # type: ignore[misc]
    """A layer: its input and output are (all tokens, hidden), float32; `weights` are those of its adapters.

    With `read` its output is that at these places alone.
    """

    @staticmethod
    def forward(
        ctx: Any, state: Tensor, layer: _Layer, batch: Batch, adapter: bool, read: Tensor | None, *weights: Tensor
    ) -> Tensor:
        def looked(made: Tensor, room: Tensor) -> tuple[Tensor, ...]:
            return _looked(layer, batch, made, _turned(made[:, : -layer.keys], batch.cos, batch.sin), room)

        firsts = layer.taken(weights, adapter=adapter)
        ended, kept, found = _through(layer, firsts, state, read, looked)
        if any(ctx.needs_input_grad):
            ctx.layer, ctx.batch, ctx.read = layer, batch, read
            ctx.save_for_backward(state, *kept, *firsts, *found)
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
        torch.ops.aten.silu_backward(of_fed.mul_(up), gate, grad_input=of_gate)
        of_normed, of_opens = opens.gradients(rooms[2], firsts[2], of_opened)
        of_middle = _of_normed(of_normed, middle, layer.norms[1], root_later).add_(gradient)
        of_looked, of_gives = gives.gradients(rooms[1], firsts[1], of_middle.to(kind))
        if ctx.read is not None:
            of_looked, of_middle = (
                each.new_zeros(len(state), each.shape[1]).index_add_(0, ctx.read, each)
                for each in (of_looked, of_middle)
            )
        of_made = _of_looked(layer, batch, looked, of_looked)
        of_normed, of_asks = asks.gradients(rooms[0], firsts[0], of_made)
        of_state = _of_normed(of_normed, state, layer.norms[0], root).add_(of_middle)
        return of_state, None, None, None, None, *of_asks, *of_gives, *of_opens, *of_closes


@contextmanager
def _as_written(*, gradients: bool = False) -> Iterator[None]:
    """Cast nothing in between, and record nothing but for gradients."""
    with torch.autocast("cpu", enabled=False), torch.set_grad_enabled(gradients):
        yield


def _through(
    layer: _Layer,
    firsts: Sequence[Tensor | None],
    state: Tensor,
    read: Tensor | None,
    look: Callable[[Tensor, Tensor], _Found],
) -> tuple[Tensor, tuple[Tensor, ...], _Found]:
    """Return what a layer makes of a state (tokens, hidden), what its gradients need, and what `look` returned.

    That puts what each token finds by looking back into its room, by queries, keys and values of all. With `read` the
    output is that at these places alone.
    """
    asks, gives, opens, closes = layer.joined
    tokens, later = len(state), len(state) if read is None else len(read)
    rooms = [
        joined.room(many, first)
        for joined, first, many in zip(layer.joined, firsts, (tokens, tokens, later, later), strict=True)
    ]
    root = _normed(state, layer.norms[0], layer.tiny, rooms[0])
    found = look(asks.product(rooms[0], firsts[0]).view(tokens, -1, layer.size), rooms[1])
    if read is not None:
        rooms[1] = rooms[1][read]
    middle = gives.product(rooms[1], firsts[1]).float().add_(state if read is None else state[read])
    root_later = _normed(middle, layer.norms[1], layer.tiny, rooms[2])
    opened = opens.product(rooms[2], firsts[2])
    gate, up = opened.chunk(2, -1)
    passed = functional.silu(gate)
    torch.mul(passed, up, out=rooms[3][:, : closes.reads])
    ended = closes.product(rooms[3], firsts[3]).float().add_(middle)
    return ended, (root, middle, root_later, opened, passed, *rooms), found


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


def _turned(made: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads (all tokens, heads, size) turned by where their tokens are."""
    turned = torch.empty_like(made, memory_format=torch.contiguous_format)
    one, other = made.float().chunk(2, -1)
    to_one, to_other = turned.chunk(2, -1)
    to_one.copy_((one * cos).addcmul_(other, sin, value=-1))
    to_other.copy_((other * cos).addcmul_(one, sin))
    return turned


def _turned_back(gradient: Tensor, batch: Batch, into: Tensor) -> None:
    one, other = gradient.chunk(2, -1)
    to_one, to_other = into.chunk(2, -1)
    to_one.copy_((one * batch.cos).addcmul_(other, batch.sin))
    to_other.copy_((other * batch.cos).addcmul_(one, batch.sin, value=-1))


def _looked(layer: _Layer, batch: Batch, made: Tensor, turned: Tensor, room: Tensor) -> tuple[Tensor, ...]:
    """Put what each token finds by looking back into its room; return what its gradients need."""
    turned = turned.flatten(0, 1)
    rows, queries, seen = batch.mask.shape
    asked = turned.index_select(0, batch.asked).view(rows, queries, layer.size)
    keys = turned.index_select(0, batch.keys).view(rows, seen, layer.size)
    values = made.flatten(0, 1).index_select(0, batch.values).view(rows, seen, layer.size)
    chances = functional.softmax(torch.baddbmm(batch.mask, asked, keys.transpose(1, 2)), -1, dtype=torch.float32)
    weights = chances.to(made.dtype)
    found = (weights @ values).flatten(0, 1).index_select(0, batch.found)
    room[:, : layer.queries * layer.size] = found.view(len(room), -1)
    return asked, keys, values, chances, weights


def _of_looked(layer: _Layer, batch: Batch, kept: Sequence[Tensor], gradient: Tensor) -> Tensor:
    """Return the gradient of queries, keys and values (all tokens, all of them) from that of what was found."""
    asked, keys, values, chances, weights = kept
    given = gradient.view(-1, layer.size).index_select(0, batch.given).index_fill_(0, batch.padded, 0).view_as(asked)
    of_weights = (given @ values.transpose(1, 2)).float()
    of_scores = torch._softmax_backward_data(of_weights, chances, -1, torch.float32).to(weights.dtype)
    of_made = gradient.new_empty(len(gradient), layer.queries + 2 * layer.keys, layer.size)
    of_turned = torch.empty(len(gradient), layer.queries + layer.keys, layer.size)
    mine, shared = of_turned[:, : layer.queries], of_turned[:, layer.queries :]
    mine.copy_((of_scores @ keys).flatten(0, 1).index_select(0, batch.found).view_as(mine))
    shared.copy_(batch.summed(of_scores.transpose(1, 2) @ asked, shared.shape))
    of_made[:, -layer.keys :] = batch.summed(weights.transpose(1, 2) @ given, shared.shape)
    _turned_back(of_turned, batch, of_made[:, : -layer.keys])
    return of_made.flatten(1)


# A batch of token sequences as a tree, in which what several begin with stands once, and where its heads lie.

_A_BRANCH = 8
"""Estimated cost of one more branch, in tokens: from 2 to 32, the padding differs by 2 %."""


class Tree:
    """Sequences of tokens, in which what several begin with stands once: `ids` and positions `at` of all its tokens.

    `paths` are the places of each sequence's tokens in it.
    """

    def __init__(self, sequences: Sequence[list[int]]) -> None:
        self.ids: list[int] = []
        self.at: list[int] = []
        self._grown: dict[tuple[int, int], int] = {}
        self._branches: list[tuple[list[int], int]] = []
        self.paths = [self._path(each) for each in sequences]

    def branches(self) -> list[tuple[list[int], int]]:
        """Return, in the order of the tree's tokens, paths to some of them, and how many of a path others have.

        They are cut to such a length that little of them is padding, and little of it is seen once more.
        """
        added = [len(path) - others for path, others in self._branches]
        sizes = range(1, max(added) + 1)
        most = min(sizes, key=lambda size: (size + _A_BRANCH) * sum(-(-each // size) for each in added))
        return [
            (path[: begin + most], begin) for path, others in self._branches for begin in range(others, len(path), most)
        ]

    def _path(self, sequence: Sequence[int]) -> list[int]:
        path, place, others = [], -1, 0
        for at, token in enumerate(sequence):
            place = self._grown.setdefault((place, token), len(self.ids))
            if place < len(self.ids):
                others += 1
            else:
                self.ids.append(token)
                self.at.append(at)
            path.append(place)
        if others < len(path):
            self._branches.append((path, others))
        return path


@dataclass(frozen=True, slots=True)
class Batch:
    """Gather and scatter indices for attention over a tree of prompts, batched by branch and key-value head.

    `asked` gathers the queries that each branch adds, padded on the right; `given` gathers the gradients of their
    results the same way, and zeroes the rows in `padded`. `found` has the place of each token's result. `keys` and
    `values` gather all that a branch attends to; `whose` has the token and head of each, to sum their gradients.
    `mask`, shape (branches and keys, queries, seen), hides later tokens; `cos` and `sin` are the rotary factors, shape
    (tokens, rotated heads, half a head).
    """

    asked: Tensor
    given: Tensor
    padded: Tensor
    keys: Tensor
    values: Tensor
    found: Tensor
    whose: Tensor
    mask: Tensor
    cos: Tensor
    sin: Tensor

    def summed(self, heads: Tensor, shape: torch.Size) -> Tensor:
        """Return the sums over branches of each token's keys or values, float32, as (tokens, keys, size)."""
        total = heads.new_zeros(shape, dtype=torch.float32)
        total.flatten(0, 1).index_add_(0, self.whose, heads.flatten(0, 1).float())
        return total


def batch_of(tree: Tree, queries: int, keys: int, kind: torch.dtype, cos: Tensor, sin: Tensor) -> Batch:
    """Return where the heads of a tree's tokens lie, of so many queries and keys a token."""
    branches = tree.branches()
    begins, lengths = torch.tensor([begin for _, begin in branches]), torch.tensor([len(path) for path, _ in branches])
    added = nn.utils.rnn.pad_sequence([torch.tensor(path[begin:]) for path, begin in branches], batch_first=True)
    seen = nn.utils.rnn.pad_sequence([torch.tensor(path) for path, _ in branches], batch_first=True)
    at, order = torch.arange(added.shape[1]), torch.arange(seen.shape[1])
    adds = at < (lengths - begins)[:, None]
    later = order > (begins[:, None] + at)[..., None]
    mask = torch.zeros(later.shape, dtype=kind).masked_fill_(later, -math.inf)[:, None, None]
    # (branches, keys, heads of one key, added) and (branches, keys, seen)
    added, query = added[:, None, None], torch.arange(queries).view(1, keys, -1, 1)
    seen, key = seen[:, None], torch.arange(keys)[:, None]
    asked = added * (queries + keys) + query
    slots = torch.arange(asked.numel()).view_as(asked).permute(0, 3, 1, 2)
    return Batch(
        asked=asked.flatten(),
        given=(added * queries + query).flatten(),
        padded=adds.logical_not()[:, None, None].expand_as(asked).flatten().nonzero()[:, 0],
        keys=(seen * (queries + keys) + queries + key).flatten(),
        values=(seen * (queries + 2 * keys) + queries + keys + key).flatten(),
        found=slots[adds].flatten(),
        whose=(seen * keys + key).flatten(),
        mask=mask.expand(*asked.shape, len(order)).reshape(-1, asked[0, 0].numel(), len(order)),
        cos=cos,
        sin=sin,
    )
