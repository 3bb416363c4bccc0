"""Tell the language of a text by its function words: English where nothing says otherwise."""

from __future__ import annotations

import re

from memos.core.text.caches import cached_by_text

_WORD = re.compile(r"[^\W\d_]+")
_CHARS = 300
_LEAST_SHARE = 0.2  # of the words that are function words of the language


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SIGNS = {
    "english": _words("""
        the of and is in to i my our we they it for with on at from was are have has he she a an do does what
        """),
    "german": _words("""
        ich wir der die das und ist nicht ein eine mein meine unser im am zum seit auf für mit den wo wie was wer wann
        er sie in wird hat haben bin sind zu von bei nach aus dem des einen einem einer mir mich uns auch noch
        war beim vom heute gestern
        """),
    "spanish": _words("""
        el los las una mi mis yo en del por para con que se es está tengo ya hace dónde cuál cuáles qué su sus quién
        cuándo cómo la lo me nos y un al soy estoy hay muy ha he
        """),
    "french": _words("""
        le les des une je nous mon ma mes est et dans pour avec sur où quel quelle qui que il elle au aux du en pas ne
        ce cette suis ai chez depuis quand comment
        """),
    "italian": _words("""
        il lo gli una io mio mia è e nel della dei per con che dove quale chi quando come sono ho non di da mi ci si
        al del alla
        """),
    "portuguese": _words("""
        o os as um uma eu meu minha é e no na em do da dos das para com que onde qual quem quando como estou tenho não
        moro se ao
        """),
}
_EVERY_SIGN = frozenset[str]().union(*_SIGNS.values())
_FOREIGN_SIGN = frozenset[str]().union(*(signs for name, signs in _SIGNS.items() if name != "english"))
_LETTERS = {
    "german": "äöüß",
    "spanish": "ñ¿¡áíóú",
    "french": "çœêèàùî",
    "italian": "",
    "portuguese": "ãõ",
    "english": "",
}


_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u02ff]")


def has_other_script(text: str) -> bool:
    """Return True if a text has letters that are not Latin."""
    return _OTHER_SCRIPT.search(text) is not None


_SCRIPTS = {
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "devanagari": re.compile(r"[\u0900-\u097f]"),
}


def script_of(text: str) -> str:
    """Return "latin", "han", "kana", "arabic", "devanagari" or "other"."""
    if not has_other_script(text):
        return "latin"
    return next((name for name, letters in _SCRIPTS.items() if letters.search(text)), "other")


@cached_by_text(maxsize=4096)
def language_of(text: str) -> str:
    """Return "english", "german", "spanish", "french", "italian" or "portuguese"."""
    start = text[:_CHARS].casefold()
    words = _WORD.findall(start)
    telling = [word for word in words if word in _EVERY_SIGN]
    by_letters = set[str]()
    if not start.isascii():
        by_letters = {name for name, letters in _LETTERS.items() if any(letter in start for letter in letters)}
    foreign, english = map(_FOREIGN_SIGN.__contains__, telling), map(_SIGNS["english"].__contains__, telling)
    if not by_letters and sum(foreign) <= sum(english):
        return "english"
    counts = {name: sum(map(signs.__contains__, telling)) + (name in by_letters) for name, signs in _SIGNS.items()}
    best = max(counts, key=counts.__getitem__)
    enough = counts[best] >= _LEAST_SHARE * len(words) and counts[best] > counts["english"]
    return best if enough else "english"


def likely_language(text: str) -> str:
    """Return the language of a text so short that one word may tell it: any that has more of its words than English."""
    found = language_of(text)
    if found != "english":
        return found
    words = _WORD.findall(text[:_CHARS].casefold())
    counts = {name: sum(map(signs.__contains__, words)) for name, signs in _SIGNS.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] > counts["english"] else "english"


def is_function_word(word: str, language: str) -> bool:
    """Return True for one of the commonest words of a language that `language_of` knows."""
    return word in _SIGNS[language]
