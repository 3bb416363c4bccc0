"""Compare short texts: names, keywords, numbers, negations, quoted passages.

Cosines alone cannot: "I have two cats" and "I have three cats" are nearly parallel (docs/development/log.md).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import pairwise

_MAX_ENTITIES = 32
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
    """Return distinct names in order, at most 32; a capitalised first word alone does not count."""
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
    return tuple(found.values())[:_MAX_ENTITIES]


_MAX_KEYWORDS = 8
_MAX_WORDS = 3
_SCAN_CHARS = 4_000
_KEYWORD = re.compile(r"[^\W\d_][\w'’\-]*|[^\w\s'’\-]|\d[\w.,:%\-]*")
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
    """Return at most 8 distinct phrases of up to 3 words, the most telling first, in lower case."""
    # A phrase is a run of words without stop words or punctuation; it scores the sum of its words' degree over
    # frequency. Source: Rose et al., "Automatic keyword extraction from individual documents", 2010 (RAKE).
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
    return tuple(sorted(scores, key=lambda phrase: (-scores[phrase], order[phrase])))[:_MAX_KEYWORDS]


def _phrases(text: str) -> list[tuple[str, ...]]:
    phrases: list[tuple[str, ...]] = []
    run: list[str] = []
    for token in [*_KEYWORD.findall(text.replace("’", "'")), "."]:
        word = token.casefold()
        if word[0].isalpha() and word not in _STOP and len(word) > 2 and not _HAN_RUN.search(word):
            run.append(word.removesuffix("'s"))
        elif run:
            if len(run) <= _MAX_WORDS:
                phrases.append(tuple(run))
            run = []
    return phrases


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
_PASSAGE_WORD = re.compile(r"[^\W\d_]+")
_PASSAGE_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 4


def find_passage(quote: str, text: str) -> tuple[int, int] | None:
    wanted = "".join(sign for sign, _ in _folded(quote.strip().strip("\"'“”‘’「」…").strip()))
    if not wanted:
        return None
    signs = _folded(text)
    at = "".join(sign for sign, _ in signs).find(wanted)
    if at < 0:
        return None
    return signs[at][1], signs[at + len(wanted) - 1][1] + 1


def folded(text: str) -> str:
    return "".join(sign for sign, _ in _folded(text))


def numbers(text: str, *, words: bool = False) -> set[str]:
    """Return the numbers in a text without leading zeros; with `words` also small spelt-out ones."""
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text))
    found = {str(int(run)) if len(run) < 40 else run for run in _NUMBER.findall(plain)}
    if words:
        low = plain.casefold()
        found |= {_WORDS[word] for word in _PASSAGE_WORD.findall(low) if word in _WORDS}
        found |= {number for word, number in _WORDS.items() if not word.isascii() and word in low}
    return found


def addresses(text: str) -> set[str]:
    return {folded(match.rstrip(".,;:!?")) for match in _ADDRESS.findall(text)}


def shared_words(claim: str, source: str) -> float:
    """Return the share of a claim's words that a source has, 1.0 if the claim has none."""
    # Words have 4 letters or more, or are pairs of Han characters. They match by their first 4 letters, so that "lives"
    # is found in "I live".
    wanted = stems(claim)
    return len(wanted & stems(source)) / len(wanted) if wanted else 1.0


def stems(text: str) -> set[str]:
    low = unicodedata.normalize("NFKC", text).casefold()
    han = {
        first + second for first, second in pairwise(low) if _PASSAGE_HAN.match(first) and _PASSAGE_HAN.match(second)
    }
    return han | {word[:_STEM] for word in _PASSAGE_WORD.findall(_PASSAGE_HAN.sub(" ", low)) if len(word) >= _STEM}


def _folded(text: str) -> list[tuple[str, int]]:
    return [
        (part, place)
        for place, sign in enumerate(text)
        for part in unicodedata.normalize("NFKD", sign).casefold().translate(_SAME)
        if not part.isspace() and unicodedata.category(part) not in _DROPPED
    ]


_DASHES = re.compile(r"(?<=\w)[-‐‑‒–](?=\w)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HAN = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|stopped|quit|avoid\w*|hate\w*|dislike\w*|"
    r"refuse\w*|former|formerly|ex|used to|no longer)\b|\w*n['’]t\b|不|没|别|无|讨厌|以前|曾经",
    re.IGNORECASE,
)
_INTENTION = re.compile(
    r"\b(?:want\w*|would like|['’]d like|plan(?:s|ning|ned)?|hop(?:e|es|ing)|wish\w*|going to|gonna|will|might|may|"
    r"dream\w*|thinking of|considering)\b|['’]ll\b|想|打算|希望|计划",
    re.IGNORECASE,
)
_IS = re.compile(r"\b(?:am|is|are)\b|['’](?:m|re)\b", re.IGNORECASE)
_WAS = re.compile(r"\b(?:was|were|had been)\b", re.IGNORECASE)
_COUNTED = """
zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_NUMBERS = {word: str(number) for number, word in zip((0, *range(2, 21)), _COUNTED.split(), strict=True)}
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
# Words that carry no content between two statements of a fact.
_EMPTY = frozenset(
    """
    a an the i i'm i've i'd i'll me my mine we our us am is are was were be been being do does did have has had it its
    it's one all to of in on at by for from with and or that this so just really very also too quite now still currently
    actually well oh yes yeah you know think guess would will can could there here as about
    """.split()  # noqa: SIM905 - quoting each word says less
)


def normalized_value(value: str | None) -> str:
    """Normalize a value for comparison: "Saint-Denis" equals "Saint Denis" in any Unicode form."""
    composed = unicodedata.normalize("NFKC", value or "").casefold().replace("’", "'")
    return " ".join(_DASHES.sub(" ", composed).split()).strip(" .,!?'\"")


def words(text: str) -> frozenset[str]:
    """Return the content words of a text, folded and stemmed; for Chinese and Japanese the characters."""
    found: set[str] = set()
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    for word in _WORD.findall(folded):
        if _HAN.search(word):
            found.update(word)
        elif word not in _EMPTY and not _NEGATION.fullmatch(word):
            found.add(_NUMBERS.get(word, _stem(word.removesuffix("'s"))))
    return frozenset(found)


def _stem(word: str) -> str:
    if word.endswith(("ied", "ies")):
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two word sets, 0 if both are empty."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def contains_words(one: frozenset[str], other: frozenset[str]) -> float:
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def contradicts(one: str, other: str) -> bool:
    """Return True if two texts cannot be the same statement."""
    # They differ in a number or name, only one denies or intends, or one is about now and the other about the past.
    if _numbers(one) != _numbers(other):
        return True
    if any(bool(sign.search(one)) != bool(sign.search(other)) for sign in (_NEGATION, _INTENTION)):
        return True
    if (_IS.search(one) and _only_was(other)) or (_IS.search(other) and _only_was(one)):
        return True
    names, others = _names(one), _names(other)
    # One may leave a name out that the other says; each with a name of its own are two statements.
    return bool(names - others) and bool(others - names)


def _only_was(text: str) -> bool:
    return _WAS.search(text) is not None and _IS.search(text) is None


def _numbers(text: str) -> frozenset[str]:
    counted = {number for word, number in zip("一二三四五六七八九", "123456789", strict=True) if word in text}
    return frozenset(word for word in words(text) if word.isdigit()) | frozenset(_DIGITS.findall(text)) | counted


def _names(text: str) -> frozenset[str]:
    return frozenset(normalized_value(name) for name in entities(unicodedata.normalize("NFC", text)))
