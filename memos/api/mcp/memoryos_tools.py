"""The three MCP tools of MemoryOS, with its names of arguments and results, on the user's own cube.

Source: https://github.com/BAI-LAB/MemoryOS (memoryos-mcp), Kang et al., EMNLP 2025.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from memos.api.mcp.acting import ToolContext, current_context
from memos.core.text.rendering import is_untrusted, speaker_of, wrap_untrusted
from memos.core.text.validation import check_text
from memos.core.types import Hit, Item, ItemType, Json, Role, Trust
from memos.errors import InvalidInput
from memos.kernel.conversations import Exchange
from memos.search.request import MAX_TOP_K

CONVERSATION = "mcp"
"""Where `add_memory` stores: a user's talks with assistants that have no other name for them."""

_RECENT = 10
_HITS_AN_EXCHANGE = 4
_MOST = 200
_PROFILE_TOKENS = 1_000
_USER = (ItemType.USER, ItemType.PREFERENCE, ItemType.INSTRUCTION, ItemType.LONG_TERM)
_ASSISTANT = (ItemType.ASSISTANT,)
_STYLE_CHARS = 65_536


class Page(BaseModel):
    """One exchange."""

    user_input: str
    agent_response: str
    timestamp: str
    meta_info: dict[str, Any]


class Knowledge(BaseModel):
    """One thing that is known, and since when."""

    knowledge: str
    timestamp: str


class AddedExchange(BaseModel):
    """What `add_memory` stored."""

    status: str
    message: str
    timestamp: str
    ids: list[str]


class Retrieved(BaseModel):
    """What `retrieve_memory` found."""

    status: str
    query: str
    timestamp: str
    user_profile: str
    short_term_memory: list[Page]
    short_term_count: int
    retrieved_pages: list[Page]
    retrieved_user_knowledge: list[Knowledge]
    retrieved_assistant_knowledge: list[Knowledge]
    total_pages_found: int
    total_user_knowledge_found: int
    total_assistant_knowledge_found: int


class UserProfile(BaseModel):
    """What is known of the user, and, asked for, what else is."""

    status: str
    timestamp: str
    user_id: str
    user_profile: str
    user_knowledge: list[Knowledge]
    user_knowledge_count: int
    assistant_knowledge: list[Knowledge]
    assistant_knowledge_count: int


def add_memory(
    user_input: Annotated[str, Field(description="What the user said")],
    agent_response: Annotated[str, Field(description="What the assistant answered")],
    timestamp: Annotated[str | None, Field(description="When, ISO 8601; default: now")] = None,
    meta_data: Annotated[dict[str, Any] | None, Field(description="Own fields of it")] = None,
) -> AddedExchange:
    """Remember one exchange of the user with the assistant."""
    context = current_context()
    said: list[dict[str, Json]] = []
    for name, role, text in (("user_input", Role.USER, user_input), ("agent_response", Role.ASSISTANT, agent_response)):
        if not text.strip():
            raise InvalidInput(name, "is empty; an exchange has something said on both sides")
        said.append({"role": str(role), "content": text} | ({"chat_time": timestamp} if timestamp else {}))
    receipt = context.memos.add(said, cube=context.home, actor=context.actor, conversation=CONVERSATION, info=meta_data)
    return AddedExchange(
        status="success", message="stored", timestamp=timestamp or _now(context), ids=list(receipt.item_ids)
    )


def retrieve_memory(
    query: Annotated[str, Field(description="What memories are wanted for")],
    relationship_with_user: Annotated[str, Field(description="Taken, and changes nothing of what is found")] = "friend",
    style_hint: Annotated[str, Field(description="Taken, and changes nothing of what is found")] = "",
    max_results: Annotated[int, Field(description="Most of each kind", ge=1, le=_MOST)] = 10,
) -> Retrieved:
    """Return the newest exchanges, older ones that matter to a query, the profile, and knowledge that matters to it."""
    context = current_context()
    for name, text in (("relationship_with_user", relationship_with_user), ("style_hint", style_hint)):
        check_text(name, text, _STYLE_CHARS)
    recent = context.memos.conversations.newest(CONVERSATION, cube=context.home, actor=context.actor, limit=_RECENT)
    shown = {message for exchange in recent for message in exchange.messages}
    hits = _found(context, query, (ItemType.MESSAGE,), max_results * _HITS_AN_EXCHANGE)
    around = context.memos.conversations.around([hit.item.id for hit in hits], cube=context.home, actor=context.actor)
    pages = [_page(exchange) for exchange in around if not shown & set(exchange.messages)][:max_results]
    of_user = [_known(hit.item, hit) for hit in _found(context, query, _USER, max_results)]
    of_assistant = [_known(hit.item, hit) for hit in _found(context, query, _ASSISTANT, max_results)]
    return Retrieved(
        status="success",
        query=query,
        timestamp=_now(context),
        user_profile=_profile(context),
        short_term_memory=[_page(exchange) for exchange in recent],
        short_term_count=len(recent),
        retrieved_pages=pages,
        retrieved_user_knowledge=of_user,
        retrieved_assistant_knowledge=of_assistant,
        total_pages_found=len(pages),
        total_user_knowledge_found=len(of_user),
        total_assistant_knowledge_found=len(of_assistant),
    )


def get_user_profile(
    include_knowledge: Annotated[bool, Field(description="Also what else is known of the user")] = True,
    include_assistant_knowledge: Annotated[bool, Field(description="Also what the assistant knows")] = False,
) -> UserProfile:
    """Return what is known of the user."""
    context = current_context()
    of_user = _listed(context, _USER) if include_knowledge else []
    of_assistant = _listed(context, _ASSISTANT) if include_assistant_knowledge else []
    return UserProfile(
        status="success",
        timestamp=_now(context),
        user_id=context.actor,
        user_profile=_profile(context),
        user_knowledge=of_user,
        user_knowledge_count=len(of_user),
        assistant_knowledge=of_assistant,
        assistant_knowledge_count=len(of_assistant),
    )


def _now(context: ToolContext) -> str:
    return context.memos.clock.now().isoformat(timespec="seconds")


def _profile(context: ToolContext) -> str:
    """Return the profiles of everybody the cube knows: the user, and those spoken of."""
    subjects = context.memos.profiles.subjects(context.home, actor=context.actor)
    told = [
        context.memos.profiles.render(context.home, subject, _PROFILE_TOKENS, actor=context.actor)
        for subject in subjects[:10]
    ]
    return "\n".join(text for text in told if text)


def _found(context: ToolContext, query: str, types: tuple[ItemType, ...], most: int) -> tuple[Hit, ...]:
    wanted = {"type": {"in": [str(type_) for type_ in types]}}
    most = min(most, MAX_TOP_K)
    return context.memos.search(query, cubes=[context.home], actor=context.actor, top_k=most, filter=wanted).hits


def _listed(context: ToolContext, types: tuple[ItemType, ...]) -> list[Knowledge]:
    wanted = {"and": [{"type": {"in": [str(type_) for type_ in types]}}, {"status": "active"}]}
    found = context.memos.memories.list(cube=context.home, actor=context.actor, filter=wanted, limit=_MOST)
    return [_known(context.memos.get(item.id, actor=context.actor)) for item in found]


def _known(item: Item, hit: Hit | None = None) -> Knowledge:
    sources = item.sources if hit is None else hit.sources
    text = wrap_untrusted(item.memory, speaker_of(item, sources)) if is_untrusted(sources) else item.memory
    return Knowledge(knowledge=text, timestamp=(item.said_at or item.created_at).isoformat(timespec="seconds"))


def _page(exchange: Exchange) -> Page:
    said = [
        wrap_untrusted(text, "conversation") if text and exchange.trust is Trust.UNTRUSTED else text
        for text in (exchange.user, exchange.assistant)
    ]
    at = "" if exchange.at is None else exchange.at.isoformat(timespec="seconds")
    return Page(user_input=said[0], agent_response=said[1], timestamp=at, meta_info=dict(exchange.info))


READ_TOOLS = (retrieve_memory, get_user_profile)
WRITE_TOOLS = (add_memory,)
