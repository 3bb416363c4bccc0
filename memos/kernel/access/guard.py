"""Check what an actor may do with cubes; every scope passes through here."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import sqlalchemy as sa

from memos.core.identities import NEEDED, RANK, Caller, CubeRole, Right
from memos.core.types import LOCAL_OWNER
from memos.errors import NotFound, PermissionDenied
from memos.memcube.ledger import access
from memos.memcube.ledger import cubes as cube_rows
from memos.memcube.ledger.engine import Ledger

_REMEMBERED = 10_000
_SHOWN_CUBES = 5
_ALLOWED: ContextVar[frozenset[Right] | None] = ContextVar("memos_allowed", default=None)
_CALLER: ContextVar[Caller | None] = ContextVar("memos_caller", default=None)
_READ: ContextVar[set[str] | None] = ContextVar("memos_read", default=None)


@contextmanager
def limit_rights(rights: Iterable[Right]) -> Iterator[None]:
    """Limit every call in the block to `rights`, the rights of the API key."""
    token = _ALLOWED.set(frozenset(rights))
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@contextmanager
def acting_as(caller: Caller) -> Iterator[None]:
    """Run calls in the block as `caller`: with its key's rights, and only for identities it may act for."""
    token, read = _CALLER.set(caller), _READ.set(set())
    try:
        with limit_rights(caller.key.rights):
            yield
    finally:
        _READ.reset(read)
        _CALLER.reset(token)


def current_identity(actor: str) -> str:
    caller = _CALLER.get()
    return actor if caller is None else caller.identity.id


def caller() -> Caller | None:
    return _CALLER.get()


def first_read(subject: str) -> bool:
    """Return True the first time that a request reads a subject; outside of requests always."""
    read = _READ.get()
    if read is None:
        return True
    new = subject not in read
    read.add(subject)
    return new


@dataclass(frozen=True, slots=True)
class ActorRights:
    everything: bool
    roles: Mapping[str, CubeRole]
    acts_for: str | None = None

    def within(self, cubes: Collection[str]) -> ActorRights:
        """Return the rights in some cubes alone, as a key has that is limited to them."""
        if self.everything:
            return ActorRights(False, dict.fromkeys(cubes, CubeRole.OWNER), self.acts_for)
        return ActorRights(False, {cube: self.roles[cube] for cube in cubes if cube in self.roles}, self.acts_for)


class AccessControl:
    """Access control of an open installation. Thread-safe.

    The local owner may do everything. Without any identity the installation has a single user, and every name may do
    everything. Otherwise only enabled identities may act, each within its roles.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, ActorRights] = {}
        self._callers: dict[str, Caller] = {}
        self._changes = 0
        self._counting = threading.Lock()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Invalidate what is cached around a transaction that changes identities, keys, grants or cubes.

        Every check reads the ledger meanwhile: after the commit a reader could otherwise use a share just revoked.
        """
        with self._counting:
            self._changes += 1
        try:
            yield
        finally:
            self._known = {}
            self._callers = {}
            with self._counting:
                self._changes -= 1

    def callers(self) -> dict[str, Caller] | None:
        """Return the callers of keys that were read from the ledger, by the digests of their secrets.

        None while the ledger must be read: during a change, and where another process may change it. Take it before
        reading a caller to put into it, so that a change in between leaves the caller in a mapping nobody asks again.
        """
        return self._callers if self._ledger.is_sqlite and not self._changes else None

    def check(self, actor: str, cubes: Collection[str], right: Right) -> None:
        """Check that an actor may act on cubes. Raises: NotFound (no role, as if no cube), PermissionDenied."""
        self.check_key(right)
        standing = self._rights(actor)
        if standing.everything:
            return
        for cube in cubes:
            role = standing.roles.get(cube)
            if role is None:
                raise _no_role(actor, cube, standing.roles)
            if RANK[role] < RANK[NEEDED[right]]:
                raise PermissionDenied(
                    f"{actor!r} is {role} of cube {cube!r}, but this needs the role {NEEDED[right]}; ask an owner of "
                    "the cube for it."
                )

    def check_key(self, right: Right) -> None:
        allowed = _ALLOWED.get()
        if allowed is not None and right not in allowed:
            raise PermissionDenied(f"The API key lacks the right `{right}`; use a key with this right.")

    def check_unlimited(self, what: str) -> None:
        """Check that a call may reach more than cubes. Raises: PermissionDenied (its key is limited to some)."""
        caller = _CALLER.get()
        if caller is not None and caller.key.cubes is not None:
            raise PermissionDenied(f"The API key is limited to cubes and cannot {what}; use a key without that limit.")

    def is_admin(self, actor: str) -> bool:
        """Return True if an actor may do everything, and its key has the right `own`."""
        allowed = _ALLOWED.get()
        return (allowed is None or Right.OWN in allowed) and self._rights(actor).everything

    def check_admin(self, actor: str) -> None:
        if not self.is_admin(actor):
            raise PermissionDenied(
                f"{actor!r} is not an admin of this installation; ask an admin to do it, or use an admin's key with "
                "the right `own`."
            )

    def owned(self, actor: str, among: Collection[str] | None) -> list[str]:
        """Return the cubes of `among` (None: all with a role) that an actor may manage."""
        standing = self._rights(actor)
        if standing.everything:
            return [*(among or ())]
        known = standing.roles if among is None else set(among)
        return [cube for cube, role in standing.roles.items() if role is CubeRole.OWNER and cube in known]

    def readable(self, actor: str) -> frozenset[str] | None:
        standing = self._rights(actor)
        return None if standing.everything else frozenset(standing.roles)

    def _rights(self, actor: str) -> ActorRights:
        caller = _CALLER.get()
        foreign = caller is not None and not caller.identity.admin and caller.identity.id != actor
        try:
            standing = self._rights_without_identities(actor)
        except PermissionDenied:
            if foreign:  # who exists and who is disabled is not for others to learn
                raise _not_its_own(actor) from None
            raise
        if foreign and caller is not None and standing.acts_for != caller.identity.id:
            raise _not_its_own(actor)
        limited = None if caller is None else caller.key.cubes
        return standing if limited is None else standing.within(limited)

    def _rights_without_identities(self, actor: str) -> ActorRights:
        if actor == LOCAL_OWNER:
            return ActorRights(everything=True, roles={})
        known = self._known
        if self._changes or (standing := known.get(actor)) is None:
            with self._ledger.read() as connection:
                standing = _rights_of(connection, actor)
            # Another process may change what a ledger on a server says; into the object taken before reading, so that
            # what was forgotten meanwhile stays forgotten.
            if self._ledger.is_sqlite and len(known) < _REMEMBERED:
                known[actor] = standing
        return standing


def _no_role(actor: str, cube: str, roles: Collection[str]) -> NotFound:
    if not roles:
        return cube_rows.unknown(cube)
    shown = sorted(roles)[:_SHOWN_CUBES]
    more = ", …" if len(roles) > len(shown) else ""
    return NotFound("cube", cube, f"{actor!r} has a role on {', '.join(shown)}{more}; name one of these.")


def _not_its_own(actor: str) -> PermissionDenied:
    return PermissionDenied(f"The API key cannot act for {actor!r}; use the key's own user, or an admin's key.")


def _rights_of(connection: sa.Connection, actor: str) -> ActorRights:
    identity = access.find_identity(connection, actor)
    if identity is None:
        if access.any_identity(connection):
            raise PermissionDenied(f"{actor!r} is not a user or agent of this installation; an admin can create it.")
        return ActorRights(everything=True, roles={})
    if identity.disabled:
        raise PermissionDenied(f"{actor!r} is disabled; an admin can enable it.")
    if identity.acts_for is not None:
        user = access.find_identity(connection, identity.acts_for)
        if user is None or user.disabled:
            raise PermissionDenied(
                f"{actor!r} acts for {identity.acts_for!r}, which is disabled; an admin can enable it."
            )
    return ActorRights(identity.admin, {} if identity.admin else access.roles(connection, actor), identity.acts_for)
