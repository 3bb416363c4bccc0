"""LoRA adapters on a loaded model, of which each step is made with one or with none: what knows peft's serving."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from safetensors import SafetensorError

from memos import adapter_files
from memos.errors import IntegrityError
from memos.recipes import LentAdapter

_MOST = 16
"""Adapters in memory, some megabytes each; who comes again after more loads its own anew, some 0.1 s."""


class LocalAdapters:
    """The adapters on one model. Not thread-safe: it is asked in the model's turns alone.

    Without any, a model is what it was to the bit, since its own layers are called then.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._adapted: Any = None
        self._there: OrderedDict[str, None] = OrderedDict()
        self._on: str | None = None

    def use(self, adapter: LentAdapter | None) -> None:
        """Make the next steps with an adapter, or with none. Raises: IntegrityError (its files, another model's)."""
        wanted = None if adapter is None else adapter.id
        if wanted == self._on:
            return
        if adapter is None:
            self._off()
            return
        if adapter.id not in self._there:
            self._load(adapter)
        self._there.move_to_end(adapter.id)
        self._adapted.base_model.enable_adapter_layers()
        self._adapted.set_adapter(adapter.id, inference_mode=True)
        self._on = adapter.id

    def keep_only(self, is_wanted: Callable[[str], bool]) -> int:
        """Remove from memory all that is not wanted; return how many."""
        gone = [id_ for id_ in self._there if not is_wanted(id_)]
        for id_ in gone:
            self._remove(id_)
        return len(gone)

    def detach(self) -> None:
        """Leave the model as it was before the first adapter."""
        if self._adapted is not None:
            self._off()
            self._adapted.unload()
            self._adapted, self._there = None, OrderedDict()

    def _load(self, adapter: LentAdapter) -> None:
        adapter_files.check(adapter.folder, adapter.digest)
        from peft import PeftModel  # noqa: PLC0415 - takes a second, and most models have no adapter

        try:
            with warnings.catch_warnings():  # peft says what it leaves to us
                warnings.simplefilter("ignore")
                if self._adapted is None:
                    self._adapted = PeftModel.from_pretrained(self._model, adapter.folder, adapter_name=adapter.id)
                else:
                    self._adapted.load_adapter(adapter.folder, adapter.id)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            self._forget_half(adapter.id)
            raise IntegrityError(
                f"The adapter in {adapter.folder} cannot be put on this model ({type(error).__name__})."
            ) from error
        self._adapted.eval()
        self._there[adapter.id] = None
        while len(self._there) > _MOST:
            self._remove(next(iter(self._there)))

    def _forget_half(self, id_: str) -> None:
        """Take off what was put on before it was seen that it does not fit."""
        self._off()
        if self._adapted is not None and id_ in self._adapted.peft_config:
            self._adapted.delete_adapter(id_)

    def _remove(self, id_: str) -> None:
        if self._on == id_:
            self._off()
        del self._there[id_]
        with warnings.catch_warnings():  # peft says which one it thinks of instead; it is put on before it is used
            warnings.simplefilter("ignore")
            self._adapted.delete_adapter(id_)

    def _off(self) -> None:
        if self._adapted is not None:
            self._adapted.base_model.disable_adapter_layers()
        self._on = None
