"""Finds what in a message is not its writer's own word: code, and text given to be worked on. Pure."""

from __future__ import annotations

import re

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:#|//|/\*|--[ ]|\$ |>>> |def |class |import |from \S+ import |const |let |var |function |return\b|"
    r"public |"
    r"private |SELECT |INSERT |UPDATE |DELETE FROM |CREATE |ALTER |if \(|for \(|while \(|else\b|try:|except\b|@\w+|"
    r"</?\w)[^\n]*"
    r"|^[^\n]*(?:[;{}][ \t]*$|=>|\bconsole\.log\(|==|!=|\w\(['\"])[^\n]*",
    re.MULTILINE,
)
_TASK = re.compile(
    r"\b(?:translate|proofread|rewrite|rephrase|paraphrase|summari[sz]e|edit|polish|correct|improve|review|shorten|"
    r"analy[sz]e|"
    r"explain|check|grade|format|classify)\b[^.!?\n]{0,20}?\b(?:this|these|the following|following|below|my|it|the "
    r"(?:text|"
    r"paragraph|email|essay|message|letter|sentence|passage))\b[^.!?\n]{0,60}[:\n]"
    r"|(?:翻译|润色|改写|修改|总结|校对|概括|缩写|扩写|分析)[^。！？\n]{0,30}[：:]\s*|(?:翻译|润色|校对|改写)"
    r"一?下(?:面|这)[^。！？\n]{0,20}\n",
    re.IGNORECASE,
)


def own_words(text: str) -> str:
    """Return a text of the same length with blanks where it is code or given material; lines stay lines."""
    own = _FENCE.sub(_blank, text)
    task = _TASK.search(own)
    if task is not None:
        own = own[: task.end()] + _blanks(own[task.end() :])
    return _CODE_LINE.sub(_blank, own)


def _blank(match: re.Match[str]) -> str:
    return _blanks(match.group(0))


def _blanks(text: str) -> str:
    return "".join("\n" if sign == "\n" else " " for sign in text)
