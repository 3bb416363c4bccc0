"""Hands a trained adapter out: what peft, vLLM and others load, whole and as it was examined, or nothing.

What it was taught stays. Knows files, no ledger.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from memos.core.clock import new_id
from memos.core.lora import CARD, CONFIG, FILES, MANIFEST, card_of, digests, manifest_in, wrong_with
from memos.core.recipes import ADAPTER_FILE
from memos.errors import Conflict, InvalidInput
from memos.memcube.backup.files import DigestedFile, created, disk_errors, sync_folder

EXPORTED = (*FILES, CARD)
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an adapter in a folder of its own, as peft, vLLM and others load them."""

    adapter: str
    folder: str
    files: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """The folder of an adapter, the SHA-256 of its weights, and what raises when it may be handed out no more."""

    adapter: str
    folder: Path
    digest: str | None
    still: Callable[[], object]


def to_folder(source: Source, target: Path) -> Exported:
    """Copy an adapter's files into a new folder, which appears when they are all there.

    Raises: Conflict (the folder is there, or the files are damaged), InvalidInput, BackendUnavailable.
    """
    with disk_errors(target.parent):
        if target.exists() or target.is_symlink():
            raise Conflict(f"There is {str(target)!r} already: choose another name, or remove it.")
        if not target.name or not target.parent.is_dir():
            raise InvalidInput("folder", f"must be a new one in a folder that is there, not {str(target)!r:.200}")
        if target.resolve().is_relative_to(source.folder.parent.resolve()):
            raise InvalidInput("folder", "must not be among the adapters themselves: it would be removed as nobody's")
        aside = target.with_name(f".{target.name}.{new_id()}.part")
        try:
            aside.mkdir(mode=0o700)
            size = _copied(source, lambda name: created(aside / name))
            sync_folder(aside)
            source.still()
            aside.rename(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return Exported(source.adapter, str(target), EXPORTED, size)


def to_zip(source: Source, scratch: Path) -> IO[bytes]:
    """Return them as a zip in a file without a name, at its beginning, for the caller to close. Raises: as above."""
    with disk_errors(scratch):
        out = _nameless(scratch)
        try:
            with zipfile.ZipFile(out, "w") as packed:  # weights do not shrink
                _copied(source, partial(_member, packed))
            source.still()
            out.seek(0)
        except BaseException:
            out.close()
            raise
    return out


def _nameless(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _member(packed: zipfile.ZipFile, name: str) -> AbstractContextManager[IO[bytes]]:
    return packed.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def _copied(source: Source, opened: Callable[[str], AbstractContextManager[IO[bytes]]]) -> int:
    """Write each file to where it is opened; return the bytes of all.

    Raises: Conflict, OSError, and as `source.still` where the adapter was removed meanwhile.
    """
    try:
        return _copied_whole(source, opened)
    except FileNotFoundError:
        source.still()
        raise


def _copied_whole(source: Source, opened: Callable[[str], AbstractContextManager[IO[bytes]]]) -> int:
    if (wrong := wrong_with(source.folder, source.digest)) is not None:
        raise Conflict(f"The adapter cannot be handed out: {wrong}. Remove it, and train again.")
    told = digests(source.folder)
    examined = {ADAPTER_FILE: told["weights_sha256"], CONFIG: told["config_sha256"]}
    size = 0
    for name in FILES:
        with (source.folder / name).open("rb") as file, opened(name) as out:
            digested = DigestedFile(out)
            while block := file.read(_BLOCK):
                digested.write(block)
        if digested.hexdigest() != examined.get(name, digested.hexdigest()):
            raise Conflict(f"{name} was changed while it was copied: repeat the export.")
        size += digested.size
    try:
        card = card_of(manifest_in(source.folder)).encode()  # made anew: nothing tells whether one that lies there was
    except (ValueError, RecursionError) as error:
        raise Conflict(f"{MANIFEST} was changed while it was copied: repeat the export.") from error
    with opened(CARD) as out:
        out.write(card)
    return size + len(card)
