"""Reads edges of a graph on Neo4j: which items are within two hops, and by how many ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memos.backends.graph.neo4j import BETWEEN, ITEM, Neo4jGraph, match

_SHOWN = "b <> a AND b.revision > 0 AND b.cube IN $cubes"
_AROUND = (
    f"UNWIND $ids AS id {match(ITEM, 'id', 'a')} "
    f"CALL (a) {{ MATCH (a)-[:{BETWEEN}]-(b) WHERE {_SHOWN} RETURN b "
    f"UNION ALL MATCH (a)-[:MENTIONS]->(e)<-[:MENTIONS]-(b) WHERE {_SHOWN} RETURN b }} "
    "RETURN b.id, count(*)"
)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An item near the seeds: `hops` 1 or 2, `paths` how many ways lead to it."""

    id: str
    hops: int
    paths: int


def neighbours(graph: Neo4jGraph, cubes: Sequence[str], seeds: Sequence[str]) -> list[Neighbour]:
    """Return the items of `cubes` within two hops along NEXT, a link or a shared entity, nearest first."""
    found: list[Neighbour] = []
    front, seen = list(dict.fromkeys(seeds)), set(seeds)
    for hop in (1, 2):
        rows = graph._rows(_AROUND, {"ids": front, "cubes": list(cubes)})
        fresh = sorted((-count, item) for item, count in rows if item not in seen)
        found.extend(Neighbour(item, hop, -count) for count, item in fresh)
        front = [item for _, item in fresh]
        seen.update(front)
    return found
