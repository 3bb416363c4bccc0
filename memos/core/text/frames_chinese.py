"""Read short Chinese statements as a subject, a predicate and a value: "我住在北京。" says where the speaker lives."""

from __future__ import annotations

import re
from typing import NamedTuple

from memos.core.text.caches import cached_by_text

SINGLE = frozenset({"live", "work", "named"})
"""Predicates with one value at a time."""

_HAN = re.compile(r"[\u3400-\u9fff]")
_CHARS = 60
_CLAUSE = re.compile(r"[，。；！？!?,;]")
_SUBJECT = r"(?P<subject>[我咱俺]们?的?[^，。住搬在去叫是开学打喝吃养用坐骑看练教弹]{0,4}|)"
_WHEN = (
    r"(?:现在|如今|目前|最近|已经|刚|终于|又|就|都|每[天周月年][一二三四五六日天]?|周[一二三四五六日天]|今年|去年|上个?[月周]|"
    r"昨天|今天|以后|改|从.{1,5}起|\d+月|[一二三四五六七八九十]+月)*"
)
_PREDICATES = {
    "live": re.compile(
        rf"^{_SUBJECT}{_WHEN}(?:住在|住到|住|搬家?到|搬去|搬进|迁到|定居在?|搬回)了?(?P<value>[^了]{{1,12}}?)了?$"
    ),
    "work": re.compile(
        rf"^{_SUBJECT}{_WHEN}(?:(?:在|去|到)(?P<value>[^，。]{{1,10}}?)(?:工作|上班|任职|就职)|"
        r"(?:入职|加入|跳槽到|跳槽去)了?(?P<joined>[^，。了]{1,10}))了?$"
    ),
    "named": re.compile(
        r"^(?P<subject>.{1,8}?)(?:现在|改|已经|以后)*(?:名叫|改名叫|改叫|叫)(?P<value>[^，。了]{1,8})了?$"
    ),
    "verb": re.compile(
        rf"^{_SUBJECT}{_WHEN}(?P<verb>[开学打喝吃养用坐骑看练教弹])(?:着|的是|了)?(?P<value>[^，。了]{{1,10}})了?$"
    ),
}
_NOW = re.compile(r"现在|如今|目前|改|换")
_GIVES_UP = re.compile(
    r"^(?P<what>.{1,10}?)(?:也|就|都|我们?|已经)*(?:不再|不想|不能|不用|不|没法)(?P<verb>[^是对太错见知]{1,2}?)(?:成)?了$"
)
_OVER = re.compile(
    r"^(?P<what>.{2,10}?)(?:也|就|都|已经|被)*(?:取消|泡汤|作废|黄|停|结束|退|卖|戒|延期)(?:掉|订|租)?了$"
)


class ChineseFrame(NamedTuple):
    """What a statement says: of whom, which attribute, what value, and whether it says that this is so now."""

    subject: str
    predicate: str
    value: str
    of_now: bool


def is_chinese(text: str) -> bool:
    """Return True if a text has Chinese characters."""
    return _HAN.search(text) is not None


@cached_by_text(maxsize=1024)
def read_chinese(text: str) -> ChineseFrame | None:
    """Return the frame of the first clause, None if it has none that is sure."""
    clause = _CLAUSE.split(text[:_CHARS].strip(), maxsplit=1)[0]
    for predicate, pattern in _PREDICATES.items():
        found = pattern.match(clause)
        if found is None:
            continue
        groups = found.groupdict()
        value = groups["value"] or groups.get("joined") or ""
        name = predicate if predicate != "verb" else f"verb {groups['verb']}"
        subject = re.sub(r"^[我咱俺]们?的?", "我", groups["subject"] or "我")
        return ChineseFrame(subject, name, value, _NOW.search(clause) is not None)
    return None


def gives_up(older: str, newer: str) -> bool:
    """Return True if the first clause of `newer` says that something which `older` tells of is over.

    "法语不学了" (what, then a denied verb that the older statement has) or "云南的旅行取消了".
    """
    clause = _CLAUSE.split(newer[:_CHARS].strip(), maxsplit=1)[0]
    for pattern in (_GIVES_UP, _OVER):
        found = pattern.match(clause)
        if found is None:
            continue
        verb = found.groupdict().get("verb")
        if _shares_a_word(found["what"], older) and (verb is None or verb[0] in older):
            return True
    return False


_COMMON = frozenset({"我们", "咱们", "现在", "已经", "今天", "明天", "昨天", "今年", "这个", "那个"})


def _shares_a_word(one: str, other: str) -> bool:
    """Return True if two texts share two neighbouring characters that are no mere function word."""
    pairs = {one[at : at + 2] for at in range(len(one) - 1)}
    return any(pair in other for pair in pairs - _COMMON if _HAN.search(pair[0]) and _HAN.search(pair[1]))
