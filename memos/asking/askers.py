"""The askers of an installation, one for each purpose that has a model; opened when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from memos.asking.asker import Asker
from memos.asking.reply_cache import ReplyCache
from memos.errors import BackendUnavailable
from memos.ports import ChatModel
from memos.settings import ChatSettings, Purpose, Settings


class Askers:
    """Purposes with equal settings share one model, with its limits and its remembered answers. Thread-safe.

    A `given` model serves every purpose, whatever is configured, and stays its owner's to close.
    """

    def __init__(
        self, settings: Settings, open_model: Callable[[ChatSettings], ChatModel], given: ChatModel | None = None
    ) -> None:
        self._settings = settings
        self._open_model = open_model
        self._given = given
        self._opened: dict[ChatSettings, Asker] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, purpose: Purpose) -> Asker | None:
        """Return the asker of a purpose, None when no model is configured for it. Raises: BackendUnavailable."""
        settings = self._settings.model_for(purpose) if self._given is None else self._settings.chat_model
        if settings is None:
            return None
        with self._lock:
            if self._closed:
                raise BackendUnavailable("This program is closing and asks its models nothing more.", permanent=True)
            if settings not in self._opened:
                model = self._open_model(settings) if self._given is None else self._given
                self._opened[settings] = Asker(model, ReplyCache(settings.cache_bytes))
            return self._opened[settings]

    def has(self, purpose: Purpose) -> bool:
        """Say whether a purpose has a model, without opening it."""
        return self._given is not None or self._settings.model_for(purpose) is not None

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

    def forget(self) -> None:
        """Drop every remembered answer, after an erasure."""
        for asker in self._each():
            asker.forget()

    def close(self) -> None:
        """Close what was opened; safe to call twice."""
        with self._lock:
            self._closed = True
        for asker in self._each() if self._given is None else ():
            asker.close()

    def _each(self) -> list[Asker]:
        with self._lock:
            return list(self._opened.values())
