"""Find statements of speakers about themselves, as attribute and value, and self-disclosures, by pattern.

Only single-valued attributes, since the key decides what a correction replaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import ModuleType

from memos.core.text import disclosures_chinese, disclosures_english

# Well-known places and tools, to tell a home from an employer and from software: "I left Paris", "we moved to Kafka".

_PLACES = frozenset(
    word.replace("_", " ")
    for word in """
    amsterdam athens auckland austin bangkok barcelona beijing belfast belgrade bengaluru berlin bern bogota boston
    bratislava brisbane brno brussels bucharest budapest cairo calgary cardiff chennai chicago cologne copenhagen
    dallas delhi denver detroit dubai dublin edinburgh florence frankfurt geneva glasgow gothenburg guangzhou
    hamburg hanoi helsinki houston istanbul jakarta jerusalem johannesburg karachi kolkata krakow kyiv kyoto lagos
    leeds leipzig lima lisbon liverpool ljubljana london lyon madrid manchester manila marseille melbourne miami
    milan minneapolis montreal moscow mumbai munich nairobi naples nashville nice osaka oslo ottawa oxford paris
    perth philadelphia phoenix pittsburgh porto portland prague pune reykjavik riga rome rotterdam salzburg santiago
    seattle seoul shanghai shenzhen singapore sofia stockholm stuttgart sydney taipei tallinn tbilisi tokyo toronto
    toulouse turin utrecht valencia vancouver venice vienna vilnius warsaw washington wellington zagreb zurich
    california texas florida ohio iowa oregon argentina australia austria belgium brazil bulgaria canada chile china
    colombia croatia cuba cyprus denmark egypt england estonia ethiopia finland france germany ghana greece hungary
    iceland india indonesia iran iraq ireland israel italy japan kenya korea latvia lebanon lithuania malaysia
    mexico morocco nepal netherlands nigeria norway pakistan peru philippines poland portugal romania russia
    scotland serbia slovakia slovenia spain sweden switzerland taiwan thailand tunisia turkey uganda ukraine uruguay
    venezuela vietnam wales zambia europe
    new_york los_angeles san_francisco san_diego hong_kong mexico_city buenos_aires rio_de_janeiro sao_paulo new_zealand
    south_africa new_orleans las_vegas tel_aviv cape_town united_states
    """.split()  # noqa: SIM905 - quoting each word says less
)
_HAN_PLACES = re.compile(
    r"(?:北京|上海|广州|深圳|天津|重庆|成都|武汉|西安|南京|杭州|苏州|青岛|大连|厦门|长沙|郑州|济南|合肥|福州|昆明|贵阳|"
    r"南宁|海口|三亚|沈阳|哈尔滨|长春|石家庄|太原|兰州|银川|西宁|拉萨|乌鲁木齐|呼和浩特|南昌|宁波|无锡|珠海|佛山|东莞|"
    r"温州|香港|澳门|台北|高雄|东京|大阪|京都|首尔|新加坡|曼谷|伦敦|巴黎|柏林|纽约|洛杉矶|旧金山|多伦多|温哥华|悉尼|"
    r"墨尔本|罗马|莫斯科|美国|英国|法国|德国|日本|韩国|加拿大|澳大利亚|新西兰|意大利|西班牙|荷兰|瑞士|瑞典|挪威|俄罗斯|"
    r"泰国|越南|国内|老家|家乡)[市省]?"
)
_TOOLS = frozenset(
    """
    airflow angular ansible aws azure bazel bitbucket cassandra chrome clickhouse confluence datadog discord django
    docker elasticsearch elixir excel fastapi figma firebase firefox flask gcp git github gitlab go golang grafana
    graphql grpc helm heroku java javascript jenkins jira kafka kotlin kubernetes kustomize linear linux macos
    mariadb maven mongo mongodb mysql neo4j nginx node nomad notion oracle outlook pandas php podman polars postgres
    postgresql prometheus python pytorch qdrant rabbitmq react redis redshift rust scala sharepoint slack snowflake
    spark spring sqlite svelte swift teams tensorflow terraform trello typescript ubuntu vim vite vscode vue webpack
    windows zoom
    """.split()  # noqa: SIM905
)
_NOT_THERE = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july|august|september|"
    r"october|november|"
    r"december|plan|phase|chapter|stage|step|version|option|team|level|part|week|slide|sprint|room|gate|row|seat)"
    r"s?\b",
    re.IGNORECASE,
)
_NOBODY = frozenset("free fun myself me money nothing peanuts cash christmas home night nights them him her us".split())  # noqa: SIM905
_MARKED = re.compile(r"\d|[a-z][A-Z]|[_()<>'\"=]")


def is_place(name: str) -> bool:
    """Return True for a well-known city or country; False means unknown."""
    plain = _plain(name)
    return plain in _PLACES or _HAN_PLACES.fullmatch(plain) is not None


def _plain(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(sign for sign in decomposed if unicodedata.category(sign) != "Mn")
    return " ".join(bare.replace("-", " ").split())


_DISCLOSURE_CHARS = 1_000
_DISCLOSURE_HAN = re.compile(r"[\u4e00-\u9fff]")


class Kind(StrEnum):
    SELF = "self"
    RELATION = "relation"
    EVENT = "event"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class SelfDisclosure:
    kind: Kind
    start: int
    end: int


@cache
def _patterns(words: ModuleType) -> Mapping[Kind, re.Pattern[str]]:
    spoken = (words.SELF, words.RELATIONS, words.EVENTS, words.PLANS)
    joined = ("|".join(f"(?:{pattern})" for pattern in patterns) for patterns in spoken)
    return {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in zip(Kind, joined, strict=True)}


# Where a telling can begin; trying hundreds of alternatives at every letter takes eight times as long.
_STARTS = re.compile(
    r"\b(?:I['’]?(?:m|ve|d|ll)?|we|my|our|every|me)\b|\b(?-i:[A-Z])[\w'’\-]*(?= (?:is|and)\b)|^\W*", re.IGNORECASE
)
_HAN_ABOUT = re.compile(r"[我咱俺]|老家|家里|手机|电话|微信|邮箱|地址|号码|^(?:好消息是|对了|告诉你|刚|终于|已经|成功)")
# "I never had a dog", "I wasn't born here": a negated fact is not stated.
_DISCLOSURE_DENIED = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bno longer|\bwish|\bas if|\blike|\bthan|\bwhen|\bpretend\w*|\bthink|\bthought)"
    r"\s*$",
    re.IGNORECASE,
)


# Gone within the day, whatever is said of it.
_MOMENT = re.compile(
    r"\b(?:tonight|this (?:morning|afternoon|evening)|right now|in (?:a|an|\d+) (?:minutes?|hours?|sec\w*|bit|while)|"
    r"\d+ (?:minutes?|mins?|hours?) (?:away|late|early))\b|今晚|今早|今夜|现在[在正要]|待会|等会|等下|马上|刚要|一会儿",
    re.IGNORECASE,
)


def is_passing(sentence: str) -> bool:
    """Return True for what is not settled, or over within the day; the first 1,000 characters are checked."""
    head = sentence[:_DISCLOSURE_CHARS]
    unsettled = (disclosures_english.UNSETTLED, disclosures_chinese.UNSETTLED)
    return any(pattern.search(head) for pattern in (*unsettled, _MOMENT))


def self_disclosures(sentence: str) -> list[SelfDisclosure]:
    """Return lasting self-disclosures of a sentence in order, without overlaps; in the first 1,000 characters."""
    head = sentence[:_DISCLOSURE_CHARS]
    han = _DISCLOSURE_HAN.search(head) is not None
    words = disclosures_chinese if han else disclosures_english
    if words.UNSETTLED.search(head) or (han and _HAN_ABOUT.search(head) is None):
        return []
    told = [
        SelfDisclosure(kind, *match.span())
        for kind, match in _matches(head, han=han)
        if match.end() > match.start() and not _DISCLOSURE_DENIED.search(head[: match.start()])
    ]
    found = sorted(told, key=lambda each: (each.start, -each.end))
    near = words.NEAR.search(head) is not None
    kept: list[SelfDisclosure] = []
    for each in found:
        if (each.kind is not Kind.PLAN or not near) and (not kept or each.start >= kept[-1].end):
            kept.append(each)
    return kept


def _matches(head: str, *, han: bool) -> Iterator[tuple[Kind, re.Match[str]]]:
    if han:
        for kind, pattern in _patterns(disclosures_chinese).items():
            yield from ((kind, match) for match in pattern.finditer(head))
        return
    places = {0, *(match.start() for match in _STARTS.finditer(head))}
    for kind, pattern in _patterns(disclosures_english).items():
        yield from ((kind, match) for place in places if (match := pattern.match(head, place)) is not None)


@dataclass(frozen=True, slots=True)
class Statement:
    """The speaker's `attribute` is `value`, or was until `ended`; the span covers the whole match."""

    attribute: str
    value: str
    start: int
    end: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class ThirdPersonStatement:
    """A statement about somebody other than the speaker; `names` are casefolded ("my sister", "eva")."""

    names: frozenset[str]
    attribute: str
    value: str


# Small words only between names, and no name for whoever speaks: "in Lyon last week", "in Paris, I swim".
_CAPITAL = r"(?!I\b)[A-ZÀ-ÖØ-Þ][\w\u0300-\u036f'’\-]*"
_PLACE = rf"(?P<v>[^\W\d_a-z][\w\u0300-\u036f'’\-]*(?:[ ,]+(?:(?:de|la|le|du|of|am|an der) )*{_CAPITAL})*)"
_FROM = rf"[^\W\d_a-z][\w\u0300-\u036f'’\-]*(?: {_CAPITAL}){{0,4}}"
_NAME = (
    r"(?P<v>[A-ZÀ-ÖØ-Þ][\w\u0300-\u036f'’&.\-]*"
    r"(?: +(?:(?:of|and|&|de|du) )*(?!I\b)[A-ZÀ-ÖØ-Þ][\w\u0300-\u036f'’&.\-]*)*)"
)
# A dot or colon inside a word ends nothing: "ana@x.org", "10:30"; nor does that of "Dr."
_REST = r"(?P<v>(?:[^.,;:!?\n。，；！？]|[.:](?=\w)|(?<=\bDr)\.|(?<=\bM[rs])\.|(?<=\bMrs)\.){1,80})"
_HAVE = r"(?:['’]ve| have| just| recently| finally)*"
_BE = r"(?:['’]m| am)"
_ADVERB = r"(?: (?:now|currently|actually|still|also|just))?"
_HAN = (
    r"(?!一起|这里|那里|这儿|那儿|附近|一[个家所间]|家里?|新|这|那|哪|公司|学校|酒店|同一)"
    r"(?P<v>[^，。！？；,.!?;\s]{1,30}?)"
)
_HAN_WHEN = (
    r"(?:现在|目前|已经|刚刚?|才|又|就|终于|最近|一直|都|也|前几天|上个?(?:月|周|星期)|去年|今年|前年|"
    r"(?:\d{4}|[\d一二三四五六七八九十]{1,3})[年月](?:[初中底]|份)?|年[初底]|春节后|毕业后)*"
)
_HAN_WITH = r"(?:[和跟与][^，。！？；\s]{1,6}?)?"
_HAN_STOP = r"(?=[了啦呢呀啊哦吧]|[，。！？；,.!?;\s]|$|[^\w，。])"
_HAN_SOME = r"[^，。！？；,.!?;\s]{1,15}"
_AS = r"(?: as [^.,;:!?\n]{1,40}?)?"
# "I work for people who pay badly and live in Monaco" says nothing of where I live.
_AND_I = rf"(?:(?!\b(?:who|that|which|where|s?he|they|you)\b)[^.,;:!?\n]){{1,60}}?,? and{_ADVERB}"
# What a value ends before: since when it is so.
_SINCE_WHEN = re.compile(
    r" (?:from|since|as of|starting(?: from)?) (?:now|today|tomorrow|yesterday|(?:next|last|this) \w+|[\d(].*"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:January|February|March|April|May|June|July|August|September|"
    r"October|November|December)\b.*)(?: on(?:wards?)?)?$"
)

_PATTERNS = (
    ("residence", rf"\b(?:I|[Ww]e){_HAVE}{_ADVERB} (?:moved|relocated) (?:over |back )?to {_PLACE}"),
    ("residence", rf"\b(?:I|[Ww]e){_HAVE}{_ADVERB} moved (?:back )?from {_FROM} to {_PLACE}"),
    ("residence", rf"\b(?:I|[Ww]e){_ADVERB} live{_ADVERB} in {_PLACE}"),
    ("residence", rf"\bI{_BE}{_ADVERB} (?:living|based) in {_PLACE}"),
    ("residence", rf"\bI{_ADVERB} work{_ADVERB} (?:at|for|as) {_AND_I} live{_ADVERB} in {_PLACE}"),
    ("employer", rf"\bI{_ADVERB} work{_ADVERB}{_AS} (?:at|for) (?:the )?{_NAME}"),
    ("employer", rf"\bI{_ADVERB} live{_ADVERB} in {_AND_I} work{_ADVERB}{_AS} (?:at|for) (?:the )?{_NAME}"),
    ("employer", rf"\bI{_BE}{_ADVERB} working (?:at|for) {_NAME}"),
    ("employer", rf"\bI{_HAVE} (?:joined|started (?:at|with)|started working (?:at|for)) {_NAME}"),
    (
        "employer",
        rf"(?:^(?:(?:[Jj]ust|[Rr]ecently|[Ff]inally|[Ss]o) )*|\bI{_HAVE} )[Ss]tarted (?:a|my) (?:new )?"
        rf"(?:job|role|position) (?:at|with) {_NAME}",
    ),
    ("name", rf"\b[Mm]y name is {_NAME}"),
    (
        "my:{0}",
        r"\b[Mm]y (?:new |current )?(?P<a>phone number|phone|laptop|car|email|e-mail|address|birthday|job|flight|"
        r"doctor|dentist|landlord|flat|bike|favou?rite [a-z]+) "
        rf"(?:is|was|are|will be) (?!not\b|no longer\b|never\b)(?:now |actually |currently )?{_REST}",
    ),
    (
        "residence",
        rf"我们?{_HAN_WITH}{_HAN_WHEN}(?:住在|搬[到去来]了?|定居(?:在|于|到)?了?|移居到?了?){_HAN}{_HAN_STOP}",
    ),
    (
        "residence",
        r"我[^他她它你您家。！？]{1,25}?[，,](?:但是?|不过)?(?:现在|目前|如今)"
        rf"(?:住在|定居(?:在|于)?|搬[到去]了?){_HAN}{_HAN_STOP}",
    ),
    ("employer", rf"我(?:现在|目前)?在{_HAN}(?:工作|上班)"),
    ("employer", rf"(?:我|^){_HAN_WHEN}(?:入职了?|跳槽[去到]了?){_HAN}{_HAN_STOP}"),
    ("employer", rf"我(?:现在)?(?:住在|叫|是){_HAN_SOME}[，,]\s*(?:现在|目前)?在{_HAN}(?:工作|上班)"),
    ("name", rf"我(?:的名字)?(?:叫|是叫)(?!我|你|他|她|了|什么|外卖|大家){_HAN}(?=[，。！？；,.!?;\s]|$)"),
    ("my:favorite {0}", rf"我最(?:喜欢|爱)的(?P<a>[^是，。！？；,.!?;\s]{{1,8}})是{_HAN}(?=[，。！？；,.!?;\s]|$)"),
    ("my:{0}", rf"我的(?P<a>手机|电话|电脑|邮箱|地址|生日|工作)(?:现在)?是{_HAN}(?=[，。！？；,.!?;\s]|$)"),
)
_OVER = r"(?: any ?more| any longer| these days)"
_JOB = r"(?:my (?:old )?(?:job|position|role) (?:at|with) )?"
_DAY = r"(?!(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August)"
_WHEN = r"(?:the )?(?:\d|(?:early|late|mid) |(?:last|this) |(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|" + (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December)\b)"
)
_HAN_ONCE = r"(?:以前|之前|曾经?|过去|原来|从前)"
_HAN_END = r"(?=的时候|[了，。！？；,.!?;\s]|$)"
_PAST = (
    ("residence", rf"\b(?:I|[Ww]e) (?:used to|no longer) live in {_PLACE}"),
    ("residence", rf"\b(?:I|[Ww]e) (?:don['’]t|do not) live in {_PLACE}{_OVER}"),
    ("residence", rf"\b(?:I|[Ww]e) (?:once |previously |formerly )?lived in {_PLACE}"),
    ("residence", rf"\b(?:I|[Ww]e){_HAVE} moved (?:away from|out of|from|back from) {_PLACE}"),
    ("employer", rf"\bI (?:used to|no longer) work(?: as [^.,;:!?\n]{{1,40}}?)? (?:at|for) {_NAME}"),
    ("employer", rf"\bI (?:don['’]t|do not) work (?:at|for) {_NAME}{_OVER}"),
    ("employer", rf"\bI{_HAVE} stopped working (?:at|for) {_NAME}"),
    ("employer", rf"\bI{_HAVE} (?:resigned|retired) from {_NAME}"),
    # "I left Maya at the station" is about no employer.
    ("employer", rf"\bI{_HAVE} (?:left|quit) {_JOB}{_DAY}(?>{_NAME})(?! (?:at|in|with|behind|alone|on)\b)"),
    ("employer", rf"\bI{_HAVE} quit {_JOB}{_DAY}(?>{_NAME}) (?:in|on) {_WHEN}"),
    ("employer", rf"\bI (?:was|got|have been) (?:laid off|fired|let go) (?:from|by|at) {_NAME}"),
    ("name", rf"\b[Mm]y name used to be {_NAME}"),
    ("residence", rf"我们?{_HAN_ONCE}(?:一直|都)?住(?:在|过){_HAN}{_HAN_END}"),
    ("residence", rf"我们?{_HAN_ONCE}在{_HAN}住"),
    ("residence", rf"我们?(?:已经)?不再住在{_HAN}{_HAN_END}"),
    ("residence", rf"我们?(?:现在|已经)?不住在{_HAN}了"),
    ("residence", rf"我们?(?:已经|刚刚?)?从{_HAN}搬(?:走|出来|离|到|去)"),
    ("employer", rf"我{_HAN_ONCE}在{_HAN}(?:工作|上班)"),
    ("employer", rf"我(?:已经)?不再在{_HAN}(?:工作|上班)"),
    ("employer", rf"我(?:现在|已经)?不在{_HAN}(?:工作|上班)了"),
    ("employer", rf"我(?:已经|刚刚?)?从{_HAN}(?:离职|辞职)"),
    ("left", rf"\b(?:I|[Ww]e){_HAVE} left {_PLACE} (?:for good|(?:back )?in (?:19|20)\d\d|(?:\w+ )?years ago)\b"),
    (
        "left",
        r"我们?在?(?:\d{4}年|[\d一二两三四五六七八九十几多]+年前|前年|早就|毕业后)(?:就|已经|早就)*离开了?"
        rf"{_HAN}{_HAN_END}",
    ),
    ("name", rf"我{_HAN_ONCE}叫{_HAN}{_HAN_END}"),
)
# "My phone is broken" says how it is, not which one it is.
_HOW_IT_IS = re.compile(r"(?!(?:an?|the|my|our|one of) )[a-z'’\-]+(?: [a-z'’\-]+)*")
_SAYS_WHAT = ("my:favorite", "my:job")
_DENIED = re.compile(r"(?:don['’]t|do not|not|never|no longer|used to|不再?|没有?)\s*$")


# Somebody else, and the verb behind: "My sister Eva lives", "Eva has moved", "my boss is based".
_OTHERS = re.compile(
    rf"(?:\b[Mm]y (?P<kin>(?:(?:best|old|elder|older|younger|little|big) )?[a-z][a-z\-]+)(?:,? (?P<of>{_CAPITAL}),?)?"
    rf"|\b(?P<who>{_CAPITAL}(?: {_CAPITAL}){{0,2}})) "
    r"(?P<verb>lives|works|is|has|moved|relocated|joined|started)(?= )"
)
_SCAN_CHARS, _VALUE_CHARS = 4_000, 200
_OF_ME = {"lives": "live", "works": "work", "is": "am", "has": "have"}


@cache
def _compiled(patterns: tuple[tuple[str, str], ...]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((attribute, re.compile(pattern)) for attribute, pattern in patterns)


def statements(text: str) -> list[Statement]:
    """Return statements of a text about its speaker, in order, without denials and "used to"."""
    return _found(text, _compiled(_PATTERNS), ended=False)


def past_statements(text: str) -> list[Statement]:
    return _found(text, _compiled(_PAST), ended=True)


def third_person_statements(text: str) -> list[ThirdPersonStatement]:
    """Return statements about where others live or work, in order: "my sister Eva lives in Oslo"."""
    # The first 4,000 characters are checked.
    found = []
    for match in _OTHERS.finditer(text[:_SCAN_CHARS]):
        verb = match["verb"]
        stated = statements(f"I {_OF_ME.get(verb, verb)}{text[match.end() : match.end() + _VALUE_CHARS]}")
        if stated and stated[0].start == 0:
            names = [match["who"], match["of"], match["kin"] and f"my {match['kin']}"]
            folded = frozenset(name.casefold().replace("’", "'").removesuffix("'s") for name in names if name)
            found.append(ThirdPersonStatement(folded, stated[0].attribute, stated[0].value))
    return found


def _found(text: str, patterns: tuple[tuple[str, re.Pattern[str]], ...], *, ended: bool) -> list[Statement]:
    found: list[tuple[int, Statement]] = []
    for attribute, pattern in patterns:
        for match in pattern.finditer(text):
            # "I used to ... I live", "不住在"
            before = text[max(0, match.start() - 12) : match.start()]
            if not ended and (_DENIED.search(before) or "used to" in match.group(0)):
                continue
            groups = match.groupdict()
            named = attribute.format((groups.get("a") or "").lower().replace("favourite", "favorite"))
            value = groups["v"].strip(" .,'’-").removesuffix(" now").strip()
            name = _known(named, value)
            if name is None:
                continue
            if name.startswith("my:"):
                value = _SINCE_WHEN.sub("", value.removeprefix("on ") if name == "my:birthday" else value)
            how = name.startswith("my:") and not name.startswith(_SAYS_WHAT) and _HOW_IT_IS.fullmatch(value)
            if value and not how:
                found.append((match.start("v"), Statement(name, value, match.start(), match.end(), ended)))
    return [each for _, each in sorted(found, key=lambda one: (one[1].start, one[0], -one[1].end))]


def _known(attribute: str, value: str) -> str | None:
    """Return the attribute a value fits: nobody lives in PostgreSQL, and leaving Paris ends no job."""
    if attribute == "left":
        return "residence" if is_place(value) else None
    if attribute not in ("residence", "employer"):
        return attribute
    if _NOT_THERE.match(value):  # days, months, "Phase 2"
        return None
    if attribute == "residence":
        return attribute if _plain(value) not in _TOOLS and _MARKED.search(value) is None else None
    return attribute if _plain(value) not in _NOBODY and not is_place(value) else None


def key_of(subject: str, attribute: str) -> str:
    return unicodedata.normalize("NFC", f"{' '.join(subject.casefold().split())}|{attribute}")
