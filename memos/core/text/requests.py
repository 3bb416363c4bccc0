"""Says whether a text asks for something to be done or advised, rather than what was told. Pure.

For the one who is asked so, how the asker wants it matters more than what was said of it.
"""

from __future__ import annotations

import re

from memos.core.text.sentences import sentences

_BEST = r"(?:best|(?:easi|quick|cheap|fast|simpl|saf|nic|smart)est|most (?!recent|often|common|of\b)\w+)"
_HINTS = r"(?:tips?|ideas?|advice|recommendations?|suggestions?|pointers?)"
_AT_ONCE = r"^\W{0,9}"  # no more signs than that: each would be tried from anew

_ORDER = re.compile(
    r"\b(?:can|could|would|will) you\b|\bplease\b"
    r"|\b(?:help|show|teach|give|tell|walk|guide|point|talk) me\b"
    rf"|{_AT_ONCE}(?:explain|describe|write|create|make|plan|find|get|design|draft|build|compare|summari[sz]e|choose|pick|"
    r"recommend|suggest|advise)\b"
    r"|(?<![申邀聘宴约我他她你们])请(?![假客哪谁了过我他她])|帮我|能不能|教我|给我(?:一|个|写|做|列|推荐)",
    re.IGNORECASE,
)
_WISH = re.compile(
    "|".join(
        (
            # For advice, by its name.
            r"\b(?:do|would) you (?:suggest|recommend|advise|reckon)\b|\byou['’]d (?:suggest|recommend|advise)\b",
            rf"\bany (?:\w+ )?(?:good|thoughts|{_HINTS})\b|\bI need (?:some |your )?(?:help|{_HINTS})\b",
            rf"{_AT_ONCE}(?!what|which|who|how|where|when|whose)(?:\w+ ){{0,3}}(?:ideas|recommendations|suggestions)\b",
            r"\bare there any\b|\bis there (?:an? )?(?:\w+ )?good\b|(?:\bwould|['’]d) love (?:your|some|any|a)\b",
            # Of what I mean to do.
            r"\bI(?:['’]m| am) (?:planning|looking|trying|thinking|considering|interested|struggling|after|torn|"
            r"shopping|hunting|open to|in the market)\b|\bI(?:['’]d| would) (?:like|love)\b",
            rf"{_AT_ONCE}looking for\b",
            r"\bhow (?:can|do|should|would|could|might) (?:I|we)\b|\b(?:should|could|might|shall) (?:I|we|my|our)\b",
            r"\b(?:where|what|which|who) can (?:I|we)\b|\bwhere do (?:I|we) (?:start|begin|find|buy|look)\b",
            r"\b(?:which|what) (?:\w+ ){1,3}should\b",
            # For what is good.
            r"\bwhat are (?:some|your|my options)\b|\bis it worth\b",
            r"\b(?:what|where)['’]s (?:good|(?:an?|some) (?:good|\w+ (?:way|spot|place|idea|option|choice)))\b",
            r"\bwhat(?:['’]s| is| are| would be) (?:the |an? |some )?(?:best|good|right|great|nice|decent|ideal|"
            rf"perfect|must|top)\b|{_AT_ONCE}(?:the )?best \w+ (?:for|in|to|near|under)\b",
            r"可以.*吗|怎么(?:做|办)|(?<!得)怎么样|如何|推荐(?![过了的])|适合我|我应?该|有什么(?:好的?)?建议",
        )
    ),
    re.IGNORECASE,
)
_RECALL = re.compile(
    rf"{_AT_ONCE}(?:(?:did|does|was|were|has|had)\b|(?:have|do) you (?:know|remember|recall)\b|(?:please )?remind me\b|"
    r"(?:can|could|would|will) you (?:please )?(?:remind|remember|recall)\b|"
    r"(?:what|which|where|who|when|how|why)\b[^,;]{0,120}\b(?:did|was|were|has|had|have (?:I|we|you|they)|"
    r"does)\b)",
    re.IGNORECASE,
)
"""What was, has been or is so of somebody was told; what would be, or is best, was not."""

_ASKS = re.compile(r"\b(?:what|which|where|how)\b", re.IGNORECASE)
_JUDGES = re.compile(
    rf"\b(?:suits? (?:me|us|my|our|an?)|worth \w+ing|must-\w+|(?:the|an?) {_BEST}|"
    r"(?:is|are|be|works?|matters?) (?:best|most|better|nicest|easiest))\b",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\b(?:would|should|might|could)\b", re.IGNORECASE)
_SELF = re.compile(r"\b(?:[Ii]|[Mm][ey]|[Ww]e|us|[Oo]ur)\b")  # the US is not us
_SCAN_CHARS = 2_000


def is_request(text: str) -> bool:
    """Say whether a text asks for something to be done or advised; its first 2,000 characters are looked at."""
    head = text[:_SCAN_CHARS]
    of_self = _SELF.search(head) is not None
    for start, end in sentences(head):
        sentence = head[start:end]
        if _RECALL.search(sentence):
            continue
        if orders(sentence) or _WISH.search(sentence) or _asks_to_judge(sentence, of_self=of_self):
            return True
    return False


def orders(sentence: str) -> bool:
    """Say whether a sentence tells its reader to do something."""
    return _ORDER.search(sentence) is not None


def _asks_to_judge(sentence: str, *, of_self: bool) -> bool:
    """Say whether a sentence asks what is best, or what would be for one who speaks of themselves.

    "What is the easiest way?", "I'm stiff as a board, what would loosen me up?".
    """
    asks = _ASKS.search(sentence)
    if asks is None:
        return False
    judged = _JUDGES.search(sentence, asks.end()) is not None
    return judged or (of_self and _WOULD.search(sentence, asks.end()) is not None)
