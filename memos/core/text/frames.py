"""Read a short statement as a subject, a predicate and slots, in English and, a little, German, French and Spanish.

"I live in Lyon." has the predicate "live" of the speaker and the slot "in"; what cannot be read has no frame.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from memos.core.text.caches import cached_by_text
from memos.core.text.claims import GIVEN_NAMES, KIN, words_of


class Kind(Enum):
    SPEAKER = "speaker"
    PERSON = "person"
    THING = "thing"
    BARE = "bare"
    """A name or a noun without an article, which may be the value: "Ms Duarte is my dentist"."""


def without_title_dots(text: str) -> str:
    """Return a text in which "Dr." ends no sentence."""
    return _TITLE.sub(r"\1", text)


def verb_at(text: str) -> int | None:
    """Return the place of the verb among the words of a clause, None where none is sure."""
    lows = [word.casefold() for word in text.split()]
    if not lows:
        return None
    if lows[0] in STEMS and lows[0] not in _BE | _HAVE:
        return 0
    if lows[0] in _SPEAKERS | PRONOUNS:
        return 1 if len(lows) > 1 else None
    return _verb_place(lows)


@dataclass(frozen=True, slots=True)
class Frame:
    subject: frozenset[str]
    """Content words of the subject, empty for the speaker."""
    kind: Kind
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
        return self.subject - frozenset(map(noun, self.holder))

    @property
    def words(self) -> frozenset[str]:
        return frozenset().union(*(words for _, words in self.slots))


CHARS = 300
_MOST_WORDS = 16
_MOST_CLAUSES = 3
_WORD = re.compile(r"\d+(?:[.,:/]\d+)*|[^\W\d_](?:[\w@+/.-]*\w)?")
_BREAK = re.compile(r"[.!?;,:]+\s+|\s[–—-]+\s|\n")
LEAD = re.compile(
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
PRONOUNS = words_of("he she they er sie il elle ils elles él ella ellos ellas")
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
NEGATIONS = words_of("not never nicht nie pas no nunca kein keine keinen")
_BE = words_of("am is are was were be been bin ist sind war waren suis est sommes sont soy es somos está estoy")
_HAVE = words_of("have has had got habe hat haben hatte ai avons ont tengo tiene tenemos tienen")
_AUXILIARY = words_of("can could will would shall should may might must do does did kann können puedo peux")
_PREPOSITIONS = words_of(
    "in at on to from with by about into near under over through during before after until since as every each per "
    "called named "
    "for of than at bei mit nach aus auf zu zum zur über für am im an à en chez avec dans sur pour con por para sobre"
)
COMPLEMENTS = words_of(
    "born due called named based made built married allergic friends afraid interested good bad responsible located "
    "painted fond keen mad crazy addicted into insured registered engaged subscribed scheduled booked parked stored "
    "geboren allergisch verheiratet fällig né née allergique alérgico alérgica casado casada"
)
STEMS = {
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
        "smoke smokes smoked smoking",
        "train trains training",
        "name heiße heißt appelle llamo llama",
        "collected",
        "serve serves served build builds built deploy deploys",
        "belong belongs hang hangs contain contains",
        "expire expires expired expiring",
    )
    for word in group.split()
}
VERB_FORMS = frozenset(STEMS)
"""Forms of the verbs that are read."""
_EPITHETS = words_of("new old current latest whole next updated own neue neuer neues alte nuevo nueva nouveau nouvelle")
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
def read_frame(text: str) -> Frame | None:
    """Return the frame of the first clause, None if it has none that is sure."""
    text = LEAD.sub("", spelled_out(text))
    of_now = _OF_NOW.search(_BREAK.split(text)[0]) is not None
    words = words_of_clauses(text)
    if not words[0] or max(map(len, words)) > _MOST_WORDS or len(words) > _MOST_CLAUSES:
        return None
    if len(words) > 1 and words[1] and not _A_MOVE.isdisjoint(word.casefold() for word in words[0]):
        # "The move is done, we are in Leeds now."
        frame = frame_of(words[1], frozenset(), of_now=True)
        at_home = frame is not None and frame.predicate == "be" and PLACES.keys() & dict(frame.slots).keys() - {""}
        return replace(frame, predicate="live") if frame is not None and at_home else None
    more = frozenset(noun(word.casefold()) for part in words[1:] for word in part)
    return frame_of(words[0], more, of_now=of_now)


def words_of_clauses(text: str) -> list[list[str]]:
    """Return the words of each clause of a text spelt out, without words for now."""
    return [_WORD.findall(part) for part in _BREAK.split(_NOW.sub("", text))]


@cached_by_text(maxsize=4096)
def spelled_out(text: str) -> str:
    text = text[:CHARS].replace("’", "'")
    for pattern, whole in _SHORT:
        text = pattern.sub(whole, text)
    return text


@cached_by_text(maxsize=4096)
def nouns_of(text: str) -> frozenset[str]:
    return frozenset(noun(word.casefold()) for word in _WORD.findall(spelled_out(text)))


def frame_of(words: list[str], more: frozenset[str], *, of_now: bool) -> Frame | None:
    lows = [word.casefold() for word in words]
    subject, start, kind, before = frozenset[str](), 1, Kind.SPEAKER, list[str]()
    if lows[0] in PRONOUNS:
        subject, kind = frozenset({lows[0]}), Kind.PERSON
    elif lows[0] == "me" and len(lows) > 1 and lows[1].startswith("mud"):
        pass
    elif (
        (lows[0] in STEMS and lows[0].endswith("o"))
        or lows[:2] in (["me", "encanta"], ["me", "gusta"])
        or _leaves_subject_out(lows)
    ):
        start = 0
    elif lows[0] not in _SPEAKERS:
        found = _verb_place(lows)
        if found is None:
            return None
        start, before = found, [low for low in lows[:found] if low not in _ADVERBS]
        subject = frozenset(
            noun(low) for low in before if low not in _DETERMINERS | _JOINING | _EPITHETS | _PREPOSITIONS
        )
        if not subject:
            return None
        kind = _kind_of_subject(before)
        if kind is Kind.BARE and start == 1 and lows[0].endswith("s") and STEMS.get(lows[1]) == lows[1]:
            kind = Kind.THING  # "Deploys need two approvals."
        called = words[start - 1] != lows[start - 1] and start > 1
        if kind is Kind.THING and called and lows[start - 2] in KIN_WORDS:
            kind = Kind.PERSON  # "my friend Tomasz"
    people = frozenset(low for low in lows[:start] if low in KIN_WORDS or low in GIVEN_NAMES or low in PRONOUNS)
    if start and len(words) > 1 and lows[1] == "of" and words[0][0].isupper():
        people |= {lows[0]}
    predicate, place = _predicate(lows, start)
    if predicate is None:
        return None
    capitals = frozenset(noun(low) for word, low in zip(words[1:], lows[1:], strict=True) if word != low)
    return Frame(
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


def _leaves_subject_out(lows: list[str]) -> bool:
    """Return True for notes such as "Lives in Lyon." and "Working at Bosch these days."."""
    if len(lows) < 3 or lows[0] not in STEMS or not lows[0].endswith(("s", "ing")) or lows[0] in _BE | _HAVE:
        return False
    return STEMS[lows[0]] != lows[0] and lows[1] in _PREPOSITIONS | {"a", "an"} and _BE.isdisjoint(lows)


def _head(before: list[str]) -> str:
    """Return the last noun of a subject before what is joined to it by a preposition."""
    end = next((place for place, low in enumerate(before) if low in _PREPOSITIONS), len(before))
    nouns = [low for low in before[:end] if low not in _DETERMINERS | _EPITHETS]
    return noun(nouns[-1]) if nouns else ""


_ANOTHER = words_of(
    "average typical usual median minimum maximum former previous ex other competitor competitors competitor's rival "
    "rivals rival's durchschnittliche frühere ehemalige andere ancien ancienne otro otra"
)
_FORMER = words_of("old alte alter altes vieja viejo")
KIN_WORDS = frozenset().union(*KIN.values()) | words_of("sœur frère mère père ami amie voisin voisine fils fille mari")


def _kind_of_subject(lows: list[str]) -> Kind:
    rest = [low for low in lows if low not in _DETERMINERS]
    if len(rest) == 1 and (rest[0] in KIN_WORDS or rest[0] in GIVEN_NAMES):
        return Kind.PERSON
    return Kind.THING if lows[0] in _DETERMINERS or "of" in lows[:3] else Kind.BARE


def _verb_place(lows: list[str]) -> int | None:
    """Return the place of the verb after a subject in the third person."""
    for place, low in enumerate(lows[1:], start=1):
        if lows[0] in _PREPOSITIONS or (low in _PREPOSITIONS - _JOINING and lows[0] not in _DETERMINERS):
            return None
        if low in STEMS and place == len(lows[:place]) and _kind_of_subject(lows[:place]) is Kind.PERSON:
            return place
        finite = low in _BE | _HAVE | _AUXILIARY or (low in STEMS and (low.endswith(("s", "ed", "t")) or low in _PAST))
        plural = low in STEMS and lows[place - 1].endswith("s") and place > 1
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
        if low in NEGATIONS:
            denied = "not-"
        elif low in _BE:
            return _after_be(lows, place, denied)
        elif low in _HAVE:
            ahead = lows[place + 1] if place + 1 < len(lows) else ""
            if ahead in STEMS and ahead not in _HAVE:
                return denied + STEMS[ahead], place + 2
            if ahead in _HAVE:
                return denied + "have", place + 2
            if ahead not in _BE | _ADVERBS | NEGATIONS:
                return denied + "have", place + 1
        elif low not in _AUXILIARY and low not in _ADVERBS:
            return _of_verb(lows, place, denied)
        place += 1
    return None, place


def _after_be(lows: list[str], place: int, denied: str) -> tuple[str | None, int]:
    following = next((at for at in range(place + 1, len(lows)) if lows[at] not in _ADVERBS | NEGATIONS), None)
    if following is None:
        return None, place
    word = lows[following]
    if word in COMPLEMENTS or (word in STEMS and word.endswith(("ing", "ed"))):
        return denied + STEMS.get(word, word), following + 1
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
    return denied + STEMS.get(low, low), place + 1


_A_MOVE = words_of("move umzug mudanza déménagement")
_MINE = words_of("my our mein meine unser unsere mon ma mes notre nos mi mis nuestro nuestra")
_MOVED = words_of("umgezogen gezogen déménagé")


def _slots(lows: list[str]) -> tuple[tuple[str, frozenset[str]], ...]:
    slots: list[tuple[str, set[str]]] = [("", set())]
    for low in lows:
        if low in _PREPOSITIONS - _DETERMINERS:
            slots.append((low, set()))
        elif low not in _DETERMINERS and low not in _ADVERBS and low not in _MOVED:
            slots[-1][1].add(noun(low))
    return tuple((preposition, frozenset(words)) for preposition, words in slots if words)


def noun(low: str) -> str:
    low = low.removesuffix("s") if len(low) > 3 and not low.endswith("ss") else low
    return _ALIKE.get(low, low)


PLACES = dict.fromkeys(("", "in", "to", "at", "im", "nach", "à", "en"), "in")
