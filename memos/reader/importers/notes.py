"""Notes in Markdown: a folder of them, such as a vault of Obsidian or a project of basic-memory.

A note is a message; of notes that basic-memory wrote, each observation and relation is one too. Source of the latter:
https://github.com/basicmachines-co/basic-memory, the syntax of its notes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePosixPath

from memos.core.text.validation import MAX_MESSAGE_BYTES, decode
from memos.core.types import Json
from memos.errors import InvalidInput
from memos.reader.importers.base import ExportRecord, memory_record, name_of, read_date
from memos.reader.importers.sources import Export, SourceFile, printable

NOTE, OBSERVATION, RELATION = "notes:note", "basic-memory:observation", "basic-memory:relation"
SPEAKER = "notes"
SUFFIXES = (".md", ".markdown")

_PERMALINK = re.compile(rb"\A(?:\xef\xbb\xbf)?---\s.*?^permalink: *\S", re.DOTALL | re.MULTILINE)
_LOOKED_AT = 20
_FRONTMATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_MOST_FRONTMATTER_CHARS = 65_536
_FIELD = re.compile(r"([A-Za-z_][\w -]{0,60}):(?:[ \t]+(.*)|[ \t]*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_DATES = ("date", "created", "created_at", "creation_date", "date_created", "updated", "modified")
_DAY = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
_EMBED = re.compile(r"!\[\[([^\[\]|]+)(?:\|[^\[\]]*)?\]\]")
_LINK = re.compile(r"\[\[([^\[\]|#]*)(#[^\[\]|]*)?(?:\|([^\[\]]*))?\]\]")
_TAG = re.compile(r"(?<![\w#/&])#([A-Za-z\u00c0-\uffff_][\w/-]{0,60})")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_COMMENT = re.compile(r"%%.*?%%", re.DOTALL)
_CONTEXT = r"(?: \((?P<context>[^()\n]+)\))?[ \t]*"
_OBSERVATION = re.compile(rf"[ \t]*[-*] \[(?P<category>[^\[\]\n]{{2,60}})\] (?P<text>.+?){_CONTEXT}")
_RELATION = re.compile(rf"[ \t]*[-*] (?P<kind>[^\[\]\n]{{1,80}}?) ?\[\[(?P<target>[^\[\]\n]+)\]\]{_CONTEXT}")
_LONGEST_LINE = 4_000  # of an observation; the patterns are slow on longer ones
_SECTION = re.compile(r"^#{1,6} (?:Observations|Relations)[ \t]*$", re.MULTILINE)
_MOST_TAGS = 50


@dataclass(frozen=True, slots=True)
class _Note:
    file: SourceFile
    title: str
    text: str
    fields: Mapping[str, Json] = field(default_factory=dict)


def is_notes(export: Export) -> bool:
    notes = sum(file.suffix in SUFFIXES for file in export.files)
    return notes > sum(file.suffix in (".json", ".jsonl", ".ndjson") for file in export.files)


def is_basic_memory(export: Export) -> bool:
    if not is_notes(export):
        return False
    notes = (file for file in export.files if file.suffix in SUFFIXES)
    return any(_PERMALINK.search(file.head(2_048)) is not None for file in islice(notes, _LOOKED_AT))


def notes_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    """Yield notes, each in a conversation of its own."""
    for file in export.files:
        if file.suffix not in SUFFIXES:
            reason = f"files of the type {file.suffix or 'without an extension'}"
            yield ExportRecord(printable(file.name), fallback, {}, left_out=1, reason=reason)
            continue
        try:
            note = _read(file)
        except InvalidInput as error:
            yield ExportRecord(printable(file.name), fallback, {}, error.reason)
            continue
        yield from _of_basic_memory(note) if "permalink" in note.fields else [_of_note(note)]


def _read(file: SourceFile) -> _Note:
    with file.open() as opened:
        raw = opened.read(MAX_MESSAGE_BYTES + 1)
    if len(raw) > MAX_MESSAGE_BYTES:
        raise InvalidInput(file.label, f"is larger than {MAX_MESSAGE_BYTES:,} bytes; add it with `memos docs add`")
    text = decode(file.label, raw).replace("\r\n", "\n")
    front = _FRONTMATTER.match(text)
    fields: dict[str, Json] = {}
    if front is not None and len(front[1]) <= _MOST_FRONTMATTER_CHARS:
        fields, text = _fields(front[1]), text[front.end() :]
    title = name_of((fields.get("title"),), file.stem)
    return _Note(file, title, _COMMENT.sub("", text).strip(), fields)


def _fields(text: str) -> dict[str, Json]:
    """Return the fields of a frontmatter: texts and lists of texts, all that notes have there."""
    fields: dict[str, Json] = {}
    name = ""
    for line in text.split("\n"):
        item = _ITEM.fullmatch(line)
        if item is not None and name:
            held = fields.get(name)
            fields[name] = [*(held if isinstance(held, list) else []), _unquoted(item[1])]
            continue
        found = _FIELD.fullmatch(line)
        if found is None:
            name = "" if line.strip() and not line.startswith((" ", "\t")) else name
            continue
        name, value = found[1].strip().lower(), (found[2] or "").strip()
        if value.startswith("[") and value.endswith("]"):
            fields[name] = [_unquoted(each) for each in value[1:-1].split(",") if each.strip()]
        elif value:
            fields[name] = _unquoted(value)
    return fields


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _at(note: _Note) -> Json:
    """Return when a note was written: as it says, as its name says, or when its file was changed."""
    for name in _DATES:
        value = note.fields.get(name)
        if isinstance(value, str):
            try:
                read_date(value)
            except InvalidInput:
                continue
            return value
    day = _DAY.search(note.file.stem)
    if day is not None:
        try:
            return read_date(day[1]).isoformat()
        except InvalidInput:
            pass
    return None if note.file.modified_s is None else datetime.fromtimestamp(note.file.modified_s, UTC).isoformat()


def _tags(note: _Note) -> tuple[str, ...]:
    given = [note.fields.get(name) for name in ("tags", "tag")]
    told = [each for value in given for each in (value if isinstance(value, list) else str(value or "").split(","))]
    told += _TAG.findall(_CODE.sub("", note.text))
    return tuple(dict.fromkeys(each.strip().lstrip("#") for each in told if each.strip(" #")))[:_MOST_TAGS]


def _plain(text: str) -> str:
    """Return a text with the names of links and files in place of their marks."""
    text = _EMBED.sub(lambda found: f"[file {PurePosixPath(found[1].strip()).name}]", text)
    return _LINK.sub(lambda found: (found[3] or found[1] or found[2] or "").strip(" #"), text)


def _info(note: _Note) -> dict[str, Json]:
    links = [
        *dict.fromkeys(found[1].strip() for found in _LINK.finditer(_EMBED.sub("", note.text)) if found[1].strip())
    ]
    own = {name: value for name, value in note.fields.items() if name not in ("tags", "tag", "title")}
    return {**own, "title": note.title, "path": note.file.name, "links": links}


def _conversation(note: _Note) -> str:
    return PurePosixPath(note.file.name).with_suffix("").as_posix()[-200:]


def _of_note(note: _Note) -> ExportRecord:
    text = _plain(note.text)
    if text and not text.startswith("#"):
        text = f"# {note.title}\n\n{text}"
    return memory_record(
        note.file.label,
        _conversation(note),
        text,
        id_=f"{NOTE}:{note.file.name}"[-250:],
        tag=NOTE,
        at=_at(note),
        name=name_of((note.fields.get("author"),), SPEAKER),
        tags=_tags(note),
        info=_info(note),
    )


def _of_basic_memory(note: _Note) -> Iterator[ExportRecord]:
    """Yield the text of a note, then its observations and relations, each by itself."""
    rest: list[str] = []
    records: list[ExportRecord] = []
    permalink = str(note.fields["permalink"])
    conversation, at = _conversation(note), _at(note)
    fenced = False
    for line in note.text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        place = f"{note.file.label}, entry {len(records) + 1}"
        short = not fenced and len(line) <= _LONGEST_LINE
        observed = _OBSERVATION.fullmatch(line) if short else None
        related = _RELATION.fullmatch(line) if short and observed is None else None
        if observed is not None:
            text, info = _plain(observed["text"]), {"category": observed["category"], "context": observed["context"]}
            told, tag = f"{note.title}: {text}", OBSERVATION
        elif related is not None:
            text = f"{note.title} {related['kind'].strip().replace('_', ' ')} {related['target']}"
            info, told, tag = {"context": related["context"], "target": related["target"]}, text, RELATION
        else:
            rest.append(line)
            continue
        id_ = f"{tag}:{permalink}:{text}"
        records.append(
            memory_record(
                place,
                conversation,
                told,
                id_=_short(id_),
                tag=tag,
                at=at,
                name=SPEAKER,
                tags=_TAG.findall(line),
                info={**info, "title": note.title, "permalink": permalink},
            )
        )
    body = _Note(note.file, note.title, _SECTION.sub("", "\n".join(rest)).strip(), note.fields)
    if body.text and not re.fullmatch(r"#[^\n]*", body.text):
        yield _of_note(body)
    yield from records


def _short(id_: str) -> str:
    return f"basic-memory:{hashlib.sha256(id_.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
