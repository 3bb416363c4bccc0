"""`/hooks/claude-code`: answers the events of Claude Code's hooks, and stores what was said in its sessions.

An event comes as Claude Code gives it to a hook, and the answer is what the hook prints. Secrets are masked here
whatever `MEMOS_MASK_SECRETS` says: nobody looks over what a hook sends.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Header, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from memos.api.agents import in_project, profile_of, standing_of
from memos.api.dialects import RequestIdentity, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos, create_group
from memos.api.v1.common import error_response
from memos.core.text.acknowledgements import acknowledges
from memos.core.text.rendering import assemble, memory_section, remembered
from memos.core.types import RELEVANT, Json
from memos.kernel.memos import MemOS
from memos.reader.masking import Masking
from memos.reader.messages import MAX_MESSAGES
from memos.search.question import MAX_QUERY_CHARS

CONVERSATIONS = "claude-code/"
"""What the conversations of sessions are called, before the session's id."""

_TAG = "claude-code"
_START_TOKENS = 1_000
_AGENT_TOKENS = 500
_PROMPT_TOKENS = 600
_MOST_HITS = 8
_SESSIONS = 1_000
_SHOWN_A_SESSION = 2_000
# Commands, and what Claude Code says to itself.
_NO_QUESTION = re.compile(r"/[\w:-]+(?:\s|\Z)|<task-notification>")

router = APIRouter()


class HookEvent(BaseModel):
    """The part of an event that is looked at."""

    model_config = ConfigDict(extra="ignore")

    hook_event_name: str
    session_id: str = Field(max_length=200)
    prompt: str = ""
    source: str = ""


class SessionMessages(BaseModel):
    """Messages of a session, each with the id of its line in the transcript."""

    session: str = Field(min_length=1, max_length=200)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_MESSAGES)


class ShownMemories:
    """Which memories each of the latest sessions was shown: they are in its context. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str], dict[str, None]] = OrderedDict()

    def begin(self, session: tuple[str, str]) -> None:
        with self._lock:
            self._sessions.pop(session, None)

    def of(self, session: tuple[str, str]) -> set[str] | None:
        """Return the ids of what a session was shown, None for one that was not told who the user is."""
        with self._lock:
            shown = self._sessions.get(session)
            return None if shown is None else set(shown)

    def add(self, session: tuple[str, str], ids: list[str]) -> None:
        with self._lock:
            shown = self._sessions.pop(session, {}) | dict.fromkeys(ids)
            self._sessions[session] = dict(list(shown.items())[-_SHOWN_A_SESSION:])
            while len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)


def create(memos: MemOS, local_token: str | None) -> FastAPI:
    """Return the application of the hooks' routes."""
    app = create_group("hippocube hooks", memos, error_response, local_token=local_token, routers=(router,))
    app.state.shown = ShownMemories()
    return app


def _identity(
    memos: CurrentMemos,
    caller: CurrentCaller,
    user: Annotated[str | None, Header()] = None,
    project: Annotated[str | None, Header()] = None,
) -> RequestIdentity:
    identity = resolve_identity(memos, caller, None if user is None else unquote(user))
    return identity if project is None else in_project(memos, identity, unquote(project))


CurrentIdentity = Annotated[RequestIdentity, Depends(_identity)]


@router.post("/claude-code")
def answer_event(event: HookEvent, memos: CurrentMemos, identity: CurrentIdentity, request: Request) -> Response:
    """Return what a hook prints for an event: a context for the model, or nothing."""
    shown: ShownMemories = request.app.state.shown
    session = (identity.actor, event.session_id)
    match event.hook_event_name:
        case "SessionStart":
            if event.source != "resume":  # what a session was shown before is gone from its context
                shown.begin(session)
            told = _about_user(memos, identity, _START_TOKENS)
            shown.add(session, [])
        case "SubagentStart":
            told = _about_user(memos, identity, _AGENT_TOKENS)
        case "UserPromptSubmit":
            told = _about_prompt(memos, identity, event, shown)
        case _:
            told = ""
    if not told:
        return Response(status_code=204)
    context = {"hookEventName": event.hook_event_name, "additionalContext": told}
    return JSONResponse({"hookSpecificOutput": context})


@router.post("/claude-code/messages")
def store_messages(body: SessionMessages, memos: CurrentMemos, identity: CurrentIdentity) -> dict[str, Json]:
    """Store messages of a session; those that are stored already are left as they are."""
    masking = Masking(secrets=True, personal=False)
    receipt = memos.add(
        masking.messages(body.messages, MAX_MESSAGES),
        cube=identity.home,
        actor=identity.actor,
        conversation=CONVERSATIONS + body.session,
        tags=[_TAG],
    )
    return {"stored": len(receipt.item_ids), "masked": sum(masking.kinds.values())}


def _about_user(memos: MemOS, identity: RequestIdentity, max_tokens: int) -> str:
    """Return who the user is and what they want always."""
    cubes = identity.cubes()
    told = [profile_of(memos, identity.actor, cubes), standing_of(memos, identity.actor, cubes, max_tokens)]
    lines = [remembered(text) for text in told if text]
    if not lines:
        return ""
    return "What hippocube, the long-term memory, knows of the user. " + memory_section(lines)


def _about_prompt(memos: MemOS, identity: RequestIdentity, event: HookEvent, shown: ShownMemories) -> str:
    """Return what is remembered about a prompt and was not shown in its session."""
    session = (identity.actor, event.session_id)
    before = shown.of(session)
    parts = []
    if before is None:  # the memory was away, or another process, when the session began
        parts = [_about_user(memos, identity, _START_TOKENS)]
    prompt = event.prompt.strip()
    new: list[str] = []
    if prompt and not _NO_QUESTION.match(prompt) and not acknowledges(prompt):
        found = memos.search(
            prompt[:MAX_QUERY_CHARS],
            cubes=identity.cubes(),
            actor=identity.actor,
            top_k=_MOST_HITS,
            filter={"conversation": {"ne": CONVERSATIONS + event.session_id}},
            min_relevance=RELEVANT,
        )
        hits, text, _ = assemble([hit for hit in found.hits if hit.item.id not in (before or ())], _PROMPT_TOKENS)
        new = [hit.item.id for hit in hits]
        if text:
            told = "What hippocube, the long-term memory, finds for this prompt. "
            parts.append(told + memory_section([remembered(text)]))
    shown.add(session, new)
    return "\n\n".join(part for part in parts if part)
