"""The error tree: every failure a caller can see, built from ids, each message naming the remedy.

MemosError
├── InvalidInput         a value the caller gave is wrong; `field` names it
├── NotFound             no such cube, item or version in the caller's scope
├── Conflict             the item changed since the caller read it, or an id is taken
│   └── Aborted          ... rolled back because of a deadlock; nothing was saved
├── PermissionDenied     the actor or the operating system does not allow it
├── BackendUnavailable   a store, index, model endpoint or disk cannot be used now
│   ├── BackendTimeout   ... it did not answer in time
│   └── ConnectionLost   ... its connection broke in the middle
├── LimitReached         the key has used up what it may use for now; `retry_after_s` says until when
├── ModelError           an embedder or language model gave no usable answer
└── IntegrityError       stored data is damaged, or of a version this program cannot read
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar


def shown(value: object) -> str:
    """Return a value as a message shows it: short, on one line, and never an error of its own."""
    try:
        return f"{value!r:.60}"
    except (ValueError, RecursionError):  # a number of 5,000 digits, a list nested 1,000 deep
        return f"this {type(value).__name__}"


class MemosError(Exception):
    """Base of every error hippocube raises on purpose; a client of a server says `status` and `request_id` of it."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    status: int | None = None
    request_id: str | None = None


class InvalidInput(MemosError):
    """A value from the caller is wrong; nothing was written."""

    code = "invalid_input"
    exit_code = 2

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class NotFound(MemosError):
    """The named thing does not exist in the caller's scope."""

    code = "not_found"
    exit_code = 3

    def __init__(self, what: str, name: str, remedy: str = "") -> None:
        super().__init__(f"No such {what}: {name!r}." + (f" {remedy}" if remedy else ""))
        self.what = what
        self.name = name


class Conflict(MemosError):
    """The stored state is not the one the caller expected; read again and retry."""

    code = "conflict"
    exit_code = 4
    item: str | None = None
    """The stored item that is in the way, where it is one."""


class Aborted(Conflict):
    """The database rolled a transaction back because of a deadlock with another one. Nothing was saved; try again."""


class PermissionDenied(MemosError):
    """The actor, or the operating system, does not allow this."""

    code = "permission_denied"
    exit_code = 5


class BackendUnavailable(MemosError):
    """A store, index, model endpoint or disk cannot be used now.

    `permanent`: repeating helps only after somebody changed a setting, a key or the server; otherwise it may help
    later, not before `retry_after_s` where the backend said so.
    """

    code = "backend_unavailable"
    exit_code = 6

    def __init__(self, message: str, *, permanent: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after_s = retry_after_s


class BackendTimeout(BackendUnavailable):
    """A backend did not answer within its time limit."""

    code = "backend_timeout"


class ConnectionLost(BackendUnavailable):
    """A connection broke while it was used: a read may be repeated, of a change it is not known whether it is kept."""


class LimitReached(MemosError):
    """A key has reached one of its limits; it may continue after `retry_after_s`."""

    code = "limit_reached"
    exit_code = 9

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelError(MemosError):
    """An embedder or language model gave no usable answer.

    `permanent`: the same request will fare the same (refused, too long); otherwise another try may end better.
    `tokens`, a `Tokens`, is what the useless answer cost, None if it cost nothing.
    """

    code = "model_error"
    exit_code = 7

    def __init__(self, message: str, *, permanent: bool = False, tokens: Any = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.tokens = tokens


class InvalidAnswer(ModelError):
    """A model answered, and not what was asked for: cut off, empty, of another shape, or asked for too much at once.

    Another question, a smaller one, may fare better.
    """


class IntegrityError(MemosError):
    """Stored data is damaged, or was written in a form this program cannot read."""

    code = "integrity_error"
    exit_code = 8


def __getattr__(name: str) -> type[MemosError]:
    if name == "UnfitAnswer":
        warnings.warn("UnfitAnswer is now called InvalidAnswer.", DeprecationWarning, stacklevel=2)
        return InvalidAnswer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
