"""`memos claude`: install, remove and examine the Claude Code plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memos.api.hooks.plugin.ask_memory import project_of
from memos.cli.hosts.changes import FileChange, make
from memos.cli.hosts.claude_plugin import (
    Installed,
    contents,
    installed_in,
    missing_folders,
    place,
    present,
    remove,
)
from memos.cli.hosts.mcp_commands import (
    DryRun,
    Scope,
    Url,
    User,
    check_mcp,
    checked_url,
    in_the_clear,
    program_of_memos,
)
from memos.cli.hosts.mcp_hosts import KEY_VARIABLE
from memos.cli.shared import DataDir, Output, Yes, command, sure, table
from memos.core.types import LOCAL_OWNER
from memos.errors import InvalidInput, MemosError, NotFound, shown
from memos.version import __version__

InProject = Annotated[
    bool, typer.Option("--in-project", help="The plugin of the project in this folder, not that of the user")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON")]
_ANSWER_S = 5.0
_SEND_S = 30.0


@command(opens=False)
def install(
    in_project: InProject = False,
    scope: Scope = "user",
    user: User = LOCAL_OWNER,
    url: Url = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, max=60, help="Longest that a prompt waits for memory, in seconds")
    ] = 3,
    yes: Yes = False,
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> Output:
    if scope not in ("user", "project"):
        raise InvalidInput("--scope", f"must be user or project, got {shown(scope)}")
    if url is not None and (data_dir, user) != (None, LOCAL_OWNER):
        raise InvalidInput("--url", "is of a server, whose key says for whom; leave --data-dir and --user out")
    if url is not None and scope == "project" and not in_project:
        raise InvalidInput("--scope", "project needs --in-project with --url, whose address names the project")
    if url is None:
        check_mcp()
    folder = place(in_project=in_project)
    before = installed_in(folder)
    if before is None and folder.exists():
        raise InvalidInput("folder", f"{folder} is not the plugin of hippocube; move it away, then repeat")
    home = None if url is not None else str((data_dir or _home()).absolute())
    made = missing_folders(folder) if before is None else before.made
    project = project_of(str(Path.cwd())) if in_project and scope == "project" else None
    address = None if url is None else checked_url(url)
    given = Installed(home, address, user, scope, project, timeout_s, made=made)
    there, wanted = present(folder), contents(given, program_of_memos())
    changes = [FileChange(folder / name, there.get(name), text) for name, text in wanted.items()]
    output = make(changes, f"Write the plugin to {folder}?", yes=yes, dry_run=dry_run, as_json=as_json)
    return _with_advice(output, given, in_project) if output.value["changed"] else output


@command(opens=False)
def uninstall(in_project: InProject = False, yes: Yes = False) -> Output:
    folder = place(in_project=in_project)
    given = installed_in(folder)
    if given is None:
        raise NotFound("plugin", str(folder), "Nothing was changed.")
    unsent = _send_what_waits(folder)
    lost = f"{unsent} sessions have messages that are not stored, and will not be. " if unsent else ""
    sure(f"{lost}Remove {folder}?", yes=yes)
    remove(folder, given.made)
    return Output({"removed": str(folder), "unsent": unsent}, [f"{lost}Removed {folder}."])


@command(opens=False)
def status(in_project: InProject = False) -> Output:
    folder = place(in_project=in_project)
    given = installed_in(folder)
    if given is None:
        told = "not installed; install it with `memos claude install`"
        return Output({"installed": False, "folder": str(folder)}, [f"{folder}: {told}"], code=1)
    expected = contents(given, program_of_memos())
    there = present(folder)
    changed = sorted(name for name, text in expected.items() if there.get(name) != text)
    reach, reached = _reach(given)
    value: dict[str, Any] = {
        "installed": True,
        "folder": str(folder),
        "version": given.version,
        "current": given.version == __version__ and not changed,
        "memory": given.url or given.home,
        "user": given.user,
        "scope": given.scope,
        "reached": reached,
        "reach": reach,
        "unsent": _unsent(folder),
    }
    outdated = "" if value["current"] else "; out of date or changed, run `memos claude install` again"
    rows = [
        ("plugin", f"{folder}, version {given.version}{outdated}"),
        ("memory", f"{value['memory']}, {given.user}, scope {given.scope}: {reach}"),
        ("not stored yet", f"{value['unsent']} sessions"),
    ]
    return Output(value, table("", "", rows=rows), code=0 if value["current"] and reached else 1)


def _home() -> Path:
    from memos.cli.shared import settings_of  # noqa: PLC0415 - loads the settings

    return settings_of(None).home


def _with_advice(output: Output, given: Installed, in_project: bool) -> Output:
    told = ["Done. The next session of Claude Code loads it (`/reload-plugins` in a running one)."]
    if in_project:
        told.append("It loads the plugin of a project once you have said in a session that you trust this folder.")
    if given.url is not None:
        told.append(f"Set {KEY_VARIABLE} to an API key where Claude Code is started; it stands in no file.")
    else:
        told.append(
            "Sessions open the memory themselves; with a server (`memos serve`) it is there from the first prompt."
        )
    return Output(output.value, told, notes=in_the_clear(given.url))


def _reach(given: Installed) -> tuple[str, bool]:
    """Return in words whether memory can be reached now, and whether that is as it should be."""
    import httpx2  # noqa: PLC0415

    from memos.api.local.client import served  # noqa: PLC0415 - loads the kernel

    if given.url is None:
        try:
            memos = served(Path(str(given.home)))
        except MemosError as error:
            return str(error), False
        if memos is None:
            return "no server runs; each session opens it itself", True
        memos.close()
        return "a server answers", True
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        return f"{KEY_VARIABLE} is not set here", False
    try:
        answer = httpx2.get(
            f"{given.url}/api/v1/me",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_ANSWER_S,
            follow_redirects=False,
        )
    except httpx2.HTTPError as error:
        return f"the server does not answer ({type(error).__name__})", False
    if answer.status_code != 200:
        return f"the server refuses the key (status {answer.status_code})", False
    return "the server answers", True


def _unsent(folder: Path) -> int:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import transcripts; print(transcripts.unsent())"
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", "-c", program, str(folder / "hooks")], capture_output=True, text=True, check=False
    )
    return int(done.stdout) if done.returncode == 0 else 0


def _send_what_waits(folder: Path) -> int:
    """Send what is not stored yet, if memory can be reached; return how many sessions are left."""
    if not _unsent(folder):
        return 0
    try:
        hooks = json.loads((folder / "hooks" / "hooks.json").read_text(encoding="utf-8"))["hooks"]
        arguments = hooks["Stop"][0]["hooks"][0]["args"][3:]
    except (OSError, ValueError, KeyError, IndexError):
        return _unsent(folder)
    event = json.dumps({"session_id": "uninstall", "transcript_path": os.devnull})
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-I", "-S", str(folder / "hooks" / "hook.py"), "waiting", *arguments[1:]],
        input=event,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SEND_S,
    )
    return _unsent(folder)
