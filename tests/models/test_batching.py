"""Requests to a local model that decode together: each gets what it gets alone, whatever happens to the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.support import tiny_models  # skips without the extra `local`

torch = tiny_models.torch

from memos.backends.local import batching  # noqa: E402
from memos.backends.local.batching import Batcher, decode_together  # noqa: E402
from memos.backends.local.kv_buffer import KvBuffer  # noqa: E402
from memos.backends.local.loading import Loaded, ready  # noqa: E402
from memos.backends.local.model import LocalModel  # noqa: E402
from memos.core.kv_cache import KvShape, Prefix  # noqa: E402
from memos.core.ports import ChatMessage, ChatReply, ChatRequest  # noqa: E402
from memos.core.settings import ChatSettings  # noqa: E402
from memos.errors import BackendUnavailable, InvalidAnswer  # noqa: E402
from memos.memcube.activation.blocks import Tier, fingerprint_of  # noqa: E402
from memos.memcube.activation.prefill import PrefillEngine  # noqa: E402
from memos.memcube.activation.store import BlockStore  # noqa: E402
from tests.fakes import FixedClock  # noqa: E402

KINDS = ["llama", "mistral", "gemma", "learned"]
NEAR = 1e-4
"""Of logits in float32, as docs/concepts/activation.md says."""
LENGTHS = (3, 64, 70, 150)


def made(kind: str = "llama") -> Loaded:
    model = tiny_models.model(kind)
    model.generation_config.eos_token_id = None
    return ready(kind, model, tiny_models.tokenizer(), "weights")


def caches(loaded: Loaded, room: int = 200) -> list[KvBuffer]:
    """Return caches of prompts that have nothing in common, not even their lengths."""
    found = []
    for length in LENGTHS:
        cache = KvBuffer(loaded.model, loaded.block, room)
        cache.compute([(place * 31 + length) % 256 for place in range(length)])
        found.append(cache)
    return found


def worst(one: Sequence[KvBuffer], other: Sequence[KvBuffer]) -> float:
    pairs = zip(one, other, strict=True)
    return max(float((mine.logits - its.logits).abs().max()) for mine, its in pairs)  # type: ignore[operator]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_a_batch_are_those_of_each_alone(kind: str) -> None:
    loaded = made(kind)
    assert loaded.unbatched is None
    alone, together = caches(loaded), caches(loaded)
    for step in range(8):
        tokens = [(step * 17 + place) % 256 for place in range(len(LENGTHS))]
        for cache, token in zip(alone, tokens, strict=True):
            cache.compute([token])
        decode_together(loaded.model, together, tokens)
        assert worst(alone, together) < NEAR
    assert [cache.tokens for cache in together] == [length + 8 for length in LENGTHS]
    assert loaded.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("kind", ["hybrid", "state"])
def test_models_whose_state_is_no_cache_are_not_batched(kind: str) -> None:
    assert made(kind).unbatched is not None


def test_a_step_that_fails_leaves_every_cache_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = made()
    alone, together = caches(loaded), caches(loaded)
    last = loaded.model.model.layers[-1].mlp

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(last, "forward", fail)
        with pytest.raises(torch.OutOfMemoryError):
            decode_together(loaded.model, together, [1, 2, 3, 4])
    assert [cache.tokens for cache in together] == list(LENGTHS)
    for cache, token in zip(alone, (1, 2, 3, 4), strict=True):
        cache.compute([token])
    decode_together(loaded.model, together, [1, 2, 3, 4])
    assert worst(alone, together) < NEAR


# Steps of threads.


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each step that was computed in a batch."""
    counted = _Counted()
    monkeypatch.setattr(batching, "decode_together", counted)
    return counted.sizes


class _Counted:
    def __init__(self) -> None:
        self.sizes = list[int]()

    def __call__(self, model: Any, rows: Sequence[KvBuffer], tokens: Sequence[int]) -> None:
        self.sizes.append(len(rows))
        decode_together(model, rows, tokens)


def stepped(
    loaded: Loaded, batcher: Batcher, found: Sequence[KvBuffer], group: Callable[[int], object] = lambda _: None
) -> list[BaseException | None]:
    """Have all caches take a step while the model is busy, so that they wait for it together; return their errors."""
    errors: list[BaseException | None] = [None] * len(found)

    def work(place: int) -> None:
        try:
            batcher.step(found[place], place, group(place), loaded.turns)
        except BaseException as error:  # noqa: BLE001 - compared below
            errors[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(found))]
    with loaded.turns():
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while sum(len(its.pending) for its in batcher._groups.values()) < len(found) and time.monotonic() < until:
            time.sleep(0.001)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return errors


def test_requests_that_wait_share_a_step(sizes: list[int]) -> None:
    loaded = made()
    sizes.clear()  # of the trial when a model is loaded
    batcher, alone, together = Batcher(loaded.model), caches(loaded), caches(loaded)
    assert stepped(loaded, batcher, together) == [None] * 4
    assert sizes == [4]
    for place, cache in enumerate(alone):
        cache.compute([place])
        batcher.leave(together[place], None)
    assert worst(alone, together) < NEAR
    assert batcher._groups == {}


def test_a_step_has_a_bound_and_who_is_beyond_it_is_next(sizes: list[int]) -> None:
    loaded = made()
    sizes.clear()
    together = [*caches(loaded), *caches(loaded)[:1]]
    assert stepped(loaded, Batcher(loaded.model, max_rows=2), together) == [None] * 5
    assert sizes == [2, 2]  # and one alone
    assert [cache.tokens for cache in together] == [length + 1 for length in (*LENGTHS, LENGTHS[0])]


def test_groups_never_share_a_step(sizes: list[int]) -> None:
    """As requests with adapters of other cubes do not."""
    loaded = made()
    sizes.clear()
    together = caches(loaded)
    assert stepped(loaded, Batcher(loaded.model), together, lambda place: place % 2) == [None] * 4
    assert sizes == [2, 2]


def test_the_error_of_one_is_the_error_of_one() -> None:
    loaded = made()
    alone, together = caches(loaded), [*caches(loaded)[:3], KvBuffer(loaded.model, loaded.block, 150)]
    together[3].compute([(place * 31 + 150) % 256 for place in range(150)])  # no room for another token
    errors = stepped(loaded, Batcher(loaded.model), together)
    assert [error is None for error in errors] == [True, True, True, False]
    for place, cache in enumerate(alone):
        cache.compute([place])
    assert worst(alone[:3], together[:3]) < NEAR


def test_who_cannot_take_a_turn_stops_nobody_else() -> None:
    loaded = made()
    batcher, together, refused = Batcher(loaded.model), caches(loaded), list[int]()
    usual = loaded.turns

    @contextmanager
    def first_is_refused() -> Iterator[None]:
        with usual():
            if not refused:
                refused.append(1)
                raise BackendUnavailable("no")
            yield

    object.__setattr__(loaded, "turns", _Turns(usual, first_is_refused))
    errors = stepped(loaded, batcher, together)
    assert sum(isinstance(error, BackendUnavailable) for error in errors) == 1
    assert sum(error is None for error in errors) == 3


class _Turns:
    """The turns of a test itself, by its first call, and those of its threads."""

    def __init__(self, mine: Callable[[], AbstractContextManager[None]], theirs: Any) -> None:
        self._next = [mine]
        self._theirs = theirs

    def __call__(self) -> AbstractContextManager[None]:
        return (self._next.pop() if self._next else self._theirs)()


# As a chat model.


def request(number: int) -> ChatRequest:
    system = f"You remember of house {number}: " + f"Caroline keeps {number + 2} bees. " * (3 + 2 * number)
    messages = (ChatMessage("system", system), ChatMessage("user", "Who keeps bees?"))
    return ChatRequest(messages, prefix=Prefix(f"cube {number}", len(system)))


def told(model: LocalModel, number: int, steps: int | None = None) -> tuple[str, int]:
    """Return what a request is answered and what of its prompt was kept; with `steps` it goes away after so many."""
    pieces: list[str] = []
    stream = model.stream(request(number))
    try:
        for piece in stream:
            if not isinstance(piece, ChatReply) and piece:
                pieces.append(piece)
            if steps is not None and len(pieces) == steps:
                stream.close()
                return "".join(pieces), 0
    except InvalidAnswer as cut_off:
        return "".join(pieces), cut_off.tokens.cached
    raise AssertionError("an answer of a random model is cut off")


@pytest.mark.parametrize("kind", KINDS)
def test_answers_behind_different_kept_prefixes_are_those_one_by_one(kind: str, sizes: list[int]) -> None:
    loaded = made(kind)
    sizes.clear()
    store = BlockStore({Tier.HOST: 2**26}, FixedClock())
    shape = KvShape(fingerprint_of(loaded.made_by), loaded.dtype, loaded.block, loaded.chunk_blocks)
    engine = PrefillEngine(shape, store, choose=lambda load, _: len(load))
    model = LocalModel(loaded, ChatSettings(max_tokens=24), engine)
    expected = [told(model, number)[0] for number in range(4)]
    blocks = len(store.blocks())
    assert sizes == []  # a request alone is computed as ever
    found: dict[int, tuple[str, int]] = {}

    def work(number: int) -> None:  # the last goes away in the middle
        found[number] = told(model, number, 5 if number == 3 else None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[number][0] for number in range(3)] == expected[:3]
    assert expected[3].startswith(found[3][0])
    assert all(found[number][1] > 0 for number in range(3))
    assert max(sizes) > 1
    assert len(store.blocks()) == blocks  # what is decoded is never kept
    assert model._batcher is not None
    assert model._batcher._groups == {}
