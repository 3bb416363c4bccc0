"""LiteLLM: a callback that recalls before a chat completion and remembers after it, in the library and in its proxy.

Whose memory it is: in the library the `user` of the call; in the proxy the user of the virtual key, and for a key that
belongs to nobody the `user` of the request. The conversation is the `litellm_session_id`, or `session_id` in the
metadata.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from memos.core.clock import new_id
from memos.integrations.memory import AgentMemory, Owner, Recalled, missing_extra

log = logging.getLogger("memos.integrations")

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
    answer is complete, streamed or not. `messages` have to be given by name. LiteLLM has no hook that changes the
    messages of a blocking call: `logger.completion(...)` is `litellm.completion(...)` with memory, while
    `litellm.completion` itself only remembers. A call with the same `litellm_call_id` stores nothing twice. Calls of
    other kinds pass without memory.

    Args:
        memory: The memory; `memory.last_failure` tells when a call went on without it. Blocking calls need one over
            `MemOS` or `MemOSClient`.
        cube: A cube to share.
    """

    def __init__(self, memory: AgentMemory, *, cube: str | None = None) -> None:
        super().__init__()
        self.memory = memory
        self._cube = cube
        # Calls that were recalled for and are not remembered yet, and whether untrusted text is in their prompts.
        self._open: OrderedDict[str, bool] = OrderedDict()
        self._closed = threading.Condition()

    def completion(self, *, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Return `litellm.completion` of messages that begin with what is remembered."""
        question, known = _question(messages), _texts(messages)
        recalled = self.memory.recall(question, self._owner(options, options), known=known)
        options.setdefault("litellm_call_id", new_id())
        return litellm.completion(messages=self._with(messages, recalled, options), **options)

    def wait(self, timeout_s: float = 10.0) -> bool:
        """Wait until all calls so far are remembered, which LiteLLM has done after it has returned their answers.

        Returns False if that took too long, as with a stream that nobody reads to its end.
        """
        with self._closed:
            return self._closed.wait_for(lambda: not self._open, timeout_s)

    async def await_calls(self, timeout_s: float = 10.0) -> bool:
        """Wait until all calls so far are remembered, as `wait` does."""
        return await asyncio.to_thread(self.wait, timeout_s)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        messages = kwargs.get("messages")
        if getattr(call_type, "value", call_type) not in _CHAT:
            return None
        if not isinstance(messages, list):
            log.warning("LiteLLM shows its callbacks what is given by name: call acompletion(model=..., messages=...).")
            return None
        question, known = _question(messages), _texts(messages)
        recalled = await self.memory.arecall(question, self._owner(kwargs, kwargs), known=known)
        return {**kwargs, "messages": self._with(messages, recalled, kwargs)}

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        with self._ending(kwargs) as untrusted:
            if (turn := self._turn(kwargs, response_obj, untrusted=untrusted)) is not None:
                await self.memory.aremember(turn.said, turn.owner, turn=turn.id, untrusted=turn.untrusted)

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        with self._ending(kwargs) as untrusted:
            if (turn := self._turn(kwargs, response_obj, untrusted=untrusted)) is not None:
                self.memory.remember(turn.said, turn.owner, turn=turn.id, untrusted=turn.untrusted)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.log_failure_event(kwargs, response_obj, start_time, end_time)

    def log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        with self._ending(kwargs):
            return

    @contextmanager
    def _ending(self, kwargs: Mapping[str, Any]) -> Iterator[bool]:
        call = str(kwargs.get("litellm_call_id"))
        try:
            yield self._open.get(call, False)
        finally:
            with self._closed:
                self._open.pop(call, None)
                self._closed.notify_all()

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
        with self._closed:
            self._open[str(call.get("litellm_call_id"))] = recalled.untrusted
            while len(self._open) > _CALLS:
                self._open.popitem(last=False)
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

    def _turn(self, kwargs: Mapping[str, Any], response: Any, *, untrusted: bool) -> _Turn | None:
        """Return what a call said that earlier ones did not, None if its answer is not complete."""
        messages, choices = kwargs.get("messages"), getattr(response, "choices", None)
        if kwargs.get("call_type") not in _CHAT or not isinstance(messages, list) or not choices:
            return None
        answered = getattr(choices[0], "message", None)
        if answered is None or getattr(choices[0], "finish_reason", None) in ("length", "content_filter"):
            return None
        last = max((place for place, each in enumerate(messages) if each.get("role") == "assistant"), default=-1)
        new = messages[last + 1 :]
        said = [{"role": "user", "content": _text(each)} for each in new if each.get("role") == "user"]
        said.append({"role": "assistant", "content": answered.content or ""})
        untrusted = untrusted or any(each.get("role") == "tool" for each in new)
        owner = self._owner(kwargs, kwargs.get("litellm_params") or {})
        return _Turn(str(kwargs.get("litellm_call_id")), said, owner, untrusted)


class _Turn(NamedTuple):
    id: str
    said: list[dict[str, str]]
    owner: Owner
    untrusted: bool


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
