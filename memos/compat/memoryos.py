"""`Memoryos` and `MemoryOS`: drop-in classes with the constructors and methods of two MemoryOS programs.

`user_memory` does the work; here are parameters, names and forms of results.
Source: https://github.com/BAI-LAB/MemoryOS (memoryos-pypi), Kang et al., EMNLP 2025.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memos.compat.importing import DEFAULT_ASSISTANT, check_id
from memos.compat.opening import INSTALLATIONS, Model, Shape, embedder_of, filled, log, number, settings_of, whole
from memos.compat.user_memory import MemoryLimits, UserMemory
from memos.core.closing import Closing
from memos.core.ports import ChatModel
from memos.core.types import Json
from memos.errors import BackendUnavailable
from memos.kernel.memos import MemOS

_CONTEXT_TOKENS = 8_000
_LONG_TERM_HEAT = 8
_NO_PROFILE = "None"
"""The original's answer for a user without a profile."""


class Memoryos(Closing):
    """Memory of one user, as in `memoryos.Memoryos`. Thread-safe; close it, or use it as a context manager.

    Objects on one folder share it within a process. Pass `memos` to use an open installation with its settings for
    heat, capacities and models, and `chat_model` to answer with that model whatever key is given; both stay the
    caller's to close.
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
            log.warning("files of MemoryOS in %s are not read; import them (docs/how-to/migrating/memoryos.md)", folder)

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
        """Answer a query from memory and remember the exchange.

        If the model fails, its error is raised and nothing is stored. Raises: InvalidInput, ModelError,
        BackendUnavailable (also if no model is configured).
        """
        return self._open().answer(query, relationship_with_user, style_hint, user_conversation_meta_data)

    def get_user_profile_summary(self) -> str:
        """Return profile, preferences and instructions, one a line; the text `None` if there are none."""
        return "\n".join(known.text for known in self._open().profile()) or _NO_PROFILE

    def get_assistant_knowledge_summary(self) -> list[dict[str, str]]:
        """Return the assistant's knowledge, newest last, as `knowledge` and `timestamp`, without embeddings."""
        return [
            {"knowledge": known.text, "timestamp": "" if known.at is None else known.at.isoformat(" ", "seconds")}
            for known in self._open().assistant_knowledge()
        ]

    def force_mid_term_analysis(self) -> None:
        """Extract all unread pages of the mid tier into long-term memory now. Raises: BackendUnavailable."""
        self._open().analyse()

    def get_memory_stats(self) -> dict[str, Any]:
        """Return the counts of each tier under the original's names."""
        memory = self._open()
        return {
            "user_id": self.user_id,
            "short_term_count": memory.pages(),
            "mid_term_sessions_count": memory.segments(),
            "has_user_profile": bool(memory.profile()),
            "assistant_knowledge_count": len(memory.assistant_knowledge()),
        }

    def close(self) -> None:
        """Release the folder; safe to call twice. A given `memos` stays open."""
        with self._lock:
            shared, self._shared, self._memory = self._shared, None, None
        if shared is not None:
            INSTALLATIONS.give_back(shared)

    def __repr__(self) -> str:
        return (
            f"<Memoryos user_id={self.user_id!r} assistant_id={self.assistant_id!r} "
            f"data_path={self.data_storage_path!r}>"
        )

    def _open(self) -> UserMemory:
        memory = self._memory
        if memory is None:
            raise BackendUnavailable("This Memoryos is closed; create a new one.", permanent=True)
        return memory


class MemoryOS(Closing):
    """Memory of one user in two calls, `add_interaction` and `chat`; closed and shared like `Memoryos`.

    `long_term_heat_threshold` is checked and has no effect: what is hot once becomes long-term memory.
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
            log.warning(
                "long_term_heat_threshold has no effect: mid_term_heat_threshold decides what becomes long-term"
            )
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
        """Answer a query from memory and remember the exchange; an error stores nothing.

        Raises: InvalidInput, ModelError, BackendUnavailable (also if no model is configured).
        """
        return self._memory.get_response(query)

    def close(self) -> None:
        """Release the folder; safe to call twice."""
        self._memory.close()

    def __repr__(self) -> str:
        return repr(self._memory).replace("Memoryos", "MemoryOS", 1)
