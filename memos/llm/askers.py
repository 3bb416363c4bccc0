"""The askers of an installation, one for each purpose that has a model; opened when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from memos.core.ports import ChatModel
from memos.core.settings import ChatSettings, Purpose, Settings
from memos.errors import BackendUnavailable
from memos.llm.cache import ReplyCache
from memos.llm.client import Asker, Spending, free


class Askers:
    """Purposes with equal settings share one model, with its limits and its remembered answers. Thread-safe.

    A `given` model serves every purpose but vision, whatever is configured, and stays its owner's to close; so does
    the one that looks at images when it is `given_vision`. `spending` sets tokens aside for each call.
    """

    def __init__(
        self,
        settings: Settings,
        open_model: Callable[[ChatSettings], ChatModel],
        given: ChatModel | None = None,
        given_vision: ChatModel | None = None,
        spending: Spending = free,
    ) -> None:
        self._settings = settings
        self._open_model = open_model
        self._given = given
        self._given_vision = given_vision
        self._spending = spending
        self._opened: dict[tuple[ChatSettings, int | None], Asker] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, purpose: Purpose) -> Asker | None:
        """Return the asker of a purpose, None when no model is configured for it. Raises: BackendUnavailable."""
        given = self._given_for(purpose)
        settings = self._settings.model_for(purpose) if given is None else self._settings.chat_model
        return None if settings is None else self.of(settings, given)

    def of(self, settings: ChatSettings, given: ChatModel | None = None) -> Asker:
        """Return the asker of a model, opened when it is not yet. Raises: BackendUnavailable, InvalidInput."""
        key = settings, None if given is None else id(given)
        with self._lock:
            if self._closed:
                raise BackendUnavailable("This program is closing and asks its models nothing more.", permanent=True)
            if key not in self._opened:
                model = self._open_model(settings) if given is None else given
                self._opened[key] = Asker(model, ReplyCache(settings.cache_bytes), self._spending, settings.max_tokens)
            return self._opened[key]

    def has(self, purpose: Purpose) -> bool:
        """Say whether a purpose has a model, without opening it."""
        return self._given_for(purpose) is not None or self._settings.model_for(purpose) is not None

    def _given_for(self, purpose: Purpose) -> ChatModel | None:
        return self._given_vision if purpose == "vision" else self._given

    @property
    def reader(self) -> Asker | None:
        """What extracts memories, None without a model."""
        return self.get("reader")

    @property
    def chat(self) -> Asker | None:
        """What talks and summarises, None without a model."""
        return self.get("chat")

    @property
    def judge(self) -> Asker | None:
        """What decides between statements, None without a model."""
        return self.get("judge")

    @property
    def vision(self) -> Asker | None:
        """What describes images, None without a model that is said to see."""
        return self.get("vision")

    @property
    def remembered(self) -> tuple[int, int]:
        """How many questions were answered from memory, and how many not."""
        each = [asker.remembered for asker in self._each()]
        return sum(hits for hits, _ in each), sum(misses for _, misses in each)

    def forget(self) -> None:
        """Drop every remembered answer, after an erasure."""
        for asker in self._each():
            asker.forget()

    def close(self) -> None:
        """Close what was opened; safe to call twice."""
        with self._lock:
            self._closed = True
            mine = [asker for (_, given), asker in self._opened.items() if given is None]
        for asker in mine:
            asker.close()

    def _each(self) -> list[Asker]:
        with self._lock:
            return list(self._opened.values())
