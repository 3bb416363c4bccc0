"""Recognise messages that only acknowledge, thank or greet, and so tell nothing.

Word lists in English, German, Spanish, French and Chinese. "Yes" and "no" answer a question and are no acknowledgement.
"""

from __future__ import annotations

import re

from memos.core.text.caches import cached_by_text

_MOST_CHARS = 80

_PHRASES = (
    # English
    r"o?k(?:ay|ey)?",
    r"(?:duly )?noted",
    r"(?:i've |i |we've )?got (?:it|that|you)",
    r"gotcha",
    r"(?:i )?(?:see|understand|understood)",
    r"sure(?: thing)?",
    r"(?:all ?|al)?right(?: you are| then)?",
    r"(?:that's |that is |sounds |very |so |oh )?(?:great|good|nice|cool|fine|lovely|perfect|awesome|wonderful|"
    r"excellent|brilliant|fantastic|amazing|interesting|fair enough)(?: (?:to (?:know|hear)|news|point|one|then))?",
    r"(?:glad|happy|pleased|sorry) to (?:hear|help)(?: (?:it|that|this))?",
    r"(?:many |ok |okay )?(?:thanks|thank you|thx|ty|cheers)(?: (?:a lot|so much|very much|a million|again|you|"
    r"for (?:telling|letting|reminding|updating|sharing|the (?:update|info|information|heads[- ]up|reminder|note))"
    r"(?: (?:me|us|that|this|it|with me|know))*))*",
    r"(?:i'll|i will|we'll|will|shall) (?:do|remember|note|keep|bear|write|make)(?: (?:a note(?: of)?|that|it|this|"
    r"in mind|down))*",
    r"makes sense",
    r"no (?:problem|worries)",
    r"(?:you're |you are )?(?:very )?welcome",
    r"(?:my )?pleasure",
    r"any ?time",
    r"of course|absolutely|exactly|indeed|agreed|deal",
    r"(?:hi|hello|hey|bye|goodbye|good (?:morning|evening|night|afternoon))"
    r"(?: (?:there|everybody|everyone|all|folks|team|guys|you all))?|see you(?: (?:later|soon|then|all))*",
    r"(?:ha)+|lol|hm+|mhm+|uh[- ]?huh|ah+|oh+|aha|wow|well|um+",
    # German
    r"alles klar|klar|verstanden|verstehe|(?:ist )?notiert|gut zu wissen|prima|super|toll|gemerkt|merke ich mir",
    r"genau|gut",
    r"(?:vielen |lieben |besten )?dank(?:e)?(?: (?:schön|sehr|dir|ihnen|für (?:die info|den hinweis)))?",
    r"gern(?:e)?(?: geschehen)?|bitte(?: schön| sehr)?|kein problem|hallo|tschüss?|guten (?:morgen|tag|abend)|ach ?so",
    # Spanish
    r"entendido|vale|de acuerdo|claro|perfecto|muy bien|bien|anotado|genial|bueno|tomo nota|ya veo|lo tengo|de nada",
    r"(?:muchas |mil )?gracias(?: por (?:cont|dec|avis|inform)\w+)?|hola|adiós|buen[oa]s (?:días|tardes|noches)",
    # French
    r"d'accord|(?:bien )?compris|(?:c'est |bien )?noté|très bien|parfait|de rien|entendu|bonjour|bonsoir|salut",
    r"merci(?: beaucoup| bien| à toi| à vous)?",
)
_CHINESE = (
    r"好(?:的|吧|啊|呀|嘞)?|(?:我)?(?:记住|知道|明白|了解|记下|收到|懂)(?:了|啦|来了)?|嗯+|哦+|行|没问题|不客气|不用谢",
    r"(?:谢谢|多谢|感谢)(?:你|您)?(?:(?:的)?(?:告知|告诉我|分享|提醒))?|太好了|哈+|你好|再见|早上好|晚安|是的|对",
)
_ONLY = re.compile(rf"\W*(?:(?:(?:{'|'.join(_PHRASES)})(?!\w)|(?:{'|'.join(_CHINESE)}))\W*)*", re.I)


@cached_by_text(maxsize=4096)
def acknowledges(text: str) -> bool:
    """Return True if a text is only an acknowledgement, thanks or a greeting: it answers no question."""
    return len(text) <= _MOST_CHARS and _ONLY.fullmatch(text.replace("’", "'")) is not None


def asks_for_something(text: str) -> bool:
    """Return True for a request that tells of nothing, such as "Send the parcel to my office."."""
    return _REQUEST.match(text) is not None


_REQUEST = re.compile(
    r"\s*(?:please |can you |could you |bitte )?(?:send|bring|buy|book|order|pick up|remind|ship|deliver|email|forward|"
    r"tell|ask|give|mail|print|fetch|collect|schedule|invite|make|prepare|cook|brew|schick|kauf|buch|bestell|erinner)\b",
    re.IGNORECASE,
)


def requests_a_task(text: str) -> bool:
    """Return True for a task that is to be done once, such as "Plan our honeymoon in Bali."."""
    return _TASK.match(text) is not None


_TASK = re.compile(
    r"\W*+(?:hey|hi|ok|okay)?\W*+(?:(?:please|can you|could you|would you|help me(?: to)?|i (?:want|need) you to|"
    r"bitte)\s+)*"
    r"(?:plan|find|look (?:up|for|into)|search|suggest|recommend|compare|translate|summari[sz]e|write|draft|book|buy|"
    r"order|remind|schedule|reserve|research|check)\s+(?:for\s+)?(?:me|us|an?|the|our|my|some|two|three|\d+)\b",
    re.IGNORECASE,
)
