"""LiteLLM: a callback that recalls before a chat completion and remembers after it, in the library and in its proxy.

Whose memory it is: in the library the `user` of the call; in the proxy the user of the virtual key, and for a key that
belongs to nobody the `user` of the request. The conversation is the `litellm_session_id`, or `session_id` in the
metadata.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from memos.core.clock import new_id
from memos.integrations.memory import AgentMemory, Owner, Recalled, missing_extra

# Without it LiteLLM downloads a list of prices when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
except ImportError as error:
    raise missing_extra("litellm", "litellm", error) from error

__all__ = ["MemosLogger"]

_CHAT = ("acompletion", "completion")
# The user of the proxy's master key, which is everybody's.
_NOBODY = "default_user_id"
_CALLS = 1_000


class MemosLogger(CustomLogger):
    """Memory for chat completions: `litellm.callbacks = [MemosLogger(memory)]`, or `callbacks` in the proxy's settings.

    `litellm.acompletion` and the proxy recall before the model is asked, and remember question and answer once the
    answer is complete, streamed or not. LiteLLM has no hook that changes the messages of a blocking call:
    `logger.completion(...)` is `litellm.completion(...)` with memory, while `litellm.completion` itself only remembers.
    A call with the same `litellm_call_id` stores nothing twice. Calls of other kinds pass without memory.

    Args:
        memory: The memory; `memory.last_failure` tells when a call went on without it. Blocking calls need one over
            `MemOS` or `MemOSClient`.
        cube: A cube to share.
    """

    def __init__(self, memory: AgentMemory, *, cube: str | None = None) -> None:
        super().__init__()
        self.memory = memory
        self._cube = cube
        self._lock = threading.Lock()
        # Calls whose prompt has text of sources that are not trusted.
        self._untrusted: OrderedDict[str, bool] = OrderedDict()

    def completion(self, *, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Return `litellm.completion` of messages that begin with what is remembered."""
        question, known = _question(messages), _texts(messages)
        recalled = self.memory.recall(question, self._owner(options, options), known=known)
        options.setdefault("litellm_call_id", new_id())
        return litellm.completion(messages=self._with(messages, recalled, options), **options)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        messages = kwargs.get("messages")
        if getattr(call_type, "value", call_type) not in _CHAT or not isinstance(messages, list):
            return None
        question, known = _question(messages), _texts(messages)
        recalled = await self.memory.arecall(question, self._owner(kwargs, kwargs), known=known)
        return {**kwargs, "messages": self._with(messages, recalled, kwargs)}

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        if (turn := self._turn(kwargs, response_obj)) is not None:
            await self.memory.aremember(*turn[:2], **turn[2])

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        if (turn := self._turn(kwargs, response_obj)) is not None:
            self.memory.remember(*turn[:2], **turn[2])

    def _owner(self, call: Mapping[str, Any], params: Mapping[str, Any]) -> Owner:
        metadata = {**(params.get("litellm_metadata") or {}), **(params.get("metadata") or {})}
        user = call.get("user") or (call.get("optional_params") or {}).get("user")
        if "user_api_key_hash" in metadata or "user_api_key" in metadata:  # the proxy
            keys = metadata.get("user_api_key_user_id")
            user = keys if keys and keys != _NOBODY else metadata.get("user_api_key_end_user_id") or user
        session = params.get("litellm_session_id") or metadata.get("session_id")
        return Owner(user and str(user), session and str(session), self._cube)

    def _with(
        self, messages: Sequence[Mapping[str, Any]], recalled: Recalled, call: Mapping[str, Any]
    ) -> list[Mapping[str, Any]]:
        """Return messages with what is remembered, behind the first system message."""
        if recalled.untrusted:
            with self._lock:
                self._untrusted[str(call.get("litellm_call_id"))] = True
                while len(self._untrusted) > _CALLS:
                    self._untrusted.popitem(last=False)
        if not recalled.text:
            return [*messages]
        first = messages[0]
        if first.get("role") not in ("system", "developer"):
            return [{"role": "system", "content": recalled.text}, *messages]
        content = first.get("content")
        if isinstance(content, list):
            content = [*content, {"type": "text", "text": recalled.text}]
        else:
            content = f"{content or ''}\n\n{recalled.text}".lstrip()
        return [{**first, "content": content}, *messages[1:]]

    def _turn(
        self, kwargs: Mapping[str, Any], response: Any
    ) -> tuple[list[Mapping[str, Any]], Owner, dict[str, Any]] | None:
        """Return what a call said that earlier ones did not, whose it is, and the options of storing it."""
        messages, choices = kwargs.get("messages"), getattr(response, "choices", None)
        if kwargs.get("call_type") not in _CHAT or not isinstance(messages, list) or not choices:
            return None
        answered = getattr(choices[0], "message", None)
        if answered is None or getattr(choices[0], "finish_reason", None) in ("length", "content_filter"):
            return None
        last = max((place for place, each in enumerate(messages) if each.get("role") == "assistant"), default=-1)
        new = messages[last + 1 :]
        said: list[Mapping[str, Any]] = [
            {"role": "user", "content": _text(each)} for each in new if each.get("role") == "user"
        ]
        said.append({"role": "assistant", "content": answered.content or ""})
        call = str(kwargs.get("litellm_call_id"))
        with self._lock:
            untrusted = self._untrusted.pop(call, False)
        untrusted = untrusted or any(each.get("role") == "tool" for each in new)
        owner = self._owner(kwargs, kwargs.get("litellm_params") or {})
        return said, owner, {"turn": call, "untrusted": untrusted}


def _question(messages: Sequence[Mapping[str, Any]]) -> str:
    return next((_text(each) for each in reversed(messages) if each.get("role") == "user"), "")


def _texts(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    return {_text(each) for each in messages}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
