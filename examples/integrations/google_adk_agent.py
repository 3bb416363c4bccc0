"""An agent of Google ADK remembers on Tuesday what it was told on Monday. Its model is scripted here: use your own."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.genai import types

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.google_adk import MemosMemoryService


class Scripted(BaseLlm):
    """Stands in for a language model: it knows what its prompt says."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        answer = "Your parrot is Hugo." if "Hugo" in str(llm_request.contents) else "I do not know."
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=answer)]))


async def remember(callback_context: CallbackContext) -> None:
    await callback_context.add_session_to_memory()


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    agent = LlmAgent(name="helper", model=Scripted(), tools=[preload_memory_tool], after_agent_callback=remember)
    sessions, service = InMemorySessionService(), MemosMemoryService(memory)
    runner = Runner(agent=agent, app_name="pets", session_service=sessions, memory_service=service)
    await sessions.create_session(app_name="pets", user_id="ana", session_id=thread)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    events = [event async for event in runner.run_async(user_id="ana", session_id=thread, new_message=message)]
    return events[-1].content.parts[0].text


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
