"""`MemOS.users`, `.keys` and `.sharing`: users, agents and groups, API keys, and roles on cubes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from memos.core.clock import new_id
from memos.core.identities import (
    EVERYONE,
    Caller,
    CubeRole,
    Grant,
    Identity,
    IdentityKind,
    Key,
    KeyLimits,
    NewKey,
    Offboarding,
    Right,
)
from memos.core.text.validation import check_name, check_new_id, check_text
from memos.core.types import LOCAL_OWNER
from memos.errors import BackendUnavailable, Conflict, InvalidInput, NotFound, PermissionDenied, shown
from memos.kernel.access.guard import caller
from memos.kernel.context import Context
from memos.memcube.ledger import access, adapters
from memos.memcube.ledger.cubes import record_event, set_owner, unknown
from memos.reader.arguments import member_of, members_of, seconds_of, switch, within

_PREFIX = "mst_"
_SECRET_BYTES = 32
_HINT_CHARS = 10
_LIMITS = tuple(each.name for each in fields(KeyLimits))
_MOST = 10**15
# A key's use is written down at most that often: a request must not wait for a write.
_USE_NOTED_EVERY = timedelta(minutes=1)
_MOST_CALLERS = 10_000
_MOST_CUBES = 100
_OVERLAP_S = 86_400.0
CLOSED = "The API key is unknown, expired or revoked; use another key or create one."

Identities = list[Identity]  # `list` is a method here
Keys_ = list[Key]


class Users:
    """Users, agents and groups; the first closes an installation to unknown names; the local owner keeps all rights."""

    def __init__(self, context: Context, create_home: Callable[[sa.Connection, str, bool], str]) -> None:
        self._context = context
        self._create_home = create_home

    def create(
        self,
        id_: str,
        *,
        kind: str = "user",
        name: str = "",
        acts_for: str | None = None,
        admin: bool = False,
        adopt: bool = True,
        actor: str = LOCAL_OWNER,
    ) -> Identity:
        """Create a user, agent or group; users and agents get a cube, named by their id if it is free.

        With `adopt` an existing cube of that id, made by the local owner, becomes it. An agent that acts for a user has
        that user's roles too. Raises: InvalidInput, Conflict, NotFound (`acts_for` is unknown), PermissionDenied.
        """
        context, kind_ = self._context, member_of("kind", kind, IdentityKind)
        id_, admin, adopt = check_new_id("id", id_), switch("admin", admin), switch("adopt", adopt)
        acts_for = None if acts_for is None else check_name("acts_for", acts_for, 128)
        if id_ in (LOCAL_OWNER, EVERYONE):
            raise InvalidInput("id", f"{id_!r} is reserved; choose another id")
        if acts_for is not None and kind_ is not IdentityKind.AGENT:
            raise InvalidInput("acts_for", f"applies to agents only, not to a {kind_}")
        if admin and kind_ is IdentityKind.GROUP:
            raise InvalidInput("admin", "applies to users and agents only, not to a group")
        self._context.scopes.check_admin(actor)
        name, actor = check_text("name", name, 1_000) or id_, check_name("actor", actor, 128)
        with context.access.changing(), context.write() as connection:
            if access.find_identity(connection, id_) is not None:
                raise Conflict(f"A user, agent or group {id_!r} exists already; choose another id.")
            if acts_for is not None and access.require_identity(connection, acts_for).kind is not IdentityKind.USER:
                raise InvalidInput("acts_for", f"{shown(acts_for)} is not a user")
            home = None if kind_ is IdentityKind.GROUP else self._create_home(connection, id_, adopt)
            made = Identity(id_, kind_, name, admin, False, home, acts_for, actor, context.clock.now())
            access.add_identity(connection, made)
            told = {"kind": str(kind_), "admin": admin}
            access.record(connection, made.created_at, actor, "user-create", id_, told)
        return made

    def get(self, id_: str, *, actor: str = LOCAL_OWNER) -> Identity:
        """Return an identity: its own, of its agent or user, or any (admins). Raises: NotFound, PermissionDenied."""
        id_, actor = check_name("id", id_, 128), check_name("actor", actor, 128)
        self._context.lifecycle.check_open()
        self._context.access.readable(actor)
        with self._context.ledger.read() as connection:
            found, me = access.find_identity(connection, id_), access.find_identity(connection, actor)
        close = found is not None and me is not None and (found.acts_for == actor or me.acts_for == id_)
        if not close and actor != id_:
            self._context.scopes.check_admin(actor)
        if found is None:
            raise NotFound("user, agent or group", id_)
        return found

    def list(
        self, *, kind: str | None = None, limit: int = 100, after: str = "", actor: str = LOCAL_OWNER
    ) -> Identities:
        """Return identities by id; `after` continues behind one. Raises: PermissionDenied, InvalidInput."""
        self._context.scopes.check_admin(actor)
        wanted = None if kind is None else member_of("kind", kind, IdentityKind)
        after = check_text("after", after, 512)
        with self._context.ledger.read() as connection:
            return access.list_identities(connection, wanted, within("limit", limit, 1, 10_000), after)

    def enable(self, id_: str, *, enabled: bool = True, actor: str = LOCAL_OWNER) -> Identity:
        """Enable an identity or, with `enabled=False`, disable it. Raises: NotFound."""
        self._context.scopes.check_admin(actor)
        disabled = not switch("enabled", enabled)
        with self._context.access.changing(), self._context.write() as connection:
            access.require_identity(connection, check_name("id", id_, 128))
            access.change_identity(connection, id_, disabled=disabled)
            kind = "user-disable" if disabled else "user-enable"
            access.record(connection, self._context.clock.now(), actor, kind, id_, {})
        return self.get(id_)

    def offboard(self, id_: str, *, transfer_to: str | None = None, actor: str = LOCAL_OWNER) -> Offboarding:
        """End all access of a user or agent who leaves, and of their agents: keys, sessions, roles and memberships.

        They are disabled, and their memories stay: with `transfer_to` their cubes belong to that user or agent, with
        the roles given on them; without, only admins reach them, who can transfer (`sharing.transfer`) or erase
        (`cubes.drop`) them later. Raises: InvalidInput, NotFound, PermissionDenied (no admin).
        """
        context = self._context
        context.scopes.check_admin(actor)
        if check_name("id", id_, 128) == actor:
            raise InvalidInput("id", "is your own; ask another admin, or let the local owner do it")
        with context.access.changing(), context.write() as connection:
            if access.require_identity(connection, id_).kind is IdentityKind.GROUP:
                raise InvalidInput("id", "is a group; take its members out, and disable it")
            now = context.clock.now()
            agents = access.agents_of(connection, id_)
            those = [id_, *agents]
            for each in those:
                access.change_identity(connection, each, disabled=True)
            if transfer_to is not None:
                _check_new_owner(connection, transfer_to)
            keys, sessions = access.revoke_keys(connection, those, now), access.end_sessions(connection, those)
            groups, owned = access.leave_all(connection, those), access.owned_by(connection, those)
            ended = access.grants_to(connection, those)
            for cube in owned:
                if transfer_to is None:
                    ended += [each for each in access.grants_of(connection, cube) if each not in ended]
                else:
                    _transfer(connection, cube, transfer_to, now, actor)
            for given in ended:
                access.ungrant(connection, given.cube, given.identity)
                record_event(connection, given.cube, now, actor, "unshare", None, {"identity": given.identity})
            moved, kept = ([], owned) if transfer_to is None else (owned, [])
            done = Offboarding(id_, tuple(agents), keys, sessions, len(ended), tuple(groups), tuple(moved), tuple(kept))
            told = {"agents": agents, "keys": keys, "sessions": sessions, "shares": len(ended), "owner": transfer_to}
            access.record(connection, now, actor, "user-offboard", id_, told)
        return done

    def join(self, group: str, member: str, *, actor: str = LOCAL_OWNER) -> None:
        """Add a user or agent to a group. Raises: NotFound, InvalidInput, PermissionDenied."""
        self._context.scopes.check_admin(actor)
        with self._context.access.changing(), self._context.write() as connection:
            if access.require_identity(connection, check_name("group", group, 128)).kind is not IdentityKind.GROUP:
                raise InvalidInput("group", f"{shown(group)} is not a group")
            if access.require_identity(connection, check_name("member", member, 128)).kind is IdentityKind.GROUP:
                raise InvalidInput("member", "is a group; only users and agents can be members")
            now = self._context.clock.now()
            access.join(connection, group, member, now)
            access.record(connection, now, actor, "group-join", member, {"group": group})

    def leave(self, group: str, member: str, *, actor: str = LOCAL_OWNER) -> None:
        """Remove a member from a group. Raises: NotFound, PermissionDenied."""
        self._context.scopes.check_admin(actor)
        with self._context.access.changing(), self._context.write() as connection:
            access.require_identity(connection, check_name("group", group, 128))
            access.leave(connection, group, check_name("member", member, 128))
            access.record(connection, self._context.clock.now(), actor, "group-leave", member, {"group": group})

    def members(self, group: str, *, actor: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Return a group's members by id. Raises: NotFound, PermissionDenied."""
        self._context.scopes.check_admin(actor)
        with self._context.ledger.read() as connection:
            access.require_identity(connection, check_name("group", group, 128))
            return tuple(access.members(connection, group))


class Sharing:
    """Grant and revoke roles on cubes to identities other than their owners."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def grant(self, cube: str, identity: str, role: str = "reader", *, actor: str = LOCAL_OWNER) -> Grant:
        """Give an identity, or everyone with "*", a role on a cube; for its owners. Raises: NotFound, InvalidInput."""
        context, role_ = self._context, member_of("role", role, CubeRole)
        identity = check_name("identity", identity, 128)
        if identity == EVERYONE and role_ is CubeRole.OWNER:
            raise InvalidInput("role", "the role owner cannot be given to everyone; share as reader or editor")
        self._check_owner(cube, actor)
        with context.access.changing(), context.write() as connection:
            if identity != EVERYONE:
                access.require_identity(connection, identity)
            given = Grant(cube, identity, role_, actor, context.clock.now())
            access.grant(connection, given)
            told = {"identity": identity, "role": str(role_)}
            record_event(connection, cube, given.created_at, actor, "share", None, told)
        return given

    def revoke(self, cube: str, identity: str, *, actor: str = LOCAL_OWNER) -> bool:
        """Revoke a role; False if there was none. Raises: NotFound (cube), PermissionDenied."""
        self._check_owner(cube, actor)
        with self._context.access.changing(), self._context.write() as connection:
            taken = access.ungrant(connection, cube, check_name("identity", identity, 128))
            if taken:
                record_event(
                    connection, cube, self._context.clock.now(), actor, "unshare", None, {"identity": identity}
                )
        return taken

    def transfer(self, cube: str, to: str, *, actor: str = LOCAL_OWNER) -> None:
        """Make a user or agent the owner of a cube; for its owners. Other roles on it stay as they are.

        The former owner keeps no role but those given to it, its groups or everyone, and consent to training ends.
        Raises: NotFound, InvalidInput (a group, or disabled), PermissionDenied, Conflict (the home of somebody).
        """
        context = self._context
        self._check_owner(cube, actor)
        with context.access.changing(), context.write() as connection:
            access.require_cube(connection, cube)
            _check_new_owner(connection, check_name("to", to, 128))
            home = access.home_of(connection, cube)
            if home not in (None, to):
                raise Conflict(
                    f"Cube {cube!r} is where {home!r} works by default; it gets a new owner when {home!r} leaves "
                    "(`memos user offboard`, `users.offboard`), or is disabled."
                )
            _transfer(connection, cube, to, context.clock.now(), actor)

    def grants(self, cube: str, *, actor: str = LOCAL_OWNER) -> tuple[Grant, ...]:
        """Return the grants of a cube; for its owners. Raises: NotFound, PermissionDenied."""
        self._check_owner(cube, actor)
        with self._context.ledger.read() as connection:
            return tuple(access.grants_of(connection, cube))

    def _check_owner(self, cube: str, actor: str) -> None:
        context = self._context
        context.lifecycle.check_open()
        context.access.check(check_name("actor", actor, 128), [check_name("cube", cube, 128)], Right.OWN)
        with context.ledger.read() as connection:
            access.require_cube(connection, cube)


def _check_new_owner(connection: sa.Connection, to: str) -> None:
    found = access.require_identity(connection, check_name("to", to, 128))
    if found.kind is IdentityKind.GROUP:
        raise InvalidInput("to", f"{shown(to)} is a group; only users and agents own cubes")
    if found.disabled:
        raise InvalidInput("to", f"{shown(to)} is disabled; enable it first, or choose another owner")


def _transfer(connection: sa.Connection, cube: str, to: str, now: datetime, actor: str) -> None:
    access.ungrant(connection, cube, to)
    set_owner(connection, cube, to)
    adapters.disallow(connection, cube)  # the new owner has not consented to training
    record_event(connection, cube, now, actor, "transfer", None, {"owner": to})


class Keys:
    """API keys of users and agents."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(
        self,
        identity: str,
        name: str,
        *,
        rights: Collection[str] = ("read", "write", "own"),
        expires_at: datetime | None = None,
        limits: Mapping[str, int] | None = None,
        cubes: Sequence[str] | None = None,
        actor: str = LOCAL_OWNER,
    ) -> NewKey:
        """Create a key of 256 random bits; only the return value has the secret. Identities may create their own.

        Args:
            identity: User or agent the key stands for.
            name: Where the key is used.
            rights: Rights of the key.
            expires_at: When it expires.
            limits: How much it may use; only admins set them. What a key made with another key uses counts as that
                one's.
            cubes: The only cubes it reaches, which the identity must have a role on; None for all it has a role on.
                The first is where calls go that name no cube, unless the identity's own cube is among them.
            actor: Who creates it.

        Raises: InvalidInput, NotFound, PermissionDenied.
        """
        context, now = self._context, self._context.clock.now()
        self._check_self(identity, actor)
        context.access.check_unlimited("create keys")
        wanted = members_of("rights", rights, Right)
        if not wanted:
            raise InvalidInput("rights", f"must not be empty; choose from {', '.join(Right)}")
        for right in (Right.OWN, *wanted):  # a key makes none that may do more than itself
            context.access.check_key(right)
        _check_expiry(expires_at, now)
        allowed, counts_for = self._limits(limits, actor)
        secret = _new_secret()
        key = Key(
            new_id(),
            identity,
            check_name("name", name),
            secret[:_HINT_CHARS],
            wanted,
            actor,
            now,
            expires_at,
            limits=allowed,
            counts_for=counts_for,
            cubes=_cube_names(cubes),
        )
        with context.write() as connection:
            owner = access.require_identity(connection, identity)
            if owner.kind is IdentityKind.GROUP:
                raise InvalidInput("identity", "is a group; only users and agents can have keys")
            _check_reach(connection, owner, key.cubes)
            access.add_key(connection, key, secret_digest(secret))
            access.record(connection, now, actor, "key-create", identity, _told(key))
        return NewKey(key, secret)

    def rotate(
        self,
        key: str,
        *,
        overlap_s: float = _OVERLAP_S,
        expires_at: datetime | None = None,
        actor: str = LOCAL_OWNER,
    ) -> NewKey:
        """Create a key in place of another, with its name, rights, cubes and limits; both work for a while.

        Args:
            key: Id of the key to replace.
            overlap_s: Seconds that the replaced key goes on working, unless it expires before; 0 ends it at once.
            expires_at: When the new key expires; default: it lasts as long as the replaced one was made for.
            actor: Who rotates it.

        Raises: InvalidInput, NotFound, Conflict (revoked, expired or replaced already), PermissionDenied.
        """
        context, now = self._context, self._context.clock.now()
        found = self.get(key, actor=actor)
        for right in (Right.OWN, *found.rights):
            context.access.check_key(right)
        self._check_reached(found, "rotate other keys")
        overlap = timedelta(seconds=seconds_of("overlap_s", overlap_s))
        if expires_at is None and found.expires_at is not None:
            expires_at = now + (found.expires_at - found.created_at)
        _check_expiry(expires_at, now)
        secret = _new_secret()
        with context.access.changing(), context.write() as connection:
            old = access.require_key(connection, found.id)
            if not is_valid(old, now):
                raise Conflict(f"The key {old.name!r} is revoked or expired; create a new one.")
            if old.replaced_by is not None:
                raise Conflict(f"The key {old.name!r} was rotated already; rotate {old.replaced_by} instead.")
            new = replace(
                old,
                id=new_id(),
                hint=secret[:_HINT_CHARS],
                created_by=actor,
                created_at=now,
                expires_at=expires_at,
                last_used_at=None,
                counts_for=old.counts_as,
            )
            ends = now + overlap if old.expires_at is None else min(old.expires_at, now + overlap)
            access.add_key(connection, new, secret_digest(secret))
            access.change_key(connection, old.id, expires_at=ends, replaced_by=new.id)
            access.record(connection, now, actor, "key-rotate", old.identity, _told(new) | {"replaces": old.id})
        return NewKey(new, secret)

    def list(self, identity: str | None = None, *, actor: str = LOCAL_OWNER) -> Keys_:
        """Return an identity's keys, or all; with a key that is limited to cubes itself. Raises: PermissionDenied."""
        self._check_self(identity, actor)
        self._context.access.check_key(Right.READ)
        with self._context.ledger.read() as connection:
            found = access.keys_of(connection, identity)
        asking = caller()
        return found if asking is None or asking.key.cubes is None else [k for k in found if k.id == asking.key.id]

    def limit(self, key: str, limits: Mapping[str, int], *, actor: str = LOCAL_OWNER) -> Key:
        """Replace a key's limits. Raises: NotFound, InvalidInput, PermissionDenied (no admin)."""
        context = self._context
        self._check_self(None, actor)
        wanted = _limits(limits)
        with context.access.changing(), context.write() as connection:
            found = access.require_key(connection, check_name("key", key, 64))
            access.change_key(connection, found.id, limits=access.limits_row(wanted))
            access.record(connection, context.clock.now(), actor, "key-limit", found.identity, _told(found))
            return access.require_key(connection, found.id)

    def used(self, key: str, *, actor: str = LOCAL_OWNER) -> dict[str, int]:
        """Return the items, bytes and tokens a key used today, where limited. Raises: NotFound."""
        self._context.lifecycle.check_open()
        with self._context.ledger.read() as connection:
            found = access.require_key(connection, check_name("key", key, 64))
        self._check_self(found.identity, actor)
        return self._context.quotas.used(found)

    def revoke(self, key: str, *, actor: str = LOCAL_OWNER) -> Key:
        """Revoke a key. Raises: NotFound, PermissionDenied."""
        found = self.get(key, actor=actor)
        self._context.access.check_key(Right.OWN)
        self._check_reached(found, "revoke other keys")
        with self._context.access.changing(), self._context.write() as connection:
            if found.revoked_at is None:
                now = self._context.clock.now()
                access.change_key(connection, found.id, revoked_at=now)
                access.record(connection, now, actor, "key-revoke", found.identity, _told(found))
            return access.require_key(connection, found.id)

    def authenticate(self, secret: str) -> Caller:
        """Return the caller of a key. Raises: PermissionDenied, without saying what is wrong with it."""
        context = self._context
        context.lifecycle.check_open()
        now, digest, callers = context.clock.now(), secret_digest(secret), context.access.callers()
        with context.ledger.read() as connection:
            # Looked up by digest: how long that takes tells nothing of a secret.
            key = access.key_with(connection, digest)
            identity = None if key is None else access.find_identity(connection, key.identity)
        if key is None or identity is None or not opens(key, identity, now):
            raise PermissionDenied(CLOSED)
        if _is_use_due(key, now):
            # A disk that is full leaves what is stored to be read.
            with suppress(BackendUnavailable):
                with context.write() as connection:
                    access.change_key(connection, key.id, last_used_at=now)
                key = replace(key, last_used_at=now)
        found = Caller(identity, key)
        if callers is not None and len(callers) < _MOST_CALLERS:
            callers[digest] = found
        return found

    def recognise(self, secret: str) -> Caller | None:
        """Return the caller of a key as `authenticate` would, None if that has to ask the ledger. It never waits."""
        context = self._context
        context.lifecycle.check_open()
        callers = context.access.callers()
        found = None if callers is None else callers.get(secret_digest(secret))
        if found is None:
            return None
        now = context.clock.now()
        return found if opens(found.key, found.identity, now) and not _is_use_due(found.key, now) else None

    def check(self, key: str) -> None:
        """Check again, during a long call, that its key is still valid. Raises: PermissionDenied."""
        context = self._context
        context.lifecycle.check_open()
        with context.ledger.read() as connection:
            found = access.require_key(connection, key)
            identity = access.find_identity(connection, found.identity)
        if identity is None or not opens(found, identity, context.clock.now()):
            raise PermissionDenied(CLOSED)

    def get(self, key: str, *, actor: str = LOCAL_OWNER) -> Key:
        """Return a key, without its secret. Raises: NotFound."""
        self._context.lifecycle.check_open()
        with self._context.ledger.read() as connection:
            found = access.require_key(connection, check_name("key", key, 64))
        if not self._is_its(found, actor):
            raise NotFound("key", key)  # as if there were none
        return found

    def _check_reached(self, key: Key, what: str) -> None:
        asking = caller()
        if asking is None or asking.key.id != key.id:
            self._context.access.check_unlimited(what)

    def _is_its(self, key: Key, actor: str) -> bool:
        return self._context.access.readable(check_name("actor", actor, 128)) is None or actor == key.identity

    def _limits(self, limits: Mapping[str, int] | None, actor: str) -> tuple[KeyLimits, str | None]:
        asking = caller()
        if asking is not None and not asking.identity.admin:
            if limits:
                raise PermissionDenied("Only an admin can set the limits of a key; leave them out.")
            return asking.key.limits, asking.key.counts_as
        if limits:
            self._context.access.check_admin(check_name("actor", actor, 128))
        return _limits(limits or {}), None

    def _check_self(self, identity: str | None, actor: str) -> None:
        self._context.lifecycle.check_open()
        self._context.access.readable(check_name("actor", actor, 128))
        if identity is None or actor != check_name("identity", identity, 128):
            self._context.access.check_admin(actor)


def opens(key: Key, identity: Identity, now: datetime) -> bool:
    """Return True if a key is valid and its owner enabled."""
    return is_valid(key, now) and not identity.disabled


def is_valid(key: Key, now: datetime) -> bool:
    """Return True if a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and not (
        isinstance(expires_at, datetime) and expires_at.tzinfo is not None and expires_at > now
    ):
        raise InvalidInput("expires_at", "must be a time in the future, with a UTC offset")


def _cube_names(cubes: Sequence[str] | None) -> tuple[str, ...] | None:
    if cubes is None:
        return None
    if isinstance(cubes, str) or not isinstance(cubes, Sequence):
        raise InvalidInput("cubes", "must be a list of names")
    if not 0 < len(cubes) <= _MOST_CUBES:
        raise InvalidInput("cubes", f"must name 1 to {_MOST_CUBES} cubes; leave it out for all")
    return tuple(dict.fromkeys(check_name("cubes", cube, 128) for cube in cubes))


def _check_reach(connection: sa.Connection, owner: Identity, cubes: Collection[str] | None) -> None:
    """Check that the owner of a key reaches the cubes it is limited to."""
    for cube in cubes or ():
        if owner.admin:
            access.require_cube(connection, cube)
        elif cube not in access.roles(connection, owner.id, [cube]):
            raise unknown(cube)


def _is_use_due(key: Key, now: datetime) -> bool:
    return key.last_used_at is None or now - key.last_used_at >= _USE_NOTED_EVERY


def _told(key: Key) -> dict[str, str | list[str]]:
    limited = {} if key.cubes is None else {"cubes": [*key.cubes]}
    return {"key": key.id, "name": key.name, "rights": [str(right) for right in key.rights], **limited}


def _limits(given: Mapping[str, int]) -> KeyLimits:
    if not isinstance(given, Mapping):
        raise InvalidInput("limits", f"must be a mapping of names to numbers, not {type(given).__name__}")
    if unknown := sorted(map(str, given.keys() - set(_LIMITS))):
        raise InvalidInput("limits", f"has the unknown name {shown(unknown[0])}; known are {', '.join(_LIMITS)}")
    return KeyLimits(
        **{name: within(f"limits.{name}", most, 0, _MOST) for name, most in given.items() if most is not None}
    )


def secret_digest(secret: str) -> str:
    """Return the SHA-256 of a secret, which is stored in its place."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
