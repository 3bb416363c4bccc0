"""Says whether a text states what its speaker likes, avoids or cannot have, and what is liked or disliked. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SCAN_CHARS = 1_000
_STATED = re.compile(
    r"\bI(?:['’]m|['’]ve| am| have)?\b[^.!?\n]{0,40}?\b(?:prefer|dislike|hate|love|enjoy|avoid|favou?r|allergic|"
    r"avers\w+|vegan|vegetarian|intoleran\w+|can(?:no|['’])t (?:stand|eat|bear|handle)|"
    r"don['’]t (?:like|enjoy|eat|drink)|not (?:a fan|interested|into|keen)|fan of|sensitive to|afraid|firmly believe|"
    r"find .{1,40} (?:boring|distracting|tedious|uncomfortable|unengaging|off-putting)|"
    r"only (?:eat|drink|buy|use|watch|stay))"
    r"|\bmy (?:favou?rite|preference)\b"
    r"|我(?:最|很|非常|特别|更|比较)?(?:不)?(?:喜欢|爱吃|爱喝|讨厌|偏好)|我(?:从来)?不(?:吃|喝|碰)|我对.{1,10}过敏",
    re.IGNORECASE,
)

_OFTEN = (
    r"(?:(?:also|really|still|just|absolutely|totally|truly|actually|always|generally|quite|very much|do|now|"
    r"especially) )*"
)
_STOP = (
    r"(?= (?:and I|but|because|since|when|while|if|so|too|very much|a lot|any ?more|any longer|again|over|than|"
    r"more than|at all|these days|now|though|either|as well|with|for|from|like|that|which|who|in|on|at|after|before)\b"
    r"|\s*(?:[.,;:!?()\"“”\n]|$|[^\w\s'’&/+\-]))"
)
_THING = rf"(?P<v>[^.,;:!?()\"“”\n]{{1,60}}?){_STOP}"
_PREFER = r"(?:would |['’]d )?prefer (?P<v>[^.,;:!?()\"“”\n]{1,60}?)(?= (?:to|over|rather than)\b|\s*(?:[.,;:!?\n]|$))"
# Beside likings: what one cannot have, does not take, is afraid of, and favourites. Nobody else's between "I" and it.
_FIRM = re.compile(
    r"\bI(?:['’]m|['’]ve| am| have)?\b"
    r"(?:(?!\b(?:you|she|he|they|it|we|who|that|which|if|my|wish|not|wasn['’]t)\b)[^.!?\n]){0,40}?"
    r"(?:\b(?:allergic|avers\w+|intoleran\w+|avoid|sensitive to|afraid of|firmly believe|"
    r"can(?:no|['’])t (?:eat|drink|handle)|(?:don['’]t|do not|never) (?:eat|drink)|only (?:eat|drink|buy|use|watch)|"
    r"find [^.!?\n]{1,40}? (?:boring|distracting|tedious|uncomfortable|unengaging|off-putting))"
    r"|(?:\bam|['’]m|\bbeen|\bwent|\bbecame|\bturned) (?:\w+ )?(?:vegan|vegetarian)\b)"
    r"|\bmy (?:favou?rite|preference)s?(?: \w+){0,3} (?:is|are)\b"
    r"|(?<!\bit )\b(?:is|are) my (?:all[- ]time )?favou?rites?\b"
    r"|我(?:从来)?不(?:吃|喝|碰)|我对.{1,10}过敏|我.{0,4}偏好",
    re.IGNORECASE,
)
_BIG = r"(?:big |huge )?"
_DO_NOT = r"(?:do not|don['’]t|no longer|never)"
_HAN_VERY = r"(?:真的?|很|最|非常|特别|更|也|还是|比较|一直|都|现在|挺|超)*"
_HAN_LIKE = r"(?:喜欢上?|爱(?:吃|喝|看|听|玩))"
_HAN_ALSO = rf"我{_HAN_VERY}{_HAN_LIKE}[^他她它你您。！？]{{1,30}}?[，,、]?(?:也|还){_HAN_VERY}{_HAN_LIKE}"
_HAN_THING = r"(?P<v>[^，。！？；,.!?;\s]{1,20}?)(?=了?(?:[，。！？；,.!?;\s]|$)|但|因为|所以|胜过|多于)"

# Whether it is liked, and whether that is over, for each pattern.
_LIKINGS: tuple[tuple[bool, bool, re.Pattern[str]], ...] = tuple(
    (likes, ended, re.compile(pattern, re.IGNORECASE))
    for likes, ended, pattern in (
        (True, True, rf"\bI used to (?:really )?(?:like|love|enjoy|adore|be (?:into|fond of|a {_BIG}fan of)) {_THING}"),
        (False, True, rf"\bI used to (?:hate|dislike|detest) {_THING}"),
        (False, False, rf"\bI {_OFTEN}{_DO_NOT} {_OFTEN}(?:like|love|enjoy|care for) {_THING}"),
        (
            False,
            False,
            rf"\bI {_OFTEN}(?:dislike|hate|detest|loathe|can['’]t stand|cannot stand|can['’]t bear) {_THING}",
        ),
        (
            False,
            False,
            rf"\bI(?:['’]m| am) {_OFTEN}(?:not|no longer) {_OFTEN}"
            rf"(?:into|fond of|keen on|interested in|(?:a )?{_BIG}fan of) {_THING}",
        ),
        (True, False, rf"\bI {_OFTEN}(?:like|love|enjoy|adore) {_THING}"),
        (True, False, rf"\bI(?:['’]m| am) {_OFTEN}(?:into|fond of|keen on|a {_BIG}fan of) {_THING}"),
        (True, False, rf"\bI ?{_OFTEN}{_PREFER}"),
        (True, True, rf"我(?:以前|之前|曾经?|过去|原来|从前){_HAN_VERY}{_HAN_LIKE}{_HAN_THING}"),
        (
            False,
            False,
            rf"我(?:现在|已经|再也|从来|一直|也|真的?|最|很|特别)*不(?:再|太|怎么|是很)?{_HAN_LIKE}{_HAN_THING}",
        ),
        (False, False, rf"我{_HAN_VERY}(?:讨厌|受不了|不爱(?:吃|喝|看|听|玩)){_HAN_THING}"),
        (True, False, rf"我{_HAN_VERY}{_HAN_LIKE}{_HAN_THING}"),
        (True, False, rf"{_HAN_ALSO}{_HAN_THING}"),
    )
)
_ARTICLES = re.compile(
    r"^(?:a|an|the|my|some|any|all|drinking|eating|playing|watching|listening to|to|kinds of|all kinds of) "
)
# What says nothing to whoever did not hear the rest: "I love it", "I love how they dance".
_VAGUE = re.compile(
    r"^(?:not|it|that|this|these|those|them|him|her|you|us|everything|everyone|nothing|something|anything|how|what|when|"
    r"where|why|who|being|having|your|his|their|our|i|we|he|she|they|one|both|each other|myself|"
    r"the (?:way|idea|fact|texture|taste|smell|sound|look|feel|colou?r|place|result|plan))\b"
    r"|^(?:你|您|他|她|它|这|那|我|自己|什么|的)",
    re.IGNORECASE,
)
_NO_THING = re.compile(
    r"\b(?:and|or)\b|[&/+和与或跟]|^(?:playing|doing|going|getting|making|taking|seeing|trying|working|sinking|finding|spending|get)\b"
)
# "喝咖啡" is liked as "咖啡" is; a 玩具 is a thing.
_HAN_DOING = re.compile(r"^(?:喝|吃|看|听|玩(?!具))(?=.)")
_MOST_WORDS = 3
_ENDS_IN_E = frozenset(
    "movie cookie pie tie zombie selfie smoothie brownie veggie hoodie calorie shoe toe canoe ache headache".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Liking:
    """The speaker likes or dislikes `thing`, or did when it `ended`; the span is that of the whole match.

    `thing` is in lower case, without article and plural, so that what is liked and disliked later is the same; None
    when it is more than one thing, or too long to be one.
    """

    thing: str | None
    likes: bool
    start: int
    end: int
    ended: bool = False


def states_preference(text: str) -> bool:
    """Return True for "I avoid dairy" or "我不吃辣", by pattern; only the first 1,000 characters are looked at."""
    return _STATED.search(text[:_SCAN_CHARS]) is not None


def firm_preference(sentence: str) -> tuple[int, int] | None:
    """Return where a sentence says what its speaker cannot have, avoids or likes best, beside what `liking` reads.

    Stricter than `states_preference`, which only ranks.
    """
    match = _FIRM.search(sentence[:_SCAN_CHARS])
    return None if match is None else match.span()


def liking(sentence: str) -> Liking | None:
    """Return the first thing a sentence says its speaker likes or dislikes, by pattern; see `likings`."""
    return next(iter(likings(sentence)), None)


def likings(sentence: str) -> list[Liking]:
    """Return the things a sentence says its speaker likes or dislikes, by pattern, in order; each word is in one.

    Wishes are no likings, nor is "I love it", which says nothing to whoever does not know what "it" is.
    """
    head = sentence[:_SCAN_CHARS]
    found = [
        (match.span("v"), Liking(thing_of(match.group("v")), likes, match.start(), match.end(), ended))
        for likes, ended, pattern in _LIKINGS
        for match in pattern.finditer(head)
        if not _VAGUE.match(match.group("v"))
    ]
    kept: list[Liking] = []
    free = 0
    # At one place the first pattern is the stricter one.
    for (start, end), each in sorted(found, key=lambda one: one[0][0]):
        if start >= free:
            kept.append(each)
            free = end
    return kept


def thing_of(said: str) -> str | None:
    """Return a liked thing as keys name it: lower case, no article, no plural; None for "it" and for several things."""
    thing = " ".join(said.casefold().replace("’", "'").split()).strip(" '-*_")
    while (shorter := _ARTICLES.sub("", thing)) != thing:
        thing = shorter
    words = thing.split()
    if not words or len(words) > _MOST_WORDS or _NO_THING.search(thing) or _VAGUE.match(thing):
        return None
    return " ".join([*words[:-1], _singular(_HAN_DOING.sub("", words[-1]))])


def _singular(word: str) -> str:
    if len(word) < 4 or not word.isascii() or word.endswith(("ss", "us", "is")):
        return word
    if word[:-1] in _ENDS_IN_E and word.endswith("s"):
        return word[:-1]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes", "oes")):
        return word[:-2]
    return word.removesuffix("s")
