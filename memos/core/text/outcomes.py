"""Says of what a tool answered whether the call worked, and of what sort its error is. Pure.

Only when it is clear: an answer that may be either is neither.
"""

from __future__ import annotations

import json
import re

from memos.core.types import Json

LOOKED_CHARS = 4_000
_OUTCOME_CHARS = 200
_TYPE_CHARS = 60
_FAILED = re.compile(
    r"^\W*(?:\w+(?:Error|Exception)\b|error|exception|traceback|failed|failure|fatal|invalid|timed? ?out|"
    r"permission denied|access denied|(?:http )?[45]\d\d\b)",
    re.IGNORECASE,
)
# An outcome with one of these words may be either.
_DOUBTFUL = re.compile(
    r"error|exception|fail|invalid|denied|time(?:d )?out|not found|no results|unable|could not", re.IGNORECASE
)
_NAMED = re.compile(r"\b([A-Z]\w{0,50}(?:Error|Exception))\b")
_SORTS = (
    ("timeout", re.compile(r"tim(?:ed|e)[ -]?out", re.IGNORECASE)),
    ("permission", re.compile(r"(?:permission|access) denied|forbidden|unauthori[sz]ed", re.IGNORECASE)),
    ("not found", re.compile(r"not found|no such", re.IGNORECASE)),
    ("invalid", re.compile(r"invalid", re.IGNORECASE)),
)
_HTTP = re.compile(r"^\W*(?:error\W+)?(?:http )?([45]\d\d)\b", re.IGNORECASE)


def worked(outcome: str) -> bool | None:
    """Return whether a tool's answer tells of success, None when that is not clear."""
    head = outcome[:LOOKED_CHARS].strip()
    if len(outcome) <= LOOKED_CHARS and head[:1] in "{[" and (told := _told(head)) is not None:
        return told
    if _FAILED.search(head):
        return False
    if not head or head in ("[]", "{}", "null", "None", "false") or _DOUBTFUL.search(head[:_OUTCOME_CHARS]):
        return None
    return True


def error_type(outcome: str) -> str:
    """Return in a word or two of what sort the error is that an answer tells of; `error` when that cannot be told."""
    head = outcome[:LOOKED_CHARS].strip()
    answer = _object(head)
    if answer is not None:
        error = answer.get("error")
        for held in (error, answer):
            for name in ("type", "error_type", "code"):
                told = held.get(name) if isinstance(held, dict) else None
                if isinstance(told, str | int) and not isinstance(told, bool) and (sort := _printable(told)):
                    return sort
    named = _NAMED.findall(head)
    if named:
        return str(named[-1])  # a traceback ends with it
    if status := _HTTP.search(head):
        return f"http {status.group(1)}"
    return next((sort for sort, pattern in _SORTS if pattern.search(head)), "error")


def _printable(told: str | int) -> str:
    # JSON may spell out what no store can keep: a NUL, half of a character.
    return "".join(char for char in str(told)[:_TYPE_CHARS] if char.isprintable()).strip()


def _told(text: str) -> bool | None:
    """Return what a JSON answer's own fields say of success."""
    answer = _object(text)
    if answer is None:
        return None
    status = str(answer.get("status", "")).casefold()
    if answer.get("error") or answer.get("errors") or answer.get("is_error") is True or status in ("error", "failed"):
        return False
    if answer.get("ok") is False or answer.get("success") is False:
        return False
    if answer.get("ok") is True or answer.get("success") is True or status in ("ok", "success"):
        return True
    return None


def _object(text: str) -> dict[str, Json] | None:
    try:
        answer: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
