"""Writes the prompt of a chat: instructions, the memory section, what was said before, the question. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from memos.core.kv_cache import Prefix
from memos.core.ports import ChatMessage, ChatRequest
from memos.core.settings import LimitSettings
from memos.core.text.validation import check_text
from memos.core.types import Message, Role
from memos.errors import InvalidInput
from memos.kernel.chat.results import Question, Recalled
from memos.reader.messages import read_messages

Position = Literal["system", "user"]

SYSTEM = "You are a helpful assistant who remembers earlier talks with the user. Answer what you are asked, briefly."
_CITE = "Where you use something remembered, put its mark right behind it, such as [m1]."


def history_of(question: Question, zone: ZoneInfo, now: datetime, limits: LimitSettings) -> list[ChatMessage]:
    """Return what was said before as a model is shown it. Raises: InvalidInput."""
    if question.history is None or (isinstance(question.history, Sequence) and not question.history):
        return []
    try:
        read = read_messages(question.history, zone, now, limits)
    except InvalidInput as error:
        raise InvalidInput(f"history{error.field.removeprefix('messages')}", error.reason) from error
    return [_turn(place, message) for place, message in enumerate(read)]


def _turn(place: int, message: Message) -> ChatMessage:
    match message.role:
        case Role.USER:
            return ChatMessage("user", message.text)
        case Role.ASSISTANT:
            return ChatMessage("assistant", message.text)
        case Role.SYSTEM:
            return ChatMessage("system", message.text)
        case other:
            raise InvalidInput(f"history[{place}].role", f"{other} has no place here; use user, assistant or system")


def request_of(
    question: Question, recalled: Recalled, history: Sequence[ChatMessage], position: Position, limits: LimitSettings,
    *, cube: str,
) -> ChatRequest:  # fmt: skip
    """Return what the model is asked; what its prompt begins with may be kept for the cube. Raises: InvalidInput."""
    given = question.system_prompt
    system = SYSTEM if given is None else check_text("system_prompt", given, limits.message_bytes)
    asked, part = question.query, recalled.prefix
    starts: tuple[tuple[int, str], ...] = ()
    if recalled.shown or part is not None:
        system = f"{system}\n\n{_CITE}"
    stable = len(system)
    if part is not None:
        begin = len(system) + 2
        system = f"{system}\n\n{part.section}"
        stable, starts = begin + part.stable, tuple((begin + char, id_) for char, id_ in part.starts)
    if recalled.section:
        if position == "system":
            system = f"{system}\n\n{recalled.section}"
        else:
            asked = f"{recalled.section}\n\n{asked}"
    head = [ChatMessage("system", system)] if system.strip() else []
    return ChatRequest(
        (*head, *history, ChatMessage("user", asked)),
        question.max_tokens,
        question.temperature,
        top_p=question.top_p,
        prefix=Prefix(cube, stable if head else 0, starts, recalled.found),
    )
