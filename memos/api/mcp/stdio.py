"""The protocol on standard input and output: nothing else is written there, logs go to standard error."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import anyio
from anyio import to_thread

from memos.api.dialects import RequestIdentity
from memos.api.mcp.acting import always
from memos.api.mcp.server import create
from memos.kernel.memos import MemOS


def run(memos: Callable[[], MemOS], whose: RequestIdentity, close: Callable[[], None]) -> None:
    """Answer messages, all for one user, until standard input ends; `memos` is asked for each anew.

    A signal to end has `close` called, and ends the process.
    """
    anyio.run(_answer, memos, whose, close)


async def _answer(memos: Callable[[], MemOS], whose: RequestIdentity, close: Callable[[], None]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_when_told, close)
        await create(always(memos, whose)).run_stdio_async()
        tasks.cancel_scope.cancel()


async def _end_when_told(close: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await to_thread.run_sync(close)
            # The thread that waits for a line of input would keep the process until there is one.
            os._exit(0)
