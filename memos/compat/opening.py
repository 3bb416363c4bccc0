"""Constructor parameters of MemoryOS programs: their checks, the settings they stand for, and shared installations."""

from __future__ import annotations

import atexit
import logging
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from memos.core.ports import ChatModel
from memos.core.settings import ChatSettings, Settings
from memos.core.text.validation import check_text
from memos.core.types import Json
from memos.errors import Conflict, InvalidInput, MemosError, shown
from memos.kernel.memos import MemOS
from memos.scheduler.rules import TierSettings

log = logging.getLogger("memos.compat")

OPENAI_URL = "https://api.openai.com/v1"
_LARGEST = 1_000_000_000
_SAME_MODEL = {"all-minilm-l6-v2", "sentence-transformers/all-minilm-l6-v2", "minilm"}
_OTHER_MODELS = {
    "baai/bge-m3",
    "bge-m3",
    "qwen/qwen3-embedding-0.6b",
    "qwen3-embedding-0.6b",
    "sentence-transformers/all-mpnet-base-v2",
    "all-mpnet-base-v2",
}


def whole(where: str, value: Json, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise InvalidInput(where, f"must be a whole number from {least} to {_LARGEST:,}, not {shown(value)}")
    return value


def number(where: str, value: Json, *, least: float = 0.0, most: float = math.inf, above: bool = False) -> float:
    """Return a finite number within its limits; `above` excludes the lower one. Raises: InvalidInput."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not least <= value <= most or (above and value == least):
        limits = f"{'above' if above else 'from'} {least:g}" + (f" to {most:g}" if most < math.inf else "")
        raise InvalidInput(where, f"must be a number {limits}, not {shown(value)}")
    return float(value)


def filled(where: str, value: Json) -> str:
    text = check_text(where, value, 65_536)
    if not text.strip():
        raise InvalidInput(where, "is empty; give it a value")
    return text


@dataclass(frozen=True, slots=True)
class Shape:
    short_term_capacity: int
    mid_term_capacity: int
    long_term_knowledge_capacity: int
    retrieval_queue_capacity: int
    mid_term_heat_threshold: float
    mid_term_similarity_threshold: float

    def __post_init__(self) -> None:
        for each in fields(self)[:4]:  # the capacities
            whole(each.name, getattr(self, each.name))
        number("mid_term_heat_threshold", self.mid_term_heat_threshold, above=True)
        number("mid_term_similarity_threshold", self.mid_term_similarity_threshold, most=2)

    @property
    def installed(self) -> dict[str, object]:
        """Parameters that concern a whole installation, by name; the other two are each object's own."""
        own = ("long_term_knowledge_capacity", "retrieval_queue_capacity")
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in own}

    @property
    def heat(self) -> TierSettings:
        return TierSettings(
            idle_hours=0,  # the original's pages leave only when there are too many
            policy="memoryos",
            promote_above=self.mid_term_heat_threshold,
            short_capacity=self.short_term_capacity,
            mid_capacity=self.mid_term_capacity,
            similarity=self.mid_term_similarity_threshold,
        )


@dataclass(frozen=True, slots=True)
class Model:
    """The language model to answer; without key and URL that of the settings, if any."""

    key: str | None
    base_url: str | None
    name: str

    @property
    def settings(self) -> ChatSettings | None:
        name = filled("llm_model", self.name)
        if self.key is not None:
            filled("openai_api_key", self.key)
        # An empty URL means OpenAI's, as in the original.
        url = None if self.base_url is None else check_text("openai_base_url", self.base_url, 65_536).strip()
        if self.key is None and not url:
            return None
        _checked("openai_api_key", api_key=self.key)
        _checked("llm_model", model=name)
        return _checked(
            "openai_base_url",
            base_url=url or OPENAI_URL,
            model=name,
            api_key=None if self.key is None else SecretStr(self.key),
        )


def settings_of(folder: Path, shape: Shape, model: ChatSettings | None, embedder: str | None) -> Settings:
    settings = Settings()
    changed: dict[str, Any] = {"home": folder, "heat": shape.heat}
    if model is not None:
        changed["chat_model"] = model
    if embedder is not None:
        changed["embed"] = settings.embed.model_copy(update={"model": embedder})
    return settings.model_copy(update=changed)


def embedder_of(name: Json, kwargs: Json) -> str | None:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidInput("embedding_model_kwargs", f"must be an object, not {type(kwargs).__name__}")
    known = filled("embedding_model_name", name).strip()
    if kwargs:
        log.warning("embedding_model_kwargs has no effect: the embedder has its own settings (MEMOS_EMBED__THREADS)")
    if known == "e5":
        return "e5"
    if known.casefold() in _SAME_MODEL:
        log.info("%s is hippocube's own MiniLM, or what MEMOS_EMBED__MODEL says", known)
        return None
    if known.casefold() in _OTHER_MODELS:
        log.warning("%s is replaced by hippocube's embedder (MEMOS_EMBED__MODEL, by default MiniLM)", known)
        return None
    raise InvalidInput(
        "embedding_model_name", f"{shown(name)} is unknown; use all-MiniLM-L6-v2, or e5 (extra multilingual)"
    )


def _checked(where: str, **values: Any) -> ChatSettings:
    try:
        return ChatSettings(**values)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise InvalidInput(where, reason.removeprefix("Value error, ")) from error


@dataclass(slots=True)
class _Shared:
    memos: MemOS
    parameters: Mapping[str, object]
    users: int = 1


class Installations:
    """The open installations of a process by folder; thread-safe."""

    def __init__(self) -> None:
        self._open: dict[Path, _Shared] = {}
        self._lock = threading.Lock()

    def borrow(
        self, folder: Path, settings: Settings, parameters: Mapping[str, object], chat_model: ChatModel | None
    ) -> MemOS:
        """Return the folder's installation, for one `give_back`. Raises: Conflict (other `parameters`)."""
        wanted = {**parameters, "chat_model": chat_model}
        with self._lock:
            shared = self._open.get(folder)
            if shared is None:
                self._open[folder] = _Shared(MemOS.open(folder, settings=settings, chat_model=chat_model), wanted)
                return self._open[folder].memos
            others = sorted(name for name in wanted if wanted[name] != shared.parameters[name])
            if others:
                raise Conflict(
                    f"{folder} is open in this program with another {' and '.join(others)}: give the same, or close "
                    "the other objects first."
                )
            shared.users += 1
            return shared.memos

    def give_back(self, folder: Path) -> None:
        with self._lock:
            shared = self._open[folder]
            shared.users -= 1
            if shared.users == 0:
                del self._open[folder]
                shared.memos.close()

    def close_all(self) -> None:
        with self._lock:
            while self._open:
                _, shared = self._open.popitem()
                with suppress(MemosError):  # what was not flushed is replayed at the next open
                    shared.memos.close()


INSTALLATIONS = Installations()
atexit.register(INSTALLATIONS.close_all)
