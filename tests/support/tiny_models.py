"""Language models of a few thousand random weights, and a tokenizer of bytes with a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

torch = pytest.importorskip("torch", reason="needs the extra `local`: make setup-local")
transformers = pytest.importorskip("transformers", reason="needs the extra `local`: make setup-local")

torch.set_num_threads(1)  # beside other tests, threads that wait for one another take ten times as long

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Every byte is a token; `<|start|>` and `<|end|>` are special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(alphabet)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|end|>", additional_special_tokens=["<|start|>"]
    )
    fast.chat_template = template
    return fast


def model(kind: str = "llama", seed: int = 0, **changed: Any) -> Any:
    """A model with random weights of this architecture."""
    size = {"vocab_size": 260, **_COMMON, **changed}
    torch.manual_seed(seed)
    match kind:
        case "llama":
            made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size))
        case "mistral":
            made = transformers.MistralForCausalLM(transformers.MistralConfig(sliding_window=48, **size))
        case "gemma":
            layers = ["sliding_attention", "full_attention", "sliding_attention"]
            config = transformers.Gemma3TextConfig(sliding_window=40, head_dim=8, layer_types=layers, **size)
            made = transformers.Gemma3ForCausalLM(config)
        case "hybrid":
            layers = ["linear_attention", "full_attention", "linear_attention"]
            small = {"linear_num_value_heads": 2, "linear_num_key_heads": 2}
            dims = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
            config = transformers.Qwen3NextConfig(
                layer_types=layers, head_dim=8, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
                shared_expert_intermediate_size=16, **small, **dims, **size,
            )  # fmt: skip
            made = transformers.Qwen3NextForCausalLM(config)
        case "short":
            layers = ["conv", "full_attention", "conv"]
            made = transformers.Lfm2ForCausalLM(
                transformers.Lfm2Config(layer_types=layers, block_auto_adjust_ff_dim=False, **size)
            )
        case "state":
            config = transformers.MambaConfig(vocab_size=260, hidden_size=32, num_hidden_layers=2, state_size=4)
            made = transformers.MambaForCausalLM(config)
        case "learned":
            config = transformers.GPT2Config(vocab_size=260, n_embd=32, n_layer=2, n_head=4, n_positions=4096)
            made = transformers.GPT2LMHeadModel(config)
    made.config._attn_implementation = "sdpa"
    return made.eval()


def saved(folder: Path, kind: str = "llama", *, template: str | None = TEMPLATE, seed: int = 0) -> Path:
    """Save such a model with its tokenizer as transformers does."""
    made = model(kind, seed)
    made.generation_config.eos_token_id = 256
    made.save_pretrained(folder)
    tokenizer(template).save_pretrained(folder)
    return folder
