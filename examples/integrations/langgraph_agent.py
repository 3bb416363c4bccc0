"""A graph of LangGraph finds on Tuesday what it stored on Monday. Its model is scripted here: use your own."""

import tempfile
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.langgraph import MemosStore


def scripted(prompt: str) -> str:
    """Stand in for a language model: it knows what its prompt says."""
    return "Your parrot is Hugo." if "Hugo" in prompt else "I do not know."


def answer(state: MessagesState, runtime: Runtime[Any]) -> dict[str, Any]:
    """Answer with what the store knows, and store what was said."""
    said, store = state["messages"][-1].text, runtime.store
    found = store.search(("memories", "ana"), query=said, limit=5)
    known = "\n".join(item.value["text"] for item in found)
    store.put(("memories", "ana"), str(uuid4()), {"text": said})
    return {"messages": [AIMessage(scripted(f"{known}\n{said}"))]}


def ask(memory: AgentMemory, text: str) -> str:
    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").add_edge("answer", END)
    app = graph.compile(store=MemosStore(memory, user_at=1))  # ("memories", "ana"): in Ana's own cube
    return app.invoke({"messages": [text]})["messages"][-1].text


with tempfile.TemporaryDirectory() as folder:
    for day, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{day}: {ask(memory, text)}")
