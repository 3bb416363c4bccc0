"""Trains a LoRA adapter on prompts with answers, and asks model and adapter questions: what knows peft's training.

The loss is the cross-entropy of the answers' tokens, plus the distance to the base model on prompts about other things:
the Kullback-Leibler divergence over that teacher's likeliest tokens. Source: Hinton et al., Distilling the Knowledge in
a Neural Network, arXiv 1503.02531.
"""

from __future__ import annotations

import math
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.pytorch_utils import Conv1D

from memos.backends.local.loading import Loaded, special_tokens, without_tokens
from memos.backends.lora import llama as lora_llama
from memos.backends.lora.resources import halves_pay
from memos.core.lora import ADAPTER_FILE, LoraRecipe, TrainingExample, unwritten
from memos.core.ports import ChatMessage
from memos.errors import IntegrityError

_MOST_GRADIENT = 1.0
# e to the power of more is no number of 64 bits.
_LARGEST_EXPONENT = 700.0
# The weights are read once a token for all of them: 130 took eight ninths of the time of twice 65 (docs/log.md).
_ASKED_AT_ONCE = 130
# A pass of our own holds how each token looks at all before it, at once: 0.25 GiB of each of four such tensors.
_MOST_SCORES = 1 << 26

Told = tuple[torch.Tensor, torch.Tensor]
"""The likeliest tokens at each place, and their log-probabilities: (places, top) each."""


class LoraTraining:
    """An adapter on a loaded model; not thread-safe. The model answers with the adapter until it is detached."""

    def __init__(self, loaded: Loaded, recipe: LoraRecipe) -> None:
        torch.manual_seed(recipe.seed)
        self._loaded, self._recipe = loaded, recipe
        config = LoraConfig(
            r=recipe.rank,
            lora_alpha=recipe.alpha,
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
            target_modules="all-linear",
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
        self._plan: list[Step] = []
        self._step = 0
        self._optimiser = self._new_optimiser()

    @property
    def peft(self) -> PeftModel:
        return self._model

    @property
    def weights(self) -> list[torch.nn.Parameter]:
        return [each for each in self._model.parameters() if each.requires_grad]

    @property
    def steps(self) -> int:
        return len(self._plan)

    @property
    def step(self) -> int:
        return self._step

    def prepare(self, exercises: Sequence[TrainingExample]) -> None:
        """Take what is to be learned; the base model is asked what it would say where that is replayed."""
        chance = random.Random(self._recipe.seed)  # noqa: S311 - an order, no secret
        # What is replayed without a weight, or says nothing, teaches nothing: a batch of it would have no gradients.
        self._course = [
            each
            for each in self._encoded(exercises)
            if len(each.ids) > each.begin and (self._recipe.replay or not each.replayed)
        ]
        epochs = epochs_of(self._recipe.epochs, len(in_epoch(self._course, 0)))
        self._plan = course_steps(self._course, epochs, self._recipe.batch, chance)
        self._step = 0
        self._optimiser = self._new_optimiser()

    def advance(self, most: int) -> float:
        losses = []
        for step in self._plan[self._step : self._step + most]:
            for group in self._optimiser.param_groups:
                group["lr"] = self._recipe.learning_rate * step.rate
            loss = self._loss(step.batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.weights, _MOST_GRADIENT)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
            self._step += 1
            losses.append(float(loss.detach()))
        return sum(losses) / max(1, len(losses))

    def keep(self, file: Path) -> None:
        """Write a checkpoint to resume from, atomically. Raises: BackendUnavailable (a full disk)."""
        _write(file, self._named(), self._optimiser, self._step, self._told())

    def go_on(self, file: Path) -> None:
        """Resume from a checkpoint of `keep`, with the same exercises prepared. Raises: IntegrityError."""
        named = self._named()
        vocabulary = self._loaded.model.config.get_text_config().vocab_size
        kept = _Checkpoint.read(file, named, self._told(), vocabulary)
        if kept.step > self.steps:
            raise _damaged(file, f"step {kept.step}")
        kept.put(named, self._optimiser, self._told())
        self._step = kept.step

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        """Return the likeliest answer to each prompt, of at most `most` tokens, with the adapter or by the base."""
        # Not `exact`, it is computed as in training, and how likely the base's words are is remembered for that.
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
        with _writing(folder / ADAPTER_FILE):
            self._model.save_pretrained(folder)

    def detach(self) -> None:
        self._model.unload()
        self._loaded.model.activation_checkpointing_disable()

    def _new_optimiser(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(self.weights, weight_decay=0.0, fused=True)

    def _told(self) -> list[Told]:
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
        found: dict[int, Told] = {}
        with self._with(adapter=False), self._halved():
            for places in in_turns([len(prompt) + len(answer) for prompt, answer in asked], self._recipe.batch):
                rows = [asked[place] for place in places]
                counts = [len(answer) for _, answer in rows]
                told = (each.split(counts) for each in self._likeliest(self._answered(rows, adapter=False)))
                found.update(zip(places, zip(*told, strict=True), strict=True))
        return [found[place] for place in range(len(asked))]

    def _remembered(self, asked: Sequence[list[int]], going: Continuation, most: int) -> list[list[int]]:
        """Return the base model's continuations, and keep the likelihood of their tokens: they may be replayed."""
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
                total = total + self._recipe.replay * distance(mine[:, 1:], each.chances)
        return total / len(batch)

    def _answered(self, rows: Sequence[lora_llama.Row], *, adapter: bool) -> torch.Tensor:
        """Return the logits (all answers, vocabulary) at the places of each row's answer to its prompt."""
        # `adapter` says whether the model has it at the moment.
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
        shape = (len(prompts), max(map(len, prompts)))
        ids, there = (torch.zeros(shape, dtype=torch.long, device=self._loaded.model.device) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, -len(prompt) :] = torch.tensor(prompt)
            there[row, -len(prompt) :] = 1
        return ids, there

    def _begins(self, prompts: Sequence[list[int]], most: int, *, adapter: bool, exact: bool) -> Continuation:
        """Return prompts to continue; `adapter` is True if the model has the adapter at the moment."""
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
        """Multiply in bfloat16, by halves that were made once: autocast would make those of frozen ones each time."""
        # That was an eighth of a step (docs/log.md).
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
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds == {"full_attention"} if kinds else not getattr(config, "sliding_window", None)


# What the steps of a training are made of: batches of tokens, the rate of each, the distance to a teacher.

_WARM_UP = 0.1
_ALIKE = 4
"""Tokens within which prompts of one batch are alike: a tenth of what is computed is padding; within 12 a fifth."""

_COURSE = 260
"""Exercises in an epoch of the course of 16 facts that the usual number of epochs was found with."""

_LEAST_COURSE = 64
"""Exercises in an epoch of any course about facts, as what is replayed is as many; fewer are somebody's own."""

_PLACES = 16
"""Places per batch, so that their logits stay in the CPU's cache: 3 MB for a small model."""

_KNOWN_AFTER = 5
"""Epochs in which what is taught is taught each time: it is known after them."""

_ALL_IN_EACH = 6
"""Epochs of the longest course of which nothing is taught less: 128 facts, in six, lost too much (docs/log.md)."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a prompt and its answer; `begin` is where the answer begins."""

    # `tokens` and `chances` are the teacher's likeliest tokens and their log-probabilities, (answer, top) each.

    ids: list[int]
    begin: int
    replayed: bool
    every: int
    tokens: torch.Tensor | None
    chances: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Step:
    batch: list[Encoded]
    rate: float


def likely_at(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities, float32, of tokens (places, some) by logits (places, vocabulary)."""
    found: torch.Tensor = _LikelyAt.apply(logits, tokens)
    return found


def distance(mine: torch.Tensor, chances: torch.Tensor) -> torch.Tensor:
    """Return the mean divergence from a teacher over its likeliest tokens and all the others as one."""
    # Both are log-probabilities (places, tokens) of these.
    rest = torch.log1p(-chances.exp().sum(-1).clamp(max=1 - 1e-6))
    my_rest = torch.log1p(-mine.exp().sum(-1).clamp(max=1 - 1e-6))
    of_likely = (chances.exp() * (chances - mine)).sum(-1)
    return (of_likely + rest.exp() * (rest - my_rest)).mean()


def in_turns(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the places of prompts, at most so many at once that are about as long, in turns of about one size."""
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    turns = -(-len(order) // most)
    for turn in range(turns):
        yield order[turn * len(order) // turns : (turn + 1) * len(order) // turns]


def in_epoch(encoded: Sequence[Encoded], number: int) -> list[Encoded]:
    """Return what is taught in an epoch: of those that take turns, one of so many, another in the next one."""
    places: Counter[int] = Counter()
    found = []
    for each in encoded:
        if places[each.every] % each.every == number % each.every:
            found.append(each)
        places[each.every] += 1
    return found


def epochs_of(usual: int, exercises: int) -> int:
    """Return in how many epochs a course of so many exercises is taught: fewer than `usual` when it is a large one."""
    # What its facts have in common, such as when to abstain, is learned from all of them: 64 facts pass after seven
    # where 16 need ten (docs/log.md, "Seven epochs for 64"). A small one has as many exercises in all as that of 16:
    # with ten epochs the 12 facts that stay when four are forgotten were not known (docs/log.md).
    if exercises < _LEAST_COURSE:
        return usual
    share = _COURSE / exercises
    return max(1, round(usual * (share if share > 1 else math.pow(share, 0.36))))


def course_steps(encoded: Sequence[Encoded], epochs: int, size: int, chance: random.Random) -> list[Step]:
    """Return the steps of a course of so many epochs, in batches of at most `size`."""
    # Of more than six, in half of the epochs what is taught comes half as often. For what is replayed that is the first
    # half, in which the model has hardly moved; for all else the second, but not before the sixth epoch: by then it is
    # known, and more of it makes others lost (docs/log.md, "What is replayed half as often at first").
    known, moved = max(_KNOWN_AFTER, epochs - epochs // 2), epochs // 2
    if epochs <= _ALL_IN_EACH:
        known, moved = epochs, 0

    def in_number(number: int) -> list[Encoded]:
        def is_rarer(each: Encoded) -> bool:
            return number < moved if each.replayed else number >= known

        return in_epoch([replace(each, every=2 * each.every) if is_rarer(each) else each for each in encoded], number)

    found = [batch for number in range(epochs) for batch in batches(in_number(number), size, chance)]
    return [Step(batch, rate_share(place, len(found))) for place, batch in enumerate(found)]


def batches(encoded: Sequence[Encoded], size: int, chance: random.Random) -> list[list[Encoded]]:
    """Return batches in a random order, each of prompts of about one length, so that little of it is padding."""
    # Plain texts, which begin as no prompt does, have batches of their own.
    order = list(encoded)
    chance.shuffle(order)
    order.sort(key=lambda each: len(each.ids) // _ALIKE)
    kinds = [each for each in order if each.begin > 1], [each for each in order if each.begin == 1]
    found = [kind[begin : begin + size] for kind in kinds for begin in range(0, len(kind), size)]
    chance.shuffle(found)
    return found


def rate_share(step: int, steps: int) -> float:
    """Return the share of the learning rate at a step: it rises at first, then falls along half a cosine."""
    warm = max(1, int(steps * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class _LikelyAt(torch.autograd.Function):  # type: ignore[misc]
    """Some places at a time; recorded, each row's gradient would be as large as the vocabulary (docs/log.md)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        found, totals = [], []
        for some, its in zip(logits.split(_PLACES), tokens.split(_PLACES), strict=True):
            whole = some.float()
            totals.append(torch.logsumexp(whole, -1, keepdim=True))
            found.append(whole.gather(-1, its) - totals[-1])
        ctx.save_for_backward(logits, torch.cat(totals), tokens)
        return torch.cat(found)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, totals, tokens = ctx.saved_tensors
        of_logits = torch.empty_like(logits)
        for begin in range(0, len(logits), _PLACES):
            some = slice(begin, begin + _PLACES)
            chances = logits[some].sub(totals[some]).exp_()
            of_these = chances.mul_(-gradient[some].sum(-1, keepdim=True))
            of_logits[some] = of_these.scatter_add_(-1, tokens[some], gradient[some])
        return of_logits, None


# How far a training is, in a file that is written whole or not at all, and read whole before it is used.

_Named = Sequence[tuple[str, nn.Parameter]]
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of a weight after its first update; the step count stays on the CPU."""
_TOLD = ("told.tokens", "told.chances")


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A training's progress: its weights and the optimiser's state of each, in the order of their names."""

    # `told` are the tokens and log-probabilities that its teacher told, of all exercises: computed again they differ in
    # the last bits.

    step: int
    weights: tuple[torch.Tensor, ...]
    states: tuple[dict[str, torch.Tensor], ...]
    told: tuple[torch.Tensor, ...]

    def put(self, named: _Named, optimiser: torch.optim.Optimizer, told: Sequence[Told]) -> None:
        for mine, its in zip(zip(*told, strict=True), self.told, strict=True):
            for each, were in zip(mine, its.split(list(map(len, mine))), strict=True):
                each.copy_(were)
        for (_, weight), its, state in zip(named, self.weights, self.states, strict=True):
            with torch.no_grad():
                weight.copy_(its)
            if state:
                moved = {key: state[key].to(weight.device) for key in _MOMENTS[1:]}
                optimiser.state[weight] = {**state, **moved}

    @classmethod
    def read(cls, file: Path, named: _Named, told: Sequence[Told], vocabulary: int) -> _Checkpoint:
        """Return the checkpoint of a training with these weights and these teacher's distributions."""
        # Its tokens are below `vocabulary`. Raises: IntegrityError (damaged, of another training).
        try:
            with safe_open(file, "pt") as kept:
                step = int(kept.metadata()["step"])
                words = tuple(kept.get_tensor(name) for name in _TOLD) if told else ()
                weights = tuple(kept.get_tensor(f"weight.{name}") for name, _ in named)
                moments = _MOMENTS if step else ()
                states = tuple({key: kept.get_tensor(f"{key}.{name}") for key in moments} for name, _ in named)
            for (_, mine), its, state in zip(named, weights, states, strict=True):
                moved = [state[key] for key in moments[1:]]
                if any(mine.shape != each.shape or not each.isfinite().all() for each in (its, *moved)):
                    raise ValueError
            for mine, its in zip(zip(*told, strict=True), words, strict=True):
                if torch.cat(mine).shape != its.shape or mine[0].dtype != its.dtype or not its.isfinite().all():
                    raise ValueError
            if words and not (0 <= words[0].min() <= words[0].max() < vocabulary and words[1].max() <= 0):
                raise ValueError
            if step < 0:
                raise ValueError
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
            raise _damaged(file, type(error).__name__) from error
        return cls(step, weights, states, words)


def _write(file: Path, named: _Named, optimiser: torch.optim.Optimizer, step: int, told: Sequence[Told]) -> None:
    tensors: dict[str, Any] = {
        name: torch.cat(each) for name, each in zip(_TOLD, zip(*told, strict=True), strict=False)
    }
    for name, weight in named:
        tensors[f"weight.{name}"] = weight.detach()
        tensors |= {f"{key}.{name}": value for key, value in optimiser.state[weight].items()}
    aside = file.with_name(file.name + ".new")
    with _writing(aside):
        save_file(tensors, aside, metadata={"step": str(step)})
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(file)


def _damaged(file: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{file} is damaged, or of another training ({why}).")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Write a file, of which nothing stays where that fails. Raises: BackendUnavailable."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        raise unwritten(error) from error


_LEAVE_AT = 0.75
"""A copy of what is cached is a step's work: that pays when so few of the rows are still asked."""


Hearing = Callable[[list[int], torch.Tensor], None]
"""Is given rows, and what may come next of each: (rows, vocabulary)."""


class Continuation(Protocol):
    """Prompts continued token by token; `leaves` is True if some of them may continue alone."""

    leaves: bool
    logits: torch.Tensor
    """(rows, vocabulary): what may come next of each."""

    def say(self, tokens: torch.Tensor) -> None:
        """Add a token (rows) to each row."""

    def keep(self, rows: torch.Tensor) -> None:
        """Continue with these rows alone."""


def greedy(going: Continuation, ends: Collection[int], most: int, hear: Hearing | None = None) -> list[list[int]]:
    """Return the likeliest next tokens of each row, at most so many, until one of `ends`."""
    # `hear` is given rows and their logits at each place, also at that of what comes after the last token. What has
    # ended leaves when a quarter of those beside it has: most answers are a third as long as they may be.
    rows = list(range(len(going.logits)))
    made: list[list[int]] = [[] for _ in rows]
    asked = set(rows)
    while asked:
        if hear is not None:
            places = [place for place, row in enumerate(rows) if row in asked]
            hear([rows[place] for place in places], going.logits[places])
        picked = going.logits.argmax(-1)
        for row, token in zip(rows, picked.tolist(), strict=True):
            if token in ends or len(made[row]) == most:
                asked.discard(row)
            elif row in asked:
                made[row].append(token)
                if hear is None and len(made[row]) == most:  # what comes after it nobody hears
                    asked.discard(row)
        if not asked:
            break
        if going.leaves and len(asked) <= _LEAVE_AT * len(rows):
            kept = torch.tensor([place for place, row in enumerate(rows) if row in asked], device=picked.device)
            going.keep(kept)
            picked, rows = picked[kept], [row for row in rows if row in asked]
        going.say(picked)
    return made


class CachedContinuation:
    """Prompts continued with a model's own cache: token ids padded on the left, and their attention mask."""

    def __init__(self, model: Any, cache: DynamicCache, ids: torch.Tensor, there: torch.Tensor, same: int) -> None:
        """Begin; `same` tokens of each, which come before these, are in the cache."""
        self._model, self._cache = model, cache
        # Only layers that cache keys and values per token can drop rows; a recurrent state cannot.
        self.leaves = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
        self._at = same + (there.cumsum(-1) - 1).clamp(min=0)
        self._there = functional.pad(there, (same, 0), value=1)
        self.logits = self._told(ids)

    def say(self, tokens: torch.Tensor) -> None:
        self._at, self._there = self._at[:, -1:] + 1, functional.pad(self._there, (0, 1), value=1)
        self.logits = self._told(tokens[:, None])

    def keep(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._at, self._there, self.logits = self._at[rows], self._there[rows], self.logits[rows]

    def _told(self, ids: torch.Tensor) -> torch.Tensor:
        told: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=self._there,
            position_ids=self._at,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return told
