"""`Memoryos` and `MemoryOS`: the constructors and methods of two MemoryOS programs, on this project's scheduler.

What they do with memory is in `memory`; here are only their parameters, names and forms of results.
Source: https://github.com/BAI-LAB/MemoryOS (memoryos-pypi), Kang et al., EMNLP 2025.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from memos.compat.importing import DEFAULT_ASSISTANT, check_id
from memos.compat.opening import INSTALLATIONS, Model, Shape, embedder_of, filled, log, number, settings_of, whole
from memos.compat.user_memory import AnswerStyle, MemoryLimits, UserMemory
from memos.core.ports import ChatModel
from memos.core.types import Json
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS

_CONTEXT_TOKENS = 8_000
_LONG_TERM_HEAT = 8
_NO_PROFILE = "None"
"""What the original returns for a user without a profile."""


class Memoryos:
    """One user's memory, as in `memoryos.Memoryos`. Thread-safe; close it, or use it as a context manager.

    Objects on one folder share it within a process. With `memos` that installation is used, with its settings for
    heat, capacities and models; with `chat_model` that model answers, whatever key is given. Both stay the caller's.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the original's parameters
        self,
        user_id: str,
        openai_api_key: str | None,
        data_storage_path: str | Path,
        openai_base_url: str | None = None,
        assistant_id: str = DEFAULT_ASSISTANT,
        short_term_capacity: int = 10,
        mid_term_capacity: int = 2000,
        long_term_knowledge_capacity: int = 100,
        retrieval_queue_capacity: int = 7,
        mid_term_heat_threshold: float = 5.0,
        mid_term_similarity_threshold: float = 0.6,
        llm_model: str = "gpt-4o-mini",
        embedding_model_name: str = "all-MiniLM-L6-v2",
        embedding_model_kwargs: Mapping[str, Any] | None = None,
        *,
        memos: MemOS | None = None,
        chat_model: ChatModel | None = None,
        max_context_tokens: int = _CONTEXT_TOKENS,
    ) -> None:
        self.user_id, self.assistant_id = check_id("user_id", user_id), check_id("assistant_id", assistant_id)
        shape = Shape(
            short_term_capacity,
            mid_term_capacity,
            long_term_knowledge_capacity,
            retrieval_queue_capacity,
            mid_term_heat_threshold,
            mid_term_similarity_threshold,
        )
        limits = MemoryLimits(
            short_term_capacity,
            retrieval_queue_capacity,
            long_term_knowledge_capacity,
            whole("max_context_tokens", max_context_tokens, 256),
        )
        model = Model(openai_api_key, openai_base_url, llm_model).settings
        embedder = embedder_of(embedding_model_name, embedding_model_kwargs)
        given = str(data_storage_path) if isinstance(data_storage_path, Path) else data_storage_path
        folder = Path(filled("data_storage_path", given)).expanduser().resolve()
        self.data_storage_path, self.llm_model = str(folder), llm_model
        self._shared: Path | None = None
        self._lock = threading.Lock()
        if memos is None:
            installed = {**shape.installed, "language model": model, "embedding_model_name": embedder}
            memos = INSTALLATIONS.borrow(folder, settings_of(folder, shape, model, embedder), installed, chat_model)
            self._shared = folder
        try:
            self._memory: UserMemory | None = UserMemory(memos, user_id, assistant_id, limits)
        except BaseException:
            self.close()
            raise
        if self._memory.new and (folder / "users").is_dir():
            log.warning("files of MemoryOS in %s are not read: import them (docs/memoryos.md)", folder)

    def add_memory(
        self,
        user_input: str,
        agent_response: str,
        timestamp: str | None = None,
        meta_data: Mapping[str, Json] | None = None,
    ) -> None:
        """Store one exchange; it is searchable when this returns. Raises: InvalidInput, BackendUnavailable."""
        self._open().add(user_input, agent_response, timestamp, meta_data)

    def get_response(
        self,
        query: str,
        relationship_with_user: str = "friend",
        style_hint: str = "",
        user_conversation_meta_data: Mapping[str, Json] | None = None,
    ) -> str:
        """Return the model's answer to a query with what is remembered, and remember the exchange.

        When the model fails, its error is raised and nothing is stored. Raises: InvalidInput, ModelError,
        BackendUnavailable (also: no model configured).
        """
        return self._open().answer(query, AnswerStyle(relationship_with_user, style_hint, user_conversation_meta_data))

    def get_user_profile_summary(self) -> str:
        """Return profile, preferences and instructions, a line each; the text `None` when there are none."""
        return "\n".join(known.text for known in self._open().profile()) or _NO_PROFILE

    def get_assistant_knowledge_summary(self) -> list[dict[str, str]]:
        """Return what the assistant knows, the newest last: `knowledge` and `timestamp`, no embeddings."""
        return [
            {"knowledge": known.text, "timestamp": "" if known.at is None else known.at.isoformat(" ", "seconds")}
            for known in self._open().assistant_knowledge()
        ]

    def force_mid_term_analysis(self) -> None:
        """Read all unread pages of the mid tier into long-term memory now. Raises: BackendUnavailable."""
        self._open().analyse()

    def get_memory_stats(self) -> dict[str, Any]:
        """Return counts of each tier, by the original's names."""
        memory = self._open()
        return {
            "user_id": self.user_id,
            "short_term_count": memory.pages(),
            "mid_term_sessions_count": memory.segments(),
            "has_user_profile": bool(memory.profile()),
            "assistant_knowledge_count": len(memory.assistant_knowledge()),
        }

    def close(self) -> None:
        """Give the folder back; safe to call twice. A `memos` that was given stays open."""
        with self._lock:
            shared, self._shared, self._memory = self._shared, None, None
        if shared is not None:
            INSTALLATIONS.give_back(shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Memoryos user_id={self.user_id!r} assistant_id={self.assistant_id!r} "
            f"data_path={self.data_storage_path!r}>"
        )

    def _open(self) -> UserMemory:
        memory = self._memory
        if memory is None:
            raise BackendUnavailable("This Memoryos is closed; make another one.", permanent=True)
        return memory


class MemoryOS:
    """One user's memory in two calls, `add_interaction` and `chat`; closed and shared as `Memoryos` is.

    `long_term_heat_threshold` is checked and changes nothing: what is hot once is read into long-term memory.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the original's parameters
        self,
        user_id: str,
        assistant_id: str,
        openai_api_key: str | None,
        storage_path: str | Path,
        llm_model: str,
        short_term_capacity: int = 10,
        mid_term_heat_threshold: float = 5,
        long_term_heat_threshold: float = 8,
        max_context_tokens: int = 2000,
        *,
        memos: MemOS | None = None,
        chat_model: ChatModel | None = None,
    ) -> None:
        given = str(storage_path) if isinstance(storage_path, Path) else storage_path
        if number("long_term_heat_threshold", long_term_heat_threshold) != _LONG_TERM_HEAT:
            log.warning("long_term_heat_threshold changes nothing: mid_term_heat_threshold says what becomes long-term")
        self._memory = Memoryos(
            user_id,
            openai_api_key,
            filled("storage_path", given),
            assistant_id=assistant_id,
            short_term_capacity=short_term_capacity,
            mid_term_heat_threshold=mid_term_heat_threshold,
            llm_model=llm_model,
            memos=memos,
            chat_model=chat_model,
            max_context_tokens=max_context_tokens,
        )

    def add_interaction(
        self,
        user_input: str,
        agent_response: str,
        timestamp: str | None = None,
        meta_data: Mapping[str, Json] | None = None,
    ) -> None:
        """Store one exchange; it is searchable when this returns. Raises: InvalidInput, BackendUnavailable."""
        self._memory.add_memory(user_input, agent_response, timestamp, meta_data)

    def chat(self, query: str) -> str:
        """Return the model's answer with what is remembered, and remember the exchange; an error stores nothing.

        Raises: InvalidInput, ModelError, BackendUnavailable (also: no model configured).
        """
        return self._memory.get_response(query)

    def close(self) -> None:
        """Give the folder back; safe to call twice."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._memory).replace("Memoryos", "MemoryOS", 1)
