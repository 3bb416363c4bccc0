"""Finds a quoted passage in a text however it was copied, and what numbers and addresses a text names. Pure."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_SAME = str.maketrans(
    dict.fromkeys("‘’‚‛`´′", "'") | dict.fromkeys("“”„‟″«»「」『』", '"') | dict.fromkeys("‐‑‒–—―−", "-")
)
_DROPPED = frozenset({"Cf", "Cc", "Cs", "Mn"})
_NUMBER = re.compile(r"\d+")
_THOUSANDS = re.compile(r"(?<=\d)[,'’_](?=\d{3}(?!\d))")
_ADDRESS = re.compile(
    r"[\w.+\-]{1,64}@[\w\-]{1,64}(?:\.[\w\-]{1,64})+|https?://[^\s\"'<>)\]]+|\bwww\.[^\s\"'<>)\]]+", re.IGNORECASE
)
_SPELT = "one 一|two 二 两 couple twice|three 三|four 四|five 五|six 六|seven 七|eight 八|nine 九|ten 十|eleven|twelve"
_WORDS = {word: str(number) for number, words in enumerate(_SPELT.split("|"), start=1) for word in words.split()}
_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 4


def find_passage(quote: str, text: str) -> tuple[int, int] | None:
    """Return where a text says what a quote says, whatever its case, white space, accents, quotes and dashes."""
    wanted = "".join(sign for sign, _ in _folded(quote.strip().strip("\"'“”‘’「」…").strip()))
    if not wanted:
        return None
    signs = _folded(text)
    at = "".join(sign for sign, _ in signs).find(wanted)
    if at < 0:
        return None
    return signs[at][1], signs[at + len(wanted) - 1][1] + 1


def folded(text: str) -> str:
    """Return a text as passages are compared: no white space, case, accents, or kinds of quotes and dashes."""
    return "".join(sign for sign, _ in _folded(text))


def numbers(text: str, *, words: bool = False) -> set[str]:
    """Return the numbers in a text without leading zeros, with `words` also small ones that are spelt out."""
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text))
    found = {str(int(run)) if len(run) < 40 else run for run in _NUMBER.findall(plain)}
    if words:
        low = plain.casefold()
        found |= {_WORDS[word] for word in _WORD.findall(low) if word in _WORDS}
        found |= {number for word, number in _WORDS.items() if not word.isascii() and word in low}
    return found


def addresses(text: str) -> set[str]:
    """Return the e-mail addresses and links in a text, folded."""
    return {folded(match.rstrip(".,;:!?")) for match in _ADDRESS.findall(text)}


def shared_words(claim: str, source: str) -> float:
    """Return which share of a claim's words a source has, 1.0 when the claim has none.

    Words are those of 4 letters or more, and Han characters in pairs. They count by their first 4 letters, so that
    "lives" is found in "I live".
    """
    wanted = stems(claim)
    return len(wanted & stems(source)) / len(wanted) if wanted else 1.0


def stems(text: str) -> set[str]:
    """Return the beginnings of a text's words, and its pairs of Han characters."""
    low = unicodedata.normalize("NFKC", text).casefold()
    han = {first + second for first, second in pairwise(low) if _HAN.match(first) and _HAN.match(second)}
    return han | {word[:_STEM] for word in _WORD.findall(_HAN.sub(" ", low)) if len(word) >= _STEM}


def _folded(text: str) -> list[tuple[str, int]]:
    """Return the characters that are compared, each with the place of the one it comes from."""
    return [
        (part, place)
        for place, sign in enumerate(text)
        for part in unicodedata.normalize("NFKD", sign).casefold().translate(_SAME)
        if not part.isspace() and unicodedata.category(part) not in _DROPPED
    ]
