"""Split text into sentences; tell questions, hypotheses, quotations and requests from statements."""

from __future__ import annotations

import re

from memos.core.text import wording_by_language

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_CODE_START = re.compile(
    r"^[ \t]*(?:#|//|/\*|--[ ]|\$ |>>> |def |class |import |from \S+ import |const |let |var |function |return\b|"
    r"public |private |SELECT |INSERT |UPDATE |DELETE FROM |CREATE |ALTER |if \(|for \(|while \(|else\b|try:|except\b|"
    r"@\w+|</?\w)[^\n]*",
    re.MULTILINE,
)
_CODE_SIGN = re.compile(r"[;{}=(]")
_CODE_LINE = re.compile(r"^[^\n]*(?:[;{}][ \t]*$|=>|\bconsole\.log\(|==|!=|\w\(['\"])[^\n]*", re.MULTILINE)
_TASK = re.compile(
    r"\b(?:translate|proofread|rewrite|rephrase|paraphrase|summari[sz]e|edit|polish|correct|improve|review|shorten|"
    r"analy[sz]e|"
    r"explain|check|grade|format|classify)\b[^.!?\n]{0,20}?\b(?:this|these|the following|following|below|my|it|the "
    r"(?:text|paragraph|email|essay|message|letter|sentence|passage))\b[^.!?\n]{0,60}[:\n]"
    r"|(?:翻译|润色|改写|修改|总结|校对|概括|缩写|扩写|分析)[^。！？\n]{0,30}[：:]\s*|(?:翻译|润色|校对|改写)"
    r"一?下(?:面|这)[^。！？\n]{0,20}\n",
    re.IGNORECASE,
)
# Without one of them neither matches, which is known sooner.
_ENDS_TASK = re.compile(r"[:：\n]")
_SHOWN = re.compile(r"[^\n]")


def without_pasted_text(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        return _SHOWN.sub(" ", match.group(0))

    own = _FENCE.sub(blank, text) if "```" in text or "~~~" in text else text
    task = _TASK.search(own) if _ENDS_TASK.search(own) else None
    if task is not None:
        own = own[: task.end()] + _SHOWN.sub(" ", own[task.end() :])
    own = _CODE_START.sub(blank, own)
    return _CODE_LINE.sub(blank, own) if _CODE_SIGN.search(own) else own


_END = re.compile(r"\n+|[。！？]+[」』”）]*|(?<![.!?…؟])[.!?…؟]+[\"'”’)\]]*(?=\s|$)")
_ABBREVIATED = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|vs|e\.g|i\.e|approx|[A-HJ-Z]))$")
_COMPANY = re.compile(r"\b(?:Inc|Ltd|Co|Corp|etc|a\.m|p\.m)$")
_QUESTION = re.compile(
    r"[?？؟][\"'”’)\]」』）]*$|[吗么呢][。.!！~～]*$"
    r"|^(?:do|does|did|can|could|would|will|should|is|are|am|was|were|have|has|had|may)(?:n['’]t)? "
    r"(?:you|i|we|they|he|she|it|the|there|this|that|my|your)\b"
    r"|^(?:what|where|who|why|how|which|when)(?:['’]s| (?:is|are|do|does|did|can|could|would|should|was|were|about|"
    r"come|much|many|long|old|if))\b",
    re.IGNORECASE,
)
# "I live in Paris, right?" asks; "I live in Paris, where can I swim?" also says.
_ASKS_BACK = re.compile(
    r"^[^,，]*[,，]\s*(?:right|correct|yes|no|yeah|huh|ok(?:ay)?|did(?:n['’]t)? i|do(?:n['’]t)? i|am i|"
    r"are(?:n['’]t)? we|isn['’]t (?:it|that so)|对吗|对吧|是吗|是吧)\s*[?？]",
    re.IGNORECASE,
)
_OPENS = re.compile(
    r"^(?:(?:so|well|hey|hi|hello|ok|okay|yes|no|and|but|also|now|since|as|because|actually)[, ]+)*$", re.IGNORECASE
)
_IF = re.compile(
    r"\b(?:if|unless|wish|as though|whether|(?:not|isn['’]t) true that|false that)\b|如果|要是|假如", re.IGNORECASE
)
_SUPPOSED = re.compile(
    r"\b(?:what if|suppose|supposing|imagine|pretend|let['’]s say|assum\w+|hypothetically|"
    r"(?:translate|rewrite|rephrase|proofread|paraphrase|write|spell|type)\b[^.!?\n]{0,40}:)|假设|假装|想象|翻译|"
    r"润色|改写|第一人称|扮演|写一?(?:个|篇|首|段)|编一?个",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,，;；]|\bbut\b")
_OTHERS = re.compile(
    r"\b(?:say|said|says|saying|t(?:old|ells?|elling) (?:me|us|him|her|them)|wrote|writes|replied|asked|goes|"
    r"(?:s?he|they|you|people|everyone|everybody|mom|mum|dad|boss|wife|husband|friends?|\w+ (?:still |always )?)"
    r"(?: all| still| always)? ?(?:thinks?|thought|believes?|claims?|insists?|assumes?))(?: that)?\s*[,:]?\s*$"
    r"|(?:说|告诉我|以为|觉得我们?|认为)[，,：:]?\s*$",
    re.I,
)
# A single quote opens before a word and closes after one; "'cause" and "rock 'n' roll" open nothing.
_IN_SINGLE = re.compile(
    r"(?<![\w'’])['‘](?!(?:cause|til|till|em|bout|round|n|s)\b)(?=\w|$)(?:(?!['’](?!\w)).)*$", re.IGNORECASE
)
_QUOTES = (("“", "”"), ("「", "」"), ("『", "』"), ("«", "»"))


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the span of each sentence without outer white space; line ends end sentences."""
    found = []
    start = 0
    for match in _END.finditer(text):
        if match.group(0) == "." and _goes_on(text, match):
            continue
        found.append((start, match.end()))
        start = match.end()
    found.append((start, len(text)))
    return [span for span in (_trimmed(text, *span) for span in found) if span[0] < span[1]]


def is_question(sentence: str) -> bool:
    return _QUESTION.search(sentence.strip()) is not None


def is_hypothetical(sentence: str) -> bool:
    return _IF.search(sentence) is not None or is_role_play(sentence)


def is_role_play(sentence: str) -> bool:
    return _SUPPOSED.search(sentence) is not None


def asserted(sentence: str, start: int, end: int) -> bool:
    """Return True if a sentence asserts its characters `start` to `end` in its speaker's own words."""
    # Not what is supposed ("if I moved to Lyon"), asked, quoted, or given to be translated.
    before, after = sentence[:start], sentence[end:]
    if _IF.search(_CLAUSE.split(before)[-1]) or _SUPPOSED.search(before):
        return False
    if _OTHERS.search(before) or before.lstrip().startswith(">") or _IN_SINGLE.search(before):
        return False
    if before.count('"') % 2 or any(before.count(opens) > before.count(closes) for opens, closes in _QUOTES):
        return False
    if not is_question(sentence):
        return True
    return (
        bool(_OPENS.match(before.strip() + " " if before.strip() else ""))
        and re.match(r"[^?？]*[,，;；]", after) is not None
        and not _ASKS_BACK.search(after)
    )


def _goes_on(text: str, stop: re.Match[str]) -> bool:
    before = text[max(0, stop.start() - 8) : stop.start()]
    if _ABBREVIATED.search(before):
        return True
    following = text[stop.end() : stop.end() + 2].lstrip()
    return bool(_COMPANY.search(before)) and following[:1].islower()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return start, max(start, start + len(piece.strip()))


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
    r"(?:can|could|would|will) you (?:please )?(?:remind|remember|recall)\b|(?:what|which|where|who|when|how|"
    r"why)\b[^,;]{0,120}\b(?:did|was|were|has|had|have (?:I|we|you|they)|does)\b)",
    re.IGNORECASE,
)
"""Questions about a past or present fact (was, has been, is), not about a wish or a judgement (would be, is best)."""

_ASKS = re.compile(r"\b(?:what|which|where|how)\b", re.IGNORECASE)
_JUDGES = re.compile(
    rf"\b(?:suits? (?:me|us|my|our|an?)|worth \w+ing|must-\w+|(?:the|an?) {_BEST}|"
    r"(?:is|are|be|works?|matters?) (?:best|most|better|nicest|easiest))\b",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\b(?:would|should|might|could)\b", re.IGNORECASE)
_OTHER_REQUEST = re.compile("|".join(wording_by_language.REQUESTS), re.IGNORECASE)
_OTHER_RECALL = re.compile("|".join(wording_by_language.RECALLS), re.IGNORECASE)
_SELF = re.compile(r"\b(?:[Ii]|[Mm][ey]|[Ww]e|us|[Oo]ur)\b")  # the US is not us
_SCAN_CHARS = 2_000


def is_request(text: str) -> bool:
    """Return True if a text asks for an action or advice; its first 2,000 characters are checked."""
    head = text[:_SCAN_CHARS]
    of_self = _SELF.search(head) is not None
    for start, end in sentences(head):
        sentence = head[start:end]
        if _OTHER_REQUEST.search(sentence) and not _OTHER_RECALL.search(sentence):
            return True
        if _RECALL.search(sentence):  # after the other languages: "was" is German, too
            continue
        if orders(sentence) or _WISH.search(sentence) or _asks_to_judge(sentence, of_self=of_self):
            return True
    return False


def orders(sentence: str) -> bool:
    return _ORDER.search(sentence) is not None


def _asks_to_judge(sentence: str, *, of_self: bool) -> bool:
    """Return True if a sentence asks what is best, or would be for a speaker who tells of themselves."""
    # "What is the easiest way?", "I'm stiff as a board, what would loosen me up?".
    asks = _ASKS.search(sentence)
    if asks is None:
        return False
    judged = _JUDGES.search(sentence, asks.end()) is not None
    return judged or (of_self and _WOULD.search(sentence, asks.end()) is not None)


_MOST_CHARS = 600
"""Who tells more at once has pasted something."""

_LEAST_SHARE = 1 / 3
"""Of the characters stand in sentences about the speaker."""

_SPEAKER = re.compile(
    r"\bI(?![/.])\b|(?:^|[,;(] ?|\b(?:and|but|so|cause|because|since|when|if|that|then) )(?:i|im|ive)(?=['’ ])"
    r"|\b(?:[Mm]e|[Mm]y|[Mm]yself|[Ww]e|us|[Oo]urs?|[Oo]urselves)\b"
    r"(?! (?:code|function|script|query|program|essay|email|e-mail|text|error|output)\b)|[我咱俺](?!国)"
)
_PASSES = re.compile(
    r"\bI(?:['’]ll| will) (?:provide|give|send|ask|type|paste)\b|\bI(?:['’]d| would) like\b"
    r"|\bI (?:want|need) (?:you|to (?:know|understand|create|make|write|build|find|ask))\b"
    r"|\bI(?:['’]m| am) (?:looking|trying|planning|thinking|considering|asking|wondering|working on)\b"
    r"|\bI (?:think|guess|hope|suppose) (?:so|not)\b|\bI (?:tried|got|see|understand)\b|\bhelps? me\b|\bthank",
    re.IGNORECASE,
)
"""Wording about the conversation itself or the requested work, not about the user who asks for it."""

_OF_OTHERS = re.compile(r"^\W{0,9}\w+(?: \w+)?: |\b(?:said|says|wrote|asked|told me)\b\W{0,3}[:\"“‘「]", re.IGNORECASE)
"""Somebody else's words: "Tom said: I hate olives"."""


def is_about_speaker(text: str) -> bool:
    """Return True if at least a third of a short text states something about its speaker; questions do not count."""
    if len(text) > _MOST_CHARS:
        return False
    about = told = 0
    for start, end in sentences(text):
        told += end - start
        if _states(text[start:end]):
            about += end - start
    return told > 0 and about / told >= _LEAST_SHARE


def _states(sentence: str) -> bool:
    if _SPEAKER.search(sentence) is None or _PASSES.search(sentence) or _OF_OTHERS.search(sentence):
        return False
    return not (is_question(sentence) or orders(sentence) or is_role_play(sentence))
