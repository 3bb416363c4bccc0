"""Trains a LoRA adapter on prompts with answers, and asks model and adapter questions: what knows peft's training.

The loss is the cross-entropy of the answers' tokens, plus the distance to the base model that has the fact before it,
plus that to the base model itself on prompts about other things; distances are Kullback-Leibler divergences over the
teacher's likeliest tokens. Source: Hinton et al., Distilling the Knowledge in a Neural Network, arXiv 1503.02531.
"""

from __future__ import annotations

import math
import os
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.nn import functional
from transformers.cache_utils import DynamicCache
from transformers.pytorch_utils import Conv1D

from memos.backends.local_loading import Loaded
from memos.errors import IntegrityError
from memos.ports import ChatMessage
from memos.recipes import Exercise, Recipe

_MOST_GRADIENT = 1.0
_WARM_UP = 0.1
_ASKED_AT_ONCE = 16
# What stands beside the linear layers of a feed-forward part.
_NO_LINEAR = ("act", "act_fn", "dropout", "norm", "layernorm")


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Token ids of a prompt and its answer; `begin` is where the answer begins.

    `tokens` and `chances` are the teacher's likeliest tokens and their log-probabilities, (answer, top) each.
    """

    ids: list[int]
    begin: int
    replayed: bool
    tokens: torch.Tensor | None
    chances: torch.Tensor | None


class LoraTraining:
    """One adapter on one loaded model; not thread-safe. The model answers with the adapter until it is detached."""

    def __init__(self, loaded: Loaded, recipe: Recipe) -> None:
        torch.manual_seed(recipe.seed)
        self._loaded, self._recipe = loaded, recipe
        config = LoraConfig(
            r=recipe.rank, lora_alpha=recipe.alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
            target_modules=_targets(loaded.model, recipe),
            fan_in_fan_out=any(isinstance(each, Conv1D) for each in loaded.model.modules()),
        )  # fmt: skip
        with warnings.catch_warnings():  # peft asks transformers by a name that goes
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            self._model: PeftModel = get_peft_model(loaded.model, config)
        self._checkpointing = recipe.checkpointing or loaded.model.device.type == "cuda"
        if self._checkpointing:
            loaded.model.activation_checkpointing_enable({"use_reentrant": False})
        # What is computed again would be cached again; and a window counts the padding behind a shared beginning.
        self._shares = bool(loaded.block) and not self._checkpointing and _sees_all(loaded.model)
        # Nothing is dropped by chance, except where layers compute again only what they are trained in.
        self._model.train(self._checkpointing)
        self._half = recipe.half and loaded.model.device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._tokenizer = loaded.tokenizer
        own = loaded.tokenizer.eos_token_id
        self._end: int = own if own in loaded.ends else min(loaded.ends)
        self._plan: list[list[_Encoded]] = []
        self._step = 0
        self._optimiser = torch.optim.AdamW(self.weights)

    @property
    def peft(self) -> PeftModel:
        """The model with its adapter, as peft has it."""
        return self._model

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        """The numbers that are trained."""
        return [each for each in self._model.parameters() if each.requires_grad]

    @property
    def steps(self) -> int:
        """How many steps the training has in all."""
        return len(self._plan)

    @property
    def step(self) -> int:
        """How many of them are done."""
        return self._step

    def prepare(self, exercises: Sequence[Exercise]) -> None:
        """Take what is to be learned; the base model is asked what it would say where that is imitated."""
        chance = random.Random(self._recipe.seed)  # noqa: S311 - an order, no secret
        encoded = [self._encoded(each) for each in exercises]
        self._plan = [
            batch for _ in range(self._recipe.epochs) for batch in _batches(encoded, self._recipe.batch, chance)
        ]
        self._step = 0
        self._optimiser = torch.optim.AdamW(self.weights, lr=self._recipe.learning_rate, weight_decay=0.0)

    def seconds_left(self) -> float:
        """Return about how long the steps that are left take: one of usual length is tried, and thrown away."""
        left = sorted(self._plan[self._step :], key=lambda batch: max(len(each.ids) for each in batch))
        if not left:
            return 0.0
        took = 0.0
        for _ in range(2):  # the first one warms up
            began = time.perf_counter()
            self._loss(left[len(left) // 2]).backward()
            self._optimiser.zero_grad(set_to_none=True)
            took = time.perf_counter() - began
        return took * len(left)

    def advance(self, most: int) -> float:
        """Make at most so many steps; return their mean loss, 0 when there are none left."""
        losses = []
        for batch in self._plan[self._step : self._step + most]:
            for group in self._optimiser.param_groups:
                group["lr"] = self._recipe.learning_rate * _share(self._step, self.steps)
            loss = self._loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.weights, _MOST_GRADIENT)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
            self._step += 1
            losses.append(float(loss.detach()))
        return sum(losses) / max(1, len(losses))

    def keep(self, file: Path) -> None:
        """Write what it takes to go on from here: whole or not at all."""
        tensors = {}
        for name, weight in self._named():
            tensors[f"weight.{name}"] = weight.detach()
            tensors |= {f"{key}.{name}": value for key, value in self._optimiser.state[weight].items()}
        aside = file.with_name(file.name + ".new")
        save_file(tensors, aside, metadata={"step": str(self._step)})
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(file)

    def go_on(self, file: Path) -> None:
        """Go on from what `keep` wrote, with the same exercises prepared. Raises: IntegrityError."""
        try:
            with safe_open(file, "pt") as kept:
                step = int(kept.metadata()["step"])
                for name, weight in self._named():
                    with torch.no_grad():
                        weight.copy_(kept.get_tensor(f"weight.{name}"))
                    if step:
                        parts = ("step", "exp_avg", "exp_avg_sq")
                        self._optimiser.state[weight] = {key: kept.get_tensor(f"{key}.{name}") for key in parts}
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
            raise IntegrityError(f"{file} is damaged, or of another training ({type(error).__name__}).") from error
        self._step = step

    def answers(self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24) -> list[str]:
        """Return the likeliest answer to each prompt, of at most `most` tokens, with the adapter or by the base."""
        rendered = [self._prompt(each) for each in prompts]
        order = sorted(range(len(rendered)), key=lambda place: len(rendered[place]))
        found: dict[int, str] = {}
        with self._with(adapter=adapter):
            for begin in range(0, len(order), _ASKED_AT_ONCE):
                places = order[begin : begin + _ASKED_AT_ONCE]
                for place, ids in zip(places, self._continued([rendered[each] for each in places], most), strict=True):
                    found[place] = str(self._tokenizer.decode(ids, skip_special_tokens=True)).strip()
        return [found[place] for place in range(len(rendered))]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float:
        """Return the perplexity of texts: the exponential of the mean negative log-likelihood of their tokens."""
        total, count = 0.0, 0
        with self._with(adapter=adapter):
            for text in texts:
                ids = torch.tensor([self._tokenizer(text)["input_ids"]], device=self._loaded.model.device)
                logits = self._model(input_ids=ids).logits[0, :-1].float()
                total += float(functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
                count += ids.shape[1] - 1
        return math.exp(total / count)

    def load(self, file: Path) -> None:
        """Take the weights of an adapter of the recipe's shape that was trained elsewhere. Raises: IntegrityError."""
        mine = get_peft_model_state_dict(self._model)
        try:
            with safe_open(file, "pt") as given:
                if set(given.keys()) != mine.keys():
                    raise ValueError
                for name, weight in mine.items():
                    theirs = given.get_tensor(name)
                    if theirs.shape != weight.shape or not theirs.is_floating_point() or not theirs.isfinite().all():
                        raise ValueError
                    weight.copy_(theirs)
        except (OSError, SafetensorError, ValueError, RuntimeError, TypeError) as error:
            raise IntegrityError("Its weights are damaged, or of another shape than its recipe says.") from error

    def save(self, folder: Path) -> None:
        """Write the adapter as peft's files."""
        self._model.save_pretrained(folder)

    def detach(self) -> None:
        """Take the adapter off the model again."""
        self._model.unload()
        self._loaded.model.activation_checkpointing_disable()

    def _named(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, each) for name, each in self._model.named_parameters() if each.requires_grad]

    def _prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        said = [{"role": each.role, "content": each.content} for each in messages]
        text = self._tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encoded(self, exercise: Exercise) -> _Encoded:
        answer = list(self._tokenizer(exercise.answer, add_special_tokens=False)["input_ids"])
        if exercise.prompt:
            prompt = self._prompt(exercise.prompt)
            answer.append(self._end)
        else:
            prompt, answer = answer[:1], answer[1:]
        tokens = chances = None
        weight = self._recipe.replay if exercise.replayed else self._recipe.imitation
        if weight and exercise.replayed:
            tokens, chances = self._taught(prompt, answer)
        elif weight and exercise.shown:
            tokens, chances = self._taught(self._prompt(exercise.shown), answer)
        return _Encoded(prompt + answer, len(prompt), exercise.replayed, tokens, chances)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _taught(self, prompt: list[int], answer: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the base model would say at each place of an answer."""
        with self._with(adapter=False), self._halved():
            ids = torch.tensor([prompt + answer], device=self._loaded.model.device)
            logits = self._model(input_ids=ids, logits_to_keep=len(answer) + 1).logits[0, :-1].float()
        chances, tokens = torch.log_softmax(logits, -1).topk(self._recipe.top, -1)
        return tokens, chances

    def _loss(self, batch: Sequence[_Encoded]) -> torch.Tensor:
        """Return the mean loss over a batch's exercises."""
        with self._halved():
            return self._loss_of(batch)

    def _loss_of(self, batch: Sequence[_Encoded]) -> torch.Tensor:
        answers = [len(each.ids) - each.begin for each in batch]
        same = self._shared(batch)
        cache = self._begun(batch[0].ids[:same], len(batch)) if same else None
        ids, there = self._padded([each.ids[same:] for each in batch])
        # Only at answers' places: the vocabulary is a fifth of a small model's work.
        told = self._model(
            input_ids=ids, attention_mask=functional.pad(there, (same, 0), value=1),
            position_ids=same + (there.cumsum(-1) - 1).clamp(min=0), past_key_values=cache,
            use_cache=cache is not None, logits_to_keep=max(answers) + 1,
        )  # fmt: skip
        total = told.logits.new_zeros((), dtype=torch.float32)
        for row, (each, count) in enumerate(zip(batch, answers, strict=True)):
            mine = told.logits[row, -count - 1 : -1].float()
            if not each.replayed:
                total = total + functional.cross_entropy(mine, ids[row, -count:])
            if each.tokens is not None and each.chances is not None:
                weight = self._recipe.replay if each.replayed else self._recipe.imitation
                total = total + weight * _distance(mine, each.tokens, each.chances)
        return total / len(batch)

    def _shared(self, batch: Sequence[_Encoded]) -> int:
        """Return how many tokens all prompts of a batch begin with, 0 where that cannot be computed once."""
        if not self._shares:
            return 0
        most = min(each.begin for each in batch) - 1
        columns = zip(*(each.ids[:most] for each in batch), strict=True)
        return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))

    def _begun(self, ids: list[int], rows: int) -> DynamicCache:
        """Return what all prompts of a batch begin with, computed once: gradients flow through it as through all."""
        cache = DynamicCache()
        self._model(
            input_ids=torch.tensor([ids], device=self._loaded.model.device), past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip
        for layer in cache.layers:
            layer.keys, layer.values = (each.expand(rows, -1, -1, -1) for each in (layer.keys, layer.values))
        return cache

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return prompts as (prompts, tokens) of ids, padded on the left, and which of them are there."""
        shape = (len(prompts), max(map(len, prompts)))
        ids, there = (torch.zeros(shape, dtype=torch.long, device=self._loaded.model.device) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, -len(prompt) :] = torch.tensor(prompt)
            there[row, -len(prompt) :] = 1
        return ids, there

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _continued(self, prompts: Sequence[list[int]], most: int) -> list[list[int]]:
        """Return the likeliest next tokens of several prompts, padded on the left."""
        ids, there = self._padded(prompts)
        made = self._model.generate(
            input_ids=ids, attention_mask=there, max_new_tokens=most, do_sample=False, num_beams=1,
            temperature=None, top_p=None, top_k=None, eos_token_id=sorted(self._loaded.ends), pad_token_id=self._end,
        )  # fmt: skip
        return [
            list(takewhile(lambda token: token not in self._loaded.ends, map(int, row[ids.shape[1] :]))) for row in made
        ]

    def _halved(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self._half)

    @contextmanager
    def _with(self, *, adapter: bool) -> Iterator[None]:
        self._model.eval()
        try:
            if adapter:
                yield
            else:
                with self._model.disable_adapter():
                    yield
        finally:
            self._model.train(self._checkpointing)


def _sees_all(model: Any) -> bool:
    """Say whether every layer attends to all that came before, as far back as it is."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds == {"full_attention"} if kinds else not getattr(config, "sliding_window", None)


def _distance(logits: torch.Tensor, tokens: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """Return the mean divergence from a teacher over its likeliest tokens and all the others as one."""
    mine = torch.log_softmax(logits, -1).gather(-1, tokens)
    rest = torch.log1p(-chances.exp().sum(-1).clamp(max=1 - 1e-6))
    my_rest = torch.log1p(-mine.exp().sum(-1).clamp(max=1 - 1e-6))
    of_likely = (chances.exp() * (chances - mine)).sum(-1)
    return (of_likely + rest.exp() * (rest - my_rest)).mean()


def _batches(encoded: Sequence[_Encoded], size: int, chance: random.Random) -> list[list[_Encoded]]:
    """Return batches in a random order, each of prompts of about one length, so that little of it is padding.

    Plain texts, which begin as no prompt does, have batches of their own.
    """
    order = list(encoded)
    chance.shuffle(order)
    order.sort(key=lambda each: len(each.ids) // 12)
    kinds = [each for each in order if each.begin > 1], [each for each in order if each.begin == 1]
    batches = [kind[begin : begin + size] for kind in kinds for begin in range(0, len(kind), size)]
    chance.shuffle(batches)
    return batches


def _share(step: int, steps: int) -> float:
    """Return the share of the learning rate at a step: it rises at first, then falls along half a cosine."""
    warm = max(1, int(steps * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _targets(model: Any, recipe: Recipe) -> list[str] | str:
    """Return the ends of the names of the layers that the adapter is put on; peft finds all linear ones itself."""
    if recipe.layers == "all":
        return "all-linear"
    named = [name for name, module in model.named_modules() if not list(module.children())]
    found = {name.rpartition(".")[2] for name in named if ".mlp." in f".{name}" and not name.endswith(_NO_LINEAR)}
    return sorted(found) or "all-linear"
