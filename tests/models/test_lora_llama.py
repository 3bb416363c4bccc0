"""A Llama's layers with an adapter say and teach what peft's do."""

from __future__ import annotations

import contextlib
import random
import warnings
from typing import Any

import pytest

from tests.support import tiny_models

torch = tiny_models.torch
peft = pytest.importorskip("peft", reason="needs the extra `local`: make setup-local")
lora_llama = pytest.importorskip("memos.backends.lora.llama", reason="needs the extra `local`: make setup-local")
lora_tree = pytest.importorskip("memos.backends.lora.llama", reason="needs the extra `local`: make setup-local")

ROWS = [([1, 2, 3, 40, 41], [50, 51, 52]), ([1, 2, 3, 42], [53]), ([1, 2, 3, 43, 44, 45], [54, 55])]
BRANCHED = [
    ([1, 2, 3, 40], [50, 51]), ([1, 2, 3, 40, 41], [6]), ([1, 2, 3, 40], [50, 51]), ([1, 2, 3, 40], [50, 60, 61]),
    ([1, 2], [3, 40, 5]), ([1, 2, 3, 41, 40, 43, 44, 45, 46, 47], [9, 8]),
]  # fmt: skip
DISTANT = [([7], [8, 9, 10, 11]), ([20, 21, 22], [23]), ([30, 31], [32, 33])]


def adapted(kind: str = "llama", layers: str | list[str] = "all-linear", **changed: Any) -> tuple[Any, Any]:
    """A tiny model, and what peft makes of it with an adapter that says something."""
    model = tiny_models.model(kind, **changed)
    config = peft.LoraConfig(r=4, lora_alpha=6, bias="none", task_type="CAUSAL_LM", target_modules=layers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        with_adapter = peft.get_peft_model(model, config).eval()
    torch.manual_seed(3)
    for name, weight in with_adapter.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    return model, with_adapter


def by_peft(model: Any, rows: list[tuple[list[int], list[int]]]) -> list[Any]:
    """The log-probabilities at the places of answers, each row by itself."""
    found = []
    for prompt, answer in rows:
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0]
        found.append(torch.log_softmax(logits[len(prompt) - 1 : -1].float(), -1))
    return found


def by_pass(quick: Any, rows: list[tuple[list[int], list[int]]], *, adapter: bool = True) -> Any:
    """The same, all rows at once."""
    likely = torch.log_softmax(quick.logits(rows, adapter=adapter).float(), -1)
    return likely.split([len(answer) for _, answer in rows])


def learned_from(model: Any, likely: Any) -> dict[str, Any]:
    """The gradients of an adapter's weights by the likelihood of something at each place."""
    sum(each[:, 17].sum() + each[:, 5].square().sum() for each in likely).backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("rows", [ROWS, DISTANT, BRANCHED, ROWS[:1], [*BRANCHED, *DISTANT, *ROWS]])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"layers": ["gate_proj", "up_proj", "down_proj"]},
        {"layers": ["q_proj", "v_proj"]},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 12, "tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}},
        {"kind": "mistral"},
    ],
    ids=str,
)
def test_it_says_and_teaches_what_peft_does(given: dict[str, Any], rows: list[Any]) -> None:
    model, with_adapter = adapted(**given)
    assert lora_llama.supports(model)
    quick = lora_llama.FusedLlama(model, torch.float32)
    told, theirs = by_pass(quick, rows), by_peft(with_adapter, rows)
    for mine, other in zip(told, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    mine, other = learned_from(with_adapter, told), learned_from(with_adapter, theirs)
    assert mine.keys() == other.keys()
    assert any(gradient.abs().max() > 0.1 for gradient in other.values())
    for name, gradient in other.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-3, atol=1e-4)
    with torch.no_grad(), with_adapter.disable_adapter():
        base = by_peft(with_adapter, rows)
        for plain, own, moved in zip(by_pass(quick, rows, adapter=False), base, theirs, strict=True):
            torch.testing.assert_close(plain, own, rtol=1e-4, atol=1e-4)
            assert (own - moved).abs().max() > 0.01


@pytest.mark.parametrize("adapter", [True, False])
@pytest.mark.parametrize(
    "given",
    [{}, {"num_key_value_heads": 1, "head_dim": 12}, {"layers": ["q_proj", "v_proj"]}, {"kind": "mistral"}],
    ids=str,
)
def test_rows_that_go_on_are_told_what_peft_tells_them(given: dict[str, Any], adapter: bool) -> None:
    model, with_adapter = adapted(**given)
    quick = lora_llama.FusedLlama(model, torch.float32)
    chance = random.Random(4)
    said = [prompt + answer for prompt, answer in [*BRANCHED, *DISTANT, ([9], []), ([9], [])]]
    with torch.no_grad(), contextlib.nullcontext() if adapter else with_adapter.disable_adapter():
        going = lora_llama.LlamaDecoder(quick, said, 8, adapter=adapter)
        for turn in range(8):
            theirs = [model(input_ids=torch.tensor([row])).logits[0, -1] for row in said]
            torch.testing.assert_close(going.logits, torch.stack(theirs), rtol=1e-4, atol=1e-4)
            if turn in (3, 5):
                kept = sorted(chance.sample(range(len(said)), len(said) - 3))
                said = [said[row] for row in kept]
                going.select_rows(torch.tensor(kept))
                torch.testing.assert_close(
                    going.logits, torch.stack([theirs[row] for row in kept]), rtol=1e-4, atol=1e-4
                )
            tokens = [chance.randrange(70) for _ in said]
            said = [[*row, token] for row, token in zip(said, tokens, strict=True)]
            going.step(torch.tensor(tokens))


def test_a_changed_adapter_is_followed() -> None:
    model, with_adapter = adapted()
    quick = lora_llama.FusedLlama(model, torch.float32)
    before = by_pass(quick, ROWS)[0].detach().clone()
    with torch.no_grad():
        for name, weight in with_adapter.named_parameters():
            if "lora_" in name:
                weight.mul_(1.5)
    [after, *_] = by_pass(quick, ROWS)
    torch.testing.assert_close(after, by_peft(with_adapter, ROWS)[0], rtol=1e-4, atol=1e-4)
    assert (after - before).abs().max() > 0.01


def test_in_halves_it_is_near_and_the_layers_share_its_frozen_weights() -> None:
    model, with_adapter = adapted()
    quick = lora_llama.FusedLlama(model, torch.bfloat16)
    for mine, other in zip(by_pass(quick, ROWS), by_peft(with_adapter, ROWS), strict=True):
        assert 0 < (mine - other).abs().max() < 0.1
    linear = [each for each in model.modules() if isinstance(each, torch.nn.Linear) and not each.weight.requires_grad]
    frozen = dict(quick.frozen_weights())
    assert set(frozen) == set(linear)
    for layer, half in frozen.items():
        torch.testing.assert_close(half, layer.weight.bfloat16())
    assert len({half.untyped_storage().data_ptr() for half in frozen.values()}) == 4 * len(quick.layers) + 1


def test_what_is_of_its_kind_of_number_is_kept_once_and_says_the_same() -> None:
    model, with_adapter = adapted()
    before = by_peft(with_adapter, ROWS)
    quick = lora_llama.FusedLlama(model, torch.float32)
    for layer, mine in quick.frozen_weights():
        assert layer.weight.untyped_storage().data_ptr() == mine.untyped_storage().data_ptr()
    for own, after in zip(before, by_peft(with_adapter, ROWS), strict=True):
        torch.testing.assert_close(after, own, rtol=1e-5, atol=1e-5)


def test_branches_hold_each_token_once_in_order() -> None:
    chance = random.Random(7)
    for _ in range(200):
        some = [[chance.randrange(3) for _ in range(chance.randint(1, 40))] for _ in range(chance.randint(1, 12))]
        tree = lora_tree.PrefixTree(some)
        assert [[tree.ids[place] for place in path] for path in tree.paths] == some
        beginnings = {tuple(each[: end + 1]) for each in some for end in range(len(each))}
        assert len(tree.ids) == len(beginnings), "what several begin with stands once"
        added = [place for path, others in tree.branches() for place in path[others:]]
        assert added == list(range(len(tree.ids)))
        for path, _ in tree.branches():
            assert [tree.positions[place] for place in path] == list(range(len(path)))
            assert any(whole[: len(path)] == path for whole in tree.paths)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [("llama", {"attention_bias": True}), ("llama", {"hidden_act": "gelu"}), ("gemma", {}), ("learned", {})],
)
def test_other_layers_do_not_fit(kind: str, changed: dict[str, Any]) -> None:
    assert not lora_llama.supports(tiny_models.model(kind, **changed))


def test_a_model_in_other_numbers_does_not_fit() -> None:
    assert not lora_llama.supports(tiny_models.model().bfloat16())
