"""Finds names in text without a model: runs of capitalised words, quoted titles and Chinese quoted names."""

from __future__ import annotations

import re

_MAX = 32
_RUN = re.compile(r"\b[A-Z][\w'’\-]*(?: (?:(?:of|de|du|la|van|von|der) )?[A-Z0-9][\w'’\-]*)*")
_TITLE = re.compile(r"[《「『“\"]([^》」』”\"\n]{2,60})[》」』”\"]")
_SENTENCE_START = re.compile(r"(?:^|[.!?:。！？：\n]\s*|[\"“(]\s*)$")
_COMMON = frozenset(
    """
    a an and are as at be but by can could did do does for from had has have he her here his how i i'm i've i'd
    i'll if in is it it's its just let let's may maybe me my no not now of oh ok okay on one or our please she
    should so some sorry sure thank thanks that that's the their then there these they this those to today
    tomorrow was we we're well what when where which while who why will with would yeah yes yesterday you your wow
    hey hi hello monday tuesday wednesday thursday friday saturday sunday january february march april june july
    august september october november december great good nice
    """.split()  # noqa: SIM905 - a hundred quoted words say less
)


def entities(text: str) -> tuple[str, ...]:
    """Return distinct names in order of appearance, at most 32; a lone word that only starts a sentence is none."""
    found: dict[str, str] = {}
    for match in _RUN.finditer(text):
        words = match.group(0).removesuffix("'s").removesuffix("’s").split()
        if _SENTENCE_START.search(text[max(0, match.start() - 3) : match.start()]):
            while words and words[0].casefold() in _COMMON:
                words.pop(0)
        while words and words[-1].casefold() in _COMMON:
            words.pop()
        name = " ".join(words)
        if len(name) > 1 and name.casefold() not in _COMMON:
            found.setdefault(name.casefold(), name)
    for match in _TITLE.finditer(text):
        found.setdefault(match.group(1).casefold(), match.group(1))
    return tuple(found.values())[:_MAX]
