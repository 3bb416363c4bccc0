"""Says whether an assistant's sentence binds it from then on, or names it; advice and abilities do not. Pure."""

from __future__ import annotations

import re

_VAGUE = r"(?!(?:that|this|it|you (?:updated|posted)|in mind|your (?:message|question|point)|up\b|going\b))"
_ONWARD = re.compile(
    r"\b(?:from (?:now|here|today) on(?:wards?)?|from this point|going forward|in (?:the )?future|always|never|"
    r"every (?:day|morning|evening|"
    r"week|month|time|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|each (?:day|morning|week|time)|whenever|next "
    r"time|no longer|"
    r"any ?more|until (?:you|further)|for (?:all )?(?:the )?(?:rest|future))\b|以后|今后|从现在(?:起|开始)|往后|"
    r"每次|每天|每周|每月|每个月|永远|一直|始终|下次|不再",
    re.IGNORECASE,
)
# A deed that is itself for later, and one that lasts only when the sentence says so.
_LATER = re.compile(
    r"\bI(?:['’]ll| will| promise to| promise I['’]ll) (?:also |be sure to |make sure to |definitely |certainly |"
    r"gladly )*"
    rf"(?:remind you (?!(?:of why|why|that)\b)\w|remember (?:that |your |you |to )\w|notify you|follow up|get back "
    rf"to you|"
    rf"ping you|alert you|keep you (?:updated|posted|informed)|keep (?:an eye on|track of) {_VAGUE}\w|watch (?:for|"
    rf"out for) {_VAGUE}\w|"
    r"check (?:back|in) (?:with you|on|in|next|every)|have \w[^.!?\n]{1,60} (?:ready|done) (?:by|before|on)|"
    r"(?:send|email|text|call|message) (?:it |them |you )[^.!?\n]{0,60}\b(?:tomorrow|on|by|next|every|tonight|in "
    r"the|at \d|when))"
    r"|我(?:会|将|一定会?|到时候?会?|[^，。！？]{0,8}会)[^，。！？\n]{0,14}(?:提醒[你您]|通知[你您]|叫[你您]|"
    r"发给[你您]|跟进|回复[你您]|联系[你您])"
    r"|我(?:会|已经?)(?:帮[你您])?(?:记住|记下|记得)(?!吗)[^，。！？\n]{2,}",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\bI(?:['’]ll| will| promise to| won['’]t| will not) (?:be |not |always |never |also |no longer )*[a-z]+"
    r"|\b(?:I promise|you have my word)\b"
    r"|我(?:的[^，。！？]{1,6})?(?:就|都|一定|也|以后|今后)*(?:会|将|不会|保证|答应)",
    re.IGNORECASE,
)
# A condition beside another's doing says nothing of a promise; nor does what is offered only.
_ONLY_IF = re.compile(
    r"\b(?:if you(?:['’]d)? (?:like|want|wish|prefer|need)|would you like|do you want|let me know if|happy to)\b"
    r"|如果[你您]|需要的话",
    re.IGNORECASE,
)
_HOLLOW = re.compile(
    r"\balways (?:be )?(?:here|happy|available|love|cherish|remember)\b|\b(?:be|am) (?:always )?here\b"
    r"|一直(?:都)?在|随时",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"\b[Mm]y name is (?P<v>[A-Z][\w\u0300-\u036f'’\-]*)|我(?:的名字)?叫(?!我|你|您|做|了)"
    r"(?P<h>[^，。！？,.!?\s]{1,12})"
)


def commits(sentence: str) -> bool:
    """Return True for "I'll remind you on Friday" and "I will never do that again", not for "I'd recommend a train"."""
    if _ONLY_IF.search(sentence) or _HOLLOW.search(sentence):
        return False
    return _LATER.search(sentence) is not None or (
        _LASTING.search(sentence) is not None and _ONWARD.search(sentence) is not None
    )


def own_name(sentence: str) -> str | None:
    """Return the name that whoever says the sentence gives as theirs."""
    match = _NAME.search(sentence)
    return None if match is None else match.group("v") or match.group("h")
