"""Says whether a text is about its own speaker, in whatever words: "Two new knees have put paid to my marathons".

What users tell of themselves may matter to a request though no form of language says that it holds on. Pure; so much
is about its speaker that whoever uses it has to bound what that costs.
"""

from __future__ import annotations

import re

from memos.core.text.requests import orders
from memos.core.text.sentences import is_played, is_question, sentences

_MOST_CHARS = 600
"""Who tells more at once has pasted something."""

_LEAST_SHARE = 1 / 3
"""Of the characters stand in sentences about the speaker."""

_SELF = re.compile(
    r"\bI(?![/.])\b|(?:^|[,;(] ?|\b(?:and|but|so|cause|because|since|when|if|that|then) )(?:i|im|ive)(?=['’ ])"
    r"|\b(?:[Mm]e|[Mm]y|[Mm]yself|[Ww]e|us|[Oo]urs?|[Oo]urselves)\b"
    r"(?! (?:code|function|script|query|program|essay|email|e-mail|text|error|output)\b)|[我咱俺](?!国)",
)
_PASSES = re.compile(
    r"\bI(?:['’]ll| will) (?:provide|give|send|ask|type|paste)\b|\bI(?:['’]d| would) like\b"
    r"|\bI (?:want|need) (?:you|to (?:know|understand|create|make|write|build|find|ask))\b"
    r"|\bI(?:['’]m| am) (?:looking|trying|planning|thinking|considering|asking|wondering|working on)\b"
    r"|\bI (?:think|guess|hope|suppose) (?:so|not)\b|\bI (?:tried|got|see|understand)\b|\bhelps? me\b|\bthank",
    re.IGNORECASE,
)
"""What tells of the talk itself, or of the work that is asked for, and not of who asks for it."""

_OF_OTHERS = re.compile(r"^\W{0,9}\w+(?: \w+)?: |\b(?:said|says|wrote|asked|told me)\b\W{0,3}[:\"“‘「]", re.IGNORECASE)
"""Somebody else's words: "Tom said: I hate olives"."""


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
    """Say whether a sentence is about its speaker, and neither asks for something nor says another's words."""
    if _SELF.search(sentence) is None or _PASSES.search(sentence) or _OF_OTHERS.search(sentence):
        return False
    return not (is_question(sentence) or orders(sentence) or is_played(sentence))
