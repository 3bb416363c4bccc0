"""What the fitted weights of the judge are used for."""

from __future__ import annotations

import numpy as np
import pytest

from memos.core.text.claims import read_claim
from memos.core.types import Fingerprint
from memos.memcube.judge import judge_for, question_features

QUESTION = "Where does Ann live?"


@pytest.mark.parametrize("embedder", ["all-MiniLM-L6-v2-int8", "another"])
@pytest.mark.parametrize("said", ["I live in Rome.", "My sister lives in Rome.", "Bob lives in Rome.", "It rains."])
def test_a_statement_about_somebody_else_loses_what_the_fitted_order_says(embedder: str, said: str) -> None:
    judge = judge_for(Fingerprint(embedder, 384, "", normalised=True))
    asked, statement = read_claim(QUESTION), read_claim(said)
    features = np.array(question_features(asked, statement, 0.5, 0.4, 0.6, 3.0), dtype=np.float32)
    expected = 0.5 * judge.by_score - judge.lowered(asked, statement)
    assert float(features @ judge.ranked) == pytest.approx(expected, rel=1e-5)
