"""How likely a candidate answers the question, from 0 to 1, the same in every search. Pure."""

from __future__ import annotations

import math

from memos.core.types import Arm
from memos.search.rank import Ranked

# A logistic fit over 21,740 ranked candidates of the given LoCoMo and BEAM conversations, gold and others weighing
# alike; by folds over conversations its area under the ROC curve is 0.80. docs/log.md has bins and what 0.45 keeps.
# The cosines are MiniLM's: another embedder's spread otherwise, and the same number then means something else.
_COSINE = 2.739
_TURN_TERMS = 0.570
_WINDOW_TERMS = 0.635
_BIAS = -2.705
_NOT_AMONG_VECTORS = 0.36
"""Cosine of a candidate no vector arm recalled: just under what a usual one that is not gold has (0.39)."""


def relevance(entry: Ranked, terms: int) -> float:
    """Return how likely a candidate is gold if as many candidates were gold as not; `terms` are the question's."""
    scores = {arm: score for arm, _rank, score, _gave in entry.votes}
    cosine = max(scores.get(Arm.TURN, 0.0), scores.get(Arm.WINDOW, 0.0)) or _NOT_AMONG_VECTORS
    by_term = max(1, terms)
    logit = (
        _COSINE * cosine
        + _TURN_TERMS * scores.get(Arm.TURN_BM25, 0.0) / by_term
        + _WINDOW_TERMS * scores.get(Arm.WINDOW_BM25, 0.0) / by_term
        + _BIAS
    )
    return 1 / (1 + math.exp(-logit))
