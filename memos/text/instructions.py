"""Finds what a text tells an assistant to do: standing orders of a user, and orders hidden in pages and tool output.

By pattern, for English and Chinese, with the commonest hostile phrases in other languages. Pure.
"""

from __future__ import annotations

import re
import unicodedata

from memos.text.sentences import is_question, sentences

# A pasted megabyte is no order; what hides an order deeper in a page has to get through the reader as a short fact.
_SCAN_CHARS = 20_000

_VERB = (
    r"(?:answer|reply|respond|call|use|write|speak|talk|keep|avoid|remember|include|format|address|start|begin|end|finish|"
    r"translate|treat|check|ask|explain|give(?! up)|show|tell|say|send|remind|add|put|list|mention|cite|quote|refer|provide|"
    r"skip|prefer|respect|follow|suggest|recommend|offer|assume|convert|round|summari[sz]e|confirm|double-check|test|comment|"
    r"return|output|print|sign|greet|apologi[sz]e|sugarcoat|lie|guess|share|store|save|reveal|book|order|schedule|buy|post|"
    r"search|read|stop|help|make|let|consider|proofread|correct|limit|forget to|do|"
    r"be (?:brief|concise|honest|polite|direct|short|formal|informal|casual|careful|critical|specific|kind))\b"
)
_LEAD = (
    r"(?:^|[;:]\s*|,\s*(?:and|but|so)\s+|\s[–—-]\s)(?:[-*•]\s+|\d+[.)]\s+)?"
    r"(?:(?:ok(?:ay)?|hey|hi|hello|so|and|also|but|oh|well|yes|yeah|no|thanks|thank you|great|good|sure|right|actually|then|"
    r"by the way|btw|one more thing|important|note)[,.:! ]{1,3}|\w{2,20},\s){0,4}+"
)
_ONWARD = (
    r"(?:from (?:now|here|today|this point|this moment) (?:on(?:wards?)?|forward)|starting (?:now|today)|going forward|"
    r"in (?:the )?future|henceforth|for all future \w+|until further notice)"
)
_THIRD = r"(?!(?:I|we|he|she|they|it|my|our|his|her|their|the|there|this|that|everything|things)(?:\b|['’]))"
_LANGUAGE = (
    r"(?:English|French|German|Spanish|Italian|Portuguese|Dutch|Chinese|Mandarin|Cantonese|Japanese|Korean|Russian|Arabic|"
    r"Hebrew|Hindi|Turkish|Polish|Swedish|Danish|Norwegian|Finnish|Greek|Ukrainian|Vietnamese|Thai|Indonesian|Latin)"
)
_NO_NAME = (
    r"(?!(?:later|back|tomorrow|tonight|today|when|if|at|on|in|asap|crazy|old|maybe|or|and|any|again|before|after|soon|"
    r"whenever|once|now|please|first|this|next|a|an|the|on|by)\b)"
)
_ENGLISH = (
    rf"{_LEAD}(?:please )?(?:always|never|only ever) {_VERB}",
    rf"{_LEAD}please (?:do not|don['’]t)(?: ever)? (?!(?:worry|cry|mind|hesitate|feel|think|laugh|judge|panic|go|leave|be sad)\b)\w",
    rf"{_LEAD}(?:do not|don['’]t) (?:ever )?(?!(?:tell|ask) me (?:why|how|you|that|it|what)\b){_VERB} \w",
    rf"{_LEAD}(?:please )?stop \w+ing\b",
    rf"{_LEAD}(?:please )?remember to \w",
    rf"{_LEAD}(?:please )?(?:just )?call me {_NO_NAME}\w",
    rf"{_LEAD}(?:please )?(?:always |only )?(?:answer|reply|respond|speak|talk|write)(?: to)?(?: me| us)?(?: back)?(?: only)? in "
    rf"(?:{_LANGUAGE}|short|brief|plain|simple|full|bullet|at most|one|two|three|no more|my)\b",
    rf"{_ONWARD},? {_THIRD}(?:please\b|you\b|always\b|never\b|only\b|do not\b|don['’]t\b|when\b|whenever\b|if\b|no more\b|{_VERB})",
    rf"{_LEAD}(?:please )?(?:you (?:should|must|have to|need to|can) )?(?:do not |don['’]t )?(?:always |only |never )?{_VERB}"
    rf"[^.!?\n]{{0,200}}\b{_ONWARD}\s*[.!]*$",
    rf"{_LEAD}(?:when|whenever|if|every time|each time|any ?time) (?:I|we|you) [^,.!?\n]{{1,80}}, ?(?:then )?"
    rf"(?:please|you (?:should|must|have to|need to)|always|never|do not|don['’]t|only|just {_VERB}|{_VERB})",
    rf"{_LEAD}(?:I (?:want|need|expect)|I['’]d like|I would like|I['’]d prefer) you to (?:always|never|only|stop)\b",
    rf"{_LEAD}(?:you (?:should|must|have to|need to|are to)|(?:please )?make sure (?:to|you|that you)) (?:always|never|only)\b",
)
_HAN_LEAD = r"(?:^|[，,；;：:]\s*)"
_HAN_ORDER = r"(?:请|都|别|不要|不用|用|叫|你|每|只|先|要|务必|回答|回复|说|给我|帮我|称呼|当|如果|我问|我说|我让|我发|直接|尽量|一律|记得|提醒)"
_CHINESE = (
    rf"{_HAN_LEAD}(?:请你?|麻烦你?|务必)?(?:以后|今后|往后|从今以后|从现在(?:开始|起)|从今天(?:开始|起))[，, ]?{_HAN_ORDER}",
    rf"{_HAN_LEAD}(?:请|麻烦)你?(?:总是|一直|始终|每次|务必|永远|不要|别|勿|用|只|记得|记住|叫我|称呼我)",
    rf"{_HAN_LEAD}(?:请你?)?(?:不要再|别再|不许再|不准再)(?!见)",
    rf"{_HAN_LEAD}(?:你?可以|请你?|就)?(?:叫我|称呼我)(?!起床|来|去|吃|回|做|干|怎么|什么|一声|一起)[^\s，。！？]{{1,12}}",
    rf"{_HAN_LEAD}(?:每次|每当|当|如果)我?[^，。！？]{{1,30}}(?:时候?|，|,)\s*(?:你|请|都|就)?(?:要|请|不要|别|先|都要|用|给我|提醒)",
    rf"{_HAN_LEAD}(?:总是|永远|始终)(?:用|以|先|不要|别)",
    rf"{_HAN_LEAD}(?:只)?用(?:中文|英文|英语|日文|日语|法语|德语|韩语|西班牙语|俄语|普通话|粤语)(?:来)?(?:回答|回复|说|写|交流|跟我)",
    rf"{_HAN_LEAD}记得(?!吗|你|我|他|她|它|那|上|去年|小时候|以前|当时|很|不|清)",
)
_STANDING = re.compile("|".join(_ENGLISH + _CHINESE), re.IGNORECASE)

# These are orders to a model even inside a question.
_HOSTILE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|skip)\b[^.!?\n]{0,40}\b(?:previous|prior|above|earlier|preceding|former|your|"
    r"all|any|other|these|the)\b[^.!?\n]{0,30}\b(?:instructions?|prompts?|rules?|directions?|guidelines?|orders?|constraints?)\b"
    r"|\bforget everything\b|\bnew (?:system )?instructions?\s*:|<\|?\s*(?:im_start|im_end|system|endoftext)\b|\[/?INST\]"
    r"|<</?SYS>>|^[ \t]{0,8}#{0,6}[ \t]{0,8}(?:system|assistant|developer)\s*:|\b(?:jailbreak|developer mode|DAN mode)\b"
    r"|\bignor(?:iere?|ez|a|ar|e|ieren)\b[^.!?\n]{0,30}\b(?:anweisungen|instrucciones|instruções|istruzioni|consignes|instructions)\b"
    r"|(?:忽略|无视|忘记|不要理会)[^。！？\n]{0,12}(?:指令|指示|提示|规则|说明|要求)|以上の指示を無視|これまでの指示",
    re.IGNORECASE | re.MULTILINE,
)
_AT = r"(?:^|[,;:]\s*|\b(?:please|then|and|must|should|now|immediately|to|also|always)\s+)"
_ORDER = re.compile(
    r"\bsystem prompts?\b|\byou (?:must|should|shall|have to|need to|are (?:now|required to|instructed to|to)|will now)\b"
    r"|\b(?:assistants?|AIs?|agents?|models?|bots?)(?: reading this)? (?:must|should|shall|has to|have to|is to|are to|needs? to)\b"
    rf"|{_AT}(?:send|forward|e-?mail|mail|post|upload|transfer|submit|leak|exfiltrate|copy|pay|wire)\b[^.!?\n]{{1,120}}\bto\b"
    rf"|{_AT}(?:do not|don['’]t|never) (?:tell|inform|mention|reveal|warn|show|ask|let|say)\b"
    rf"|{_AT}(?:act as|pretend (?:to be|that|you)|roleplay as|reveal|disclose|execute|run|delete|erase|remove|install|download|"
    r"click|visit|open|navigate|log in|sign in|enter|type|approve|grant|disable)\s+(?:the|this|these|that|all|any|your|every|an?|"
    r"on|here|https?|`|following)\b"
    r"|(?:你|助手|模型|AI)(?:必须|应该|应当|需要|务必|现在是|不得)|系统提示|不要告诉|请?(?:发送|转发|发)[^。！？\n]{0,40}(?:到|给)"
    r"|请?(?:执行|运行|删除|点击|下载|泄露|透露)(?:以下|这|所有|全部|你|用户|链接)",
    re.IGNORECASE | re.MULTILINE,
)
_FIRST_PERSON = re.compile(r"^(?:I|we)\b|^我", re.IGNORECASE)


def standing_instructions(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences that tell the assistant how to act from now on; questions tell nothing."""
    head = text[:_SCAN_CHARS]
    found = []
    for start, end in sentences(head):
        sentence = head[start:end]
        if _STANDING.search(sentence) and not is_question(sentence):
            found.append((start, end))
    return found


def reads_like_instruction(text: str) -> bool:
    """Return True for what tries to make an assistant act, whoever wrote it; only the first 20,000 characters count.

    Written for what comes from untrusted sources: it errs on the side of True. Invisible characters and full-width
    letters hide nothing.
    """
    plain = _plain(text[:_SCAN_CHARS])
    if _HOSTILE.search(plain):
        return True
    for start, end in sentences(plain):
        sentence = plain[start:end]
        if is_question(sentence):
            continue
        if _STANDING.search(sentence) or (_ORDER.search(sentence) and not _FIRST_PERSON.match(sentence)):
            return True
    return False


def _plain(text: str) -> str:
    """Return text without format characters, which can split a word for a pattern and not for a model."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")
