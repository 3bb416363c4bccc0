"""Says whether a text asks for something to be done or advised, rather than what was said. Pure.

For the one who is asked so, how the asker wants it matters more than what was told of it.
"""

from __future__ import annotations

import re

from memos.text.sentences import sentences

_BEST = r"(?:best|top|most \w+|(?:easi|quick|cheap|fast|simpl|saf|nic|great|cool|tasti|healthi|smart)est)"
_DO = r"(?:start|begin|find|get|go|look|try|buy|stay|eat|do|see|watch|read|wear|book|take)"
_HINTS = r"(?:good|tips?|ideas?|advice|recommendations?|suggestions?|pointers?|thoughts)"

_REQUEST = re.compile(
    "|".join(
        (
            # Of you: do this for me.
            r"\b(?:can|could|would|will) you\b|\bplease\b",
            r"\b(?:help|show|teach|give|tell|walk|guide|point|talk|find|get) me\b",
            r"^\W*(?:explain|describe|write|create|make|plan|find|design|draft|build|compare|summari[sz]e|choose|pick|"
            r"sort)\b",
            # For advice, by its name.
            r"\byou(?:['’]d| would)? (?:suggest|recommend|advise|reckon)\b",
            r"(?:^|[.!?\n])\W*(?:recommend|suggest|advise|ideas|(?:recommendation|suggestion)s)\b",
            rf"\bare there any\b|\bany (?:\w+ ){{0,2}}{_HINTS}\b|(?:\bwould|['’]d) love (?:your|some|any|a)\b",
            # Of what I mean to do.
            r"\bI(?:['’]m| am) (?:planning|looking|trying|thinking|considering|interested|struggling|after|torn|"
            r"shopping|hunting|open to|in the market)\b|\bI(?:['’]d| would) (?:like|love)\b",
            r"\bhow (?:can|do|should|would|could|might) (?:I|we)\b|\b(?:should|could|might|shall) (?:I|we|my|our)\b",
            rf"\b(?:where|what|which|who) (?:can|should|could|shall|do) (?:I|we) {_DO}\b",
            # For what is good.
            r"\bwhat are (?:some|your|my options)\b",
            r"\b(?:what|where)['’]s (?:an? |some )?(?:good|\w+ (?:way|spot|place|idea|option|choice))\b",
            r"\bwhat(?:['’]s| is| are| would be) (?:the |an? |some )?(?:best|good|right|great|nice|decent|ideal|"
            r"perfect|must|top)\b",
            r"(?<![申邀聘宴约])请(?![假客哪谁])|帮我|能不能|可以.*吗|怎么(?:做|办)|(?<!得)怎么样|如何|教我",
        )
    ),
    re.IGNORECASE,
)
_ASKS = re.compile(r"\b(?:what|which|where|who|how)\b", re.IGNORECASE)
_TOLD = re.compile(r"\b(?:did|was|were|has|have|had|does)\b", re.IGNORECASE)
"""What was, has been or is so of somebody was told; what would be, or is best, was not."""

_JUDGES = re.compile(
    rf"\b(?:for (?:me|us|my|our)|suits?|worth|must-\w+|(?:the|an?) {_BEST}|"
    r"(?:is|are|be|works?|matters?) (?:best|most|better|nicest|easiest))\b",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\b(?:would|should|might|could|will)\b", re.IGNORECASE)
_SELF = re.compile(r"\b(?:[Ii]|[Mm][ey]|[Ww]e|us|[Oo]ur)\b")  # the US is not us
_SCAN_CHARS = 2_000


def is_request(text: str) -> bool:
    """Say whether a text asks for something to be done or advised; its first 2,000 characters are looked at."""
    head = text[:_SCAN_CHARS]
    return _REQUEST.search(head) is not None or _asks_to_judge(head)


def _asks_to_judge(text: str) -> bool:
    """Say whether a question asks what is best, or what would be for one who speaks of themselves.

    "What is the easiest way for me?", "I'm stiff as a board, what would loosen me up?".
    """
    of_self = _SELF.search(text) is not None
    for start, end in sentences(text):
        sentence = text[start:end]
        asks = _ASKS.search(sentence) if "?" in sentence else None
        if asks is None or _TOLD.search(sentence, asks.end()):
            continue
        if _JUDGES.search(sentence, asks.end()) or (of_self and _WOULD.search(sentence, asks.end())):
            return True
    return False
