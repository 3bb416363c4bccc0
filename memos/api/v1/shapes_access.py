"""What routes about users, agents, groups, grants and keys answer. No behaviour."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from memos.api.v1.shapes import Shape


class IdentityShape(Shape):
    """A user, agent or group."""

    id: str = Field(description="Its id")
    kind: str = Field(description="`user`, `agent` or `group`")
    name: str = Field(description="Its name for people")
    admin: bool = Field(description="Whether it may do everything")
    disabled: bool = Field(description="Whether it may do nothing")
    home: str | None = Field(description="Cube that is used when none is named")
    acts_for: str | None = Field(description="User an agent acts for")
    created_by: str = Field(description="Who made it")
    created_at: datetime = Field(description="When it was made")


class MembersShape(Shape):
    """The members of a group."""

    group: str = Field(description="Its id")
    members: list[str] = Field(description="Ids of its members")


class GrantShape(Shape):
    """A role on a cube that was given to somebody."""

    cube: str = Field(description="The cube")
    identity: str = Field(description="User, agent or group; `*` is everyone")
    role: str = Field(description="`reader`, `editor` or `owner`")
    created_by: str = Field(description="Who gave it")
    created_at: datetime = Field(description="When it was given")


class RevokedShape(Shape):
    """Whether there was something to take back."""

    revoked: bool = Field(description="False when there was none")


class LimitsShape(Shape):
    """How much a key may use; what is null is as the installation's settings say."""

    model_config = ConfigDict(from_attributes=True, extra="forbid")

    requests_per_minute: int | None = Field(None, description="Requests a minute")
    items_per_day: int | None = Field(None, description="Memories stored a UTC day")
    bytes_per_day: int | None = Field(None, description="Bytes of text and files stored a UTC day")
    tokens_per_day: int | None = Field(None, description="Tokens of the chat model a UTC day")


class KeyShape(Shape):
    """A key, without its secret."""

    id: str = Field(description="Its id")
    identity: str = Field(description="Whose it is")
    name: str = Field(description="Its name")
    hint: str = Field(description="How its secret begins")
    rights: list[str] = Field(description="What calls with it may do at the most: `read`, `write`, `own`")
    created_by: str = Field(description="Who made it")
    created_at: datetime = Field(description="When it was made")
    expires_at: datetime | None = Field(description="When it stops opening anything")
    revoked_at: datetime | None = Field(description="When it was revoked")
    last_used_at: datetime | None = Field(description="When it was used last, to the minute")
    limits: LimitsShape = Field(description="How much it may use")


class NewKeyShape(Shape):
    """A key that was just made."""

    key: KeyShape = Field(description="The key")
    secret: str | None = Field(
        description="What to send as `Authorization: Bearer …`; shown this once, null when the request is repeated"
    )


class MeShape(Shape):
    """Whom a key stands for."""

    identity: IdentityShape = Field(description="Whose the key is")
    rights: list[str] = Field(description="What calls with it may do at the most")
