"""A transformers chat model in this process: render, prefill with cached KV, decode step by step.

Concurrent requests take turns at each step. A request's `prefix` says what KV may be cached.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace

import torch
from transformers.cache_utils import DynamicCache

from memos.backends.local.kv_buffer import KvBuffer
from memos.backends.local.loading import Loaded, special_tokens, without_tokens
from memos.backends.openai.requests import in_words, sendable
from memos.backends.openai.responses import finished_answer
from memos.core.kv_cache import BLOCK_TOKENS, Activation, Fill, Prompt
from memos.core.lora import ActiveAdapter, Lending
from memos.core.ports import ChatReply, ChatRequest
from memos.core.settings import ChatSettings
from memos.core.streaming import StreamedText
from memos.core.types import Json
from memos.errors import BackendUnavailable, IntegrityError, InvalidAnswer, ModelError

log = logging.getLogger("memos.backends.local")

Turn = Callable[[], AbstractContextManager[None]]

_COLDEST = 1e-4
_BROKEN = "\N{REPLACEMENT CHARACTER}"


class LocalModel:
    """A `ChatModel`. Thread-safe; without `fill` every prompt is computed whole."""

    # What is `lent` for the cube of a request's prefix answers it; steps of others go on without, or with theirs.

    def __init__(
        self, loaded: Loaded, settings: ChatSettings, fill: Fill | None = None, lending: Lending | None = None
    ) -> None:
        self._loaded = loaded
        self._fill = fill
        self._lending = lending
        self._adapters = loaded.adapters
        self._settings = settings.model_copy(update={"model": f"local:{loaded.name}"})
        self._turns = loaded.turns
        self._closing = threading.Event()
        self._special = special_tokens(loaded.tokenizer)

    @property
    def name(self) -> str:
        return str(self._settings.model)

    @property
    def in_steps(self) -> bool:
        return True

    def complete(self, request: ChatRequest) -> ChatReply:
        for piece in self.stream(request):
            if isinstance(piece, ChatReply):
                return piece
        raise AssertionError("a stream ends with its reply")

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Yield the model's answer, "" after a step that shows nothing; closed before its end it makes no more."""
        if any(message.images for message in request.messages):
            raise ModelError(f"The model {self.name} does not take images; use one that does.", permanent=True)
        self._check_open()
        prompt = self.render(request)
        most = self._room(len(prompt.ids), request.max_tokens or self._settings.max_tokens)
        try:
            yield from self._answered(request, prompt, most)
        except IntegrityError as error:  # with its files gone it cannot come back between two steps
            raise BackendUnavailable("The adapter that answered was removed meanwhile; ask again.") from error
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise BackendUnavailable(
                f"Not enough memory for a prompt of {len(prompt.ids):,} tokens with {self.name}; send less, or lower "
                "the budgets of MEMOS_ACTIVATION__*."
            ) from error

    def render(self, request: ChatRequest) -> Prompt:
        messages = [{"role": message.role, "content": self._plain(message.content)} for message in request.messages]
        if request.schema is not None:
            messages[-1]["content"] += self._plain(in_words(request.schema))
        try:
            text = self._loaded.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates raise what they like
            raise ModelError(
                f"The chat template of {self.name} does not accept this conversation ({type(error).__name__}); its "
                "roles may have to alternate.",
                permanent=True,
            ) from error
        told = self._loaded.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, ends = list(told["input_ids"]), [end for _, end in told["offset_mapping"]]
        prefix = request.prefix
        if prefix is None:
            return Prompt(ids)
        stable_text = messages[0]["content"][: prefix.chars]
        begin = text.find(stable_text)
        if begin < 0:  # a template that rewrites what it is given
            return Prompt(ids)
        stable = bisect_right(ends, begin + len(stable_text))
        items = tuple((bisect_right(ends, begin + char), id_) for char, id_ in prefix.items)
        return Prompt(ids, prefix.cube, stable, items)

    def close(self) -> None:
        """Take no further calls and let those under way end at their next step; none is made after this returns."""
        self._closing.set()
        with self._turns():  # a step under way when the program ends would end it by a signal
            pass

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def _answered(self, request: ChatRequest, prompt: Prompt, most: int) -> Generator[str | ChatReply, None, None]:
        began = time.perf_counter()
        model, block = self._loaded.model, self._loaded.block
        cache = KvBuffer(model, block, len(prompt.ids) + most) if block else _Plain(model)
        adapter = self._lent(request)

        def turn() -> AbstractContextManager[None]:
            return self._turn(adapter, later=request.later)

        fill = self._fill if adapter is None or self._lending is None else self._lending.fill(adapter)
        activation = yield from _each_as("", self._filled(prompt, cache, fill, turn))
        activation = replace(activation, first_token_s=time.perf_counter() - began)
        said = _Said(self._loaded.tokenizer)
        finish = "length"
        answering = StreamedText()
        pick = _picker(request, self._settings)
        for place in range(most):
            self._check_open()
            token = pick(cache.logits)
            if token in self._loaded.ends:
                finish = "stop"
                break
            yield sendable(answering.feed(said.add(token)))
            if place + 1 < most:
                with turn():
                    cache.compute([token])
        if shown := sendable(answering.feed(said.end()) + answering.end()):
            yield shown
        usage: dict[str, Json] = {
            "prompt_tokens": len(prompt.ids),
            "completion_tokens": len(said.ids),
            "prompt_tokens_details": {"cached_tokens": activation.cached_tokens},
        }
        reply = finished_answer({"content": said.text}, finish, usage, len(prompt.ids), self._settings)
        yield replace(reply, activation=activation, adapter=None if adapter is None else adapter.id)

    def _lent(self, request: ChatRequest) -> ActiveAdapter | None:
        """Return the adapter that answers a request; one that cannot be put on the model answers nothing."""
        if self._lending is None or request.prefix is None:
            return None
        adapter = self._lending.serving(request.prefix.cube, self._loaded.base)
        try:
            with self._turn(adapter, later=request.later):
                return adapter
        except IntegrityError as error:
            log.warning("an answer is given without the cube's adapter: %s", error)
            return None

    def _filled(
        self, prompt: Prompt, cache: KvBuffer | _Plain, fill: Fill | None, turn: Turn
    ) -> Generator[None, None, Activation]:
        if fill is None or isinstance(cache, _Plain) or self._loaded.unusable is not None:
            began = time.perf_counter()
            for begin in range(0, len(prompt.ids), BLOCK_TOKENS * self._loaded.chunk_blocks):
                with turn():
                    cache.compute(prompt.ids[begin : begin + BLOCK_TOKENS * self._loaded.chunk_blocks])
                yield
            reason = self._loaded.unusable or "nothing is kept: the budgets of MEMOS_ACTIVATION__* are 0"
            took = time.perf_counter() - began
            return Activation(len(prompt.ids), compute_s=took, first_token_s=took, reason=reason)
        return (yield from fill.steps(prompt, cache, turn))

    @contextmanager
    def _turn(self, adapter: ActiveAdapter | None, *, later: bool) -> Iterator[None]:
        with self._turns(later=later):
            self._check_open()
            self._adapters.use(adapter)
            yield

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise BackendUnavailable("This process is shutting down and calls no model any more.", permanent=True)

    def _room(self, prompt: int, most: int) -> int:
        left = self._loaded.context - prompt
        if left < 1:
            raise InvalidAnswer(
                f"The request has {prompt:,} tokens, but the model {self.name} takes {self._loaded.context:,}; send "
                "less text, or use a model with a longer context.",
                permanent=True,
            )
        return min(most, left)

    def _plain(self, text: str) -> str:
        return sendable(without_tokens(text, self._special))


class _Plain:
    """A prompt's cache for models without KV blocks: transformers' own."""

    def __init__(self, model: object) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)  # type: ignore[attr-defined]
        self.logits: torch.Tensor | None = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def compute(self, ids: Sequence[int]) -> None:
        given = torch.tensor([list(ids)], device=self._model.device)  # type: ignore[attr-defined]
        told = self._model(input_ids=given, past_key_values=self._cache, use_cache=True)  # type: ignore[operator]
        self.logits = told.logits[0, -1].float()


class _Said:
    def __init__(self, tokenizer: object) -> None:
        self._tokenizer = tokenizer
        self.ids: list[int] = []
        self.text = ""

    def add(self, token: int) -> str:
        self.ids.append(token)
        return self._more(self._decoded())

    def end(self) -> str:
        return self._more(self._decoded(), last=True)

    def _decoded(self) -> str:
        return str(self._tokenizer.decode(self.ids, skip_special_tokens=True))  # type: ignore[attr-defined]

    def _more(self, text: str, *, last: bool = False) -> str:
        if not last and text.endswith(_BROKEN):  # the first bytes of a character
            return ""
        more = text[len(self.text) :]
        self.text = text
        return more


def _each_as(piece: str, steps: Generator[None, None, Activation]) -> Generator[str, None, Activation]:
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                told: Activation = ended.value
                return told
            yield piece


def _picker(request: ChatRequest, settings: ChatSettings) -> Callable[[torch.Tensor | None], int]:
    """Return what picks the next token: the likeliest at temperature 0, else by chance out of the likeliest `top_p`."""
    # Source of `top_p`: Holtzman et al., The Curious Case of Neural Text Degeneration, 2020, section 3.1.
    temperature = request.temperature or 0.0

    def pick(logits: torch.Tensor | None) -> int:
        assert logits is not None
        if temperature < _COLDEST:  # what is divided by less would be infinite
            return int(logits.argmax())
        chances, tokens = torch.softmax(logits / temperature, -1).sort(descending=True)
        if request.top_p is not None:
            chances[(chances.cumsum(-1) - chances) >= request.top_p] = 0
        return int(tokens[torch.multinomial(chances, 1)])

    return pick
