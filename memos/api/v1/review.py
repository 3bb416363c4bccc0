"""Routes of `/review` and `/retention`: what a person decides, and rules that archive, delete or erase by age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path
from pydantic import Field

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.v1.common import (
    CubeBody,
    CurrentItem,
    CurrentTarget,
    IdempotencyKey,
    ItemBody,
    ItemId,
    Limit,
    creation,
    item_of,
    target_of,
    value_router,
)
from memos.core.retention import RetentionEffect, RetentionRule
from memos.core.types import Item, PendingItem, Relation, ReviewCounts
from memos.errors import NotFound

router = value_router()

RuleId = Annotated[str, Path(description="Id of a rule")]


class ApproveBody(ItemBody):
    """The version that was reviewed."""

    expected_version: int | None = Field(None, description="Fail with 409 if the memory is at another version")


class EditBody(ApproveBody):
    """The new text of a memory."""

    text: str = Field(description="Its text")


class DecideBody(ItemBody):
    """A decision on two statements."""

    newer: str = Field(description="Id of the newer memory")
    older: str = Field(description="Id of the older memory")
    holds: bool = Field(
        description="Whether the newer one replaces the older one; if not, they have no relation of any kind"
    )


class PairBody(ItemBody):
    """Two statements."""

    newer: str = Field(description="Id of the newer memory")
    older: str = Field(description="Id of the older memory")


class MergeBody(ApproveBody):
    """The memory that says the same and stays."""

    into: str = Field(description="Id of the memory that stays")


class RuleBody(CubeBody):
    """A rule of retention; an empty list means any."""

    action: str = Field(description="`archive`, `delete` or `erase`")
    types: list[str] = Field(default=[], description="Types of memories it applies to")
    tags: list[str] = Field(default=[], description="Tags of memories it applies to")
    statuses: list[str] = Field(default=[], description="Statuses of memories it applies to")
    age_days: float = Field(0, description="Minimum age in days")
    yes: bool = Field(False, description="Confirms a rule that applies to every memory")


@router.get("/review", tags=["review"])
def pending(memos: CurrentMemos, target: CurrentTarget, limit: Limit = 100) -> Sequence[PendingItem]:
    """Return what awaits review in a cube and why, oldest first."""
    return memos.review.list(**target, limit=limit)


@router.post("/review/{item}/approve", tags=["review"])
def approve(item: ItemId, body: ApproveBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Approve a memory, so that searches find it."""
    return memos.review.approve(item, **item_of(memos, caller, body), expected_version=body.expected_version)


@router.post("/review/{item}/edit", tags=["review"])
def edit(item: ItemId, body: EditBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Approve a memory with a different text, so that searches find it."""
    return memos.review.edit(item, body.text, **item_of(memos, caller, body), expected_version=body.expected_version)


@router.post("/review/{item}/reject", tags=["review"])
def reject(item: ItemId, memos: CurrentMemos, where: CurrentItem) -> Item:
    """Delete a memory that awaits review; a rollback lets it wait again."""
    return memos.review.reject(item, **where)


@router.get("/review/relations", tags=["review"])
def relations(memos: CurrentMemos, target: CurrentTarget, limit: Limit = 100) -> Sequence[Relation]:
    """Return what corrections in doubt suppose to be replaced, oldest first, until a person decides."""
    return memos.review.relations(**target, limit=limit)


@router.post("/review/relations/decide", tags=["review"])
def decide(body: DecideBody, memos: CurrentMemos, caller: CurrentCaller) -> Sequence[Relation]:
    """Decide whether a newer statement replaces an older one; returns the relations of the newer one."""
    return memos.review.decide(body.newer, body.older, holds=body.holds, **item_of(memos, caller, body))


@router.post("/review/relations/reopen", tags=["review"])
def reopen(body: PairBody, memos: CurrentMemos, caller: CurrentCaller) -> Sequence[Relation]:
    """Take back a person's decision on two statements, so that it awaits another one."""
    return memos.review.reopen(body.newer, body.older, **item_of(memos, caller, body))


@router.get("/review/counts", tags=["review"], name="review_counts")
def review_counts(memos: CurrentMemos, target: CurrentTarget) -> ReviewCounts:
    """Return how much awaits review in a cube, counted up to a limit."""
    return memos.review.counts(**target)


@router.post("/review/{item}/merge", tags=["review"])
def merge(item: ItemId, body: MergeBody, memos: CurrentMemos, caller: CurrentCaller) -> Item:
    """Replace a memory by another that says the same; returns the one that stays. A rollback of each undoes it."""
    where = item_of(memos, caller, body)
    return memos.review.merge(item, body.into, **where, expected_version=body.expected_version)


@router.get("/retention/rules", tags=["retention"])
def list_rules(memos: CurrentMemos, target: CurrentTarget) -> Sequence[RetentionRule]:
    """Return a cube's rules in the order in which they are applied."""
    return memos.retention.list(**target)


@router.post("/retention/rules", status_code=201, tags=["retention"])
def add_rule(
    body: RuleBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> RetentionRule:
    """Archive, delete or erase memories once they reach a certain age."""
    target = target_of(memos, caller, body, new=True)

    def again(made: tuple[str, ...]) -> RetentionRule:
        for rule in memos.retention.list(**target):
            if rule.id == made[0]:
                return rule
        raise NotFound("retention rule", made[0], "It was removed.")

    return memos.idempotency.once(
        creation(idempotency_key, "retention.add", target, body),
        lambda: memos.retention.add(**target, **body.given()),
        ids=lambda rule: [rule.id],
        again=again,
    )


@router.delete("/retention/rules/{rule}", tags=["retention"])
def remove_rule(rule: RuleId, memos: CurrentMemos, where: CurrentItem) -> RetentionRule:
    """Remove a rule; what it did stays done."""
    return memos.retention.remove(rule, **where)


@router.get("/retention/preview", tags=["retention"])
def preview(memos: CurrentMemos, target: CurrentTarget) -> Sequence[RetentionEffect]:
    """Return what each rule of a cube would do now."""
    return memos.retention.preview(**target)


@router.post("/retention/run", tags=["retention"])
def run(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> Sequence[RetentionEffect]:
    """Apply a cube's rules now; returns what they did."""
    return memos.retention.run(**target_of(memos, caller, body))
