"""Says whether a text states what its speaker likes, avoids or cannot have. Pure."""

from __future__ import annotations

import re

_SCAN_CHARS = 1_000
_STATED = re.compile(
    r"\bI(?:['’]m|['’]ve| am| have)?\b[^.!?\n]{0,40}?\b(?:prefer|dislike|hate|love|enjoy|avoid|favou?r|allergic|"
    r"avers\w+|vegan|vegetarian|intoleran\w+|can(?:no|['’])t (?:stand|eat|bear|handle)|"
    r"don['’]t (?:like|enjoy|eat|drink)|not (?:a fan|interested|into|keen)|fan of|sensitive to|afraid|firmly believe|"
    r"find .{1,40} (?:boring|distracting|tedious|uncomfortable|unengaging|off-putting)|"
    r"only (?:eat|drink|buy|use|watch|stay))"
    r"|\bmy (?:favou?rite|preference)\b"
    r"|我(?:最|很|非常|特别|更|比较)?(?:不)?(?:喜欢|爱吃|爱喝|讨厌|偏好)|我(?:从来)?不(?:吃|喝|碰)|我对.{1,10}过敏",
    re.IGNORECASE,
)


def states_preference(text: str) -> bool:
    """Return True for "I avoid dairy" or "我不吃辣", by pattern; only the first 1,000 characters are looked at."""
    return _STATED.search(text[:_SCAN_CHARS]) is not None
