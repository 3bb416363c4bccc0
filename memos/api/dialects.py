"""Parts shared by the dialects: identities, chat options, event streams, envelopes and files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Unpack
from urllib.parse import quote

from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response, StreamingResponse

from memos.api.streaming import STREAM_HEADERS, ClosingStreamResponse, encode_event
from memos.api.wording import message_of
from memos.core.identities import Caller, Identity
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, Json
from memos.errors import Conflict, MemosError, NotFound, PermissionDenied
from memos.kernel.chat.results import ChatOptions, ChatResult
from memos.kernel.memos import MemOS
from memos.reader.arguments import fraction_of

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """The user or agent a request acts for: `actor` is named in histories, `home` is the default cube.

    What is read when no cube is named is `home` and the cubes `also`.
    """

    actor: str
    home: str
    also: tuple[str, ...] = ()

    def cubes(self, named: Sequence[str] | None = None) -> list[str]:
        return [self.home, *self.also] if named is None else list(named)


def resolve_identity(
    memos: MemOS, caller: Caller, name: str | None = None, *, agent: bool = False, new: bool = True
) -> RequestIdentity:
    """Return the identity a request acts for, `name`, or the key's own.

    A key acts for its own identity, for agents of that identity, and, if it is an agent's, on the cube of its user. An
    admin's key acts for everyone, and creates an unknown `name` if `new` and `MEMOS_SERVER__NEW_USERS` allow it. A key
    that is limited to cubes has the first of them as `home`, unless the usual one is among them.

    Raises: PermissionDenied, InvalidInput (`name` cannot be a name), NotFound.
    """
    me = caller.identity
    limited = caller.key.cubes
    if name is None or name == me.id:
        return _identity_of(me, limited)
    if me.admin:
        return _identity_of(_find_or_create(memos, me.id, name, agent=agent, new=new), limited)
    other = memos.users.get(name, actor=me.id)
    if other.acts_for == me.id:
        return _identity_of(other, limited)
    return RequestIdentity(me.id, _home_of(other, limited))


def _find_or_create(memos: MemOS, admin: str, name: str, *, agent: bool, new: bool) -> Identity:
    if name == LOCAL_OWNER:
        raise PermissionDenied(f"{LOCAL_OWNER!r} is reserved for the person at the machine; use another user.")
    try:
        return memos.users.get(name, actor=admin)
    except NotFound:
        if not (new and memos.settings.server.new_users):
            raise
    with suppress(Conflict):  # another request created it meanwhile
        return memos.users.create(name, kind="agent" if agent else "user", adopt=False, actor=admin)
    return memos.users.get(name, actor=admin)


def _identity_of(identity: Identity, limited: Sequence[str] | None) -> RequestIdentity:
    return RequestIdentity(identity.id, _home_of(identity, limited))


def _home_of(identity: Identity, limited: Sequence[str] | None) -> str:
    """Return the default cube; for a key limited to other cubes the first of these."""
    home = identity.home or (DEFAULT_CUBE if identity.id == LOCAL_OWNER else identity.id)
    return home if limited is None or home in limited else limited[0]


def chat_options(body: BaseModel, **own: Unpack[ChatOptions]) -> ChatOptions:
    """Return the options of a chat: the fields of `body` that have an option's name, then the dialect's own."""
    fields = type(body).model_fields
    same: Any = {name: getattr(body, name) for name in ChatOptions.__annotations__ if name in fields}
    options: ChatOptions = same | own
    return options


def min_relevance_of(relativity: float | None) -> float:
    """Return the least relevance, which other programs call `relativity`. Raises: InvalidInput."""
    return 0 if relativity is None else fraction_of("relativity", relativity)


def chat_response(
    pieces: AsyncGenerator[str | ChatResult],
    *,
    text: Callable[[str], str],
    end: Callable[[ChatResult], str],
    error: Callable[[MemosError], str],
) -> Response:
    """Return a chat as server-sent events: `pieces` of the answer, then its result; an `error` ends the stream.

    `pieces` is closed when the response ends or the client disconnects.
    """

    async def stream() -> AsyncGenerator[str]:
        try:
            async for piece in pieces:
                yield end(piece) if isinstance(piece, ChatResult) else text(piece)
        except MemosError as failure:
            yield error(failure)
        finally:
            await pieces.aclose()

    return ClosingStreamResponse(stream(), media_type="text/event-stream", headers=STREAM_HEADERS)


def typed_event(kind: str, data: Json) -> str:
    return encode_event({"type": kind, "data": data})


def envelope(code: int, message: str, data: Json) -> dict[str, Any]:
    return {"code": code, "message": message, "data": data}


def error_envelope(failure: MemosError, code: int, status: int, **extra: Json) -> Response:
    return JSONResponse({**envelope(code, message_of(failure), None), **extra}, status)


def file_response(file: IO[bytes], name: str, media_type: str = "application/octet-stream") -> Response:
    """Return an open file to save, sent block by block; it is closed at the end, also if nobody reads it."""
    size = file.seek(0, 2)
    file.seek(0)

    def blocks() -> Iterator[bytes]:
        with file:
            while block := file.read(_BLOCK):
                yield block

    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-store",
    }
    return StreamingResponse(blocks(), media_type=media_type, headers=headers, background=BackgroundTask(file.close))


def attachment(data: bytes, name: str) -> Response:
    """Return a file to save; a browser must not run it, nor a proxy keep it."""
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)
