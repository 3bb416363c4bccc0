"""LoRA adapters on a loaded model, of which each step is made with one or with none: what knows peft's serving."""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peft import PeftConfig, PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file

from memos.core import lora as adapter_files
from memos.core.lora import ADAPTER_FILE, ActiveAdapter
from memos.errors import IntegrityError

_MOST = 16
"""Most adapters kept in memory, some megabytes each; an evicted adapter is loaded again on its next use."""


_REFUSED = (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError)
"""Exceptions that loading raises for damaged files, or files of another model."""


class _Slot:
    """A place on the model for adapters of one configuration, in which the weights of one of them lie."""

    # peft walks over all modules many times for each adapter that it adds, a fifth of a second for 30 layers, and again
    # to change between two. Of one configuration it has one here, whose parameters are pointed at other weights.

    def __init__(self, name: str, adapted: Any) -> None:
        self.name = name
        self.holds: str | None = None
        mine = f".{name}."
        self._parameters: dict[str, Any] = {
            key.replace(mine, "."): part for key, part in adapted.named_parameters() if mine in key
        }

    def read(self, file: Path) -> dict[str, Any]:
        found = load_file(file)
        shapes = {key: tuple(part.shape) for key, part in self._parameters.items()}
        if {key: tuple(tensor.shape) for key, tensor in found.items()} != shapes:
            raise ValueError("weights of other shapes")
        # Copied: a file that is overwritten under a mapped tensor would be another adapter, or end the process.
        return {
            key: tensor.to(self._parameters[key].device, self._parameters[key].dtype, copy=True)
            for key, tensor in found.items()
        }

    def put(self, id_: str, weights: Mapping[str, Any]) -> None:
        if self.holds != id_:
            for key, tensor in weights.items():
                self._parameters[key].data = tensor
            self.holds = id_


class LocalAdapters:
    """The adapters on one model. Not thread-safe: it is asked in the model's turns alone."""

    # Without any, a model is what it was to the bit, since its own layers are called then.

    def __init__(self, model: Any) -> None:
        self._model = model
        self._adapted: Any = None
        self._slots: dict[str, _Slot] = {}
        self._made = 0
        self._there: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        self._on: str | None = None
        self._active: _Slot | None = None

    def use(self, adapter: ActiveAdapter | None) -> None:
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
        shape, weights = self._there[adapter.id]
        slot = self._slots[shape]
        slot.put(adapter.id, weights)
        if self._active is not slot:
            self._adapted.base_model.enable_adapter_layers()
            self._adapted.set_adapter(slot.name, inference_mode=True)
            self._active = slot
        self._on = adapter.id

    def keep_only(self, is_wanted: Callable[[str], bool]) -> int:
        gone = [id_ for id_ in self._there if not is_wanted(id_)]
        for id_ in gone:
            self._remove(id_)
        return len(gone)

    def detach(self) -> None:
        if self._adapted is not None:
            self._off()
            self._adapted.unload()
            self._adapted = None
            self._slots = {}
            self._there = OrderedDict()

    def _load(self, adapter: ActiveAdapter) -> None:
        adapter_files.check(adapter.folder, adapter.digest)
        try:
            shape = _shape_of(adapter.folder)
            slot = self._slots.get(shape) or self._new_slot(adapter.folder, shape)
            weights = slot.read(adapter.folder / ADAPTER_FILE)
        except BaseException as error:
            # Whatever was on is off: else who asks for none next would have the one before.
            self._off()
            self._drop_empty()
            if not isinstance(error, _REFUSED):
                raise
            raise IntegrityError(
                f"Cannot load the adapter in {adapter.folder} into this model ({type(error).__name__})."
            ) from error
        self._there[adapter.id] = shape, weights
        while len(self._there) > _MOST:
            self._remove(next(iter(self._there)))

    def _new_slot(self, folder: Path, shape: str) -> _Slot:
        """Make peft add a place for a configuration; weights are loaded later, so that those of others stay out."""
        name = f"hippocube{self._made}"
        self._made += 1
        config = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        try:
            with warnings.catch_warnings():  # peft says what it leaves to us
                warnings.simplefilter("ignore")
                if self._adapted is None:
                    self._adapted = PeftModel(self._model, config, adapter_name=name)
                else:
                    self._adapted.add_adapter(name, config)
        except BaseException:
            if self._adapted is not None and name in self._adapted.peft_config:
                self._adapted.delete_adapter(name)
            raise
        self._adapted.eval()
        self._off()  # peft puts on what it makes
        slot = self._slots[shape] = _Slot(name, self._adapted)
        return slot

    def _remove(self, id_: str) -> None:
        if self._on == id_:
            self._off()
        shape, _ = self._there.pop(id_)
        slot = self._slots[shape]
        if slot.holds == id_:
            # Its weights leave memory with it: another's take their place, or nothing is there any more.
            slot.holds = None
            other = next(((key, weights) for key, (its, weights) in self._there.items() if its == shape), None)
            if other is not None:
                slot.put(*other)
        self._drop_empty()

    def _drop_empty(self) -> None:
        used = {shape for shape, _ in self._there.values()}
        for shape in self._slots.keys() - used:
            slot = self._slots.pop(shape)
            if self._active is slot:
                self._off()
            with warnings.catch_warnings():  # peft says which one it thinks of instead; it is put on before it is used
                warnings.simplefilter("ignore")
                self._adapted.delete_adapter(slot.name)

    def _off(self) -> None:
        if self._adapted is not None:
            self._adapted.base_model.disable_adapter_layers()
        self._on = self._active = None


def _shape_of(folder: Path) -> str:
    """Return what adapters have in common that can lie in one place: all of a configuration but the model's name."""
    told = json.loads((folder / adapter_files.CONFIG).read_text(encoding="utf-8"))
    # peft writes names of modules in the order of a set, another in each process.
    for key, value in told.items():
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            told[key] = sorted(value)
    return json.dumps({**told, "base_model_name_or_path": None}, sort_keys=True)
