"""`MemOS.erasures`: check receipts of erasures, and look for what was erased in every file and row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

from memos.core.erasures import ReceiptCheck, ScanReport, Trace
from memos.core.text.validation import check_name, check_text
from memos.core.types import LOCAL_OWNER, ErasedForm, EraseReceipt, Json
from memos.errors import InvalidInput
from memos.kernel.context import Context
from memos.kernel.opening import OpenedInstallation
from memos.memcube import erasure, receipts
from memos.memcube.ledger import audit_chain, items
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.audit_chain import AuditMark
from memos.memcube.scan import LEAST_BYTES, Needles, Passages, Progress, Scan, Texts
from memos.memcube.signing import id_of, known_keys
from memos.reader.arguments import switch

_MOST_TEXTS = 1_000
_MOST_CHARS = 100_000
_MOST_FOLDERS = 100
_RECEIPT = "receipt"
_ID = re.compile(r"[0-9a-f-]{36}")

# Rows of these are what memories that are still there say; everything else that holds a passage is a remnant.
_LIVE = tuple(
    f"ledger: {table.name}."
    for table in (t.versions, t.messages, t.mentions, t.segments, t.files, t.file_parts, t.extractions)
)


class Erasures:
    """Receipts of erasures, and proofs of them."""

    def __init__(
        self, context: Context, installation: OpenedInstallation, find_receipt: Callable[..., EraseReceipt]
    ) -> None:
        self._context = context
        self._installation = installation
        self._find_receipt = find_receipt

    def verify(
        self,
        receipt: EraseReceipt | Mapping[str, Json] | str,
        *,
        texts: Sequence[str] = (),
        folders: Sequence[str | Path] = (),
        scan: bool = True,
        actor: str = LOCAL_OWNER,
        on_progress: Progress | None = None,
    ) -> ReceiptCheck:
        """Check a receipt's signature and its entry in the audit log, and look for what was erased.

        The scan reads every file of the installation and every row of the ledger, for the receipt's fingerprints and
        for `texts`. It is for admins, since it tells what anybody's memories say.

        Args:
            receipt: A receipt, or its JSON as an object or a text, or the id of one of this installation.
            texts: What was erased, if it is known: words or sentences of at least 4 bytes.
            folders: Other folders and files to scan, such as a backup, or the data of a database server.
            scan: Whether to scan; without it, anybody may check a receipt that they have.
            actor: Who asks.
            on_progress: Called with the number of files that were read, and of all.

        Raises:
            InvalidInput: It is no receipt, or a text is too short or long.
            PermissionDenied: The actor is not an admin, and `scan` is set.
        """
        context = self._context
        context.lifecycle.check_open()
        if switch("scan", scan):
            context.scopes.check_admin(actor)
        else:
            context.access.readable(check_name("actor", actor, 128))
        if isinstance(receipt, str) and _ID.fullmatch(receipt):
            receipt = self._find_receipt(receipt, actor=actor)
        found, extra = _receipt_of(receipt)
        told = _texts_of(texts)
        if not scan and (told or folders):
            raise InvalidInput("texts" if told else "folders", "are looked for by a scan only; leave out scan=False")
        places = _folders_of(folders)
        now = erasure.find(context.ledger, found.id)
        problems = [f"{name!r} is no field of a receipt, and not signed" for name in extra]
        signature, signer, signed_here = self._signed(found, problems)
        in_log = self._compare(found, now, problems)
        report = self._scan(found, told, places, on_progress) if scan else None
        if report is not None and report.remnants:
            count = len({(trace.encoding, trace.number) for trace in report.remnants})
            problems.append(f"{count} of the texts and passages are still in {report.remnants[0].place} or elsewhere")
        if report is not None and report.unread:
            problems.append(f"{report.unread[0]}; it could not be scanned")
        return ReceiptCheck(
            found.id,
            not problems,
            tuple(problems),
            signature,
            signer,
            signed_here,
            None if now is None else now.state,
            in_log,
            tuple(self._unreached(found if now is None else now)),
            report,
        )

    def _signed(
        self, found: EraseReceipt, problems: list[str]
    ) -> tuple[Literal["valid", "invalid", "missing"], str | None, bool]:
        if found.signature is None or found.public_key is None:
            # Before version 0.3 receipts were not signed; such a one proves nothing by itself.
            problems.append("it is not signed; ask the installation for its receipt again")
            return "missing", None, False
        try:
            signer = id_of(found.public_key)
        except ValueError:
            problems.append("its public key is none")
            return "invalid", None, False
        with self._context.ledger.read() as connection:
            here = known_keys(connection).get(signer) == found.public_key or signer == self._context.key.id
        if not receipts.is_valid(found):
            problems.append("it was changed after it was signed")
            return "invalid", signer, here
        if not here:
            problems.append(f"it was signed by another installation (key {signer})")
        return "valid", signer, here

    def _compare(self, found: EraseReceipt, now: EraseReceipt | None, problems: list[str]) -> bool | None:
        """Compare a receipt with the ledger; return whether the audit log has its entry."""
        if now is None:
            problems.append("this installation knows no such erasure")
        elif (found.cube, set(found.item_ids)) != (now.cube, set(now.item_ids)):
            problems.append("it is about other memories than the erasure that this installation knows by its id")
        elif now.state != "purged":
            problems.append("the erasure is not finished: files and logs may still hold it (`memos data verify`)")
        elif left := [form.name for form in now.forms if form.after and form.name not in ("backups", "dumps")]:
            problems.append(f"some of it was left: {', '.join(left)}")
        with self._context.ledger.read() as connection:
            back = items.scalars_in(connection, sa.select(t.items.c.id), t.items.c.id, found.item_ids)
            if count := len(list(back)):
                problems.append(f"{count} of the erased memories are there again")
            if (problem := audit_chain.broken(connection)) is not None:
                problems.append(f"the audit log was changed: {problem}")
            if found.audit_number is None or found.audit_chain is None:
                return None
            is_there = audit_chain.holds(connection, AuditMark(found.audit_number, found.audit_chain))
        if not is_there:
            problems.append(f"entry {found.audit_number} of the audit log is not that of this erasure any more")
        return is_there

    def _scan(
        self, found: EraseReceipt, texts: Sequence[str], folders: Sequence[Path], on_progress: Progress | None
    ) -> ScanReport:
        installation, ledger = self._installation, self._context.ledger
        secret = receipts.secret_of(self._context.key, found.id)
        kinds: tuple[Needles, ...] = (Texts(texts), Passages(secret, found.fingerprints))
        vault = installation.vault
        contents = None
        if vault is not None:
            from memos.memcube.encryption.opening import SealedContents  # noqa: PLC0415 - few are encrypted

            contents = SealedContents(vault.keys, installation.home, vault.working)
        scans, remnants, again = [], list[Trace](), list[Trace]()
        for needles in kinds:
            if not len(needles):
                continue
            scan = Scan(needles, contents=contents)
            scans.append(scan)
            with ledger.read() as connection:
                scan.ledger(connection)
            if installation.home.is_dir():
                scan.folder(installation.home, on_progress)
            if vault is not None:  # the files in use
                scan.folder(vault.working, on_progress)
            for folder in folders:
                scan.folder(folder, on_progress)
            live = {trace.number for trace in scan.traces.values() if trace.place.startswith(_LIVE)}
            # Of a text that is known, any place counts: whoever asks decides what may still say it.
            live = live if isinstance(needles, Passages) else set()
            for trace in scan.traces.values():
                (again if trace.number in live else remnants).append(trace)
        return ScanReport(
            max((scan.files for scan in scans), default=0),
            max((scan.read_bytes for scan in scans), default=0),
            max((scan.rows for scan in scans), default=0),
            len(kinds[0]),
            len(kinds[1]),
            tuple(remnants),
            tuple(again),
            tuple(dict.fromkeys(line for scan in scans for line in scan.unread)),
        )

    def _unreached(self, receipt: EraseReceipt) -> Iterator[str]:
        for folder in receipt.backups:
            told = "which could not be told" if folder in receipt.untold_backups else "a restore leaves it out"
            yield f"the backup {folder} ({told})"
        dumps = sum(form.before for form in receipt.forms if form.name == "dumps")
        if dumps:
            yield f"{dumps} dumps of the cube, wherever they are"
        settings = self._context.settings
        if not self._context.ledger.is_sqlite:
            yield "files, logs and replicas of PostgreSQL, which overwrites freed space later"
        if settings.qdrant.url is not None:
            yield "files and snapshots of the Qdrant server"
        if settings.neo4j.url is not None:
            yield "files and logs of the Neo4j server"


def _receipt_of(given: EraseReceipt | Mapping[str, Json] | str) -> tuple[EraseReceipt, list[str]]:
    """Return a receipt and the names of fields that it should not have. Raises: InvalidInput."""
    if isinstance(given, EraseReceipt):
        return given, []
    told: Any = given
    if isinstance(given, str):
        try:
            told = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(_RECEIPT, f"is not JSON ({error}); pass the JSON that an erasure answered") from error
    if not isinstance(told, Mapping):
        raise InvalidInput(_RECEIPT, f"must be an object, not {type(told).__name__}")
    known = {each.name: each for each in fields(EraseReceipt)}
    if missing := [name for name, each in known.items() if each.default is MISSING and name not in told]:
        raise InvalidInput(_RECEIPT, f"lacks {', '.join(missing)}; pass the JSON that an erasure answered")
    try:
        values = {name: _READ.get(name, _text)(told[name]) for name in known if told.get(name) is not None}
        found = EraseReceipt(**values)
        receipts.canonical_payload(found)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidInput(_RECEIPT, "has a field of the wrong type; pass the JSON that an erasure answered") from error
    return found, sorted(map(str, told.keys() - known.keys()))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # the ledger is asked for some of them, and takes neither lone surrogates nor NUL
    if "\0" in value:
        raise ValueError
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise TypeError
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError
    return tuple(map(_text, value))


def _counts(value: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    return {_text(name): read(each) for name, each in value.items()}


def _forms(value: Any) -> tuple[ErasedForm, ...]:
    told = [(_text(each["name"]), _number(each["before"]), each["after"]) for each in value]
    return tuple(ErasedForm(name, before, None if after is None else _number(after)) for name, before, after in told)


_READ: Mapping[str, Any] = {
    **dict.fromkeys(("item_ids", "rebuilt", "backups", "untold_backups", "fingerprints"), _names),
    "removed": partial(_counts, read=_number),
    "stores": partial(_counts, read=_text),
    "key_destroyed": _switch,
    "audit_number": _number,
    "at": datetime.fromisoformat,
    "forms": _forms,
}


def _texts_of(texts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(texts, str) or len(texts) > _MOST_TEXTS:
        raise InvalidInput("texts", f"must be a list of at most {_MOST_TEXTS:,} texts")
    told = tuple(dict.fromkeys(check_text("texts", text, _MOST_CHARS) for text in texts))
    if short := [text for text in told if len(text.encode("utf-8", "surrogatepass")) < LEAST_BYTES]:
        raise InvalidInput("texts", f"{short[0]!r} is too short to look for; give at least {LEAST_BYTES} bytes")
    return told


def _folders_of(folders: Sequence[str | Path]) -> tuple[Path, ...]:
    if isinstance(folders, str) or len(folders) > _MOST_FOLDERS:
        raise InvalidInput("folders", f"must be a list of at most {_MOST_FOLDERS} folders")
    places = tuple(Path(folder) for folder in folders)
    for place in places:
        if not place.exists():
            raise InvalidInput("folders", f"{str(place)!r} does not exist")
    return places
