"""Trains a LoRA adapter on prompts with answers, and generates answers with it and with the base model.

The loss is the cross-entropy of the answers' tokens, plus the Kullback-Leibler divergence from the base model on
prompts about other things, over that teacher's likeliest tokens. Source: Hinton et al., Distilling the Knowledge in a
Neural Network, arXiv 1503.02531.
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
from memos.backends.lora.resources import bfloat16_pays
from memos.core.lora import ADAPTER_FILE, LoraRecipe, TrainingExample, unwritten
from memos.core.ports import ChatMessage
from memos.errors import IntegrityError

_MAX_GRADIENT_NORM = 1.0
# exp of more overflows a 64-bit float.
_LARGEST_EXPONENT = 700.0
# The weights are read once per token for the whole batch: 130 took eight ninths of the time of twice 65
# (docs/reference/benchmarks/parametric.md).
_GENERATION_BATCH = 130
# `LlamaDecoder` holds the attention scores of all prompts at once, in four tensors of up to 0.25 GiB each.
_MAX_SCORES = 1 << 26

TopLogprobs = tuple[torch.Tensor, torch.Tensor]
"""The likeliest tokens at each position and their log-probabilities, shape (positions, top) each."""


class LoraTraining:
    """An adapter on a loaded model; not thread-safe. The adapter stays on the model until `detach`."""

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
        with warnings.catch_warnings():  # peft uses a name that transformers has deprecated
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            self._model: PeftModel = get_peft_model(loaded.model, config)
        self._checkpointing = recipe.checkpointing or loaded.model.device.type == "cuda"
        if self._checkpointing:
            _named(loaded.model, "checkpointing_enable")({"use_reentrant": False})
        # A common prefix cannot be cached with gradient checkpointing, which would append to the cache again when it
        # recomputes, or with a sliding window, which would count the padding after the prefix.
        full_attention = not self._checkpointing and _uses_full_attention(loaded.model)
        self._shares_prefix = bool(loaded.block) and full_attention
        # Gradient checkpointing works in training mode only; without it the model stays in evaluation mode.
        self._model.train(self._checkpointing)
        self._bfloat16 = recipe.half and loaded.model.device.type == "cpu" and bfloat16_pays()
        dtype = torch.bfloat16 if self._bfloat16 else torch.float32
        is_supported = full_attention and lora_llama.supports(loaded.model)
        self._fused = lora_llama.FusedLlama(loaded.model, dtype) if is_supported else None
        self._bfloat16_weights = list(self._converted_weights()) if self._bfloat16 else []
        self._tokenizer, self._special = loaded.tokenizer, special_tokens(loaded.tokenizer)
        eos = loaded.tokenizer.eos_token_id
        self._end: int = eos if eos in loaded.ends else min(loaded.ends)
        # What the base model generated, by prompt and answer.
        self._generated: dict[tuple[tuple[int, ...], tuple[int, ...]], TopLogprobs] = {}
        self._exercises: list[Encoded] = []
        self._schedule: list[Step] = []
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
        return len(self._schedule)

    @property
    def step(self) -> int:
        return self._step

    def prepare(self, exercises: Sequence[TrainingExample]) -> None:
        """Plan the training on these exercises, and compute the base model's predictions for the replayed ones."""
        chance = random.Random(self._recipe.seed)  # noqa: S311 - an order, no secret
        # Replayed exercises with weight 0 and empty answers add no loss: a batch of them would have no gradients.
        self._exercises = [
            each
            for each in self._encode(exercises)
            if len(each.ids) > each.answer_start and (self._recipe.replay or not each.replayed)
        ]
        epochs = epoch_count(self._recipe.epochs, len(epoch_exercises(self._exercises, 0)))
        self._schedule = training_steps(self._exercises, epochs, self._recipe.batch, chance)
        self._step = 0
        self._optimiser = self._new_optimiser()

    def advance(self, most: int) -> float:
        """Take at most `most` optimiser steps; return their mean loss."""
        losses = []
        for step in self._schedule[self._step : self._step + most]:
            for group in self._optimiser.param_groups:
                group["lr"] = self._recipe.learning_rate * step.rate_factor
            loss = self._loss(step.batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.weights, _MAX_GRADIENT_NORM)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=True)
            self._step += 1
            losses.append(float(loss.detach()))
        return sum(losses) / max(1, len(losses))

    def save_checkpoint(self, file: Path) -> None:
        """Write a checkpoint to resume from, atomically. Raises: BackendUnavailable (a full disk)."""
        _write(file, self._named_weights(), self._optimiser, self._step, self._teacher())

    def resume(self, file: Path) -> None:
        """Resume from a checkpoint, with the same exercises prepared. Raises: IntegrityError."""
        named = self._named_weights()
        vocabulary = self._loaded.model.config.get_text_config().vocab_size
        checkpoint = _Checkpoint.read(file, named, self._teacher(), vocabulary)
        if checkpoint.step > self.steps:
            raise _damaged(file, f"step {checkpoint.step}")
        checkpoint.restore(named, self._optimiser, self._teacher())
        self._step = checkpoint.step

    def answers(
        self, prompts: Sequence[Sequence[ChatMessage]], *, adapter: bool, most: int = 24, exact: bool = True
    ) -> list[str]:
        """Return an answer to each prompt by greedy decoding of at most `most` tokens, with or without the adapter."""
        # Without `exact` it is computed as in training, possibly in bfloat16, and the base model's log-probabilities
        # are cached for `prepare`.
        rendered = [self._prompt_ids(each) for each in prompts]
        # Gradient checkpointing is for machines with little memory: there, batches are no larger than in training.
        size = self._recipe.batch if self._recipe.checkpointing else _GENERATION_BATCH
        found: dict[int, str] = {}
        with torch.no_grad(), self._evaluating(adapter=adapter), nullcontext() if exact else self._autocast():
            for indices in length_batches(list(map(len, rendered)), size):
                batch = [rendered[each] for each in indices]
                decoder = self._decoder(batch, most, adapter=adapter, exact=exact)
                if adapter or exact:
                    generated = greedy_decode(decoder, self._loaded.ends, most)
                else:
                    generated = self._generate_and_cache(batch, decoder, most)
                for index, ids in zip(indices, generated, strict=True):
                    found[index] = str(self._tokenizer.decode(ids, skip_special_tokens=True)).strip()
        return [found[index] for index in range(len(rendered))]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def perplexity(self, texts: Sequence[str], *, adapter: bool) -> float:
        total, count = 0.0, 0
        with self._evaluating(adapter=adapter):
            for text in texts:
                ids = torch.tensor([self._tokenizer(text)["input_ids"]], device=self._loaded.model.device)
                logits = self._model(input_ids=ids).logits[0, :-1].float()
                total += float(functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
                count += ids.shape[1] - 1
        return math.exp(min(total / count, _LARGEST_EXPONENT))

    def load(self, file: Path) -> None:
        """Load the weights of an adapter of the recipe's shape that was trained elsewhere. Raises: IntegrityError."""
        mine = get_peft_model_state_dict(self._model)
        try:
            with safe_open(file, "pt") as tensors:
                if set(tensors.keys()) != mine.keys():
                    raise ValueError
                for name, weight in mine.items():
                    loaded = tensors.get_tensor(name)
                    if loaded.shape != weight.shape or not loaded.is_floating_point() or not loaded.isfinite().all():
                        raise ValueError
                    weight.copy_(loaded)
        except (OSError, SafetensorError, ValueError, RuntimeError, TypeError) as error:
            raise IntegrityError("Its weights are damaged, or of another shape than its recipe says.") from error

    def save(self, folder: Path) -> None:
        with _writing(folder / ADAPTER_FILE):
            self._model.save_pretrained(folder)

    def detach(self) -> None:
        self._model.unload()
        _named(self._loaded.model, "checkpointing_disable")()

    def _new_optimiser(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(self.weights, weight_decay=0.0, fused=True)

    def _teacher(self) -> list[TopLogprobs]:
        return [
            (each.teacher_tokens, each.teacher_logprobs)
            for each in self._exercises
            if each.teacher_tokens is not None and each.teacher_logprobs is not None
        ]

    def _named_weights(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, each) for name, each in self._model.named_parameters() if each.requires_grad]

    def _prompt_ids(self, messages: Sequence[ChatMessage]) -> list[int]:
        cleaned = [{"role": each.role, "content": without_tokens(each.content, self._special)} for each in messages]
        text = self._tokenizer.apply_chat_template(cleaned, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode(self, exercises: Sequence[TrainingExample]) -> list[Encoded]:
        rows = [self._tokenize(each) for each in exercises]
        replayed: dict[int, tuple[list[int], list[int]]] = {}
        for index, (each, row) in enumerate(zip(exercises, rows, strict=True)):
            if each.replayed and self._recipe.replay:
                replayed[index] = row
        teacher = {
            index: tuple(each.clone() for each in self._generated[key])
            for index, (prompt, answer) in replayed.items()
            if (key := (tuple(prompt), tuple(answer))) in self._generated
        }
        missing = {index: row for index, row in replayed.items() if index not in teacher}
        teacher |= dict(zip(missing, self._teacher_logprobs(list(missing.values())), strict=True))
        return [
            Encoded(prompt + answer, len(prompt), each.replayed, each.every, *teacher.get(index, (None, None)))
            for index, (each, (prompt, answer)) in enumerate(zip(exercises, rows, strict=True))
        ]

    def _tokenize(self, exercise: TrainingExample) -> tuple[list[int], list[int]]:
        """Return the token ids of prompt and answer; the prompt of plain text is its first token."""
        text = without_tokens(exercise.answer, self._special)
        answer = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        if exercise.prompt:
            return self._prompt_ids(exercise.prompt), [*answer, self._end]
        return answer[:1], answer[1:]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _teacher_logprobs(self, rows: Sequence[tuple[list[int], list[int]]]) -> list[TopLogprobs]:
        found: dict[int, TopLogprobs] = {}
        with self._evaluating(adapter=False), self._autocast():
            for indices in length_batches([len(prompt) + len(answer) for prompt, answer in rows], self._recipe.batch):
                batch = [rows[index] for index in indices]
                counts = [len(answer) for _, answer in batch]
                top = (each.split(counts) for each in self._top_logprobs(self._answer_logits(batch, adapter=False)))
                found.update(zip(indices, zip(*top, strict=True), strict=True))
        return [found[index] for index in range(len(rows))]

    def _generate_and_cache(
        self, prompts: Sequence[list[int]], decoder: BatchDecoder, max_new_tokens: int
    ) -> list[list[int]]:
        """Return the base model's answers, and cache their log-probabilities, since they may be replayed."""
        steps: list[list[TopLogprobs]] = [[] for _ in prompts]

        def on_logits(rows: list[int], logits: torch.Tensor) -> None:
            for row, tokens, logprobs in zip(rows, *self._top_logprobs(logits), strict=True):
                steps[row].append((tokens, logprobs))

        generated = greedy_decode(decoder, self._loaded.ends, max_new_tokens, on_logits)
        for prompt, ids, top in zip(prompts, generated, steps, strict=True):
            tokens, logprobs = map(torch.stack, zip(*top, strict=True))
            self._generated[tuple(prompt), (*ids, self._end)] = tokens, logprobs
        return generated

    def _top_logprobs(self, logits: torch.Tensor) -> TopLogprobs:
        """Return the likeliest tokens at each position and their log-probabilities, float32, (positions, top) each."""
        logprobs, tokens = torch.log_softmax(logits.float(), -1).topk(min(self._recipe.top, logits.shape[-1]), -1)
        return tokens, logprobs

    def _loss(self, batch: Sequence[Encoded]) -> torch.Tensor:
        # For short sequences PyTorch's plain attention is a tenth faster on a CPU. With gradient checkpointing the
        # recomputation, outside this block, would take another kernel.
        is_plain = self._loaded.model.device.type == "cpu" and not self._checkpointing
        kernel = sdpa_kernel(SDPBackend.MATH) if is_plain else nullcontext()
        with self._autocast(), kernel:
            return self._batch_loss(batch)

    def _batch_loss(self, batch: Sequence[Encoded]) -> torch.Tensor:
        rows = [(each.ids[: each.answer_start], each.ids[each.answer_start :]) for each in batch]
        logits = self._answer_logits(rows, adapter=True)
        # At each position: the target token and the teacher's tokens. Without a teacher the target is repeated.
        top = max(0 if each.teacher_tokens is None else each.teacher_tokens.shape[1] for each in batch)
        targets = [torch.tensor(answer, device=logits.device)[:, None] for _, answer in rows]
        taught = [
            target if each.teacher_tokens is None else each.teacher_tokens
            for target, each in zip(targets, batch, strict=True)
        ]
        tokens = [torch.cat((target, its.expand(-1, top)), -1) for target, its in zip(targets, taught, strict=True)]
        logprobs = token_logprobs(logits, torch.cat(tokens)).split(list(map(len, tokens)))
        total = torch.zeros((), device=logits.device)
        for each, mine in zip(batch, logprobs, strict=True):
            if not each.replayed:
                total = total - mine[:, 0].mean()
            if each.teacher_logprobs is not None:
                total = total + self._recipe.replay * kl_divergence(each.teacher_logprobs, mine[:, 1:])
        return total / len(batch)

    def _answer_logits(self, rows: Sequence[lora_llama.Row], *, adapter: bool) -> torch.Tensor:
        """Return the logits of all answer tokens, (all answer tokens, vocabulary); `adapter`: if it is enabled now."""
        if self._fused is not None:
            return self._fused.logits(rows, adapter=adapter)
        shared = self._common_prefix([prompt for prompt, _ in rows])
        cache = self._prefill(rows[0][0][:shared], len(rows)) if shared else None
        ids, mask = self._pad_left([(prompt + answer)[shared:] for prompt, answer in rows])
        counts = [len(answer) for _, answer in rows]
        # Only those of the answers: the output layer is a fifth of a small model's work.
        logits = self._model(
            input_ids=ids,
            attention_mask=functional.pad(mask, (shared, 0), value=1),
            position_ids=shared + (mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=max(counts) + 1,
        ).logits
        ends = [(row + 1) * logits.shape[1] - 1 for row in range(len(rows))]
        positions = [index for end, count in zip(ends, counts, strict=True) for index in range(end - count, end)]
        answers: torch.Tensor = logits.flatten(0, 1)[torch.tensor(positions, device=logits.device)]
        return answers

    def _common_prefix(self, prompts: Sequence[list[int]]) -> int:
        """Return the length of the common prefix without the last token; 0 where it cannot be computed once."""
        if not self._shares_prefix:
            return 0
        columns = zip(*(prompt[: min(map(len, prompts)) - 1] for prompt in prompts), strict=True)
        return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))

    def _prefill(self, ids: list[int], rows: int) -> DynamicCache:
        """Return the key/value cache of a common prefix, computed once for all rows; gradients flow through it."""
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

    def _pad_left(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids padded on the left, and their attention mask."""
        shape = (len(prompts), max(map(len, prompts)))
        ids, mask = (torch.zeros(shape, dtype=torch.long, device=self._loaded.model.device) for _ in range(2))
        for row, prompt in enumerate(prompts):
            ids[row, -len(prompt) :] = torch.tensor(prompt)
            mask[row, -len(prompt) :] = 1
        return ids, mask

    def _decoder(
        self, prompts: Sequence[list[int]], max_new_tokens: int, *, adapter: bool, exact: bool
    ) -> BatchDecoder:
        """Return a decoder with these prompts prefilled; `adapter`: if it is enabled now."""
        heads = self._loaded.model.config.get_text_config().num_attention_heads
        is_small = heads * sum(len(each) ** 2 for each in prompts) <= _MAX_SCORES
        is_own = self._model.active_adapters == ["default"]  # `FusedLlama` knows no other adapter
        if self._fused is not None and is_own and is_small and not (exact and self._bfloat16):
            return lora_llama.LlamaDecoder(self._fused, prompts, max_new_tokens, adapter=adapter)
        shared = self._common_prefix(prompts)
        config = self._loaded.model.config
        cache = self._prefill(prompts[0][:shared], len(prompts)) if shared else DynamicCache(config=config)
        ids, mask = self._pad_left([prompt[shared:] for prompt in prompts])
        return CachedDecoder(self._model, cache, ids, mask, shared)

    @contextmanager
    def _autocast(self) -> Iterator[None]:
        """Multiply in bfloat16, with weights that were converted once: autocast converts frozen ones in every step."""
        # That was an eighth of a step (docs/reference/benchmarks/parametric.md).
        try:
            for module, _, converted in self._bfloat16_weights:
                module.weight = converted
            with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
                yield
        finally:
            for module, original, _ in self._bfloat16_weights:
                module.weight = original

    def _converted_weights(self) -> Iterator[tuple[nn.Linear, nn.Parameter, nn.Parameter]]:
        """Yield each frozen linear layer with its weights in float32 and in bfloat16."""
        if self._fused is not None:
            yield from ((module, module.weight, converted) for module, converted in self._fused.frozen_weights())
            return
        for module in self._model.modules():
            if isinstance(module, nn.Linear) and not module.weight.requires_grad:
                yield module, module.weight, nn.Parameter(module.weight.bfloat16(), requires_grad=False)

    @contextmanager
    def _evaluating(self, *, adapter: bool) -> Iterator[None]:
        self._model.eval()
        try:
            if adapter:
                yield
            else:
                with self._model.disable_adapter():
                    yield
        finally:
            self._model.train(self._checkpointing)


def _named(model: Any, method: str) -> Callable[..., None]:
    """Return a method that transformers has called `gradient_…` before version 5.20 or so, and `activation_…` since."""
    found: Callable[..., None] = getattr(model, f"activation_{method}", None) or getattr(model, f"gradient_{method}")
    return found


def _uses_full_attention(model: Any) -> bool:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds == {"full_attention"} if kinds else not getattr(config, "sliding_window", None)


# Batches, learning-rate schedule and loss of a training.

_WARM_UP = 0.1
"""Share of the steps in which the learning rate rises."""

_LENGTH_BUCKET = 4
"""Prompts of a batch differ in length by fewer tokens: a tenth of what is computed is padding; with 12 a fifth."""

_REFERENCE_EXERCISES = 260
"""Exercises in an epoch of the training on 16 facts for which the recipe's number of epochs was found."""

_FEWEST_EXERCISES = 64
"""Every training on facts replays at least so many in an epoch; a smaller one keeps the usual number of epochs."""

_CHUNK = 16
"""Positions at a time, so that their logits stay in the CPU's cache: 3 MB for a small model."""

_KNOWN_AFTER = 5
"""Epochs after which facts are known; until then all of them are in each epoch."""

_ALWAYS_COMPLETE = 6
"""With up to this many epochs all are complete: 128 facts, in six, lost too much otherwise.

See docs/reference/benchmarks/parametric.md.
"""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An exercise as token ids of prompt and answer; the answer begins at `answer_start`.

    It is in one of `every` epochs. `teacher_tokens` and `teacher_logprobs` are the base model's likeliest tokens and
    their log-probabilities, shape (answer tokens, top) each.
    """

    ids: list[int]
    answer_start: int
    replayed: bool
    every: int
    teacher_tokens: torch.Tensor | None
    teacher_logprobs: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Step:
    batch: list[Encoded]
    rate_factor: float


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities, float32, of tokens (positions, n) by logits (positions, vocabulary)."""
    found: torch.Tensor = _TokenLogprobs.apply(logits, tokens)
    return found


def kl_divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """Return the mean KL divergence from a teacher, over its likeliest tokens and all others as one class.

    Both arguments are log-probabilities of the teacher's likeliest tokens, shape (positions, top).
    """
    rest = torch.log1p(-teacher.exp().sum(-1).clamp(max=1 - 1e-6))
    student_rest = torch.log1p(-student.exp().sum(-1).clamp(max=1 - 1e-6))
    of_top = (teacher.exp() * (teacher - student)).sum(-1)
    return (of_top + rest.exp() * (rest - student_rest)).mean()


def length_batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield indices in batches of at most `most`, of about the same size, each of prompts of similar length."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    count = -(-len(order) // most)
    for number in range(count):
        yield order[number * len(order) // count : (number + 1) * len(order) // count]


def epoch_exercises(encoded: Sequence[Encoded], number: int) -> list[Encoded]:
    """Return the exercises of an epoch; those with `every` above 1 take turns over that many epochs."""
    counts: Counter[int] = Counter()
    found = []
    for each in encoded:
        if counts[each.every] % each.every == number % each.every:
            found.append(each)
        counts[each.every] += 1
    return found


def epoch_count(usual: int, exercises: int) -> int:
    """Return the number of epochs for so many exercises in an epoch: fewer than `usual` for a large training set."""
    # What the facts have in common, such as when to abstain, is learned from all of them: 64 facts pass after seven
    # epochs where 16 need ten (docs/reference/benchmarks/parametric.md, "Seven epochs for 64"). A small set gets as
    # many steps in all as 16 facts: with ten epochs the 12 facts that are left when four are forgotten were not known.
    if exercises < _FEWEST_EXERCISES:
        return usual
    ratio = _REFERENCE_EXERCISES / exercises
    return max(1, round(usual * (ratio if ratio > 1 else math.pow(ratio, 0.36))))


def training_steps(encoded: Sequence[Encoded], epochs: int, size: int, chance: random.Random) -> list[Step]:
    """Return the steps of all epochs, in batches of at most `size`."""
    # With more than six epochs, each exercise is half as frequent in half of them: replayed ones in the first half,
    # where the model has hardly changed; facts in the second half, but not before the sixth epoch, since they are known
    # by then, and more of them makes the model lose others
    # (docs/reference/benchmarks/parametric.md, "What is replayed half as often at first").
    facts_until, replay_from = max(_KNOWN_AFTER, epochs - epochs // 2), epochs // 2
    if epochs <= _ALWAYS_COMPLETE:
        facts_until, replay_from = epochs, 0

    def in_epoch(number: int) -> list[Encoded]:
        def is_halved(each: Encoded) -> bool:
            return number < replay_from if each.replayed else number >= facts_until

        halved = [replace(each, every=2 * each.every) if is_halved(each) else each for each in encoded]
        return epoch_exercises(halved, number)

    found = [batch for number in range(epochs) for batch in shuffled_batches(in_epoch(number), size, chance)]
    return [Step(batch, rate_factor(index, len(found))) for index, batch in enumerate(found)]


def shuffled_batches(encoded: Sequence[Encoded], size: int, chance: random.Random) -> list[list[Encoded]]:
    """Return batches in random order, each of exercises of similar length, so that there is little padding."""
    # Plain texts have batches of their own: they share no prefix with prompts.
    order = list(encoded)
    chance.shuffle(order)
    order.sort(key=lambda each: len(each.ids) // _LENGTH_BUCKET)
    kinds = [each for each in order if each.answer_start > 1], [each for each in order if each.answer_start == 1]
    found = [kind[begin : begin + size] for kind in kinds for begin in range(0, len(kind), size)]
    chance.shuffle(found)
    return found


def rate_factor(step: int, steps: int) -> float:
    """Return the factor of the learning rate at a step: linear warm-up, then cosine decay."""
    warm = max(1, int(steps * _WARM_UP))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class _TokenLogprobs(torch.autograd.Function):  # type: ignore[misc]
    """`token_logprobs`, in chunks of positions: autograd would keep a gradient as large as the vocabulary for each."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        found, normalisers = [], []
        for chunk, its in zip(logits.split(_CHUNK), tokens.split(_CHUNK), strict=True):
            floats = chunk.float()
            normalisers.append(torch.logsumexp(floats, -1, keepdim=True))
            found.append(floats.gather(-1, its) - normalisers[-1])
        ctx.save_for_backward(logits, torch.cat(normalisers), tokens)
        return torch.cat(found)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, normalisers, tokens = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        for begin in range(0, len(logits), _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            probabilities = logits[chunk].sub(normalisers[chunk]).exp_()
            scaled = probabilities.mul_(-gradient[chunk].sum(-1, keepdim=True))
            d_logits[chunk] = scaled.scatter_add_(-1, tokens[chunk], gradient[chunk])
        return d_logits, None


# Checkpoints: written atomically, and validated before they are used.

_Named = Sequence[tuple[str, nn.Parameter]]
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of a weight after its first update."""
_TEACHER = ("told.tokens", "told.chances")
"""Names in the file of the teacher's tokens and log-probabilities."""


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A training's progress: its weights and the optimiser's state of each, in the order of their names.

    `teacher` are the teacher's tokens and log-probabilities of all exercises, concatenated: computed again they would
    differ in the last bits.
    """

    step: int
    weights: tuple[torch.Tensor, ...]
    states: tuple[dict[str, torch.Tensor], ...]
    teacher: tuple[torch.Tensor, ...]

    def restore(self, named: _Named, optimiser: torch.optim.Optimizer, teacher: Sequence[TopLogprobs]) -> None:
        for mine, saved in zip(zip(*teacher, strict=True), self.teacher, strict=True):
            for each, part in zip(mine, saved.split(list(map(len, mine))), strict=True):
                each.copy_(part)
        for (_, weight), saved, state in zip(named, self.weights, self.states, strict=True):
            with torch.no_grad():
                weight.copy_(saved)
            if state:
                # The step count too: fused AdamW has it where the weights are.
                optimiser.state[weight] = {key: state[key].to(weight.device) for key in _MOMENTS}

    @classmethod
    def read(cls, file: Path, named: _Named, teacher: Sequence[TopLogprobs], vocabulary: int) -> _Checkpoint:
        """Read the checkpoint of a training with weights and teacher predictions of these shapes.

        Raises: IntegrityError (damaged, or of another training).
        """
        try:
            with safe_open(file, "pt") as tensors:
                step = int(tensors.metadata()["step"])
                predictions = tuple(tensors.get_tensor(name) for name in _TEACHER) if teacher else ()
                weights = tuple(tensors.get_tensor(f"weight.{name}") for name, _ in named)
                keys = _MOMENTS if step else ()
                states = tuple({key: tensors.get_tensor(f"{key}.{name}") for key in keys} for name, _ in named)
            for (_, mine), saved, state in zip(named, weights, states, strict=True):
                moments = [state[key] for key in keys[1:]]
                if any(mine.shape != each.shape or not each.isfinite().all() for each in (saved, *moments)):
                    raise ValueError
            for mine, saved in zip(zip(*teacher, strict=True), predictions, strict=True):
                if torch.cat(mine).shape != saved.shape or mine[0].dtype != saved.dtype or not saved.isfinite().all():
                    raise ValueError
            if predictions and not (
                0 <= predictions[0].min() <= predictions[0].max() < vocabulary and predictions[1].max() <= 0
            ):
                raise ValueError
            if step < 0:
                raise ValueError
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
            raise _damaged(file, type(error).__name__) from error
        return cls(step, weights, states, predictions)


def _write(
    file: Path, named: _Named, optimiser: torch.optim.Optimizer, step: int, teacher: Sequence[TopLogprobs]
) -> None:
    tensors: dict[str, Any] = {
        name: torch.cat(each) for name, each in zip(_TEACHER, zip(*teacher, strict=True), strict=False)
    }
    for name, weight in named:
        tensors[f"weight.{name}"] = weight.detach()
        tensors |= {f"{key}.{name}": value for key, value in optimiser.state[weight].items()}
    partial = file.with_name(file.name + ".new")
    with _writing(partial):
        save_file(tensors, partial, metadata={"step": str(step)})
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(file)


def _damaged(file: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{file} is damaged, or of another training ({why}).")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Remove a file if writing it fails. Raises: BackendUnavailable."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        raise unwritten(error) from error


# Greedy decoding.

_DROP_AT = 0.75
"""Share of unfinished rows at which finished ones are dropped: copying the cache costs about a step."""


OnLogits = Callable[[list[int], torch.Tensor], None]
"""Called with the unfinished rows and their next-token logits, shape (rows, vocabulary)."""


class BatchDecoder(Protocol):
    """Prompts that are continued together, token by token, with a key/value cache."""

    can_drop_rows: bool
    logits: torch.Tensor
    """The next-token logits, shape (rows, vocabulary)."""

    def step(self, tokens: torch.Tensor) -> None:
        """Append a token to each row, shape (rows,), and compute the next logits."""

    def select_rows(self, rows: torch.Tensor) -> None:
        """Keep only these rows."""


def greedy_decode(
    decoder: BatchDecoder, end_tokens: Collection[int], max_new_tokens: int, on_logits: OnLogits | None = None
) -> list[list[int]]:
    """Return the generated token ids of each row, up to the first end token."""
    # `on_logits` is also called for the position after the last token. Finished rows are dropped once they are a
    # quarter: most answers have a third of the tokens allowed.
    rows = list(range(len(decoder.logits)))
    generated: list[list[int]] = [[] for _ in rows]
    unfinished = set(rows)
    while unfinished:
        if on_logits is not None:
            indices = [index for index, row in enumerate(rows) if row in unfinished]
            on_logits([rows[index] for index in indices], decoder.logits[indices])
        tokens = decoder.logits.argmax(-1)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            if token in end_tokens or len(generated[row]) == max_new_tokens:
                unfinished.discard(row)
            elif row in unfinished:
                generated[row].append(token)
                if on_logits is None and len(generated[row]) == max_new_tokens:  # nobody needs the next logits
                    unfinished.discard(row)
        if not unfinished:
            break
        if decoder.can_drop_rows and len(unfinished) <= _DROP_AT * len(rows):
            kept = torch.tensor([index for index, row in enumerate(rows) if row in unfinished], device=tokens.device)
            decoder.select_rows(kept)
            tokens, rows = tokens[kept], [row for row in rows if row in unfinished]
        decoder.step(tokens)
    return generated


class CachedDecoder:
    """A `BatchDecoder` with a transformers cache: token ids padded on the left, and their attention mask."""

    def __init__(self, model: Any, cache: DynamicCache, ids: torch.Tensor, mask: torch.Tensor, shared: int) -> None:
        """Prefill `ids`; the cache holds the `shared` tokens that come before them in each row."""
        self._model, self._cache = model, cache
        # Only layers that cache keys and values per token can drop rows; a recurrent state cannot.
        self.can_drop_rows = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
        self._positions = shared + (mask.cumsum(-1) - 1).clamp(min=0)
        self._mask = functional.pad(mask, (shared, 0), value=1)
        self.logits = self._next_logits(ids)

    def step(self, tokens: torch.Tensor) -> None:
        self._positions, self._mask = self._positions[:, -1:] + 1, functional.pad(self._mask, (0, 1), value=1)
        self.logits = self._next_logits(tokens[:, None])

    def select_rows(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)
        self._positions, self._mask, self.logits = self._positions[rows], self._mask[rows], self.logits[rows]

    def _next_logits(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits
