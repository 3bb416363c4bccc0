"""Routes of `/imports` and `/backups`: chat exports in, and backups out, with what they are about to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, cast

import anyio
from anyio import to_thread
from fastapi import Query, Request

from memos.api import serialization
from memos.api.dialects import resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.streaming import NdjsonResponse, ProgressWriter
from memos.api.v1.common import Body, CubeBody, CubeName, CurrentIdentity, UserName, target_of, value_router
from memos.api.v1.cubes import FILE_BODY, receive_file
from memos.api.values import BackupPlan, ImportPreview, ImportSummary, StartedTask
from memos.core.types import Mode
from memos.errors import BackendUnavailable, InvalidInput, MemosError
from memos.kernel import importing
from memos.kernel.transfer import scratch_file
from memos.reader.arguments import member_of
from memos.reader.importers.formats import Format
from memos.reader.importers.sources import ExportOptions

log = logging.getLogger("memos.api")

router = value_router("imports", prefix="/imports")
backups_router = value_router("backups", prefix="/backups")

_AT_ONCE = 4
_LINES = {
    "content": {
        "application/x-ndjson": {
            "schema": {
                "type": "string",
                "description": "With `progress`: lines of JSON, the result last",
            }
        }
    }
}

Format_ = Annotated[
    str | None, Query(alias="format", description="Format such as `chatgpt` or `claude`; default: detected")
]
FileName = Annotated[str, Query(description="Name of the file; names conversations that have no id")]
DateOrder_ = Annotated[
    str | None,
    Query(description="For WhatsApp: what comes first in a date, `day` or `month`; default: read from the file"),
]
TimeZone = Annotated[str | None, Query(description="Time zone of times without an offset; default: the cube's")]
Talk = Annotated[str | None, Query(description="Conversation id for messages without one; default: the file's name")]


@router.post("/preview", openapi_extra=FILE_BODY, name="preview")
async def preview_import(
    request: Request,
    memos: CurrentMemos,
    caller: CurrentCaller,
    cube: CubeName = None,
    format_: Format_ = None,
    name: FileName = "chat",
    conversation: Talk = None,
    limit: Annotated[int, Query(description="Records to look at, at most 10,000")] = 2_000,
    time_zone: TimeZone = None,
    date_order: DateOrder_ = None,
    user: UserName = None,
) -> ImportPreview:
    """Read the beginning of an export, sent as the body (a ZIP too), and say what would be stored."""
    target = await to_thread.run_sync(lambda: target_of(memos, caller, CubeBody(user=user, cube=cube)))
    with scratch_file(memos.transfer) as file:
        await receive_file(request, memos, file)

        def previewed() -> ImportPreview:
            with _readable(file, name) as path:
                found = importing.preview_export(
                    memos,
                    path,
                    **target,
                    conversation=conversation,
                    format=_format(format_),
                    limit=limit,
                    time_zone=time_zone,
                    options=_options(name, date_order),
                )
            return ImportPreview.model_validate(found)

        return await to_thread.run_sync(previewed)


@router.post("", openapi_extra=FILE_BODY, response_model=ImportSummary, responses={200: _LINES}, name="run")
async def run_import(
    request: Request,
    memos: CurrentMemos,
    caller: CurrentCaller,
    cube: CubeName = None,
    format_: Format_ = None,
    name: FileName = "chat",
    conversation: Talk = None,
    on_bad: Annotated[str, Query(description="On a record that cannot be read: `skip` or `stop`")] = "skip",
    mode: Annotated[str, Query(description="`rough`, or `fine`: also extract facts, in the background")] = "rough",
    owner: Annotated[str | None, Query(description="Take only this user's memories of the other program")] = None,
    together: Annotated[bool, Query(description="Memories of several users of it are one person's")] = False,
    time_zone: TimeZone = None,
    date_order: DateOrder_ = None,
    progress: Annotated[bool, Query(description="Answer with lines of JSON that tell the progress")] = False,
    user: UserName = None,
) -> Any:
    """Store the messages of an export, a ZIP archive too, sent as the body; sending it again adds only what is missing.

    With `progress` the answer is lines of JSON: `{"progress": {"done": …, "total": …}}`, then `{"result": …}` or
    `{"error": …}`; empty lines are a heartbeat. Closing the connection stops the import after the current batch.
    """
    if on_bad not in ("stop", "skip"):
        raise InvalidInput("on_bad", f"must be `stop` or `skip`; got {on_bad!r:.50}")
    chosen, mode_, options = _format(format_), member_of("mode", mode, Mode), _options(name, date_order)
    target = await to_thread.run_sync(lambda: target_of(memos, caller, CubeBody(user=user, cube=cube), new=True))
    file = scratch_file(memos.transfer)
    try:
        await receive_file(request, memos, file)
    except BaseException:
        file.close()
        raise

    def imported(on_progress: Any = None) -> ImportSummary:
        with file, _readable(file, name) as path:
            done = importing.import_export(
                memos,
                path,
                **target,
                conversation=conversation,
                format=chosen,
                on_bad="skip" if on_bad == "skip" else "stop",
                on_progress=on_progress,
                mode=mode_,
                owner=owner,
                owners="together" if together else "refuse",
                time_zone=time_zone,
                options=options,
            )
        return ImportSummary.model_validate(done)

    if not progress:
        return await to_thread.run_sync(imported)
    state = request.app.state
    if not hasattr(state, "importing"):
        state.importing = anyio.CapacityLimiter(_AT_ONCE)
    stopping = getattr(state, "stopping", lambda: False)
    return NdjsonResponse(partial(_tell, imported), state.importing, stopping)


class _Stopped(BackendUnavailable):
    """The client went away, or the server is to stop."""


def _tell(imported: Any, writer: ProgressWriter) -> None:
    def on_progress(done: int, total: int) -> None:
        _check(writer.stop)
        writer.line(serialization.as_json({"progress": {"done": done, "total": total}}, "result"))

    try:
        told = {"result": imported(on_progress).model_dump(mode="json")}
    except MemosError as error:
        told = serialization.error_view(error)
    except Exception as error:  # the caller must learn that it ended; the log says what is wrong
        log.error("import failed", exc_info=error)
        told = serialization.error_view(MemosError("Internal server error; check the server's log."))
    writer.line(serialization.as_json(told, "result"))


def _check(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Stopped("The import was stopped; send the file again to go on.")


@contextmanager
def _readable(file: IO[bytes], name: str) -> Iterator[Path]:
    """Yield a path to a file without a name; an error that names it names `name` in its place."""
    file.flush()
    path = Path(f"/proc/self/fd/{file.fileno()}")
    try:
        yield path
    except InvalidInput as error:
        if error.field != str(path):
            raise
        raise InvalidInput("file", f"{name[:80]}: {error.reason}") from error


def _options(name: str, date_order: str | None) -> ExportOptions:
    if date_order not in (None, "day", "month"):
        raise InvalidInput("date_order", f"must be `day` or `month`; got {date_order!r:.50}")
    return ExportOptions(name=Path(name).name[:200] or "chat", date_order=cast(Any, date_order))


def _format(given: str | None) -> Format | None:
    return None if given is None else member_of("format", given, Format)


@backups_router.get("", name="list_")
def list_backups(memos: CurrentMemos, acting: CurrentIdentity) -> BackupPlan:
    """Return where backups are written, how often, and those that are known, oldest first; for admins."""
    return BackupPlan.model_validate(memos.maintenance.backup_plan(actor=acting.actor))


@backups_router.post("", status_code=202, name="create")
def create_backup(body: Body, memos: CurrentMemos, caller: CurrentCaller) -> StartedTask:
    """Begin a backup into a new folder in the configured place (MEMOS_UPKEEP__BACKUP_FOLDER); for admins."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return StartedTask(task=memos.maintenance.start_backup(actor=actor))
