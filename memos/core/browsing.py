"""Values for browsing memories: facets, source passages, places, and previews of erasures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from memos.core.types import Json, LinkKind, Role, Segment, Standing, Status, ToolCall, Trust


class FacetName(StrEnum):
    """A property that memories are counted by."""

    TYPE = "type"
    STATUS = "status"
    TIER = "tier"
    SPEAKER = "speaker"
    TAG = "tag"
    CONVERSATION = "conversation"
    MONTH = "month"


class SortField(StrEnum):
    """A property that a list of memories is sorted by; `said_at` is `created_at` where nothing was said."""

    CREATED_AT = "created_at"
    SAID_AT = "said_at"
    UPDATED_AT = "updated_at"
    CONFIDENCE = "confidence"
    HEAT = "heat"


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value and how many memories have it."""

    value: Annotated[str, "The value; of a month, `2025-03`"]
    count: Annotated[int, "Memories that have it"]


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one property, the most frequent first; months are in order, the newest first."""

    name: Annotated[FacetName, "`type`, `status`, `tier`, `speaker`, `tag`, `conversation` or `month`"]
    values: Annotated[tuple[FacetValue, ...], "Its values"]
    more: Annotated[int, "Number of values left out"]


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts of the memories that pass a filter; if there are very many, of those added last."""

    counted: Annotated[int, "How many memories were counted"]
    more: Annotated[bool, "Whether there are more, which were added before those that were counted"]
    facets: Annotated[tuple[Facet, ...], "Counts by property"]


@dataclass(frozen=True, slots=True)
class Said:
    """A message beside a passage, as it stands now."""

    item: Annotated[str, "Id of the memory"]
    speaker: Annotated[str, "Who said it"]
    role: Annotated[Role, "Role of the speaker"]
    at: Annotated[datetime | None, "When it was said"]
    text: Annotated[str, "Its text"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it was said; one that was corrected has its new text and no parts."""

    item: Annotated[str, "Id of the memory that the message is"]
    role: Annotated[Role, "Role of the speaker"]
    at: Annotated[datetime, "When it was said"]
    text: Annotated[str, "Its text; calls of tools are the last lines"]
    content: Annotated[tuple[Mapping[str, Json], ...], "Its parts, if it was more than text; images have a `file`"]
    tool_calls: Annotated[tuple[ToolCall, ...], "Calls of tools"]
    tool_call_id: Annotated[str | None, "The call that the message answers"]

    @property
    def words(self) -> str:
        """Return the text without the lines of its calls."""
        lines = "\n".join(f"{call.name}({call.arguments})" for call in self.tool_calls)
        return self.text.removesuffix(lines).removesuffix("\n") if lines else self.text


@dataclass(frozen=True, slots=True)
class Passage:
    """A message that a memory comes from, as it was written, and what was said around it."""

    item: Annotated[str, "Id of the memory that the message is"]
    speaker: Annotated[str, "Who said it"]
    role: Annotated[Role, "Role of the speaker"]
    at: Annotated[datetime, "When it was said"]
    text: Annotated[str, "The whole message"]
    start: Annotated[int, "Start of the passage in the text, in characters"]
    end: Annotated[int, "End of the passage"]
    conversation: Annotated[str | None, "Conversation of the message"]
    trust: Annotated[Trust, "`trusted` or `untrusted`"]
    before: Annotated[tuple[Said, ...], "What was said just before, in order"]
    after: Annotated[tuple[Said, ...], "What was said just after, in order"]


@dataclass(frozen=True, slots=True)
class Link:
    """A link between a memory and another one."""

    kind: Annotated[LinkKind, "DERIVED_FROM, SUPERSEDES, RELATES, UPDATES, ENDS, SAME or EXTENDS"]
    from_id: Annotated[str, "Id of the memory that was derived, or is newer"]
    to_id: Annotated[str, "Id of the memory it comes from, or replaces, or is about"]
    confidence: Annotated[float | None, "Confidence of a judged link from 0 to 1; 0 if a person rejected it"]
    decided_by: Annotated[str | None, "`rules`, `model`, `feedback`, or the actor who judged it"]
    at: Annotated[datetime, "When it was made"]


@dataclass(frozen=True, slots=True)
class MemoryStanding:
    """Whether a memory still holds."""

    item: Annotated[str, "Id of the memory"]
    standing: Annotated[Standing, "Whether it still holds"]
    replaced_by: Annotated[str | None, "Id of the memory that replaced it, or probably did"]
    since: Annotated[datetime | None, "Since when it stands so"]


@dataclass(frozen=True, slots=True)
class HeatPoint:
    """The heat of a memory at one time."""

    at: Annotated[datetime, "The time"]
    heat: Annotated[float, "Its heat then, if it is not used again before"]


@dataclass(frozen=True, slots=True)
class LearnedBy:
    """An adapter that was trained on a memory."""

    id: Annotated[str, "Id of the adapter"]
    number: Annotated[int, "Its number in the cube"]
    state: Annotated[str, "`training`, `refused`, `ready`, `active` or `retired`"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where a memory is kept besides the ledger, and how much it is used."""

    pinned: Annotated[bool, "Whether it is kept in working memory"]
    archived: Annotated[bool, "Whether its topic is archived, so that it ranks lower"]
    segment: Annotated[Segment | None, "Topic of the mid tier that its page belongs to"]
    heat: Annotated[float, "Its heat now"]
    visits: Annotated[int, "How often a search has returned it"]
    used_at: Annotated[datetime | None, "When it was used last"]
    curve: Annotated[
        tuple[HeatPoint, ...], "Its heat from its first recorded use to two weeks ahead; empty if never used"
    ]
    prefix: Annotated[int | None, "Its place among the memories that prompts begin with, from 0"]
    kv_blocks: Annotated[dict[str, int], "Blocks of attention state that contain it, by storage"]
    adapters: Annotated[tuple[LearnedBy, ...], "Adapters that were trained on it"]
    forgotten_by_adapters: Annotated[bool, "Whether adapters may no longer be trained on it"]


@dataclass(frozen=True, slots=True)
class ErasePreview:
    """Preview of an erasure of memories by id."""

    item_ids: Annotated[tuple[str, ...], "Ids of the memories"]
    derived: Annotated[tuple[str, ...], "Ids of further memories that were derived from them and go too"]
    adapters: Annotated[tuple[str, ...], "Ids of adapters that were trained on them and go too"]


@dataclass(frozen=True, slots=True)
class DocumentPassage:
    """A passage of a document: characters `start` to `end` of its Markdown, and the memory that holds it."""

    item: Annotated[str, "Id of the memory"]
    number: Annotated[int, "Its number in the file, from 1"]
    page: Annotated[int | None, "Page it is on; null if the format has no pages"]
    start: Annotated[int, "Start in the Markdown, in characters"]
    end: Annotated[int, "End in the Markdown, in characters"]
    path: Annotated[tuple[str, ...], "Headings above it"]
    text: Annotated[str, "What the memory says now; empty if it was deleted"]
    status: Annotated[Status, "Status of the memory"]
    version: Annotated[int, "Version of the memory"]
