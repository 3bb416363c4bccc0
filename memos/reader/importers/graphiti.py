"""Zep's and Graphiti's temporal graph on Neo4j: episodes as they were said, and facts with the time they held.

Source: https://github.com/getzep/graphiti (graphiti-core 0.31), the nodes `Episodic` and `Entity` and the
relationship `RELATES_TO`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from memos.core.message_shapes import role_of
from memos.core.types import Json, Role
from memos.errors import BackendUnavailable, InvalidInput
from memos.reader.importers.base import ExportRecord, flat, memory_record, message_of, name_of, text_in

FACT, ENTITY, EPISODE = "zep:fact", "zep:entity", "zep:episode"
SPEAKER = "zep"
_EPISODES = (
    "MATCH (e:Episodic) RETURN e.uuid AS uuid, e.group_id AS group_id, e.name AS name, e.source AS source, "
    "e.source_description AS description, e.content AS content, e.valid_at AS valid_at, e.created_at AS created_at "
    "ORDER BY group_id, valid_at, created_at"
)
_FACTS = (
    "MATCH (n:Entity)-[e:RELATES_TO]->(m:Entity) RETURN e.uuid AS uuid, e.group_id AS group_id, e.name AS name, "
    "e.fact AS fact, e.valid_at AS valid_at, e.invalid_at AS invalid_at, e.expired_at AS expired_at, "
    "e.created_at AS created_at, n.name AS subject, m.name AS object ORDER BY group_id, created_at"
)
_ENTITIES = (
    "MATCH (n:Entity) RETURN n.uuid AS uuid, n.group_id AS group_id, n.name AS name, n.summary AS summary, "
    "n.created_at AS created_at ORDER BY group_id, created_at"
)
_SPOKEN = re.compile(r"(?P<name>[^:\n()]{1,80})(?:\((?P<role>\w+)\))?: (?P<text>.+)", re.DOTALL)


def graphiti_records(url: str, database: str | None = None) -> Iterator[ExportRecord]:
    """Yield episodes, facts and summaries of a graph.

    The name and the password are in the URL, or else in NEO4J_USER and NEO4J_PASSWORD.

    Raises:
        InvalidInput: The driver is not installed, or the server refuses the name or the password.
        BackendUnavailable: The server cannot be reached.
    """
    try:
        from neo4j import GraphDatabase  # noqa: PLC0415
        from neo4j.exceptions import AuthError, DriverError, Neo4jError  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput("file", "is a Neo4j server; install its driver: pip install '.[neo4j]'") from error
    address, auth = credentials_of(url)
    try:
        with GraphDatabase.driver(address, auth=auth) as driver, driver.session(database=database) as session:
            for query, read in ((_EPISODES, episode), (_FACTS, fact), (_ENTITIES, entity)):
                for number, row in enumerate(session.run(query), start=1):
                    yield read({name: _native(value) for name, value in dict(row).items()}, number)
    except AuthError as error:
        told = "refuses the name or the password; give them in NEO4J_USER and NEO4J_PASSWORD"
        raise InvalidInput("file", f"the Neo4j server {told}") from error
    except (DriverError, Neo4jError) as error:
        raise BackendUnavailable(f"The Neo4j server cannot be read ({type(error).__name__}).") from error


def credentials_of(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return the address of a URL without name and password, and these."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    address = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    user = parts.username or os.environ.get("NEO4J_USER") or os.environ.get("NEO4J_USERNAME")
    password = parts.password or os.environ.get("NEO4J_PASSWORD")
    return address, (user or "neo4j", password) if password else None


def _native(value: Any) -> Any:
    convert = getattr(value, "to_native", None)
    return convert() if callable(convert) else value


def _told(value: Json) -> Json:
    return value.isoformat() if isinstance(value, datetime) else value


def episode(row: Mapping[str, Json], number: int) -> ExportRecord:
    """Return an episode as a record: a message where it was one, else a memory."""
    owner = name_of((row.get("group_id"),), "")
    place, conversation = f"episode {number}", " ".join(each for each in ("zep", owner) if each)[:250]
    text, at = text_in(row, "content"), _told(row.get("valid_at") or row.get("created_at"))
    spoken = _SPOKEN.fullmatch(text) if row.get("source") == "message" else None
    id_, info = f"zep:{row.get('uuid')}", {"name": row.get("name"), "source_description": row.get("description")}
    if spoken is None:
        return memory_record(
            place, conversation, text, id_=id_, tag=EPISODE, at=at, name=SPEAKER, info=info, owner=owner
        )
    name, role = spoken["name"].strip(), role_of(spoken["role"] or spoken["name"])
    assistant = role == Role.ASSISTANT
    message = message_of(
        Role.ASSISTANT if assistant else Role.USER,
        content=spoken["text"],
        name=None if name.casefold() in ("user", "assistant", "human", "ai") else name,
        message_id=id_,
        chat_time=at,
    )
    message["info"] = flat(info)
    return ExportRecord(place, conversation, message, tags=(EPISODE,), owner=owner)


def fact(row: Mapping[str, Json], number: int) -> ExportRecord:
    """Return a fact as a record, with the time from and to which it held."""
    owner = name_of((row.get("group_id"),), "")
    ended = row.get("invalid_at") or row.get("expired_at")
    return memory_record(
        f"fact {number}",
        " ".join(each for each in ("zep facts", owner) if each)[:250],
        row.get("fact"),
        id_=f"zep:{row.get('uuid')}",
        tag=FACT,
        at=_told(row.get("valid_at") or row.get("created_at")),
        name=SPEAKER,
        info={"relation": row.get("name"), "subject": row.get("subject"), "object": row.get("object")},
        owner=owner,
        valid_from=_told(row.get("valid_at")),
        valid_to=_told(ended),
    )


def entity(row: Mapping[str, Json], number: int) -> ExportRecord:
    """Return what a graph sums up of an entity as a record."""
    owner = name_of((row.get("group_id"),), "")
    name, summary = name_of((row.get("name"),), ""), text_in(row, "summary").strip()
    return memory_record(
        f"entity {number}",
        " ".join(each for each in ("zep facts", owner) if each)[:250],
        f"{name}: {summary}" if summary else "",
        id_=f"zep:{row.get('uuid')}",
        tag=ENTITY,
        at=_told(row.get("created_at")),
        name=SPEAKER,
        info={"entity": name},
        owner=owner,
    )
