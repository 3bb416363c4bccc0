"""What a reranker is shown of a search's first candidates, and what its scores do to their order. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memos.core.clock import from_micros
from memos.core.text import rendering as render
from memos.errors import ModelError
from memos.memcube.ledger.items import Brief
from memos.search.fusion import Vote
from memos.search.rank import Ranked

ARM = "rerank"
"""The name of its vote, of its stage, and of what is missing when it gave none."""

_CONTEXT_CHARS = 200
"""Most characters of each message before: what is cut off at the end must never be the memory itself."""


def shown(brief: Brief, before: Sequence[Brief]) -> str:
    """Return a candidate as its reranker reads it: what was said before it in its session, its day, who says what."""
    at = brief.said_at if brief.said_at is not None else brief.valid_from
    said = render.dated(None if at is None else from_micros(at), render.said(brief.speaker, brief.memory))
    return render.window([*(_end_of(render.said(other.speaker, other.memory)) for other in before), said])


def checked(scores: Sequence[float], count: int, name: str) -> list[float]:
    """Return a reranker's scores as numbers. Raises: ModelError (not one for each text, or one that is no number)."""
    try:
        numbers = [float(score) for score in scores]
    except (TypeError, ValueError, OverflowError) as error:  # anybody may have written it
        raise ModelError(f"The reranker {name} gave what are no scores ({type(error).__name__}).") from error
    if len(numbers) != count:
        raise ModelError(f"The reranker {name} gave {len(numbers)} scores for {count} texts: use another model.")
    if not all(map(math.isfinite, numbers)):
        raise ModelError(f"The reranker {name} gave a score that is no finite number: use another model.")
    return numbers


def with_scores(voted: Sequence[Ranked], scores: Mapping[str, float], weight: float) -> list[Ranked]:
    """Return candidates with the vote of a reranker that scored some of them, by item id; the best first.

    Scores are scaled over what was scored: the best gets `weight` times the best score without it, the last nothing.
    """
    if not scores:
        return list(voted)
    best = max((entry.score for entry in voted), default=0.0)
    high, low = max(scores.values()), min(scores.values())
    # Half of each: of two finite numbers the difference may be none.
    width = high / 2 - low / 2
    places: dict[float, int] = {}
    for place, score in enumerate(sorted(scores.values(), reverse=True), start=1):
        places.setdefault(score, place)
    ranked = []
    for entry in voted:
        scored = scores.get(entry.item.id)
        if scored is None:
            ranked.append(entry)
            continue
        gave = weight * best * ((scored / 2 - low / 2) / width if width else 1.0)
        vote: Vote = (ARM, places[scored], scored, gave)
        ranked.append(entry._replace(score=entry.score + gave, votes=(*entry.votes, vote)))
    return sorted(ranked, key=lambda entry: (-entry.score, entry.item.id))


def _end_of(text: str) -> str:
    return text if len(text) <= _CONTEXT_CHARS else "…" + text[-_CONTEXT_CHARS:]
