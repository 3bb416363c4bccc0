"""Continuous batching: requests that are being answered decode together, each behind a cache of its own.

A step multiplies the weights by the next tokens of all rows at once, and attends to each row's keys and values where
they are: nothing is padded or copied, rows of any length join and leave between two steps. Prompts are prefilled alone
in their usual steps, so what is stored of them never depends on other requests. Source: Yu et al., Orca: A Distributed
Serving System for Transformer-Based Generative Models, OSDI 2022 (iteration-level scheduling, selective batching).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import DynamicCache, DynamicLayer

from memos.backends.local.kv_buffer import KvBuffer

log = logging.getLogger("memos.backends.local")

MAX_ROWS = 16
"""Requests in one step; others wait for the next, first in, first out."""

_WAIT_SHARE, _MAX_WAIT_S = 0.25, 0.02
"""Longest wait for requests of the previous step to return, as a share of a step's duration and in seconds."""

_NAME = "memos_rows"
_SHARED = "sdpa"


@torch.inference_mode()  # type: ignore[untyped-decorator]
def decode_together(model: Any, rows: Sequence[KvBuffer], tokens: Sequence[int]) -> None:
    """Append a token to each row, and compute its next logits. A failure leaves the rows as they were."""
    lengths = [row.tokens for row in rows]
    cache = DynamicCache()
    cache.layers = [_RowsLayer(layers) for layers in zip(*(row.layers for row in rows), strict=True)]
    try:
        with _attending_by_row(model.config):
            output = model(
                input_ids=torch.tensor(tokens, device=model.device)[:, None],
                position_ids=torch.tensor(lengths, device=model.device)[:, None],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits = output.logits[:, -1].float()
        if any(row.tokens != length + 1 for row, length in zip(rows, lengths, strict=True)):
            raise RuntimeError("the model did not fill its caches")
        for row, its in zip(rows, logits, strict=True):
            row.logits = its
        rows[0].synchronize()
    except BaseException:
        for row, length in zip(rows, lengths, strict=True):
            row.cut(length)
        raise


class _RowsLayer(DynamicLayer):  # type: ignore[misc]
    """A layer of the KV caches of several requests.

    `update` returns two lists, keys and values, with one tensor per request.
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        super().__init__()
        self._rows = rows
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        parts = zip(self._rows, key_states.split(1), value_states.split(1), strict=True)
        keys, values = zip(*(row.update(key, value) for row, key, value in parts), strict=True)
        return list(keys), list(values)

    def get_seq_length(self) -> int:
        return max(int(row.get_seq_length()) for row in self._rows)


def _attend_by_row(
    module: Any,
    query: torch.Tensor,
    key: Sequence[torch.Tensor],
    value: Sequence[torch.Tensor],
    attention_mask: None,
    *,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as the model does with one row at a time; `query` is of shape (rows, heads, 1, head_dim)."""
    attend = AttentionInterface()[_SHARED]
    # One token sees all that is cached, or the last of it: no mask is needed.
    seen = slice(None) if sliding_window is None else slice(-sliding_window, None)
    found = [
        attend(module, row, keys[:, :, seen], values[:, :, seen], None, **options)[0]
        for row, keys, values in zip(query.split(1), key, value, strict=True)
    ]
    return torch.cat(found), None


AttentionInterface.register(_NAME, _attend_by_row)


@contextmanager
def _attending_by_row(config: Any) -> Iterator[None]:
    usual = config._attn_implementation
    if usual != _SHARED:
        raise ValueError(f"batching needs the attention implementation {_SHARED}, got {usual}")
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = usual


def batch_error(model: Any, block: Sequence[int]) -> str | None:
    """Return why requests cannot be batched, or None: logits in a batch must be near those alone."""
    vocabulary = model.config.get_text_config().vocab_size
    prompts = [[(place * 7919 + 13 * length) % vocabulary for place in range(length)] for length in (5, 70)]
    try:
        alone, together = ([KvBuffer(model, tuple(block), 80) for _ in prompts] for _ in range(2))
        for caches in (alone, together):
            for cache, prompt in zip(caches, prompts, strict=True):
                cache.compute(prompt)
        for token in (3, 4):
            for cache in alone:
                cache.compute([token])
            decode_together(model, together, [token] * len(together))
    except Exception as error:  # noqa: BLE001 - whatever an unknown architecture does
        return f"it does not take rows of several requests ({type(error).__name__})"
    for one, other in zip(alone, together, strict=True):
        assert one.logits is not None and other.logits is not None
        if not float((one.logits - other.logits).abs().max()) <= _tolerance(model.dtype, one.logits):
            return "answers in a batch differ from those alone"
    return None


def _tolerance(dtype: torch.dtype, logits: torch.Tensor) -> float:
    # Matrix products of several rows are summed in another order: a few units in the last place, layer by layer.
    share = {torch.float32: 1e-4, torch.float16: 0.02}.get(dtype, 0.1)
    return share * max(1.0, float(logits.abs().max()))


@dataclass(eq=False, slots=True)
class _Row:
    """A request's next token, until the step that computes what comes after it."""

    cache: KvBuffer
    token: int
    done: bool = False
    error: BaseException | None = None
    event: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class _Group:
    """Requests that may share a step. `expected` decoded in the last steps and are likely to come again."""

    pending: list[_Row] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)
    has_leader: bool = False
    step_s: float = 0.0


class Batcher:
    """Batch the decoding steps of concurrent requests. Thread-safe.

    No thread of its own: the request that has waited longest runs the next step for every request waiting then. A
    single request starts at once.
    """

    def __init__(self, model: Any, max_rows: int = MAX_ROWS) -> None:
        self._model = model
        self._max_rows = max_rows
        self._condition = threading.Condition()
        self._groups: dict[Hashable, _Group] = {}

    def step(
        self, cache: KvBuffer, token: int, group: Hashable, turn: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Append a token to a cache and compute its next logits, with others of its group; `turn` is entered for it.

        Raises what the model or `turn` raises for this request; the others of the step go on.
        """
        mine = _Row(cache, token)
        with self._condition:
            its = self._groups.setdefault(group, _Group())
            its.pending.append(mine)
            its.expected.add(id(cache))
            leads = not its.has_leader
            its.has_leader = True
            self._condition.notify_all()
        if not leads:
            try:
                mine.event.wait()
            except BaseException:  # Ctrl+C
                self._withdraw(mine, its)
                raise
        if not mine.done:  # it is this one's turn to lead
            self._lead(mine, group, its, turn)
        if mine.error is not None:
            raise mine.error

    def leave(self, cache: KvBuffer, group: Hashable) -> None:
        """Forget a request that has ended, so that no step waits for it."""
        with self._condition:
            its = self._groups.get(group)
            if its is None:
                return
            its.expected.discard(id(cache))
            if not its.pending and not its.expected and not its.has_leader:
                del self._groups[group]
            self._condition.notify_all()

    def _withdraw(self, mine: _Row, its: _Group) -> None:
        with self._condition:
            leads = mine.event.is_set() and not mine.done
            its.pending = [row for row in its.pending if row is not mine]
            if leads and its.pending:
                its.pending[0].event.set()
            elif leads:
                its.has_leader = False

    def _lead(self, mine: _Row, group: Hashable, its: _Group, turn: Callable[[], AbstractContextManager[None]]) -> None:
        rows = [mine]
        try:
            with turn():
                rows = self._gathered(mine, its)
                began = time.perf_counter()
                self._compute(rows)
                its.step_s = time.perf_counter() - began
        except BaseException as error:  # noqa: BLE001 - raised where the request is
            # Nothing was computed: it is the leader's alone, for instance a model that closes. The others try again.
            mine.done, mine.error = True, error
        finally:
            with self._condition:
                its.pending = [row for row in its.pending if not row.done]
                for row in rows:
                    if row.done and row is not mine:
                        row.event.set()
                if its.pending:
                    its.pending[0].event.set()  # it leads now
                else:
                    its.has_leader = False
                    if not its.expected:
                        self._groups.pop(group, None)

    def _gathered(self, mine: _Row, its: _Group) -> list[_Row]:
        """Return the rows of the next step, once those of the last are here again or too late."""
        with self._condition:
            until = time.monotonic() + min(_MAX_WAIT_S, _WAIT_SHARE * its.step_s)
            while len(its.pending) < min(len(its.expected), self._max_rows):
                left = until - time.monotonic()
                if left <= 0 or not self._condition.wait(left):
                    break
            here = {id(row.cache) for row in its.pending}
            its.expected &= here  # whose caller reads slowly is waited for no more, until it comes again
            others = [row for row in its.pending if row is not mine]
            return [mine, *others[: self._max_rows - 1]]

    def _compute(self, rows: Sequence[_Row]) -> None:
        if len(rows) > 1:
            try:
                decode_together(self._model, [row.cache for row in rows], [row.token for row in rows])
            except Exception as error:  # noqa: BLE001 - memory, say: then each alone, and each with its own error
                log.warning("a step of %d requests is computed one by one (%s)", len(rows), type(error).__name__)
            else:
                for row in rows:
                    row.done = True
                return
        for row in rows:
            length = row.cache.tokens
            try:
                row.cache.compute([row.token])
            except Exception as error:  # noqa: BLE001 - raised where the request is
                row.error = error
            except BaseException:  # of who computes; another computes it again
                row.cache.cut(length)
                raise
            row.done = True
