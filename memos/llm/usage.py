"""Count what one piece of work spends on language models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from memos.core.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a model: its purpose, identity and cost."""

    # `tokens` of a `cached` answer are what it cost originally. `failed` means that no answer came back.

    purpose: str
    cube: str | None
    task: str | None
    model: str
    tokens: Tokens
    cached: bool
    failed: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Usage:
    calls: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefix_tokens: int = 0  # of the prompts, what servers said they had in memory
    estimated: bool = False
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, call: Call) -> Usage:
        tokens = Tokens() if call.cached else call.tokens
        return Usage(
            calls=self.calls + 1,
            cached=self.cached + call.cached,
            failed=self.failed + call.failed,
            prompt_tokens=self.prompt_tokens + tokens.prompt,
            completion_tokens=self.completion_tokens + tokens.completion,
            prefix_tokens=self.prefix_tokens + (tokens.cached or 0),
            estimated=self.estimated or tokens.estimated,
            seconds=self.seconds + call.seconds,
        )


class UsageMeter:
    """Counts every call of one piece of work, including failed ones. Thread-safe."""

    # `tell` is called for each call on the calling thread, after it is counted, `check` before a model is asked; their
    # exceptions propagate.

    def __init__(
        self,
        purpose: str,
        *,
        cube: str | None = None,
        task: str | None = None,
        tell: Callable[[Call], None] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.purpose = purpose
        self.cube = cube
        self.task = task
        self.check = check
        self._tell = tell
        self._spent = Usage()
        self._lock = threading.Lock()

    @property
    def spent(self) -> Usage:
        with self._lock:
            return self._spent

    def count(self, model: str, tokens: Tokens, seconds: float, *, cached: bool = False, failed: bool = False) -> None:
        call = Call(self.purpose, self.cube, self.task, model, tokens, cached, failed, seconds)
        with self._lock:
            self._spent = self._spent.plus(call)
        if self._tell is not None:
            self._tell(call)
