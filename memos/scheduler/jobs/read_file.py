"""Reads a stored document: converted and cut outside any transaction, kept whole in the one that ends the task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from memos.core.ports import DocumentPages, DocumentReader
from memos.core.text.entities import entities
from memos.core.text.keywords import keywords
from memos.core.types import FileState, Json, StoredFile
from memos.errors import InvalidInput, NotFound
from memos.memcube import changes, documents
from memos.memcube.documents import Part
from memos.memcube.ledger import files
from memos.reader.documents import Document, Passage, Split, read
from memos.reader.masking import Masking
from memos.scheduler.task import Run

_SHARE_CONVERTED = 0.3


@dataclass(frozen=True, slots=True)
class ReadFileJob:
    """`split` is the embedder's, `masking` makes what masks a cube's texts.

    `settled` is called when passages were stored, so that the indexes show them soon.
    """

    reader: DocumentReader
    split: Split
    settled: Callable[[], object]
    masking: Callable[[str], Masking]

    def run(self, run: Run) -> None:
        """Read the file that the task names; one that cannot be read says why, and its task is done."""
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
                documents.give_up(changes.begin(connection, file.cube, file.actor, run.clock), file, error.reason)
            return
        parts = [_part(document, passage) for passage in document.passages]
        run.go_on(0.9)
        with run.finishing() as connection:
            change = changes.begin(connection, file.cube, file.actor, run.clock)
            told = _told(document)
            if masking.masked:
                # What was not to be stored is in the bytes too, in a form that cannot be masked.
                told["masked"] = dict(Counter(file.info.get("masked", {})) + Counter(masking.kinds))
                files.replace_content(connection, file.id, document.markdown.encode())
                masking.record(change)
            documents.keep(change, file, parts, told, document.media_type)
        self.settled()

    def _read(self, run: Run, file: StoredFile, data: bytes, masking: Masking) -> Document:
        pages = _masked(self.reader.pages(file.name, data, run.go_on), masking)
        run.go_on(_SHARE_CONVERTED)

        def split(text: str, tokens: int) -> list[tuple[int, int]]:
            run.go_on()
            return self.split(text, tokens)

        return read(pages, split)


def _masked(document: DocumentPages, masking: Masking) -> DocumentPages:
    """Return a document with what must not be stored masked, before a place in it is counted."""
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
        "format": document.format, "characters": len(document.markdown), "passages": len(document.passages),
    }  # fmt: skip
    if document.pages:
        told |= {"pages": document.pages, "blank_pages": document.blank_pages}
    if document.ocr:
        told |= {"ocr_pages": len(document.ocr), "ocr_confidence": round(fmean(document.ocr.values()), 3)}
    if document.unread:
        told["unread_pages"] = document.unread
    return told
