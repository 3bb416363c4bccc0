"""Read attributes that people tell in unlike words: an age, a role, a marriage, when somebody gets up, a death.

Frames compare statements of one predicate. "I get up at seven." and "My alarm goes off at six." have no word in common,
and still the second is the newer answer to one question. English; what cannot be read tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import GIVEN_NAMES, read_claim, words_of
from memos.core.text.frames import (
    CHARS,
    KIN_WORDS,
    LEAD,
    NEGATIONS,
    STEMS,
    Kind,
    noun,
    nouns_of,
    read_frame,
    spelled_out,
)

DEATH = "death"


class Telling(NamedTuple):
    """A value of an attribute of somebody or something; `holder` is empty for the speaker."""

    attribute: str
    holder: frozenset[str]
    value: str


@cached_by_text(maxsize=4096)
def tellings_of(text: str) -> tuple[Telling, ...]:
    """Return what a statement tells of the attributes that are read here."""
    said = _LATELY.sub("", LEAD.sub("", spelled_out(text[:CHARS])).strip()).rstrip(" .!")
    return (*_values(said), *_states(said), *_roles(said), *_amounts(said), *_possessions(said))


def _values(said: str) -> Iterator[Telling]:
    for attribute, patterns in _TELLINGS.items():
        match = _first(patterns, said)
        if match is None or (attribute in _HABITS and _ONE_DAY.search(said)):
            continue
        if attribute != "age" or _is_being(match["who"]) or "old" in match.group():
            yield from _telling(attribute, match, match["value"])


def _states(said: str) -> Iterator[Telling]:
    for attribute, states in _STATES.items():
        for state, patterns in states.items():
            match = _first(patterns, said)
            if match is not None:
                if attribute != DEATH or _is_being(match["who"]):
                    yield from _telling(attribute, match, state)
                break


def _roles(said: str) -> Iterator[Telling]:
    match = _first(_ROLE_PATTERNS, said)
    if match is not None:
        role = match.groupdict().get("role", "boss").casefold()
        yield Telling(f"role of {_ROLE_NAMES.get(role, role)}", frozenset(), _value(match["value"]))


def _amounts(said: str) -> Iterator[Telling]:
    match = _first(_QUANTITIES, said)
    if match is not None:
        what = match["what"].casefold()
        yield from _telling(f"amount of {_SAME_AMOUNT.get(what, what)}", match, match["value"])


def _possessions(said: str) -> Iterator[Telling]:
    match = _first(_POSSESSION_PATTERNS, said)
    if match is not None:
        what = match["what"].casefold()
        yield from _telling(f"own {_SAME_THING.get(what, what)}", match, match["value"])


def _first(patterns: Iterable[re.Pattern[str]], said: str) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.search(said))), None)


def _telling(attribute: str, match: re.Match[str], value: str) -> Iterator[Telling]:
    groups = match.groupdict()
    holder = _holder(groups.get("who") or groups.get("whose") or "")
    if holder is not None:
        yield Telling(attribute, holder, _value(value))


def gives_attribute_another_value(older: str, newer: str) -> bool:
    """Return True if both tell one attribute of one holder, with two values."""
    told = tellings_of(newer)
    return bool(told) and any(
        was.attribute == now.attribute and _is_same(was.holder, now.holder) and was.value != now.value
        for was in tellings_of(older)
        for now in told
        if now.attribute != DEATH
    )


def tells_of_death_in(older: str, newer: str) -> bool:
    """Return True if `newer` says that somebody whom `older` speaks of has died: "Tiger died last week."."""
    dead = next((told.holder for told in tellings_of(newer) if told.attribute == DEATH and told.holder), None)
    if dead is None:
        return False
    names = dead - KIN_WORDS - PETS
    if any(name in older for name in names):  # "Rosemary died." tells nothing of rosemary.
        return False
    return (names or dead) <= nouns_of(older)


def has_again(older: str, newer: str) -> bool:
    """Return True if `newer` names a thing that `older` denies having: "I have no car.", then "My car is a Kia."."""
    found = [each["what"] or each["thing"] for each in _LACKING.finditer(older[:CHARS])]
    had = ({noun(word.casefold()) for word in found} - _NOT_LACKED) & nouns_of(newer)
    if not had or read_claim(newer).unreal or _LACKING.search(newer[:CHARS]):
        return False
    frame = read_frame(newer)
    if frame is None or frame.predicate.startswith("not-") or not NEGATIONS.isdisjoint(frame.words):
        return False
    return not had.isdisjoint(frame.subject | frame.words)


_LACKING = re.compile(
    r"\b(?:have|has|got|own|owns|lives?|living|manage|am|is|are) (?:\w+ )?(?:no|without(?: an?| any)?) "
    r"(?!longer|more|one)(?P<what>[^\W\d_]+)|"
    r"\bno (?P<thing>[^\W\d_]+)(?: [^\W\d_]+)? (?:for (?:me|us|now|a while|the time being|the moment)|any ?more|"
    r"at the moment)\b",
    re.IGNORECASE,
)
_NOT_LACKED = words_of("time idea doubt problem way need reason wonder matter use money news day week month year thing")


def names_another_one(older: str, newer: str) -> bool:
    """Return True for "I'm learning Greek." … "The language I'm learning is Basque.", which tells of one at a time."""
    for one, other in ((older, newer), (newer, older)):
        named, frame = _THE_ONE.match(spelled_out(one)), read_frame(_BEGUN.sub(" ", spelled_out(other)))
        if named is None or frame is None or frame.kind is not Kind.SPEAKER:
            continue
        told = dict(frame.slots).get("", frozenset())
        same = STEMS.get(named["verb"].casefold()) == frame.predicate
        if same and told & frame.capitals and noun(named["value"].casefold()) not in told:
            return True
    return False


_BEGUN = re.compile(r" (?:have )?(?:started|begun|began) (?:to )?", re.IGNORECASE)
_THE_ONE = re.compile(
    r"\s*(?:the|my) (?:\w+ ){1,3}?(?:(?:that|which) )?(?:i|we) (?:am |are |have been )?(?P<verb>\w+)"
    r"(?: [^.,;!?]{1,30}?)? (?:is|are) (?P<value>(?-i:[A-Z])\w+)",
    re.IGNORECASE,
)


@cached_by_text(maxsize=1024)
def asked_attribute(question: str) -> str | None:
    """Return the attribute that a question asks for, of those of which statements tell in few words."""
    said = spelled_out(question[:CHARS])
    if role := _ASKED_ROLE.search(said):
        named = role["role"].casefold()
        return f"role of {_ROLE_NAMES.get(named, named)}"
    return next((attribute for attribute, pattern in _ASKED if pattern.search(said)), None)


def tells_attribute(text: str, attribute: str) -> bool:
    """Return True if a statement tells an attribute, of anybody: "I'm 29." an age."""
    if attribute in _TOLD and _TOLD[attribute].search(spelled_out(text[:CHARS])):
        return True
    if any(told.attribute == attribute for told in tellings_of(text)):
        return True
    return any(f"role of {_ROLE_NAMES.get(role, role)}" == attribute for role in _named_roles(text))


def _named_roles(text: str) -> Iterator[str]:
    """Yield the roles that a text names somebody of in passing: "I found a vet two streets down, Dr Perrin."."""
    for match in _ROLE_IN_PASSING.finditer(text[: 2 * CHARS]):
        yield (match["role"] or match["of"]).casefold()


def is_of_long_ago(text: str) -> bool:
    """Return True for what was so in another time of life: "As a kid I had a spaniel."."""
    return _LONG_AGO.search(text[:CHARS]) is not None


def asks_of_now(question: str) -> bool:
    """Return True if a question is in the present, and of no time before."""
    return _PRESENT.search(question) is not None and _PAST.search(question) is None


_PRESENT = re.compile(r"\b(?:do|does|am|is|are|has|have)\b|['’](?:s|m|re)\b", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:did|was|were|had|been|ago|used|when|first|before|ever|former|formerly|previous|previously|old|past|history|"
    r"grow|grew|childhood|school|originally|since|until|how long)\b",
    re.IGNORECASE,
)
_LONG_AGO = re.compile(
    r"\b(?:(?:years|decades) ago|as an? (?:kid|child|boy|girl|teenager|student)|back in (?:19|20)\d\d|back then|"
    r"used to|"
    r"when (?:i|we) (?:was|were) (?:an?|in|at|little|young|small|\d+)|formerly|in my (?:youth|childhood|twenties))\b",
    re.IGNORECASE,
)


def _is_same(one: frozenset[str], other: frozenset[str]) -> bool:
    if not one or not other:
        return one == other
    names = one - KIN_WORDS, other - KIN_WORDS
    if all(names):
        return not names[0].isdisjoint(names[1]) if _are_people(*names) else one <= other or other <= one
    return not one.isdisjoint(other)


def _are_people(*names: frozenset[str]) -> bool:
    return all(not each.isdisjoint(GIVEN_NAMES | PETS) for each in names)


def _is_being(subject: str) -> bool:
    """Return True for the speaker, for a relative, an animal or a name."""
    words = re.findall(r"[\w'-]+", subject)
    lows = {word.casefold() for word in words}
    return bool(lows & (_SPEAKER | KIN_WORDS | PETS | GIVEN_NAMES)) or (words[-1][:1].isupper() and "of" not in lows)


def _holder(subject: str) -> frozenset[str] | None:
    """Return the words of a subject, none for the speaker, None if somebody unknown is meant."""
    lows = [word.casefold() for word in re.findall(r"[\w'-]+", subject)]
    if not lows or not _SPEAKER.isdisjoint(lows) or lows in (["my"], ["our"]):
        return frozenset()
    if lows[0] in _UNKNOWN:
        return None
    return frozenset(noun(low) for low in lows if low not in _SMALL)


PETS = words_of(
    "dog cat puppy kitten horse pony hamster rabbit parrot hund katze kater pferd perro perra gato gata "
    "bunny gerbil ferret budgie canary goldfish tortoise turtle lizard snake goat donkey hen rat mouse guinea-pig"
)
"""Animals that people have."""
_SPEAKER = words_of("i we me us")
_HABITS = frozenset({"getting up", "bedtime"})
_SAME_AMOUNT = {"ram": "memory", "disk": "storage", "space": "storage"}
_UNKNOWN = words_of("he she they it who someone somebody everyone everybody nobody you this that there")
_SMALL = words_of("and my our the a an of 's his her their old new little elder older younger big dear late")


def _value(text: str) -> str:
    lows = [low for low in re.findall(r"[\w:.'-]*\w", text.casefold()) if low not in _SMALL]
    return " ".join(lows)


_LATELY = re.compile(
    r"^(?:(?:since|as of|from|starting|until) (?:(?:the|this|last|next) )?[\w']+(?: (?:on|of [\w']+))?,? |"
    r"(?:lately|recently|these days|nowadays|now|at the moment|from now on|in the meantime|by now|and|so|then),? )+"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
_WORD = r"[^\W\d_][\w'-]*"
_WHO = rf"(?P<who>(?:(?:my|our|the) (?:{_WORD} ){{0,3}}?{_WORD}|{_WORD}(?: (?-i:[A-Z]){_WORD})?)(?: and {_WORD})?)"
_WHOSE = rf"(?P<whose>(?:{_WORD} )?{_WORD} of|my|our|the)"
_ADVERB = r"(?: (?:just|now|also|finally|recently|already|currently|both|officially|happily|really|still|usually))*"
_IS = rf"(?: (?:am|is|are|was|were|have been|has been|got|gets|have got|has got|have|has)){_ADVERB}"
_COUNT = (
    r"(?:\d+|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[ -]\w+)?|one|two|three|four|five|six|seven|"
    r"eight|nine|ten|eleven|twelve|\w+teen)"
)
_CLOCK = (
    rf"(?:(?:half|quarter|five|ten|twenty|twenty-five)(?: (?:past|to))? )?(?:\d{{1,2}}(?:[:.]\d\d)?|{_COUNT}|noon|"
    r"midnight)(?: ?[ap]\.?m\b| thirty\b| fifteen\b| o'clock\b)?"
)
_AT = (
    r"(?:[^.;!?]{0,24}? )??(?:at|by|before|around|about|until|till|for|to|is)(?: about| around)? "
    rf"(?P<value>{_CLOCK})\b"
)
_NAME = r"(?-i:(?:(?:Dr|Mr|Mrs|Ms|Prof) )?[A-Z][\w'-]+(?: [A-Z][\w'-]+)?)"
_PLACE = r"(?-i:[A-Z][\w'-]+(?: [A-Z][\w'-]+)?)"
_OCCUPATION = (
    r"(?:(?!(?:and|my|our|for|of|with) )[\w-]+ ){0,3}?(?:analyst|engineer|developer|programmer|manager|director|nurse|"
    r"teacher|cook|chef|sous-chef|"
    r"clerk|assistant|apprentice|intern|trainee|accountant|lawyer|doctor|surgeon|lead|leader|head|supervisor|foreman|"
    r"officer|consultant|designer|editor|writer|driver|waiter|waitress|barista|secretary|receptionist|technician|"
    r"scientist|researcher|professor|lecturer|partner|associate|president|captain|sergeant|plumber|electrician|"
    r"carpenter|mechanic|baker|pilot|librarian|journalist|architect|midwife|paramedic|pharmacist|surveyor|"
    r"cashier|coordinator|administrator|principal|inspector|detective|superintendent|deputy|chief|ceo|cto|cfo|vp)\b"
)
_ROLES = (
    r"boss|manager|supervisor|lead|leader|head|chief|director|coach|trainer|teacher|tutor|dentist|doctor|gp|physician|"
    r"therapist|landlord|landlady|agent|lawyer|hairdresser|barber|vet|nanny|cleaner|babysitter|chair|chairman|"
    r"chairwoman|president|treasurer|captain|secretary|headmaster|principal|mayor|mentor|advisor|accountant"
)
_ONE_DAY = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last night|this (?:morning|evening|weekend)|one day|once)\b", re.IGNORECASE
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_TELLING_PATTERNS: dict[str, tuple[str, ...]] = {
    "age": (
        rf"^{_WHO} (?:am|is|are){_ADVERB} (?P<value>{_COUNT}(?: (?:weeks|months))?)(?: years?)?(?: old)?(?: now)?"
        r"(?=[.,;!?]|$| and\b)",
        rf"^{_WHO}(?: have| has)?{_ADVERB} turn(?:s|ed)? (?P<value>{_COUNT})\b",
    ),
    "getting up": (
        rf"^{_WHO}(?: \w+)? (?:get|gets|wake|wakes|am|is|are) (?:up|awake|out of bed)\b {_AT}",
        rf"\b(?:{_WHOSE} )?alarm(?: clock)? (?:goes off|rings|is set|is|wakes me) {_AT}",
    ),
    "bedtime": (
        rf"^{_WHO}(?: usually| mostly| always| try to)* (?:(?:am|is|are) (?:in bed|asleep)|go(?:es)? to (?:bed|sleep)|"
        rf"turns? in|falls? asleep|(?:switch|switches|turns?) off the light) {_AT}",
        rf"\b(?:{_WHOSE} )?(?:bedtime|lights out)(?: is)? {_AT}",
    ),
    "home": (
        r"(?:^|[,;.] |\band )(?P<who>i|we)? ?(?:have |am |are )?(?:live|living|moved|relocated|settled|based|"
        r"rent(?:ing)? (?:one|an? \w+)|in (?:my|our) new (?:flat|house|home|place|apartment))\b"
        rf"(?: back| over| down| (?:from|out of) {_NAME}| together)* (?:in|to) (?P<value>{_PLACE})",
        rf"\b(?P<who>my|our) (?:new )?(?:flat|house|home|place|apartment) (?:is )?in (?P<value>{_PLACE})",
        rf"\b(?P<who>i) am (?:now )?(?:an? )?resident of (?P<value>{_PLACE})",
    ),
    "employer": (
        r"^(?P<who>i|we) (?:have )?(?:now )?(?:joined|work (?:at|for)|started (?:work(?:ing)? )?(?:at|for|with)|"
        rf"am employed by|signed (?:on )?with) (?P<value>{_PLACE})",
        rf"^(?P<value>{_PLACE}) (?:has )?hired (?P<who>me)\b",
        rf"\b(?P<who>my) (?:employer is|payslips? comes? from|salary comes from) (?P<value>{_PLACE})",
    ),
    "job": (
        rf"^{_WHO} (?:(?:am|is){_ADVERB}|works?{_ADVERB} as|am working as) (?:an? |the )?(?P<value>{_OCCUPATION})",
        rf"\b(?P<who>my|our) (?:job|position|role|title|job title) is (?P<value>{_OCCUPATION})",
        rf"^{_WHO}{_IS} (?:been )?(?:promoted|moved up|made up|appointed|named) (?:from [^.,;]+? )?(?:to |as )?(?:be )?"
        r"(?P<value>(?!from\b)[^.,;!?]{2,40})",
        rf"^{_WHO}(?: have| has)?{_ADVERB} (?:become|became) (?:an? |the )?(?P<value>{_OCCUPATION})",
        rf"\b(?:made|named|appointed|promoted) (?P<who>me)(?: to)? (?:an? |the )?(?P<value>{_OCCUPATION})",
        r"\bpromoted (?P<who>me) to (?:an? |the )?(?P<value>[^.,;!?]{2,40})",
        r"\bchanged (?P<who>my|our) (?:job )?(?:title|role|position) (?:from .{2,40}? )?to (?P<value>[^.,;!?]{2,40})",
    ),
}
_STATE_PATTERNS: dict[str, dict[str, tuple[str, ...]]] = {
    DEATH: {
        "dead": (
            rf"^{_WHO}(?:{_IS})? (?:died|dead\b|passed (?:away|on)\b|(?:to be )?put (?:down|to sleep)\b|not with us)",
            rf"\b(?:we|i)(?: have)?(?: just)? (?:had to put|had to have|put) {_WHO} (?:put )?(?:down|to sleep)\b",
            rf"^(?:we|i)(?: have)?(?: just)? buried {_WHO}\b",
        ),
    },
    "partnership": {
        "apart": (rf"^{_WHO}(?:{_IS})? (?:divorced|separated|split(?: up)?|broken up|broke up|parted ways)\b",),
        "married": (rf"^{_WHO}(?:{_IS})? (?:married|tied the knot|newlyweds)\b",),
        "engaged": (rf"^{_WHO}{_IS} engaged(?! (?:in|with))\b",),
        "widowed": (rf"^{_WHO}{_IS} (?:widowed|a widow|a widower)\b",),
        "single": (rf"^{_WHO}{_IS} (?:single(?! \w)|on my own again)\b",),
        "together": (rf"^{_WHO}{_IS} (?:seeing|dating|in a relationship with|together with) ",),
    },
    "work": {
        "without": (
            rf"^{_WHO}(?:{_IS})? (?:been )?(?:unemployed|out of work|between jobs|laid off|made redundant|fired|"
            rf"retired|"
            r"(?:lost|quit) (?:my|his|her|their) job)\b",
        ),
        "for oneself": (rf"^{_WHO}(?:{_IS})? (?:gone |been |went )?(?:self-employed|freelance)\b",),
        "employed": (
            rf"^{_WHO}(?:{_IS})? (?:found|got|started|landed) (?:an? |the )?(?:new )?(?:job|position|post|work)\b",
            rf"^{_WHO} works? (?:at|for) (?!home\b)",
        ),
    },
    "baby": {
        "expected": (rf"^{_WHO}{_IS} (?:expecting|pregnant)\b",),
        "born": (
            rf"^{_WHO}(?: have| has)?{_ADVERB} (?:given birth|gave birth|had (?:an? |her |their )?(?:\w+ )?"
            r"(?:baby|boy|girl|son|daughter|twins))\b",
        ),
    },
    "health": {
        "ill": (
            rf"^{_WHO}{_IS} (?:ill|sick|injured|in (?:the )?hospital|on crutches|on sick leave|down with|the flu|"
            rf"a cold|"
            r"covid|pneumonia)\b",
        ),
        "well": (
            rf"^{_WHO}(?:{_IS})? (?:recovered|better(?= again|[.,!]|$)|healthy again|well again|discharged|"
            r"(?:out of|home from) (?:the )?hospital|over the (?:flu|cold)|off (?:the |my )?crutches)",
        ),
    },
}
_TELLINGS = {attribute: tuple(map(_pattern, patterns)) for attribute, patterns in _TELLING_PATTERNS.items()}
_STATES = {
    attribute: {state: tuple(map(_pattern, patterns)) for state, patterns in states.items()}
    for attribute, states in _STATE_PATTERNS.items()
}
_CLAUSE = r"(?:^|[,;.] (?:and |so |but )?| and )"
_ROLE_PATTERNS = (
    _pattern(
        rf"^(?:it is )?(?P<value>{_NAME})(?: (?:is|was|be|will be|became|becomes|has become|has been|took over|"
        rf"has taken over|"
        rf"made|named|appointed|steps in|stepped in|now|as))+ (?:my|our|the) (?:new )?"
        rf"(?P<role>(?:{_WORD} ){{0,2}}?(?:{_ROLES}))\b(?! of)"
    ),
    _pattern(
        rf"{_CLAUSE}(?:my|our) (?:new |current )?(?P<role>(?:{_WORD} ){{0,2}}?(?:{_ROLES})) is (?:now |called )?"
        rf"(?P<value>{_NAME})"
    ),
    _pattern(rf"^(?:i|we)(?: now)? report to (?P<value>{_NAME})"),
    _pattern(
        rf"^(?:i|we) (?:have|got|have got|found|hired) an? (?:new )?(?P<role>(?:{_WORD} )?(?:{_ROLES})),? (?:called |"
        rf"named )?"
        rf"(?P<value>{_NAME})"
    ),
    _pattern(
        rf"^(?:it is )?(?P<value>{_NAME})(?: who| that)? (?P<role>coach|train|teach|manag|supervis|clean)(?:es|s) "
        r"(?:me|us|(?:my|our) (?:team|side|club|choir|group|class|flat|house|home|office|place))\b"
    ),
    _pattern(
        rf"^(?:it is )?(?P<value>{_NAME})(?: who| that)? (?P<role>runs|heads|leads) (?:our|my|the) "
        r"(?:department|office|company|division|unit)\b"
    ),
    _pattern(
        rf"^(?:it is )?(?P<value>{_NAME})(?: who| that)? (?P<role>owns|lets) (?:our|my|the) (?:flat|apartment|house)\b"
    ),
    _pattern(rf"^(?:the|my|our) (?:flat|apartment|house) (?P<role>belongs) to (?P<value>{_NAME})"),
    _pattern(rf"\b(?:have|has|am|with) (?P<value>no|without an?) (?P<role>{_ROLES})\b"),
)
_ROLE_NAMES = {
    "runs": "boss",
    "heads": "boss",
    "leads": "boss",
    "owns": "landlord",
    "lets": "landlord",
    "belongs": "landlord",
    "clean": "cleaner",
    "manag": "boss",
    "supervis": "boss",
    "manager": "boss",
    "supervisor": "boss",
    "line manager": "boss",
    "train": "trainer",
    "teach": "teacher",
    "doctor": "gp",
    "physician": "gp",
    "landlady": "landlord",
}
_THING = r"(?P<what>car|van|bike|bicycle|motorbike|phone|smartphone|laptop|computer|tablet|camera|watch|headphones)"
_MODEL = r"(?-i:[A-Z0-9][\w-]*)(?: (?-i:[A-Z0-9][\w-]*)){0,2}"
_POSSESSION_PATTERNS = (
    _pattern(
        rf"{_CLAUSE}(?P<who>i|we|{_NAME}|my {_WORD}) (?:now )?(?P<what>drive|ride)s? (?:an? )?(?P<value>{_MODEL})"
    ),
    _pattern(
        rf"{_CLAUSE}(?P<who>my|our) (?:new |current )?{_THING} (?:is|are) (?:an? |the |from )?(?P<value>{_MODEL})"
    ),
    _pattern(
        rf"{_CLAUSE}(?P<who>i|we|{_NAME}|my {_WORD}) (?:have |has )?(?:have|has|got|bought) (?:an? )?new {_THING}, "
        rf"(?:an? )?(?P<value>{_MODEL})"
    ),
)
_SAME_THING = {"drive": "car", "ride": "bike", "bicycle": "bike", "smartphone": "phone"}
_ASKED = (
    ("age", _pattern(r"\bhow old (?:am|is|are)\b|\bwhat (?:is|am) (?:\w+ ){1,2}(?:of )?age\b")),
    (
        "employer",
        _pattern(
            r"\bwhere (?:do|does) (?:\w+ ){1,3}work\b|\bwh(?:o|om|ich company) (?:do|does) (?:\w+ ){1,3}work for\b"
        ),
    ),
    (
        "job",
        _pattern(
            r"\bwhat (?:is|am) (?:my|our|his|her|\w+ of) (?:job|job title|position|role|title|profession|occupation)\b"
        ),
    ),
    ("getting up", _pattern(r"\b(?:when|what time) (?:do|does) .{1,30}\b(?:get|wake) up\b")),
    (
        "bedtime",
        _pattern(r"\b(?:when|what time) (?:do|does) .{1,30}\b(?:go to (?:bed|sleep)|fall asleep)\b|\bbedtime\b"),
    ),
)
_ASKED_ROLE = _pattern(
    rf"\b(?:who is|what is the name of|what is) (?:the|my|our|your) (?:new )?(?P<role>(?:line )?(?:{_ROLES}))"
    r"(?: of (?:mine|ours)| called| of name)?\s*\??\s*$"
)
_SURELY_NAME = r"(?-i:(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? [A-Z][\w'-]+|[A-Z][\w'-]+ [A-Z][\w'-]+))"
_ROLE_IN_PASSING = _pattern(
    rf"\b(?P<role>{_ROLES})\b[^.;!?]{{0,40}}?(?:,| called| named| is)(?: called)? {_SURELY_NAME}|"
    rf"{_SURELY_NAME},? (?:my|our|the) (?:new )?(?P<of>{_ROLES})\b"
)
_TOLD = {
    "age": _pattern(
        r"\b\d{1,2}(?: years old|-year-old)\b|\bi am [^\W\d_]+, \d{1,2}\b|\bi am \d{1,2}(?=[,.;!]| and\b|$)"
    ),
    "employer": _pattern(
        r"\b(?:work|works|working|started|starting|start|job|employed|shift|nurse|"
        r"engineer) (?:as [^.,;]{1,30} )?(?:at|for|with|in) |"
        r"\b(?:joined|hired by|employer|employs me)\b|\bhired me\b"
    ),
}
_AMOUNT = rf"(?P<value>(?:\d[\d.,]*|{_COUNT})(?: ?[^\W\d_]+)?|doubled|tripled|halved)"
_BEGAN = r"(?:is|are|was|were|has|have|got|went|now)\b[^.;!?]{0,40}?"
_QUANTITIES = (
    _pattern(
        rf"^{_WHO} (?:has|have|had|got|comes with|runs on|now has) {_AMOUNT} (?:of )?(?P<what>ram|memory|storage)\b"
    ),
    _pattern(
        rf"^(?:the |its )?(?P<what>{_WORD}) (?:of|in|on) (?P<who>(?:the|my|"
        rf"our) (?:{_WORD} ){{0,2}}?{_WORD}) {_BEGAN}{_AMOUNT}$"
    ),
    _pattern(rf"^(?P<who>(?:the|my|our) (?:{_WORD} ){{0,2}}?{_WORD}) of (?P<what>{_WORD}) {_BEGAN}{_AMOUNT}$"),
)
