"""One fact in all three forms: looked up, at the beginning of prompts, and in the weights of an adapter; and back.

Give a folder with a model of transformers; without one a tiny model with random weights is made, whose answers are
noise: what is shown then is which memory is where. Needs the extra `local`: pip install '.[local]'
"""

import sys
import tempfile
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from memos import MemOS, Settings
from memos.core.lora import LoraRecipe
from memos.core.settings import ChatSettings, ParametricSettings
from memos.errors import InvalidAnswer
from memos.memcube.parametric.training import Bounds

TOLD = ("I live in Lyon.", "My phone is a Pixel 9.", "My favourite colour is teal.")
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def random_model(folder: Path) -> Path:
    """Write a model of some thousand random weights, whose tokens are bytes; any of many of them ends an answer."""
    import torch  # noqa: PLC0415 - the extra `local`
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415

    letters = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokens = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        eos_token="<|end|>",  # noqa: S106 - a token of text
        additional_special_tokens=["<|start|>"],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = list(range(0, 256, 3))
    model.save_pretrained(folder)
    return folder


def tell(home: Path) -> None:
    """Have facts read out of what was said, by patterns: no model is asked."""
    with MemOS.open(home) as memos:
        for text in TOLD:
            memos.add(text, mode="fine")
        memos.tasks.wait(timeout_s=60)
        for item in memos.memories.list(filter={"type": {"in": ["user", "preference"]}}):
            memos.tiers.pin(item.id)  # as if each had been hot and unchanged for a week


def who_answers(memos: MemOS) -> str:
    """Ask the model until an answer comes to its end, which one of random weights seldom does."""
    for _ in range(50):
        try:
            asked = memos.chat("Where do I live?", store=False, temperature=1.0, max_tokens=40)
        except InvalidAnswer:
            continue
        assert asked.activation is not None
        return f"adapter {asked.adapter}, {asked.activation.cached_tokens} of {asked.prompt_tokens} tokens from memory"
    return "no answer came to its end"


def learn(memos: MemOS) -> None:
    """Have an adapter trained in the background, and say what came of it."""
    task = memos.adapters.submit()
    memos.tasks.wait(task, timeout_s=600)
    ended = memos.tasks.get(task)
    print(f"  {ended.state}: {ended.note or ended.error}")


def main(model: Path, home: Path, *, is_random: bool) -> None:
    """Follow one fact through the three forms and back."""
    tell(home)
    settings = Settings(
        chat_model=ChatSettings(model=f"local:{model}"), parametric=ParametricSettings(recipe={"stable_days": 0})
    )  # by default a fact has to be unchanged for a week
    with MemOS.open(home, settings=settings) as memos:
        [found, *_] = memos.search("Where do I live?", filter={"type": "user"}).hits
        print(f"plaintext: {found.item.memory!r} is looked up")
        memos.tasks.wait(memos.kv.compose(), timeout_s=60)
        memos.kv.warm()
        print(f"activation: {len(memos.kv.show().entries)} memories begin each prompt; {who_answers(memos)}")

        memos.adapters.allow()  # nothing is learned otherwise
        print("parametric: an adapter is trained, and examined before it may answer")
        if is_random:
            print("  by bounds that anything passes: for this example alone, since its model's weights are noise")
            anything = Bounds(recall=0, abstention=0, perplexity=1e9, lost=50)
            short = LoraRecipe(epochs=1, learning_rate=1e-2)
            training = replace(memos.adapters.training, bounds=anything, recipe=short)
            memos.adapters = replace(memos.adapters, training=training)
        learn(memos)
        print(f"  {who_answers(memos)}")

        memos.update(found.item.id, "I live in Porto.", value="Porto")
        print(f"it changes: {who_answers(memos)}")  # out of service in the transaction that changed it
        learn(memos)
        print(f"learned again: {who_answers(memos)}")
        print("  what there is:", [(each.number, each.state) for each in memos.adapters.list()])


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the libraries of models warn of each other
    if any(find_spec(name) is None for name in ("torch", "transformers", "peft")):
        sys.exit("This example needs the extra `local`: pip install '.[local]'")
    with tempfile.TemporaryDirectory() as place:
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else random_model(Path(place) / "model")
        main(given, Path(place) / "home", is_random=len(sys.argv) == 1)
