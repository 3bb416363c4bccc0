"""`MemOS.models`: the configured language models."""

from __future__ import annotations

from memos.core.ports import ChatModel
from memos.errors import InvalidInput
from memos.kernel.context import Context
from memos.kernel.local_models import LocalModels
from memos.llm.client import LLMClient, LLMClients


class Models:
    def __init__(self, context: Context, askers: LLMClients, activations: LocalModels) -> None:
        self._context = context
        self._askers = askers
        self._activations = activations

    @property
    def chat(self) -> LLMClient | None:
        self._context.lifecycle.check_open()
        return self._askers.chat

    @property
    def reader(self) -> LLMClient | None:
        self._context.lifecycle.check_open()
        return self._askers.reader

    @property
    def local(self) -> ChatModel:
        self._context.lifecycle.check_open()
        return self._activations.model(self._context.settings.chat_model)

    def chat_named(self, model: str | None) -> LLMClient | None:
        """Return the model that a request names: `local:…`, or the configured one. Raises: InvalidInput (any other)."""
        configured = self._context.settings.chat_model
        if model is None or model == configured.model:
            return self.chat
        self._context.lifecycle.check_open()
        settings = configured.model_copy(update={"base_url": None, "model": model})
        if settings.local is None or not settings.local:
            raise InvalidInput("model", "must be `local:` and a folder or hub name, or the configured model")
        return self._askers.of(settings)
