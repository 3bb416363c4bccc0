"""Compare what two short statements say something of: the same attribute, another one, or one with many values.

"I live in Lyon." and "I work in Lyon." have another predicate, "My car is red." and "My bike is red." another subject;
"I speak Polish." and "I speak Finnish." hold together. A statement is read as a subject, a predicate and slots, from
word lists in English and, a little, in German, French and Spanish; what cannot be read decides nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import GIVEN_NAMES, KIN, words_of
from memos.core.text.frames_chinese import SINGLE, gives_up, is_chinese, read_chinese


class Contrast(Enum):
    """Relation between two statements."""

    OTHER = "other"
    """Another attribute, of the same or another thing: neither says anything of the other."""
    APART = "apart"
    """Another subject or predicate, and no word of the older one."""
    TOGETHER = "together"
    """Two values of an attribute that has many at a time."""
    VALUE = "value"
    """The same attribute with another number, date or name."""
    LIKELY = "likely"
    """The same predicate with something else, which is so now: another value if both are alike in meaning."""


def contrast_of(older: str, newer: str) -> Contrast | None:
    """Return how two statements are related, None if their words do not tell."""
    if is_chinese(newer):
        return _of_chinese(older, newer)
    was, now = _read(older), _read(newer)
    if was is None or now is None:
        return None
    if was.predicate == now.predicate and was.subject == now.subject:
        return _of_slots(was, now)
    found = (_of_subjects if was.predicate == now.predicate else _of_predicates)(was, now)
    if found is not None or was.predicate.startswith("not-"):  # "I have never flown." … "I flew to Oslo."
        return found
    return Contrast.APART if _nouns(newer).isdisjoint((was.subject | was.words) - _UNITS) else None


def _has_another_head(was: _Frame, now: _Frame) -> bool:
    """Return True for "The launch is …" and "The launch party is …"; a deadline of the launch is the launch's own."""
    longer = was if len(was.subject) > len(now.subject) else now
    shorter = now if longer is was else was
    inside = shorter.head in longer.subject and longer.head not in shorter.subject
    return inside and longer.head not in _GENERIC and bool(shorter.head)


def _of_chinese(older: str, newer: str) -> Contrast | None:
    if gives_up(older, newer):
        return Contrast.VALUE
    was, now = read_chinese(older), read_chinese(newer)
    if was is None or now is None or was.subject != now.subject:
        return None
    if was.predicate != now.predicate:
        return Contrast.OTHER if {was.predicate, now.predicate} <= SINGLE else None
    if was.value == now.value:
        return None
    if was.predicate in SINGLE:
        return Contrast.VALUE
    return Contrast.LIKELY if now.of_now else None


class _Kind(Enum):
    SPEAKER = "speaker"
    PERSON = "person"
    THING = "thing"
    BARE = "bare"
    """A name or a noun without an article, which may be the value: "Ms Duarte is my dentist"."""


def names_place_again(older: str, newer: str) -> bool:
    """Return True if `newer` gives another attribute of the same person the place that `older` gives one.

    "I live in Bergen." … "I changed jobs, I work for Equinor in Bergen now.": whatever has changed, the first holds.
    """
    was = _read(older)
    if was is None or was.predicate not in _TELLING or was.kind is _Kind.THING:
        return False
    frames = [
        frame
        for words in _clauses(_LEAD.sub("", _spelt_out(newer)))
        if words and (frame := _frame(words, frozenset(), of_now=False)) is not None
    ]
    mine = [frame for frame in frames if (frame.kind, frame.subject) == (was.kind, was.subject)]
    if any(frame.predicate == was.predicate for frame in mine):
        return False
    places = _places(was)
    return any(frame.predicate in _TELLING | {"be"} and not places.isdisjoint(_places(frame)) for frame in mine)


def tells_the_same(older: str, newer: str) -> bool:
    """Return True if the first clauses of two statements have one predicate."""
    was, now = _read(older), _read(newer)
    return was is not None and now is not None and was.predicate == now.predicate


def without_title_dots(text: str) -> str:
    """Return a text in which "Dr." ends no sentence."""
    return _TITLE.sub(r"\1", text)


def verb_at(text: str) -> int | None:
    """Return the place of the verb among the words of a clause, None where none is sure."""
    lows = [word.casefold() for word in text.split()]
    if not lows:
        return None
    if lows[0] in _STEMS and lows[0] not in _BE | _HAVE:
        return 0
    if lows[0] in _SPEAKERS | _OTHERS:
        return 1 if len(lows) > 1 else None
    return _verb_place(lows)


def is_about_another_thing(older: str, newer: str) -> bool:
    """Return True for things of like names: "Room 3" and "Room 4", "the launch" and "the launch party".

    And for the one that is meant and an average, a former or a competitor's.
    """
    number, other = _numbered(older), _numbered(newer)
    if number is not None and other is not None and number[0] == other[0]:
        return number[1] != other[1]
    was, now = _read(older), _read(newer)
    if was is None or now is None:
        return False
    if now.another - was.another and was.kind is not _Kind.PERSON:
        return True
    denied = now.predicate == f"not-{was.predicate}" or (
        now.predicate == was.predicate and not _NOT.isdisjoint(now.words)
    )
    if denied and was.kind is now.kind is _Kind.THING:
        return was.subject.isdisjoint(now.subject) and not (was.subject | now.subject) & _GENERIC
    return was.kind is now.kind is _Kind.THING and _has_another_head(was, now)


def tells_of_new_part(older: str, newer: str) -> bool:
    """Return True if `newer` says that a thing has something new, of which the speaker's `older` says nothing.

    "I keep hives behind the chapel." … "The chapel gets a new roof.": the hives are where they were.
    """
    was, found = _read(older), _NEW_PART.match(_spelt_out(newer))
    if was is None or found is None or was.kind is not _Kind.SPEAKER:
        return False
    return _noun(found["part"].casefold()) not in _nouns(older)


_NEW_PART = re.compile(
    r"\s*(?:the|die|der|das)\s+[^\W\d_]+(?:\s+[^\W\d_]+)?\s+(?:has|have|got|gets|gained|needs|hat|bekommt|bekam|braucht)\s+"
    r"(?:an?\s+|eine?n?\s+)?(?:new|neue[ns]?)\s+(?P<part>[^\W\d_]+)",
    re.IGNORECASE,
)


def tells_of_something_new(older: str, newer: str) -> bool:
    """Return True if what `newer` calls new is nothing that `older` tells of: "I like tea.", "… on my new shirt."."""
    if _NEW_THING.match(newer.lstrip()):
        return False  # "New number: 123."
    named = [_noun(word.casefold()) for pair in _NEW_THING.findall(newer[:_CHARS]) for word in pair if word]
    return bool(named) and _nouns(older).isdisjoint(named) and not _KIN & set(named) and "job" not in named


_NEW_THING = re.compile(
    r"\b(?:new|neue[rsnm]?|nuev[oa]s?|nouveau|nouvelle)\s+([^\W\d_]+)(?:\s+([^\W\d_]+))?", re.IGNORECASE
)


# A number that a thing is called by stands before a colon or a verb; "Rent 500 from May" and "In 2025 I …" have none.
_NUMBERED = re.compile(
    r"\s*(?:(?:the|my|our|his|her|their|this|das|die|der|le|la|el|il|mein|meine|notre|mi)\s+)?"
    r"(?P<name>[^\W\d_]+(?:[ -][^\W\d_]+){0,2}?)\s+(?:no\.?\s*|nr\.?\s*|number\s+|nummer\s+)?"
    r"#?(?P<number>[a-z]{0,3}\d[\w.\-]*)"
    r"(?:\s*:|(?:\s+of\s+(?:the\s+)?\w+)?\s+(?:is|isn't|was|wasn't|are|were|has|had|hasn't|will|won't|can|can't|cannot|needs|"
    r"must|should|runs|uses|leaves|passed|failed|fails|passes|works|broke|opens|closes|starts|begins|ends|belongs|"
    r"goes|went|got|gets|costs|serves|hosts|contains|takes|took|stays|ist|war|hat|hatte|wird|muss|kann|est|était|"
    r"sera|está|es|era|tiene|è|ha|sarà|é|tem)\b)",
    re.IGNORECASE,
)
_NO_THING = words_of(
    "i we you he she it they in on at from by since until after before about around only over under for with to as and "
    "is are was were be paid bought sold got "
    "am um seit ab bis vor nach im à en dans depuis avant après desde hasta da dal dopo prima ich wir je nous yo io eu"
)


def _numbered(text: str) -> tuple[str, str] | None:
    """Return the name and the number of the thing that a statement begins with, None without."""
    found = _NUMBERED.match(_spelt_out(text))
    if found is None or not _NO_THING.isdisjoint(found["name"].casefold().split()):
        return None
    return found["name"].casefold(), found["number"].casefold().rstrip(".-")


def happened_once(text: str) -> bool:
    """Return True for what somebody did at one time, such as "Yesterday I woke up at 9."."""
    return _ONCE.match(text[:_CHARS]) is not None


# Not "was" and "were": "Yesterday my weight was 78 kilos" is the newest of a series.
_DID = (
    r"(?:i|we|he|she|they) (?:[a-z]+ed|went|took|had|woke|ate|drank|slept|ran|drove|rode|wore|paid|met|saw|made|came|"
    r"sat|sang|spoke|read|flew|swam|cooked|fell|forgot|did)\b"
)
_ONCE = re.compile(
    r"(?:just )?(?:yesterday|today|tonight|last night|this (?:morning|afternoon|evening)|the other day),? "
    rf"{_DID}|{_DID}[^.!?]{{0,80}} (?:yesterday|today|last night|this morning)\b",
    re.IGNORECASE,
)


def asks_for_something(text: str) -> bool:
    """Return True for a request that tells of nothing, such as "Send the parcel to my office."."""
    return _REQUEST.match(text) is not None


_REQUEST = re.compile(
    r"\s*(?:please |can you |could you |bitte )?(?:send|bring|buy|book|order|pick up|remind|ship|deliver|email|forward|"
    r"tell|ask|give|mail|print|fetch|collect|schedule|invite|schick|kauf|buch|bestell|erinner)\b",
    re.IGNORECASE,
)


def mentions(older: str, newer: str) -> bool | None:
    """Return True if `newer` mentions the thing that `older` is about, None if `older` is about no thing."""
    frame = _read(older)
    if frame is None:
        return None
    if frame.kind is _Kind.THING:
        topic = frame.thing
    elif frame.predicate == "have":
        topic = dict(frame.slots).get("", frozenset()) - frame.capitals
    else:
        return None
    topic = frozenset(word for word in topic if word.isalpha())
    there = _nouns(newer)
    if not topic or frame.more & there or (topic & there and topic - there):
        return None
    return topic <= there


@dataclass(frozen=True, slots=True)
class _Frame:
    subject: frozenset[str]
    """Content words of the subject, empty for the speaker."""
    kind: _Kind
    predicate: str
    slots: tuple[tuple[str, frozenset[str]], ...]
    """Prepositions, "" for the object, and the words after them."""
    capitals: frozenset[str]
    more: frozenset[str]
    """Words of further clauses."""
    holder: frozenset[str]
    """The person of the subject, empty for the speaker."""
    possessive: str
    of_now: bool
    """Whether the first clause says "now", "these days" or the like."""
    head: str = ""
    """The noun of the subject: "party" of "the launch party of our team"."""
    another: frozenset[str] = frozenset()
    """Words of the subject that tell it from the one that is meant without them: "average", "former", "competitor"."""

    @property
    def thing(self) -> frozenset[str]:
        """The subject without the person that has it."""
        return self.subject - frozenset(map(_noun, self.holder))

    @property
    def words(self) -> frozenset[str]:
        return frozenset().union(*(words for _, words in self.slots))


_CHARS = 300
_MOST_WORDS = 16
_MOST_CLAUSES = 3
_WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W\d_](?:[\w@+/.-]*\w)?")
_BREAK = re.compile(r"[.!?;,:]+\s+|\s[–—-]+\s|\n")
_LEAD = re.compile(
    r"^(?:by the way|btw|as (?:you know|i said|mentioned)|for (?:your notes|the record)|fyi|just so you know|"
    r"remember|note|oh|well|ok|so|übrigens|wie gesagt|au fait|por cierto)\s*[,:]\s*",
    re.I,
)
_NOW = re.compile(
    r"\b(?:(?:these days|nowadays|from now on|from \w+ on|as of \w+|at the moment|right now|inzwischen|mittlerweile|"
    r"ab sofort|ahora|maintenant|désormais)\b,? ?)",
    re.I,
)
_OF_NOW = re.compile(
    r"\b(?:now|these days|nowadays|from now on|instead|as of \w+|jetzt|inzwischen|mittlerweile|ab sofort|ahora|"
    r"maintenant|désormais)\b",
    re.I,
)
_TITLE = re.compile(r"\b(dr|mr|mrs|ms|prof|st|hr|fr|sr|sra|mme|mlle)\.(?=\s)", re.I)
_SHORT = (
    (_TITLE, r"\1"),
    (re.compile(r"\b(i)'m\b", re.I), r"\1 am"),
    (re.compile(r"\b(we|you|they)'re\b", re.I), r"\1 are"),
    (re.compile(r"\b(he|she|it|that|there|here|who|what)'s\b", re.I), r"\1 is"),
    (re.compile(r"'ve\b", re.I), " have"),
    (re.compile(r"'ll\b", re.I), " will"),
    (re.compile(r"'d\b", re.I), " would"),
    (re.compile(r"\bcan't\b|\bcannot\b", re.I), "can not"),
    (re.compile(r"n't\b", re.I), " not"),
    (re.compile(r"\bno longer\b", re.I), "not"),
    (re.compile(r"'s\b|(?<=s)'(?!\w)"), " of"),
    (re.compile(r"\b([jmtlsdn]|qu)'(?=\w)", re.I), r"\1e "),
)
_SPEAKERS = words_of("i we ich wir je nous yo nosotros nosotras")
_OTHERS = words_of("he she they er sie il elle ils elles él ella ellos ellas")
_DETERMINERS = words_of(
    "the a an my our this that these those his her their its some "
    "der die das den dem des ein eine einen einem einer mein meine meinen meinem meiner unser unsere unseren sein "
    "seine "
    "ihr ihre le la les un une des mon ma mes notre nos sa ses leur du "
    "el los las una unos unas mi mis nuestro nuestra nuestros nuestras su sus"
)
_JOINING = words_of("of for von für de del and und et y")
_ADVERBS = words_of(
    "also still really usually always often mostly mainly currently normally actually just only both already now then "
    "absolutely quite very so sometimes regularly even generally probably "
    "auch noch immer meistens gerade sehr gern gerne oft jetzt aussi toujours encore souvent también todavía siempre me"
)
_NOT = words_of("not never nicht nie pas no nunca kein keine keinen")
_BE = words_of("am is are was were be been bin ist sind war waren suis est sommes sont soy es somos está estoy")
_HAVE = words_of("have has had got habe hat haben hatte ai avons ont tengo tiene tenemos tienen")
_AUXILIARY = words_of("can could will would shall should may might must do does did kann können puedo peux")
_PREPOSITIONS = words_of(
    "in at on to from with by about into near under over through during before after until since as every each per "
    "called named "
    "for of than at bei mit nach aus auf zu zum zur über für am im an à en chez avec dans sur pour con por para sobre"
)
_COMPLEMENTS = words_of(
    "born due called named based made built married allergic friends afraid interested good bad responsible located "
    "painted fond keen mad crazy addicted into insured registered engaged subscribed scheduled booked parked stored "
    "geboren allergisch verheiratet fällig né née allergique alérgico alérgica casado casada"
)
_STEMS = {
    word: group.split()[0]
    for group in (
        "live lives lived living reside resides stay stays moved move moving settled umgezogen gezogen zog mudé mudó "
        "déménagé wohne wohnt wohnen lebe lebt leben "
        "habite habites vis vivo vive vivimos",
        "work works worked working employed start started starting join joined arbeite arbeitet arbeiten travaille "
        "trabajo trabaja trabajamos",
        "love loves loved loving like likes liked enjoy enjoys adore adores prefer prefers liebe liebt mag aime adore "
        "encanta gusta",
        "hate hates hated dislike dislikes stand detest detests hasse hasst déteste odio",
        "speak speaks spoke speaking spreche spricht parle hablo habla",
        "learn learns learning learnt learned lerne lernt apprends aprendo",
        "study studies studied studying studiere studiert étudie estudio estudia",
        "teach teaches taught teaching unterrichte unterrichtet enseigne enseño enseña",
        "play plays played playing spiele spielt joue juego juega toco toca",
        "own owns owned owning possess besitze besitzt possède poseo",
        "have has got had having",
        "know knows knew kenne kennt connais conozco",
        "collect collects collected collecting sammle sammelt collectionne colecciono",
        "take takes took taking nehme nimmt prends tomo",
        "grow grows grew growing",
        "sell sells selling verkaufe verkauft vends vendo",
        "repair repairs repairing fix fixes",
        "cook cooks cooked cooking bake bakes baked koche kocht backe cuisine cocino",
        "eat eats ate eating esse isst mange como",
        "drink drinks drank drinking trinke trinkt bois bebo",
        "drive drives drove driving fahre fährt conduis conduzco",
        "ride rides rode riding",
        "use uses used using benutze benutzt utilise uso",
        "read reads reading lese liest lis",
        "watch watches watched watching",
        "write writes wrote writing schreibe schreibt écris escribo",
        "wear wears wore wearing trage trägt porte llevo",
        "cost costs costing kostet coûte cuesta",
        "pay pays paying zahle zahlt paie pago",
        "spend spends spending",
        "earn earns earning verdiene verdient gagne gano",
        "weigh weighs weighing wiege wiegt pèse peso",
        "listen listens listening",
        "run runs ran running laufe läuft cours corro",
        "leave leaves leaving",
        "open opens opened close closes closed",
        "begin begins starts starting beginnt commence empieza",
        "ring rings rang",
        "go goes going gehe geht vais voy",
        "went ging fui",
        "visit visits visited visiting",
        "fly flies flew flown flying",
        "meet meets met meeting treffe",
        "see sees saw seeing",
        "share shares shared sharing",
        "support supports follow follows",
        "sleep sleeps slept sleeping",
        "need needs needed want wants wanted",
        "come comes came coming",
        "sit sits sat sitting",
        "keep keeps kept keeping",
        "bank banks",
        "volunteer volunteers volunteered",
        "sing sings sang singing",
        "call calls calling",
        "swim swims swimming swam",
        "train trains training",
        "name heiße heißt appelle llamo llama",
        "collected",
        "serve serves served build builds built deploy deploys",
        "belong belongs hang hangs contain contains",
    )
    for word in group.split()
}
_MANY = words_of(
    "love hate speak learn teach play own have know collect take grow sell repair cook eat drink go went visit meet "
    "see "
    "support need sing swim not-love allergic friends afraid interested good bad fond keen mad crazy into allergisch "
    "allergique "
    "alérgico alérgica photograph wear subscribed"
)
"""Predicates of people with several values at a time; another number alone is a change."""

_ONE = words_of("live work weigh cost earn pay spend bank")
_ONE_OF_THINGS = _ONE | words_of("be due called named listen start begin open ring leave run located scheduled")
"""Predicates with one value at a time."""

_USUALLY_ONE = words_of("drive")
"""Predicates of people with mostly one value at a time."""

VERB_FORMS = frozenset(_STEMS)
"""Forms of the verbs that are read."""

_TELLING = (frozenset(_STEMS.values()) | _COMPLEMENTS - words_of("due called named") | {"hate"}) - words_of(
    "have take go use need want keep come leave sit run call get start begin see name"
)
"""Predicates of which two different ones say different things."""

_UNITS = words_of("euro dollar pound month week day year hour minute km mile kg percent")
_EPITHETS = words_of("new old current latest whole next updated own neue neuer neues alte nuevo nueva nouveau nouvelle")
_GENERIC = words_of("deadline date time day price cost value number name statu title size level one")
"""Words of a subject by which it is no other thing: "The report is due …", "The deadline is …"."""

_ALIKE = {
    word: group.split()[0]
    for group in (
        "flat apartment place home house wohnung",
        "job position role employer title post",
        "salary pay wage income",
        "phone mobile cell smartphone handy",
        "meeting call appointment session sync standup",
        "doctor gp physician",
        "car vehicle auto",
        "bike bicycle",
        "project work",
        "partner girlfriend boyfriend wife husband fiancée fiancé",
        "password passcode pin code",
        "team group squad",
        "manager boss lead supervisor chef",
        "landlord landlady",
    )
    for word in group.split()
}


@cached_by_text(maxsize=4096)
def _read(text: str) -> _Frame | None:
    """Return the frame of the first clause, None if it has none that is sure."""
    text = _LEAD.sub("", _spelt_out(text))
    of_now = _OF_NOW.search(_BREAK.split(text)[0]) is not None
    words = _clauses(text)
    if not words[0] or max(map(len, words)) > _MOST_WORDS or len(words) > _MOST_CLAUSES:
        return None
    if len(words) > 1 and words[1] and not _A_MOVE.isdisjoint(word.casefold() for word in words[0]):
        # "The move is done, we are in Leeds now."
        frame = _frame(words[1], frozenset(), of_now=True)
        at_home = frame is not None and frame.predicate == "be" and _PLACES.keys() & dict(frame.slots).keys() - {""}
        return replace(frame, predicate="live") if frame is not None and at_home else None
    more = frozenset(_noun(word.casefold()) for part in words[1:] for word in part)
    return _frame(words[0], more, of_now=of_now)


def _clauses(text: str) -> list[list[str]]:
    """Return the words of each clause of a text spelt out, without words for now."""
    return [_WORD.findall(part) for part in _BREAK.split(_NOW.sub("", text))]


def _spelt_out(text: str) -> str:
    text = text[:_CHARS].replace("’", "'")
    for pattern, whole in _SHORT:
        text = pattern.sub(whole, text)
    return text


@cached_by_text(maxsize=4096)
def _nouns(text: str) -> frozenset[str]:
    return frozenset(_noun(word.casefold()) for word in _WORD.findall(_spelt_out(text)))


def _frame(words: list[str], more: frozenset[str], *, of_now: bool) -> _Frame | None:
    lows = [word.casefold() for word in words]
    subject, start, kind, before = frozenset[str](), 1, _Kind.SPEAKER, list[str]()
    if lows[0] in _OTHERS:
        subject, kind = frozenset({lows[0]}), _Kind.PERSON
    elif lows[0] == "me" and len(lows) > 1 and lows[1].startswith("mud"):
        pass
    elif (lows[0] in _STEMS and lows[0].endswith("o")) or lows[:2] in (["me", "encanta"], ["me", "gusta"]):
        start = 0
    elif lows[0] not in _SPEAKERS:
        found = _verb_place(lows)
        if found is None:
            return None
        start, before = found, [low for low in lows[:found] if low not in _ADVERBS]
        subject = frozenset(
            _noun(low) for low in before if low not in _DETERMINERS | _JOINING | _EPITHETS | _PREPOSITIONS
        )
        if not subject:
            return None
        kind = _kind_of_subject(before)
        if kind is _Kind.BARE and start == 1 and lows[0].endswith("s") and _STEMS.get(lows[1]) == lows[1]:
            kind = _Kind.THING  # "Deploys need two approvals."
        called = words[start - 1] != lows[start - 1] and start > 1
        if kind is _Kind.THING and called and lows[start - 2] in _KIN:
            kind = _Kind.PERSON  # "my friend Tomasz"
    people = frozenset(low for low in lows[:start] if low in _KIN or low in GIVEN_NAMES or low in _OTHERS)
    if start and len(words) > 1 and lows[1] == "of" and words[0][0].isupper():
        people |= {lows[0]}
    predicate, place = _predicate(lows, start)
    if predicate is None:
        return None
    capitals = frozenset(_noun(low) for word, low in zip(words[1:], lows[1:], strict=True) if word != low)
    return _Frame(
        subject,
        kind,
        predicate,
        _slots(lows[place:]),
        capitals,
        more,
        people,
        lows[0] if lows[0] in _MINE or people else "",
        of_now,
        _head(before),
        frozenset(before) & (_ANOTHER | _FORMER if lows[start] in ("was", "were", "had", "war") else _ANOTHER),
    )


def _head(before: list[str]) -> str:
    """Return the last noun of a subject before what is joined to it by a preposition."""
    end = next((place for place, low in enumerate(before) if low in _PREPOSITIONS), len(before))
    nouns = [low for low in before[:end] if low not in _DETERMINERS | _EPITHETS]
    return _noun(nouns[-1]) if nouns else ""


_ANOTHER = words_of(
    "average typical usual median minimum maximum former previous ex other competitor competitors competitor's rival "
    "rivals rival's durchschnittliche frühere ehemalige andere ancien ancienne otro otra"
)
_FORMER = words_of("old alte alter altes vieja viejo")


_KIN = frozenset().union(*KIN.values()) | words_of("sœur frère mère père ami amie voisin voisine fils fille mari")


def _kind_of_subject(lows: list[str]) -> _Kind:
    rest = [low for low in lows if low not in _DETERMINERS]
    if len(rest) == 1 and (rest[0] in _KIN or rest[0] in GIVEN_NAMES):
        return _Kind.PERSON
    return _Kind.THING if lows[0] in _DETERMINERS or "of" in lows[:3] else _Kind.BARE


def _verb_place(lows: list[str]) -> int | None:
    """Return the place of the verb after a subject in the third person."""
    for place, low in enumerate(lows[1:], start=1):
        if lows[0] in _PREPOSITIONS or (low in _PREPOSITIONS - _JOINING and lows[0] not in _DETERMINERS):
            return None
        if low in _STEMS and place == len(lows[:place]) and _kind_of_subject(lows[:place]) is _Kind.PERSON:
            return place
        finite = low in _BE | _HAVE | _AUXILIARY or (low in _STEMS and (low.endswith(("s", "ed", "t")) or low in _PAST))
        plural = low in _STEMS and lows[place - 1].endswith("s") and place > 1
        if (finite or plural) and low not in _DETERMINERS:
            return place
    return None


_PAST = words_of("went met saw ate drank took wrote wore taught knew kept ran rang came sat sang spoke drove rode vive")


def _predicate(lows: list[str], place: int) -> tuple[str | None, int]:
    """Return the predicate and where what is after it begins."""
    if place < len(lows) and lows[place] in _BE | _HAVE and not _MOVED.isdisjoint(lows):
        return "live", place + 1
    denied = ""
    while place < len(lows):
        low = lows[place]
        if low in _NOT:
            denied = "not-"
        elif low in _BE:
            return _after_be(lows, place, denied)
        elif low in _HAVE:
            ahead = lows[place + 1] if place + 1 < len(lows) else ""
            if ahead in _STEMS and ahead not in _HAVE:
                return denied + _STEMS[ahead], place + 2
            if ahead in _HAVE:
                return denied + "have", place + 2
            if ahead not in _BE | _ADVERBS | _NOT:
                return denied + "have", place + 1
        elif low not in _AUXILIARY and low not in _ADVERBS:
            return _of_verb(lows, place, denied)
        place += 1
    return None, place


def _after_be(lows: list[str], place: int, denied: str) -> tuple[str | None, int]:
    following = next((at for at in range(place + 1, len(lows)) if lows[at] not in _ADVERBS | _NOT), None)
    if following is None:
        return None, place
    word = lows[following]
    if word in _COMPLEMENTS or (word in _STEMS and word.endswith(("ing", "ed"))):
        return denied + _STEMS.get(word, word), following + 1
    after = lows[following + 1] if following + 1 < len(lows) else ""
    if word.isalpha() and after in ("to", "of", "with", "about") and word not in _DETERMINERS | _PREPOSITIONS:
        return denied + word, following + 1
    return denied + "be", place + 1


def _of_verb(lows: list[str], place: int, denied: str) -> tuple[str | None, int]:
    low, ahead = lows[place], lows[place + 1] if place + 1 < len(lows) else ""
    if low in _DETERMINERS or low in _PREPOSITIONS or not low.isalpha():
        return None, place
    if low in ("moved", "move", "moves") and ahead and ahead not in _PREPOSITIONS:
        return denied + "moved", place + 1  # "I moved my account."
    if denied and low == "stand":
        return "hate", place + 1
    return denied + _STEMS.get(low, low), place + 1


_A_MOVE = words_of("move umzug mudanza déménagement")
_MINE = words_of("my our mein meine unser unsere mon ma mes notre nos mi mis nuestro nuestra")
_MOVED = words_of("umgezogen gezogen déménagé")


def _slots(lows: list[str]) -> tuple[tuple[str, frozenset[str]], ...]:
    slots: list[tuple[str, set[str]]] = [("", set())]
    for low in lows:
        if low in _PREPOSITIONS - _DETERMINERS:
            slots.append((low, set()))
        elif low not in _DETERMINERS and low not in _ADVERBS and low not in _MOVED:
            slots[-1][1].add(_noun(low))
    return tuple((preposition, frozenset(words)) for preposition, words in slots if words)


def _noun(low: str) -> str:
    low = low.removesuffix("s") if len(low) > 3 and not low.endswith("ss") else low
    return _ALIKE.get(low, low)


def _of_predicates(was: _Frame, now: _Frame) -> Contrast | None:
    """Return how statements with different predicates are related."""
    if was.predicate.removeprefix("not-") == now.predicate.removeprefix("not-") or was.more & now.words:
        return None
    values = {words for _, words in was.slots}
    again = {slot for slot, words in now.slots if words in values}
    if "from" in again:
        return None  # "I moved from Cork to Tallinn."
    if again and _Kind.BARE not in (was.kind, now.kind):
        return Contrast.OTHER
    if was.kind is now.kind is _Kind.THING and was.possessive == now.possessive and was.holder == now.holder:
        extra, more = was.subject - now.subject, now.subject - was.subject
        apart = extra and more and not (extra & (now.words | now.more) or more & (was.words | was.more))
        return Contrast.OTHER if apart and was.possessive else None
    if was.kind is _Kind.SPEAKER and now.kind is _Kind.THING and _tells_more_of(was, now):
        return Contrast.OTHER
    of_people = {was.kind, now.kind} <= {_Kind.SPEAKER, _Kind.PERSON}
    if of_people and "live" in (was.predicate, now.predicate) and (_is_role(was) or _is_role(now)):
        return Contrast.OTHER  # "I'm a midwife." … "I moved to Leeds."
    return Contrast.OTHER if of_people and {was.predicate, now.predicate} <= _TELLING else None


def _is_role(frame: _Frame) -> bool:
    """Return True for "I'm a midwife at the hospital.", not for "I'm in Leeds."."""
    return frame.predicate == "be" and bool(dict(frame.slots).get(""))


def _tells_more_of(was: _Frame, now: _Frame) -> bool:
    """Return True for "I keep hives." … "The hives need sugar.", unless both have a place, a name or a number."""
    about = dict(was.slots).get("", frozenset())
    if now.predicate not in _OF_THINGS or now.of_now or not now.thing or not now.thing <= about:
        return False
    if any(slot for slot, _ in was.slots) and any(slot for slot, _ in now.slots):
        return False
    kinds = [{_kind(words, each) for _, words in each.slots} - {None} for each in (was, now)]
    return "name" not in kinds[1] and not kinds[0] & kinds[1]


_OF_THINGS = frozenset({"have", "need", "love"})


def _of_subjects(was: _Frame, now: _Frame) -> Contrast | None:
    """Return how statements about different things with one predicate are related."""
    if _Kind.BARE in (was.kind, now.kind) and "" in {slot for slot, _ in was.slots + now.slots}:
        return None  # "Acme is on the Pro plan." tells of Acme, "Ms Duarte is my dentist." of my dentist.
    if was.predicate == "be" and was.slots == now.slots and {was.kind, now.kind} == {_Kind.PERSON}:
        return None  # "Tom is my boss."
    extra, more = was.subject - now.subject - _GENERIC, now.subject - was.subject - _GENERIC
    if was.holder != now.holder and was.thing == now.thing:
        return Contrast.OTHER
    if not (extra and more) or extra & (now.words | now.more) or more & (was.words | was.more):
        return None
    return Contrast.OTHER


def _of_slots(was: _Frame, now: _Frame) -> Contrast | None:
    """Return how statements of one subject and predicate are related."""
    if (moved := _has_moved(was, now)) is not None:
        return Contrast.VALUE if moved else None
    parts, others = ({slot for slot, _ in each.slots} for each in (was, now))
    apart = "" not in parts | others and not parts & others
    if apart and was.predicate in ("live", "work") and {"as", "with"} & (parts | others):
        return Contrast.OTHER  # "I work as a nurse." … "I work in Lyon."
    if was.slots == now.slots or not _NOT.isdisjoint(now.words | now.more):
        return None
    one, other = dict(was.slots), dict(now.slots)
    if was.predicate == "live" and len(one) == len(other) == 1:
        one, other = ({_PLACES.get(slot, slot): words for slot, words in each.items()} for each in (one, other))
    shared = one.keys() & other.keys()
    differ = {slot for slot in shared if one[slot] != other[slot]}
    kinds = {slot: (_kind(one[slot], was), _kind(other[slot], now)) for slot in differ}
    valued = {slot for slot, (kind, theirs) in kinds.items() if kind == theirs is not None}
    if any(one[slot] < other[slot] for slot in differ):
        return None  # "My name is Anna." … "My name is Anna Berg."
    alike = one.keys() == other.keys() and valued == differ
    counted = alike and all(kinds[slot][0] == "number" and _unit(one[slot]) == _unit(other[slot]) for slot in differ)
    if was.predicate in _MANY:
        if counted:
            return Contrast.VALUE
        return None if was.predicate == "go" and "to" in shared else Contrast.TOGETHER
    if counted and was.predicate == "be":
        return Contrast.VALUE
    if alike and was.predicate in (_ONE_OF_THINGS if was.kind is _Kind.THING else _ONE):
        return Contrast.VALUE
    if differ == {""} and one.keys() == other.keys() and was.subject & _FAVOURITE:
        return Contrast.VALUE
    if len(differ) == 1 and one.keys() == other.keys() and (now.of_now or was.predicate in _USUALLY_ONE):
        return Contrast.LIKELY
    if differ - valued and (valued or any(_kind(one[slot], was) for slot in shared - differ)):
        # "I spend 45 euros on food." … "… on books.": what is the same is the value.
        return Contrast.OTHER
    return None


def _has_moved(was: _Frame, now: _Frame) -> bool | None:
    """Return whether a home or an employer is another one; None where a statement names none."""
    if was.predicate == "work" and _employs(was) and _employs(now):
        return _employs(was) != _employs(now)
    if was.predicate != "live":
        return None
    places = [
        next((words for slot, words in each.slots if slot and _PLACES.get(slot, slot) == "in"), None)
        for each in (was, now)
    ]
    if places[0] is None or places[1] is None or [_kind(places[0], was), _kind(places[1], now)] != ["name", "name"]:
        return None
    return not (places[0] <= places[1] or places[1] <= places[0])


def _employs(frame: _Frame) -> frozenset[str]:
    """Return the name of an employer, empty for "at the Oslo office"."""
    for slot, words in frame.slots:
        name = words & frame.capitals
        if slot in _EMPLOYED and name and words - name <= _LATELY:
            return name
    return frozenset()


_EMPLOYED = words_of("at for with bei chez")
_LATELY = words_of("last thi next week month year monday today yesterday now new since")
_NUMBERS = words_of(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty first second third fourth fifth "
    "sixth "
    "zwei drei vier fünf sechs dos tres cuatro cinco deux trois quatre cinq"
)


def _is_number(word: str) -> bool:
    return word in _NUMBERS or any(sign.isdigit() for sign in word)


def _unit(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if not _is_number(word))


_FAVOURITE = words_of("favourite favorite lieblingsfarbe lieblingsessen préféré préférée favorito favorita")
_PLACES = dict.fromkeys(("", "in", "to", "at", "im", "nach", "à", "en"), "in")


def _places(frame: _Frame) -> frozenset[frozenset[str]]:
    """Return the words of each slot that tells where."""
    return frozenset(words for slot, words in frame.slots if slot and _PLACES.get(slot, slot) == "in")


def _kind(words: frozenset[str], frame: _Frame) -> str | None:
    """Return what the words of a slot are: "number" (or a date), "name", or None."""
    if any(sign.isdigit() for word in words for sign in word):
        return "number"
    if words & frame.capitals or any(sign in word for word in words for sign in "@./"):
        return "name"
    return "number" if words & _NUMBERS else None
