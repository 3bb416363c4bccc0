"""A transformers chat model in this process: render the prompt, prefill with cached KV, decode token by token.

Concurrent requests take turns at each step of their prompts, and decode together. A request's `prefix` determines which
KV may be cached.
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

from memos.backends.local.batching import Batcher
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

_MIN_TEMPERATURE = 1e-4
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class LocalModel:
    """A `ChatModel`. Thread-safe; without `fill` no KV is reused.

    `lending` finds the LoRA adapter that answers for the cube of a request's prefix; it is enabled for the steps of
    that request only.
    """

    def __init__(
        self, loaded: Loaded, settings: ChatSettings, fill: Fill | None = None, lending: Lending | None = None
    ) -> None:
        self._loaded = loaded
        self._fill = fill
        self._lending = lending
        self._adapters = loaded.adapters
        self._settings = settings.model_copy(update={"model": f"local:{loaded.name}"})
        self._turns = loaded.turns
        self._batcher = None if loaded.unbatched is not None else Batcher(loaded.model)
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
        """Yield the answer's text in pieces, "" after a step without new text, then the reply; close it to cancel."""
        if any(message.images for message in request.messages):
            raise ModelError(f"The model {self.name} does not take images; use one that does.", permanent=True)
        self._check_open()
        prompt = self.render(request)
        max_new_tokens = self._max_new_tokens(len(prompt.ids), request.max_tokens or self._settings.max_tokens)
        try:
            yield from self._generate(request, prompt, max_new_tokens)
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
        encoded = self._loaded.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, ends = list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]
        prefix = request.prefix
        if prefix is None:
            return Prompt(ids)
        stable_text = messages[0]["content"][: prefix.chars]
        begin = text.find(stable_text)
        if begin < 0:  # the template rewrites messages
            return Prompt(ids)
        stable = bisect_right(ends, begin + len(stable_text))
        items = tuple((bisect_right(ends, begin + char), id_) for char, id_ in prefix.items)
        return Prompt(ids, prefix.cube, stable, items)

    def close(self) -> None:
        """Refuse further calls and end those in progress at their next step; returns when no step is running."""
        self._closing.set()
        with self._turns():  # a step running at interpreter exit would crash the process
            pass

    def __repr__(self) -> str:
        return f"LocalModel({self.name!r})"

    def _generate(
        self, request: ChatRequest, prompt: Prompt, max_new_tokens: int
    ) -> Generator[str | ChatReply, None, None]:
        began = time.perf_counter()
        model, block = self._loaded.model, self._loaded.block
        cache = KvBuffer(model, block, len(prompt.ids) + max_new_tokens) if block else _TransformersCache(model)
        adapter = self._adapter_for(request)

        def turn() -> AbstractContextManager[None]:
            return self._turn(adapter, later=request.later)

        fill = self._fill if adapter is None or self._lending is None else self._lending.fill(adapter)
        activation = yield from _yield_each("", self._prefill(prompt, cache, fill, turn))
        activation = replace(activation, first_token_s=time.perf_counter() - began)
        generated = _Generated(self._loaded.tokenizer)
        finish = "length"
        streamed = StreamedText()
        sample = _sampler(request)
        # Requests that share a step have the same adapter, and are all waited for or none.
        group = (None if adapter is None else adapter.id, request.later)
        try:
            for count in range(1, max_new_tokens + 1):
                self._check_open()
                token = sample(cache.logits)
                if token in self._loaded.ends:
                    finish = "stop"
                    break
                yield sendable(streamed.feed(generated.add(token)))
                if count < max_new_tokens:
                    self._decode(cache, token, group, turn)
        finally:
            if self._batcher is not None and isinstance(cache, KvBuffer):
                self._batcher.leave(cache, group)
        if rest := sendable(streamed.feed(generated.end()) + streamed.end()):
            yield rest
        usage: dict[str, Json] = {
            "prompt_tokens": len(prompt.ids),
            "completion_tokens": len(generated.ids),
            "prompt_tokens_details": {"cached_tokens": activation.cached_tokens},
        }
        reply = finished_answer({"content": generated.text}, finish, usage, len(prompt.ids), self._settings)
        yield replace(reply, activation=activation, adapter=None if adapter is None else adapter.id)

    def _decode(
        self, cache: KvBuffer | _TransformersCache, token: int, group: tuple[str | None, bool], turn: Turn
    ) -> None:
        if self._batcher is not None and isinstance(cache, KvBuffer):
            self._batcher.step(cache, token, group, turn)
            return
        with turn():
            cache.compute([token])

    def _adapter_for(self, request: ChatRequest) -> ActiveAdapter | None:
        """Return the adapter that answers a request, None if there is none or it cannot be loaded."""
        if self._lending is None or request.prefix is None:
            return None
        adapter = self._lending.serving(request.prefix.cube, self._loaded.base)
        try:
            with self._turn(adapter, later=request.later):
                return adapter
        except IntegrityError as error:
            log.warning("an answer is given without the cube's adapter: %s", error)
            return None

    def _prefill(
        self, prompt: Prompt, cache: KvBuffer | _TransformersCache, fill: Fill | None, turn: Turn
    ) -> Generator[None, None, Activation]:
        if fill is None or isinstance(cache, _TransformersCache) or self._loaded.unusable is not None:
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

    def _max_new_tokens(self, prompt: int, wanted: int) -> int:
        left = self._loaded.context - prompt
        if left < 1:
            raise InvalidAnswer(
                f"The request has {prompt:,} tokens, but the model {self.name} takes {self._loaded.context:,}; send "
                "less text, or use a model with a longer context.",
                permanent=True,
            )
        return min(wanted, left)

    def _plain(self, text: str) -> str:
        return sendable(without_tokens(text, self._special))


class _TransformersCache:
    """The KV cache of one request for models without KV blocks."""

    def __init__(self, model: object) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.config)  # type: ignore[attr-defined]
        self.logits: torch.Tensor | None = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def compute(self, ids: Sequence[int]) -> None:
        input_ids = torch.tensor([list(ids)], device=self._model.device)  # type: ignore[attr-defined]
        output = self._model(input_ids=input_ids, past_key_values=self._cache, use_cache=True)  # type: ignore[operator]
        self.logits = output.logits[0, -1].float()


class _Generated:
    """The tokens generated so far; `add` and `end` return the text that is new."""

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
        if not last and text.endswith(_INCOMPLETE):  # the first bytes of a character
            return ""
        more = text[len(self.text) :]
        self.text = text
        return more


def _yield_each(piece: str, steps: Generator[None, None, Activation]) -> Generator[str, None, Activation]:
    """Yield `piece` after each step; return the generator's result."""
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                activation: Activation = ended.value
                return activation
            yield piece


def _sampler(request: ChatRequest) -> Callable[[torch.Tensor | None], int]:
    """Return a function that picks the next token: greedy at temperature 0, otherwise nucleus sampling with `top_p`.

    Source: Holtzman et al., The Curious Case of Neural Text Degeneration, 2020, section 3.1.
    """
    temperature = request.temperature or 0.0

    def sample(logits: torch.Tensor | None) -> int:
        assert logits is not None
        if temperature < _MIN_TEMPERATURE:  # the quotient might overflow
            return int(logits.argmax())
        probabilities, tokens = torch.softmax(logits / temperature, -1).sort(descending=True)
        if request.top_p is not None:
            probabilities[(probabilities.cumsum(-1) - probabilities) >= request.top_p] = 0
        return int(tokens[torch.multinomial(probabilities, 1)])

    return sample
