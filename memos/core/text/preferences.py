"""Find what a speaker likes, avoids or cannot have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memos.core.text import wording_by_language

_SCAN_CHARS = 1_000
_STATED = re.compile(
    r"\bI(?:['’]m|['’]ve| am| have)?\b[^.!?\n]{0,40}?\b(?:prefer|dislike|hate|love|enjoy|avoid|favou?r|allergic|"
    r"avers\w+|vegan|vegetarian|intoleran\w+|can(?:no|['’])t (?:stand|eat|bear|handle)|don['’]t (?:like|enjoy|eat|"
    r"drink)|not (?:a fan|interested|into|keen)|fan of|sensitive to|afraid|firmly believe|find .{1,40} (?:boring|"
    r"distracting|tedious|uncomfortable|unengaging|off-putting)|only (?:eat|drink|buy|use|watch|stay))"
    r"|\bmy (?:favou?rite|preference)\b"
    r"|我(?:最|很|非常|特别|更|比较)?(?:不)?(?:喜欢|爱吃|爱喝|讨厌|偏好)|我(?:从来)?不(?:吃|喝|碰)|我对.{1,10}过敏",
    re.IGNORECASE,
)

_STATED_ELSEWHERE = re.compile("|".join(wording_by_language.PREFERENCES), re.IGNORECASE)

_OFTEN = (
    r"(?:(?:also|really|still|just|absolutely|totally|truly|actually|always|generally|quite|very much|much|do|now|"
    r"especially|definitely|usually|personally|mostly|particularly|kinda|strongly|honestly|simply|especially|even|"
    r"lowkey) )*"
)
_STOP = (
    r"(?= (?:and I|tbh|lol|ngl|imo|haha|but|because|since|when|while|if|so|too|very much|a lot|any ?more|any longer|"
    r"again|over|than|more than|at all|these days|now|though|either|as well|with|for|from|like|that|which|who|in|on|at|"
    r"after|before)\b"
    r"|\s*(?:[.,;:!?()\"“”\n]|$|[^\w\s'’&/+\-]))"
)
_THING = rf"(?P<v>[^.,;:!?()\"“”\n]{{1,60}}?){_STOP}"
_PREFER = r"(?:would |['’]d )?prefer (?P<v>[^.,;:!?()\"“”\n]{1,60}?)(?= (?:to|over|rather than)\b|\s*(?:[.,;:!?\n]|$))"
# Besides likings: what one cannot have, does not take, is afraid of, and favourites. Nobody else's between "I" and it.
_FIRM = re.compile(
    r"\bI(?:['’]?m|['’]?ve| am| have)?\b"
    r"(?:(?!\b(?:you|she|he|they|it|we|who|that|which|if|my|wish|not|wasn['’]t)\b)[^.!?\n]){0,40}?"
    r"(?:\b(?:allergic to (?!(?:it|this|that|them)\b)|avers\w+|intoleran\w+|avoid|sensitive to|afraid of|firmly "
    r"believe|can(?:no|['’])?t (?:eat|drink|handle)|(?:don['’]?t|do not|never) (?:really |actually |usually |ever )*"
    r"(?:eat|drink) (?!(?:it|this|that|them|lunch|dinner|breakfast|enough)\b)\w|only (?:eat|drink|buy|use|watch)|"
    r"find [^.!?\n]{1,40}? (?:boring|distracting|tedious|uncomfortable|unengaging|off-putting))"
    r"|(?:\bam|['’]m|\bbeen|\bwent|\bbecame|\bturned) (?:\w+ )?(?:vegan|vegetarian)\b)"
    r"|\bmy (?:favou?rite|preference)s?(?: \w+){0,3} (?:is|are) (?!(?:it|this|that|these|those|here|coming|back)\b)"
    r"|\bI(?:['’]d| would) (?:always |much |far )*rather \w[^.!?\n]{1,60} than [^.!?\n]{1,40}\b(?:always|usually|"
    r"any day|any time|every time)\b"
    r"|\bI(?:['’]d| would) (?:always|usually|generally) rather \w"
    r"|\bI(?:['’]?m| am|['’]ve always been) (?:really |definitely |more of |not |so not |very much )*an? "
    r"(?:morning|night|early|dog|cat|coffee|"
    r"tea|people|city|beach|mountain|outdoors?|winter|summer|numbers|visual|book|sweets?) person\b"
    r"|(?<!\bit )\b(?:is|are) my (?:all[- ]time )?favou?rites?\b"
    r"|我(?:从来|一直|现在|基本|平时|已经|晚上|早上|也|都)*(?:不|不[太大]?能|不怎么能?|不敢|没法)(?:吃|喝|碰)"
    r"(?!了饭|亏|醋|到|完|下|惯|准)|我对[^，。！？]{1,10}过敏|我[^，。！？]{0,4}偏好"
    r"|(?:^|[，,；;])(?:(?:现在|最近|平时|晚上|早上|中午|早餐|晚餐|基本|从来|已经)+不(?:吃|喝|碰)(?!饭|亏|醋|到|完|"
    r"下|惯|准)[^，。！？\s]{1,8})",
    re.IGNORECASE,
)
_BIG = r"(?:big |huge )?"
_DO_NOT = r"(?:do not|don['’]?t|no longer|never)"
_HAN_VERY = r"(?:真的?|很|最|非常|特别|更|也|还是|比较|一直|都|现在|挺|超)*"
_HAN_LIKE = r"(?:喜欢上?|爱(?:吃|喝|看|听|玩))"
_HAN_HATE = r"(?:讨厌|受不了|(?:不|不太|不怎么)(?:喜欢|爱(?:吃|喝|看|听|玩)?))"
# A clause without a subject after one of the speaker's: "我喜欢爬山，但是讨厌露营".
_HAN_AFTER = (
    r"我(?![^，,。]{0,12}(?:听说|知道|觉得你|朋友|妈|爸))[^他她它你您。！？“”「]{1,40}?"
    rf"(?:[，,、](?:但是?|不过|而且|可是|却)?(?:也|还|更)?|(?:也|还)){_HAN_VERY}"
)
_ALONE = (
    r"^(?:(?:also|and|but|plus|oh|honestly|btw|still|really|just)[, ]+)*(?:can['’]?t stand|cannot stand|(?:not|"
    r"never been) (?:really |particularly |exactly )?(?:a )?(?:big |huge |great )?(?:fan of|keen on|into|fond of))"
)
_HAN_THING = r"(?P<v>[^，。！？；,.!?;\s]{1,20}?)(?=了?(?:[，。！？；,.!?;\s]|$)|但|因为|所以|胜过|多于)"

# Whether it is liked, and whether that is over, for each pattern.
_LIKINGS: tuple[tuple[bool, bool, re.Pattern[str]], ...] = tuple(
    (likes, ended, re.compile(pattern, re.IGNORECASE))
    for likes, ended, pattern in (
        # More or less than something else is no yes or no.
        (
            True,
            False,
            rf"\bI {_OFTEN}(?:like|love|enjoy) "
            r"(?P<v>[^.,;:!?\n]{1,40}? (?:less than|as much as) [^.,;:!?\n]{1,40})",
        ),
        (True, True, rf"\bI used to (?:really )?(?:like|love|enjoy|adore|be (?:into|fond of|a {_BIG}fan of)) {_THING}"),
        (False, True, rf"\bI used to (?:hate|dislike|detest) {_THING}"),
        (False, False, rf"\bI {_OFTEN}{_DO_NOT} {_OFTEN}(?:like|love|enjoy|care for) {_THING}"),
        (
            False,
            False,
            rf"(?:\bI {_OFTEN}(?:dislike|hate|detest|loathe|can['’]?t stand|cannot stand|can['’]?t bear)|{_ALONE}) "
            rf"{_THING}",
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
        (False, False, rf"我{_HAN_VERY}{_HAN_HATE}{_HAN_THING}"),
        (False, False, rf"{_HAN_AFTER}{_HAN_HATE}{_HAN_THING}"),
        (False, False, rf"(?:^|[，,])(?:但是?|就是|真的|实在|最|还是|不过)*受不了{_HAN_THING}"),
        (
            False,
            False,
            r"(?:^|[，,])(?P<v>[^，。！？；,.!?;\s我你他她它这那]{1,10})我(?:现在|已经|真的|一直|也|都)*"
            r"(?:没那么|没以前那么|不太|不怎么|不再|不)(?:喜欢|爱(?:吃|喝|看|听|玩))了?",
        ),
        (True, False, rf"我{_HAN_VERY}{_HAN_LIKE}{_HAN_THING}"),
        (True, False, rf"{_HAN_AFTER}{_HAN_LIKE}{_HAN_THING}"),
    )
)
_ARTICLES = re.compile(
    r"^(?:a|an|the|my|some|any|all|drinking|eating|playing|watching|listening to|to|kinds of|all kinds of) "
)
# What says nothing to whoever did not hear the rest: "I love it", "I love how they dance".
_VAGUE = re.compile(
    r"^(?:not|it|that|this|these|those|them|him|her|you|us|everything|everyone|nothing|something|anything|how|what|"
    r"when|where|why|who|being|having|your|his|their|our|i|we|he|she|they|one|both|each other|myself|to(?!\s\w)|to "
    r"(?:hear|see|know|say|think|help|get|go|do)|is|was|so|every|more|most|much|too|all of|all (?:the|this|that|these|"
    r"those)|just|about|as|and|but|or|seeing (?:you|how)|hearing|help|helping|someone|somebody|anyone|things?|stuff|"
    r"doing)\b"
    r"|\b(?:this|that|these|those|your|yours|you|them|it|him|her|u)\b"
    r"|^(?:你|您|他|她|它|这|那|我|自己|什么|的|看到|听到|过|吗|上了)",
    re.IGNORECASE,
)
_NO_THING = re.compile(
    r"\b(?:and|or|less|more|than|as)\b|[&/+和与或跟]|^(?:playing|doing|going|getting|making|taking|seeing|trying|"
    r"working|sinking|finding|spending|get)\b"
)
_TO_WHAT = re.compile(r"\b(?:to|of|in|at|about|into|on|with|for)$", re.IGNORECASE)
_THESE = re.compile(r"\s+(?:\w+ )?(?:this|these|those)\b", re.IGNORECASE)
# "Simple, minimal dependencies": the thing is not named yet.
_GOES_ON = re.compile(
    r",\s+(?!(?:and|but|so|because|i|it|which|though|too|especially|particularly|please|how|what|can|when|where|as|"
    r"since)\b)[a-z]"
)
# "Stories that tackle issues" are some stories only.
_SOME_OF_IT = re.compile(r"\s+(?:that|which|who|where|whose)\b", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"([A-Za-z]+)\s+$")
_MAY_STAND_BEFORE = frozenset(
    """
    and but so because since as also now then actually honestly really personally yes yeah no well oh though
    although however while whereas plus cause cuz coz too but still lately nowadays sometimes generally hey hi hello
    ok okay btw lol
    """.split()  # noqa: SIM905
)
_THE_ONE = re.compile(
    r"the (?!(?:sea|ocean|beach|mountains?|outdoors|rain|snow|sun|city|countryside|winter|summer|spring|autumn|cold|"
    r"heat|dark|theat(?:re|er)|cinema|opera|ballet|gym|woods|forest|desert|night|smell of|sound of|taste of|feeling of|"
    r"quiet|water)\b)",
    re.IGNORECASE,
)
# "喝咖啡" is liked as "咖啡" is; a 玩具 is a thing.
_HAN_DOING = re.compile(r"^(?:喝|吃|看|听|玩(?!具))(?=.)")
_MOST_WORDS = 3
_ENDS_IN_E = frozenset(
    "movie cookie pie tie zombie selfie smoothie brownie veggie hoodie calorie shoe toe canoe ache headache".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Liking:
    """A thing the speaker likes or dislikes, or did until `ended`; the span covers the whole match."""

    # `thing` is lower case without article and plural, so that mentions compare; None if it is several things or too
    # long.

    thing: str | None
    likes: bool
    start: int
    end: int
    ended: bool = False


def states_preference(text: str) -> bool:
    """Return True for "I avoid dairy" or "我不吃辣", by pattern; only the first 1,000 characters are looked at."""
    head = text[:_SCAN_CHARS]
    return _STATED.search(head) is not None or _STATED_ELSEWHERE.search(head) is not None


def firm_preference(sentence: str) -> tuple[int, int] | None:
    """Return where a sentence says what its speaker cannot have, avoids or likes best, beyond `liking`."""
    # Stricter than `states_preference`, which only affects ranking.
    match = _FIRM.search(sentence[:_SCAN_CHARS])
    return None if match is None else match.span()


def liking(sentence: str) -> Liking | None:
    return next(iter(likings(sentence)), None)


def likings(sentence: str) -> list[Liking]:
    """Return the things a speaker likes or dislikes, by pattern, in order, without overlaps."""
    # Wishes do not count, nor does "I love it", which does not say what "it" is.
    head = sentence[:_SCAN_CHARS]
    found = [
        (match, likes, ended)
        for likes, ended, pattern in _LIKINGS
        for match in pattern.finditer(head)
        if not _VAGUE.search(match["v"]) and not _of_the_moment(head, match, likes=likes)
    ]
    kept: list[Liking] = []
    free = 0
    # At one place the first pattern is the stricter one.
    for match, likes, ended in sorted(found, key=lambda one: one[0].start("v")):
        if match.start("v") >= free:
            free = match.end("v")
            is_part = _GOES_ON.match(head, free) or _SOME_OF_IT.match(head, free)
            kept.append(Liking(None if is_part else thing_of(match["v"]), likes, *match.span(), ended))
    return kept


def _of_the_moment(head: str, match: re.Match[str], *, likes: bool) -> bool:
    if _TO_WHAT.search(match.group("v")) or _THESE.match(head, match.end("v")):
        return True
    before = _WORD_BEFORE.search(head[: match.start()])
    if before is not None and before.group(1).casefold() not in _MAY_STAND_BEFORE:
        return True
    return likes and _THE_ONE.match(match.group("v")) is not None


def thing_of(said: str) -> str | None:
    """Normalize a liked thing for keys: lower case, no article, singular; None for "it" and several things."""
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
