"""Routes of `/subjects` and of checks of receipts: what is held about a person, and proofs that it is gone."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response, StreamingResponse

from memos.api.dialects import file_response, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import Body, value_router
from memos.core.erasures import ReceiptCheck, SubjectPreview, SubjectReceipt
from memos.kernel.subjects import open_export

router = value_router("subjects", prefix="/subjects")
proofs_router = value_router("erasures", prefix="/erasures")


class SubjectBody(Body):
    """A person, and where to look."""

    subject: str = Field(description="User, or name of a person who is spoken of")
    kind: str = Field(
        "user",
        description="`user`: the cubes it owns, what it added to others, and its account; `person`: what a person of "
        "that name said, and what is stated of them",
    )
    cubes: list[str] | None = Field(None, description="Only these cubes; default: all one may read")


class SubjectPreviewBody(SubjectBody):
    """A person, and whether mentions by others would go, too."""

    mentions: bool = Field(False, description="Also erase memories of others that mention the person")


class ForgetBody(SubjectPreviewBody):
    """A person to forget, as a preview counted it."""

    expected: int = Field(description="`goes` of the preview; fails with 409 if another number would go now")
    wait: bool = Field(True, description="Wait until files and logs are purged too")


class VerifyReceiptBody(Body):
    """A receipt to check."""

    receipt: dict[str, Any] | str = Field(description="The receipt as an erasure answered it, or its id")
    texts: list[str] = Field(default=[], description="What was erased, if it is known, to look for as well")
    scan: bool = Field(True, description="Read every file and row, which is for admins; else check the signature alone")


@router.post("/preview", name="preview")
def preview_subject(body: SubjectPreviewBody, memos: CurrentMemos, caller: CurrentCaller) -> SubjectPreview:
    """Return what is held about a person and would go; for admins, the user itself, and readers of the cubes."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.subjects.preview(body.subject, cubes=body.cubes, actor=actor, **body.given("subject"))


@router.post(
    "/export",
    name="export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/zip": {}}, "description": "The archive"}},
)
def export_subject(body: SubjectBody, memos: CurrentMemos, caller: CurrentCaller) -> Response:
    """Return what is held about a person as a ZIP archive: JSON, pages to read, and original files."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    out = open_export(memos.subjects, body.subject, kind=body.kind, cubes=body.cubes, actor=actor)
    return file_response(out, "held-about-a-person.zip", "application/zip")


@router.post("/forget", name="forget")
def forget_subject(body: ForgetBody, memos: CurrentMemos, caller: CurrentCaller) -> SubjectReceipt:
    """Erase what is held about a person in every form, all of it or nothing."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.subjects.forget(body.subject, cubes=body.cubes, actor=actor, **body.given("subject"))


@proofs_router.post("/verify", name="verify")
def verify_receipt(body: VerifyReceiptBody, memos: CurrentMemos, caller: CurrentCaller) -> ReceiptCheck:
    """Check a receipt's signature and audit entry, and look for what was erased in every file and row."""
    actor = resolve_identity(memos, caller, body.user, new=False).actor
    return memos.erasures.verify(body.receipt, texts=body.texts, scan=body.scan, actor=actor)
