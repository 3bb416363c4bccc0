"""`/knowledge-bases`: cubes of documents; the documents themselves are added with its id as the cube."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from memos.api.auth import who
from memos.api.families import Asked, Opened
from memos.api.v1.common import ERRORS, Acting, Body, CubeId, IdempotencyKey, Place, creation
from memos.api.v1.shapes import EraseReceiptShape, KnowledgeBaseShape

router = APIRouter(prefix="/knowledge-bases", tags=["knowledge-bases"], responses=ERRORS)


class CreateBaseBody(Body):
    """A new knowledge base."""

    id: str = Field(description="Its id, also as a cube")
    description: str = Field("", description="What it is about")
    redact_pii: bool = Field(False, description="Mask personal data in its documents")


@router.post("", status_code=201)
def create(
    body: CreateBaseBody, memos: Opened, caller: Asked, idempotency_key: IdempotencyKey = None
) -> KnowledgeBaseShape:
    """Make an empty knowledge base: a cube of documents, which are added with its id as the cube."""
    actor = who(memos, caller, body.user).actor
    made = memos.idempotency.once(
        creation(idempotency_key, "knowledge.create", Place(actor, body.id), body),
        lambda: memos.knowledge.create(body.id, body.description, actor=actor, redact_pii=body.redact_pii),
        ids=lambda base: [base.id],
        again=lambda ids: memos.knowledge.get(ids[0], actor=actor),
    )
    return KnowledgeBaseShape.model_validate(made)


@router.get("")
def list_(memos: Opened, acting: Acting) -> list[KnowledgeBaseShape]:
    """Return the knowledge bases one may read, by id."""
    return [KnowledgeBaseShape.model_validate(base) for base in memos.knowledge.list(actor=acting.actor)]


@router.get("/{cube:path}")
def get(cube: CubeId, memos: Opened, acting: Acting) -> KnowledgeBaseShape:
    """Return a knowledge base, and how many of its files are in which state."""
    return KnowledgeBaseShape.model_validate(memos.knowledge.get(cube, actor=acting.actor))


@router.delete("/{cube:path}")
def drop(cube: CubeId, memos: Opened, acting: Acting) -> EraseReceiptShape:
    """Erase everything in a knowledge base, then itself."""
    return EraseReceiptShape.model_validate(memos.knowledge.drop(cube, actor=acting.actor))
