"""`MemOS.retention`: retention rules of cubes, a preview of their effect, and applying them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from memos.core.clock import new_id
from memos.core.identities import Right
from memos.core.retention import RetentionAction, RetentionEffect, RetentionRule
from memos.core.text.validation import check_name
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, ItemType, Json, Status
from memos.errors import Conflict, InvalidInput, NotFound, shown
from memos.kernel.context import Context, retry_write
from memos.memcube import changes
from memos.memcube.ledger import retention
from memos.memcube.ledger.retention import MAX_AGE_DAYS, TOUCHED
from memos.reader.arguments import member_of, members_of, tags_of
from memos.scheduler.jobs.retention import apply_rules, merged_effects, preview

MAX_RULES = 100  # rules a cube may have: each is one pass over its items


class Retention:
    """Retention rules of cubes; the periodic task `retention` applies them hourly."""

    def __init__(self, context: Context, purge: Callable[[], None]) -> None:
        self._context = context
        self._purge = purge

    @retry_write
    def add(  # noqa: PLR0913 - a rule has that many parts
        self,
        *,
        action: str,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        types: Collection[str] = (),
        tags: Sequence[str] = (),
        statuses: Collection[str] = (),
        age_days: float = 0,
        yes: bool = False,
    ) -> RetentionRule:
        """Add a rule that archives, deletes or erases items older than `age_days`; an empty list matches any.

        A rule that matches every item needs `yes`. An existing equal rule is returned. Raises: InvalidInput, NotFound,
        Conflict (the cube has as many rules as it may).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        # As they stand on the items, which have them masked.
        tagged = tags_of(self._context.scopes.masking(scope).any("tags", tags))
        rule = RetentionRule(
            new_id(),
            scope.cubes[0],
            member_of("action", action, RetentionAction),
            members_of("types", types, ItemType),
            tuple(sorted(tagged)),
            members_of("statuses", statuses, Status),
            _age(age_days),
            scope.actor,
            self._context.clock.now(),
        )
        _check(rule, yes=yes)
        with self._context.change(scope) as change:
            known = retention.of_cube(change.connection, rule.cube)
            same = next((old for old in known if _content(old) == _content(rule)), None)
            if same is not None:
                return same
            if len(known) >= MAX_RULES:
                raise Conflict(
                    f"Cube {rule.cube!r} has {MAX_RULES} retention rules, which is the limit; remove one with `memos "
                    "cube retention remove`, or combine rules."
                )
            rule = replace(rule, created_at=change.now)
            retention.add(change.connection, rule)
            changes.record(change, "rule", {"rule": rule.id, "action": rule.action})
        return rule

    def list(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[RetentionRule, ...]:
        """Return a cube's rules in the order of application. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return tuple(retention.of_cube(connection, scope.cubes[0]))

    @retry_write
    def remove(self, rule: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> RetentionRule:
        """Remove a rule and return it; its past effects stay. Raises: NotFound."""
        rule = check_name("rule", rule, 64)
        self._context.lifecycle.check_open()
        if cube is None:
            with self._context.ledger.read() as connection:
                cube = retention.require(connection, rule).cube
            readable = self._context.scopes.readable(check_name("actor", actor, 128))
            if readable is not None and cube not in readable:
                raise NotFound("retention rule", rule, retention.REMEDY)  # as if there were none
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        with self._context.change(scope) as change:
            found = retention.require(change.connection, rule)
            if found.cube not in scope.cubes:
                raise NotFound("retention rule", rule, f"Cube {cube!r} has no rule with this id.")
            retention.remove(change.connection, rule)
            changes.record(change, "rule", {"rule": rule, "action": "removed"})
        return found

    def preview(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[RetentionEffect, ...]:
        """Return what `run` would do now, rule by rule. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return tuple(preview(connection, scope.cubes[0], self._context.clock.now()))

    def run(self, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> tuple[RetentionEffect, ...]:
        """Apply a cube's rules now; return the effects of rules that matched. Erasures are purged on return.

        Raises: NotFound, BackendUnavailable (changes are kept; files may still be purging).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.OWN)
        done = merged_effects(
            list(apply_rules(self._context.ledger, self._context.change, scope, self._context.clock.now()))
        )
        self._context.wait_indexed()
        if any(effect.rule.action is RetentionAction.ERASE for effect in done):
            self._purge()
        return tuple(effect for effect in done if effect.count)


def _age(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_AGE_DAYS:
        raise InvalidInput("age_days", f"must be a number of days from 0 to {MAX_AGE_DAYS:,}, not {shown(value)}")
    return float(value)


def _check(rule: RetentionRule, *, yes: bool) -> None:
    touched = TOUCHED[rule.action]
    if rule.statuses and touched.isdisjoint(rule.statuses):
        raise InvalidInput(
            "statuses", f"the action {rule.action} has no effect on memories that are {' or '.join(rule.statuses)}"
        )
    any_type = not rule.types or len(rule.types) == len(ItemType)
    any_status = not rule.statuses or touched.issubset(rule.statuses)
    if any_type and any_status and not rule.tags and yes is not True:  # a "no" would count as yes
        raise InvalidInput(
            "yes",
            f"is required, as the rule would {rule.action} every memory of cube {rule.cube!r} that is old enough; "
            "name types, tags or statuses, or confirm with `--yes`",
        )


def _content(rule: RetentionRule) -> tuple[object, ...]:
    return rule.action, rule.types, rule.tags, rule.statuses, rule.age_days
