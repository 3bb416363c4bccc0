"""How likely a candidate answers the question, from 0 to 1, the same in every search. Pure."""

from __future__ import annotations

import math

from memos.model import Arm
from memos.search.rank import Ranked


def relevance(entry: Ranked) -> float:
    """Return the calibrated relevance of one ranked candidate."""
    scores = {arm: score for arm, _rank, score, _gave in entry.votes}
    cosine = max(scores.get(Arm.TURN, 0.0), scores.get(Arm.WINDOW, 0.0))
    return 1 / (1 + math.exp(-(8 * cosine - 2)))
