"""`MemOS.health`: the checks of an open installation, its settings in effect, and its slowest calls."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from memos.core.effective_settings import EffectiveSetting, effective_settings
from memos.core.identities import Right
from memos.core.settings import JUDGE, ChatSettings, Settings
from memos.core.telemetry import SlowCall, SlowCalls
from memos.core.types import LOCAL_OWNER
from memos.errors import BackendUnavailable, NotFound, PermissionDenied
from memos.kernel.context import Context
from memos.kernel.doctor import (
    EXTRAS,
    PURPOSES,
    Finding,
    Found,
    State,
    ask_embedder,
    ask_reranker,
    examine,
    is_installed,
)
from memos.kernel.model_trial import ModelTrial, try_model
from memos.kernel.opening import OpenedInstallation
from memos.llm.usage import UsageMeter


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The language model configured for a purpose."""

    purpose: Annotated[str, "`chat`, `reader`, `vision`, or `training` of adapters"]
    name: Annotated[str | None, "Name of the model, of a folder its last part; null where there is none"]
    place: Annotated[str | None, "`process` (of the server), `endpoint` or `program` (that opened the installation)"]
    usable: Annotated[bool, "Whether it is configured and its packages are installed"]
    told: Annotated[str, "What to do; empty if it is usable"]


_MISSING = {
    "chat": "No model is configured: set MEMOS_CHAT_MODEL__BASE_URL and __MODEL (docs/how-to/models.md).",
    "reader": "No model is configured, so facts are read by patterns (docs/how-to/models.md).",
    "vision": "No model describes images: set MEMOS_VISION_MODEL__BASE_URL (docs/how-to/models.md).",
    "training": "No model here can be trained: set MEMOS_CHAT_MODEL__MODEL=local:FOLDER (docs/concepts/parametric.md).",
}


_NO_EXTRA = "The extra `local` is not installed: run pip install '.[local]' in the clone (docs/how-to/models.md)."


def _model_status(purpose: str, model: ChatSettings | None, *, given: bool) -> ModelStatus:
    if model is None and given:
        return ModelStatus(purpose, "a model of the program", "program", usable=True, told="")
    if model is None:
        return ModelStatus(purpose, None, None, usable=False, told=_MISSING[purpose])
    if model.local is None:
        return ModelStatus(purpose, model.model, "endpoint", usable=True, told="")
    there = all(map(is_installed, EXTRAS["local"]))
    return ModelStatus(purpose, Path(model.local).name, "process", there, "" if there else _NO_EXTRA)


class Health:
    """`MemOS.health`: the doctor, settings, models and slow calls of an open installation."""

    def __init__(self, context: Context, installation: OpenedInstallation, slow: SlowCalls) -> None:
        self._context = context
        self._installation = installation
        self._slow = slow

    def doctor(self, *, actor: str = LOCAL_OWNER) -> list[Finding]:
        """Check what the installation needs, change nothing, and say what to do. For admins.

        It asks the configured models and servers, which may take some seconds. Raises: PermissionDenied.
        """
        self._context.scopes.check_admin(actor)
        return examine(self._settings(), server=_this_process, embedder=self._embedder, reranker=self._reranker)

    def settings(self, *, actor: str = LOCAL_OWNER) -> tuple[EffectiveSetting, ...]:
        """Return the settings in effect with where each comes from; secrets are masked. For admins.

        Raises: PermissionDenied.
        """
        self._context.scopes.check_admin(actor)
        return effective_settings(self._settings())

    def models(self, *, actor: str = LOCAL_OWNER) -> tuple[ModelStatus, ...]:
        """Return which language models are configured, and what to do where one is missing."""
        self._context.scopes.cubes_of(None, actor, Right.READ)
        settings, has = self._context.settings, self._installation.askers.has
        found = [_model_status(purpose, settings.model_for(purpose), given=has(purpose)) for purpose in PURPOSES]
        return (*found, _model_status("training", settings.learning_model, given=False))

    def try_model(self, *, actor: str = LOCAL_OWNER) -> ModelTrial:
        """Examine the reader's model task by task, and return what it is trusted with. For admins.

        It asks about 60 short questions, which takes a small model on a processor a minute or two. Raises:
        PermissionDenied, BackendUnavailable (also without a model), BackendTimeout, ModelError.
        """
        self._context.scopes.check_admin(actor)
        asker = self._installation.askers.reader
        if asker is None:
            raise BackendUnavailable(_MISSING["chat"], permanent=True)
        return try_model(asker, UsageMeter("examination"))

    def slow_calls(self, *, actor: str = LOCAL_OWNER) -> tuple[SlowCall, ...]:
        """Return the slowest calls of the last 24 hours in this process, the slowest first.

        Only calls about cubes that the actor may read. What was asked is for owners of the cubes: a cube that is shared
        with many must not show them each other's questions.
        """
        readable = self._context.scopes.cubes_of(None, actor, Right.READ)
        found = self._slow.slowest()
        told = [call for call in found if readable is None or set(call.cubes) <= set(readable)]
        return tuple(call if self._owns(actor, call.cubes) else replace(call, question=None) for call in told)

    def _owns(self, actor: str, cubes: Sequence[str]) -> bool:
        try:
            self._context.access.check(actor, cubes, Right.OWN)
        except (NotFound, PermissionDenied):
            return False
        return True

    def _settings(self) -> Settings:
        """Return the settings with the folder that is open, which may have been an argument."""
        settings, home = self._context.settings, self._installation.home
        return settings if settings.home == home else settings.model_copy(update={"home": home})

    def _embedder(self, settings: Settings) -> Found:
        del settings
        yield ask_embedder(self._installation.embedder, time.perf_counter())

    def _reranker(self, settings: Settings) -> Found:
        reranker = self._installation.reranker
        if reranker is None:
            yield State.MISSING, "none (docs/how-to/reranking.md)"
        elif settings.rerank.base_url is None and settings.rerank.model == JUDGE:
            yield State.GOOD, "the reader model, see above"
        else:
            yield ask_reranker(reranker)


def _this_process(settings: Settings) -> Found:
    yield State.GOOD, f"process {os.getpid()} has {settings.home} open and answers"
