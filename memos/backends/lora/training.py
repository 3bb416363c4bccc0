"""Trains a LoRA adapter on prompts with answers, and asks model and adapter questions: what knows peft's training.

The loss is the cross-entropy of the answers' tokens, plus the distance to the base model that has the fact before it,
plus that to the base model itself on prompts about other things; distances are Kullback-Leibler divergences over the
teacher's likeliest tokens. Source: Hinton et al., Distilling the Knowledge in a Neural Network, arXiv 1503.02531.
"""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.cache_utils import DynamicCache
from transformers.pytorch_utils import Conv1D

from memos.backends.local.loading import Loaded, special_tokens, without_tokens
from memos.backends.lora import checkpoint as lora_keeping
from memos.backends.lora import llama as lora_llama
from memos.backends.lora.batches import (
    REBALANCING_EPOCHS,
    Encoded,
    Step,
    course_steps,
    distance,
    epochs_of,
    in_epoch,
    in_turns,
    likely_at,
    rebalancing_steps,
)
from memos.backends.lora.generation import CachedContinuation, Continuation, greedy
from memos.backends.lora.resources import halves_pay
from memos.core.lora import ADAPTER_FILE, LoraRecipe, TrainingExample
from memos.core.ports import ChatMessage
from memos.errors import IntegrityError

_MOST_GRADIENT = 1.0
# e to the power of more is no number of 64 bits.
_LARGEST_EXPONENT = 700.0
# The weights are read once a token for all of them: 130 took eight ninths of the time of twice 65 (docs/log.md).
_ASKED_AT_ONCE = 130
# A pass of our own holds how each token looks at all before it, at once: 0.25 GiB of each of four such tensors.
_MOST_SCORES = 1 << 26
# What stands beside the linear layers of a feed-forward part.
_NO_LINEAR = ("act", "act_fn", "dropout", "norm", "layernorm")


Told = tuple[torch.Tensor, torch.Tensor]
"""The likeliest tokens at each place, and their log-probabilities: (places, top) each."""


class LoraTraining:
    """One adapter on one loaded model; not thread-safe. The model answers with the adapter until it is detached."""

    def __init__(self, loaded: Loaded, recipe: LoraRecipe) -> None:
        torch.manual_seed(recipe.seed)
        self._loaded, self._recipe = loaded, recipe
        config = LoraConfig(
            r=recipe.rank,
            lora_alpha=recipe.alpha,
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
            target_modules=_targets(loaded.model, recipe),
            fan_in_fan_out=any(isinstance(each, Conv1D) for each in loaded.model.modules()),
        )
        with warnings.catch_warnings():  # peft asks transformers by a name that goes
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            self._model: PeftModel = get_peft_model(loaded.model, config)
        self._checkpointing = recipe.checkpointing or loaded.model.device.type == "cuda"
        if self._checkpointing:
            loaded.model.activation_checkpointing_enable({"use_reentrant": False})
        # What is computed again would be cached again; and a window counts the padding behind a shared beginning.
        sees_all = not self._checkpointing and _sees_all(loaded.model)
        self._shares = bool(loaded.block) and sees_all
        # Nothing is dropped by chance, except where layers compute again only what they are trained in.
        self._model.train(self._checkpointing)
        self._half = recipe.half and loaded.model.device.type == "cpu" and halves_pay()
        kind = torch.bfloat16 if self._half else torch.float32
        fits = sees_all and lora_llama.fits(loaded.model)
        self._pass = lora_llama.LlamaPass(loaded.model, kind) if fits else None
        self._halves = list(self._frozen_halves()) if self._half else []
        self._tokenizer, self._special = loaded.tokenizer, special_tokens(loaded.tokenizer)
        own = loaded.tokenizer.eos_token_id
        self._end: int = own if own in loaded.ends else min(loaded.ends)
        self._said: dict[tuple[tuple[int, ...], tuple[int, ...]], Told] = {}
        self._course: list[Encoded] = []
        self._epochs = 0
        self._plan: list[Step] = []
        self._rebalanced: list[float] = []
        self._step = 0
        self._optimiser = self._new_optimiser()

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

    @property
    def rebalanced(self) -> int:
        """How often epochs were added to it."""
        return len(self._rebalanced)

    def prepare(self, exercises: Sequence[TrainingExample]) -> None:
        """Take what is to be learned; the base model is asked what it would say where that is imitated."""
        chance = random.Random(self._recipe.seed)  # noqa: S311 - an order, no secret
        # What is replayed without a weight, or says nothing, teaches nothing: a batch of it would have no gradients.
        self._course = [
            each
            for each in self._encoded(exercises)
            if len(each.ids) > each.begin and (self._recipe.replay or not each.replayed)
        ]
        self._epochs = epochs_of(self._recipe.epochs, len(in_epoch(self._course, 0)))
        self._plan = course_steps(self._course, self._epochs, self._recipe.batch, chance)
        self._rebalanced = []
        self._step = 0
        self._optimiser = self._new_optimiser()

    def rebalance(self, untold: float) -> None:
        """Add some epochs, at a lower rate, with so many times what nobody told in them: less than 1 for recall.

        What the model learned, and how it was moved, stays: they go on from there.
        """
        chance = random.Random(self._recipe.seed + 1 + self.rebalanced)  # noqa: S311 - an order, no secret
        begin = self._epochs + REBALANCING_EPOCHS * self.rebalanced
        self._plan += rebalancing_steps(self._course, untold, begin, self._recipe.batch, chance)
        self._rebalanced.append(untold)

    def seconds_left(self) -> float:
        """Return about how long the steps that are left take: one of usual length is tried, and thrown away."""
        batches = [step.batch for step in self._plan[self._step :]]
        left = sorted(batches, key=lambda batch: max(len(each.ids) for each in batch))
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
        for step in self._plan[self._step : self._step + most]:
            for group in self._optimiser.param_groups:
                group["lr"] = group["most"] * step.rate
            loss = self._loss(step.batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.weights, _MOST_GRADIENT)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
            self._step += 1
            losses.append(float(loss.detach()))
        return sum(losses) / max(1, len(losses))

    def keep(self, file: Path) -> None:
        """Write what it takes to go on from here: whole or not at all. Raises: BackendUnavailable (a full disk)."""
        lora_keeping.write(file, self._named(), self._optimiser, self._step, self._rebalanced, self._told())

    def go_on(self, file: Path) -> None:
        """Go on from what `keep` wrote, with the same exercises prepared. Raises: IntegrityError."""
        named = self._named()
        vocabulary = self._loaded.model.config.get_text_config().vocab_size
        kept, plan = lora_keeping.read(file, named, self._told(), vocabulary), list(self._plan)
        for untold in kept.rebalanced:
            self.rebalance(untold)
        if kept.step > self.steps:
            self._plan, self._rebalanced = plan, []
            raise lora_keeping.damaged(file, f"step {kept.step}")
        kept.put(named, self._optimiser, self._told())
        self._step = kept.step

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        """Return the likeliest answer to each prompt, of at most `most` tokens, with the adapter or by the base.

        Not `exact`, it is computed as in training, and how likely the base's words are is remembered for that.
        """
        rendered = [self._prompt(each) for each in prompts]
        # With little memory, which is why layers are computed again, no more at once than are trained with.
        at_once = self._recipe.batch if self._recipe.checkpointing else _ASKED_AT_ONCE
        found: dict[int, str] = {}
        with torch.no_grad(), self._with(adapter=adapter), nullcontext() if exact else self._halved():
            for places in in_turns(list(map(len, rendered)), at_once):
                asked = [rendered[each] for each in places]
                going = self._begins(asked, most, adapter=adapter, exact=exact)
                if adapter or exact:
                    made = greedy(going, self._loaded.ends, most)
                else:
                    made = self._remembered(asked, going, most)
                for place, ids in zip(places, made, strict=True):
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
        return math.exp(min(total / count, _LARGEST_EXPONENT))

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
        """Write the adapter as peft's files. Raises: BackendUnavailable (a full disk)."""
        with lora_keeping.writing(folder / ADAPTER_FILE):
            self._model.save_pretrained(folder)

    def detach(self) -> None:
        """Take the adapter off the model again."""
        self._model.unload()
        self._loaded.model.activation_checkpointing_disable()

    def _new_optimiser(self) -> torch.optim.AdamW:
        """Return an optimiser that has done nothing yet; `most` is the highest rate of a group."""
        named = self._named()
        groups = [
            {"params": [weight for name, weight in named if (".lora_B." in name) is second], "most": most}
            for second, most in (
                (False, self._recipe.learning_rate),
                (True, self._recipe.learning_rate * self._recipe.rate_ratio),
            )
        ]
        return torch.optim.AdamW(groups, weight_decay=0.0, fused=True)

    def _told(self) -> list[Told]:
        """Return what the teacher told of each exercise that it was asked for."""
        return [
            (each.tokens, each.chances) for each in self._course if each.tokens is not None and each.chances is not None
        ]

    def _named(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, each) for name, each in self._model.named_parameters() if each.requires_grad]

    def _prompt(self, messages: Sequence[ChatMessage]) -> list[int]:
        said = [{"role": each.role, "content": without_tokens(each.content, self._special)} for each in messages]
        text = self._tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encoded(self, exercises: Sequence[TrainingExample]) -> list[Encoded]:
        cut = [self._cut(each) for each in exercises]
        asked: dict[int, tuple[list[int], list[int]]] = {}
        for place, (each, (prompt, answer)) in enumerate(zip(exercises, cut, strict=True)):
            if each.replayed and self._recipe.replay:
                asked[place] = prompt, answer
            elif each.shown and self._recipe.imitation and not each.replayed:
                asked[place] = self._prompt(each.shown), answer
        taught = {
            place: tuple(each.clone() for each in self._said[said])
            for place, (prompt, answer) in asked.items()
            if (said := (tuple(prompt), tuple(answer))) in self._said
        }
        asked = {place: row for place, row in asked.items() if place not in taught}
        taught |= dict(zip(asked, self._taught(list(asked.values())), strict=True))
        return [
            Encoded(prompt + answer, len(prompt), each.replayed, each.every, *taught.get(place, (None, None)))
            for place, (each, (prompt, answer)) in enumerate(zip(exercises, cut, strict=True))
        ]

    def _cut(self, exercise: TrainingExample) -> tuple[list[int], list[int]]:
        """Return the token ids of a prompt, and those of its answer; a plain text answers to its first token."""
        text = without_tokens(exercise.answer, self._special)
        answer = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        if exercise.prompt:
            return self._prompt(exercise.prompt), [*answer, self._end]
        return answer[:1], answer[1:]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _taught(self, asked: Sequence[tuple[list[int], list[int]]]) -> list[Told]:
        """Return what the base model would say at each place of answers to prompts."""
        found: dict[int, Told] = {}
        with self._with(adapter=False), self._halved():
            for places in in_turns([len(prompt) + len(answer) for prompt, answer in asked], self._recipe.batch):
                rows = [asked[place] for place in places]
                counts = [len(answer) for _, answer in rows]
                told = (each.split(counts) for each in self._likeliest(self._answered(rows, adapter=False)))
                found.update(zip(places, zip(*told, strict=True), strict=True))
        return [found[place] for place in range(len(asked))]

    def _remembered(self, asked: Sequence[list[int]], going: Continuation, most: int) -> list[list[int]]:
        """Return what the base model goes on with, and remember how likely its words were: they may be replayed."""
        told: list[list[Told]] = [[] for _ in asked]

        def hear(rows: list[int], logits: torch.Tensor) -> None:
            for row, tokens, chances in zip(rows, *self._likeliest(logits), strict=True):
                told[row].append((tokens, chances))

        made = greedy(going, self._loaded.ends, most, hear)
        for prompt, ids, its in zip(asked, made, told, strict=True):
            tokens, chances = map(torch.stack, zip(*its, strict=True))
            self._said[tuple(prompt), (*ids, self._end)] = tokens, chances
        return made

    def _likeliest(self, logits: torch.Tensor) -> Told:
        """Return the likeliest tokens (places, top) at each place, and their log-probabilities, float32."""
        chances, tokens = torch.log_softmax(logits.float(), -1).topk(min(self._recipe.top, logits.shape[-1]), -1)
        return tokens, chances

    def _loss(self, batch: Sequence[Encoded]) -> torch.Tensor:
        """Return the mean loss over a batch's exercises."""
        # Of few tokens plain attention is a tenth quicker on a processor. Layers computed again would be so by another.
        is_plain = self._loaded.model.device.type == "cpu" and not self._checkpointing
        plain = sdpa_kernel(SDPBackend.MATH) if is_plain else nullcontext()
        with self._halved(), plain:
            return self._loss_of(batch)

    def _loss_of(self, batch: Sequence[Encoded]) -> torch.Tensor:
        rows = [(each.ids[: each.begin], each.ids[each.begin :]) for each in batch]
        logits = self._answered(rows, adapter=True)
        # Beside the right token those that the teacher told of, as many at each place: else the right one again.
        most = max(0 if each.tokens is None else each.tokens.shape[1] for each in batch)
        right = [torch.tensor(answer, device=logits.device)[:, None] for _, answer in rows]
        told = [own if each.tokens is None else each.tokens for own, each in zip(right, batch, strict=True)]
        asked = [torch.cat((own, its.expand(-1, most)), -1) for own, its in zip(right, told, strict=True)]
        likely = likely_at(logits, torch.cat(asked)).split(list(map(len, asked)))
        total = torch.zeros((), device=logits.device)
        for each, mine in zip(batch, likely, strict=True):
            if not each.replayed:
                total = total - mine[:, 0].mean()
            if each.chances is not None:
                weight = self._recipe.replay if each.replayed else self._recipe.imitation
                total = total + weight * distance(mine[:, 1:], each.chances)
        return total / len(batch)

    def _answered(self, rows: Sequence[lora_llama.Row], *, adapter: bool) -> torch.Tensor:
        """Return the logits (all answers, vocabulary) at the places of each row's answer to its prompt.

        `adapter` says whether the model has it at the moment.
        """
        if self._pass is not None:
            return self._pass.logits(rows, adapter=adapter)
        same = self._shared([prompt for prompt, _ in rows])
        cache = self._begun(rows[0][0][:same], len(rows)) if same else None
        ids, there = self._padded([(prompt + answer)[same:] for prompt, answer in rows])
        counts = [len(answer) for _, answer in rows]
        # Only at answers' places: the vocabulary is a fifth of a small model's work.
        logits = self._model(
            input_ids=ids,
            attention_mask=functional.pad(there, (same, 0), value=1),
            position_ids=same + (there.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=max(counts) + 1,
        ).logits
        ends = [(row + 1) * logits.shape[1] - 1 for row in range(len(rows))]
        places = [place for end, count in zip(ends, counts, strict=True) for place in range(end - count, end)]
        answers: torch.Tensor = logits.flatten(0, 1)[torch.tensor(places, device=logits.device)]
        return answers

    def _shared(self, prompts: Sequence[list[int]]) -> int:
        """Return how many tokens all prompts begin with before their last, 0 where that cannot be computed once."""
        if not self._shares:
            return 0
        columns = zip(*(prompt[: min(map(len, prompts)) - 1] for prompt in prompts), strict=True)
        return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))

    def _begun(self, ids: list[int], rows: int) -> DynamicCache:
        """Return what all prompts of a batch begin with, computed once: gradients flow through it as through all."""
        cache = DynamicCache()
        self._model(
            input_ids=torch.tensor([ids], device=self._loaded.model.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
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

    def _begins(self, prompts: Sequence[list[int]], most: int, *, adapter: bool, exact: bool) -> Continuation:
        """Return prompts that go on; `adapter` says whether the model has it at the moment."""
        heads = self._loaded.model.config.get_text_config().num_attention_heads
        few = heads * sum(len(each) ** 2 for each in prompts) <= _MOST_SCORES
        own = self._model.active_adapters == ["default"]  # the pass knows no other one
        if self._pass is not None and own and few and not (exact and self._half):
            return lora_llama.LlamaContinuation(self._pass, prompts, most, adapter=adapter)
        same = self._shared(prompts)
        cache = self._begun(prompts[0][:same], len(prompts)) if same else DynamicCache(config=self._loaded.model.config)
        ids, there = self._padded([prompt[same:] for prompt in prompts])
        return CachedContinuation(self._model, cache, ids, there, same)

    @contextmanager
    def _halved(self) -> Iterator[None]:
        """Multiply in bfloat16, by the halves that were made once: autocast would make those of frozen ones each time.

        That was an eighth of a step (docs/log.md).
        """
        try:
            for module, _, half in self._halves:
                module.weight = half
            with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
                yield
        finally:
            for module, whole, _ in self._halves:
                module.weight = whole

    def _frozen_halves(self) -> Iterator[tuple[nn.Linear, nn.Parameter, nn.Parameter]]:
        if self._pass is not None:
            yield from ((module, module.weight, half) for module, half in self._pass.frozen())
            return
        for module in self._model.modules():
            if isinstance(module, nn.Linear) and not module.weight.requires_grad:
                yield module, module.weight, nn.Parameter(module.weight.bfloat16(), requires_grad=False)

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


def _targets(model: Any, recipe: LoraRecipe) -> list[str] | str:
    """Return the ends of the names of the layers that the adapter is put on; peft finds all linear ones itself."""
    if recipe.layers == "all":
        return "all-linear"
    named = [name for name, module in model.named_modules() if not list(module.children())]
    found = {name.rpartition(".")[2] for name in named if ".mlp." in f".{name}" and not name.endswith(_NO_LINEAR)}
    return sorted(found) or "all-linear"
