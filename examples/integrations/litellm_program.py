"""A program that calls LiteLLM remembers on Tuesday what it was told on Monday. Its model is scripted: use your own."""

import asyncio
import tempfile
from typing import Any

from memos import MemOS
from memos.integrations import AgentMemory
from memos.integrations.litellm import MemosLogger

import litellm  # isort: skip - behind ours, which keeps it from the network


class Scripted(litellm.CustomLLM):
    """Stands in for a language model: it knows what its prompt says."""

    async def acompletion(self, *_: Any, messages: list[Any], **__: Any) -> litellm.ModelResponse:
        answer = "Your parrot is Hugo." if "Hugo" in str(messages) else "I do not know."
        return litellm.ModelResponse(choices=[{"message": {"content": answer}, "finish_reason": "stop"}])


litellm.custom_provider_map = [{"provider": "scripted", "custom_handler": Scripted()}]


async def ask(memory: AgentMemory, thread: str, text: str) -> str:
    logger = MemosLogger(memory)
    litellm.callbacks = [logger]
    said = [{"role": "user", "content": text}]
    call = {"model": "scripted/model", "messages": said, "user": "ana", "litellm_session_id": thread}
    answer = await litellm.acompletion(**call)
    await logger.await_calls()
    return str(answer.choices[0].message.content)


with tempfile.TemporaryDirectory() as folder:
    for thread, text in (("monday", "My parrot is called Hugo."), ("tuesday", "What is my parrot called?")):
        with MemOS.open(folder) as memos, AgentMemory(memos, timeout_s=30) as memory:
            print(f"{thread}: {asyncio.run(ask(memory, thread, text))}")
