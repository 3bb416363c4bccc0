"""Charges the key of a request for the tokens that the endpoint takes; knows no answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from anyio import CancelScope, to_thread

from memos.kernel.memos import MemOS

_BYTES_PER_TOKEN = 4


class Spending:
    """Tokens set aside for one request; what it did not take is given back when it ends."""

    def __init__(self, stack: ExitStack, took: Callable[[int], None], asked: int) -> None:
        self._stack = stack
        self._took = took
        self._asked = asked
        self._open = True

    @classmethod
    async def begin(cls, memos: MemOS, body_bytes: int, longest_answer: int) -> Spending:
        """Set aside what a request may take. Raises: LimitReached."""

        def take() -> Spending:
            with ExitStack() as stack:
                took = stack.enter_context(memos.quotas.model_call(body_bytes // 2 + longest_answer, "proxy"))
                return cls(stack.pop_all(), took, body_bytes // _BYTES_PER_TOKEN)

        return await to_thread.run_sync(take)

    async def end(self, tokens: int | None = None, *, answered: int | None = None) -> None:
        """Charge what was taken: as counted, else as a body and `answered` characters cost, else nothing."""
        if not self._open:
            return
        self._open = False
        if tokens is None:
            tokens = 0 if answered is None else self._asked + answered // _BYTES_PER_TOKEN
        self._took(tokens)
        with CancelScope(shield=True):
            await to_thread.run_sync(self._stack.close)
