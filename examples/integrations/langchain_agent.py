"""An agent of LangChain remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import tempfile
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.langchain import MemosMiddleware


class Scripted(BaseChatModel):
    """Stands in for a language model: it knows what its prompt says."""

    _llm_type = "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        known = any("Hugo" in message.text for message in messages)
        answer = AIMessage("Your parrot is Hugo." if known else "I do not know.")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = create_agent(Scripted(), middleware=[MemosMiddleware(memory)])
    config = {"configurable": {"user_id": "ana", "thread_id": thread}}
    return agent.invoke({"messages": [text]}, config)["messages"][-1].text


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {ask(memory, thread, text)}")
