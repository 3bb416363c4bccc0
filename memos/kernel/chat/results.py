"""Parameters and results of chats."""

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

    mark: Annotated[str, "Citation mark, such as `m1`"]
    item: Annotated[str, "Id of the memory"]
    cube: Annotated[str, "Cube it is in"]
    memory: Annotated[str, "Its text"]
    speaker: Annotated[str, "Who said it"]
    at: Annotated[datetime | None, "When"]
    relevance: Annotated[float | None, "Relevance from 0 to 1, if a search found it"] = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """A fenced memory section for a prompt, empty if nothing is known; `untrusted` if part of it is not from users.

    `prefix` comes before it and before the history; `shown` and `tokens` count both.
    """

    section: str
    tokens: Annotated[int, "Tokens of the text, estimated"]
    shown: Annotated[tuple[Reference, ...], "Memories in the text"]
    untrusted: Annotated[bool, "True if a part is not from users: an answer made from it is untrusted too"]
    timings_ms: Annotated[Mapping[str, float], "Time of each stage in milliseconds"] = field(default_factory=dict)
    prefix: PrefixText | None = None

    @property
    def text(self) -> str:
        """Return prefix and section as one text for a system message."""
        parts = ("" if self.prefix is None else self.prefix.section, self.section)
        return "\n\n".join(part for part in parts if part)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the memories in it."""
        return tuple(dict.fromkeys(reference.item for reference in self.shown))


@dataclass(frozen=True, slots=True)
class ChatResult:
    """A complete answer; `adapter` is the id of the adapter used.

    `cited` are the memories cited by their marks, `shown` all that the model saw. `not_stored` says why there is no
    receipt although the exchange was to be stored.
    """

    text: Annotated[str, "The answer"]
    model: Annotated[str, "Name of the model"]
    cited: Annotated[tuple[Reference, ...], "Memories the answer cites; each counts as a use"]
    shown: Annotated[tuple[Reference, ...], "All memories in the prompt"]
    receipt: Annotated[AddReceipt | None, "Receipt of the stored exchange"]
    not_stored: Annotated[str | None, "Why the exchange could not be stored"]
    memory_tokens: Annotated[int, "Tokens of the memory section, estimated"]
    prompt_tokens: Annotated[int, "Tokens of the whole prompt"]
    completion_tokens: Annotated[int, "Tokens of the answer"]
    tokens_estimated: Annotated[bool, "True if the endpoint did not count them"]
    timings_ms: Annotated[Mapping[str, float], "Time of each stage in milliseconds"]
    activation: Annotated[Activation | None, "What came from the prefix cache, if known"] = None
    adapter: Annotated[str | None, "Id of the adapter that the model answered with"] = None

    @property
    def cited_ids(self) -> tuple[str, ...]:
        """Return the ids of the memories that the answer cites."""
        return tuple(reference.item for reference in self.cited)


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message of a prompt."""

    role: Annotated[str, "`system`, `user` or `assistant`"]
    content: Annotated[str, "Its text"]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The messages that a chat would send to the model; `model` is None if none is configured."""

    messages: Annotated[tuple[PromptMessage, ...], "What the model would be sent"]
    model: Annotated[str | None, "Name of the model; null if none is configured"]
    shown: Annotated[tuple[Reference, ...], "All memories in the prompt"]
    memory_tokens: Annotated[int, "Tokens of the memory section, estimated"]
    prompt_tokens: Annotated[int, "Tokens of the whole prompt, estimated"]


class RecallOptions(TypedDict, total=False):
    """Keyword options of a recall; `Question` has their defaults."""

    cubes: Sequence[str]
    actor: str
    conversation: str | None
    top_k: int | None
    filter: Mapping[str, Json] | None
    min_relevance: float | None
    relevance: float | None
    reference_time: Json
    token_budget: int | None
    working: bool
    recent: bool
    known: Collection[str]


class ChatOptions(RecallOptions, total=False):
    """Keyword options of a chat in addition to those of a recall."""

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
    """A chat question with its options; None means the usual value, or the model's default.

    `history` are earlier messages; without it, `recent` adds the newest pages of the `conversation`. Memories with a
    `known` text are left out, as the model sees it anyway. `store_in` is the cube that stores the exchange, by default
    the first of `cubes`. `marks` keeps citation marks in the answer. `model` overrides the configured model with one in
    this process, `local:` and a path. `relevance` is the former name of `min_relevance`.
    """

    query: str
    cubes: Sequence[str] = (DEFAULT_CUBE,)
    actor: str = LOCAL_OWNER
    conversation: str | None = None
    top_k: int | None = None
    filter: Mapping[str, Json] | None = None
    min_relevance: float | None = None
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
    relevance: float | None = None
