"""Preview what a text or a chat export would store: items, masked passages and facts. Writes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

from memos.core.text.validation import MAX_MESSAGE_BYTES, decode
from memos.core.tokens import estimate_tokens
from memos.core.types import Draft, Fact, Item, ItemType, Json, Masked, Role, Trust
from memos.errors import InvalidInput
from memos.llm.client import LLMClient
from memos.llm.usage import UsageMeter
from memos.memcube.profiles.template import standard
from memos.memcube.profiles.traits import orders_from_untrusted, told_of_another
from memos.reader import messages as fast
from memos.reader.facts.extractor import FactReader
from memos.reader.importers.formats import checked, detect, read_export
from memos.reader.importers.stream import ENTRY_BYTES
from memos.reader.masking import Masking
from memos.reader.messages import MAX_MESSAGES, read_messages

PATTERNS = "patterns"
_CUBE = "preview"
_WINDOW_TOKENS = 1_500
# What files that are no chats begin with.
_DOCUMENTS = {
    b"%PDF": "a PDF", b"PK\x03\x04": "a zip-based document", b"\xd0\xcf\x11\xe0": "an Office file",
    b"\x89PNG": "an image", b"\xff\xd8\xff": "an image", b"GIF8": "an image",
}  # fmt: skip
# What a text that only begins with a bracket is said to be, entry by entry.
_NO_JSON = ("is not JSON", "comes after the end of the list")
_JSON = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(frozen=True, slots=True)
class PreviewSource:
    """Input messages with their conversations, and unreadable records with their places."""

    messages: tuple[Json, ...]
    conversations: tuple[str | None, ...]
    problems: tuple[tuple[str, str], ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading messages: naive times are in `zone`; `facts` also extracts facts."""

    zone: ZoneInfo
    now: datetime
    secrets: bool = True
    personal: bool = False
    facts: bool = True
    asker: Callable[[], LLMClient | None] = lambda: None


@dataclass(frozen=True, slots=True)
class PreviewItem:
    """A message as it would be stored."""

    number: int
    conversation: str | None
    speaker: str
    role: Role
    trust: Trust
    said_at: datetime
    memory: str
    key: str | None
    value: str | None
    entities: tuple[str, ...]
    keywords: tuple[str, ...]
    valid_from: datetime | None
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class PreviewFact:
    """A fact a reader finds, with its passages; `waits` for review if an untrusted source orders it."""

    type: ItemType
    subject: str
    memory: str
    key: str | None
    value: str | None
    confidence: float
    valid_from: datetime | None
    valid_to: datetime | None
    trust: Trust
    waits: bool
    quotes: tuple[str, ...]
    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of an import; `by` names the fact reader, `rejected` counts unsupported facts of a model.

    `more` messages were not read.
    """

    items: tuple[PreviewItem, ...]
    masked: tuple[Masked, ...]
    facts: tuple[PreviewFact, ...]
    by: str | None
    rejected: int
    problems: tuple[tuple[str, str], ...]
    more: bool


def read_input(file: BinaryIO, name: str, reading: Reading, most: int) -> PreviewSource:
    if most > MAX_MESSAGES:
        raise InvalidInput("limit", f"is {most:,}, more than the limit of {MAX_MESSAGES:,}")
    data = file.read(ENTRY_BYTES + 1)
    if not data.strip():
        raise InvalidInput(name, "must not be empty; give a text or a chat export")
    if len(data) > ENTRY_BYTES:
        raise InvalidInput(name, f"is larger than {ENTRY_BYTES:,} bytes; preview a part of it")
    named = Path(name).suffix.lower() in _JSON
    if named or data.lstrip()[:1] in (b"{", b"[") or data.startswith(b"PK\x03\x04"):
        try:
            given = _export(data, name, reading, most)
        except InvalidInput:
            if named:
                raise
        else:
            if named or given.messages or not all(problem.startswith(_NO_JSON) for _, problem in given.problems):
                return given
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidInput(
            name,
            f"is one text of {len(data):,} bytes, more than the limit of {MAX_MESSAGE_BYTES:,}; split it into parts",
        )
    return PreviewSource((_text(name, data),), (None,))


def _text(name: str, data: bytes) -> str:
    kind = next((kind for magic, kind in _DOCUMENTS.items() if data.startswith(magic)), None)
    if kind is not None:
        raise InvalidInput(name, f"is {kind}, not a chat; add documents with `memos docs add`")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInput(name, "is UTF-16; convert it to UTF-8, such as with `iconv -f UTF-16 -t UTF-8`")
    if b"\0" in data:
        raise InvalidInput(
            name, f"has a NUL byte at {data.index(0):,}, so it is not text; give a text or a chat export"
        )
    return decode(name, data)


def preview(given: PreviewSource, reading: Reading) -> Preview:
    masking = Masking(secrets=reading.secrets, personal=reading.personal)
    items, drafts = [], []
    if given.messages:
        said = masking.messages(list(given.messages), MAX_MESSAGES)
        read = read_messages(said, reading.zone, reading.now)
        drafts = fast.read(read, (), {}, reading.zone)
        names = [None if name is None else masking.name("conversation", name) for name in given.conversations]
        placed = enumerate(zip(drafts, said.places, strict=True), 1)
        items = [fast.unstored(draft, _CUBE, names[place], number) for number, (draft, place) in placed]
    facts: list[Fact] = []
    by, rejected = None, 0
    reader = FactReader(reading.asker)
    for window in _windows(items) if reading.facts else ():
        meter = UsageMeter("reader", cube=_CUBE)
        found = reader.read(window, reading.zone, meter, template=standard())
        facts += found.facts
        by, rejected = found.model or PATTERNS, rejected + found.rejected
    texts = {item.id: item.memory for item in items}
    speakers = {item.id: item.speaker for item in items}
    return Preview(
        tuple(_shown_item(item, draft) for item, draft in zip(items, drafts, strict=True)),
        masking.masked,
        tuple(_fact(fact, texts, speakers) for fact in facts),
        by,
        rejected,
        given.problems,
        given.more,
    )


def _export(data: bytes, name: str, reading: Reading, most: int) -> PreviewSource:
    """Read an export through a temporary file, since its readers pass over it twice."""
    with tempfile.TemporaryDirectory(prefix="memos-read-") as folder:
        path = Path(folder) / f"input{Path(name).suffix.lower() or '.json'}"
        path.write_bytes(data)
        try:
            records = checked(read_export(path, detect(path), Path(name).stem), reading.zone, reading.now)
            found = [entry.record for entry in islice(records, most + 1)]
        except InvalidInput as error:
            raise InvalidInput(name if error.field == str(path) else error.field, error.reason) from error
    taken = [record for record in found[:most] if record.problem is None and record.message]
    return PreviewSource(
        tuple(record.message for record in taken),
        tuple(record.conversation for record in taken),
        tuple((record.place, record.problem) for record in found[:most] if record.problem is not None),
        len(found) > most,
    )


def _windows(items: Sequence[Item]) -> Iterator[list[Item]]:
    window: list[Item] = []
    tokens = 0
    for item in items:
        cost = estimate_tokens(item.memory)
        if window and (item.conversation != window[-1].conversation or tokens + cost > _WINDOW_TOKENS):
            yield window
            window, tokens = [], 0
        window.append(item)
        tokens += cost
    if window:
        yield window


def _shown_item(item: Item, draft: Draft) -> PreviewItem:
    return PreviewItem(
        int(item.id),
        item.conversation,
        item.speaker,
        item.role,
        draft.message.trust,
        draft.message.chat_time,
        item.memory,
        item.key,
        item.value,
        item.entities,
        item.keywords,
        item.valid_from,
        item.valid_to,
    )


def _fact(fact: Fact, texts: dict[str, str], speakers: dict[str, str]) -> PreviewFact:
    waits = orders_from_untrusted(fact) or told_of_another(fact, {speakers[span.item] for span in fact.spans})
    return PreviewFact(
        fact.type,
        fact.subject,
        fact.memory,
        fact.key,
        fact.value,
        fact.confidence,
        fact.valid_from,
        fact.valid_to,
        fact.trust,
        waits,
        tuple(texts[span.item][span.start : span.end] for span in fact.spans),
        tuple(int(span.item) for span in fact.spans),
    )
