"""`MemOS.profiles`: profiles of subjects with evidence and history, and the template that shapes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from memos.core.identities import Right
from memos.core.text.validation import check_name
from memos.core.types import LOCAL_OWNER, Fact, Item, ItemType, Json, Role, Scope, Span
from memos.errors import InvalidInput, NotFound, shown
from memos.kernel.context import Context, retry_write
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import cubes, expiry
from memos.memcube.profiles import views
from memos.memcube.profiles.template import Dimension, Template, read_template, standard, stored_template, value_for
from memos.memcube.profiles.traits import STATIC, dimension_of, trait
from memos.memcube.profiles.views import Profile, ProfileDiff, Trait, TraitEntry
from memos.reader import messages
from memos.reader.arguments import read_time, within
from memos.reader.messages import read_messages
from memos.scheduler import consolidation
from memos.scheduler.consolidation import Outcome

READER = "operator/1"


class Profiles:
    """Profiles of subjects; without a subject a call is about the only one its cube has."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, cube: str, subject: str | None = None, *, as_of: Json = None, actor: str = LOCAL_OWNER) -> Profile:
        """Return a profile now, or as recorded at a moment; empty if unknown. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        at = None if as_of is None else self._time("as_of", as_of, scope)
        with self._context.ledger.read() as connection:
            return self._profile(connection, scope.cubes[0], _subject(connection, scope.cubes[0], subject), at)

    def subjects(self, cube: str, *, actor: str = LOCAL_OWNER) -> tuple[str, ...]:
        """Return the subjects a cube has profiles of. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return _subjects(connection, scope.cubes[0])

    def history(
        self, cube: str, dimension: str, subject: str | None = None, *, actor: str = LOCAL_OWNER
    ) -> tuple[TraitEntry, ...]:
        """Return the entries of one dimension, oldest first. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        check_name("dimension", dimension, 64)
        with self._context.ledger.read() as connection:
            whose = _subject(connection, scope.cubes[0], subject)
            return views.entries_of(views.history(connection, scope.cubes[0], whose, dimension))

    def diff(
        self, cube: str, since: Json, until: Json = None, *, subject: str | None = None, actor: str = LOCAL_OWNER
    ) -> ProfileDiff:
        """Return what changed between two record times, by default until now. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        first = self._time("since", since, scope)
        last = self._context.clock.now() if until is None else self._time("until", until, scope)
        if first > last:
            raise InvalidInput("since", "is after `until`; swap them")
        with self._context.ledger.read() as connection:
            whose = _subject(connection, scope.cubes[0], subject)
            before = self._profile(connection, scope.cubes[0], whose, first)
            after = self._profile(connection, scope.cubes[0], whose, last)
        return views.difference(before, after, first, last)

    @retry_write
    def rollback(
        self, cube: str, dimension: str, version: int, subject: str | None = None, *, actor: str = LOCAL_OWNER
    ) -> Trait:
        """Restore a trait to an entry of its history. Raises: InvalidInput, NotFound, Conflict (not then current)."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        within("version", version, 1, 2**31 - 1)
        check_name("dimension", dimension, 64)
        with self._context.change(scope) as change:
            whose = _subject(change.connection, change.cube, subject)
            entries = views.history(change.connection, change.cube, whose, dimension)
            if version > len(entries):
                raise NotFound("entry", f"{dimension} {version}", "List entries with `memos profile history`.")
            state = views.restore(change, whose, dimension, entries[version - 1])
            told = self._trait(change.connection, state)
        self._context.wait_indexed()
        return told

    @retry_write
    def set_static(self, cube: str, dimension: str, value: str, subject: str, *, actor: str = LOCAL_OWNER) -> Trait:
        """Set a trait that only `remove_static` or a rollback changes; for owners. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        whose, value = masking.text("subject", check_name("subject", subject)), masking.any("value", value)
        with self._context.change(scope) as change:
            masking.record(change)
            known = views.template_of(change.connection, change.cube).by_id.get(check_name("dimension", dimension, 64))
            if known is None:
                raise InvalidInput(
                    "dimension", "is not a dimension of the cube's template; see `memos profile templates`"
                )
            state = self._give(change, scope, known, _value(known, value), whose)
            told = self._trait(change.connection, state)
        self._context.wait_indexed()
        return told

    @retry_write
    def remove_static(
        self, cube: str, dimension: str, subject: str | None = None, *, actor: str = LOCAL_OWNER
    ) -> Trait | None:
        """Remove a static trait; return the extracted one that applies again. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        check_name("dimension", dimension, 64)
        with self._context.change(scope) as change:
            state = views.remove_static(change, _subject(change.connection, change.cube, subject), dimension)
            told = None if state is None else self._trait(change.connection, state)
        self._context.wait_indexed()
        return told

    @retry_write
    def edit(
        self,
        cube: str,
        subject: str,
        values: Mapping[str, str],
        remove: Sequence[str] = (),
        *,
        actor: str = LOCAL_OWNER,
    ) -> None:
        """Set static traits and remove others, all or nothing. Raises: InvalidInput, NotFound (cube, trait)."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        whose = masking.text("subject", check_name("subject", subject))
        given = {name: masking.any(f"values.{name}", value) for name, value in values.items()}
        remove = list(remove)
        with self._context.change(scope) as change:
            masking.record(change)
            by_id = views.template_of(change.connection, change.cube).by_id
            for name in (*given, *remove):
                if name not in by_id:
                    raise InvalidInput(shown(name), "is not a dimension of the template; see `memos profile templates`")
            for name, value in given.items():
                self._give(change, scope, by_id[name], _value(by_id[name], value), whose)
            for name in remove:
                views.remove_traits(change, whose, name)
        self._context.wait_indexed()

    @retry_write
    def clear(self, cube: str, subject: str, *, actor: str = LOCAL_OWNER) -> int:
        """Remove all traits of a subject; return how many. Raises: NotFound (cube)."""
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            count = views.remove_traits(change, check_name("subject", subject))
        self._context.wait_indexed()
        return count

    def templates(self, *, actor: str = LOCAL_OWNER) -> dict[str, Template]:
        """Return the standard template and those of the cubes the actor may read, by name."""
        readable = self._context.scopes.readable(check_name("actor", actor, 128))
        with self._context.ledger.read() as connection:
            own = [stored_template(text) for text in cubes.own_templates(connection, readable)]
        return {template.name: template for template in (*own, standard())}

    def render(self, cube: str, subject: str | None = None, max_tokens: int = 500, *, actor: str = LOCAL_OWNER) -> str:
        """Return a profile as text for a prompt, of at most `max_tokens`. Raises: InvalidInput, NotFound."""
        within("max_tokens", max_tokens, 1, 10_000_000)
        return views.rendered(self.get(cube, subject, actor=actor), max_tokens)

    def template(self, cube: str, *, actor: str = LOCAL_OWNER) -> Template:
        """Return the template of a cube. Raises: InvalidInput, NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return views.template_of(connection, scope.cubes[0])

    @retry_write
    def use_template(
        self, cube: str, template: str | Path | Mapping[str, Any] | None, *, actor: str = LOCAL_OWNER
    ) -> Template:
        """Set a cube's template from a .toml or .json file or a mapping; None restores the standard one.

        Traits of dimensions it lacks stay. Raises: InvalidInput, NotFound, PermissionDenied.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        read = None if template is None else read_template(template)
        if read is not None:
            masking = self._context.scopes.masking(scope)
            read = read_template(masking.fields(read.model_dump(mode="json", exclude_defaults=True), "template"))
        with self._context.change(scope) as change:
            if read is None:
                cubes.remove(change.connection, change.cube)
            else:
                cubes.set_template(change.connection, change.cube, read.model_dump_json(exclude_defaults=True))
            changes.record(change, "template", {"dimensions": len((read or standard()).by_id)})
        return read or standard()

    @retry_write
    def put(self, cube: str, found: Sequence[Fact], *, actor: str = LOCAL_OWNER) -> Outcome:
        """Store extracted traits in order of event time. Raises: InvalidInput, NotFound, IntegrityError."""
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        found = list(found)
        for fact in found:
            if fact.type is not ItemType.PROFILE or dimension_of(fact.key) is None:
                raise InvalidInput(
                    "found", "has a fact that is not a trait; create traits with memos.memcube.profiles.traits.trait"
                )
        masking = self._context.scopes.masking(scope)
        found = [masking.fact(f"found[{place}]", fact) for place, fact in enumerate(found)]
        with self._context.change(scope) as change:
            outcome = consolidation.consolidate(change, found)
            masking.record(change)
        self._context.wait_indexed()
        return outcome

    def _give(self, change: Change, scope: Scope, dimension: Dimension, value: str, subject: str) -> Item:
        zone = ZoneInfo(scope.time_zone)
        fact = trait(
            subject,
            dimension,
            value,
            Fact(ItemType.PROFILE, "", (), subject, READER, change.now, valid_from=change.now, tags=(STATIC,)),
        )
        current = views.current_static(change, fact)
        if current is not None:
            return current
        message = {"role": Role.SYSTEM, "name": scope.actor, "content": fact.memory}
        drafts = messages.read(read_messages([message], zone, change.now), (), {}, zone)
        [source] = changes.add(change, drafts, None, None, short_capacity=1).item_ids
        return views.set_static(change, fact, Span(source, 0, len(fact.memory)))

    def _profile(self, connection: sa.Connection, cube: str, subject: str, at: datetime | None) -> Profile:
        now = self._context.clock.now()
        template, moment = views.template_of(connection, cube), at or now
        by_key: dict[str | None, list[Item]] = {}
        found = views.find(connection, cube, subject=subject, at=at) if subject else []
        for state in expiry.live(found, now):
            by_key.setdefault(state.key, []).append(state)
        current = [views.current_of(states, moment) for states in by_key.values()]
        live = {state.id: state for state in current if state is not None}
        passages = views.evidence(connection, live)
        told = [views.trait_of(state, template, passages.get(state.id, ())) for state in live.values()]
        return views.profile_of(cube, subject, template, told)

    def _trait(self, connection: sa.Connection, state: Item) -> Trait:
        passages = views.evidence(connection, [state.id]).get(state.id, ())
        return views.trait_of(state, views.template_of(connection, state.cube), passages)

    def _time(self, where: str, raw: Json, scope: Scope) -> datetime:
        if raw is None:
            raise InvalidInput(where, "is required; give a time such as 2023-06-05T10:00:00+02:00")
        return read_time(where, raw, ZoneInfo(scope.time_zone), self._context.clock.now())


def _subjects(connection: sa.Connection, cube: str) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for state in sorted(views.find(connection, cube), key=lambda state: (state.created_at, state.id)):
        dimension = dimension_of(state.key)
        if state.key is not None and dimension is not None:
            found.setdefault(state.key.removesuffix(dimension), state.speaker)
    return tuple(sorted(found.values()))


def _subject(connection: sa.Connection, cube: str, subject: str | None) -> str:
    if subject is not None:
        return check_name("subject", subject)
    known = _subjects(connection, cube)
    if len(known) > 1:
        raise InvalidInput("subject", f"is required, as cube {cube!r} has {len(known)}; see `memos profile subjects`")
    return known[0] if known else ""


def _value(dimension: Dimension, value: str) -> str:
    text = value_for(dimension, check_name("value", value, 4_000))
    if text is not None:
        return text
    if dimension.allowed:
        raise InvalidInput("value", f"must be one of {', '.join(dimension.allowed)}")
    raise InvalidInput("value", "is empty, too long or not plain text; give up to 200 characters")
