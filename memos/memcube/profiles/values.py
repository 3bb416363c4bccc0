"""What may be the value of a trait: texts that say something, and not errors, refusals or blanks. Pure."""

from __future__ import annotations

import re

from memos.memcube.profiles.template import VALUE_CHARS, Dimension, is_plain

_NOTHING = frozenset(
    """
    n/a|na|n.a|none|no value|null|nil|nan|undefined|unknown|unclear|unsure|not sure|not specified|unspecified
    |not mentioned|not stated|not provided|not given|not known|not available|not applicable|not clear|no information
    |no info|no data|no evidence|insufficient information|insufficient data|tbd|todo|empty|error|failed|failure|timeout
    |value|string|text|true|false|[redacted]|redacted|undetermined|indeterminate|unable to determine
    |无|没有|未知|不详|不明|不清楚|暂无|未提及|未提到|未说明|不适用|错误|无法确定|没有信息|无信息
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
_REFUSES = re.compile(
    r"(?:i(?:['’]m| am) (?:sorry|unable|not able|afraid i)|i (?:cannot|can ?not|can['’]t|could ?n['’]t|am unable"
    r"|do(?: not|n['’]t) (?:know|have (?:enough|any|access|the)))|sorry[,. ]|apologies|as an? (?:ai|language model)\b"
    r"|error\b|exception\b|traceback\b|rate limit|http/?\s?\d|[45]\d\d (?:error|bad|unauth|forbid|not|too|internal)"
    r"|(?:there is|there['’]s)? ?(?:no|not enough|insufficient) (?:information|info|evidence|data|mention)"
    r"|the (?:user|messages?|conversation|text) do(?:es)?(?: not|n['’]t) (?:say|mention|state|specify|provide|indicate)"
    r"|not (?:enough|explicitly|directly) |cannot be |can['’]t be |unable to "
    r"|对不起|抱歉|我无法|我不能|无法|作为一?个?(?:ai|人工智能)|没有足够|没有提到|未能)",
    re.IGNORECASE,
)
_EDGES = " \t\r\n.,;:!?\"'`*_-–—…<>()[]{}|/\\。，；：！？、“”‘’（）【】《》"
_MARKUP = re.compile(r"[{}<>\[\]]")


def cleaned(raw: str) -> str | None:
    """Return a text in one line as a trait may have it; None when it says nothing, or is an error or a refusal."""
    text = " ".join(raw[: VALUE_CHARS * 8].split())
    core = text.strip(_EDGES)
    if not core or len(text) > VALUE_CHARS or not is_plain(text) or not any(mark.isalnum() for mark in core):
        return None
    if core.casefold() in _NOTHING or text.casefold() in _NOTHING or _REFUSES.match(core):
        return None
    # A piece of JSON or markup is what is left of a broken answer.
    return None if _MARKUP.match(text) else text


def value_for(dimension: Dimension, raw: str) -> str | None:
    """Return the value of a dimension, as its template writes it; None when it cannot be one."""
    text = cleaned(raw)
    if text is None or not dimension.allowed:
        return text
    return next((known for known in dimension.allowed if known.casefold() == text.casefold().rstrip(".")), None)
