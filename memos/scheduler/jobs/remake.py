"""Makes a segment again from its pages: after one of them was erased or changed, or when the embedder is another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memos.core.types import Item
from memos.memcube import changes
from memos.memcube.ledger import segments as tiers
from memos.memcube.ledger.segments import Page
from memos.scheduler.jobs.segments import ACTOR, TurnsOf, keywords_of, live, page_vectors, said_by, spans
from memos.scheduler.task import Run


@dataclass(frozen=True, slots=True)
class RemakeJob:
    """Gives a segment the vector, keywords and sentences that its pages have now."""

    turns_of: TurnsOf

    def run(self, run: Run) -> None:
        """Make the segment that the task names again; one that is gone needs nothing."""
        cube, segment_id = run.task.cube, str(run.task.payload["segment"])
        with run.ledger.read() as connection:
            pages = _pages(tiers.members(connection, segment_id))
        vectors = page_vectors(self.turns_of, [live(page) for page in pages])
        run.go_on(0.5)
        with run.finishing() as connection:
            change = changes.begin(connection, cube, ACTOR, run.clock)
            segment = tiers.get_segments(connection, [segment_id]).get(segment_id)
            if segment is None:
                return
            if said_by(_pages(tiers.members(connection, segment_id))) != said_by(pages):
                tiers.remake(connection, cube, [segment_id], change.now)
                return
            words = Counter(word for page in pages for word in sorted(keywords_of(page)))
            segment.keywords = dict(words.most_common(tiers.KEPT_KEYWORDS))
            segment.vector = vectors.sum(axis=0)
            segment.told, segment.spans = None, []
            segment.spans = spans(connection, segment, pages)
            segment.updated_at = change.now
            tiers.save(connection, [segment], [segment_id])


def _pages(messages: Sequence[Item]) -> list[Page]:
    """Return messages as the pages they make."""
    by_page: dict[tuple[str, int], list[Item]] = {}
    for message in messages:
        place = (message.conversation or message.id, message.page or 0)
        by_page.setdefault(place, []).append(message)
    return [Page(number, tuple(members)) for (_, number), members in by_page.items()]
