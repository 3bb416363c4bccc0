"""Streamed chat responses: server-sent events, however they are split, and text with reasoning in it."""

from __future__ import annotations

from collections.abc import Iterator

DONE = "[DONE]"
"""The data of the event that ends a stream of chat completions."""

_LONGEST_LINE = 8 * 1024 * 1024
_OPEN, _CLOSE = "<think>", "</think>"


class EventData:
    """Parses server-sent events from a stream in pieces and yields the data of complete events."""

    # Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (parsing an event stream).

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of events completed by this piece."""
        # A piece may end between the two characters of one line end.
        whole = self._rest + piece
        kept = whole[-1:] == b"\r"
        lines = (whole[:-1] if kept else whole).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if kept else b"")
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError("an event has a line that is too long")
        for line in lines:
            if not line:
                if self._data:
                    yield "\n".join(self._data)
                self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))

    def end(self) -> Iterator[str]:
        """Yield the last event if its final blank line is missing."""
        yield from self.feed(b"\n\n")


class StreamedText:
    """Filters reasoning out of a streamed text as soon as it is recognised."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "begin"

    def feed(self, piece: str) -> str:
        if self._state == "answer":
            return piece
        self._held += piece
        if self._state == "begin":
            begun = self._held.lstrip()
            if begun and not _OPEN.startswith(begun[: len(_OPEN)]):
                return self._free(self._held)
            if len(begun) < len(_OPEN):
                return ""
            self._state, self._held = "thinking", begun[len(_OPEN) :]
        _, closed, answer = self._held.partition(_CLOSE)
        if closed:
            return self._free(answer)
        self._held = self._held[-len(_CLOSE) :]
        return ""

    def end(self) -> str:
        """Return held-back text that turned out not to be reasoning."""
        return self._free(self._held) if self._state == "begin" else ""

    def _free(self, text: str) -> str:
        self._state, self._held = "answer", ""
        return text


def without_reasoning(text: str) -> str:
    """Return a local model's answer without its reasoning; some templates open the tag themselves."""
    thoughts, closed, answer = text.partition(_CLOSE)
    if text.lstrip().startswith(_OPEN):
        return answer
    return answer if closed and _OPEN not in thoughts and answer.startswith("\n") else text
