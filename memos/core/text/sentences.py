"""Splits text into sentences, tells questions, and tells what is only supposed or quoted from what is said. Pure."""

from __future__ import annotations

import re

_END = re.compile(r"\n+|[。！？]+[」』”）]*|(?<![.!?…؟])[.!?…؟]+[\"'”’)\]]*(?=\s|$)")
_ABBREVIATED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|vs|e\.g|i\.e|approx|[A-HJ-Z]))$")
_COMPANY = re.compile(r"\b(?:Inc|Ltd|Co|Corp|etc|a\.m|p\.m)$")
_QUESTION = re.compile(
    r"[?？؟][\"'”’)\]」』）]*$|[吗么呢][。.!！~～]*$"
    r"|^(?:do|does|did|can|could|would|will|should|is|are|am|was|were|have|has|had|may)(?:n['’]t)? "
    r"(?:you|i|we|they|he|she|it|the|there|this|that|my|your)\b"
    r"|^(?:what|where|who|why|how|which|when)(?:['’]s| (?:is|are|do|does|did|can|could|would|should|was|were|about|"
    r"come|much|many|long|old|if))\b",
    re.IGNORECASE,
)
# "I live in Paris, right?" asks; "I live in Paris, where can I swim?" also says.
_ASKS_BACK = re.compile(
    r"^[^,，]*[,，]\s*(?:right|correct|yes|no|yeah|huh|ok(?:ay)?|did(?:n['’]t)? i|do(?:n['’]t)? i|am i|"
    r"are(?:n['’]t)? we|"
    r"isn['’]t (?:it|that so)|对吗|对吧|是吗|是吧)\s*[?？]",
    re.IGNORECASE,
)
_OPENS = re.compile(
    r"^(?:(?:so|well|hey|hi|hello|ok|okay|yes|no|and|but|also|now|since|as|because|actually)[, ]+)*$", re.IGNORECASE
)
_IF = re.compile(
    r"\b(?:if|unless|wish|as though|whether|(?:not|isn['’]t) true that|false that)\b|如果|要是|假如", re.IGNORECASE
)
_SUPPOSED = re.compile(
    r"\b(?:what if|suppose|supposing|imagine|pretend|let['’]s say|assum\w+|hypothetically|"
    r"(?:translate|rewrite|rephrase|proofread|paraphrase|write|spell|type)\b[^.!?\n]{0,40}:)|假设|假装|想象|翻译|"
    r"润色|改写|第一人称|扮演|写一?(?:个|篇|首|段)|编一?个",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，;；]|\bbut\b")
_OTHERS = re.compile(
    r"\b(?:say|said|says|saying|t(?:old|ells?|elling) (?:me|us|him|her|them)|wrote|writes|replied|asked|goes|"
    r"(?:s?he|they|you|people|everyone|everybody|mom|mum|dad|boss|wife|husband|friends?|\w+ (?:still |always )?)"
    r"(?: all| still| always)? ?(?:thinks?|thought|believes?|claims?|insists?|assumes?))(?: that)?\s*[,:]?\s*$"
    r"|(?:说|告诉我|以为|觉得我们?|认为)[，,：:]?\s*$",
    re.I,
)
# A single quote opens before a word and closes after one; "'cause" and "rock 'n' roll" open nothing.
_IN_SINGLE = re.compile(
    r"(?<![\w'’])['‘](?!(?:cause|til|till|em|bout|round|n|s)\b)(?=\w|$)(?:(?!['’](?!\w)).)*$", re.IGNORECASE
)
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("«", "»"))


def sentences(text: str) -> list[tuple[int, int]]:
    """Return where each sentence starts and ends, without white space around it; lines end sentences, too."""
    found = []
    start = 0
    for match in _END.finditer(text):
        if match.group(0) == "." and _goes_on(text, match):
            continue
        found.append((start, match.end()))
        start = match.end()
    found.append((start, len(text)))
    return [span for span in (_trimmed(text, *span) for span in found) if span[0] < span[1]]


def is_question(sentence: str) -> bool:
    """Return True for what asks, with a question mark or without one."""
    return _QUESTION.search(sentence.strip()) is not None


def is_supposed(sentence: str) -> bool:
    """Return True for what is so only if something else is, is played, or was given to be worked on."""
    return _IF.search(sentence) is not None or is_played(sentence)


def is_played(sentence: str) -> bool:
    """Return True for what is played, imagined, or given to be worked on."""
    return _SUPPOSED.search(sentence) is not None


def asserted(sentence: str, start: int, end: int) -> bool:
    """Return whether a sentence says what its characters `start` to `end` say as true, in its speaker's own words.

    What is supposed ("if I moved to Lyon"), asked, quoted, or given to be translated is not.
    """
    before, after = sentence[:start], sentence[end:]
    if _IF.search(_CLAUSE.split(before)[-1]) or _SUPPOSED.search(before):
        return False
    if _OTHERS.search(before) or before.lstrip().startswith(">"):
        return False
    if before.count('"') % 2 or any(before.count(opens) > before.count(closes) for opens, closes in _QUOTES):
        return False
    if _IN_SINGLE.search(before):
        return False
    if not is_question(sentence):
        return True
    return (
        bool(_OPENS.match(before.strip() + " " if before.strip() else ""))
        and re.match(r"[^?？]*[,，;；]", after) is not None
        and not _ASKS_BACK.search(after)
    )


def _goes_on(text: str, stop: re.Match[str]) -> bool:
    before = text[max(0, stop.start() - 8) : stop.start()]
    if _ABBREVIATED.search(before):
        return True
    following = text[stop.end() : stop.end() + 2].lstrip()
    return bool(_COMPANY.search(before)) and following[:1].islower()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, max(start, start + len(piece.strip()))
