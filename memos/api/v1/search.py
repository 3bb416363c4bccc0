"""Routes that answer from memory: search, why not, working memory, feedback and chat."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import AliasChoices, Field

from memos.api.dialects import chat_options, chat_response, resolve_identity
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.streaming import CurrentRunner, encode_event
from memos.api.v1.common import (
    Body,
    CubeBody,
    CurrentTarget,
    IdempotencyKey,
    MinRelevance,
    Moment,
    creation,
    problem,
    target_of,
    value_router,
)
from memos.api.values import Value
from memos.core.types import FeedbackReceipt, Outcome, SearchResult, WhyNot
from memos.kernel.chat.results import ChatOptions, ChatPrompt, ChatResult, Recalled
from memos.kernel.tiers import WorkingMemory

router = value_router("search")


class QuestionBody(Body):
    """A search: the question and its scope."""

    query: str = Field(description="The question")
    cubes: list[str] | None = Field(None, description="Cubes to search; default: the user's own cube")
    top_k: int = Field(10, description="Most hits")
    filter: dict[str, Any] | None = Field(None, description="Filter (docs/reference/filters.md)")
    as_of: Moment = Field(None, description="Search only what was stored by this time")
    reference_time: Moment = Field(None, description="Time the question is asked; default: now")
    token_budget: int | None = Field(None, description="Also return a text for a prompt, of at most this many tokens")
    rerank: bool | None = Field(None, description="Use the reranker; default: if one is configured")
    min_relevance: MinRelevance = Field(0, description="Leave out hits of less relevance, 0 to 1")


class SearchBody(QuestionBody):
    """A search: the question, its scope, and the amount of detail to return."""

    explain: bool = Field(False, description="Explain each hit's score")


class WhyNotBody(QuestionBody):
    """A search, and the memory that it should have found."""

    item: str = Field(description="Id of the memory")
    cubes: list[str] | None = Field(None, description="Cubes to search; default: the cube of the memory")


class FeedbackBody(CubeBody):
    """A correction in plain words."""

    text: str = Field(description="Correction in plain words, such as `no, I moved to Lyon in May`")
    speaker: str | None = Field(None, description="Who says so")
    conversation: str | None = Field(None, description="Conversation it belongs to")
    item_ids: list[str] = Field(default=[], description="Ids of memories it corrects; default: what a search finds")
    chat_time: Moment = Field(None, description="When it was said; default: now")


@router.post("/search")
def search(body: SearchBody, memos: CurrentMemos, caller: CurrentCaller) -> SearchResult:
    """Return the best memories for a question."""
    acting = resolve_identity(memos, caller, body.user, new=False)
    return memos.search(body.query, cubes=acting.cubes(body.cubes), actor=acting.actor, **body.given("query"))


@router.post("/search/why-not")
def why_not(body: WhyNotBody, memos: CurrentMemos, caller: CurrentCaller) -> WhyNot:
    """Return the stage of a search at which a memory is dropped, or the rank at which it is found."""
    acting = resolve_identity(memos, caller, body.user, new=False)
    asked = body.given("item", "query")
    return memos.search.why_not(body.item, body.query, cubes=body.cubes, actor=acting.actor, **asked)


@router.get("/working-memory")
def working_memory(
    memos: CurrentMemos,
    target: CurrentTarget,
    conversation: Annotated[str | None, Query(description="Conversation it is for")] = None,
    max_tokens: Annotated[int, Query(description="Maximum tokens of the text")] = 1_000,
) -> WorkingMemory:
    """Return the small set a prompt begins with."""
    return memos.tiers.working_memory(conversation, **target, max_tokens=max_tokens)


@router.post("/feedback", status_code=201)
def feedback(
    body: FeedbackBody, memos: CurrentMemos, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
) -> FeedbackReceipt:
    """Apply a correction in plain words: edit, replace, end or forget a statement, or add one; `outcome` says which."""
    target = target_of(memos, caller, body, new=True)

    def correct() -> FeedbackReceipt:
        return memos.feedback(body.text, **target, **body.given("text"))

    def again(made: tuple[str, ...]) -> FeedbackReceipt:
        memos.cubes.get(**target)
        return _receipt_again(made)

    asked = creation(idempotency_key, "feedback", target, body)
    return memos.idempotency.once(asked, correct, ids=_ids_of_receipt, again=again)


def _ids_of_receipt(made: FeedbackReceipt) -> list[str]:
    parts = (made.related, made.superseded, made.edited, made.forgotten, made.runners_up)
    return [made.item_id, *(id_ for part in parts for id_ in (*part, "")), made.outcome]


def _receipt_again(made: tuple[str, ...]) -> FeedbackReceipt:
    """Return the receipt of a correction that was made before; version 0.1 kept its first two lists alone."""
    item, *rest = made
    lists: list[list[str]] = [[]]
    for id_ in rest:
        if id_:
            lists[-1].append(id_)
        else:
            lists.append([])
    if len(lists) == 2:
        lists = [*lists, [], [], [], [Outcome.SUPERSEDED if lists[1] else Outcome.ADDED]]
    related, superseded, edited, forgotten, runners_up, [outcome] = map(tuple, lists)
    return FeedbackReceipt(
        item,
        related,
        superseded,
        indexed=False,
        outcome=Outcome(outcome),
        edited=edited,
        forgotten=forgotten,
        runners_up=runners_up,
    )


chat_router = value_router("chat", prefix="/chat")


class RecalledBody(Body):
    """A question, and the memory to answer it from."""

    query: str = Field(description="The question")
    cubes: list[str] | None = Field(None, description="Cubes to recall from; default: the user's own cube")
    top_k: int | None = Field(None, description="Maximum number of memories from search; default: 12")
    filter: dict[str, Any] | None = Field(None, description="Filter of that search (docs/reference/filters.md)")
    min_relevance: MinRelevance | None = Field(
        None,
        validation_alias=AliasChoices("min_relevance", "relevance"),
        description="Minimum relevance, 0 to 1; default: 0. Its former name `relevance` is taken until version 0.3",
    )
    reference_time: Moment = Field(None, description="Time the question is asked; default: now")
    token_budget: int | None = Field(None, description="Maximum tokens of memory; default: MEMOS_RECALL__TOKENS")
    working: bool = Field(True, description="Put the working memory first: instructions, preferences, the topic")


class RecallBody(RecalledBody):
    """A question that a model of the caller's will answer."""

    conversation: str | None = Field(None, description="Conversation id")
    recent: bool = Field(True, description="Include the most recent messages of the conversation")
    known: list[str] = Field(
        default=[], description="Texts that the model sees anyway; memories with such a text are left out"
    )


class PromptBody(RecalledBody):
    """A question, and the memory to answer from."""

    conversation: str | None = Field(
        None, description="Conversation id; without `history`, the model sees its most recent messages"
    )
    history: list[Any] = Field(default=[], description="Earlier messages `{role, content}`, or of another known shape")
    system_prompt: str | None = Field(None, description="Instructions for the model, in place of the default ones")


class ChatBody(PromptBody):
    """A question to answer, and the memory to answer from."""

    max_tokens: int | None = Field(
        None, description="Maximum tokens of the answer; an answer that is cut off is an error"
    )
    temperature: float | None = Field(
        None, description="Sampling temperature from 0 to 2; default: the model's setting"
    )
    top_p: float | None = Field(None, description="Nucleus sampling, above 0 to 1")
    store: bool = Field(True, description="Store the question and the answer")
    store_in: str | None = Field(None, description="Cube to store them in; default: the first of `cubes`")
    tags: list[str] = Field(default=[], description="Tags of the stored memories")
    info: dict[str, Any] = Field(default={}, description="Metadata of the stored memories")
    mode: str = Field("rough", description="`rough`, or `fine`: also extract facts, in the background")
    marks: bool = Field(False, description="Keep citation marks such as `[m1]` in the text")
    stream: bool = Field(False, description="Stream events: `text` pieces, then `end` with the result, or `error`")


class Chat(ChatResult, Value):
    """An answer made with memory."""


class RecalledText(Recalled, Value):
    """What is remembered for a question, as a text for a prompt."""

    text: str = Field(description="Text for a system message, fenced as data; empty if nothing is remembered")


class ChatModel(Value):
    """The model that answers chats."""

    model: str | None = Field(description="Its name; null if none is configured (docs/how-to/models.md)")


@chat_router.get("/model", name="model")
def chat_model(memos: CurrentMemos, caller: CurrentCaller) -> ChatModel:
    """Return the model that answers chats."""
    return ChatModel(model=memos.chat.model())


@chat_router.post("/recall", name="recall")
def chat_recall(body: RecallBody, memos: CurrentMemos, caller: CurrentCaller) -> RecalledText:
    """Return what is remembered for a question, for a prompt of the caller's own. Nothing is sent or stored."""
    acting = resolve_identity(memos, caller, body.user)
    options = {**body.given("query"), "actor": acting.actor, "cubes": acting.cubes(body.cubes)}
    return RecalledText.model_validate(memos.chat.recall(body.query, **options))


@chat_router.post("/prompt", name="prompt")
def chat_prompt(body: PromptBody, memos: CurrentMemos, caller: CurrentCaller) -> ChatPrompt:
    """Return what a chat would send to the model. It works without one; nothing is sent or stored."""
    acting = resolve_identity(memos, caller, body.user, new=False)
    return memos.chat.prompt(body.query, **chat_options(body, actor=acting.actor, cubes=acting.cubes(body.cubes)))


_EVENTS = {"content": {"text/event-stream": {"schema": {"type": "string", "description": "With `stream`"}}}}


@chat_router.post("", response_model=Chat, responses={200: _EVENTS})
async def chat(
    body: ChatBody, request: Request, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> Any:
    """Answer a question with what is remembered, and remember the exchange when the answer is complete."""

    def options() -> ChatOptions:
        acting = resolve_identity(memos, caller, body.user)
        return chat_options(body, actor=acting.actor, cubes=acting.cubes(body.cubes))

    if not body.stream:
        result = await runner.complete(request, lambda: memos.chat.steps(body.query, **options()))
        return Chat.model_validate(result)
    pieces = await runner.start(lambda: memos.chat.stream(body.query, **options()))
    return chat_response(
        pieces,
        text=lambda text: encode_event({"text": text}, event="text"),
        end=lambda result: encode_event(Chat.model_validate(result).model_dump(mode="json"), event="end"),
        error=lambda error: encode_event(problem(error), event="error"),
    )
