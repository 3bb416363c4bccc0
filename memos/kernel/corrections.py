"""Apply corrections in plain words: find the statement that is meant, and edit, replace, end or forget it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memos.core.text.claims import read_claim, terms_of
from memos.core.text.corrections import Aim, Correction, edited, fit, is_as_likely, topic, without_clause
from memos.core.text.matching import normalized_value
from memos.core.text.sentences import sentences
from memos.core.text.statements import ThirdPersonStatement, key_of, statements, third_person_statements
from memos.core.types import Draft, FeedbackReceipt, Item, ItemType, LinkKind, Outcome, Role, Status
from memos.memcube import changes, erasure
from memos.memcube.changes import Change
from memos.memcube.erasure import retract
from memos.memcube.ledger import items, relations
from memos.reader import messages as fast

# Chosen on own corrections with folds, not on a benchmark's: a target fits at least so well, and another that is worse
# by less leaves it in doubt.
_FITS = 0.7
_FITS_GIVEN = 0.35
_DOUBT = 0.12
_FORGETS = 0.55
_ALL_OF_IT = 0.9
_LINKED = 3
_SHORT = 300  # characters of a memory that is compared with a correction as a whole


class Corrected(NamedTuple):
    """A correction about to be stored in an open transaction."""

    change: Change
    draft: Draft
    correction: Correction
    conversation: str | None
    short_capacity: int


class _Candidate(NamedTuple):
    item: Item
    fit: float


def apply_correction(
    told: Corrected, near: Mapping[str, float], given: Sequence[str], zone: ZoneInfo
) -> FeedbackReceipt:
    """Store a correction and do what it says to the statement that it means.

    `near` are the cosines of the candidates that a search found; `given` are the ids that the caller named instead.
    """
    change = told.change
    # One of them may have been erased since it was found.
    known = items.current(change.connection, [change.cube], given or list(near))
    related = [id_ for id_ in given or list(near)[:_LINKED] if id_ in known]
    candidates = _candidates(told.correction, known, near, given)
    if told.correction.aim is Aim.FORGET:
        return _forget(told, candidates, zone)
    draft, replaced = _replaced_values(told, [known[id_] for id_ in related])
    told = told._replace(draft=draft)
    if replaced:
        ends = told.correction.aim is Aim.END
        return _supersede(told, replaced, related, Outcome.ENDED if ends else Outcome.SUPERSEDED)
    best = candidates[0] if candidates else None
    if best is None or told.correction.aim is Aim.ADD or best.fit < (_FITS_GIVEN if given else _FITS):
        return _add(told, related)
    rivals = _rivals(told.correction, best, candidates[1:])
    if rivals and not given:
        return _keep_both(told, best.item, related, rivals)
    edit = edited(best.item.memory, told.correction) if told.correction.aim is Aim.CHANGE else None
    if edit is not None:
        return _edit(told, best.item, edit, related, zone)
    if not _is_single(best.item.memory):
        return _keep_both(told, best.item, related, ())
    outcome = Outcome.ENDED if told.correction.aim is Aim.END else Outcome.SUPERSEDED
    return _supersede(told, [best.item], related, outcome)


def _candidates(
    correction: Correction, known: Mapping[str, Item], near: Mapping[str, float], given: Sequence[str]
) -> list[_Candidate]:
    found = [
        _Candidate(item, _fit(item.memory, correction, near.get(item.id, 0.0)))
        for item in known.values()
        if item.status is Status.ACTIVE and ((item.role is Role.USER and not _is_record(item)) or item.id in given)
    ]
    return sorted(found, key=lambda each: (-each.fit, each.item.id))


def _fit(memory: str, correction: Correction, cosine: float) -> float:
    """Return how well a memory fits; what is to be forgotten may be one sentence of a long message."""
    whole = fit(read_claim(memory), memory, correction, cosine)
    if correction.aim is not Aim.FORGET or len(memory) <= _SHORT:
        return whole
    said = topic(correction)
    parts = [memory[start:end] for start, end in sentences(memory)]
    best = max(parts, key=lambda part: _shared(said, part), default=memory)
    return max(whole, fit(read_claim(best), best, correction, cosine))


def _rivals(correction: Correction, best: _Candidate, others: Sequence[_Candidate]) -> tuple[str, ...]:
    """Return the ids of other statements that the correction may mean, so that a person has to decide."""
    alike = [other for other in others if is_as_likely(correction, best.item.memory, other.item.memory)]
    near = [other for other in others if best.fit - other.fit < _DOUBT]
    return tuple(dict.fromkeys(other.item.id for other in (*near, *alike)))


def _forget(told: Corrected, candidates: Sequence[_Candidate], zone: ZoneInfo) -> FeedbackReceipt:
    """Delete what is meant, with whatever says the same; the request is deleted too, as it repeats it.

    Of a message that says more, the sentences that are meant are taken out.
    """
    change = told.change
    best = candidates[0].fit if candidates else 0.0
    meant = [each.item for each in candidates if each.fit >= max(_FORGETS, best * _ALL_OF_IT)]
    kept = {item.id: rest for item in meant if (rest := _without_what_is_meant(item, told.correction))}
    others = tuple(each.item.id for each in candidates if each.item not in meant)[:_LINKED]
    request = changes.add(change, [told.draft], told.conversation, None, told.short_capacity).item_ids[0]
    for item in meant:
        if item.id in kept:
            _rewrite(change, item, kept[item.id], "asked to forget the rest of it", zone)
    forgotten = tuple(item.id for item in meant if item.id not in kept)
    erasure.delete(change, [*forgotten, request], "asked to forget it")
    outcome = Outcome.FORGOTTEN if meant else Outcome.NEEDS_REVIEW
    return FeedbackReceipt(
        request, (), (), indexed=False, outcome=outcome, edited=tuple(kept), forgotten=forgotten, runners_up=others
    )


def _without_what_is_meant(item: Item, correction: Correction) -> str | None:
    """Return what of a message is not to be forgotten, None if it is to be forgotten as a whole."""
    parts = [item.memory[start:end] for start, end in sentences(item.memory)]
    said = topic(correction)
    shared = [_shared(said, part) for part in parts]
    if item.type is not ItemType.MESSAGE or not max(shared):
        return None
    kept = [
        part if share < max(shared) * _ALL_OF_IT else without_clause(part, said)
        for part, share in zip(parts, shared, strict=True)
    ]
    return " ".join(filter(None, kept)) or None


def _shared(said: frozenset[str], text: str) -> int:
    return len(said.intersection(terms_of(text)))


def _add(told: Corrected, related: Sequence[str]) -> FeedbackReceipt:
    new = changes.add(told.change, [told.draft], told.conversation, None, told.short_capacity).item_ids[0]
    changes.correct(told.change, new, related, [], told.draft.message.chat_time)
    return FeedbackReceipt(new, tuple(related), (), indexed=False)


def _supersede(told: Corrected, old: Sequence[Item], related: Sequence[str], outcome: Outcome) -> FeedbackReceipt:
    new = changes.add(told.change, [told.draft], told.conversation, None, told.short_capacity).item_ids[0]
    about = tuple(dict.fromkeys([*related, *(item.id for item in old)]))
    changes.correct(told.change, new, about, old, told.draft.message.chat_time)
    return FeedbackReceipt(new, about, tuple(item.id for item in old), indexed=False, outcome=outcome)


def _edit(told: Corrected, old: Item, memory: str, related: Sequence[str], zone: ZoneInfo) -> FeedbackReceipt:
    """Write the statement's next version; the correction is kept as superseded, since that version says it."""
    change = told.change
    draft = replace(told.draft, status=Status.SUPERSEDED)
    new = changes.add(change, [draft], told.conversation, None, told.short_capacity).item_ids[0]
    about = tuple(dict.fromkeys([*related, old.id]))
    items.link(change.connection, [(new, LinkKind.RELATES, id_) for id_ in about], change.cube, change.now)
    _rewrite(change, old, memory, f"corrected by {new}", zone)
    return FeedbackReceipt(new, about, (), indexed=False, outcome=Outcome.EDITED, edited=(old.id,))


def _rewrite(change: Change, old: Item, memory: str, reason: str, zone: ZoneInfo) -> None:
    # What was read out of the old text must not stand for the new one.
    edits = {**fast.restated(old, memory, zone), "memory": memory}
    changes.update(change, old.id, None, edits, reason)
    retract(change, [old.id])


def _keep_both(told: Corrected, old: Item, related: Sequence[str], rivals: tuple[str, ...]) -> FeedbackReceipt:
    """Add the correction before the statement that it probably means, for a person to decide."""
    receipt = _add(told, tuple(dict.fromkeys([*related, old.id])))
    change = told.change
    relations.suppose(change.connection, change.cube, receipt.item_id, old.id, relations.IN_DOUBT, change.now)
    return replace(receipt, outcome=Outcome.NEEDS_REVIEW, runners_up=(old.id, *rivals)[:_LINKED])


def _is_record(item: Item) -> bool:
    """Return True if only a put replaces an item, unless the caller named it."""
    return item.type is ItemType.RECORD


_SEVERAL = (" and ", " und ", " y ", ", ", "; ", "，", "；")


def _is_single(memory: str) -> bool:
    """Return True if a statement has one part, so that replacing it loses nothing else."""
    return len(sentences(memory)) == 1 and not any(sign in memory for sign in _SEVERAL)


def _replaced_values(told: Corrected, related: Sequence[Item]) -> tuple[Draft, list[Item]]:
    """Return the draft with its key, and what it replaces: other values of the same attribute of the same subject.

    A statement about somebody else replaces those of `related` that state nothing but another value of it.
    """
    change, draft = told.change, told.draft
    at = draft.message.chat_time
    stated = statements(draft.memory)
    if not stated:
        return draft, _of_others(draft, related, at)
    attribute, value = stated[0].attribute, stated[0].value
    rivals = items.with_key(change.connection, change.cube, attribute)
    subject = _subject(draft, rivals)
    key = key_of(subject, attribute) if subject else None
    replaced = [old for old in rivals if old.key == key and _differs(old.value, value) and _older(old, at)]
    return replace(draft, key=key, value=value), replaced


def _of_others(draft: Draft, related: Iterable[Item], at: datetime) -> list[Item]:
    corrected = third_person_statements(draft.memory)
    who = draft.message.name
    found = []
    for old in related:
        alone = old.status is Status.ACTIVE and old.role is Role.USER and len(sentences(old.memory)) == 1
        alone = alone and not _is_record(old)
        mine = who is None or normalized_value(old.speaker) == normalized_value(who)
        if not alone or not mine or statements(old.memory):
            continue
        told = third_person_statements(old.memory)
        if len(told) == 1 and _older(old, at) and any(_corrects(each, told[0]) for each in corrected):
            found.append(old)
    # Two people may each have a sister.
    return found if len({normalized_value(old.speaker) for old in found}) <= 1 else []


def _corrects(new: ThirdPersonStatement, old: ThirdPersonStatement) -> bool:
    return bool(new.names & old.names) and new.attribute == old.attribute and _differs(old.value, new.value)


def _subject(draft: Draft, rivals: Sequence[Item]) -> str | None:
    """Return who "I" is: the named speaker, else the only person who stated this attribute before."""
    if draft.message.name is not None:
        return draft.message.name
    speakers = {old.speaker for old in rivals if old.role is Role.USER}
    return speakers.pop() if len(speakers) == 1 else None


def _differs(old: str | None, new: str | None) -> bool:
    return normalized_value(old) != normalized_value(new)


def _older(old: Item, at: datetime) -> bool:
    return old.valid_from is None or old.valid_from <= at
