"""Models with random weights in the shapes of real ones, and a tokenizer of bytes: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from memos.backends.local.loading import Loaded, ready

_TINY = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# Sources: config.json of Qwen/Qwen2.5-1.5B, meta-llama/Llama-3.1-8B and Qwen/Qwen2.5-32B.
SHAPES = MappingProxyType(
    {
        "1.5b": (
            Qwen2ForCausalLM,
            Qwen2Config,
            {
                "vocab_size": 151_936,
                "hidden_size": 1536,
                "intermediate_size": 8960,
                "num_hidden_layers": 28,
                "num_attention_heads": 12,
                "num_key_value_heads": 2,
                "tie_word_embeddings": True,
            },
        ),
        "8b": (
            LlamaForCausalLM,
            LlamaConfig,
            {
                "vocab_size": 128_256,
                "hidden_size": 4096,
                "intermediate_size": 14_336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
            },
        ),
        "32b": (
            Qwen2ForCausalLM,
            Qwen2Config,
            {
                "vocab_size": 152_064,
                "hidden_size": 5120,
                "intermediate_size": 27_648,
                "num_hidden_layers": 64,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
            },
        ),
        "tiny qwen": (
            Qwen2ForCausalLM,
            Qwen2Config,
            {**_TINY, "tie_word_embeddings": True},
        ),
        "tiny llama": (
            LlamaForCausalLM,
            LlamaConfig,
            _TINY,
        ),
    }
)

_CONTEXT = 65_536
_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def random_model(shape: str, dtype: torch.dtype, device: str, *, eos: list[int] | None = None, seed: int = 5) -> Any:
    """Return a model of one of `SHAPES`; without `eos` its answers never end by themselves."""
    made, config, sizes = SHAPES[shape]
    torch.manual_seed(seed)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = made(config(**sizes, max_position_embeddings=_CONTEXT, attn_implementation="sdpa"))
    finally:
        torch.set_default_dtype(usual)
    model.generation_config.eos_token_id = eos
    return model.eval()


def tokenizer(vocabulary: int) -> Any:
    """Return a tokenizer in which each byte is a token; the other ids are words, so that any answer is text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"w{number}" for number in range(vocabulary - len(letters) - 2)]
    ids = {token: place for place, token in enumerate([*letters, *words])}
    tokens = Tokenizer(tokenizer_models.BPE(vocab=ids, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        eos_token="<|end|>",  # noqa: S106 - a token of text
        additional_special_tokens=["<|start|>"],
    )
    fast.chat_template = _TEMPLATE
    return fast


def prepared(shape: str, model: Any) -> Loaded:
    """Return the model as the product loads it, tried for reuse of its KV."""
    return ready(f"random {shape}", model, tokenizer(SHAPES[shape][2]["vocab_size"]), f"random {shape}")


def saved(shape: str, dtype: torch.dtype, device: str, folder: Path) -> Path:
    """Write a model whose answers end soon, as transformers does."""
    vocabulary = SHAPES[shape][2]["vocab_size"]
    model = random_model(shape, dtype, device, eos=list(range(0, vocabulary, 8)))
    model.save_pretrained(folder)
    tokenizer(vocabulary).save_pretrained(folder)
    return folder


def parameters(model: Any) -> int:
    """Return the number of a model's parameters; tied ones count once."""
    return sum(each.numel() for each in model.parameters())


def free(device: str) -> None:
    """Give memory of dropped models back to the GPU."""
    import gc  # noqa: PLC0415 - only here

    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
