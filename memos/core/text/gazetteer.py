"""Well-known places and tools, to tell a home from an employer and from software: "I left Paris", "we moved to Kafka".

Pure. No list of all there is: a name that is in neither is judged by the words around it.
"""

from __future__ import annotations

import re
import unicodedata

_PLACES = frozenset(
    """
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
    """.split()  # noqa: SIM905 - quoting each word says less
) | {
    "new york", "los angeles", "san francisco", "san diego", "hong kong", "mexico city", "buenos aires",
    "rio de janeiro",
    "sao paulo", "new zealand", "south africa", "new orleans", "las vegas", "tel aviv", "cape town", "united states",
}  # fmt: skip
_HAN_PLACES = re.compile(
    r"(?:北京|上海|广州|深圳|天津|重庆|成都|武汉|西安|南京|杭州|苏州|青岛|大连|厦门|长沙|郑州|济南|合肥|福州|昆明|"
    r"贵阳|南宁|海口|三亚|沈阳|哈尔滨|"
    r"长春|石家庄|太原|兰州|银川|西宁|拉萨|乌鲁木齐|呼和浩特|南昌|宁波|无锡|珠海|佛山|东莞|温州|香港|澳门|台北|"
    r"高雄|东京|大阪|京都|首尔|"
    r"新加坡|曼谷|伦敦|巴黎|柏林|纽约|洛杉矶|旧金山|多伦多|温哥华|悉尼|墨尔本|罗马|莫斯科|美国|英国|法国|德国|日本|"
    r"韩国|加拿大|澳大利亚|"
    r"新西兰|意大利|西班牙|荷兰|瑞士|瑞典|挪威|俄罗斯|泰国|越南|国内|老家|家乡)[市省]?"
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
    """Return True for a well-known city or country; False says nothing."""
    plain = _plain(name)
    return plain in _PLACES or _HAN_PLACES.fullmatch(plain) is not None


def is_home(name: str) -> bool:
    """Return False for what nobody lives in: software, days, "Phase 2", and what looks like code."""
    return _plain(name) not in _TOOLS and _MARKED.search(name) is None and _NOT_THERE.match(name) is None


def is_employer(name: str) -> bool:
    """Return False for what employs nobody: "Free", "Fun", days and months."""
    return _plain(name) not in _NOBODY and _NOT_THERE.match(name) is None


def _plain(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    bare = "".join(sign for sign in decomposed if unicodedata.category(sign) != "Mn")
    return " ".join(bare.replace("-", " ").split())
