"""`/memories`: add, list, look at, change, take back and erase memories."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field

from memos.api.callers import who
from memos.api.families import Asked, Opened
from memos.api.v1.errors import ERRORS
from memos.api.v1.shapes import AddReceiptShape, ItemShape

router = APIRouter(prefix="/memories", tags=["memories"], responses=ERRORS)

IdempotencyKey = Annotated[str | None, Header(description="Repeating it within a cube stores nothing twice")]


class AddBody(BaseModel):
    """What to remember."""

    model_config = ConfigDict(extra="forbid")

    messages: Any = Field(description="A text, a message `{role, content, …}` or a list of messages")
    cube: str | None = Field(None, description="Cube to store it in; default: the user's own")
    user: str | None = Field(None, description="User or agent to act for; default: whom the key belongs to")
    conversation: str | None = Field(None, description="Conversation it belongs to")
    tags: list[str] = Field(default=[], description="Tags")
    info: dict[str, Any] = Field(default={}, description="Own fields, to filter by later")
    mode: str = Field("rough", description="`rough`, or `fine`: also read into facts, in the background")
    tools: Any = Field(None, description="Definitions of the tools that were at hand, in OpenAI's shape")


@router.post("", status_code=201)
def add(body: AddBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None) -> AddReceiptShape:
    """Store messages; they are durable and can be found when this answers."""
    acting = who(memos, caller, body.user)
    receipt = memos.add(
        body.messages, cube=body.cube or acting.home, actor=acting.actor, conversation=body.conversation,
        tags=body.tags, info=body.info, idempotency_key=idempotency_key, mode=body.mode, tools=body.tools,
    )  # fmt: skip
    return AddReceiptShape.model_validate(receipt)


@router.get("/{item}")
def get(item: str, memos: Opened, caller: Asked) -> ItemShape:
    """Return one memory with its sources."""
    return ItemShape.model_validate(memos.get(item, actor=caller.identity.id))
