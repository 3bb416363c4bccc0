"""An agent of Agno remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import tempfile
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.agno import MemosMemoryManager


class Scripted(Model):
    """Stands in for a language model: it knows what its prompt says."""

    def invoke(self, messages: list[Any], **_: Any) -> ModelResponse:
        known = any("Hugo" in message.get_content_string() for message in messages)
        return ModelResponse(role="assistant", content="Your parrot is Hugo." if known else "I do not know.")

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    ainvoke = invoke_stream = ainvoke_stream = _refuse
    _parse_provider_response = _parse_provider_response_delta = _refuse


def ask(memory: AgentMemory, thread: str, text: str) -> str:
    manager = MemosMemoryManager(memory)
    hooks = {"pre_hooks": [manager.before_run], "post_hooks": [manager.after_run]}
    agent = Agent(model=Scripted(id="scripted"), memory_manager=manager, telemetry=False, **hooks)
    return agent.run(text, user_id="ana", session_id=thread).content


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {ask(memory, thread, text)}")
