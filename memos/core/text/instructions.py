"""Find instructions to an assistant: a user's standing orders, and orders hidden in pages and tool output.

By pattern, for English and Chinese and the languages of `wording_by_language`, with the commonest hostile phrases in
others.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from memos.core.text import wording_by_language
from memos.core.text.caches import cached_by_text
from memos.core.text.preferences import states_preference
from memos.core.text.sentences import is_question, sentences
from memos.core.text.validation import is_invisible

_VAGUE = r"(?!(?:that|this|it|you (?:updated|posted)|in mind|your (?:message|question|point)|up\b|going\b))"
_COMMITTED_ONWARD = re.compile(
    r"\b(?:from (?:now|here|today) on(?:wards?)?|from this point|going forward|in (?:the )?future|always|never|"
    r"every (?:day|morning|evening|"
    r"week|month|time|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|each (?:day|morning|week|time)|whenever|next "
    r"time|no longer|any ?more|until (?:you|further)|for (?:all )?(?:the )?(?:rest|future))\b|以后|今后|从现在(?:起|"
    r"开始)|往后|每次|每天|每周|每月|每个月|永远|一直|始终|下次|不再",
    re.IGNORECASE,
)
# A deed that is itself for later, and one that lasts only when the sentence says so.
_LATER = re.compile(
    r"\bI(?:['’]ll| will| promise to| promise I['’]ll) (?:also |be sure to |make sure to |definitely |certainly |"
    r"gladly )*"
    rf"(?:remind you (?!(?:of why|why|that)\b)\w|remember (?:that |your |you |to )\w|notify you|follow up|get back "
    rf"to you|ping you|alert you|keep you (?:updated|posted|informed)|keep (?:an eye on|track of) {_VAGUE}\w|"
    rf"watch (?:for|out for) {_VAGUE}\w|"
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
# A condition on somebody else's action is no promise; nor is a mere offer.
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


def is_commitment(sentence: str) -> bool:
    """Return True for "I'll remind you on Friday" and "I will never do that again", not for "I'd recommend a train"."""
    if _ONLY_IF.search(sentence) or _HOLLOW.search(sentence):
        return False
    return _LATER.search(sentence) is not None or (
        _LASTING.search(sentence) is not None and _COMMITTED_ONWARD.search(sentence) is not None
    )


def own_name(sentence: str) -> str | None:
    match = _NAME.search(sentence)
    return None if match is None else match.group("v") or match.group("h")


# A pasted megabyte is no order; what hides an order deeper in a page has to get through the reader as a short fact.
_SCAN_CHARS = 20_000


def _any_of(words: str) -> str:
    return f"(?:{'|'.join(word.replace('_', ' ') for word in words.split())})"


_VERB = (
    r"(?:be (?:brief|concise|honest|polite|direct|short|formal|informal|casual|careful|critical|specific|kind)|"
    r"give(?! up)|say(?! never)|summari[sz]e|apologi[sz]e|"
    + _any_of(
        """answer reply respond call use write speak talk keep avoid remember include format address start begin end
        finish translate treat check ask explain show tell send remind add put list mention cite quote refer provide
        skip prefer respect follow suggest recommend offer assume convert round confirm double-check test comment return
        output print sign greet sugarcoat lie guess share store save reveal book order schedule buy post search read
        stop help make consider proofread correct limit do"""
    )
    + r")\b"
)
_BEFORE = _any_of(
    """ok okay hey hi hello so and also but oh well yes yeah no thanks thank_you great good sure right actually then
    by_the_way btw one_more_thing important note"""
)
# A greeting, a bullet, a name: what may stand before an order.
_LEAD = (
    r"(?:^|[;:]\s*|,\s*(?:and|but|so)\s+|\s[–—-]\s)(?:[-*•]\s+|\d+[.)]\s+)?"
    rf"(?:{_BEFORE}[,.:! ]{{1,3}}|\w{{2,20}},\s){{0,4}}+"
)
_PLEASE = rf"{_LEAD}(?:please )?"
_ONWARD = (
    r"(?:from (?:now|here|today|this point|this moment) (?:on(?:wards?)?|forward)|starting (?:now|today)|going "
    r"forward|in (?:the )?future|henceforth|for all future \w+|until further notice)"
)
_ANSWER = r"(?:answer|reply|respond|speak|talk|write)(?: to)?(?: me| us)?(?: back)?(?: only)?"
_MANNER = _any_of(
    """English French German Spanish Italian Portuguese Dutch Chinese Mandarin Cantonese Japanese Korean Russian Arabic
    Hebrew Hindi Turkish Polish Swedish Danish Norwegian Finnish Greek Ukrainian Vietnamese Thai Indonesian Latin
    short brief plain simple full bullet at_most one two three no_more my"""
)
_NO_NAME = _any_of(
    """later back tomorrow tonight today when if at on in asap crazy old maybe or and any again before after soon
    whenever once now please first this next a an the by"""
)
_DEED = _any_of("worry cry mind hesitate let feel think laugh judge panic go leave be_sad")
_ANOTHER = _any_of("I we he she they it my our his her their the there this that everything things")
_MUST = r"you (?:should|must|have to|need to|are to)"
_DO_NOT = r"(?:do not|don['’]t)"
_ENGLISH = (
    rf"{_PLEASE}(?:always|never|only ever) {_VERB}",
    rf"{_LEAD}please {_DO_NOT}(?: ever)? (?!{_DEED}\b)\w",
    rf"{_LEAD}{_DO_NOT} (?:ever )?(?!(?:tell|ask) me (?:why|how|you|that|it|what)\b){_VERB} \w",
    rf"{_PLEASE}stop \w+ing\b",
    rf"{_PLEASE}remember to \w",
    rf"{_PLEASE}(?:just )?call me (?!{_NO_NAME}\b)\w",
    rf"{_LEAD}you (?:can|may) (?:just |also )?call me (?!{_NO_NAME}\b)\w",
    rf"{_PLEASE}keep (?:all )?(?:your )?(?:answers|replies|responses|messages|explanations|summaries) (?:\w+ )"
    rf"?(?:short|brief|concise|"
    r"simple|under|below|to \w+)",
    rf"{_LEAD}no (?:more )?(?:emojis?|jokes|bullet points|spoilers|markdown|small talk|exclamation marks)\b",
    rf"{_PLEASE}(?:always |only )?{_ANSWER} in {_MANNER}\b",
    rf"{_ONWARD},? (?!{_ANOTHER}(?:\b|['’]))(?:{_VERB}|{_DO_NOT} |"
    r"(?:please|you|always|never|only|when|whenever|if|no more)\b)",
    rf"{_PLEASE}(?:{_MUST} )?(?:{_DO_NOT} )?(?:always |only |never )?{_VERB}[^.!?\n]{{0,200}}\b{_ONWARD}\s*[.!]*$",
    rf"{_LEAD}(?:when|whenever|if|every time|each time|any ?time) (?:I|we|you) [^,.!?\n]{{1,80}}, ?(?:then )?"
    rf"(?:please|{_MUST}|always|never|{_DO_NOT} (?!{_DEED}\b)|only|(?:just )?{_VERB})",
    rf"{_LEAD}(?:I (?:want|need|expect)|I['’]d (?:like|prefer)|I would like) you to (?:always|never|only|stop)\b",
    rf"{_LEAD}(?:{_MUST}|(?:please )?make sure (?:to|you|that you)) (?:always|never|only)\b",
)
_HAN_LEAD = r"(?:^|[，,；;：:]\s*)"
_HAN_ONWARD = r"(?:从今以后|以后|今后|往后|从现在(?:开始|起)|从今天(?:开始|起))"
_HAN_ORDER = _any_of(
    """请 都 别 不要 不用 用 叫 你 每 只 先 要 务必 回答 回复 说 给我 帮我 称呼 当 如果 我问 我说 我让 我发 直接 尽量
    一律 记得 提醒"""
)
_HAN_LANGUAGE = _any_of("中文 英文 英语 日文 日语 法语 德语 韩语 西班牙语 俄语 普通话 粤语")
_HAN_NO_NAME = _any_of("起床 来 去 吃 回 做 干 怎么 什么 一声 一起")
_CHINESE = (
    rf"{_HAN_LEAD}(?:请你?|麻烦你?|务必)?{_HAN_ONWARD}[，, ]?{_HAN_ORDER}",
    rf"{_HAN_LEAD}(?:请|麻烦)你?(?:总是|一直|始终|每次|务必|永远|不要|别|勿|用|只|记得|记住|叫我|称呼我)",
    rf"{_HAN_LEAD}(?:请你?)?(?:不要再|别再|不许再|不准再)(?!见)",
    rf"{_HAN_LEAD}(?:你?可以|请你?|就)?(?:叫我|称呼我)(?!{_HAN_NO_NAME})[^\s，。！？]{{1,12}}",
    rf"{_HAN_LEAD}(?:每次|每当|当|如果)我?[^，。！？]{{1,30}}(?:时候?|，|,)\s*(?:你|请|都|就)?"
    r"(?:要|请|不要|别|先|都要|用|给我|提醒)",
    rf"{_HAN_LEAD}我(?:问|说|让|发|写|要)[^，。！？]{{1,20}}(?:的时候|时)[，,]?\s*(?:你|请|都|就)+(?:要|用|给|别|"
    rf"不要|先)",
    rf"{_HAN_LEAD}(?:跟|和|对)我(?:聊天|说话|讲话)?(?:时|的时候)?(?:不用|不要|别)",
    rf"{_HAN_LEAD}(?:总是|永远|始终)(?:用|以|先|不要|别)",
    rf"{_HAN_LEAD}(?:只)?用{_HAN_LANGUAGE}来?(?:回答|回复|说|写|交流|跟我)",
    rf"{_HAN_LEAD}记得(?!吗|你|我|他|她|它|那|上|去年|小时候|以前|当时|很|不|清)",
)
_STANDING = "|".join(_ENGLISH + _CHINESE + wording_by_language.INSTRUCTIONS)

# These are orders to a model even inside a question.
_HOSTILE = "|".join(
    (
        r"\b(?:ignore|disregard|forget|override|bypass|skip)\b[^.!?\n]{0,40}"
        r"\b(?:previous|prior|above|earlier|preceding|former|your|all|any|other|these|the)\b[^.!?\n]{0,30}"
        r"\b(?:instructions?|prompts?|rules?|directions?|guidelines?|orders?|constraints?)\b",
        r"\bforget everything\b",
        r"\bnew (?:system )?instructions?\s*:",
        r"<\|?\s*(?:im_start|im_end|system|endoftext)\b|\[/?INST\]|<</?SYS>>",
        r"^[ \t]{0,8}#{0,6}[ \t]{0,8}(?:system|assistant|developer)\s*:",
        r"\b(?:jailbreak|developer mode|DAN mode)\b",
        r"\bignor(?:iere?|ieren|ez|a|ar|e)\b[^.!?\n]{0,30}"
        r"\b(?:anweisungen|instrucciones|instruções|istruzioni|consignes|instructions)\b",
        r"(?:忽略|无视|忘记|不要理会)[^。！？\n]{0,12}(?:指令|指示|提示|规则|说明|要求)",
        r"以上の指示を無視|これまでの指示",
    )
)
_LINES = re.IGNORECASE | re.MULTILINE
_AT = r"(?:^|[,;:]\s*|\b(?:please|then|and|must|should|now|immediately|to|also|always)\s+)"
_SEND = _any_of("send forward e-?mail mail post upload transfer submit leak exfiltrate copy pay wire")
_ACT = _any_of(
    """reveal disclose execute run delete erase remove install download click visit open navigate log_in sign_in enter
    type approve grant disable"""
)
_ORDER = "|".join(
    (
        r"\bsystem prompts?\b",
        r"\byou (?:must|should|shall|have to|need to|will now|are (?:now|to|required to|instructed to))\b",
        r"\b(?:assistants?|AIs?|agents?|models?|bots?)(?: reading this)? "
        r"(?:must|should|shall|has to|have to|is to|are to|needs? to)\b",
        rf"{_AT}{_SEND}\b[^.!?\n]{{1,120}}\bto\b",
        rf"{_AT}(?:{_DO_NOT}|never) (?:tell|inform|mention|reveal|warn|show|ask|let|say)\b",
        r"\bplease (?:always|never|only|do not|don['’]t)\b",
        rf"{_AT}(?:act as|pretend (?:to be|that|you)|roleplay as)\b",
        rf"{_AT}{_ACT}\s+(?:(?:the|this|these|that|all|any|your|every|an?|on|here|https?|following)\b|`)",
        r"(?:你|助手|模型|AI)(?:必须|应该|应当|需要|务必|现在是|不得)",
        r"系统提示|不要告诉|(?:发送|转发|发)[^。！？\n]{0,40}(?:到|给)",
        r"(?:执行|运行|删除|点击|下载|泄露|透露)(?:以下|这|所有|全部|你|用户|链接)",
    )
)
_FIRST_PERSON = re.compile(r"\s*(?:(?:I|we)\b|我)", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:，；：]")
_TO_YOU = re.compile(r"(?:you|你)", re.IGNORECASE)


@cache
def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def standing_instructions(text: str) -> list[tuple[int, int]]:
    """Return the spans of sentences that tell the assistant how to act from now on; not questions."""
    head = text[:_SCAN_CHARS]
    found = []
    for start, end in sentences(head):
        sentence = head[start:end]
        if _compiled(_STANDING, re.IGNORECASE).search(sentence) and not is_question(sentence):
            found.append((start, end))
    return found


def reads_like_instruction(text: str) -> bool:
    """Return True for text that tries to make an assistant act; only the first 20,000 characters count."""
    # For untrusted sources: it errs on the side of True. Invisible characters and full-width letters hide nothing.
    plain = _plain(text[:_SCAN_CHARS])
    if _compiled(_HOSTILE, _LINES).search(plain):
        return True
    for start, end in sentences(plain):
        sentence = plain[start:end]
        if is_question(sentence):
            continue
        if _compiled(_STANDING, re.IGNORECASE).search(sentence) or any(
            not _of_oneself(sentence, found) for found in _compiled(_ORDER, _LINES).finditer(sentence)
        ):
            return True
    return False


def _of_oneself(sentence: str, order: re.Match[str]) -> bool:
    """Return True if the speaker orders themselves ("I must send it to Bo"); "I'm Bo, send it to me" does not count."""
    begins = max((found.end() for found in _CLAUSE.finditer(sentence, 0, order.start() + 1)), default=0)
    return _FIRST_PERSON.match(sentence, begins) is not None and not _TO_YOU.match(order.group(0))


def _plain(text: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFKC", text) if not is_invisible(sign))


_PREFERENCE_SCAN_CHARS = 1_000

_NO = r"(?:do not|don['’]?t|will not|won['’]?t|would not|wouldn['’]?t|cannot|can['’]?t|never|refuse to|no longer)"
_STRONGLY = (
    r"(?:(?:also|only|exclusively|strictly|strongly|really|always|usually|mostly|generally|particularly|especially|"
    r"absolutely|firmly|very|quite|specifically|deliberately|intentionally|personally|typically|often|still) ){0,3}"
)
# Of the speaker, in any field of life: what is sought or shunned, what the body or a creed forbids, what is a must.
_STANDS = re.compile(
    rf"\bI {_STRONGLY}(?:{_NO}|only|exclusively|strictly) {_STRONGLY}(?:like|enjoy|want|care for|eat|drink|consume|buy|"
    r"use|wear|watch|read|listen|play|book|stay|drive|fly|travel|visit|shop|consider|purchase|work|take|attend|engage|"
    r"tolerate|support|own|keep|date|invest|do well)\b"
    rf"|\bI {_STRONGLY}(?:despise|detest|loathe|prioriti[sz]e|value|insist|require|refuse|object|thrive|favou?r|"
    r"steer clear|stay away|shy away|gravitate|struggle with|lean towards?|opt for|stick to|abstain|adhere|oppose)\b"
    r"|\bI(?:['’]m| am) (?:\w+ ){0,2}(?:against|opposed to|uninterested|uncomfortable with|allergic|averse|"
    r"committed to|passionate about|advocate|believer|environmentalist|minimalist|introvert|extrovert|perfectionist|"
    r"picky|claustrophobic|colou?r ?blind|lactose|celiac|coeliac|diabetic)\b"
    r"|\bI have (?:an? |no |some |very )?(?:\w+[ -]){0,4}(?:allerg(?:y|ies)|intoleranc\w+|aversion|phobia|bias|fear|"
    r"diet|sensitivity|sensitive|preference|dislike|interest in|requirement|restriction|tolerance|disability|"
    r"family|patience|condition)\b"
    r"|\bI (?:follow|keep|maintain|observe|practi[sc]e) an? (?:\w+[ ,-]{1,2}){0,6}"
    r"(?:diet|lifestyle|regimen|routine|faith)\b"
    r"|\bI(?:['’]m| am) on an? (?:[\w-]+ ){0,4}diet\b"
    r"|\bmy (?:\w+ ){0,3}(?:allerg(?:y|ies)|intolerance|phobia|diet)\b"
    r"|\bI find (?:[^.!?\n]{1,80} )(?:un\w+ing|difficult|boring|tedious|stressful|overwhelming|distracting|exhausting|"
    r"annoying|intimidating|too \w+|off-putting|uncomfortable|hard)\b|\bI find it (?:difficult|hard|tedious|boring)\b"
    r"|\bI need (?:an? |my )?(?:[^.!?\n]{1,60} )?(?:with at least|that (?:is|has|are)|to be)\b",
    re.IGNORECASE,
)


def is_lasting_preference(text: str) -> bool:
    return states_preference(text) or _STANDS.search(text[:_PREFERENCE_SCAN_CHARS]) is not None or instructs(text)


def instructs(text: str) -> bool:
    return _has_instructions(text[:_PREFERENCE_SCAN_CHARS])


@cached_by_text(maxsize=4096)
def _has_instructions(head: str) -> bool:
    return bool(standing_instructions(head))
