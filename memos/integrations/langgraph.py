"""LangGraph: a store over records, with search by meaning, filters and times to live.

Whose memory it is: that of the `AgentMemory`; or, with `user_at`, each user's own, named by a label of the namespace.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memos.errors import InvalidInput
from memos.integrations.memory import AgentMemory, Owner, missing_extra

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as error:
    raise missing_extra("langgraph", "langgraph", error) from error

__all__ = ["MemosStore"]

Namespace = tuple[str, ...]
_ROOT = "store/"
_PAGE = 1_000
_PREFIXES = 10_000
_VALUE = "value"
_FILTERABLE = re.compile(r"[A-Za-z0-9_-]+")
_EXACT = 2**53
_ORDERS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


class _Call(NamedTuple):
    """A call of the memory, which one of two loops makes: one that blocks, and one that does not."""

    method: str
    given: tuple[Any, ...]
    owner: Owner
    named: dict[str, Any]
    fallback: Any


_Steps = Generator[_Call, Any, Any]


class MemosStore(BaseStore):
    """All of LangGraph's `BaseStore`, over records of hippocube.

    An item is a record: its value is the record's `info`, the texts in it are what a search finds, and each put of
    something else is a version that `records.history` keeps. Reads in a batch see what was there before its writes, and
    the last of several writes of one key counts, as in LangGraph's own stores. Filters know `$eq`, `$ne`, `$gt`,
    `$gte`, `$lt` and `$lte`, also nested; those of order compare numbers only. Without a question, items are in the
    order of their keys. A value takes 64 KiB of JSON, the namespace and key together 512 characters.

    Args:
        memory: The memory. With `fail_open`, what cannot be read is as if it were not there, and
            `memory.last_failure` tells; set it to False where a graph must not go on so.
        user_at: The place in a namespace of the label that is the user, such as 1 for `("memories", "ana")`: then each
            user's items are in the user's own cube. Searches and lists must name the user, too.
        fields: The fields of a value that a search finds, as in LangGraph's `IndexConfig`; by default all texts in it.
        ttl: Times to live, in minutes, as in LangGraph.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user_at: int | None = None,
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.memory = memory
        self.ttl_config = ttl
        self._user_at, self._fields = user_at, fields

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return [self._run(steps) for steps in self._steps(list(ops))][-1]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        *reads, writes = self._steps(list(ops))
        await asyncio.gather(*map(self._arun, reads))
        return await self._arun(writes)

    def _run(self, steps: _Steps) -> Any:
        try:
            call = next(steps)
            while True:
                found = self.memory.call(
                    call.method, *call.given, owner=call.owner, fallback=call.fallback, **call.named
                )
                call = steps.send(found)
        except StopIteration as done:
            return done.value

    async def _arun(self, steps: _Steps) -> Any:
        try:
            call = next(steps)
            while True:
                found = await self.memory.acall(
                    call.method, *call.given, owner=call.owner, fallback=call.fallback, **call.named
                )
                call = steps.send(found)
        except StopIteration as done:
            return done.value

    def _steps(self, ops: list[Op]) -> list[_Steps]:
        """Return what has to be done: reads, which may be done at once, and then all writes, with the results."""
        for op in ops:
            validate_op_namespace(op)
        results: list[Result] = [None] * len(ops)
        reads = [self._get(group, results) for group in self._gets(ops)]
        for place, op in enumerate(ops):
            if isinstance(op, SearchOp):
                reads.append(self._search(op, place, results))
            elif isinstance(op, ListNamespacesOp):
                reads.append(self._list(op, place, results))
            elif not isinstance(op, GetOp | PutOp):
                raise ValueError(f"Unknown operation type: {type(op)}")
        return [*reads, self._write([op for op in ops if isinstance(op, PutOp)], results)]

    def _gets(self, ops: Sequence[Op]) -> list[list[tuple[int, GetOp]]]:
        """Return gets that one call can answer: of one owner, and alike about times to live."""
        groups: dict[tuple[Owner, bool], list[tuple[int, GetOp]]] = defaultdict(list)
        for place, op in enumerate(ops):
            if isinstance(op, GetOp):
                groups[self._owner(op.namespace), op.refresh_ttl].append((place, op))
        return [group[at : at + _PAGE] for group in groups.values() for at in range(0, len(group), _PAGE)]

    def _get(self, group: Sequence[tuple[int, GetOp]], results: list[Result]) -> _Steps:
        _, first = group[0]
        ids = [_id(op.namespace, op.key) for _, op in group]
        wanted = list(dict.fromkeys(ids))
        named = {"refresh_ttl": first.refresh_ttl}
        found = yield _Call("records.get_many", (wanted,), self._owner(first.namespace), named, [])
        known = {record.record_id: record for record in found}
        for (place, _), id_ in zip(group, ids, strict=True):
            results[place] = _item(known[id_]) if id_ in known else None

    def _search(self, op: SearchOp, place: int, results: list[Result]) -> _Steps:
        owner, prefix = self._owner(op.namespace_prefix, reads=True), _prefix(op.namespace_prefix)
        named = {"filter": _conditions(op.filter), "refresh_ttl": op.refresh_ttl}
        until = op.offset + op.limit
        passed: list[SearchItem] = []
        if op.query and op.query.strip():
            top_k = min(_PAGE, max(1, until if not op.filter else 4 * until))
            while True:
                call = _Call("records.search", (op.query, prefix), owner, {**named, "top_k": top_k}, None)
                found = yield call
                hits = () if found is None else found.hits
                passed = [_item(hit.item, hit.relevance) for hit in hits if _passes(_value(hit.item), op.filter)]
                if len(passed) >= until or len(hits) < top_k or top_k == _PAGE:
                    break
                top_k = min(_PAGE, 4 * top_k)
        else:
            after = None
            while len(passed) < until:
                limit = min(_PAGE, max(1, until - len(passed)) if not op.filter else _PAGE)
                page = yield _Call("records.list", (prefix,), owner, {**named, "limit": limit, "after": after}, [])
                passed += [_item(record) for record in page if _passes(_value(record), op.filter)]
                if len(page) < limit:
                    break
                after = page[-1].record_id
        results[place] = passed[op.offset : until]

    def _list(self, op: ListNamespacesOp, place: int, results: list[Result]) -> _Steps:
        conditions = op.match_conditions or ()
        begin = _begin(conditions)
        owner = self._owner(begin, reads=True)
        found: list[Namespace] = []
        after = None
        while True:
            named = {"limit": _PREFIXES, "after": after}
            page = yield _Call("records.prefixes", (_prefix(begin),), owner, named, [])
            found += [_namespace(each.prefix) for each in page]
            if len(page) < _PREFIXES:
                break
            after = page[-1].prefix
        fitting = {each for each in found if all(_matches(condition, each) for condition in conditions)}
        results[place] = sorted({each[: op.max_depth] for each in fitting})[op.offset : op.offset + op.limit]

    def _write(self, ops: Sequence[PutOp], results: list[Result]) -> _Steps:
        last = {_id(op.namespace, op.key): op for op in ops}
        puts: dict[Owner, list[dict[str, Any]]] = defaultdict(list)
        deletes: dict[Owner, list[str]] = defaultdict(list)
        for id_, op in last.items():
            owner = self._owner(op.namespace)
            if op.value is None:
                deletes[owner].append(id_)
            else:
                puts[owner].append(self._record(id_, op))
        for owner, records in puts.items():
            for at in range(0, len(records), _PAGE):
                yield _Call("records.put_many", (records[at : at + _PAGE],), owner, {}, None)
        for owner, ids in deletes.items():
            for at in range(0, len(ids), _PAGE):
                yield _Call("records.delete_many", (ids[at : at + _PAGE],), owner, {}, None)
        return results

    def _record(self, id_: str, op: PutOp) -> dict[str, Any]:
        value = dict(op.value or {})
        fields = self._fields if op.index is None or op.index is False else op.index
        texts = (
            _leaves(value) if fields is None else [text for path in fields for text in get_text_at_path(value, path)]
        )
        text = "\n".join(filter(str.strip, texts))
        # What has no text is found by its id alone.
        searchable = op.index is not False and bool(text)
        record = {"id": id_, "memory": text or op.key, "info": {_VALUE: value}, "index": searchable}
        return record if op.ttl is None else {**record, "ttl_s": op.ttl * 60}

    def _owner(self, namespace: Namespace, *, reads: bool = False) -> Owner:
        if self._user_at is None:
            return Owner()
        if len(namespace) <= self._user_at:
            what = "namespace_prefix" if reads else "namespace"
            raise InvalidInput(what, f"must name the user at place {self._user_at}; got {namespace!r}")
        return Owner(user=namespace[self._user_at])


def _id(namespace: Namespace, key: str) -> str:
    return f"{_prefix(namespace)}{_quoted(str(key))}"


def _prefix(namespace: Namespace) -> str:
    return _ROOT + "".join(f"{_quoted(label)}/" for label in namespace)


def _quoted(label: str) -> str:
    return label.replace("%", "%25").replace("/", "%2F")


def _unquoted(label: str) -> str:
    return label.replace("%2F", "/").replace("%25", "%")


def _namespace(prefix: str) -> Namespace:
    return tuple(map(_unquoted, prefix.removeprefix(_ROOT).split("/")[:-1]))


def _value(record: Any) -> dict[str, Any]:
    value: dict[str, Any] = record.info[_VALUE]
    return value


def _item(record: Any, score: float | None = None) -> SearchItem:
    *labels, key = record.record_id.removeprefix(_ROOT).split("/")
    return SearchItem(
        namespace=tuple(map(_unquoted, labels)),
        key=_unquoted(key),
        value=_value(record),
        created_at=record.created_at,
        updated_at=record.updated_at,
        score=score,
    )


def _leaves(value: Any) -> list[str]:
    """Return the texts in a value, each with the name of its field unless it is the only one."""
    found = list(_named("", value))
    return [text for _, text in found] if len(found) == 1 else [f"{name}: {text}" for name, text in found]


def _named(name: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _named(str(key), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named(name, each)
    elif value is not None:
        yield name, value if isinstance(value, str) else json.dumps(value)


def _conditions(wanted: Mapping[str, Any] | None, path: str = f"info.{_VALUE}") -> dict[str, Any] | None:
    """Return what of a filter the memory can judge, at least what passes it; `_passes` judges the rest."""
    found = [condition for key, each in (wanted or {}).items() for condition in _condition(f"{path}.{key}", key, each)]
    return {"and": found} if found else None


def _condition(path: str, key: str, wanted: Any) -> Iterable[dict[str, Any]]:
    if not _FILTERABLE.fullmatch(key):
        return
    if isinstance(wanted, Mapping):
        if not any(str(name).startswith("$") for name in wanted):
            inner = _conditions(wanted, path)
            if inner is not None:
                yield inner
            return
        for operator, each in wanted.items():
            if operator == "$eq" and _plain(each):
                yield {path: each}
            elif operator in _ORDERS and _plain(each) and not isinstance(each, str | bool):
                yield {path: {_ORDERS[operator]: each}}
    elif _plain(wanted):
        yield {path: wanted}


def _plain(value: Any) -> bool:
    return isinstance(value, str | bool) or (isinstance(value, int | float) and abs(value) <= _EXACT)


def _passes(value: Any, wanted: Any) -> bool:
    """Return True if a value passes a filter as in LangGraph: equal, also in depth, or as its operators say."""
    if wanted is None or not isinstance(wanted, Mapping):
        return wanted is None or _equal(value, wanted)
    return all(_holds(value.get(key) if isinstance(value, Mapping) else None, each) for key, each in wanted.items())


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_operator(value, operator, each) for operator, each in wanted.items())
        return isinstance(value, Mapping) and _passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_holds, value, wanted))
    return _equal(value, wanted)


def _operator(value: Any, operator: str, wanted: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return _equal(value, wanted) is (operator == "$eq")
    if operator not in _ORDERS:
        raise ValueError(f"Unsupported operator: {operator}")
    numbers = [each for each in (value, wanted) if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) < 2:
        return False
    one, other = numbers
    return {"$gt": one > other, "$gte": one >= other, "$lt": one < other, "$lte": one <= other}[operator]


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _begin(conditions: Sequence[MatchCondition]) -> Namespace:
    """Return the labels that all fitting namespaces begin with."""
    longest: Namespace = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = condition.path
            plain = path.index("*") if "*" in path else len(path)
            longest = max(longest, path[:plain], key=len)
    return longest


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(labels, path, strict=True))
