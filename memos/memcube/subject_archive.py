"""Archives of what is held about a person: JSON for programs, pages for people, and the original files, in a ZIP."""

from __future__ import annotations

import base64
import html
import json
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import sqlalchemy as sa

from memos.memcube.ledger import files, subjects
from memos.memcube.ledger import schema as t
from memos.version import __version__

FORMAT = "hippocube-subject-archive/1"

_BATCH = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }}
article {{ border-top: 1px solid #bbb; padding: .5rem 0 }} p {{ margin: .25rem 0; white-space: pre-wrap;
overflow-wrap: anywhere }} small {{ color: #555 }} table {{ border-collapse: collapse }}
td, th {{ text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; overflow-wrap: anywhere }}
</style></head><body><h1>{title}</h1>
"""
_FOOT = "</body></html>\n"


@dataclass(frozen=True, slots=True)
class Section:
    """A cube in an archive: which of its memories, and, of one that is the person's own, everything else in it."""

    cube: str
    relation: str
    item_ids: Sequence[str]
    file_ids: Sequence[str] = ()
    whole: bool = False


def write(
    connection: sa.Connection,
    out: IO[bytes],
    about: Mapping[str, Any],
    account: Mapping[str, Sequence[Mapping[str, Any]]],
    sections: Iterable[Section],
) -> int:
    """Write an archive of one moment; return how many memories are in it.

    `archive.json` says who and when, `account.json` has what is held of a user itself, `cubes/NN.jsonl` a memory a line
    with every version and message, `files/` the originals, and `index.html` and `cubes/NN.html` show it all.
    """
    told: list[dict[str, Any]] = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, section in enumerate(sections, start=1):
            told.append(_write_section(connection, archive, section, f"{number:03d}"))
        head = {"format": FORMAT, "program": f"hippocube {__version__}", **about, "cubes": told}
        archive.writestr("archive.json", _json(head))
        archive.writestr("account.json", _json(account))
        archive.writestr("index.html", _index(head, account))
    return sum(entry["memories"] for entry in told)


def _write_section(
    connection: sa.Connection, archive: zipfile.ZipFile, section: Section, number: str
) -> dict[str, Any]:
    title = f"{section.cube} ({section.relation})"
    page = [_HEAD.format(title=html.escape(title)), '<p><a href="../index.html">All cubes</a></p>\n']
    with archive.open(f"cubes/{number}.jsonl", "w", force_zip64=True) as lines:
        for start in range(0, len(section.item_ids), _BATCH):
            batch = section.item_ids[start : start + _BATCH]
            versions = subjects.versions_of(connection, batch)
            messages = subjects.messages_of(connection, batch)
            for id_ in batch:
                memory = {"id": id_, "versions": versions.get(id_, []), "messages": messages.get(id_, [])}
                lines.write(_json(memory, indent=None).encode() + b"\n")
                page.append(_article(memory))
    entry: dict[str, Any] = {
        "cube": section.cube,
        "relation": section.relation,
        "memories": len(section.item_ids),
        "file": f"cubes/{number}.jsonl",
        "page": f"cubes/{number}.html",
        "files": _write_files(connection, archive, section.file_ids, number),
    }
    if section.whole:
        entry["rest"] = f"cubes/{number}-rest.json"
        archive.writestr(entry["rest"], _json(_rest(connection, section.cube)))
    for file in entry["files"]:
        page.append(f'<p>File: <a href="../{html.escape(file["path"])}">{html.escape(file["name"])}</a></p>\n')
    archive.writestr(entry["page"], "".join([*page, _FOOT]))
    return entry


def _write_files(
    connection: sa.Connection, archive: zipfile.ZipFile, ids: Collection[str], number: str
) -> list[dict[str, str]]:
    found = []
    for id_ in ids:
        name = connection.execute(sa.select(t.files.c.name).where(t.files.c.id == id_)).scalar_one()
        path = f"files/{number}/{id_}-{_UNSAFE.sub('_', name)[-80:]}"
        content = files.content(connection, id_)
        if content:
            archive.writestr(path, content)
            found.append({"id": id_, "name": name, "path": path})
    return found


def _rest(connection: sa.Connection, cube: str) -> dict[str, Any]:
    """Return what a cube has besides its memories: topics, names, roles, rules, events and what it was read by."""
    tables: tuple[tuple[sa.Table, tuple[str, ...]], ...] = (
        (t.cubes, ("entity_salt", "event_chain")),
        (t.conversations, ()),
        (t.segments, ("vector",)),
        (t.entity_aliases, ()),
        (t.files, ()),
        (t.extractions, ()),
        (t.grants, ()),
        (t.retention_rules, ()),
        (t.adapter_consents, ()),
        (t.adapters, ("measures",)),
        (t.events, ("salt", "digest", "chain")),
    )
    return {table.name: subjects.in_cube(connection, table, cube, *secret) for table, secret in tables}


def _article(memory: Mapping[str, Any]) -> str:
    versions, messages = memory["versions"], memory["messages"]
    nothing = {"memory": "", "type": "", "status": "", "speaker": "", "recorded_at": None}
    now: Mapping[str, Any] = versions[-1] if versions else nothing
    lines = [f"<article><p>{html.escape(str(now['memory']))}</p>"]
    marks = [str(now[name]) for name in ("type", "status", "speaker") if now[name]]
    lines.append(f"<small>{html.escape(', '.join(marks))}, {_time(now['recorded_at'])}</small>")
    for old in versions[:-1]:
        lines.append(f"<p><small>before, {_time(old['recorded_at'])}:</small> {html.escape(str(old['memory']))}</p>")
    for message in messages:
        if message["text"] != now["memory"]:
            said = html.escape(str(message["text"]))
            lines.append(f"<p><small>said by {html.escape(message['name'] or message['role'])}:</small> {said}</p>")
    return "\n".join([*lines, "</article>\n"])


def _index(head: Mapping[str, Any], account: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    rows = [
        f'<tr><td><a href="{entry["page"]}">{html.escape(entry["cube"])}</a></td>'
        f"<td>{html.escape(entry['relation'])}</td><td>{entry['memories']} memories</td></tr>"
        for entry in head["cubes"]
    ]
    parts = [
        _HEAD.format(title=html.escape(f"What is held about {head['subject']}")),
        f"<p>Made {_time(head['made_at'])} for {html.escape(str(head['made_for']))}. {html.escape(head['covers'])}</p>",
        "<table>",
        *rows,
        "</table>",
    ]
    for table, entries in account.items():
        if entries:
            parts.append(f"<h2>{html.escape(table.replace('_', ' '))}</h2>")
            for entry in entries:
                shown = ", ".join(f"{key}: {_shown(value)}" for key, value in entry.items() if value not in (None, ""))
                parts.append(f"<p>{html.escape(shown)}</p>")
    return "\n".join([*parts, _FOOT])


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _shown(value: Any) -> str:
    return _time(value) if isinstance(value, datetime) else str(value)


def _json(value: Any, indent: int | None = 2) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case bytes() | memoryview() | bytearray():
            return base64.b64encode(bytes(value)).decode()
    return str(value)
