"""Opens transformers models for the kernel; importable without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memos.backends.local.torch_threads import let_threads_sleep
from memos.core.kv_cache import Fill
from memos.core.ports import ChatModel
from memos.core.settings import ChatSettings
from memos.errors import InvalidInput

if TYPE_CHECKING:
    from memos.backends.local.kv_buffer import TorchDevice
    from memos.backends.local.loading import Loaded
    from memos.core.lora import Lending


class TransformersModels:
    """Opens models of transformers; needs the extra `local`."""

    def load(self, settings: ChatSettings, remembered: Path | None) -> Loaded:
        let_threads_sleep()
        try:
            from memos.backends.local.loading import load  # noqa: PLC0415 - the extra `local`
        except ImportError as error:
            raise InvalidInput(
                "model", f"{settings.model} needs the extra `local`: pip install '.[local]' in the clone"
            ) from error
        return load(str(settings.local), remembered=remembered)

    def chat_model(self, loaded: Loaded, settings: ChatSettings, fill: Fill | None, adapters: Lending) -> ChatModel:
        from memos.backends.local.model import LocalModel  # noqa: PLC0415 - the extra `local`

        return LocalModel(loaded, settings, fill, adapters)

    def device(self, loaded: Loaded) -> TorchDevice | None:
        if loaded.model.device.type == "cpu":
            return None
        from memos.backends.local.kv_buffer import TorchDevice  # noqa: PLC0415 - the extra `local`

        return TorchDevice(loaded.model.device, loaded.model.dtype)
