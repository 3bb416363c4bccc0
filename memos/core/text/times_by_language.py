"""Time expressions in German, Spanish, French, Arabic and Hindi: a table of words a language, and patterns over them.

In a pattern `{D}`, `{M}`, `{U}`, `{N}` and `{Y}` stand for a weekday, a month, a unit, a count and a year. What its
reader wants is in groups: `said` (the words of `days`), `last`, `this` or `next`, `day`, `month`, `unit`, `count`,
`number` (day of the month) and `year`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import islice
from typing import NamedTuple, TypeVar

from memos.core.text.languages import has_other_script, likely_language, script_of
from memos.core.text.periods import Period, moved, occurrences, period, weekday

_YEAR = r"(?:19|20)\d\d"
_ARABIC = "\u0621-\u0652\u0671-\u06d3"
_DEVANAGARI = "\u0900-\u097f"
_SENTENCE = re.compile(r"(?:(?<!\d)\.|[!?।؟\n])(?:\s|$)")
_DUAL = re.compile("(?:ين|ان)$")
_SINCE = re.compile(r"(?<!\w)(?:seit|desde|depuis|منذ)(?: (?:dem|el|le|la))? ?$", re.IGNORECASE)
_UNTIL = re.compile(r"(?<!\w)(?:bis|hasta|jusqu['’]\w+|حتى)(?: (?:zum|el|le|la))? ?$", re.IGNORECASE)
_LEAD_CHARS = 16
_MAX_TRIED = 64

_Value = TypeVar("_Value")


class Found(NamedTuple):
    """A time expression in characters `start` to `end`: from the day `first` to the day before `after`."""

    start: int
    end: int
    first: date
    after: date


@dataclass(frozen=True, slots=True)
class _Words:
    r"""The words of a language, all as patterns.

    A weekday, or a date without a year, is of the future, or of the past with `is_past`; `decides` matches sentences in
    which it is the other way round. `letters` is a character class, for scripts in which `\b` does not work.
    """

    days: Mapping[str, int]
    weekdays: Sequence[str]
    months: Sequence[str]
    units: Mapping[str, str]
    counts: Mapping[str, int]
    decides: re.Pattern[str]
    patterns: Sequence[tuple[str, str]]
    is_past: bool = False
    letters: str = ""


_GERMAN = _Words(
    days={"vorgestern": -2, "gestern": -1, "heute": 0, "übermorgen": 2, "morgen": 1},
    weekdays=("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "(?:Samstag|Sonnabend)", "Sonntag"),
    months=(
        "Januar|Jänner|Jan",
        "Februar|Feb",
        "März",
        "April|Apr",
        "Mai",
        "Juni?",
        "Juli?",
        "August|Aug",
        "September|Sept?",
        "Oktober|Okt",
        "November|Nov",
        "Dezember|Dez",
    ),
    units={
        "Wochenenden?": "weekend",
        "Wochen?": "week",
        "Tage?n?": "day",
        "Monate?[ns]?": "month",
        "Jahre?[ns]?": "year",
    },
    counts={
        "ein(?:e[mnrs]?)?": 1,
        "zwei": 2,
        "drei": 3,
        "vier": 4,
        "fünf": 5,
        "sechs": 6,
        "sieben": 7,
        "acht": 8,
        "neun": 9,
        "zehn": 10,
        "elf": 11,
        "zwölf": 12,
    },
    decides=re.compile(
        r"\b(?:war(?:st|en|t)?|hatten?|hattest|wurden?|ging(?:en|st)?|kam(?:en|st)?|sah(?:en|st)?|fuhr(?:en|st)?|fand(?:en)?"
        r"|traf(?:en|st)?|gab(?:en)?|nahm(?:en)?|aß(?:en)?|passierte|machten?|bekam(?:en)?)\b"
        r"|\b(?:habe?|hast|haben|habt|hat|bin|bist|ist|sind|seid)\b.*\b"
        r"(?:\w*ge\w{2,}(?:t|en)|(?:be|ver|er|ent|zer)\w{2,}(?:t|en)|\w+iert)\b"
    ),
    patterns=(
        ("days", r"\b(?P<said>übermorgen|vorgestern|gestern|heute)\b"),
        (
            "days",
            r"(?<!heute )(?<!gestern )(?<!jeden )(?<!am )\b(?P<said>(?-i:morgen))\b"
            r"|(?:^|(?<=[.!?] ))(?P<said2>(?-i:Morgen(?= [a-zäöü])))",
        ),
        (
            "step",
            r"\b(?:(?P<last>letzte[mnrs]?|vergangene[mnrs]?|vorige[mnrs]?)|(?P<this>diese[mnrs]?)"
            r"|(?P<next>nächste[mnrs]?|kommende[mnrs]?)) (?:(?P<unit>{U})|(?P<day>{D}))\b",
        ),
        ("ago", r"\bvor (?P<count>{N}) (?P<unit>{U})\b"),
        ("ahead", r"\bin (?P<count>{N}) (?P<unit>{U})\b"),
        ("date", r"(?<![\d.])(?P<number>\d{1,2})\.? (?P<month>{M})\b\.?(?: (?P<year>{Y})\b)?"),
        ("numeric", r"(?<![\d.])(?P<number>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>{Y})(?!\.?\d)"),
        ("numeric", r"\b(?:am|vom|zum|bis|seit) (?P<number>\d{1,2})\.(?P<month>\d{1,2})\.(?![.\d])"),
        (
            "month",
            r"\b(?:im|seit|bis|ab|Anfang|Mitte|Ende|letzten|vergangenen|nächsten|kommenden) (?P<month>{M})\b\.?"
            r"(?: (?P<year>{Y})\b)?|\b(?P<month2>{M}) (?P<year2>{Y})\b",
        ),
        ("year", r"\b(?:(?:im|seit dem|bis zum) Jahre?|in|seit|bis) (?P<year>{Y})\b(?![-/.]\d)"),
        ("weekday", r"\b(?:am|seit|bis) (?P<day>{D})\b(?!,? (?:den |dem )?\d)"),
    ),
)

_SPANISH = _Words(
    days={
        "anteayer|antier|antes de ayer": -2,
        "ayer|anoche": -1,
        "hoy|esta (?:mañana|tarde|noche)": 0,
        "pasado mañana": 2,
        "mañana": 1,
    },
    weekdays=("lunes", "martes", "mi[ée]rcoles", "jueves", "viernes", "s[áa]bado", "domingo"),
    months=(
        "enero",
        "febrero",
        "marzo",
        "abril",
        "mayo",
        "junio",
        "julio",
        "agosto",
        "sep?tiembre",
        "octubre",
        "noviembre",
        "diciembre",
    ),
    units={
        "fin(?:es)? de semana": "weekend",
        "semanas?": "week",
        "días?": "day",
        "mes(?:es)?": "month",
        "años?": "year",
    },
    counts={
        "una?": 1,
        "dos": 2,
        "tres": 3,
        "cuatro": 4,
        "cinco": 5,
        "seis": 6,
        "siete": 7,
        "ocho": 8,
        "nueve": 9,
        "diez": 10,
        "once": 11,
        "doce": 12,
        "un par de": 2,
    },
    decides=re.compile(
        r"\b(?:he|hemos|han|ha|había\w*|fui|fuiste|fue|fuimos|fueron|era[ns]?|estuv\w+|estaba\w*|hizo|hice|hiciste|hicimos|"
        r"hicieron|tuv\w+|vin[eo]|dij\w+|pus\w+|pud\w+|vi|vio|vimos|di|dio)\b"
        r"|(?:(?<!ar)(?<!er)(?<!ir)é|ó|aste|iste|aron|ieron|aba\w*)\b|\b(?!aquí|ahí|así|allí)\w{2,}í\b",
        re.IGNORECASE,
    ),
    patterns=(
        ("days", r"\b(?P<said>anteayer|antier|antes de ayer|anoche|hoy|esta (?:mañana|tarde|noche)|pasado mañana)\b"),
        ("days", r"(?<!antes de )\b(?P<said>ayer)\b"),
        ("days", r"(?<!la )(?<!esta )(?<!cada )(?<!pasado )\b(?P<said>mañana)\b"),
        (
            "step",
            r"\b(?:el |la |este |esta )?(?:(?P<unit>{U})|(?P<day>{D})) (?:(?P<last>pasad[oa]|anterior)"
            r"|(?P<next>que viene|próxim[oa]|siguiente))\b",
        ),
        (
            "step",
            r"\b(?:(?P<this>est[ea])|(?P<next>(?:el |la )?próxim[oa])|(?P<last>(?:el |la )?(?:pasad[oa]"
            r"|últim[oa]))) (?:(?P<unit>{U})|(?P<day>{D}))\b(?! (?:pasad|que viene|próxim))",
        ),
        ("ago", r"\bhace (?P<count>{N}) (?P<unit>{U})\b"),
        ("ahead", r"\b(?:dentro de|en) (?P<count>{N}) (?P<unit>{U})\b"),
        ("date", r"\b(?P<number>\d{1,2}|primero) de (?P<month>{M})\b(?:(?: de| del|,)? (?P<year>{Y})\b)?"),
        ("numeric", r"(?<![\d/.])(?P<number>\d{1,2})[/.](?P<month>\d{1,2})[/.](?P<year>{Y})(?![/.]?\d)"),
        (
            "month",
            r"\b(?:en|desde|hasta|durante|a (?:principios|mediados|finales) de|pasado|próximo) (?P<month>{M})\b"
            r"(?:(?: de| del)? (?P<year>{Y})\b)?|\b(?P<month2>{M})(?: de| del)? (?P<year2>{Y})\b",
        ),
        ("year", r"\b(?:en|desde|hasta|durante)(?: el año)? (?P<year>{Y})\b(?![-/]\d)"),
        ("weekday", r"\b(?:el|desde el|hasta el) (?P<day>{D})\b(?! (?:pasad|que viene|próxim|siguiente|anterior|\d))"),
    ),
)

_FRENCH = _Words(
    days={
        "avant[- ]hier": -2,
        "hier": -1,
        "aujourd['’]hui|ce (?:matin|soir|midi)|cet après-midi|cette nuit": 0,
        "après[- ]demain": 2,
        "demain": 1,
    },
    weekdays=("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
    months=(
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ),
    units={"week-?ends?": "weekend", "semaines?": "week", "jours?": "day", "mois": "month", "années?|ans?": "year"},
    counts={
        "une?": 1,
        "deux": 2,
        "trois": 3,
        "quatre": 4,
        "cinq": 5,
        "six": 6,
        "sept": 7,
        "huit": 8,
        "neuf": 9,
        "dix": 10,
        "onze": 11,
        "douze": 12,
    },
    decides=re.compile(
        r"\b(?:ai|as|a|avons|avez|ont|suis|es|est|sommes|êtes|sont)(?:-\w+)? (?:\w+ ){0,3}?"
        r"(?!lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)\w*(?:ée?s?|ues?|u|is|it|ert|(?:part|fin|chois|sort|"
        r"réuss|dorm|serv|suiv)ie?s?)\b|\b(?:était|étais|étaient|avait|avais|avaient|fut|\w+ait)\b",
        re.IGNORECASE,
    ),
    patterns=(
        (
            "days",
            r"\b(?P<said>avant[- ]hier|aujourd['’]hui|ce (?:matin|soir|midi)|cet après-midi|cette nuit"
            r"|après[- ]demain)\b",
        ),
        ("days", r"(?<!avant[- ])(?<!['’])\b(?P<said>hier)\b"),
        ("days", r"(?<!après[- ])\b(?P<said>demain)\b"),
        (
            "step",
            r"\b(?:(?:le|la) |l['’])?(?:(?P<unit>{U})|(?P<day>{D})) "
            r"(?:(?P<last>derni(?:er|ère)|passée?|précédente?)|(?P<next>prochaine?|suivante?))\b",
        ),
        ("step", r"\b(?P<this>ce|cette) (?:(?P<unit>{U})|(?P<day>{D}))(?:-ci)?\b(?! (?:derni|prochain|passé))"),
        ("ago", r"\bil y a (?P<count>{N}) (?P<unit>{U})\b"),
        ("ahead", r"\bdans (?P<count>{N}) (?P<unit>{U})\b"),
        ("date", r"\b(?P<number>\d{1,2})(?:er)? (?P<month>{M})\b(?: (?P<year>{Y})\b)?"),
        ("numeric", r"(?<![\d/.])(?P<number>\d{1,2})[/.](?P<month>\d{1,2})[/.](?P<year>{Y})(?![/.]?\d)"),
        (
            "month",
            r"\b(?:en|depuis|jusqu['’]en|début|mi-|fin|au mois de|au mois d['’]) ?(?P<month>{M})\b"
            r"(?: (?P<year>{Y})\b)?(?! dernier| prochain)|\b(?P<month2>{M}) (?P<year2>{Y})\b",
        ),
        ("year", r"\b(?:en|depuis|jusqu['’]en)(?: l['’]année| l['’]an)? (?P<year>{Y})\b(?![-/]\d)"),
        (
            "weekday",
            r"(?<!\ble )(?<!\bles )(?<!\bchaque )(?<!\btous les )\b(?P<day>{D})\b"
            r"(?! (?:derni|prochain|passé|suivant|\d))",
        ),
    ),
)

_ARABIC_WORDS = _Words(
    days={"(?:أول|اول) (?:من )?أمس": -2, "أمس|البارحة|امس": -1, "اليوم": 0, "بعد غد": 2, "غد[اًا]{0,2}": 1},
    weekdays=("الا?[إا]?ثنين", "الثلاثاء", "الأربعاء", "الخميس", "الجمعة", "السبت", "ال[أا]حد"),
    months=(
        "(?:يناير|كانون الثاني)",
        "(?:فبراير|شباط)",
        "(?:مارس|آذار)",
        "(?:[أا]بريل|نيسان)",
        "(?:مايو|أيار)",
        "(?:يونيو|يونية|حزيران)",
        "(?:يوليو|يولية|تموز)",
        "(?:[أا]غسطس|آب)",
        "(?:سبتمبر|أيلول)",
        "(?:[أا]كتوبر|تشرين الأول)",
        "(?:نوفمبر|تشرين الثاني)",
        "(?:ديسمبر|كانون الأول)",
    ),
    units={
        "(?:ال)?[أا]س(?:بوع|ابيع)(?:ين|ان)?": "week",
        "(?:ال)?(?:يوم(?:ين|ان)?|[أا]يام)": "day",
        "(?:ال)?(?:شهر(?:ين|ان)?|[أا]شهر|شهور)": "month",
        "(?:ال)?(?:سن(?:ة|تين|تان|وات)|عام(?:ين|ان)?|[أا]عوام)": "year",
    },
    counts={
        "واحدة?": 1,
        "اثن[يا]ن": 2,
        "ثلاثة?": 3,
        "[أا]ربعة?": 4,
        "خمسة?": 5,
        "ستة?": 6,
        "سبعة?": 7,
        "ثماني?ة?": 8,
        "تسعة?": 9,
        "عشرة?": 10,
    },
    decides=re.compile(r"(?<![\u0600-\u06ff])(?:س[أنيت]\w{2,}|سوف|لن|موعد\w*)"),
    is_past=True,
    letters=_ARABIC,
    patterns=(
        ("days", r"{B}[وف]?(?P<said>(?:أول|اول) (?:من )?أمس|بعد غد){E}"),
        ("days", r"(?<!أول )(?<!اول )(?<!من ){B}[وفب]?(?P<said>أمس|البارحة|امس){E}"),
        ("days", r"(?<!ذلك ){B}[وف]?(?P<said>اليوم){E}(?! (?:السابق|التالي|الأول|الثاني|نفسه|الماضي|القادم))"),
        ("days", r"(?<!بعد ){B}[وف]?(?P<said>غد[اًا]{0,2}){E}"),
        (
            "step",
            r"{B}(?:يوم )?[وف]?(?:ال)?(?:(?P<unit>{U})|(?P<day>{D})) (?:(?P<last>الماضية?|الفائتة?|المنصرمة?)"
            r"|(?P<next>القادمة?|المقبلة?)|(?P<this>الحالية?)){E}",
        ),
        ("step", r"{B}[وف]?(?P<this>هذ(?:ا|ه)) (?:(?P<unit>{U})){E}(?! (?:الماضي|القادم))"),
        ("ago", r"{B}[وف]?(?:قبل|منذ) (?:(?P<count>{N}) )?(?P<unit>{U}){E}"),
        ("ahead", r"{B}[وف]?(?:بعد|خلال) (?:(?P<count>{N}) )?(?P<unit>{U}){E}"),
        ("date", r"(?<!\d)(?P<number>\d{1,2})(?: من)? (?P<month>{M}){E}(?:،?(?: عام| سنة)? (?P<year>{Y})(?!\d))?"),
        ("numeric", r"(?<![\d/.])(?P<number>\d{1,2})/(?P<month>\d{1,2})/(?P<year>{Y})(?![/.]?\d)"),
        ("month", r"{B}[وف]?(?:في|منذ|خلال|حتى)(?: شهر)? (?P<month>{M}){E}(?:(?: عام| سنة)? (?P<year>{Y})(?!\d))?"),
        (
            "year",
            r"{B}[وف]?(?:في|منذ|حتى|خلال)?(?: ?(?:ال)?(?:عام|سنة)) (?P<year>{Y})(?!\d)"
            r"|{B}(?:في|منذ) (?P<year2>{Y})(?!\d)",
        ),
        ("weekday", r"{B}(?:يوم) (?P<day>{D}){E}(?! (?:الماضي|القادم|المقبل|الفائت))"),
    ),
)

_HINDI = _Words(
    days={"परसों": 2, "कल": 1, "आज": 0},
    weekdays=("सोमवार", "मंगलवार", "बुधवार", "(?:गुरुवार|बृहस्पतिवार)", "शुक्रवार", "शनिवार", "(?:रविवार|इतवार)"),
    months=(
        "जनवरी",
        "फ़?रवरी",
        "मार्च",
        "अप्रैल",
        "मई",
        "जून",
        "जुलाई",
        "अगस्त",
        "सितंबर|सितम्बर",
        "अक्टूबर|अक्तूबर",
        "नवंबर|नवम्बर",
        "दिसंबर|दिसम्बर",
    ),
    units={
        "(?:सप्ताहांत|वीकेंड)": "weekend",
        "(?:हफ़्ते|हफ्ते|हफ़्ता|हफ्ता|सप्ताह)": "week",
        "(?:दिनों|दिन)": "day",
        "(?:महीनों|महीने|महीना|माह)": "month",
        "(?:सालों|साल|वर्षों|वर्ष)": "year",
    },
    counts={
        "एक": 1,
        "दो": 2,
        "तीन": 3,
        "चार": 4,
        "पाँच|पांच": 5,
        "छह|छः|छे": 6,
        "सात": 7,
        "आठ": 8,
        "नौ": 9,
        "दस": 10,
        "ग्यारह": 11,
        "बारह": 12,
    },
    decides=re.compile(
        r"[\u0900-\u097f](?:गा|गी|गे|ऊँगा|ऊंगा|ऊँगी|ऊंगी)(?![\u0900-\u097f])|ना (?:है|होगा)"
        r"|वाल[ाेी] (?:हूँ|हूं|है|हैं)"
    ),
    is_past=True,
    letters=_DEVANAGARI,
    patterns=(
        ("tense", r"{B}(?P<said>परसों|कल){E}"),
        ("days", r"{B}(?P<said>आज){E}"),
        (
            "step",
            r"{B}(?:(?P<last>पिछल[ेाी]|बीते|गत)|(?P<this>इस)|(?P<next>अगल[ेाी]|आने वाले)) "
            r"(?:(?P<unit>{U})|(?P<day>{D})){E}",
        ),
        ("ago", r"{B}(?P<count>{N}) (?P<unit>{U}) पहले{E}"),
        ("ahead", r"{B}(?P<count>{N}) (?P<unit>{U}) (?:बाद|में){E}"),
        ("date", r"(?<!\d)(?P<number>\d{1,2}) (?P<month>{M}){E}(?:,? (?P<year>{Y})(?!\d))?"),
        ("numeric", r"(?<![\d/.])(?P<number>\d{1,2})/(?P<month>\d{1,2})/(?P<year>{Y})(?![/.]?\d)"),
        ("month", r"(?<!\d ){B}(?P<month>{M})(?: (?P<year>{Y}))? (?:में|से|तक|के){E}"),
        ("year", r"(?<!\d)(?P<year>{Y}) (?:में|से|तक){E}"),
        ("weekday", r"(?<!पिछले )(?<!अगले )(?<!इस ){B}(?P<day>{D}) (?:को|के दिन|से){E}"),
    ),
)

_BY_LANGUAGE = {
    "german": _GERMAN,
    "spanish": _SPANISH,
    "french": _FRENCH,
    "arabic": _ARABIC_WORDS,
    "devanagari": _HINDI,
}


@cache
def _patterns(language: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return the patterns of a language with the reader of each, compiled when a text first needs them."""
    words = _BY_LANGUAGE[language]
    parts = {
        "{D}": _any_of(words.weekdays),
        "{M}": _any_of(words.months),
        "{U}": _any_of(words.units),
        "{N}": rf"(?:\d{{1,3}}|{_any_of(words.counts)})",
        "{Y}": _YEAR,
        "{B}": f"(?<![{words.letters}])",
        "{E}": f"(?![{words.letters}])",
    }
    compiled = []
    for kind, pattern in words.patterns:
        whole = re.sub(r"\{[DMUNYBE]\}", lambda mark: parts[mark[0]], pattern)
        compiled.append((kind, re.compile(whole, re.IGNORECASE)))
    return compiled


def _any_of(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def time_expressions_by_language(text: str, today: date) -> list[Found]:
    """Return the time expressions of a text in one of these languages, in order; none in another language."""
    language = script_of(text) if has_other_script(text) else likely_language(text)
    if language not in _BY_LANGUAGE:
        return []
    words = _BY_LANGUAGE[language]
    found: list[Found] = []
    for kind, pattern in _patterns(language):
        for match in islice(pattern.finditer(text), _MAX_TRIED):
            span = _read(words, kind, match, text, today)
            if span is not None:
                found.append(Found(match.start(), match.end(), *span))
    return _without_overlaps(found)


def _without_overlaps(found: Sequence[Found]) -> list[Found]:
    """Return the expressions in order, of two that overlap the longer one."""
    kept: list[Found] = []
    for each in sorted(found, key=lambda each: (each.start - each.end, each.start)):
        if all(each.end <= other.start or other.end <= each.start for other in kept):
            kept.append(each)
    return sorted(kept)


@dataclass(frozen=True, slots=True)
class _Match:
    """A match with its groups by name, and today."""

    words: _Words
    match: re.Match[str]
    today: date
    is_past: bool

    def group(self, name: str) -> str | None:
        """Return a group, or the one of the other half of the pattern, such as `year2`."""
        groups = self.match.groupdict()
        return groups.get(name) or groups.get(f"{name}2")

    @property
    def count(self) -> int:
        """Number of units, in digits or words; 2 for an Arabic dual, 1 if none is given."""
        said = self.group("count")
        if said is None:
            return 2 if _DUAL.search(self.group("unit") or "") else 1
        return int(said) if said.isdecimal() else _value(self.words.counts, said)

    @property
    def unit(self) -> str | None:
        """The unit, such as "week"."""
        said = self.group("unit")
        return None if said is None else _value(self.words.units, said)

    @property
    def step(self) -> int:
        """Offset in units from today: -1, 0 or 1."""
        return -1 if self.group("last") else 0 if self.group("this") else 1


def _read(words: _Words, kind: str, match: re.Match[str], text: str, today: date) -> Period | None:
    """Return the days of a match; None for days that no calendar has."""
    try:
        return _READERS[kind](_Match(words, match, today, _is_past(words, text, match)))
    except (OverflowError, ValueError):
        return None


def _is_past(words: _Words, text: str, match: re.Match[str]) -> bool:
    """Return whether a match is of the past: after "since", or in a sentence of the past, but not after "until"."""
    told = min(match.start(name) for name, said in match.groupdict().items() if said is not None)
    before = text[max(0, match.start() - _LEAD_CHARS) : told]
    if _SINCE.search(before) or _UNTIL.search(before):
        return _SINCE.search(before) is not None
    start = max((found.end() for found in _SENTENCE.finditer(text, 0, match.start())), default=0)
    end = _SENTENCE.search(text, match.end())
    sentence = text[start : end.start() if end else len(text)]
    return words.is_past != bool(words.decides.search(sentence))


def _of_day(found: _Match) -> Period:
    said = found.group("said") or ""
    return moved("day", _value(found.words.days, said), found.today)


def _of_tense(found: _Match) -> Period:
    """Read a word that means yesterday or tomorrow, by the tense of its sentence."""
    days = _value(found.words.days, found.group("said") or "")
    return moved("day", -days if found.is_past else days, found.today)


def _of_step(found: _Match) -> Period:
    day = found.group("day")
    if day is not None:
        return weekday(_place(found.words.weekdays, day), found.today, found.step)
    return moved(found.unit or "day", found.step, found.today)


def _of_weekday(found: _Match) -> Period:
    number = _place(found.words.weekdays, found.group("day") or "")
    if number == found.today.weekday():
        return period("day", found.today)
    return weekday(number, found.today, -1 if found.is_past else 1)


def _of_date(found: _Match) -> Period | None:
    said = found.group("number") or ""
    month = _place(found.words.months, found.group("month") or "") + 1
    return _written(found, month, int(said) if said.isdecimal() else 1)  # "primero", "1er"


def _of_numbers(found: _Match) -> Period | None:
    return _written(found, int(found.group("month") or ""), int(found.group("number") or ""))


def _written(found: _Match, month: int, day: int) -> Period | None:
    year = found.group("year")
    if year is not None:
        return period("day", date(int(year), month, day))
    near = occurrences(month, day, found.today)
    of_side = [each for each in near if (each <= found.today if found.is_past else each >= found.today)]
    return period("day", (max if found.is_past else min)(of_side)) if of_side else None


def _of_month(found: _Match) -> Period:
    month = _place(found.words.months, found.group("month") or "") + 1
    year = found.group("year")
    if year is not None:
        return period("month", date(int(year), month, 1))
    ahead = (month - found.today.month) % 12
    return moved("month", ahead - 12 if found.is_past and ahead else ahead, found.today)


_READERS: dict[str, Callable[[_Match], Period | None]] = {
    "days": _of_day,
    "tense": _of_tense,
    "step": _of_step,
    "ago": lambda found: moved(found.unit or "day", -found.count, found.today),
    "ahead": lambda found: moved(found.unit or "day", found.count, found.today),
    "date": _of_date,
    "numeric": _of_numbers,
    "month": _of_month,
    "year": lambda found: period("year", date(int(found.group("year") or ""), 1, 1)),
    "weekday": _of_weekday,
}


def _place(patterns: Sequence[str], said: str) -> int:
    return next(place for place, pattern in enumerate(patterns) if re.fullmatch(pattern, said, re.IGNORECASE))


def _value(values: Mapping[str, _Value], said: str) -> _Value:
    return next(value for pattern, value in values.items() if re.fullmatch(pattern, said, re.IGNORECASE))
