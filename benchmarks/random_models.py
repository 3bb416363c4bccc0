"""Models of a usual shape with random weights: what a step costs hardly depends on what the weights are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from benchmarks.small_model import small_model

if TYPE_CHECKING:
    from memos.backends.local.loading import Loaded

SHAPES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        # Source: config.json of meta-llama/Llama-3.1-8B.
        "8b": {
            "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8,
        },
        "tiny": {
            "vocab_size": 49_152, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2,
        },
    }
)  # fmt: skip


def random_model(shape: str, seed: int) -> Loaded:
    """Return a model of one of `SHAPES` in bfloat16, on the GPU if there is one, with the small model's tokenizer."""
    import torch  # noqa: PLC0415 - the extra `local`
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - the extra `local`

    from memos.backends.local.loading import ready  # noqa: PLC0415 - the extra `local`

    where = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(where):
            model = LlamaForCausalLM(LlamaConfig(**SHAPES[shape], max_position_embeddings=4096))
    finally:
        torch.set_default_dtype(usual)
    return ready(f"random {shape}", model, AutoTokenizer.from_pretrained(small_model()), "random")
