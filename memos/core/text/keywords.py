"""Finds the phrases a text is about, without a model and without other texts to compare it with. Pure."""

from __future__ import annotations

import re
from collections import Counter

_MAX = 8
_MAX_WORDS = 3
_SCAN_CHARS = 4_000
_WORD = re.compile(r"[^\W\d_][\w'’\-]*|[^\w\s'’\-]|\d[\w.,:%\-]*")
_HAN_RUN = re.compile(r"[\u3400-\u9fff\u30a0-\u30ff々]{2,}")
# What joins words in Chinese and Japanese runs instead of naming anything.
_HAN_JOINS = re.compile(
    r"(?:我们|你们|他们|她们|自己|这个|那个|什么|怎么|因为|所以|但是|如果|已经|可以|没有|觉得|知道|今天|昨天|明天|现在"
    r"|最近|上周|下周|非常|特别|一个|一下|有点|还是|或者|[我你他她它的了是在有和也就很不这那把被给让去来到说要会能想吗呢吧啊呀])+"
)
_STOP = frozenset(
    """
    a about after again all also am an and another any are as ask at away back be because been before being both but
    by can can't could couldn't did didn't do does doesn't doing don't done down each even ever every few for from
    get gets getting give go goes going gonna good got great had has hasn't have haven't having he her here hers hey
    hi him his hope how i i'd i'll i'm i've if in into is isn't it it's its just keep kind know last let let's like
    little look looking lot lots made make many may maybe me might mine more most much must my myself near need never
    new next nice no not nothing now of off oh ok okay on once one only or other our out over own please pretty put
    quite really right said same say see she should since so some something soon sorry still such sure take tell than
    thank
    thanks that that's the their them then there there's these they they're thing things think this those though
    time to today together tomorrow tonight too totally true try trying two up us use used very wanna want wants was
    wasn't way we we'd we'll we're we've well went were what what's when where which while who why will with won't
    wow would year years yeah yes yesterday yet you you'd you'll you're you've your yours
    """.split()  # noqa: SIM905 - quoting each word says less
)


def keywords(text: str) -> tuple[str, ...]:
    """Return at most 8 distinct phrases of up to 3 words, the most telling first, in lower case.

    A phrase is a run of words without stop words or punctuation; it scores the sum of its words' degree over
    frequency. Source: Rose et al., "Automatic keyword extraction from individual documents", 2010 (RAKE).
    """
    phrases = _phrases(text[:_SCAN_CHARS])
    frequency = Counter(word for phrase in phrases for word in phrase)
    degree: Counter[str] = Counter()
    for phrase in phrases:
        for word in phrase:
            degree[word] += len(phrase)
    scores = {" ".join(phrase): sum(degree[word] / frequency[word] for word in phrase) for phrase in phrases}
    for run in _HAN_RUN.findall(text[:_SCAN_CHARS]):
        for part in _HAN_JOINS.split(run):
            if 2 <= len(part) <= 8:
                scores.setdefault(part, len(part) / 2)
    order = {phrase: place for place, phrase in enumerate(scores)}
    return tuple(sorted(scores, key=lambda phrase: (-scores[phrase], order[phrase])))[:_MAX]


def _phrases(text: str) -> list[tuple[str, ...]]:
    phrases: list[tuple[str, ...]] = []
    run: list[str] = []
    for token in [*_WORD.findall(text.replace("’", "'")), "."]:
        word = token.casefold()
        if word[0].isalpha() and word not in _STOP and len(word) > 2 and not _HAN_RUN.search(word):
            run.append(word.removesuffix("'s"))
        elif run:
            if len(run) <= _MAX_WORDS:
                phrases.append(tuple(run))
            run = []
    return phrases
