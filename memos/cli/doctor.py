"""`memos doctor`: the checks of an installation, and whether a server runs on its folder."""

from __future__ import annotations

from typing import Annotated

import httpx2
import typer

from memos.api.endpoint import find
from memos.cli.server import Config
from memos.cli.shared import DataDir, Output, command, settings_of, table
from memos.core.settings import Settings
from memos.errors import MemosError
from memos.kernel import doctor as checks
from memos.kernel.doctor import Finding, Found, State
from memos.memcube.installation import FolderLock

_ANSWER_S = 5.0


@command(opens=False)
def doctor(
    config: Config = None,
    data_dir: DataDir = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show problems only")] = False,
) -> Output:
    found = examine(settings_of(data_dir, config))
    shown = [finding for finding in found if not quiet or finding.state in (State.BAD, State.DOUBTFUL)]
    rows = ((finding.state, finding.what, finding.told) for finding in shown)
    code = 1 if any(finding.state is State.BAD for finding in found) else 0
    return Output(shown, table("", "what", "", rows=rows), code=code)


def examine(settings: Settings) -> list[Finding]:
    """Return what all checks found; an error of one is its finding."""
    return checks.examine(settings, server=_server)


def _server(settings: Settings) -> Found:
    endpoint = find(settings.home)
    if endpoint is not None:
        try:
            with httpx2.Client(timeout=_ANSWER_S, trust_env=False) as client:
                ready = client.get(f"{endpoint.url}/ready")
        except httpx2.HTTPError as error:
            silent = (
                f"process {endpoint.pid} should listen on {endpoint.url} but does not answer ({type(error).__name__})"
            )
            yield State.BAD, f"{silent}; check its log. If the process has ended, start the server again"
            return
        if ready.status_code == 200:
            yield State.GOOD, f"{endpoint.url} is ready"
        else:
            yield State.BAD, f"{endpoint.url} is not ready; check its log"
        return
    if (settings.home / "lock").exists():
        lock = FolderLock(settings.home)
        try:
            lock.acquire()
        except MemosError as error:
            yield State.DOUBTFUL, str(error)
            return
        lock.release()
    yield State.MISSING, "not running on this folder; start it with `memos serve`"
