"""Recalls what a prompt is given: working memory, what was said last, and what a search finds. Asks no model."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from memos.core.text.validation import check_name
from memos.core.types import Item, Role
from memos.errors import InvalidInput
from memos.kernel.chat.prompts import Entry, known_ids, section_of
from memos.kernel.chat.results import Question, Recalled, Reference
from memos.kernel.context import Context
from memos.kernel.search import SearchService
from memos.kernel.tiers import Tiers
from memos.memcube import prompt_prefix as prefix_text
from memos.memcube.ledger import items
from memos.memcube.ledger import tier_moves as paging
from memos.memcube.prompt_prefix import PrefixText
from memos.reader.arguments import within

_RECENT_PAGES = 6
_STANDING_SHARE = 2
_SAID = (Role.USER, Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class Recalling:
    """Recalls what the prompt of a chat is given."""

    context: Context
    search: SearchService
    tiers: Tiers

    def __call__(self, question: Question, *, marks: bool) -> Recalled:
        """Return the memory section for a question. Raises: InvalidInput, NotFound, PermissionDenied."""
        began = time.perf_counter()
        budget = self.context.settings.recall.tokens if question.token_budget is None else question.token_budget
        budget = within("token_budget", budget, 1, 1_000_000)
        scope = self.context.scopes.check(question.cubes, question.actor)
        prefix = self._prefix(question, scope.cubes[0], budget, marks=marks)
        there = set() if prefix is None else {item.id for _, item in prefix.shown}
        standing = [entry for entry in self._standing(question, scope.cubes[0], budget) if _id(entry) not in there]
        recent = self._recent(question, scope.cubes[0])
        known, said = {*known_ids([*standing, *recent]), *there}, set(question.known)
        hits = self._found(question)
        found = [entry for entry in hits if entry.item is None or entry.item.id not in known]
        found = [entry for entry in found if entry.text not in said]
        recalled = section_of(standing, recent, found, budget, marks=marks, marked=0 if prefix is None else prefix.last)
        if prefix is not None:
            first = [_reference(number, item) for number, item in prefix.shown]
            tokens = prefix.tokens + recalled.tokens
            recalled = replace(recalled, prefix=prefix, shown=(*first, *recalled.shown), tokens=tokens)
        ids = tuple(entry.item.id for entry in hits if entry.item is not None)
        took_ms = round((time.perf_counter() - began) * 1000, 2)
        return replace(recalled, found=ids, timings_ms={"recall": took_ms})

    def _prefix(self, question: Question, cube: str, budget: int, *, marks: bool) -> PrefixText | None:
        """Return what every prompt of the cube begins with, unless it is more than this one may have."""
        if not (question.working and self.context.settings.prefix_room):
            return None
        with self.context.ledger.read() as connection:
            part = prefix_text.read(
                connection, cube, self.context.clock.now(), self.context.settings.prefix_room, marks=marks
            )
        small = question.token_budget is not None and part is not None and part.tokens > budget
        return None if small else part

    def _standing(self, question: Question, cube: str, budget: int) -> list[Entry]:
        if not question.working:
            return []
        most = max(1, budget // _STANDING_SHARE)
        working = self.tiers.working_memory(question.conversation, cube=cube, actor=question.actor, max_tokens=most)
        entries = [Entry.of(item) for item in working.items]
        if working.topic:
            entries.append(Entry.topic(working.topic, untrusted=working.topic_untrusted))
        return entries

    def _recent(self, question: Question, cube: str) -> list[Entry]:
        """Return the messages of the newest pages of the conversation, oldest first."""
        if question.conversation is None or not question.recent:
            return []
        scope = self.context.scopes.check([cube], question.actor)
        name = self.context.scopes.masking(scope).name(
            "conversation", check_name("conversation", question.conversation)
        )
        with self.context.ledger.read() as connection:
            pages = paging.newest(connection, cube, name, _RECENT_PAGES)
            said = [item.id for page in pages for item in page.messages if item.role in _SAID]
            states = items.with_sources(connection, [cube], said)
        return [Entry.of(states[id_]) for id_ in said if id_ in states]

    def _found(self, question: Question) -> list[Entry]:
        asked = question.query[: self.context.settings.limits.query_chars]
        if not asked.strip():  # a picture alone
            return []
        least = self.context.settings.recall.relevance if question.relevance is None else question.relevance
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
            raise InvalidInput("relevance", "must be a number from 0 to 1")
        found = self.search(
            asked,
            cubes=question.cubes,
            actor=question.actor,
            top_k=self.context.settings.recall.top_k if question.top_k is None else question.top_k,
            filter=question.filter,
            reference_time=question.reference_time,
        )
        return [Entry.found(hit) for hit in found.hits if hit.relevance >= least]


def _id(entry: Entry) -> str | None:
    return None if entry.item is None else entry.item.id


def _reference(number: int, item: Item) -> Reference:
    return Reference(f"m{number}", item.id, item.cube, item.memory, item.speaker, prefix_text.date_of(item))
