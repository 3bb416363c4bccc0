"""Says whether a text is about its own speaker, in whatever words: "Two new knees have put paid to my marathons".

What users tell of themselves may matter to a request though no form of language says that it holds on. Pure; so much
is about its speaker that whoever uses it has to bound what that costs.
"""

from __future__ import annotations

import re

from memos.text.requests import is_request
from memos.text.sentences import is_played, is_question, sentences

_MOST_CHARS = 600
"""Who tells more at once has pasted something."""

_LEAST_SHARE = 1 / 3
"""Of the characters stand in sentences about the speaker."""

_SELF = re.compile(
    r"\b(?:I|im|ive)\b|\b(?:i|me|my|mine|myself|we|us|our|ours|ourselves)\b"
    r"(?! (?:code|function|script|query|program|essay|email|e-mail|text|error|output)\b)|[我咱俺]",
)
_PROMISES = re.compile(
    r"\bI(?:['’]ll| will) (?:provide|give|send|ask|type|paste|be)\b"
    r"|\bI(?:['’]d| would)? (?:want|need|like) (?:you|to (?:know|understand|see|learn|ask|create|make|write|build|find|"
    r"get|have|use))\b|\bI(?:['’]m| am) (?:asking|wondering|working on|writing|going to)\b",
    re.IGNORECASE,
)
"""What tells of the work that is asked for, and not of who asks for it."""


def tells_of_self(text: str) -> bool:
    """Say whether at least a third of a short text states something of the one who says it; questions state nothing."""
    if len(text) > _MOST_CHARS:
        return False
    about = told = 0
    for start, end in sentences(text):
        told += end - start
        if _states(text[start:end]):
            about += end - start
    return told > 0 and about / told >= _LEAST_SHARE


def _states(sentence: str) -> bool:
    """Say whether a sentence is about its speaker, and neither asks for something nor plays a part."""
    if _SELF.search(sentence) is None or _PROMISES.search(sentence):
        return False
    return not (is_question(sentence) or is_request(sentence) or is_played(sentence))
