"""Patterns for the documented formats of keys, tokens and passwords.

Every pattern is linear: it begins with a fixed prefix or at the start of a run, is possessive, and looks ahead a fixed
length only. It ends where no letter or digit follows, so masking one secret creates no other.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_MARK = re.compile(r"-{4,5} ?(?P<what>BEGIN|END) (?:[A-Z0-9]{1,12}+ ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
# A key of 16,384 bits has 13,000 characters; a PGP block may hold several, with their certificates.
_LONGEST = 200_000
# How the lines of a key are parted: by line ends, also spelt \n as in JSON, with quotation marks, "+" or ">".
_GAP = r"(?:[\s>|\"',+]|\\[nr])"
_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|Subject|x-[a-z-]{1,30}): [^\n\\]{1,200}"
_LINE = r"[A-Za-z0-9+/=_-]{16,}+"
_CUT_END = r"-{1,5}(?: ?E(?:N(?:D[A-Z0-9 ]{0,50}-{0,4})?)?)?\s*\Z"
_BODY_AFTER = re.compile(
    rf"(?:{_GAP}*+(?:{_HEADER}|{_LINE}))*+(?:{_GAP}*+[A-Za-z0-9+/=]{{1,63}}\s*(?:\Z|{_CUT_END})|{_GAP}*+{_CUT_END})?"
)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{16}")
_BODY_BEFORE = re.compile(r"(?:(?:[\s>|\"',+]|[nr]\\)*+[A-Za-z0-9+/=]{16,}+)++")
_FIRST_CUT = re.compile(r"(?:[\s>|]|[nr]\\)++[A-Za-z0-9+/=]{1,15}\s*\Z")


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys, in order; a lone begin or end marker does not count."""
    marks = list(_MARK.finditer(text))
    done = 0
    for place, mark in enumerate(marks):
        if mark.start() < done:
            continue
        after = marks[place + 1] if place + 1 < len(marks) else None
        if mark["what"] == "END":
            start = _begin(text, max(done, marks[place - 1].end() if place else 0), mark.start())
            if start < mark.start():
                done = mark.end()
                yield start, done
            continue
        limit = after.start() if after is not None else len(text)
        if after is not None and after["what"] == "END" and limit - mark.end() <= _LONGEST:
            if _KEY_LINE.search(text, mark.end(), limit):
                done = after.end()
                yield mark.start(), done
            continue
        found = _BODY_AFTER.match(text, mark.end(), limit)
        if found is not None and _KEY_LINE.search(text, mark.end(), found.end()):
            done = found.end()
            yield mark.start(), done


def _begin(text: str, floor: int, end: int) -> int:
    before = text[floor:end][::-1]
    found = _BODY_BEFORE.match(before)
    if found is None:
        return end
    rest = _FIRST_CUT.match(before, found.end())
    return end - (rest or found).end()


_START = r"(?<![A-Za-z0-9])"
_RUN = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9])"


def _always(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Format:
    """A secret format: its pattern is tried where one of the lower-case `needles` occurs."""

    # The group `secret`, or else the whole match, is masked if it is `real`.

    kind: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    real: Callable[[str], bool] = _always


def _token(kind: str, pattern: str, *needles: str, real: Callable[[str], bool] = _always) -> Format:
    return Format(kind, needles, re.compile(_START + pattern), real)


def _named(kind: str, pattern: str, *needles: str, real: Callable[[str], bool] = _always) -> Format:
    return Format(kind, needles, re.compile(pattern), real)


def _has_digit(text: str) -> bool:
    return any(sign.isdigit() for sign in text)


def _is_opaque(text: str) -> bool:
    """Return True if a token looks generated: "Bearer authentication" is not a token."""
    return _has_digit(text) and (len(text) >= 8)


def _is_pair(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return False


def _is_discord(text: str) -> bool:
    head = text.split(".", maxsplit=1)[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).isdigit()
    except binascii.Error:
        return False


def _is_literal(text: str) -> bool:
    return not (text[0] in "<[{" or text.startswith(("${", "$(", "%(", "%7B")) or set(text) <= set("*.xX…"))


# Cloud

_CLOUD = (
    _token("aws key", rf"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{{16}}{_END}", "akia", "asia", "abia", "acca"),
    _named(
        "aws key",
        r"(?i:aws[_ -]?secret[_ -]?(?:access[_ -]?)?key|secret[_ -]?access[_ -]?key)(?i:[_ -]?id)?\\?[\"']?"
        r"\s{0,3}(?:=>|[=:]|is\b)\s{0,3}\\?[\"']?(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "secret",
    ),
    _named(
        "aws key",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?:\s{1,3}(?:and|und|et|y|/)\s{1,3}|[\s:,;/|]{1,4})\\?[\"']?"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        "akia", "asia",
    ),
    _token("google key", r"AIza[0-9A-Za-z_-]{35,}+", "aiza"),
    _token("google token", r"ya29\.[0-9A-Za-z_-]{20,}+", "ya29."),
    _token("google token", r"1//0[0-9A-Za-z_-]{30,}+", "1//0"),
    _token("google token", r"GOCSPX-[0-9A-Za-z_-]{20,}+", "gocspx-"),
    _named(
        "azure key", r"(?i:AccountKey|SharedAccessKey|AccessKey)=(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})",
        "accesskey=", "accountkey=",
    ),
    _named(
        "azure token",
        r"[?&]sig=(?P<secret>(?:[A-Za-z0-9+/]|%[0-9A-Fa-f]{2}){40,}+=?)", "?sig=", "&sig=",
    ),
    Format(
        "azure key", tuple(f"{digit}q~" for digit in range(10)),
        re.compile(r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}+"),
    ),
    _token("alibaba key", r"LTAI[0-9A-Za-z]{12,}+", "ltai", real=_has_digit),
    _token("tencent key", r"AKID[0-9A-Za-z]{32,}+", "akid"),
    _token("digitalocean token", r"do[opr]_v1_[a-f0-9]{64}[A-Za-z0-9]*+", "_v1_"),
    _token("databricks token", rf"dapi[a-f0-9]{{32}}(?:-\d)?{_END}", "dapi"),
    _token("heroku key", r"HRKU-[0-9A-Za-z_-]{36,}+", "hrku-"),
    _token("vault token", r"hv[sbr]\.[0-9A-Za-z_-]{24,}+", "hvs.", "hvb.", "hvr."),
    _token("terraform token", r"[0-9A-Za-z]{14}\.atlasv1\.[0-9A-Za-z_=-]{60,}+", ".atlasv1."),
    _token("pulumi token", rf"pul-[a-f0-9]{{40}}{_END}", "pul-"),
    _token("supabase token", r"sb(?:p_|_secret_)[0-9A-Za-z_-]{30,}+", "sbp_", "sb_secret_"),
    _token("planetscale token", r"pscale_(?:tkn|pw|oauth)_[0-9A-Za-z_.-]{30,}+", "pscale_"),
    _token("doppler token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[0-9A-Za-z_.-]{40,}+", "dp."),
)  # fmt: skip

# Language models

_MODELS = (
    _token("anthropic key", r"sk-ant-[0-9A-Za-z_-]{20,}+", "sk-ant-"),
    _token("openai key", r"sk-(?:proj|svcacct|admin|None|or-v1|lf)-[0-9A-Za-z_-]{20,}+", "sk-"),
    _token("openai key", r"sk-[0-9A-Za-z]{32,}+", "sk-", real=_has_digit),
    _token("hugging face token", r"(?:hf_|api_org_)[0-9A-Za-z]{30,}+", "hf_", "api_org_"),
    _token("groq key", r"gsk_[0-9A-Za-z]{40,}+", "gsk_"),
    _token("xai key", r"xai-[0-9A-Za-z]{60,}+", "xai-"),
    _token("perplexity key", r"pplx-[0-9A-Za-z]{40,}+", "pplx-"),
    _token("replicate token", r"r8_[0-9A-Za-z]{37,}+", "r8_"),
    _token("langsmith key", r"lsv2_(?:pt|sk)_[0-9a-f]{32}[0-9A-Za-z_]*+", "lsv2_"),
    _token("tavily key", r"tvly-[0-9A-Za-z_-]{28,}+", "tvly-", real=_has_digit),
)

# Code, packages, work

_WORK = (
    _token("github token", r"gh[pousr]_[0-9A-Za-z]{36,}+", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _token("github token", r"github_pat_[0-9A-Za-z_]{40,}+", "github_pat_"),
    _token(
        "gitlab token",
        r"gl(?:pat|dt|ft|rt|cbt|ptt|imt|agent|soat|ffct|wt)-[0-9A-Za-z_-]{20,}+(?:\.[0-9a-z]{2}\.[0-9A-Za-z]{9,}+)?",
        "gl",
    ),
    _token("gitlab token", r"(?:gloas-[0-9A-Za-z_-]{40,}+|GR1348941[0-9A-Za-z_-]{20,}+)", "gloas-", "gr1348941"),
    _token("npm token", r"npm_[0-9A-Za-z]{36,}+", "npm_"),
    _named("npm token", r":_authToken\s{0,3}=\s{0,3}(?P<secret>[0-9A-Za-z_-]{16,}+)", ":_authtoken"),
    _token("pypi token", r"pypi-Ag[0-9A-Za-z_-]{50,}+", "pypi-ag"),
    _token("rubygems key", rf"rubygems_[a-f0-9]{{48}}{_END}", "rubygems_"),
    _token("docker token", r"dckr_(?:pat|oat)_[0-9A-Za-z_-]{20,}+", "dckr_"),
    _token("artifactory key", r"AKC[0-9A-Za-z]{60,}+", "akc"),
    _token("atlassian token", r"AT(?:ATT3|CTT3|BB)[0-9A-Za-z_=-]{30,}+", "atatt3", "atctt3", "atbb", real=_has_digit),
    _token("linear key", r"lin_(?:api|oauth)_[0-9A-Za-z]{40,}+", "lin_"),
    _token("notion token", r"(?:ntn_[0-9A-Za-z]{40,}+|secret_[0-9A-Za-z]{43,}+)", "ntn_", "secret_", real=_has_digit),
    _token("airtable token", rf"pat[0-9A-Za-z]{{14}}\.[a-f0-9]{{64}}{_END}", "pat"),
    _token("figma token", r"fig[dur]_[0-9A-Za-z_-]{40,}+", "figd_", "figu_", "figr_"),
    _token("postman key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}[0-9A-Za-z]*+", "pmak-"),
    _token("grafana token", r"gl(?:sa|c)_[0-9A-Za-z+/=_]{32,}+", "glsa_", "glc_"),
    _token("sentry token", r"sntry[su]_[0-9A-Za-z+/=_-]{40,}+", "sntrys_", "sntryu_"),
    _token("new relic key", r"NRAK-[0-9A-Z]{27}[0-9A-Za-z]*+", "nrak-"),
)

# Messages, payment, shops

_SERVICES = (
    _token("slack token", r"xox[a-z](?:\.xox[a-z])?-[0-9A-Za-z-]{10,}+", "xox", real=_has_digit),
    _token("slack token", r"xapp-\d-[0-9A-Za-z-]{10,}+", "xapp-"),
    _named(
        "slack webhook",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<secret>[0-9A-Za-z_/+-]{20,}+)",
        "hooks.slack",
    ),
    Format(
        "discord token", ("m", "n", "o"),
        re.compile(_RUN + r"[MNO][0-9A-Za-z_-]{22,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,}+"), _is_discord,
    ),
    _named(
        "discord webhook", r"discord(?:app)?\.com/api/webhooks/\d{1,25}/(?P<secret>[0-9A-Za-z_-]{50,}+)",
        "/api/webhooks/",
    ),
    Format(
        "telegram token", (":aa",),
        re.compile(r"(?:(?<![0-9A-Za-z])|(?<=bot))\d{8,10}:AA[0-9A-Za-z_-]{33,}+"),
    ),
    _token("twilio key", rf"(?:AC|SK)[0-9a-f]{{32}}{_END}", "ac", "sk"),
    _token("sendgrid key", r"SG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{40,}+", "sg."),
    _token("mailgun key", rf"key-[0-9a-f]{{32}}{_END}", "key-"),
    _token("mailchimp key", rf"[0-9a-f]{{32}}-us\d{{1,2}}{_END}", "-us"),
    _token("stripe key", r"[rs]k_(?:live|test|prod)_[0-9A-Za-z]{16,}+", "k_live_", "k_test_", "k_prod_"),
    _token("stripe key", r"whsec_[0-9A-Za-z+/=]{24,}+", "whsec_"),
    _token("square token", r"sq0[a-z]{3}-[0-9A-Za-z_-]{22,}+", "sq0"),
    _token("shopify token", rf"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{{32}}{_END}", "shp"),
    _token("facebook token", r"EAA[0-9A-Za-z]{80,}+", "eaa"),
)  # fmt: skip

_GENERAL = (
    Format(
        "json web token", (".eyj",),
        re.compile(_RUN + r"[0-9A-Za-z_-]{10,}+\.eyJ[0-9A-Za-z_-]{8,}+(?:\.[0-9A-Za-z_-]*+)?"),
    ),
    Format(
        "json web token", ("eyj",),
        re.compile(_RUN + r"eyJ[0-9A-Za-z_-]{16,}+\.[0-9A-Za-z_-]*+(?:\.[0-9A-Za-z_-]{8,}+){2}\.[0-9A-Za-z_-]{16,}+"),
    ),
    _named(
        "bearer token",
        r"(?i:\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:bearer|token|apikey|key)\s{1,3})"
        r"(?P<secret>[0-9A-Za-z._~+/=:-]{8,}+)",
        "authorization", real=_is_opaque,
    ),
    _named("bearer token", r"(?i:\bbearer\s{1,3})(?P<secret>[0-9A-Za-z._~+/-]{20,}+=*+)", "bearer", real=_has_digit),
    _named(
        "basic credentials",
        r"(?i:\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?basic\s{1,3})(?P<secret>[0-9A-Za-z+/]{6,}+=*+)",
        "authorization", real=_is_pair,
    ),
    _named(
        "api key",
        r"(?i:\b(?:x-api-key|api-key|private-token|x-auth-token|x-goog-api-key)\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)"
        r"(?P<secret>[0-9A-Za-z._~+/=-]{16,}+)",
        "api-key", "private-token", "auth-token", real=_has_digit,
    ),
    _named(
        "password",
        r"://[^\s:/?#@\\\"'<>]{0,256}+:(?P<secret>[^\s/\\\"'<>]{1,256})@(?=[0-9A-Za-z\[_.-])",
        "://", real=_is_literal,
    ),
    _named(
        "password",
        r"(?i:\b(?:server|data source|host|user id|uid|username|database|initial catalog)=)[^;\s]{1,100}+;\s?"
        r"(?:[A-Za-z ]{1,30}+=[^;\n]{0,100}+;\s?){0,8}?(?i:password|pwd)=(?P<secret>[^;\s\\\"']{1,200}+)",
        "password=", "pwd=", real=_is_literal,
    ),
    _named(
        "password",
        r"(?i:\b(?:host|hostaddr|dbname|user|port)=)[^\s=]{1,100}+ (?:[A-Za-z_]{1,30}+=[^\s=]{1,100}+ ){0,8}?"
        r"password=(?P<secret>[^\s\\\"']{1,200}+)",
        "password=", real=_is_literal,
    ),
    _named(
        "token in a link",
        r"(?i:[?&](?:password|passwd|pwd|(?:access|refresh|id|auth)_token|client_secret|api_?key|x-amz-signature|"
        r"x-amz-security-token|x-goog-signature)=)(?P<secret>[^\s&#\\\"'<>()\[\]]{6,}+)",
        "?", "&", real=_is_literal,
    ),
    _named(
        "wireguard key", r"(?i:\b(?:private|preshared)key)\s{0,3}=\s{0,3}(?P<secret>[A-Za-z0-9+/]{43}=)",
        "privatekey", "presharedkey",
    ),
    _token("age key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}[0-9A-Za-z]*+", "age-secret-key-1"),
    _named(
        "private key",
        r"Private-Lines:\s{0,3}\d{1,4}\s{1,4}(?P<secret>(?:[A-Za-z0-9+/=]{1,64}(?:\s{1,2}|\\n|\Z))++)",
        "private-lines:",
    ),
)  # fmt: skip

FORMATS: tuple[Format, ...] = (*_CLOUD, *_MODELS, *_WORK, *_SERVICES, *_GENERAL)
