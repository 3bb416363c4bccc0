"""`MemOS.sessions`: people who are signed in to the console, and the one-time links that sign them in."""

from __future__ import annotations

import secrets
from datetime import timedelta

from memos.core.clock import Clock, new_id
from memos.core.identities import Caller, Identity, IdentityKind, Key, NewSession, Right, Session
from memos.core.text.validation import check_name, check_text
from memos.core.types import LOCAL_OWNER
from memos.errors import NotFound, PermissionDenied
from memos.kernel.access.guard import caller
from memos.kernel.access.service import CLOSED, opens, secret_digest
from memos.kernel.context import Context
from memos.memcube.ledger import access

PREFIX = "mss_"
LIFETIME = timedelta(hours=12)
LINK_LIFETIME = timedelta(hours=1)
LOCAL_KEY = "local"
"""Id of the key in calls of the local owner, who needs none."""

Sessions_ = list[Session]  # `list` is a method below

_SECRET_BYTES = 32
_CLIENT_CHARS = 300
_CONFIRMED = "OpenID Connect"
_OVER = "The session has ended; sign in again."
_USED = "The sign-in link is unknown, used or expired; get a new one with `memos console`."


class Sessions:
    """Start, list and end sessions. A session ends with its API key, and by itself after 12 hours."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create_link(self, *, actor: str = LOCAL_OWNER) -> NewSession:
        """Return the secret of a one-time link, valid for an hour, that signs in the local owner.

        Raises: PermissionDenied (not the local owner).
        """
        self._context.lifecycle.check_open()
        self._context.access.check_admin(actor)
        if check_name("actor", actor, 128) != LOCAL_OWNER:
            raise PermissionDenied("Only the local owner can make a sign-in link; sign in with an API key.")
        return self._add(LOCAL_OWNER, None, "", LINK_LIFETIME, link=True)

    def redeem(self, link: str, *, client: str = "") -> NewSession:
        """Start a session with a one-time link, which is used up. Raises: PermissionDenied."""
        self._context.lifecycle.check_open()
        with self._context.write() as connection:
            found = access.session_with(connection, secret_digest(link), link=True)
            if (
                found is None
                or found.expires_at <= self._context.clock.now()
                or not access.remove_session(connection, found.id)
            ):
                raise PermissionDenied(_USED)
        return self._add(found.identity, found.key, client, LIFETIME)

    def start(self, caller: Caller, *, client: str = "") -> NewSession:
        """Start a session for the caller of an API key; it has the key's rights and ends with it at the latest."""
        self._context.lifecycle.check_open()
        until = caller.key.expires_at
        lifetime = LIFETIME if until is None else min(LIFETIME, until - self._context.clock.now())
        key = None if caller.key.id == LOCAL_KEY else caller.key.id
        return self._add(caller.identity.id, key, client, lifetime)

    def start_for(self, identity: str, *, client: str = "", actor: str = LOCAL_OWNER) -> NewSession:
        """Start a session for a user or agent whom an identity provider has confirmed; admins only.

        It has a key of its own, whose secret nobody knows, and which is revoked like any other.
        Raises: NotFound, PermissionDenied (disabled, or a group).
        """
        self._context.scopes.check_admin(actor)
        check_name("identity", identity, 128)
        now = self._context.clock.now()
        with self._context.write() as connection:
            found = access.find_identity(connection, identity)
            if found is None:
                raise NotFound("user", identity, "An admin can create it, with this id.")
            if found.disabled or found.kind is IdentityKind.GROUP:
                raise PermissionDenied(f"{identity!r} cannot sign in: it is disabled, or a group.")
            key = Key(new_id(), identity, _CONFIRMED, "", tuple(Right), identity, now, now + LIFETIME)
            access.add_key(connection, key, secret_digest(secrets.token_urlsafe(_SECRET_BYTES)))
        return self._add(identity, key.id, client, LIFETIME)

    def authenticate(self, secret: str) -> Caller:
        """Return the caller of a session. Raises: PermissionDenied."""
        context = self._context
        context.lifecycle.check_open()
        now = context.clock.now()
        with context.ledger.read() as connection:
            session = access.session_with(connection, secret_digest(secret))
            if session is None or session.expires_at <= now:
                raise PermissionDenied(_OVER)
            if session.key is None and session.identity == LOCAL_OWNER:
                return local_caller(context.clock)
            if session.key is None:
                raise PermissionDenied(_OVER)
            key = access.require_key(connection, session.key)
            identity = access.find_identity(connection, session.identity)
        if identity is None or not opens(key, identity, now):
            raise PermissionDenied(CLOSED)
        return Caller(identity, key)

    def list(self, *, actor: str = LOCAL_OWNER) -> Sessions_:
        """Return who is signed in, newest first: everybody for an admin, else one's own sessions."""
        self._context.lifecycle.check_open()
        self._context.access.check_key(Right.READ)
        now, mine = self._context.clock.now(), None if self._is_admin(actor) else actor
        with self._context.ledger.read() as connection:
            return [each for each in _reached(access.sessions_of(connection, mine)) if each.expires_at > now]

    def revoke(self, session: str, *, actor: str = LOCAL_OWNER) -> None:
        """End a session by its id. Raises: NotFound."""
        self._context.lifecycle.check_open()
        check_name("session", session, 64)
        self._context.access.check_key(Right.OWN)
        mine = None if self._is_admin(actor) else actor
        with self._context.write() as connection:
            known = {each.id: each.identity for each in _reached(access.sessions_of(connection, mine))}
            if session not in known or not access.remove_session(connection, session):
                raise NotFound("session", session)
            told = {"session": session}
            access.record(connection, self._context.clock.now(), actor, "session-end", known[session], told)

    def end(self, secret: str) -> None:
        """End the session of a secret, if there is one."""
        self._context.lifecycle.check_open()
        with self._context.write() as connection:
            if (found := access.session_with(connection, secret_digest(secret))) is not None:
                access.remove_session(connection, found.id)
                now, told = self._context.clock.now(), {"session": found.id}
                access.record(connection, now, found.identity, "sign-out", found.identity, told)

    def _add(
        self, identity: str, key: str | None, client: str, lifetime: timedelta, *, link: bool = False
    ) -> NewSession:
        now = self._context.clock.now()
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        session = Session(
            new_id(),
            identity,
            key,
            check_text("client", client[:_CLIENT_CHARS], 4 * _CLIENT_CHARS),
            now,
            now + lifetime,
        )
        with self._context.write() as connection:
            access.add_session(connection, session, secret_digest(secret), link=link)
            if not link:
                told = {"session": session.id, "key": key}
                access.record(connection, now, identity, "sign-in", identity, told)
        return NewSession(session, secret)

    def _is_admin(self, actor: str) -> bool:
        return self._context.access.is_admin(check_name("actor", actor, 128))


def _reached(sessions: Sessions_) -> Sessions_:
    """Return the sessions that a call may see: with a key that is limited to cubes those of this key."""
    asking = caller()
    if asking is None or asking.key.cubes is None:
        return sessions
    return [each for each in sessions if each.key == asking.key.id]


def local_caller(clock: Clock) -> Caller:
    """Return the caller that stands for the local owner, who may do everything."""
    now = clock.now()
    owner = Identity(LOCAL_OWNER, IdentityKind.USER, LOCAL_OWNER, True, False, None, None, LOCAL_OWNER, now)
    return Caller(owner, Key(LOCAL_KEY, LOCAL_OWNER, LOCAL_KEY, "", tuple(Right), LOCAL_OWNER, now))
