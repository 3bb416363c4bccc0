"""Applies feedback in plain words: stores it as the newest statement, links it, supersedes what its key replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from memos.core.text.matching import plain
from memos.core.text.sentences import sentences
from memos.core.text.statements import ThirdPersonStatement, key_of, statements, third_person_statements
from memos.core.types import Draft, FeedbackReceipt, Item, Role, Status
from memos.memcube import changes
from memos.memcube.changes import Change
from memos.memcube.ledger import items


def correct(
    change: Change, draft: Draft, related: Sequence[str], conversation: str | None, short_capacity: int
) -> FeedbackReceipt:
    """Store the correction in `draft` and settle what it replaces.

    `related` are items it is about. Items of the same cube that state another value of the same attribute
    of the same speaker become superseded; where it says so of somebody else, those of `related` that say nothing but
    another value of that; otherwise nothing is, the link alone says so.
    """
    replaced: list[Item] = []
    key, value, at = draft.key, draft.value, draft.message.chat_time
    stated = statements(draft.memory)
    if stated:
        attribute, value = stated[0].attribute, stated[0].value
        rivals = items.with_key(change.connection, change.cube, attribute)
        subject = _subject(draft, rivals)
        key = key_of(subject, attribute) if subject else None
        replaced = [old for old in rivals if old.key == key and _differs(old.value, value) and _older(old, at)]
    known = items.current(change.connection, [change.cube], related)  # one may have been erased since it was found
    if not stated:
        replaced = _of_others(draft, known.values(), at)
    receipt = changes.add(change, [replace(draft, key=key, value=value)], conversation, None, short_capacity)
    new_item = receipt.item_ids[0]
    about = list(dict.fromkeys([*(item for item in related if item in known), *(old.id for old in replaced)]))
    changes.correct(change, new_item, about, replaced, at)
    return FeedbackReceipt(new_item, tuple(about), tuple(old.id for old in replaced), indexed=False)


def _of_others(draft: Draft, related: Iterable[Item], at: datetime) -> list[Item]:
    """Return what says in one sentence, and nothing else, that somebody else lives or works elsewhere."""
    corrected = third_person_statements(draft.memory)
    who = draft.message.name
    found = []
    for old in related:
        alone = old.status is Status.ACTIVE and old.role is Role.USER and len(sentences(old.memory)) == 1
        mine = who is None or plain(old.speaker) == plain(who)
        if not alone or not mine or statements(old.memory):
            continue
        told = third_person_statements(old.memory)
        if len(told) == 1 and _older(old, at) and any(_corrects(each, told[0]) for each in corrected):
            found.append(old)
    # Two people may each have a sister.
    return found if len({plain(old.speaker) for old in found}) <= 1 else []


def _corrects(new: ThirdPersonStatement, old: ThirdPersonStatement) -> bool:
    return bool(new.names & old.names) and new.attribute == old.attribute and _differs(old.value, new.value)


def _subject(draft: Draft, rivals: Sequence[Item]) -> str | None:
    """Return who 'I' is: the named speaker, else the one person who stated this attribute before."""
    if draft.message.name is not None:
        return draft.message.name
    speakers = {old.speaker for old in rivals if old.role is Role.USER}
    return speakers.pop() if len(speakers) == 1 else None


def _differs(old: str | None, new: str | None) -> bool:
    return plain(old) != plain(new)


def _older(old: Item, at: datetime) -> bool:
    return old.valid_from is None or old.valid_from <= at
