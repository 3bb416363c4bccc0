"""What the graph index does inside one writing transaction in Neo4j: Cypher of fixed labels, all data as parameters.

Several processes may write at once. A transaction first locks every node it touches, each label in the order of the
ids, then looks and changes: so it sees what the ones before it did, and two of them seldom wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from memos.core.ports import GraphNode
from memos.errors import InvalidInput

LINKS = ("DERIVED_FROM", "SUPERSEDES", "RELATES")
ENDS = {"MENTIONS": "Entity", "IN_CONVERSATION": "Conversation", **dict.fromkeys(("NEXT", *LINKS), "Memory")}
"""The kinds of edges, and where each leads."""

Rows = list[list[Any]]
Run = Callable[[str, Mapping[str, Any]], Rows]

ITEM, ENTITY, CONVERSATION = "MemosMemory", "MemosEntity", "MemosConversation"
MARK = "MemosMark"
BETWEEN = "|".join(("NEXT", *LINKS))
_LABELS = {"Memory": ITEM, "Entity": ENTITY, "Conversation": CONVERSATION}
# The edges that an item has because its own node names them; NEXT comes from the item before it.
_OWN = "|".join(kind for kind in ENDS if kind != "NEXT")

SCHEMA = (
    *(
        f"CREATE CONSTRAINT {label}_id IF NOT EXISTS FOR (n:{label}) REQUIRE (n.installation, n.id) IS UNIQUE"
        for label in _LABELS.values()
    ),
    f"CREATE CONSTRAINT {MARK}_id IF NOT EXISTS FOR (n:{MARK}) REQUIRE n.installation IS UNIQUE",
    f"CREATE INDEX {ITEM}_cube IF NOT EXISTS FOR (n:{ITEM}) ON (n.installation, n.cube, n.id)",
)


def _node(label: str, id_: str = "id", name: str = "n") -> str:
    return f"({name}:{label} {{installation: $installation, id: {id_}}})"


def match(label: str, id_: str = "id", name: str = "n") -> str:
    """Return the clause that looks one node up, by its index even while the planner believes the label to be empty."""
    return f"MATCH {_node(label, id_, name)} USING INDEX SEEK {name}:{label}(installation, id)"


# Setting a property, whatever its value, takes the node's lock until the end of the transaction.
_PUT_ITEMS = (
    f"UNWIND $rows AS r MERGE {_node(ITEM, 'r.id')} ON CREATE SET n.cube = r.cube, n.revision = 0 "
    "SET n.lock = true, n += r.fields"
)
_PUT_ENDS = {label: f"UNWIND $ids AS id MERGE {_node(label)} SET n.lock = true" for label in (ENTITY, CONVERSATION)}
_LOCK_ITEMS = f"UNWIND $ids AS id {match(ITEM)} SET n.lock = true"
_ENDS = (
    f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[r:{_OWN}]->(e) RETURN type(r) AS kind, e.id AS end "
    f"UNION UNWIND $ids AS id {match(ITEM)} MATCH (n)<-[r:NEXT]-(e) RETURN type(r) AS kind, e.id AS end"
)
_BESIDE = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[:{BETWEEN}]-(e) RETURN DISTINCT e.id"
_CUT_OWN = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)-[r:{_OWN}]->() DELETE r"
_CUT_NEXT = f"UNWIND $ids AS id {match(ITEM)} MATCH (n)<-[r:NEXT]-() DELETE r"
_CONNECT = {
    kind: f"UNWIND $pairs AS p {match(ITEM, 'p[0]', 'a')} {match(_LABELS[end], 'p[1]', 'b')} CREATE (a)-[:{kind}]->(b)"
    for kind, end in ENDS.items()
}
_REMOVE = f"UNWIND $ids AS id {match(ITEM)} DETACH DELETE n"
_SWEEP = {
    ITEM: f"UNWIND $ids AS id {match(ITEM)} WHERE n.revision = 0 AND NOT (n)--() DELETE n",
    ENTITY: f"UNWIND $ids AS id {match(ENTITY)} WHERE NOT (n)--() DELETE n",
    CONVERSATION: f"UNWIND $ids AS id {match(CONVERSATION)} WHERE NOT (n)--() DELETE n",
}
STATEMENTS = (
    *(_PUT_ITEMS, *_PUT_ENDS.values(), _LOCK_ITEMS, _ENDS, _BESIDE, _CUT_OWN, _CUT_NEXT),
    *(*_CONNECT.values(), _REMOVE, *_SWEEP.values()),
)


def check_links(nodes: Iterable[GraphNode]) -> None:
    """Refuse a kind of link that the graph does not have. Raises: InvalidInput."""
    for node in nodes:
        for kind, _ in node.links:
            if kind not in LINKS:
                raise InvalidInput("links", f"{kind!r:.60} is no kind of link; there are {', '.join(LINKS)}.")


def put(run: Run, nodes: Sequence[GraphNode]) -> None:
    """Insert or replace nodes, no id twice, and exactly the edges each node names."""
    ids = sorted(node.id for node in nodes)
    edges, ends = _named(nodes)
    # Read before any lock, so that all are taken in one order; read again under them, since it may have changed.
    guess = _old_ends(run, ids)[ITEM]
    cubes = {**dict.fromkeys(guess, nodes[0].cube), **ends[ITEM], **{node.id: node.cube for node in nodes}}
    own = {node.id: {"cube": node.cube, "revision": node.revision} for node in nodes}
    run(_PUT_ITEMS, {"rows": [{"id": id_, "cube": cubes[id_], "fields": own.get(id_, {})} for id_ in sorted(cubes)]})
    old = _old_ends(run, ids)
    _lock(run, _LOCK_ITEMS, old[ITEM] - cubes.keys())
    for label, statement in _PUT_ENDS.items():
        _lock(run, statement, old[label] | ends[label].keys())
    if any(old.values()):
        run(_CUT_OWN, {"ids": ids})
        run(_CUT_NEXT, {"ids": ids})
    for kind, pairs in edges.items():
        if pairs:
            run(_CONNECT[kind], {"pairs": [list(pair) for pair in sorted(pairs)]})
    old[ITEM] |= guess
    _sweep(run, {label: found - ends[label].keys() for label, found in old.items()})


def remove(run: Run, ids: Iterable[str]) -> None:
    """Remove items with all their edges, and what nothing leads to any more."""
    known = sorted(set(ids))
    beside = {item for (item,) in run(_BESIDE, {"ids": known}) if item is not None}
    _lock(run, _LOCK_ITEMS, beside.union(known))
    old = _old_ends(run, known)
    _lock(run, _LOCK_ITEMS, old[ITEM] - beside)
    for label, statement in _PUT_ENDS.items():
        _lock(run, statement, old[label])
    run(_REMOVE, {"ids": known})
    _sweep(run, old)


def _named(nodes: Sequence[GraphNode]) -> tuple[dict[str, set[tuple[str, str]]], dict[str, dict[str, str]]]:
    """Return the edges the nodes name, by kind, and the edges' ends with the cube of who named them, by label."""
    edges: dict[str, set[tuple[str, str]]] = {kind: set() for kind in ENDS}
    ends: dict[str, dict[str, str]] = {label: {} for label in _LABELS.values()}
    for node in nodes:
        named = [("MENTIONS", entity) for entity in node.entities]
        named += [("IN_CONVERSATION", node.conversation)] if node.conversation else []
        for kind, end in (*named, *node.links):
            edges[kind].add((node.id, end))
            ends[_LABELS[ENDS[kind]]].setdefault(end, node.cube)
        if node.previous:
            edges["NEXT"].add((node.previous, node.id))
            ends[ITEM].setdefault(node.previous, node.cube)
    return edges, ends


def _old_ends(run: Run, ids: Sequence[str]) -> dict[str, set[str]]:
    """Return, by label, where the edges lead that these items own now."""
    found: dict[str, set[str]] = {label: set() for label in _LABELS.values()}
    for kind, end in run(_ENDS, {"ids": ids}):
        if kind is not None and end is not None:  # what another one deletes while this one reads shows nothing
            found[_LABELS[ENDS[kind]]].add(end)
    return found


def _lock(run: Run, statement: str, ids: Iterable[str]) -> None:
    ordered = sorted(ids)
    if ordered:
        run(statement, {"ids": ordered})


def _sweep(run: Run, ends: Mapping[str, set[str]]) -> None:
    """Delete those entities, conversations and bare items that nothing leads to any more."""
    for label, ids in ends.items():
        if ids:
            run(_SWEEP[label], {"ids": sorted(ids)})
