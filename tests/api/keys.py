"""Who there is in the tests over HTTP: an admin, and two users with keys."""

from __future__ import annotations

from typing import NamedTuple

from memos import MemOS
from memos.api.serving import first_key


class Keys(NamedTuple):
    """The secrets of everybody's keys."""

    admin: str
    ana: str
    ben: str


def keys_of(memos: MemOS) -> Keys:
    """Make the first admin and two users in a new installation."""
    admin = first_key(memos)
    assert admin is not None
    for user in ("ana", "ben"):
        memos.users.create(user)
    ana, ben = (memos.keys.create(user, "test").secret for user in ("ana", "ben"))
    return Keys(admin, ana, ben)
