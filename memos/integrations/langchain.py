"""LangChain: a middleware that gives agents memory, a retriever, a chat history, and tools.

Whose memory it is: `user_id` of the runtime context or else of `configurable`, and the thread of `configurable`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from memos.core.text.rendering import is_untrusted, quoted
from memos.core.types import Hit
from memos.integrations.memory import (
    RECALL_TOOL,
    REMEMBER_TOOL,
    AgentMemory,
    Owner,
    Recalled,
    missing_extra,
)
from memos.integrations.transcript import Transcript

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain.tools import BaseTool, ToolRuntime, tool
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.documents import Document
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
        message_to_dict,
        messages_from_dict,
    )
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableConfig
    from langchain_core.runnables.config import ensure_config
    from langgraph.channels.untracked_value import UntrackedValue
    from langgraph.config import get_config
    from langgraph.graph.message import add_messages
    from langgraph.runtime import Runtime
except ImportError as error:
    raise missing_extra("langchain", "langchain", error) from error

__all__ = ["MemosChatMessageHistory", "MemosMiddleware", "MemosRetriever", "memory_tools", "owner_of"]


def owner_of(config: Mapping[str, Any] | None, context: Any = None) -> Owner:
    """Return whose memory a run is about: the user of its context or configuration, and its thread."""
    configurable = (config or {}).get("configurable", {})

    def named(name: str) -> str | None:
        of_context = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
        found = of_context or configurable.get(name)
        return None if found is None else str(found)

    return Owner(user=named("user_id"), conversation=named("thread_id"))


OwnerOf = Callable[[Mapping[str, Any] | None, Any], Owner]


class MemoryState(TypedDict):
    """The state of an agent with what is recalled for its turn, which no checkpoint keeps."""

    messages: Annotated[list[AnyMessage], add_messages]
    memos_recalled: NotRequired[Annotated[Recalled, UntrackedValue, PrivateStateAttr]]


class MemosMiddleware(AgentMiddleware[MemoryState, Any, Any]):
    """Recall before the model is asked, remember after the agent has answered.

    What is recalled stands behind the system prompt of every model call of a turn. Stored are the messages of the user
    and the answer; both have their ids in LangGraph's state, so a turn that is repeated stores nothing twice.
    An answer made with a tool, or with memories that are not trusted, is stored as untrusted.

    Args:
        memory: The memory; `memory.last_failure` tells when an agent went on without it.
        owner: Returns whose memory a run is about, from its configuration and context; by default `owner_of`.
        remember: Store what is said.
    """

    state_schema = MemoryState

    def __init__(
        self,
        memory: AgentMemory,
        *,
        owner: OwnerOf = owner_of,
        remember: bool = True,
    ) -> None:
        super().__init__()
        self.memory = memory
        self.tools: Sequence[BaseTool] = ()
        self._owner, self._remembers = owner, remember

    def before_agent(self, state: MemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        messages = state["messages"]
        return {"memos_recalled": self.memory.recall(_question(messages), self._of(runtime), known=_texts(messages))}

    async def abefore_agent(self, state: MemoryState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        messages = state["messages"]
        recalled = await self.memory.arecall(_question(messages), self._of(runtime), known=_texts(messages))
        return {"memos_recalled": recalled}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        recalled = request.state.get("memos_recalled")
        if recalled is None:  # a run that goes on from a checkpoint
            owner = self._of(request.runtime)
            recalled = self.memory.recall(_question(request.messages), owner, known=_texts(request.messages))
        return handler(_with(request, recalled))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        recalled = request.state.get("memos_recalled")
        if recalled is None:
            owner = self._of(request.runtime)
            recalled = await self.memory.arecall(_question(request.messages), owner, known=_texts(request.messages))
        return await handler(_with(request, recalled))

    def after_agent(self, state: MemoryState, runtime: Runtime[Any]) -> None:
        if self._remembers:
            said, turn, untrusted = _turn(state)
            self.memory.remember(said, self._of(runtime), turn=turn, untrusted=untrusted)

    async def aafter_agent(self, state: MemoryState, runtime: Runtime[Any]) -> None:
        if self._remembers:
            said, turn, untrusted = _turn(state)
            await self.memory.aremember(said, self._of(runtime), turn=turn, untrusted=untrusted)

    def _of(self, runtime: Runtime[Any]) -> Owner:
        return self._owner(get_config(), runtime.context)


class MemosRetriever(BaseRetriever):
    """Returns memories as documents, the best first; text of sources that are not trusted is fenced.

    Attributes:
        memory: The memory.
        owner: Whose memory it is; by default as the configuration of the call says (`owner_of`).
    """

    memory: AgentMemory
    owner: Owner | None = None

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        return super().invoke(input, config, owner=self._of(config), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        return await super().ainvoke(input, config, owner=self._of(config), **kwargs)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        owner: Owner = Owner(),
    ) -> list[Document]:
        return [_document(hit) for hit in self.memory.recall(query, owner).hits]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        owner: Owner = Owner(),
    ) -> list[Document]:
        return [_document(hit) for hit in (await self.memory.arecall(query, owner)).hits]

    def _of(self, config: RunnableConfig | None) -> Owner:
        return owner_of(ensure_config(config)) if self.owner is None else self.owner


class MemosChatMessageHistory(BaseChatMessageHistory):
    """A chat history that keeps its messages as they are, and remembers what is said in it for other sessions.

    Args:
        memory: The memory; `memory.last_failure` tells when a history is empty because memory is away.
        session_id: The session.
        user: Whose session it is.
        cube: A cube to share.
        remember: Store what is said as memories too.
    """

    def __init__(
        self,
        memory: AgentMemory,
        session_id: str,
        *,
        user: str | None = None,
        cube: str | None = None,
        remember: bool = True,
    ) -> None:
        self.memory = memory
        self._owner, self._remembers = Owner(user, session_id, cube), remember
        self._transcript = Transcript(memory, self._owner)

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages, the oldest first."""
        return messages_from_dict(self._transcript.items())

    async def aget_messages(self) -> list[BaseMessage]:
        return messages_from_dict(await self._transcript.aitems())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        if self._remembers:
            said, turn, untrusted = _said(messages, self._transcript.items())
            self.memory.remember(said, self._owner, turn=turn, untrusted=untrusted)
        self._transcript.append([message_to_dict(message) for message in messages])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        if self._remembers:
            said, turn, untrusted = _said(messages, await self._transcript.aitems())
            await self.memory.aremember(said, self._owner, turn=turn, untrusted=untrusted)
        await self._transcript.aappend([message_to_dict(message) for message in messages])

    def clear(self) -> None:
        """Remove the messages; what was remembered of them stays."""
        self._transcript.clear()

    async def aclear(self) -> None:
        """Remove the messages; what was remembered of them stays."""
        await self._transcript.aclear()


def memory_tools(
    memory: AgentMemory, *, owner: Callable[[Mapping[str, Any] | None, Any], Owner] = owner_of
) -> list[BaseTool]:
    """Return the tools `recall_memories` and `remember_fact`, for agents that decide themselves when to use memory."""

    @tool(description=RECALL_TOOL)
    def recall_memories(question: str, runtime: ToolRuntime[Any, Any]) -> str:
        return memory.recall(question, owner(runtime.config, runtime.context)).answer

    @tool(description=REMEMBER_TOOL)
    def remember_fact(fact: str, runtime: ToolRuntime[Any, Any]) -> str:
        said = [{"role": "user", "content": fact}]
        return memory.remember(said, owner(runtime.config, runtime.context), turn=runtime.tool_call_id).answer

    async def recall_async(question: str, runtime: ToolRuntime[Any, Any]) -> str:
        return (await memory.arecall(question, owner(runtime.config, runtime.context))).answer

    async def remember_async(fact: str, runtime: ToolRuntime[Any, Any]) -> str:
        said = [{"role": "user", "content": fact}]
        return (await memory.aremember(said, owner(runtime.config, runtime.context), turn=runtime.tool_call_id)).answer

    recall_memories.coroutine, remember_fact.coroutine = recall_async, remember_async
    return [recall_memories, remember_fact]


def _document(hit: Hit) -> Document:
    item = hit.item
    about = {"speaker": item.speaker, "said_at": item.said_at, "cube": item.cube, "tags": list(item.tags)}
    scores = {"score": hit.score, "relevance": hit.relevance, "standing": str(hit.standing)}
    untrusted = is_untrusted(hit.sources)
    return Document(quoted(item, item.memory), id=item.id, metadata={**about, **scores, "untrusted": untrusted})


def _said(
    messages: Sequence[BaseMessage], before: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], str, bool]:
    """Return what is said in messages, the place of their turn, and whether tools had a say."""
    roles = {"human": "user", "ai": "assistant"}
    told = [each for each in messages if each.type in roles and not getattr(each, "tool_calls", None)]
    since: list[str] = []
    for kind in [*(str(item["type"]) for item in before), *(message.type for message in messages)]:
        since = [] if kind == "human" else [*since, kind]
    said = [{"role": roles[each.type], "content": each.text, "name": each.name} for each in told]
    return said, str(len(before)), "tool" in since


def _question(messages: Sequence[AnyMessage]) -> str:
    return next((message.text for message in reversed(messages) if isinstance(message, HumanMessage)), "")


def _texts(messages: Sequence[AnyMessage]) -> set[str]:
    return {message.text for message in messages}


def _with(request: ModelRequest[Any], recalled: Recalled) -> ModelRequest[Any]:
    if not recalled.text:
        return request
    before = request.system_message
    if before is None:
        return request.override(system_message=SystemMessage(recalled.text))
    if isinstance(before.content, str):
        content: Any = f"{before.content}\n\n{recalled.text}"
    else:
        content = [*before.content, {"type": "text", "text": recalled.text}]
    return request.override(system_message=before.model_copy(update={"content": content}))


def _turn(state: MemoryState) -> tuple[list[dict[str, Any]], str | None, bool]:
    """Return the messages of a run's last turn to store, the turn's id, and whether tools had a say."""
    messages = state["messages"]
    last = max((n for n, message in enumerate(messages) if isinstance(message, HumanMessage)), default=None)
    if last is None:
        return [], None, False
    first = last
    while first > 0 and isinstance(messages[first - 1], HumanMessage):
        first -= 1
    said = [
        {"role": "user", "content": each.text, "id": each.id, "name": each.name} for each in messages[first : last + 1]
    ]
    after = messages[last + 1 :]
    answers = [message for message in after if isinstance(message, AIMessage) and not message.tool_calls]
    said += [{"role": "assistant", "content": answer.text, "name": answer.name} for answer in answers[-1:]]
    return said, messages[last].id, any(isinstance(message, ToolMessage) for message in after)
