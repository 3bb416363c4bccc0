"""Adapters on a model that answers: each request has its own, and none leaves anything behind."""

from __future__ import annotations

import json
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny_models  # skips without the extra `local`

torch = tiny_models.torch
safetensors_torch = pytest.importorskip("safetensors.torch", reason="needs the extra `local`: make setup-local")
peft = pytest.importorskip("peft", reason="needs the extra `local`: make setup-local")

from memos.backends.local import adapters as local_adapters  # noqa: E402
from memos.backends.local.loading import Loaded, ready  # noqa: E402
from memos.backends.local.model import LocalModel  # noqa: E402
from memos.core.kv_cache import Fill, Prefix  # noqa: E402
from memos.core.lora import ADAPTER_FILE, CONFIG, ActiveAdapter  # noqa: E402
from memos.core.ports import ChatReply, ChatRequest  # noqa: E402
from memos.core.settings import ChatSettings  # noqa: E402
from memos.memcube.activation.store import BlockStore  # noqa: E402
from tests.models.test_local_model import asking, made, prefill_of, store_of  # noqa: E402
from tests.models.test_lora_training import PROMPTS, TAUGHT, exercises, learn, trained  # noqa: E402
from tests.support.adapters import sealed  # noqa: E402


def adapter(folder: Path, name: str, seed: int, kind: str = "llama", rank: int = 4) -> ActiveAdapter:
    """Write an adapter with random weights, large enough to be heard."""
    base = tiny_models.model(kind)
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=rank, lora_alpha=64, target_modules="all-linear", init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(base, config).save_pretrained(folder / name)
    return ActiveAdapter(name, folder / name, sealed(folder / name))


def safetensors_of(folder: Path) -> dict[str, Any]:
    return dict(safetensors_torch.load_file(folder / ADAPTER_FILE))


class Lent:
    """Lends the adapter that a test says; keeps KV under its digest."""

    def __init__(self, loaded: Loaded, store: BlockStore | None = None) -> None:
        self.loaded, self.store, self.now = loaded, store, dict[str, ActiveAdapter]()

    def serving(self, cube: str, base: str) -> ActiveAdapter | None:
        assert base == self.loaded.base
        return self.now.get(cube)

    def fill(self, adapter: ActiveAdapter) -> Fill | None:
        return prefill_of(self.loaded, self.store, adapter=adapter.digest) if self.store else None


def answering(store: BlockStore | None = None) -> tuple[LocalModel, Lent]:
    loaded = made()
    lent = Lent(loaded, store)
    fill = None if store is None else prefill_of(loaded, store)
    return LocalModel(loaded, ChatSettings(max_tokens=12), fill, lent), lent


def reply(model: LocalModel, request: ChatRequest) -> ChatReply | str:
    """Return the reply, or what was said before it was cut off."""
    said = ""
    try:
        for piece in model.stream(request):
            if isinstance(piece, ChatReply):
                return piece
            said += piece
    except Exception as error:  # noqa: BLE001 - a random model says no end
        assert "cut off" in str(error)
    return said


def test_the_adapter_of_the_cube_answers_and_without_it_the_model_is_what_it_was(tmp_path: Path) -> None:
    model, lent = answering()
    before = reply(model, asking())
    lent.now["home"] = adapter(tmp_path, "one", 1)
    with_one = reply(model, asking())
    assert with_one != before
    assert reply(model, asking(prefix=False)) == before  # nobody's cube
    lent.now["home"] = adapter(tmp_path, "two", 2)
    assert reply(model, asking()) not in (before, with_one)
    lent.now.clear()
    assert reply(model, asking()) == before


def test_requests_at_once_have_each_their_own(tmp_path: Path) -> None:
    model, lent = answering()
    alone = {}
    for place, name in enumerate(["none", "one", "two", "three"]):
        if place:
            lent.now["home"] = adapter(tmp_path, name, place)
        alone[name] = reply(model, asking())
    assert len(set(map(str, alone.values()))) == 4

    for name in ("one", "two", "three"):
        lent.now[name] = ActiveAdapter(name, tmp_path / name, sealed(tmp_path / name))
    order = ["one", "none", "two", "three"] * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: reply(model, _of(name)), order))
    assert found == [alone[name] for name in order]


def _of(cube: str) -> ChatRequest:
    asked = asking()
    assert asked.prefix is not None
    return replace(asked, prefix=replace(asked.prefix, cube=cube))


def test_what_is_kept_under_one_is_for_it_alone_and_exact(tmp_path: Path) -> None:
    store = store_of()
    model, lent = answering(store)
    bare, bare_lent = answering()
    for name in ("none", "one", "two"):
        if name != "none":
            lent.now["home"] = bare_lent.now["home"] = adapter(tmp_path, name, len(name) + ord(name[0]))
        cold = reply(bare, asking())
        before = sum(tier.blocks for tier in store.stats().tiers)
        assert reply(model, asking()) == cold  # nothing of another's is found
        assert sum(tier.blocks for tier in store.stats().tiers) > before
        assert reply(model, asking()) == cold  # its own is


@pytest.mark.parametrize("harm", ["changed", "scaled", "gone", "of another model"])
def test_one_that_is_damaged_answers_nothing_and_it_is_said(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, lent = answering()
    before = reply(model, asking())
    made_ = adapter(tmp_path, "one", 1, "learned" if harm == "of another model" else "llama")
    file = made_.folder / ADAPTER_FILE
    if harm == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    elif harm == "scaled":
        config = made_.folder / CONFIG
        config.write_text(config.read_text().replace('"lora_alpha": 64', '"lora_alpha": 640'))
    elif harm == "gone":
        file.unlink()
    lent.now["home"] = made_
    with caplog.at_level(logging.WARNING):
        assert reply(model, asking()) == before
    assert "without the cube's adapter" in caplog.text
    lent.now["home"] = adapter(tmp_path, "two", 2)  # and a whole one answers afterwards
    assert reply(model, asking()) != before


def test_more_than_there_is_room_for_are_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_adapters, "_MAX_ADAPTERS", 2)
    model, lent = answering()
    every = [adapter(tmp_path, f"a{place}", place) for place in range(4)]
    told = []
    for one in [*every, *every]:
        lent.now["home"] = one
        told.append(reply(model, asking()))
    assert told[:4] == told[4:]
    assert len(set(map(str, told))) == 4


def test_what_is_not_wanted_leaves_memory(tmp_path: Path) -> None:
    model, lent = answering()
    before = reply(model, asking())
    lent.now["home"] = adapter(tmp_path, "one", 1)
    reply(model, asking())
    with lent.loaded.turns():
        assert lent.loaded.adapters.keep_only(lambda _: True) == 0
        assert lent.loaded.adapters.keep_only(lambda _: False) == 1
    assert not any("lora_" in name for name, _ in lent.loaded.model.named_parameters())
    lent.now.clear()
    assert reply(model, asking()) == before


def test_those_of_one_configuration_lie_in_one_place_and_others_beside_it(tmp_path: Path) -> None:
    model, lent = answering()
    before = reply(model, asking())
    every = [adapter(tmp_path, f"a{place}", place, rank=2 + 2 * (place % 2)) for place in range(4)]
    told = []
    for one in [*every, *reversed(every)]:
        lent.now["home"] = one
        told.append(reply(model, asking()))
    assert told[:4] == told[4:][::-1]
    assert len({before, *map(str, told)}) == 5
    names = {name for name, _ in lent.loaded.model.named_parameters() if "lora_A" in name}
    assert len({name.split("lora_A.")[1] for name in names}) == 2, "two configurations"
    with lent.loaded.turns():
        assert lent.loaded.adapters.keep_only(lambda id_: id_ in ("a0", "a2")) == 2
    names = {name for name, _ in lent.loaded.model.named_parameters() if "lora_A" in name}
    assert len({name.split("lora_A.")[1] for name in names}) == 1
    lent.now["home"] = every[2]
    assert reply(model, asking()) == told[2]
    lent.now.clear()
    assert reply(model, asking()) == before


def test_weights_that_are_not_wanted_are_no_longer_on_the_model(tmp_path: Path) -> None:
    model, lent = answering()
    for place in (1, 2):
        lent.now["home"] = adapter(tmp_path, f"a{place}", place)
        reply(model, asking())
    gone = next(iter(safetensors_of(tmp_path / "a2").values()))
    held = [tensor for name, tensor in lent.loaded.model.named_parameters() if "lora_" in name]
    assert any(tensor.shape == gone.shape and torch.equal(tensor, gone) for tensor in held)
    with lent.loaded.turns():
        lent.loaded.adapters.keep_only(lambda id_: id_ == "a1")
    held = [tensor for name, tensor in lent.loaded.model.named_parameters() if "lora_" in name]
    assert held
    assert not any(tensor.shape == gone.shape and torch.equal(tensor, gone) for tensor in held)


def test_one_that_does_not_fit_leaves_the_one_before_it_as_it_was(tmp_path: Path) -> None:
    model, lent = answering()
    lent.now["home"] = first = adapter(tmp_path, "one", 1)
    told = reply(model, asking())
    for wrong in (lacking(adapter(tmp_path, "two", 2)), adapter(tmp_path, "three", 3, "learned", 2)):
        lent.now["home"] = wrong
        assert reply(model, asking()) not in (told, None)
        lent.now["home"] = first
        assert reply(model, asking()) == told


def lacking(made_: ActiveAdapter) -> ActiveAdapter:
    """Take one tensor out of an adapter's file, with a manifest that vouches for it."""
    weights = safetensors_of(made_.folder)
    safetensors_torch.save_file(dict(list(weights.items())[1:]), made_.folder / ADAPTER_FILE, metadata={"format": "pt"})
    return ActiveAdapter(made_.id, made_.folder, sealed(made_.folder))


@pytest.mark.parametrize("first", [True, False], ids=["before any", "after one that is on"])
@pytest.mark.parametrize("wrong", ["lacking", "lacking of another rank", "of another model"])
def test_after_one_that_does_not_fit_nobody_elses_answers(tmp_path: Path, wrong: str, first: bool) -> None:
    model, lent = answering()
    before = reply(model, asking())
    whole = adapter(tmp_path, "one", 1)
    if not first:
        lent.now["home"] = whole
        assert reply(model, asking()) != before
    if wrong == "of another model":
        lent.now["home"] = adapter(tmp_path, "two", 2, "learned", 2)
    else:
        lent.now["home"] = lacking(adapter(tmp_path, "two", 2, rank=2 if "rank" in wrong else 4))
    assert reply(model, asking()) == before, "the model alone"
    lent.now.clear()
    assert reply(model, asking()) == before
    lent.now["home"] = whole
    assert reply(model, asking()) != before


def test_the_order_in_which_a_configuration_names_modules_is_none(tmp_path: Path) -> None:
    one, two = (adapter(tmp_path, name, 1).folder for name in ("one", "two"))
    told = json.loads((two / CONFIG).read_text())
    (two / CONFIG).write_text(json.dumps({**told, "target_modules": told["target_modules"][::-1]}))
    assert local_adapters._slot_key(one) == local_adapters._slot_key(two)


def test_what_was_trained_is_answered_and_the_answer_names_the_adapter(tmp_path: Path) -> None:
    training = trained()
    learn(training, exercises())
    training.save(tmp_path)
    base = tiny_models.model()
    base.generation_config.eos_token_id = 256
    loaded = ready("tiny", base, tiny_models.tokenizer(), "weights")
    lent = Lent(loaded)
    lent.now["home"] = ActiveAdapter("learnt", tmp_path, sealed(tmp_path))
    model = LocalModel(loaded, ChatSettings(max_tokens=12), None, lent)
    told = [reply(model, ChatRequest(prompt, prefix=Prefix("home", 0))) for prompt in PROMPTS]
    assert [(each.text, each.adapter) for each in told if isinstance(each, ChatReply)] == [
        (answer, "learnt") for answer in TAUGHT.values()
    ]
