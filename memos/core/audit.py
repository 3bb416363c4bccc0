"""Values of the audit: entries, and the result of checking a chain of events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from memos.core.types import Json


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what when: an event of a cube, or an entry of the access log, where `cube` is None.

    The access log has sign-ins, erasures, dumps, and changes to users, groups and keys.

    `id` continues a list behind the entry.
    """

    id: Annotated[str, "Its id; `before` continues behind it"]
    at: Annotated[datetime, "When it was committed"]
    actor: Annotated[str, "Who did it"]
    kind: Annotated[str, "What was done, such as `add`, `share`, `sign-in` or `key-create`"]
    cube: Annotated[str | None, "Cube it happened in; null for sign-ins, users, groups and keys"]
    number: Annotated[int | None, "Number of the event in its cube, from 1"]
    subject: Annotated[str | None, "Id of the memory, or of the user or group it is about"]
    body: Annotated[Json, "Ids and numbers, never memory text; null when it was erased"]


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Result of checking a chain of events, of a cube or of the access log; `problem` says where it is broken."""

    cube: Annotated[str | None, "The cube; null for the access log"]
    events: Annotated[int, "Number of entries in the chain"]
    intact: Annotated[bool, "Whether each entry follows from the one before"]
    problem: Annotated[str | None, "What is wrong"]
