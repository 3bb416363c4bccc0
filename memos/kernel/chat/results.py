"""What chatting takes and gives, as values. No behaviour."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, TypedDict

from memos.core.kv_cache import Activation
from memos.core.types import DEFAULT_CUBE, LOCAL_OWNER, AddReceipt, Json, Mode
from memos.memcube.prompt_prefix import PrefixText


@dataclass(frozen=True, slots=True)
class Reference:
    """A memory that a model was shown under a mark such as `m1`; `relevance` is that of a hit."""

    mark: Annotated[str, "Its mark, such as `m1`"]
    item: Annotated[str, "Id of the memory"]
    cube: Annotated[str, "Cube it is in"]
    memory: Annotated[str, "Its text"]
    speaker: Annotated[str, "Who said it"]
    at: Annotated[datetime | None, "When"]
    relevance: Annotated[float | None, "0 to 1 when a search found it"] = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """A fenced memory section for a prompt, empty when nothing is known; `untrusted`: others than users told of it.

    `prefix` stands before it, and before all that was said. `shown` and `tokens` are of both.
    """

    section: str
    tokens: int
    shown: tuple[Reference, ...]
    untrusted: bool
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    prefix: PrefixText | None = None


@dataclass(frozen=True, slots=True)
class ChatResult:
    """A model's finished answer; `adapter` is the id of the one that the model answered with.

    `cited` are the memories whose marks stood in it, `shown` all that the model saw. `not_stored` says why there is
    no receipt although the exchange was to be stored.
    """

    text: Annotated[str, "The answer"]
    model: Annotated[str, "Name of the model"]
    cited: Annotated[tuple[Reference, ...], "Memories the answer cites; they get hot"]
    shown: Annotated[tuple[Reference, ...], "All memories the model was shown"]
    receipt: Annotated[AddReceipt | None, "What was stored of the exchange"]
    not_stored: Annotated[str | None, "Why nothing was stored although it should have been"]
    memory_tokens: Annotated[int, "Tokens of the memory section, estimated"]
    prompt_tokens: Annotated[int, "Tokens of the whole prompt"]
    completion_tokens: Annotated[int, "Tokens of the answer"]
    tokens_estimated: Annotated[bool, "True when the endpoint did not count them"]
    timings_ms: Annotated[Mapping[str, float], "Time of each stage in milliseconds"]
    activation: Activation | None = None
    adapter: str | None = None

    @property
    def cited_ids(self) -> tuple[str, ...]:
        """Return the ids of the memories that the answer cites."""
        return tuple(reference.item for reference in self.cited)


class RecallOptions(TypedDict, total=False):
    """What a recall may be told, by name; each has the default that `Question` gives it."""

    cubes: Sequence[str]
    actor: str
    conversation: str | None
    top_k: int | None
    filter: Mapping[str, Json] | None
    relevance: float | None
    reference_time: Json
    token_budget: int | None
    working: bool
    recent: bool
    known: Collection[str]


class ChatOptions(RecallOptions, total=False):
    """What a chat may be told besides, by name."""

    history: Json
    system_prompt: str | None
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    store: bool
    store_in: str | None
    tags: Sequence[str]
    info: Mapping[str, Json] | None
    mode: str
    marks: bool
    model: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a chat with all its options; None is the usual value, or the model's.

    `history` is what was said before in this talk, as messages; without one, `recent` shows the newest pages of the
    `conversation`. Memories with a `known` text are not shown: the model sees it anyway. `store_in` is the cube that
    keeps the exchange, by default the first of `cubes`. With `marks` the answer's text keeps those of what it cites.
    `model` names one in this process, `local:` and a path, to answer instead of the configured one.
    """

    query: str
    cubes: Sequence[str] = (DEFAULT_CUBE,)
    actor: str = LOCAL_OWNER
    conversation: str | None = None
    top_k: int | None = None
    filter: Mapping[str, Json] | None = None
    relevance: float | None = None
    reference_time: Json = None
    token_budget: int | None = None
    working: bool = True
    recent: bool = True
    known: Collection[str] = ()
    history: Json = ()
    system_prompt: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    store: bool = True
    store_in: str | None = None
    tags: Sequence[str] = ()
    info: Mapping[str, Json] | None = None
    mode: str = Mode.ROUGH
    marks: bool = False
    model: str | None = None
