"""Says whether a text states what holds from now on: a taste, a need, a limit, or how its speaker wants things done.

Such a memory matters to requests that share no word with it. Pure; by words and forms alone, so that it also takes
what only sounds like it: who uses it has to bound what that costs.
"""

from __future__ import annotations

import re

from memos.core.text.instructions import standing_instructions
from memos.core.text.preferences import states_preference

_SCAN_CHARS = 1_000

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


def stands(text: str) -> bool:
    """Say whether a text states a taste, a need, a limit or a way to do things that holds on."""
    return states_preference(text) or _STANDS.search(text[:_SCAN_CHARS]) is not None or instructs(text)


def instructs(text: str) -> bool:
    """Say whether a text tells its reader how to do something each time it comes up."""
    return bool(standing_instructions(text[:_SCAN_CHARS]))
