"""An agent of the OpenAI Agents SDK remembers on Tuesday what it was told on Monday. Its model is scripted here."""

import asyncio
import tempfile
from dataclasses import dataclass
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.openai_agents import MemosSession, memory_instructions


class Scripted(Model):
    """Stands in for a language model: it knows what its prompt says."""

    async def get_response(self, system_instructions: str | None, input: Any, *_: Any, **__: Any) -> ModelResponse:
        answer = "Your parrot is Hugo." if "Hugo" in f"{system_instructions} {input}" else "I do not know."
        text = ResponseOutputText(text=answer, annotations=[], type="output_text")
        said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@dataclass
class Context:
    """What tools, instructions and handoffs of a run know."""

    user_id: str


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = Agent("helper", instructions=memory_instructions(memory, "Be brief."), model=Scripted())
    session = MemosSession(thread, memory, user="ana")
    result = await Runner.run(agent, text, context=Context(user_id="ana"), session=session)
    return result.final_output


set_tracing_disabled(True)
with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
