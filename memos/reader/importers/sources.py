"""The files of an export: one file, several, a folder or a ZIP archive, read where they are and never unpacked.

An archive may be hostile: names are only labels, links and nested archives are left out, and what unpacks to far more
than its size is not read.
"""

from __future__ import annotations

import glob
import io
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Literal, cast

from memos.errors import InvalidInput

MOST_FILES = 100_000
"""Most files of one export."""

MOST_UNPACKED_BYTES = 68_719_476_736
"""Most bytes of all files in an archive, unpacked."""

MOST_RATIO = 200
"""How many times its size a file in an archive may unpack to; text compresses 5 to 20 times."""

MOST_COPIED_BYTES = 2_147_483_648
"""Most bytes of a database in an archive, which is copied to be read."""

_BLOCK = 1_048_576
_RATIO_FROM_BYTES = 16_777_216  # of small files the ratio says nothing
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ARCHIVES = (".zip", ".7z", ".rar", ".gz", ".bz2", ".xz", ".tar", ".tgz", ".zst")
_SYSTEM = ("__MACOSX/", ".DS_Store", "Thumbs.db", "desktop.ini")
_HEAD_BYTES = 65_536
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

LINK = "symbolic links"
NESTED = "archives inside an archive"
UNSAFE = "files with unsafe names"
LOCKED = "encrypted files"
BOMB = f"files that unpack to more than {MOST_RATIO} times their size"
METHOD = "files compressed in a way other than deflate"
DOUBLE = "second files of one name"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of an export. `name` is its path inside the export, with slashes; `label` names it in errors."""

    name: str
    label: str
    open: Callable[[], BinaryIO]
    path: Path | None = None
    """Where it lies on disk; None for a file in an archive."""
    modified_s: float | None = None

    @property
    def suffix(self) -> str:
        """The extension of its name in small letters, with the dot."""
        return PurePosixPath(self.name).suffix.lower()

    @property
    def stem(self) -> str:
        """Its name without folders and extension."""
        return PurePosixPath(self.name).stem

    def head(self, size: int = _HEAD_BYTES) -> bytes:
        """Return its first bytes; empty if it cannot be read."""
        try:
            with self.open() as file:
                return file.read(size)
        except (OSError, InvalidInput):
            return b""

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Yield a path of the file, of a copy if it is in an archive."""
        if self.path is not None:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="memos-import-") as copy:
            with self.open() as file:
                while block := file.read(_BLOCK):
                    copy.write(block)
                    if copy.tell() > MOST_COPIED_BYTES:
                        told = f"is larger than {MOST_COPIED_BYTES:,} bytes; unpack it and give the file"
                        raise InvalidInput(self.label, told)
            copy.flush()
            yield Path(copy.name)


DateOrder = Literal["day", "month"]
"""What comes first in a date whose year comes last."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What an export does not say of itself.

    Attributes:
        conversation: Name of conversations without one; by default the name of their file.
        name: What the file was called, where its path does not say.
        date_order: Which comes first in WhatsApp's dates, where the file leaves it open.
        collection: mem0's collection on a Qdrant server, or the database of a Neo4j server.
    """

    conversation: str | None = None
    name: str | None = None
    date_order: DateOrder | None = None
    collection: str | None = None


_DEFAULTS = ExportOptions()


@dataclass(frozen=True, slots=True)
class Export:
    """The files of an export, in the order in which people number them; `left_out` counts others by reason."""

    label: str
    files: tuple[SourceFile, ...]
    left_out: Counter[str] = field(default_factory=Counter)
    single: bool = False
    """It is one file that was given by itself."""
    options: ExportOptions = _DEFAULTS

    def others(self, taken: Collection[SourceFile]) -> Counter[str]:
        """Return how many files there are besides those that were taken, by their kind."""
        names = {file.name for file in taken}
        return Counter(kind_of(file) for file in self.files if file.name not in names)

    def named(self, *names: str) -> SourceFile | None:
        """Return the first file of one of these names, in any folder."""
        wanted = {name.casefold() for name in names}
        return next((file for file in self.files if file.name.rpartition("/")[2].casefold() in wanted), None)


Given = Path | str | Sequence[Path | str]
"""One path or several, patterns such as `conversations-*.json` among them."""


@contextmanager
def open_export(given: Given, options: ExportOptions = _DEFAULTS) -> Iterator[Export]:
    """Open the files that a path, a pattern or several of them stand for.

    Raises:
        InvalidInput: There is no such file, or an archive is damaged or holds too much.
    """
    paths = _paths(given)
    label = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(paths) == 1 and paths[0].is_file() and _is_zip(paths[0]):
        with _archive(paths[0]) as archive:
            yield _of_archive(paths[0], archive, options)
        return
    left_out: Counter[str] = Counter()
    files: list[SourceFile] = []
    for path in paths:
        if path.is_dir():
            files += _of_folder(path, path.name if len(paths) > 1 else "", left_out)
        elif len(paths) > 1 and path.suffix.lower() in _ARCHIVES:
            left_out["archives beside other files"] += 1
        else:
            files.append(file_on_disk(path, options.name))
    single = len(paths) == 1 and not paths[0].is_dir()
    if not files:
        raise InvalidInput(label, "holds no files; give an export, a folder of one, or its ZIP archive")
    if len(files) > MOST_FILES:
        raise InvalidInput(label, f"holds {len(files):,} files, more than the limit of {MOST_FILES:,}")
    yield Export(label, tuple(sorted(files, key=_order)), left_out, single, options)


def kind_of(file: SourceFile) -> str:
    """Return what files such as one that is not taken are called."""
    return f"files of the type {file.suffix}" if file.suffix else "files without an extension"


def printable(text: str) -> str:
    """Return a name as an error shows it: on one line, without marks that hide or turn text."""
    return _UNSHOWN.sub("\ufffd", text)[:200]


def _paths(given: Given) -> list[Path]:
    found: list[Path] = []
    for each in [given] if isinstance(given, str | Path) else given:
        if glob.has_magic(str(each)) and not Path(each).exists():
            matches = sorted(glob.glob(str(each), recursive=True))  # noqa: PTH207 - a pattern may be absolute
            if not matches:
                raise InvalidInput(str(each), "matches no file")
            found += map(Path, matches)
        else:
            found.append(Path(each))
    if not found:
        raise InvalidInput("file", "is required; give a file, a folder or a ZIP archive")
    return list(dict.fromkeys(found))


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
    except OSError:
        return False


def _order(file: SourceFile) -> list[tuple[int, int, str]]:
    # conversations-2 comes before conversations-10.
    parts = re.split(r"(\d{1,18})", file.name)
    return [(0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts]


def file_on_disk(path: Path, name: str | None = None, label: str | None = None) -> SourceFile:
    """Return a file on disk as a file of an export."""
    shown = str(path) if label is None else label

    def opened() -> BinaryIO:
        try:
            if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
                raise InvalidInput(shown, "is not a regular file; save it to a file first, because it is read twice")
            return path.open("rb")
        except (OSError, ValueError) as error:
            told = error.strerror if isinstance(error, OSError) else "no such name"
            raise InvalidInput(shown, f"cannot be read ({told})") from error

    try:
        modified = path.stat().st_mtime
    except (OSError, ValueError):
        modified = None
    return SourceFile(name or path.name, shown, opened, path, modified)


def _of_folder(folder: Path, prefix: str, left_out: Counter[str]) -> Iterator[SourceFile]:
    for walked, folders, names in os.walk(folder):  # follows no links
        here = Path(walked)
        left_out[LINK] += sum((here / each).is_symlink() for each in folders)
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in names:
            path = here / each
            if each.startswith(".") or each in _SYSTEM:
                continue
            if path.is_symlink() or not path.is_file():
                left_out[LINK if path.is_symlink() else "special files"] += 1
                continue
            inside = (Path(prefix) / path.relative_to(folder)).as_posix()
            if path.suffix.lower() == ".zip":
                left_out[NESTED] += 1
                continue
            yield file_on_disk(path, inside, printable(inside))


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(path)
    except (*_DAMAGED, OSError, ValueError) as error:
        raise InvalidInput(str(path), "is a damaged ZIP archive; the download may be incomplete") from error
    with archive:
        yield archive


def _of_archive(path: Path, archive: zipfile.ZipFile, options: ExportOptions) -> Export:
    left_out: Counter[str] = Counter()
    files: dict[str, SourceFile] = {}
    members = archive.infolist()
    if len(members) > MOST_FILES:
        raise InvalidInput(str(path), f"holds {len(members):,} files, more than the limit of {MOST_FILES:,}")
    total = 0
    for member in members:
        name = member.filename.replace("\\", "/")
        if name.endswith("/") or name.startswith(_SYSTEM) or name.endswith(_SYSTEM):
            continue
        reason = _refusal(member, name)
        if reason is None and name in files:
            reason = DOUBLE
        if reason is not None:
            left_out[reason] += 1
            continue
        total += member.file_size
        files[name] = SourceFile(name, printable(name), partial(_opened, archive, member, printable(name)))
    if total > MOST_UNPACKED_BYTES:
        raise InvalidInput(
            str(path), f"unpacks to {total:,} bytes, more than the limit of {MOST_UNPACKED_BYTES:,}; unpack it yourself"
        )
    if not files:
        told = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise InvalidInput(str(path), f"holds no files that can be read{f' ({told})' if told else ''}")
    return Export(str(path), tuple(sorted(files.values(), key=_order)), left_out, options=options)


def _refusal(member: zipfile.ZipInfo, name: str) -> str | None:
    """Return why a file of an archive is not read."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\0" in name or re.match(r"[A-Za-z]:", name):
        return UNSAFE
    if stat.S_ISLNK(member.external_attr >> 16):
        return LINK
    if member.flag_bits & 0x1:
        return LOCKED
    if name.lower().endswith(_ARCHIVES):
        return NESTED
    if member.compress_type not in _PLAIN:
        return METHOD
    if member.file_size > _RATIO_FROM_BYTES and member.file_size > MOST_RATIO * max(1, member.compress_size):
        return BOMB
    return None


class _Member(io.BufferedIOBase):
    """A file in an archive, whose damage is an error of ours."""

    def __init__(self, file: IO[bytes], label: str) -> None:
        self._file, self._label = file, label

    def _guarded(self, call: Callable[[], bytes | int]) -> bytes | int:
        try:
            return call()
        except _DAMAGED as error:
            raise InvalidInput(self._label, f"is damaged in its archive ({type(error).__name__})") from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return bytes(self._guarded(lambda: self._file.read(-1 if size is None else size)))

    def readline(self, size: int | None = -1, /) -> bytes:
        return bytes(self._guarded(lambda: self._file.readline(-1 if size is None else size)))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._guarded(lambda: self._file.seek(offset, whence)))

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> BinaryIO:
    try:
        return cast(BinaryIO, _Member(archive.open(member), label))  # it has what is used of a BinaryIO
    except _DAMAGED as error:
        raise InvalidInput(label, f"is damaged in its archive ({type(error).__name__})") from error
