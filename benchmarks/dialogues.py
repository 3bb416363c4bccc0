"""Seeded synthetic dialogues: English words as often as in English, sentences and turns as long as in chats."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Where the words of BERT's vocabulary begin, the most frequent ones first: "the", "of", "and".
_FIRST_WORD = 1996
_FIRST_DAY = datetime(2023, 1, 1, 9, tzinfo=UTC)
_MAX_SENTENCES = 4
_MAX_WORDS = 18
_NAME_SHARE = 0.3
_QUESTIONS = (
    "What did {} say about {} and {}?", "When was the {} with the {} {}?", "Which {} does {} like for the {}?",
    "Do you remember where the {} {} and the {} were?", "Why did {} change the {} last {}?",
)  # fmt: skip

_REQUESTS = (
    "Can you recommend a {} for {} and the {}?", "Suggest some {} that go with the {} and {}.",
    "Which {} would you pick for the {} {}?", "Help me plan the {} with {} and the {}.",
    "What {} should I get for the {} and {}?",
)  # fmt: skip


class Dialogues:
    """An endless dialogue of two speakers, the same for the same seed.

    Word frequencies follow f(rank) = 1 / (rank + 2.7). Source: Mandelbrot, "An informational theory of the
    statistical structure of language", 1953. A turn has 1 to 4 sentences, a sentence about 9 words.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._words = _vocabulary()
        weights = 1 / (np.arange(len(self._words)) + 2.7)
        self._cumulated = np.cumsum(weights / weights.sum())
        self._names = [word.title() for word in self._random.choice(self._words[2_000:9_000], 300, replace=False)]
        self._asked: set[str] = set()
        self._said = 0

    def messages(self, count: int) -> list[dict[str, Any]]:
        """Return the next messages, speakers in turn, a minute apart."""
        made = []
        for text in (self._turn() for _ in range(count)):
            at = _FIRST_DAY + timedelta(minutes=self._said)
            speaker = {"role": "assistant"} if self._said % 2 else {"role": "user", "name": self._names[0]}
            made.append({**speaker, "content": text, "chat_time": at.isoformat()})
            self._said += 1
        return made

    def question(self, *, request: bool = False) -> str:
        """Return a question never asked before; a request asks for something to be done, or for advice."""
        forms = _REQUESTS if request else _QUESTIONS
        while True:
            form = forms[self._random.integers(len(forms))]
            asked = form.format(*self._drawn(form.count("{}")))
            if asked not in self._asked:
                self._asked.add(asked)
                return asked

    def _turn(self) -> str:
        return " ".join(self._sentences(int(self._random.integers(1, _MAX_SENTENCES + 1))))

    def _sentences(self, count: int) -> Iterator[str]:
        for length in self._random.lognormal(2.1, 0.4, count).astype(int).clip(3, _MAX_WORDS):
            words = self._drawn(length)
            if self._random.random() < _NAME_SHARE:
                words[self._random.integers(1, length)] = self._names[self._random.integers(len(self._names))]
            yield f"{words[0].capitalize()} {' '.join(words[1:])}."

    def _drawn(self, count: int) -> list[str]:
        places: NDArray[np.int64] = np.searchsorted(self._cumulated, self._random.random(count))
        return [self._words[min(place, len(self._words) - 1)] for place in places.tolist()]


def _vocabulary() -> list[str]:
    text = (resources.files("memos.backends.encoders") / "data" / "minilm_vocab.txt").read_text(encoding="utf-8")
    words = text.split("\n")[_FIRST_WORD:]
    return [word for word in words if word.isascii() and word.isalpha() and len(word) > 1]
