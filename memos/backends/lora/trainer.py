"""`AdapterTrainer`: trains and evaluates an adapter in a child process; PyTorch is loaded only there.

The child has a low CPU priority, and is the first that the kernel kills when memory runs out. It serves requests over a
socket until the parent closes it or dies.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.backends.child import Child, ChildDied, end_with_parent, ignore_interrupts, serve
from memos.backends.local.torch_threads import let_threads_sleep
from memos.core.lora import LoraRecipe, TrainingExample
from memos.core.ports import ChatMessage
from memos.errors import BackendUnavailable, InvalidInput

if TYPE_CHECKING:
    from memos.backends.lora.training import LoraTraining

_NICE = 10
_OOM_SCORE_ADJ = "1000"  # killed before all other processes


class AdapterTrainer:
    """A child process with a `LoraTraining`, whose methods this class forwards; calls are queued.

    Every call raises BackendUnavailable if the child was killed. A new trainer with the same model, recipe and
    exercises can resume from the last checkpoint.
    """

    def __init__(self) -> None:
        self._child = Child("memos.backends.lora.trainer", "model to be trained")
        self._base = ""
        self._step = self._steps = 0

    def __enter__(self) -> AdapterTrainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def base(self) -> str:
        """Return the base model's digest; an adapter can only be used on a model with the same digest."""
        return self._base

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def step(self) -> int:
        return self._step

    def open(self, name: str, recipe: LoraRecipe, *, remembered: Path | None = None) -> None:
        """Load a model from a folder or by its name on the hub; the file `remembered` caches digests of weights.

        Raises: InvalidInput (the extra is missing, or the model cannot be loaded), BackendUnavailable (no memory).
        """
        self._base = self._call("open", name, recipe, remembered)

    def prepare(self, exercises: Sequence[TrainingExample]) -> None:
        self._ask("prepare", list(exercises))

    def advance(self, most: int) -> float:
        return float(self._ask("advance", most))

    def save_checkpoint(self, file: Path) -> None:
        self._ask("save_checkpoint", file)

    def resume(self, file: Path) -> None:
        self._ask("resume", file)

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        return list(self._ask("answers", [tuple(each) for each in prompts], adapter=adapter, most=most, exact=exact))

    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float:
        return float(self._ask("perplexity", list(texts), adapter=adapter))

    def load(self, file: Path) -> None:
        self._ask("load", file)

    def save(self, folder: Path) -> None:
        self._ask("save", folder)

    def kill(self) -> None:
        """Kill the child; a call in progress on another thread raises BackendUnavailable."""
        self._child.kill()

    def close(self) -> None:
        self._child.close()

    def _ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        result, self._step, self._steps = self._call(method, args, kwargs)
        return result

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._child.call(method, *arguments, long=True)
        except ChildDied as error:
            self._child.kill()
            raise BackendUnavailable(
                f"The process that trains an adapter was ended in {method}, perhaps for want of memory: repeat the "
                "training, it resumes from the last checkpoint."
            ) from error


class _Server:
    def __init__(self) -> None:
        self._training: LoraTraining | None = None

    def handle(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return the base model's digest for `open`, otherwise the method's result, the step and the steps in all."""
        if method == "open":
            return self._open(*arguments)
        assert self._training is not None
        args, kwargs = arguments
        result = getattr(self._training, method)(*args, **kwargs)
        return result, self._training.step, self._training.steps

    def _open(self, name: str, recipe: LoraRecipe, remembered: Path | None) -> str:
        let_threads_sleep()
        try:
            from memos.backends.local.loading import load  # noqa: PLC0415 - the extra `local`
            from memos.backends.lora.resources import check_memory  # noqa: PLC0415 - the extra `local`
            from memos.backends.lora.training import LoraTraining  # noqa: PLC0415 - the extra `local`
        except ImportError as error:
            raise InvalidInput(
                "model", f"training for {name} needs the extra `local`: pip install '.[local]' in the clone"
            ) from error
        check_memory(name, recipe)
        loaded = load(name, remembered=remembered)
        self._training = LoraTraining(loaded, recipe)
        return loaded.base


def main(descriptor: int) -> None:
    ignore_interrupts()
    os.nice(_NICE)
    with suppress(OSError):  # not every container has it
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ, encoding="ascii")
    channel = Connection(descriptor)
    end_with_parent(channel)
    serve(channel, _Server().handle)
