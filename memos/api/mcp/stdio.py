"""MCP on standard input and output. Nothing else is written there; logs go to standard error."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from starlette.requests import Request

from memos.api.agents import in_project
from memos.api.mcp.context import ToolContext
from memos.api.mcp.greeting import Wire
from memos.api.mcp.server import create
from memos.core.types import LOCAL_OWNER
from memos.errors import MemosError

if TYPE_CHECKING:
    from memos.api.dialects import RequestIdentity
    from memos.api.local.sharing import SharedInstallation
    from memos.kernel.memos import MemOS

log = logging.getLogger("memos.api")


def run(
    wire: Wire,
    data_dir: Path | None,
    user: str = LOCAL_OWNER,
    *,
    project: str | None = None,
    all_tools: bool = False,
    read_only: bool = False,
) -> None:
    """Answer messages for one user until they end or a signal comes; with a project, in the project's own cube."""
    installation = _Installation(data_dir, user, project)
    answered = anyio.Event()

    @contextmanager
    def resolve(_: Request | None) -> Iterator[ToolContext]:
        yield ToolContext(installation.reach, all_tools=all_tools, read_only=read_only)
        answered.set()

    async def answer() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, installation)
            tasks.start_soon(_open_after, answered, installation)
            await create(resolve).run_over(wire)
            tasks.cancel_scope.cancel()

    try:
        anyio.run(answer)
    finally:
        installation.close()


class _Installation:
    """The installation and its one user, loaded when first needed: hosts do not wait for that at the start."""

    def __init__(self, data_dir: Path | None, user: str, project: str | None) -> None:
        self._data_dir, self._user, self._project = data_dir, user, project
        self._lock = threading.Lock()
        self._shared: SharedInstallation | None = None
        self._identity: RequestIdentity | None = None

    def reach(self) -> tuple[MemOS, RequestIdentity]:
        with self._lock:
            if self._shared is None:
                from memos.api.local.sharing import SharedInstallation  # noqa: PLC0415 - loads the kernel
                from memos.core.settings import Settings  # noqa: PLC0415

                self._shared = SharedInstallation(self._data_dir, Settings())
            memos = self._shared()
            if self._identity is None:
                from memos.api.dialects import resolve_identity  # noqa: PLC0415
                from memos.kernel.access.sessions import local_caller  # noqa: PLC0415

                name = None if self._user == LOCAL_OWNER else self._user
                identity = resolve_identity(memos, local_caller(memos.clock), name)
                self._identity = identity if self._project is None else in_project(memos, identity, self._project)
            return memos, self._identity

    def close(self) -> None:
        with self._lock:
            if self._shared is not None:
                self._shared.close()


async def _open_after(answered: anyio.Event, installation: _Installation) -> None:
    """Open the installation once the first message is answered; a tool that is called tells what failed."""
    await answered.wait()
    try:
        await to_thread.run_sync(installation.reach)
    except MemosError as error:
        log.warning("%s", error)


async def _end_on_signal(installation: _Installation) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            await to_thread.run_sync(installation.close)
            # The thread that waits for a line of input would keep the process until there is one.
            os._exit(0)
