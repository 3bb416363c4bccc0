"""`/openai/v1/responses`: OpenAI's Responses API in front of the chat endpoint, with memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.proxy.answers import counted
from memos.api.proxy.exchanges import CurrentUpstream, Exchange, Wanted, identify, relay
from memos.api.proxy.requests import Message, read_body
from memos.api.proxy.responses_requests import ResponseRequest, messages_of, read_response
from memos.api.proxy.stored_responses import (
    StoredResponses,
    call_item,
    item_id,
    message_item,
    new_response_id,
    note_for,
)
from memos.api.proxy.translation import Block, Kind, Translation, event
from memos.core.clock import Clock
from memos.core.identities import Caller
from memos.core.types import Json
from memos.errors import InvalidInput, NotFound
from memos.kernel.memos import MemOS

router = APIRouter()

_KINDS: Mapping[Kind, str] = {"reasoning": "rs", "text": "msg", "refusal": "msg", "call": "fc"}
_INCOMPLETE = {"length": "max_output_tokens", "max_tokens": "max_output_tokens", "content_filter": "content_filter"}
# Fields of a request that its response repeats, with what they are where the request does not say it.
_REPEATED: Mapping[str, Json] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


@router.post("/responses")
async def create(request: Request, memos: CurrentMemos, caller: CurrentCaller, upstream: CurrentUpstream) -> Response:
    """Answer a request with what is remembered of its last question; store the exchange when it is answered."""
    asked = read_response(read_body(await request.body()))
    upstream.check()  # before anything is looked for
    wanted = Wanted.of(request)

    def prepare() -> tuple[Exchange, Told]:
        acting = identify(memos, caller, wanted, asked.user)
        stored = StoredResponses(memos, acting)
        own = messages_of(asked.body.get("input"), stored.resolve)
        chain = [] if asked.previous is None else stored.chain(asked.previous)
        earlier = stored.messages_of(chain)
        if asked.conversation is not None:
            earlier = stored.messages(stored.transcript(asked.conversation))
        elif not chain:
            chain = stored.resent(asked.body["input"], own)
            earlier = own[: len(stored.messages_of(chain))]
            own = own[len(earlier) :]
        told = Told(asked, own, [each.id for each in chain], str(upstream.settings.model), memos.clock)
        conversation = asked.conversation or wanted.conversation or (chain[-1].conversation if chain else None)
        keep = asked.store if wanted.store is None else wanted.store
        told.stored = keep and asked.store
        exchange = Exchange(
            memos,
            asked.completion([*earlier, *own], own),
            acting,
            conversation or (told.id if told.stored else None),
            keep,
            told.id if told.stored else None,
            {**asked.metadata},
        )
        exchange.recall()
        return exchange, told

    return await relay(request, upstream, *await to_thread.run_sync(prepare))


@router.get("/responses/{response}")
async def retrieve(
    request: Request, memos: CurrentMemos, caller: CurrentCaller, response: str, *, stream: bool = False
) -> Response:
    """Return a stored response."""
    if stream:
        raise InvalidInput("stream", "is not supported for a stored response; leave it out")
    found = await to_thread.run_sync(lambda: _stored(request, memos, caller).get(response).resource)
    return JSONResponse(found)


@router.delete("/responses/{response}")
async def delete(request: Request, memos: CurrentMemos, caller: CurrentCaller, response: str) -> Response:
    """Erase a stored response: its messages, and what was read out of them alone."""
    await to_thread.run_sync(lambda: _stored(request, memos, caller).erase(response))
    return JSONResponse({"id": response, "object": "response", "deleted": True})


@router.get("/responses/{response}/input_items")
async def input_items(
    request: Request,
    memos: CurrentMemos,
    caller: CurrentCaller,
    response: str,
    *,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: str = "desc",
    after: str | None = None,
) -> Response:
    """List what a response was made from, also of the responses before it."""
    if order not in ("asc", "desc"):
        raise InvalidInput("order", "must be asc or desc")

    def listed() -> list[Json]:
        stored = _stored(request, memos, caller)
        return stored.input_items(stored.get(response))

    items = await to_thread.run_sync(listed)
    items = items if order == "asc" else items[::-1]
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise NotFound("item", after[:128], "`after` must be the id of an item of this response.")
        items = items[places[0] + 1 :]
    page = items[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return JSONResponse({"object": "list", "data": page, "has_more": len(items) > limit, **ends})


def _stored(request: Request, memos: MemOS, caller: Caller) -> StoredResponses:
    return StoredResponses(memos, identify(memos, caller, Wanted.of(request), None))


class Told(Translation):
    """Words an answer as a response, whole or as the events of one."""

    stored = True
    """False if the response cannot be retrieved."""

    def __init__(
        self, asked: ResponseRequest, own: list[Message], chain: Sequence[str], model: str, clock: Clock
    ) -> None:
        super().__init__(streams=bool(asked.body.get("stream")), reasoning=True)
        self.id = new_response_id()
        self._asked = asked
        self._own = own
        self._chain = chain
        self._model = model
        self._clock = clock
        self._created_at = clock.now().timestamp()
        self._completed_at: int | None = None
        self._events_sent = 0

    def begun(self) -> bytes:
        response = self._resource("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def block_begun(self, block: Block) -> bytes:
        item = self._item(block, "in_progress")
        if block.kind == "call":
            return self._of(block, "response.output_item.added", item={**item, "arguments": ""})
        told = self._of(block, "response.output_item.added", item={**item, "content": []})
        return told + self._in(block, "response.content_part.added", part=_part(block))

    def block_more(self, block: Block, piece: str, logprobs: list[Json]) -> bytes:
        match block.kind:
            case "call":
                return self._in(block, "response.function_call_arguments.delta", delta=piece)
            case "text":
                return self._in(block, "response.output_text.delta", delta=piece, logprobs=logprobs)
            case "refusal":
                return self._in(block, "response.refusal.delta", delta=piece)
        return self._in(block, "response.reasoning_text.delta", delta=piece)

    def block_ended(self, block: Block) -> bytes:
        match block.kind:
            case "call":
                told = self._in(
                    block, "response.function_call_arguments.done", name=block.call.name, arguments=block.text
                )
            case "text":
                told = self._in(block, "response.output_text.done", text=block.text, logprobs=block.logprobs)
            case "refusal":
                told = self._in(block, "response.refusal.done", refusal=block.text)
            case _:
                told = self._in(block, "response.reasoning_text.done", text=block.text)
        if block.kind != "call":
            told += self._in(block, "response.content_part.done", part=_part(block))
        return told + self._of(block, "response.output_item.done", item=self._item(block, "completed"))

    def completed(self) -> bytes:
        response = self.body()
        return self._event(f"response.{response['status']}", response=response)

    def failed(self, message: str) -> bytes:
        error = {"code": "server_error", "message": message}
        response = {**self._resource("failed", self._output("incomplete")), "error": error}
        # The official clients raise the second.
        told = {"type": "server_error", "param": None, **error}
        return self._event("response.failed", response=response) + self._event("error", **told | {"error": told})

    def body(self) -> dict[str, Json]:
        reason = _INCOMPLETE.get(self.answer.finish or "")
        status = "completed" if reason is None else "incomplete"
        details = None if reason is None else {"reason": reason}
        return {**self._resource(status, self._output(status)), "incomplete_details": details}

    def failure(self, raw: bytes, status: int) -> tuple[bytes, Mapping[str, str]]:
        return raw, {}

    def note(self, *, inputs: int, whole: bool) -> Json:
        if not self.stored:
            return None
        response = {name: value for name, value in self.body().items() if name not in ("id", "object", "output")}
        return note_for(response, self._own, self._chain, inputs=inputs, whole=whole)

    def _resource(self, status: str, output: list[Json]) -> dict[str, Json]:
        body = self._asked.body
        repeated = {name: usual if body.get(name) is None else body[name] for name, usual in _REPEATED.items()}
        done = status not in ("in_progress", "queued")
        conversation = self._asked.conversation
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(self._created_at),
            "completed_at": self._done_at() if status == "completed" else None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self.answer.model or self._model,
            "output": output,
            "metadata": self._asked.metadata,
            "store": self.stored and (not done or self.answer.message() is not None),
            **({} if conversation is None else {"conversation": {"id": conversation}}),
            **repeated,
            "usage": self._usage() if done else None,
        }

    def _done_at(self) -> int:
        if self._completed_at is None:
            self._completed_at = int(self._clock.now().timestamp())
        return self._completed_at

    def _output(self, status: str) -> list[Json]:
        last = len(self.blocks) - 1
        return [self._item(block, status if block.index == last else "completed") for block in self.blocks]

    def _item(self, block: Block, status: str) -> dict[str, Json]:
        # The message has a number only if it is not the first: a stored one has one message.
        kind = _KINDS[block.kind]
        before = sum(_KINDS[each.kind] == kind for each in self.blocks[: block.index])
        id_ = item_id(kind, self.id, before)
        match block.kind:
            case "call":
                return call_item(id_, block.call.id, block.call.name, block.text, status)
            case "reasoning":
                return {"id": id_, "type": "reasoning", "summary": [], "content": [_part(block)], "status": status}
        return {**message_item(id_, block.text, status), "content": [_part(block)]}

    def _of(self, block: Block, kind: str, **more: Json) -> bytes:
        return self._event(kind, output_index=block.index, **more)

    def _in(self, block: Block, kind: str, **more: Json) -> bytes:
        place = {} if block.kind == "call" else {"content_index": 0}
        return self._of(block, kind, item_id=self._item(block, "in_progress")["id"], **place, **more)

    def _event(self, kind: str, **more: Json) -> bytes:
        number, self._events_sent = self._events_sent, self._events_sent + 1
        return event({"type": kind, "sequence_number": number, **more})

    def _usage(self) -> Json:
        usage = self.answer.usage
        if usage is None:
            return None
        asked, answered = counted(usage, "prompt_tokens"), counted(usage, "completion_tokens")
        cached = counted(usage, "prompt_tokens_details", "cached_tokens")
        thought = counted(usage, "completion_tokens_details", "reasoning_tokens")
        return {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": answered,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": asked + answered,
        }


def _part(block: Block) -> dict[str, Json]:
    match block.kind:
        case "reasoning":
            return {"type": "reasoning_text", "text": block.text}
        case "refusal":
            return {"type": "refusal", "refusal": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": [*block.logprobs]}
