"""Requests about persons: what is held of them, and checks of receipts of erasures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from memos.api.client import values
from memos.api.client.calls import Call, Download, as_model, encoded
from memos.api.client.v1_cubes import new_file
from memos.api.client.v1_requests import asking, changing, given, path_of
from memos.core.types import Json

_SILENT_S = 600.0  # a scan, or an archive, is made before anything is sent


def preview_subject(
    subject: str,
    *,
    kind: str = "user",
    cubes: Sequence[str] | None = None,
    mentions: bool = False,
    user: str | None = None,
) -> Call[values.SubjectPreview]:
    """Return what is held about a user, or about a person who is spoken of, and would be forgotten.

    Raises: InvalidInput, NotFound, PermissionDenied.
    """
    body = {"subject": subject, "kind": kind, "cubes": _list(cubes), "mentions": mentions, "user": user}
    return asking(path_of("subjects", "preview"), as_model(values.SubjectPreview), body)


def export_subject(
    subject: str,
    file: str | Path,
    *,
    kind: str = "user",
    cubes: Sequence[str] | None = None,
    user: str | None = None,
) -> Download[Path]:
    """Write what is held about a person to a new ZIP file and return its path.

    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file exists).
    """
    target, body = new_file(file), {"subject": subject, "kind": kind, "cubes": _list(cubes), "user": user}
    path = path_of("subjects", "export")
    call = Call("POST", path, lambda _: target, body=encoded(given(body)), repeatable=True, least_s=_SILENT_S)
    return Download(call, target)


def forget_subject(
    subject: str,
    *,
    expected: int,
    kind: str = "user",
    cubes: Sequence[str] | None = None,
    mentions: bool = False,
    wait: bool = True,
    user: str | None = None,
) -> Call[values.SubjectReceipt]:
    """Erase what is held about a person, which must be as many memories as the preview said. This cannot be undone.

    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (another number of memories would go now).
    """
    body = {"subject": subject, "kind": kind, "cubes": _list(cubes), "mentions": mentions, "user": user}
    more = {"expected": expected, "wait": wait}
    return changing("POST", path_of("subjects", "forget"), as_model(values.SubjectReceipt), body=body | more)


def verify_receipt(
    receipt: values.EraseReceipt | Mapping[str, Json] | str,
    *,
    texts: Sequence[str] = (),
    scan: bool = True,
    user: str | None = None,
) -> Call[values.ReceiptCheck]:
    """Check a receipt of an erasure, and look for what was erased in every file and row of the server.

    `texts` are looked for as well. A scan is for admins. Raises: InvalidInput, PermissionDenied.
    """
    told = receipt.model_dump(mode="json") if isinstance(receipt, values.EraseReceipt) else receipt
    body: dict[str, Json] = {"texts": list(texts), "scan": scan, "user": user}
    body["receipt"] = told if isinstance(told, str) else dict(told)
    return asking(path_of("erasures", "verify"), as_model(values.ReceiptCheck), body)


def _list(cubes: Sequence[str] | None) -> list[Json] | None:
    return None if cubes is None else list(cubes)
