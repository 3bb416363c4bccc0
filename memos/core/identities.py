"""Identities, roles on cubes and API keys, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

EVERYONE = "*"
"""In place of an identity in a grant: the cube is public."""


class IdentityKind(StrEnum):
    """The kind of an identity. A group makes no calls itself; its members have the rights granted to it."""

    USER = "user"
    AGENT = "agent"
    GROUP = "group"


class CubeRole(StrEnum):
    """A role in a cube, weakest first; each includes the ones before it."""

    READER = "reader"
    EDITOR = "editor"
    OWNER = "owner"


class Right(StrEnum):
    """The right a call needs: read, write, or manage the cube itself."""

    READ = "read"
    WRITE = "write"
    OWN = "own"


NEEDED = {Right.READ: CubeRole.READER, Right.WRITE: CubeRole.EDITOR, Right.OWN: CubeRole.OWNER}
"""The least role for each right."""

RANK = {role: rank for rank, role in enumerate(CubeRole)}
"""Roles by what they allow."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, agent or group; `home` is the cube used when none is named, `acts_for` whose agent it is.

    An `admin` may do everything; what is `disabled` may do nothing.
    """

    id: Annotated[str, "Its id"]
    kind: Annotated[IdentityKind, "`user`, `agent` or `group`"]
    name: Annotated[str, "Display name"]
    admin: Annotated[bool, "Whether it has all rights"]
    disabled: Annotated[bool, "Whether it is disabled"]
    home: Annotated[str | None, "Cube used by default"]
    acts_for: Annotated[str | None, "User an agent acts for"]
    created_by: Annotated[str, "Who made it"]
    created_at: Annotated[datetime, "When it was made"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on a cube that was given to an identity, a group or everyone."""

    cube: Annotated[str, "The cube"]
    identity: Annotated[str, "User, agent or group; `*` is everyone"]
    role: Annotated[CubeRole, "`reader`, `editor` or `owner`"]
    created_by: Annotated[str, "Who gave it"]
    created_at: Annotated[datetime, "When it was given"]


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one API key; None means the installation's setting applies."""

    requests_per_minute: Annotated[int | None, "Requests a minute"] = None
    items_per_day: Annotated[int | None, "Memories stored per UTC day"] = None
    bytes_per_day: Annotated[int | None, "Bytes of text and files stored per UTC day"] = None
    tokens_per_day: Annotated[int | None, "Tokens of the chat model per UTC day"] = None

    def over(self, defaults: KeyLimits) -> KeyLimits:
        """Return these limits, and the defaults where there are none."""
        return KeyLimits(
            *(
                usual if own is None else own
                for own, usual in ((getattr(self, name), getattr(defaults, name)) for name in self.__slots__)
            )
        )


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is known: never the secret itself, of which `hint` is the beginning.

    `rights` are those that calls with it may have at the most, and `cubes` the only ones they reach. A key that was
    made with another one, or replaced it, `counts_for` that.
    """

    id: Annotated[str, "Its id"]
    identity: Annotated[str, "Whose it is"]
    name: Annotated[str, "Its name"]
    hint: Annotated[str, "First characters of its secret"]
    rights: Annotated[tuple[Right, ...], "Rights of the key: `read`, `write`, `own`"]
    created_by: Annotated[str, "Who made it"]
    created_at: Annotated[datetime, "When it was made"]
    expires_at: Annotated[datetime | None, "When it expires"] = None
    revoked_at: Annotated[datetime | None, "When it was revoked"] = None
    last_used_at: Annotated[datetime | None, "When it was used last, to the minute"] = None
    limits: Annotated[KeyLimits, "Limits of the key"] = field(default_factory=KeyLimits)
    counts_for: str | None = None
    cubes: Annotated[tuple[str, ...] | None, "Cubes it is limited to; null: all of its owner's"] = None
    replaced_by: Annotated[str | None, "Key that replaces it after a rotation"] = None

    @property
    def counts_as(self) -> str:
        """Return the id of the key under which its use is counted."""
        return self.counts_for or self.id


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; its `secret` is shown this once and stored nowhere."""

    key: Key
    secret: str


@dataclass(frozen=True, slots=True)
class Offboarding:
    """Result of offboarding a user and their agents: ended keys, sessions and shares, and transferred cubes."""

    identity: Annotated[str, "Who left"]
    agents: Annotated[tuple[str, ...], "Their agents, disabled too"]
    keys: Annotated[int, "Keys revoked"]
    sessions: Annotated[int, "Sessions ended"]
    shares: Annotated[int, "Roles on cubes of others taken back, and roles of others on cubes kept"]
    groups: Annotated[tuple[str, ...], "Groups they were members of"]
    transferred: Annotated[tuple[str, ...], "Cubes that have a new owner"]
    kept: Annotated[tuple[str, ...], "Cubes that stay theirs: only admins reach them"]


@dataclass(frozen=True, slots=True)
class Session:
    """A person who is signed in to the console: with an API key, or as the local owner (`key` is None)."""

    id: Annotated[str, "Its id"]
    identity: Annotated[str, "Who is signed in"]
    key: Annotated[str | None, "API key that was used to sign in"]
    client: Annotated[str, "Browser that signed in, as it names itself"]
    created_at: Annotated[datetime, "When it began"]
    expires_at: Annotated[datetime, "When it expires"]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that was just started; its `secret` is returned this once and stored nowhere."""

    session: Session
    secret: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a key stands for, and what calls with it may do at the most."""

    identity: Identity
    key: Key
