"""Read a correction in plain words: what it does to which statement, and the edited statement.

English, German, Spanish and Chinese. An edit changes one detail of the statement and keeps all others: the old value
that the correction names, or the only value of the same kind at the same place of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from memos.core.text.claims import Claim, Owner, is_about_another, read_claim, terms_of, words_of
from memos.core.text.contrasts import gives_another_value, opens_with_pronoun
from memos.core.text.frames import verb_at

_HAN = re.compile(r"[\u3400-\u9fff]")


class Aim(StrEnum):
    """The aim of a correction: forget or end a statement, change it, or add one."""

    FORGET = "forget"
    END = "end"
    CHANGE = "change"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class Correction:
    """A parsed correction: its aim, its text without courtesies, and pairs of an old and a new value."""

    aim: Aim
    text: str
    pairs: tuple[tuple[str, str], ...]
    claim: Claim


_LEAD = re.compile(
    r"^\W*(?:(?:no|nope|nah|wrong|actually|sorry|typo|correction|please|pls|hey|hm+|well|oh|ok(?:ay)?|"
    r"just so you know|fyi|tbh|"
    r"quick|small|one|fix|please fix|please correct|correct that|"
    r"that(?:['’]s| is| was)? (?:all )?(?:wrong|not right|incorrect|not true)|you(?:['’]ve| have)? (?:got|have|"
    r"mixed) (?:that|it|this|them) (?:all )?(?:wrong|up)|"
    r"you have that wrong|you(?:['’]ve| have)? got (?:the )?[\w ]{1,30} wrong|i (?:meant|mean)|"
    r"nein|falsch|stimmt nicht|das stimmt nicht|korrektur|bitte|doch|eigentlich|quatsch|sorry|"
    r"perdón|corrijo|en realidad|mentira|está mal|eso está mal|te equivocas|por favor|"
    r"不对|不是|错了|搞错了|记错了|更正一下|更正|纠正一下|其实|说错了|你记错了|打错了|应该)"
    r"(?:[\s,.:;!?–—-]+|(?=[\u3400-\u9fff])|[，。：！；]\s*))+",
    re.I,
)
_TAIL = re.compile(
    r"[\s,.;!–—-]*(?:please|pls|thanks|thank you|sorry|lol|haha|fyi|btw|(?:please )?(?:fix|correct|update|"
    r"change) (?:that|it|this)(?: please)?|"
    r"danke|bitte|por favor|gracias|谢谢|哈)[\s.!]*$",
    re.I,
)
_FORGET = re.compile(
    r"^\W*(?:(?:please|pls|can you|could you|would you|quick|hey|ok|just|kindly|bitte|por favor|oye|请|麻烦)[\s,]+)*"
    r"(?:forget(?! the (?:half|idea))|delete|remove|erase|wipe|unremember|purge|drop|scratch|strike|scrap|lose|bin|"
    r"get rid of|clear|take out|"
    r"(?:do ?n['’]?t|do not|never|you don['’]t (?:need|have) to|no need to|stop) (?:remember(?:ing)?|keep(?:ing)?|"
    r"stor(?:e|ing)|sav(?:e|ing)|record(?:ing)?|log(?:ging)?|mention(?:ing)?)|"
    r"vergiss|lösch\w*|streich\w*|entfern\w*|merk\w* dir nicht|"
    r"olvida\w*|borra\w*|elimina\w*|quita\w*|no (?:recuerdes|guardes|te acuerdes|apuntes|anotes)|"
    r"忘[掉了记]|删[掉除了]|别[再]?(?:记|存|留|提)|不要(?:记|存|留|保存)|去掉|清除|抹掉)"
    r"|\b(?:forget (?:it|that|this)|get rid of (?:it|that)|bin it|delete (?:it|that)|take it out|take that out|"
    r"remove (?:it|that)|"
    r"(?:bitte )?nicht (?:speichern|merken|behalten|aufheben)|raus damit|lösch (?:das|es)|"
    r"quítalo|bórralo|olvídalo|elimínalo)[\s.!]*(?:please|pls|bitte|por favor)?\W*$"
    r"|(?:忘了吧|忘掉吧?|删[掉了]吧?|请删掉|别记|去掉|删除)(?:[，。！吧 ].*)?$"
    r"|\b(?:get rid of it|off the record)\b|\bfrom (?:the record|your memory)\b",
    re.I,
)
_FORGET_WORDS = words_of(
    """
    forget delete remove erase wipe unremember purge drop scratch strike scrap lose bin clear rid take remember keep
    store save record log mention need please pls can could thing things bit stuff said told tell about everything
    anything fact entry note memory item part mine story whole never confidence lol embarrassing asked did want
    don't vergiss lösch lösche löschen streich streiche entfern entferne merk speichern behalten bitte sache mal
    geht keinen raus damit gesagt nie dass olvida olvídate borra elimina quita guardes recuerdes cosa suya dije
    dicho nunca todo
    """
)
_END = re.compile(
    r"n['’]t\b.{0,60}\bany ?(?:more|longer)\b|"
    r"\b(?:no longer|(?:not|never|nobody|none)\b.{0,60}\bany ?(?:more|longer)|(?:stopped|quit|gave up|"
    r"cancelled|canceled)\b(?!.*\b(?:instead|now)\b)|"
    r"(?:have|has|['’]ve|['’]s) (?:split|broken) up|stepped down|is lifted|all done|off the \w+ now|"
    r"nicht mehr|ausgetreten|abgemeldet|beendet|ya no|se acabó)\b|不再|已经不|不.{0,6}了$|没.{0,4}了$|搬走",
    re.I,
)
_INSTEAD = re.compile(r"\b(?:instead|now|these days|but|jetzt|sondern|stattdessen|ahora|sino)\b|现在|改|换", re.I)
_ADD = re.compile(
    r"^\W*(?:also|and|plus|oh and|one more thing|add(?: to)? that|you should (?:also )?know|note that|remember that|"
    r"außerdem|ach ja|übrigens|y|ah,? y|además|apunta|对了|补充|另外|还有)\b|\b(?:also|by the way|worth noting|"
    r"übrigens|"
    r"también)\b",
    re.I,
)
_V = r"[\w'’.,:%€$£#/+-]{0,40}[\w%€$£#]"
_VALUE = rf"{_V}(?: {_V}){{0,4}}?"
_ART = r"(?:(?:at|in|on|the|a|an|to|um|am|im|el|la|los|las|en|de|der|die|das|dem|den|ein|eine) ){0,2}"
_PAIRS = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        rf"\b(?:not|nicht(?! mehr)|no(?! longer)) (?P<old>{_ART}{_VALUE}),? (?:but|sondern|"
        rf"sino) (?:it['’]s )?(?P<new>{_ART}{_VALUE})(?=[.,;!?(]|$)",
        rf"(?P<new>{_VALUE}),? (?:and |und |y )?(?:not|nicht(?! mehr)|never|no(?! longer)) "
        rf"{_ART}(?P<old>{_VALUE})(?=[.,;!?(]| \(|$| any|"
        rf" as| like|—|–)",
        rf"(?P<new>{_VALUE}) (?:instead of|rather than|statt|anstatt|en vez de|"
        rf"en lugar de) {_ART}(?P<old>{_VALUE})(?=[.,;!?]|$)",
        rf"\b(?:not|no|nicht|\w+n['’]?t)\s+{_ART}(?P<old>{_VALUE})[.,;:!–—-]*\s+(?:it['’]?s |it is |it was |(?:s?he|"
        rf"they) \w+ |es ist |sondern |es )"
        rf"{_ART}(?P<new>{_VALUE})(?=[.,;!?]|$| \w+ I)",
        r"不是(?P<old>[^，。！？；,\s]{1,12})[，,；。]?\s*(?:而?是|应该是|叫)(?P<new>[^，。！？；,\s]{1,12})",
        r"(?P<new>[^，。！？；,\s]{1,12})[，,]?\s*不是(?P<old>[^，。！？；,\s]{1,12})",
    )
)


# "Scratch that, the meeting is on Thursday." corrects; "Forget that, I do not want it stored." does not.
_TAKEN_BACK = re.compile(
    r"^\W*(?:no[, ]+|oh[, ]+|sorry[, ]+)?(?:(?:scratch|strike|forget|ignore|undo|cancel|drop) (?:that|this|it)|"
    r"never ?mind|vergiss (?:das|es)|streich das|olvida(?:lo| eso))\s*[,.:;!–—-]+\s*"
    r"(?=(?:i|i['’]m|we|we['’]re|my|our|the|he|she|it|it['’]s|they|ich|wir|mein\w*|unser\w*|der|die|das|mi|el|la|"
    r"(?-i:[A-Z]\w+))\s+\S+\s+\S)"
    r"(?!.*\b(?:stor|remember|keep|kept|want|know|embarrass|matter|private|secret|anyone|behalten|speicher|guard))",
    re.I,
)
_LONGEST = 600  # characters of a correction; what is longer tells something new


def read_correction(text: str) -> Correction:
    """Read what a correction wants and which values it names."""
    said = " ".join(text.split())
    if len(said) > _LONGEST:
        return Correction(Aim.ADD, said, (), read_claim(said))
    said = _TAKEN_BACK.sub("", said)
    if _FORGET.search(said):
        return Correction(Aim.FORGET, said, (), read_claim(said))
    said = _stripped(said)
    pairs = tuple(_pairs(" ".join(text.split())))
    claim = read_claim(said)
    if _ADD.search(said) and not pairs:
        aim = Aim.ADD
    elif _END.search(said) and not _INSTEAD.search(said) and not pairs:
        aim = Aim.END
    else:
        aim = Aim.CHANGE
    return Correction(aim, said, pairs, claim)


def _stripped(text: str) -> str:
    said = _LEAD.sub("", text, count=1)
    said = _TAIL.sub("", said)
    return said or text


_HAN_IS = re.compile(r"^[\u3400-\u9fff]+?[是叫为]")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of an old and a new value, the longest reading of each first."""
    for pattern in _PAIRS:
        for match in pattern.finditer(text):
            old, new = match["old"].strip(" ,.'"), _HAN_IS.sub("", match["new"]).strip(" ,.'")
            # "I'm not fasting any more" names no new value.
            if old and any(terms_of(new)) and old.casefold() != new.casefold():
                yield old, new


def topic(correction: Correction) -> frozenset[str]:
    """Return the terms of a correction without the words of asking for it."""
    words = [word for word in re.findall(r"[\w'’-]+", correction.text) if word.casefold() not in _FORGET_WORDS]
    return frozenset(terms_of(" ".join(words)))


_JOINT = re.compile(r"(,?\s+(?:and|but|und|aber|y|pero)\s+|[,;]\s+)", re.I)


def without_clause(sentence: str, said: frozenset[str]) -> str:
    """Return a sentence without the one clause that says something, empty if it is to go as a whole.

    Only what stands by itself is taken apart: "My salary is 4,000 euros and I work at Bosch."
    """
    pieces = _JOINT.split(sentence)
    clauses, joints = pieces[::2], pieces[1::2]
    shared = [len(said.intersection(terms_of(clause))) for clause in clauses]
    at = shared.index(max(shared))
    if len(clauses) < 2 or shared.count(0) < len(clauses) - 1 or not all(map(_stands_alone, clauses)):
        return ""
    end = re.search(r"[.!?]*$", sentence)
    rest = clauses[:at] + clauses[at + 1 :]
    between = joints[1:] if at == 0 else joints[: at - 1] + joints[at:]
    text = "".join(chain.from_iterable(zip(rest, [*between, ""], strict=True))).rstrip(".!?")
    return text[:1].upper() + text[1:] + (end.group() if end else "")


def _stands_alone(clause: str) -> bool:
    """Return True for a clause with a subject and a verb of its own."""
    return _OWN_SUBJECT.match(clause) is not None and bool(verb_at(clause.strip(" .!?")))


_OWN_SUBJECT = re.compile(
    r"\s*(?:i|i['’]m|we|he|she|they|it|it['’]s|my|our|the|his|her|their|this|that|there|(?-i:[A-Z]\w+)|ich|wir|mein\w*|"
    r"unser\w*|der|die|das|yo|mi|nuestr\w+|el|la)\b",
    re.I,
)


_MOST_EDITED = 2_000  # characters of a statement in which values are compared


def edited(statement: str, correction: Correction) -> str | None:
    """Return the statement with the corrected detail, or None if no detail of it can be told to be meant."""
    for old, new in correction.pairs:
        for part in _endings(old):
            found = _find(statement, part)
            if found is not None:
                fresh = _without_repeats(new, part, statement, statement[found[1] :])
                return statement[: found[0]] + fresh + statement[found[1] :]
    return _by_kind(statement, correction) if len(statement) <= _MOST_EDITED else None


def _endings(old: str) -> Iterator[str]:
    """Yield readings of an old value, the longest first: of "four eggs" also "four"."""
    words = old.split()
    for length in range(len(words), 0, -1):
        yield " ".join(words[:length])


def _without_repeats(new: str, old: str, statement: str, follows: str) -> str:
    """Return the new value without the words before and after it that the statement has already."""
    words, size = new.split(), len(old.split())
    alike = [word for word in words if _same_kind(word, old)] if size == 1 else []
    if len(words) > 1 and len(alike) == 1:
        return alike[0]
    while (
        len(words) > 1
        and follows.split()[:1]
        and words[-1].casefold() == follows.split(maxsplit=1)[0].strip(".,;").casefold()
    ):
        words.pop()
    while len(words) > size and (_find(statement, words[0]) is not None or words[0].casefold() in _SMALL):
        words.pop(0)
    if len(words) > size and _same_kind(words[-1], old.rsplit(maxsplit=1)[-1]):
        words = words[-size:]
    return " ".join(words)


_SMALL = words_of(
    """
    the a an is are was were it it's its in on at to be my our his her ist war der die das es el la un una
    """
)


def _find(text: str, part: str) -> tuple[int, int] | None:
    if not part:
        return None
    # Scripts that put no space between words begin and end them anywhere.
    letter = r"[^\W\u3400-\u9fff]"
    edge = "" if _HAN.search(part) else rf"(?<!{letter})"
    end = "" if _HAN.search(part) else rf"(?!{letter})"
    found = re.search(edge + re.escape(part) + end, text, re.I)
    return None if found is None else found.span()


_NUMBER_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|"
    "nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|once|twice|thrice|half|"
    "zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|"
    "doce"
)
_MONTHS = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    "nov(?:ember)?|dec(?:ember)?|"
    "januar|februar|märz|mai|juni|juli|oktober|dezember|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|"
    "octubre|noviembre|diciembre"
)
_KINDS = {
    "day": re.compile(
        r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|"
        r"sonntag)s?\b"
        r"|\b(?:lunes|martes|miércoles|jueves|viernes|sábados?|domingos?)\b|(?:周|星期|礼拜)[一二三四五六日天]",
        re.I,
    ),
    "time": re.compile(
        r"\b\d{1,2}[:.]\d\d(?: ?[ap]m)?\b|\b\d{1,2} ?[ap]m\b|\b\d{1,2} uhr(?: \d\d)?\b"
        r"|[一二三四五六七八九十\d]{1,3}点半?",
        re.I,
    ),
    "date": re.compile(
        rf"\b\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of |de )?(?:{_MONTHS})\b|\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?\b|"
        rf"\b\d{{1,2}}(?:st|nd|rd|th)\b"
        r"|[一二三四五六七八九十\d]{1,3}月(?:[一二三四五六七八九十\d]{1,3}[号日])?|[一二三四五六七八九十\d]{1,3}[号日]",
        re.I,
    ),
    "month": re.compile(rf"\b(?:{_MONTHS})\b", re.I),
    "year": re.compile(r"\b(?:19|20)\d\d\b年?"),
    "times": re.compile(rf"\b(?:once|twice|thrice|(?:\d+|{_NUMBER_WORDS}) times)\b|[一二两三四五六\d]次", re.I),
    "number": re.compile(
        rf"[€$£]?\d+(?:[.,]\d+)*(?:[a-zµ%€$£]+\b)?|\b(?:{_NUMBER_WORDS})\b"
        r"|[一二两三四五六七八九十百千万]+(?=[岁个层楼床块元万千百倍本只人口斤天年路班])|[二三四五六七八九十]{2,}|[二三四五六七八九十两]万",
        re.I,
    ),
    "code": re.compile(r"\b(?=\w*[-_\d])[A-Za-z][\w]*(?:[-_.]\w+)+\b|\b[A-Z]{2,}[\w-]*\b|\b[a-z]+\d\w*\b"),
    "name": re.compile(r"(?<![.!?:] )(?<!^)\b[A-ZÀ-ÖØ-Þ][\w'’&-]*(?: [A-ZÀ-ÖØ-Þ][\w'’&-]*)*"),
}
_NO_NAME = words_of("I I'm I've I'd I'll OK Please No Not The It My Our We Actually")


@dataclass(frozen=True, slots=True)
class _Slot:
    kind: str
    start: int
    end: int
    text: str
    before: str
    after: str


def _slots(text: str) -> list[_Slot]:
    taken: list[_Slot] = []
    for kind, pattern in _KINDS.items():
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(start < slot.end and end > slot.start for slot in taken) or match.group() in _NO_NAME:
                continue
            before, after = text[:start].rstrip().casefold(), text[end:].lstrip().casefold()
            taken.append(_Slot(kind, start, end, match.group(), _last_word(before), _first_word(after)))
    return sorted(taken, key=lambda slot: slot.start)


def _last_word(text: str) -> str:
    found = re.search(r"[\w'’]+\W*$", text)
    return re.sub(r"\W+$", "", found.group()) if found else ""


def _first_word(text: str) -> str:
    found = re.match(r"[\w'’]+", text)
    return found.group() if found else ""


def _same_kind(one: str, other: str) -> bool:
    kinds = [{kind for kind, pattern in _KINDS.items() if pattern.fullmatch(word)} for word in (one, other)]
    return bool(kinds[0] & kinds[1])


def _by_kind(statement: str, correction: Correction) -> str | None:
    """Replace the one value of the statement that differs from a value of the same kind in the correction."""
    told, held = _slots(correction.text), _slots(statement)
    known = {slot.text.casefold() for slot in held}
    repeated = {slot.text.casefold() for slot in told}
    fresh = [slot for slot in told if slot.text.casefold() not in known and not _inside(slot, statement)]
    if not fresh or len(fresh) > 2 or not _covered(statement, correction, fresh):
        return None
    changes: list[tuple[_Slot, _Slot]] = []
    for new in fresh:
        old = [slot for slot in held if slot.kind == new.kind and slot.text.casefold() not in repeated]
        if new.kind == "name" and correction.claim.owner is Owner.NAMED and new.start == 0:
            continue
        beside = [slot for slot in old if _neighbours(new, slot, statement, correction.text)]
        if len(beside) == 1:
            changes.append((beside[0], new))
        elif len(old) == 1:
            changes.append((old[0], new))
        elif old and not beside:
            return None
    if not changes:
        return None
    memory = statement
    for held_slot, new in sorted(changes, key=lambda change: -change[0].start):
        memory = memory[: held_slot.start] + new.text + memory[held_slot.end :]
    return memory


_CHANGING = words_of(
    """
    mov extend chang now push shift postpon delay rais lower bump switch correct fix rescheduled put brought wrong
    jetzt verschob verlegt ahora
    """
)


def _covered(statement: str, correction: Correction, fresh: list[_Slot]) -> bool:
    """Return True if the statement has at least half of what the correction says besides its new values."""
    rest = correction.text
    for slot in sorted(fresh, key=lambda slot: -slot.start):
        rest = rest[: slot.start] + " " + rest[slot.end :]
    said = frozenset(terms_of(rest)) - _CHANGING
    strange = said - frozenset(terms_of(statement))
    return len(strange) * 2 <= len(said) and len(strange) <= 2


def _inside(slot: _Slot, statement: str) -> bool:
    return _find(statement, slot.text) is not None


def _neighbours(new: _Slot, old: _Slot, statement: str, text: str) -> bool:
    """Return True if the same word stands before or after both values, or what the correction names stands near."""
    same_after = bool(new.after) and new.after == old.after and new.after not in _SMALL
    same_before = bool(new.before) and new.before == old.before and new.before not in _SMALL
    if same_after or same_before:
        return True
    near = statement[max(0, old.start - 25) : old.start]
    said = frozenset(terms_of(text[: new.start] + " " + text[new.end :]))
    return not said.isdisjoint(terms_of(near))


_SAME_ATTRIBUTE = 0.4
_OF_ANOTHER = 0.4
_OF_SURELY_ANOTHER = 1.0


def fit(statement: Claim, text: str, correction: Correction, cosine: float) -> float:
    """Return how well a statement fits as the target of a correction; higher is better."""
    said = topic(correction)
    shared = len(said & statement.terms) / max(1, len(said))
    score = cosine + shared
    if correction.aim is not Aim.FORGET:
        score += 0.5 * any(_find(text, part) is not None for old, _ in correction.pairs for part in _endings(old))
    if correction.aim is Aim.CHANGE and gives_another_value(text, correction.text):
        return max(score, _SAME_ATTRIBUTE) + _SAME_ATTRIBUTE
    claim = correction.claim
    own = statement.owner is Owner.SPEAKER
    if is_about_another(claim, statement) or (own and is_about_another(statement, claim)):
        # "I don't have a dog." says nothing of "My neighbour has a dog."; "she" may be anybody.
        score -= _OF_ANOTHER if claim.owner is Owner.UNKNOWN or correction.aim is Aim.FORGET else _OF_SURELY_ANOTHER
    return score


def is_as_likely(correction: Correction, best: str, other: str) -> bool:
    """Return True if a correction that does not name its subject fits both statements.

    "It's at 4, not 3." fits two appointments at 3; "She lives in Milan." fits two sisters.
    """
    if opens_with_pronoun(correction.text) and gives_another_value(best, correction.text):
        return gives_another_value(other, correction.text)
    values = frozenset(terms_of(" ".join(chain.from_iterable(correction.pairs))))
    if not correction.pairs or topic(correction) - values:
        return False
    return any(_find(other, old) is not None for old, _ in correction.pairs)
