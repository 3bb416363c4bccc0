"""The child process that trains an adapter: at low priority, and the first that the kernel ends when memory is short.

Serves requests over one socket until the parent closes it or dies. PyTorch is loaded with the first of them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.backends.child import end_with_parent, ignore_interrupts, serve
from memos.backends.local.torch_threads import let_threads_sleep
from memos.core.lora import LoraRecipe
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.backends.lora.training import LoraTraining

_NICE = 10
_ENDED_FIRST = "1000"


class _Server:
    """What the child does with a request; the first one loads the model."""

    def __init__(self) -> None:
        self._training: LoraTraining | None = None

    def handle(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return the base model's digest and the bytes needed to `open`, else an answer and how far the training is."""
        if method == "open":
            return self._open(*arguments)
        assert self._training is not None
        given, named = arguments
        answer = getattr(self._training, method)(*given, **named)
        return answer, self._training.step, self._training.steps, self._training.rebalanced

    def _open(self, name: str, recipe: LoraRecipe, remembered: Path | None) -> tuple[str, int]:
        let_threads_sleep()
        try:
            from memos.backends.local.loading import load  # noqa: PLC0415 - the extra `local`
            from memos.backends.lora.resources import check_memory  # noqa: PLC0415 - the extra `local`
            from memos.backends.lora.training import LoraTraining  # noqa: PLC0415 - the extra `local`
        except ImportError as error:
            raise InvalidInput(
                "model", f"training for {name} needs the extra `local`: pip install '.[local]' in the clone"
            ) from error
        needed = check_memory(name, recipe)
        loaded = load(name, remembered=remembered)
        self._training = LoraTraining(loaded, recipe)
        return loaded.base, needed


def main(descriptor: int) -> None:
    """Run as a child: serve the inherited socket."""
    ignore_interrupts()
    os.nice(_NICE)
    with suppress(OSError):  # not every container has it
        Path("/proc/self/oom_score_adj").write_text(_ENDED_FIRST, encoding="ascii")
    channel = Connection(descriptor)
    end_with_parent(channel)
    serve(channel, _Server().handle)
