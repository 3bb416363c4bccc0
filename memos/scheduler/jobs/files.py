"""Describe images with a vision model, and split stored documents into passages.

A description is an untrusted item derived from the image's message. Without a vision model the task is blocked; if the
model fails, the reason is stored with the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import sqlalchemy as sa
from pydantic import BaseModel, Field

from memos.core.clock import Clock
from memos.core.ports import DocumentPages, DocumentReader, Image
from memos.core.text.matching import entities, keywords
from memos.core.types import Fact, FileState, Item, ItemType, Json, Span, Status, StoredFile, Task, Trust
from memos.errors import InvalidInput, NotFound
from memos.llm.client import LLMClient
from memos.memcube import changes, documents, facts, images
from memos.memcube.documents import Part
from memos.memcube.ledger import files, items
from memos.reader.documents import Document, Passage, Split, read
from memos.reader.masking import Masking
from memos.scheduler.jobs.segments import ACTOR
from memos.scheduler.learning import meter_of, question, shortened
from memos.scheduler.task import TaskRun, WaitingForSetting

PROMPT = "describe-1"
NOTE = "no vision model is configured; set MEMOS_VISION_MODEL__BASE_URL and MEMOS_VISION_MODEL__MODEL, then restart"
_SHOWN_CHARS = 1_000
_MOST_OBJECTS = 30
# Less than for what somebody said.
_CONFIDENCE = 0.6


class Seen(BaseModel):
    """A model's description of an image."""

    description: str = Field(min_length=1, max_length=4_000)
    text: str = Field(default="", max_length=8_000)
    objects: list[str] = Field(default_factory=list, max_length=_MOST_OBJECTS)


@dataclass(frozen=True, slots=True)
class DescribeJob:
    """Describes one image per task; `settled` is called afterwards, to index the description soon."""

    asker: Callable[[], LLMClient | None]
    settled: Callable[[], object]
    clock: Clock
    masking: Callable[[str], Masking]

    def run(self, run: TaskRun) -> None:
        asker, cube = self.asker(), run.task.cube
        with run.ledger.read() as connection:
            file = images.find(connection, cube, str(run.task.payload["file"]))
            message = None if file is None else _message(connection, file)
            if file is None or message is None or "description" in file.info:
                return
            if asker is None:
                raise WaitingForSetting(NOTE)
            data = files.content(connection, file.id)
        run.check_budget()
        [system, user] = question(PROMPT, _lines(file, message))
        asked = [system, replace(user, images=(Image(file.media_type, data),))]
        seen = asker.complete_json(asked, Seen, meter=meter_of(run, "vision"))
        # A screenshot may show a secret.
        seen = seen.model_copy(update=self.masking(cube).fields(seen.model_dump()))
        self._keep(run, file, message, seen, asker.model)
        self.settled()

    @staticmethod
    def _keep(run: TaskRun, file: StoredFile, message: Item, seen: Seen, model: str) -> None:
        with run.finishing() as connection:
            change = changes.begin(connection, run.task.cube, ACTOR, run.clock)
            still = images.find(connection, change.cube, file.id)
            now = None if still is None else _message(connection, still)
            if still is None or now is None or "description" in still.info:
                return
            answer = facts.keep_record(change, PROMPT, model, seen.model_dump_json(), [message.id])
            images.described(change, still, _fact(still, now, seen, answer))

    def failed(self, connection: sa.Connection, task: Task, error: str) -> None:
        file = images.find(connection, task.cube, str(task.payload["file"]))
        if file is not None:
            images.finish(connection, file, FileState.FAILED, self.clock.now(), error=error[:500])


def _message(connection: sa.Connection, file: StoredFile) -> Item | None:
    found = items.current(connection, [file.cube], [file.item] if file.item else [])
    return next((state for state in found.values() if state.status is not Status.DELETED), None)


def _lines(file: StoredFile, message: Item) -> list[str]:
    told = {"said with it": message.memory, "file": file.name, "taken": file.info.get("taken_at")}
    return [f"{name}: {shortened(str(value), _SHOWN_CHARS)}" for name, value in told.items() if value]


def _fact(file: StoredFile, message: Item, seen: Seen, answer: str) -> Fact:
    lines = [f"Image {file.name}: {seen.description.strip()}"]
    if seen.text.strip():
        lines.append(f"Words in the image: {seen.text.strip()}")
    if seen.objects:
        lines.append(f"To be seen: {', '.join(word.strip() for word in seen.objects if word.strip())}")
    return Fact(
        type=ItemType.DOCUMENT,
        memory="\n".join(lines),
        spans=(Span(message.id, 0, max(1, len(message.memory))),),
        subject=message.speaker,
        reader=PROMPT,
        said_at=message.said_at or message.created_at,
        confidence=_CONFIDENCE,
        valid_from=message.valid_from,
        tags=(images.IMAGE_TAG,),
        trust=Trust.UNTRUSTED,
        extraction=answer,
        info={"file": file.id},
    )


_SHARE_CONVERTED = 0.3


@dataclass(frozen=True, slots=True)
class ReadFileJob:
    """Reads stored documents; `split` is the embedder's, `settled` is called afterwards, to index passages soon."""

    reader: DocumentReader
    split: Split
    settled: Callable[[], object]
    masking: Callable[[str], Masking]

    def run(self, run: TaskRun) -> None:
        """Read the task's file; if it is unreadable the reason is stored with the file, and the task is done."""
        with run.ledger.read() as connection:
            try:
                file = files.require(connection, [run.task.cube], str(run.task.payload["file"]))
            except NotFound:  # erased meanwhile
                return
            data = files.content(connection, file.id)
        if file.state is not FileState.PROCESSING:
            return
        try:
            masking = self.masking(file.cube)
            document = self._read(run, file, data, masking)
        except InvalidInput as error:
            with run.finishing() as connection:
                documents.mark_failed(changes.begin(connection, file.cube, file.actor, run.clock), file, error.reason)
            return
        parts = [_part(document, passage) for passage in document.passages]
        run.check_cancelled(0.9)
        with run.finishing() as connection:
            change = changes.begin(connection, file.cube, file.actor, run.clock)
            told = _told(document)
            if masking.masked:
                # The original bytes contain the secrets too, so the masked Markdown replaces them.
                told["masked"] = dict(Counter(file.info.get("masked", {})) + Counter(masking.kinds))
                files.replace_content(connection, file.id, file.cube, document.markdown.encode())
                masking.record(change)
            documents.store_passages(change, file, parts, told, document.media_type)
        self.settled()

    def _read(self, run: TaskRun, file: StoredFile, data: bytes, masking: Masking) -> Document:
        pages = _masked_text(self.reader.pages(file.name, data, run.check_cancelled), masking)
        run.check_cancelled(_SHARE_CONVERTED)

        def split(text: str, tokens: int) -> list[tuple[int, int]]:
            run.check_cancelled()
            return self.split(text, tokens)

        return read(pages, split)


def _masked_text(document: DocumentPages, masking: Masking) -> DocumentPages:
    """Mask a document before it is split, so that the positions of passages refer to the masked text."""
    pages = [
        replace(
            page, text=masking.whole("text", page.text), path=tuple(masking.text("title", part) for part in page.path)
        )
        for page in document.pages
    ]
    return replace(document, pages=tuple(pages))


def _part(document: Document, passage: Passage) -> Part:
    text = document.markdown[passage.start : passage.end]
    info: dict[str, Json] = {"path": list(passage.path)}
    if passage.header is not None:
        info["table"] = passage.header
    if passage.page is not None and passage.page in document.ocr:
        info |= {"ocr": True, "confidence": document.ocr[passage.page]}
    return Part(text, passage.start, passage.end, passage.page, info, entities(text), keywords(text))


def _told(document: Document) -> dict[str, Json]:
    told: dict[str, Json] = {
        "format": document.format,
        "characters": len(document.markdown),
        "passages": len(document.passages),
    }
    if document.pages:
        told |= {"pages": document.pages, "blank_pages": document.blank_pages}
    if document.ocr:
        told |= {"ocr_pages": len(document.ocr), "ocr_confidence": round(fmean(document.ocr.values()), 3)}
    if document.unread:
        told["unread_pages"] = document.unread
    return told
