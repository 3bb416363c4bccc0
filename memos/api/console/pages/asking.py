"""The address of the page Ask: settings and filter conditions, and the same search as Python and curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from memos.api.console.view import View

ALL_OF_IT = 1_000_000  # a budget that every hit fits into
USUAL_TOP_K = 10

FIELDS = (
    "memory", "type", "speaker", "role", "conversation", "tags", "entities", "keywords", "status", "tier", "said_at",
    "created_at", "updated_at", "valid_from", "valid_to", "confidence", "version", "key", "info.",
)  # fmt: skip
OPERATORS = {
    "eq": "is",
    "ne": "is not",
    "in": "is one of",
    "nin": "is none of",
    "contains": "has the element",
    "like": "contains the text",
    "gt": "is more than, after",
    "gte": "is at least, from",
    "lt": "is less than, before",
    "lte": "is at most, until",
    "exists": "has a value (true, false)",
}
_TEXTS = frozenset({"id", *FIELDS} - {"confidence", "version", "info."})


class Row(NamedTuple):
    """A condition as it is typed."""

    field: str = ""
    op: str = "eq"
    value: str = ""


def _value(row: Row, text: str) -> Any:
    text = text.strip()
    if row.field in _TEXTS:
        return text
    try:
        read = json.loads(text)
    except ValueError:
        return text
    return read if isinstance(read, bool | int | float | str) else text


def _condition(row: Row) -> Any:
    if row.op == "exists":
        return {"exists": row.value.strip().lower() not in ("false", "no", "0")}
    if row.op in ("in", "nin"):
        return {row.op: [_value(row, part) for part in row.value.split(",") if part.strip()]}
    value = _value(row, row.value)
    return value if row.op == "eq" else {row.op: value}


def filter_of(rows: list[Row]) -> dict[str, Any]:
    """Return the filter that conditions make together, `{}` for none."""
    told = [(row.field.strip(), _condition(row._replace(field=row.field.strip()))) for row in rows if row.field.strip()]
    if len({field for field, _ in told}) == len(told):
        return dict(told)
    return {"and": [{field: condition} for field, condition in told]}


def rows_of(filter_: Mapping[str, Any]) -> list[Row] | None:
    """Return the conditions of a filter, None for one with alternatives or negations."""
    rows: list[Row] = []
    for field, told in filter_.items():
        if field == "and" and isinstance(told, list) and all(isinstance(part, dict) for part in told):
            inner = [rows_of(part) for part in told]
            if any(part is None for part in inner):
                return None
            rows += [row for part in inner for row in part or ()]
        elif field in ("and", "or", "not"):
            return None
        else:
            conditions = told if isinstance(told, dict) else {"eq": told}
            rows += [Row(field, op, _shown(field, value)) for op, value in conditions.items()]
    return rows


def _shown(field: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(field, each) for each in value)
    if isinstance(value, str) and (field in _TEXTS or _value(Row(field), value) == value):
        return value
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """A search as an address asks for it; `problem` says what cannot be read. `prefix` is that of its parameters."""

    question: str
    filter: Mapping[str, Any]
    as_of: str = ""
    top_k: str = ""
    budget: str = ""
    min_relevance: str = ""
    rerank: str = ""
    prefix: str = ""
    problem: str = ""

    @classmethod
    def of(cls, view: View, prefix: str = "") -> Asked:
        rows = [] if prefix else _typed_rows(view)
        told, problem = _read_filter(view.query(f"{prefix}filter"))
        typed = filter_of(rows)
        both = {"and": [told, typed]} if told and typed else told or typed
        names = ("as_of", "top_k", "budget", "min_relevance", "rerank")
        given = {name: view.query(prefix + name).strip() for name in names}
        return cls(view.query("q").strip(), both, **given, prefix=prefix, problem=problem)

    @property
    def given(self) -> dict[str, str]:
        """Return the parameters of an address that asks the same."""
        told = {
            "filter": self.filter_text,
            "as_of": self.as_of,
            "top_k": self.top_k,
            "budget": self.budget,
            "min_relevance": self.min_relevance,
            "rerank": self.rerank,
        }
        return {self.prefix + name: value for name, value in told.items() if value}

    @property
    def filter_text(self) -> str:
        return json.dumps(self.filter, ensure_ascii=False) if self.filter else ""

    @property
    def rows(self) -> list[Row]:
        return rows_of(self.filter) or []

    @property
    def other_filter(self) -> str:
        """Return the filter as JSON if conditions cannot tell it."""
        return self.filter_text if rows_of(self.filter) is None else ""

    def body(self, cube: str) -> dict[str, Any]:
        """Return the body of the search. Raises: ValueError (a number that is none)."""
        told: dict[str, Any] = {"query": self.question, "top_k": int(self.top_k or USUAL_TOP_K)}
        if cube:
            told["cubes"] = [cube]
        if self.filter:
            told["filter"] = dict(self.filter)
        if self.as_of:
            told["as_of"] = f"{self.as_of}T23:59:59" if len(self.as_of) == len("2026-01-31") else self.as_of
        if self.budget:
            told["token_budget"] = int(self.budget)
        if self.min_relevance:
            told["min_relevance"] = float(self.min_relevance)
        if self.rerank:
            told["rerank"] = self.rerank == "yes"
        return told


def _typed_rows(view: View) -> list[Row]:
    asked = view.request.query_params
    typed = zip(asked.getlist("field"), asked.getlist("op"), asked.getlist("value"), strict=False)
    return [Row(*row) for row in typed if row[0].strip() and row[1] in OPERATORS]


def _read_filter(text: str) -> tuple[dict[str, Any], str]:
    if not text.strip():
        return {}, ""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"The filter is no JSON: {error}."
    return (read, "") if isinstance(read, dict) else ({}, "The filter must be a JSON object, such as {}.")


def as_curl(url: str, body: Mapping[str, Any]) -> str:
    """Return the command that searches the same."""
    told = shlex.quote(json.dumps(body, ensure_ascii=False))
    return (
        f"curl -sS {url}/api/v1/search \\\n"
        '  -H "Authorization: Bearer $MEMOS_API_KEY" -H "Content-Type: application/json" \\\n'
        f"  -d {told}"
    )


def as_python(url: str, body: Mapping[str, Any]) -> str:
    """Return the program that searches the same."""
    options = "".join(f"        {name}={value!r},\n" for name, value in body.items() if name != "query")
    return (
        "from memos.api.client import MemOSClient\n\n"
        f'with MemOSClient(base_url="{url}") as client:  # the key: MEMOS_API_KEY\n'
        f"    found = client.memories.search(\n        {body['query']!r},\n{options}    )\n"
        "    for hit in found.hits:\n"
        "        print(round(hit.relevance, 2), hit.standing, hit.item.memory)\n"
        "    print(found.context)\n"
    )
