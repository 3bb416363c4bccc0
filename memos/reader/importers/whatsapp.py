"""WhatsApp's export of a chat as text (`_chat.txt`), as iOS and Android write it.

The dates are in the phone's own order. Whether the day or the month comes first is read out of the whole file: a number
above 12, dots between numbers, or that messages follow each other in time. Where both orders fit, the file is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from memos.core.message_shapes import file_part, text_part
from memos.core.types import Json, Role
from memos.errors import InvalidInput
from memos.reader.importers.base import REMOVED, SERVICE, ExportRecord, content_of, image_part, left_out, message_of
from memos.reader.importers.sources import DateOrder, Export, SourceFile, printable

_MOST_LINE_BYTES = 1_048_576
_MOST_MARK_CHARS = 300
_UNSEEN = re.compile("[\u200e\u200f\u202a-\u202e\ufeff]")
_HALF = r"(?P<half>[ap]\.?[  ]?m\.?|上午|下午|오전|오후|午前|午後)"
_WHEN = (
    r"(?P<one>\d{1,4})(?P<mark>[./-])(?P<two>\d{1,2})[./-](?P<three>\d{1,4})\.?,? "
    rf"(?:{_HALF} ?)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d{{2}})(?:[:.](?P<second>\d{{2}}))?"
)
_LATE = _HALF.replace("half", "late")
_IOS = re.compile(rf"\[{_WHEN}(?: ?{_LATE})?\] ?(?P<rest>.*)", re.DOTALL | re.IGNORECASE)
_ANDROID = re.compile(rf"{_WHEN}(?: ?{_LATE})? - (?P<rest>.*)", re.DOTALL | re.IGNORECASE)
_SPEAKER = re.compile(r"(?P<name>[^:\n]{1,100}): (?P<text>.*)|(?P<empty>[^:\n]{1,100}):", re.DOTALL)
_PM = ("p", "下午", "오후", "午後")
_REMOVED = re.compile(
    r"(?:this message was deleted|you deleted this message|diese nachricht wurde gelöscht|du hast diese nachricht "
    r"gelöscht|se eliminó este mensaje|eliminaste este mensaje|ce message a été supprimé|vous avez supprimé ce message|"
    r"mensagem apagada|essa mensagem foi apagada|você apagou esta mensagem|questo messaggio è stato eliminato|"
    r"hai eliminato questo messaggio|dit bericht is verwijderd)(?: by admin .*)?\.?",
    re.IGNORECASE,
)
_EDITED = re.compile(r"\s*<This message was edited>\s*$", re.IGNORECASE)
_OMITTED = re.compile(
    r"<[^<>]*(?:omitted|weggelassen|ausgeschlossen|omitidos?|omis|omessi|oculto)[^<>]*>|"
    r"(?:image|video|audio|gif|sticker|document|contact card)(?: note)? omitted",
    re.IGNORECASE,
)
_ATTACHED = re.compile(
    r"<(?:attached|anhang|adjunto|pièce jointe|anexado|allegato): (?P<a>[^<>]+)>|"
    r"(?P<b>\S[^\n]{0,200}\.\w{2,5}) \([^()\n]+\)(?=\n|$)",
    re.IGNORECASE,
)
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".heic")
_NAMED = re.compile(r"(?:^|/)(?:_chat\.txt|[^/]*whatsapp[^/]*)$", re.IGNORECASE)
_TITLE = re.compile(
    r"(?:WhatsApp[- ]Chat(?: (?:with|mit|con|avec|met|com))?(?: -)? |Chat de WhatsApp con |Conversa do WhatsApp com )"
    r"(?P<who>.+?)(?: ?\(\d+\))?",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Said:
    line: int
    one: int
    two: int
    three: int
    mark: str
    clock: tuple[int, int, int]
    text: str


def is_whatsapp(export: Export) -> bool:
    return any(True for _ in _chats(export))


def _chats(export: Export) -> Iterator[SourceFile]:
    texts = [file for file in export.files if export.single or file.suffix == ".txt"]
    alone = len(texts) == 1 and not any(file.suffix in (".md", ".markdown", ".json") for file in export.files)
    for file in texts:
        # Among notes a text that begins with a date may be a diary.
        if (alone or _NAMED.search(file.name) is not None) and _begins(file):
            yield file


def _begins(file: SourceFile) -> bool:
    head = file.head(4_096).decode("utf-8", "ignore").split("\n")
    return any(_match(_clean(line)) is not None for line in head[:3])


def whatsapp_records(export: Export, fallback: str) -> Iterator[ExportRecord]:
    """Yield the messages of chats. Raises: InvalidInput (the order of day and month in the only one is not clear)."""
    files = [*_chats(export)]
    if not files:
        yield ExportRecord("the export", fallback, {}, "is not a chat of WhatsApp: no line begins with a date")
    for file in files:
        called = file.stem if file.stem != "_chat" and not export.single else fallback
        title = _TITLE.fullmatch(called)
        conversation, before = (title["who"] if title else called)[:200], "" if len(files) == 1 else f"{file.label}: "
        try:
            order = export.options.date_order or date_order(file)
            for said in _messages(file):
                yield _record(said, order, conversation, f"{before}line {said.line}")
        except InvalidInput as error:
            if len(files) == 1:
                raise
            yield ExportRecord(printable(file.name), conversation, {}, error.reason)
    yield from left_out(export.others(files))


def date_order(file: SourceFile) -> DateOrder:
    """Return which order of day and month fits every date of a file. Raises: InvalidInput."""
    fits = {"day": True, "month": True}
    falls = {"day": 0, "month": 0}
    before: dict[str, tuple[int, int, int, tuple[int, int, int]]] = {}
    dots = False
    for said in _messages(file):
        if said.one > 31:
            return "day"  # the year comes first: no question
        dots |= said.mark == "."
        for name, day, month in (("day", said.one, said.two), ("month", said.two, said.one)):
            fits[name] &= 1 <= month <= 12 and 1 <= day <= 31
            at = (said.three, month, day, said.clock)
            falls[name] += name in before and at[:3] < before[name][:3]
            before[name] = at
    if fits["day"] != fits["month"]:
        return "day" if fits["day"] else "month"
    if not fits["day"]:
        raise InvalidInput(file.label, "has dates in two orders of day and month; export the chat again")
    if dots or falls["month"] > falls["day"]:
        return "day"
    if falls["day"] > falls["month"]:
        return "month"
    if before and before["day"] == before["month"] and falls["day"] == 0:
        first = next(iter(_messages(file)))
        if first.one == first.two:
            return "day"  # all on days such as 5/5
    raise InvalidInput(
        file.label,
        "has dates in which the day or the month may come first; say which: date_order (--date-order) day or month",
    )


def _messages(file: SourceFile) -> Iterator[_Said]:
    """Yield messages with all of their lines."""
    current: _Said | None = None
    with file.open() as lines:
        number = 0
        while raw := lines.readline(_MOST_LINE_BYTES):
            number += 1
            try:
                line = _clean(raw.decode("utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                told = f"is not UTF-8: byte 0x{raw[error.start]:02x} in line {number}; convert the file to UTF-8"
                raise InvalidInput(file.label, told) from error
            found = _match(line)
            if found is None:
                if current is not None and len(current.text) < _MOST_LINE_BYTES:
                    current.text += f"\n{line}"
                continue
            if current is not None:
                yield current
            current = _said(found, number)
    if current is not None:
        yield current


def _clean(line: str) -> str:
    return _UNSEEN.sub("", line).replace("\u202f", " ").replace("\xa0", " ")


def _match(line: str) -> re.Match[str] | None:
    return _IOS.fullmatch(line) or _ANDROID.fullmatch(line)


def _said(found: re.Match[str], line: int) -> _Said:
    hour, half = int(found["hour"]), (found["half"] or found["late"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half.startswith(_PM) else 0)
    clock = (hour, int(found["minute"]), int(found["second"] or 0))
    return _Said(line, int(found["one"]), int(found["two"]), int(found["three"]), found["mark"], clock, found["rest"])


def _record(said: _Said, order: DateOrder, conversation: str, place: str) -> ExportRecord:
    speaker = _SPEAKER.fullmatch(said.text)
    if speaker is None:
        return ExportRecord(place, conversation, {}, left_out=1, reason=SERVICE)
    name, text = speaker["name"] or speaker["empty"], _EDITED.sub("", speaker["text"] or "").strip()
    if len(text) <= _MOST_MARK_CHARS and _REMOVED.fullmatch(text):
        return ExportRecord(place, conversation, {}, left_out=1, reason=REMOVED)
    year, month, day = said.three, *((said.two, said.one) if order == "day" else (said.one, said.two))
    if said.one > 31:
        year, month, day = said.one, said.two, said.three
    try:
        at = datetime(year + 2000 if year < 100 else year, month, day, *said.clock)  # noqa: DTZ001 - of the phone
    except ValueError:
        return ExportRecord(place, conversation, {}, "has a date that does not exist")
    content = content_of(_parts(text))
    if not content:
        return ExportRecord(place, conversation, {}, left_out=1)
    message = message_of(Role.USER, content=content, name=name.strip(), chat_time=at.isoformat())
    return ExportRecord(place, conversation, message)


def _parts(text: str) -> list[Json]:
    begin = text[:_MOST_MARK_CHARS]
    attached = _ATTACHED.match(begin)
    if attached is not None:
        name, rest = attached["a"] or attached["b"], text[attached.end() :].strip()
        part = image_part(name) if name.lower().endswith(_PICTURES) else file_part(name)
        return [part, text_part(rest)]
    omitted = _OMITTED.match(begin)
    if omitted is not None:
        picture = "image" in omitted[0].lower() or "gif" in omitted[0].lower()
        return [image_part() if picture else file_part(), text_part(text[omitted.end() :].strip())]
    return [text_part(text)]
