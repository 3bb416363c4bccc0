"""LoRA adapters on a loaded model, switched between steps."""

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

_MAX_ADAPTERS = 16
"""Adapters kept in memory, some megabytes each; an evicted one is loaded again when it is needed."""


_LOAD_ERRORS = (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError)
"""Exceptions that loading raises for damaged files, or files of another model."""


class _Slot:
    """A peft adapter shared by all adapters of one configuration; its parameters point to the weights of one of them.

    peft walks over all modules many times to add an adapter, a fifth of a second for 30 layers, and again to switch.
    """

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
        # Copied: the tensors are memory-mapped, and overwriting the file would change them, or crash the process.
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
    """The adapters of one model. Not thread-safe: use it within the model's turns.

    Without an adapter the original layers are called, so the outputs are bit-identical to those of the bare model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._adapted: Any = None
        self._slots: dict[str, _Slot] = {}
        self._made = 0
        self._weights: OrderedDict[str, tuple[str, dict[str, Any]]] = OrderedDict()
        self._enabled: str | None = None
        self._active: _Slot | None = None

    def use(self, adapter: ActiveAdapter | None) -> None:
        """Enable an adapter for the next steps, or none.

        Raises: IntegrityError (its files are damaged, or made for another model).
        """
        wanted = None if adapter is None else adapter.id
        if wanted == self._enabled:
            return
        if adapter is None:
            self._disable()
            return
        if adapter.id not in self._weights:
            self._load(adapter)
        self._weights.move_to_end(adapter.id)
        slot_key, weights = self._weights[adapter.id]
        slot = self._slots[slot_key]
        slot.put(adapter.id, weights)
        if self._active is not slot:
            self._adapted.base_model.enable_adapter_layers()
            self._adapted.set_adapter(slot.name, inference_mode=True)
            self._active = slot
        self._enabled = adapter.id

    def keep_only(self, is_wanted: Callable[[str], bool]) -> int:
        gone = [id_ for id_ in self._weights if not is_wanted(id_)]
        for id_ in gone:
            self._remove(id_)
        return len(gone)

    def detach(self) -> None:
        if self._adapted is not None:
            self._disable()
            self._adapted.unload()
            self._adapted = None
            self._slots = {}
            self._weights = OrderedDict()

    def _load(self, adapter: ActiveAdapter) -> None:
        adapter_files.check(adapter.folder, adapter.digest)
        try:
            slot_key = _slot_key(adapter.folder)
            slot = self._slots.get(slot_key) or self._new_slot(adapter.folder, slot_key)
            weights = slot.read(adapter.folder / ADAPTER_FILE)
        except BaseException as error:
            # peft may have switched adapters already, so that `use(None)` would return early with one enabled.
            self._disable()
            self._drop_empty()
            if not isinstance(error, _LOAD_ERRORS):
                raise
            raise IntegrityError(
                f"Cannot load the adapter in {adapter.folder} into this model ({type(error).__name__})."
            ) from error
        self._weights[adapter.id] = slot_key, weights
        while len(self._weights) > _MAX_ADAPTERS:
            self._remove(next(iter(self._weights)))

    def _new_slot(self, folder: Path, slot_key: str) -> _Slot:
        """Add a peft adapter for a configuration, without loading weights."""
        name = f"hippocube{self._made}"
        self._made += 1
        config = PeftConfig.from_pretrained(str(folder))
        config.inference_mode = True
        try:
            with warnings.catch_warnings():  # peft warns about what is left to the caller
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
        self._disable()  # peft enables a new adapter
        slot = self._slots[slot_key] = _Slot(name, self._adapted)
        return slot

    def _remove(self, id_: str) -> None:
        if self._enabled == id_:
            self._disable()
        slot_key, _ = self._weights.pop(id_)
        slot = self._slots[slot_key]
        if slot.holds == id_:
            # To free the weights, point the slot at those of another adapter; without one the slot is dropped.
            slot.holds = None
            other = next(((key, weights) for key, (its, weights) in self._weights.items() if its == slot_key), None)
            if other is not None:
                slot.put(*other)
        self._drop_empty()

    def _drop_empty(self) -> None:
        used = {slot_key for slot_key, _ in self._weights.values()}
        for slot_key in self._slots.keys() - used:
            slot = self._slots.pop(slot_key)
            if self._active is slot:
                self._disable()
            with warnings.catch_warnings():  # peft warns which one it selects instead; `use` selects one anyway
                warnings.simplefilter("ignore")
                self._adapted.delete_adapter(slot.name)

    def _disable(self) -> None:
        if self._adapted is not None:
            self._adapted.base_model.disable_adapter_layers()
        self._enabled = self._active = None


def _slot_key(folder: Path) -> str:
    """Return an adapter's configuration without the model's name; adapters with the same one share a slot."""
    config = json.loads((folder / adapter_files.CONFIG).read_text(encoding="utf-8"))
    # peft writes module names in the order of a set, which differs between processes.
    for key, value in config.items():
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            config[key] = sorted(value)
    return json.dumps({**config, "base_model_name_or_path": None}, sort_keys=True)
