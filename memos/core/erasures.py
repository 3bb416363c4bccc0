"""Values of erasures: checks of their receipts, and requests of persons about what is held of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from memos.core.types import EraseReceipt, Item


@dataclass(frozen=True, slots=True)
class Trace:
    """A place where a text or passage was found; it does not show it."""

    place: Annotated[str, "File, or table and column of the ledger"]
    encoding: Annotated[str, "How it is written there, such as `utf-8`, `base64` or `zlib: utf-8`"]
    offset: Annotated[int, "Where in the file or value, in bytes; inside of what is packed, where that begins"]
    number: Annotated[int, "Which text or fingerprint it is, from 0"]


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What a scan read, and where it found what it looked for."""

    files: Annotated[int, "Files that were read"]
    read_bytes: Annotated[int, "Bytes that were read in them, without holes"]
    rows: Annotated[int, "Rows of the ledger that were read"]
    texts: Annotated[int, "Texts that were looked for"]
    fingerprints: Annotated[int, "Passages that were looked for by their fingerprints"]
    remnants: Annotated[tuple[Trace, ...], "Where they were found; at most 1,000"]
    said_again: Annotated[tuple[Trace, ...], "Where passages were found that memories which are still there say, too"]
    unread: Annotated[tuple[str, ...], "What could not be read, and why"]


@dataclass(frozen=True, slots=True)
class ReceiptCheck:
    """Result of checking a receipt; `passed` if nothing contradicts it."""

    receipt: Annotated[str, "Id of the receipt"]
    passed: Annotated[bool, "Whether nothing contradicts it"]
    problems: Annotated[tuple[str, ...], "What contradicts it"]
    signature: Annotated[Literal["valid", "invalid", "missing"], "Whether it is as it was signed"]
    signer: Annotated[str | None, "Fingerprint of the key that it was signed with"]
    signed_here: Annotated[bool, "Whether that is a key of this installation"]
    state: Annotated[str | None, "State of the erasure now; null if this installation does not know it"]
    in_audit_log: Annotated[bool | None, "Whether the audit log has its entry unchanged; null if it names none"]
    unreached: Annotated[tuple[str, ...], "Where it may still be, which nothing here can change or read"]
    scan: Annotated[ScanReport | None, "What was looked for and found; null without a scan"]


@dataclass(frozen=True, slots=True)
class SubjectCube:
    """Memories about a person in one cube, and how many of them forgetting removes."""

    cube: Annotated[str, "The cube"]
    relation: Annotated[str, "`owned` by the user, `shared` with it, or `searched` for a person who is spoken of"]
    goes: Annotated[int, "Memories that go, without what was derived from them"]
    derived: Annotated[int, "Memories that were derived from these and go with them"]
    by_others: Annotated[int, "Memories that others added to an owned cube, and that go with it"]
    mentions: Annotated[int, "Memories of others that mention the person"]
    files: Annotated[int, "Files that go"]
    allowed: Annotated[bool, "Whether the actor may erase in this cube; what goes there stays otherwise"]


@dataclass(frozen=True, slots=True)
class SubjectPreview:
    """Preview of forgetting a person: their memories by cube, and how many would go."""

    kind: Annotated[str, "`user` of the installation, or `person` who is spoken of"]
    goes: Annotated[int, "Memories that go with what was derived from them; `forget` expects this number"]
    mentions: Annotated[int, "Memories of others that mention the person, and stay unless they are asked for, too"]
    out_of_reach: Annotated[int, "Memories that the actor may see but not erase"]
    cubes: Annotated[tuple[SubjectCube, ...], "Cubes that hold something, by id"]
    account: Annotated[Mapping[str, int], "Rows about a user itself, by table"]
    sample: Annotated[tuple[Item, ...], "The newest memories of others that mention the person, at most 20"]
    examples: Annotated[tuple[Item, ...], "The newest memories that go or are out of reach, at most 20"]


@dataclass(frozen=True, slots=True)
class SubjectReceipt:
    """Receipt of forgetting a person, with a signed receipt of each cube; it contains no name."""

    id: Annotated[str, "Its id"]
    kind: Annotated[str, "`user` or `person`"]
    name: Annotated[str | None, "The name that stands where the user's was; null for a person who is spoken of"]
    erased: Annotated[int, "Memories that went, with what was derived from them"]
    receipts: Annotated[tuple[EraseReceipt, ...], "A receipt for each cube"]
    account: Annotated[Mapping[str, int], "Rows about the user itself that went or were blanked, by table"]
    left: Annotated[int, "Memories of others that still mention the person"]
    out_of_reach: Annotated[int, "Memories that the actor may see but not erase"]


@dataclass(frozen=True, slots=True)
class SubjectExport:
    """An archive that was written."""

    path: Annotated[str, "The file"]
    memories: Annotated[int, "Memories in it"]
    files: Annotated[int, "Original files in it"]
    cubes: Annotated[int, "Cubes that these are from"]
    bytes: Annotated[int, "Its size"]


def receipts_in(text: str) -> list[Any]:
    """Return the receipts of a text: one or its id, or those of all that was forgotten of a person."""
    text = text.removeprefix("\ufeff").strip()  # some editors begin a file with this mark
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return [text] if text else []
    if not isinstance(told, dict):
        return [text]
    several = told.get("receipts")
    return several if isinstance(several, list) else [told]
