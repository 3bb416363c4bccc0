"""The keys of an encrypted installation: a master key kept elsewhere, and data keys in `keys.json`, wrapped.

The master key wraps the root key, the root key wraps one data key for each kind of shared file and one for each cube.
A rotation therefore rewraps one key, and a running program, which holds the root key, notices nothing. Everything is
AES-256-GCM of the library `cryptography`, with the id of the wrapped key as associated data.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memos.core.clock import new_id, to_micros
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput, PermissionDenied
from memos.memcube.backup.files import disk_errors, sync_folder
from memos.memcube.backup.places import FolderPlace, Place

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SETTING = "MEMOS_ENCRYPTION_KEY"
KEYS_FILE, LOCK_FILE = "keys.json", "keys.lock"
KEY_BYTES = 32
NONCE_BYTES = 12

_FORMAT = "hippocube keys 1"
_COMMAND_S = 60
_MOST_KEY_BYTES = 4096
_HEX_CHARS = 2 * KEY_BYTES


def cipher(key: bytes) -> AESGCM:
    """Return AES-GCM with a key. Raises: BackendUnavailable (the extra is missing)."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra() from error
    return AESGCM(key)


def missing_extra() -> BackendUnavailable:
    return BackendUnavailable(
        "Encryption needs the extra `encryption`: pip install '.[encryption]' in the clone.", permanent=True
    )


# The master key


def master_key(place: str) -> bytes:
    """Read the 32 bytes of a master key from `file:PATH`, `env:NAME`, `keyring:SERVICE` or `command:PROGRAM`.

    The key is given as 64 hexadecimal digits or as base64, such as `openssl rand -base64 32` prints; a file may also
    hold the bytes themselves.

    Raises: InvalidInput (it cannot be read, or is no key), BackendUnavailable (the command failed).
    """
    scheme, _, rest = place.partition(":")
    readers: Mapping[str, Callable[[str], bytes]] = {
        "file": _from_file,
        "env": _from_environment,
        "keyring": _from_keyring,
        "command": _from_command,
    }
    if scheme not in readers or not rest:
        raise InvalidInput(SETTING, "must be file:PATH, env:NAME, keyring:SERVICE or command:PROGRAM")
    raw = readers[scheme](rest)
    if scheme == "file" and len(raw) == KEY_BYTES:
        return raw
    text = raw.strip()
    with suppress(ValueError, binascii.Error):
        key = binascii.unhexlify(text) if len(text) == _HEX_CHARS else base64.b64decode(text, validate=True)
        if len(key) == KEY_BYTES:
            return key
    raise InvalidInput(
        SETTING,
        f"names no master key ({scheme}: {len(text)} characters): it must be 32 random bytes in hexadecimal or base64, "
        "such as `openssl rand -base64 32` prints",
    )


def _from_file(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_MOST_KEY_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(SETTING, f"names the file {path}, which cannot be read ({why})") from error


def _from_environment(name: str) -> bytes:
    value = os.environ.get(name)
    if not value:
        raise InvalidInput(SETTING, f"names the environment variable {name}, which is not set")
    return value.encode(errors="surrogateescape")


def _from_keyring(name: str) -> bytes:
    service, _, user = name.partition("/")
    try:
        import keyring  # noqa: PLC0415 - few keep a key there
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError as error:
        raise BackendUnavailable(
            f"{SETTING} names the system's keyring, which needs a package: pip install keyring.", permanent=True
        ) from error
    try:
        value = keyring.get_password(service, user or "hippocube")
    except KeyringError as error:
        raise BackendUnavailable(f"The system's keyring cannot be used ({error}): unlock it and repeat.") from error
    if not value:
        raise InvalidInput(
            SETTING,
            f"names {service!r} of the system's keyring, which has no password for {user or 'hippocube'!r}; store one "
            f"with `keyring set {service} {user or 'hippocube'}`",
        )
    return str(value).encode()


def _from_command(line: str) -> bytes:
    try:
        words = shlex.split(line)
        done = subprocess.run(  # noqa: S603 - the operator's own program, without a shell
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False
        )
    except (OSError, ValueError) as error:
        raise InvalidInput(SETTING, f"names a command that cannot be started ({error})") from error
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailable(
            f"The command of {SETTING}, {words[0]}, gave no key within {_COMMAND_S} s; run it by hand."
        ) from error
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise BackendUnavailable(
            f"The command of {SETTING}, {words[0]}, ended with status {done.returncode} ({why[0]:.200})."
        )
    return done.stdout


# Wrapped keys


def _wrap(by: bytes, key: bytes, about: str) -> str:
    nonce = os.urandom(NONCE_BYTES)
    return base64.b64encode(nonce + cipher(by).encrypt(nonce, key, about.encode())).decode()


def _unwrap(by: bytes, wrapped: str, about: str) -> bytes:
    """Return a wrapped key. Raises: ValueError (another key, or changed)."""
    wanted = cipher(by)
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        raw = base64.b64decode(wrapped, validate=True)
        return wanted.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], about.encode())
    except (InvalidTag, binascii.Error, ValueError) as error:
        raise ValueError("cannot be unwrapped") from error


class KeyState(StrEnum):
    """Whether an installation is encrypted, or was being converted when the program ended."""

    ON = "on"
    OFF = "off"
    ENCRYPTING = "encrypting"
    DECRYPTING = "decrypting"


@dataclass(frozen=True, slots=True)
class CubeKey:
    """A cube's data key, wrapped with the cube's name; `made_at`, in microseconds, tells cubes of one name apart."""

    id: str
    made_at: int
    key: str


@dataclass(frozen=True, slots=True)
class KeysFile:
    """The content of `keys.json`: no key and no name in the clear."""

    id: str
    state: KeyState
    root: str
    shared: Mapping[str, str] = field(default_factory=dict)
    cubes: tuple[CubeKey, ...] = ()

    def written(self) -> bytes:
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, ensure_ascii=False).encode() + b"\n"

    def opened(self, master: bytes, where: str) -> bytes:
        """Return the root key. Raises: PermissionDenied (another master key), BackendUnavailable (the extra)."""
        try:
            return _unwrap(master, self.root, f"root {self.id}")
        except ValueError as error:
            raise PermissionDenied(
                f"{SETTING} gives a key that is not the master key of {where}: set it to the one in use since the last "
                "`memos data rotate-key`. Nothing was changed."
            ) from error


def new_keys(master: bytes, state: KeyState) -> tuple[KeysFile, bytes]:
    """Return new keys, and their root key."""
    root, id_ = os.urandom(KEY_BYTES), new_id()
    return KeysFile(id_, state, _wrap(master, root, f"root {id_}")), root


def parse_keys(raw: str | bytes, where: Path | str) -> KeysFile:
    """Return the keys that were written. Raises: IntegrityError."""
    try:
        told = json.loads(raw)
        if told.pop("format") != _FORMAT:
            raise ValueError
        told["state"] = KeyState(told["state"])
        told["cubes"] = tuple(CubeKey(**each) for each in told["cubes"])
        return KeysFile(**told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IntegrityError(
            f"{where} is damaged, and without its keys nothing of an encrypted installation can be read: put back a "
            "copy of it, such as the one beside the backups. Nothing was changed."
        ) from error


def read_keys(path: Path) -> KeysFile | None:
    """Read a file of keys without opening any; None if there is none. Raises: IntegrityError, PermissionDenied."""
    try:
        with disk_errors(path.parent):
            raw = path.read_bytes()
            return parse_keys(
                raw if raw.strip(b"\0") else path.read_bytes(), path
            )  # opened just before it was replaced
    except BackendUnavailable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


class Keyring:
    """The opened keys of an installation, and their file. Thread-safe; several processes may use one file."""

    def __init__(self, path: Path, content: KeysFile, root: bytes) -> None:
        self.path = path
        self.where = str(path)
        self.id = content.id
        self._root = root
        self._opened: dict[str, bytes] = {}
        self._content = content
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path, master: bytes, state: KeyState) -> Keyring:
        """Make new keys. Raises: PermissionDenied, BackendUnavailable (a full disk, or the extra is missing)."""
        content, root = new_keys(master, state)
        with disk_errors(path.parent):
            _write(path, content.written())
        return cls(path, content, root)

    @classmethod
    def open(cls, path: Path, content: KeysFile, master: bytes) -> Keyring:
        """Open keys with their master key. Raises: PermissionDenied (it is another), BackendUnavailable (the extra)."""
        return cls(path, content, content.opened(master, str(path)))

    @property
    def state(self) -> KeyState:
        return self._content.state

    def set_state(self, state: KeyState) -> None:
        self._change(lambda content: replace(content, state=state))

    def shared(self, name: str) -> bytes:
        """Return the installation's data key for one use, made when first asked for."""
        with self._lock:
            if f"shared {name}" not in self._opened and name not in self._content.shared:
                self._change(lambda now: self._with_shared(now, name))
            return self._unwrapped(f"shared {name}", self._content.shared[name])

    def for_cube(self, cube: str, made_at: datetime | None = None) -> str:
        """Return the id of a cube's current data key, made when first asked for.

        With `made_at`, when the cube was made, a key of an earlier cube of this name is not used.
        """
        least = 0 if made_at is None else to_micros(made_at)
        with self._lock:
            if self._newest(self._content, cube, least) is None:
                self._change(lambda now: self._with_cube(now, cube, least))
            found = self._newest(self._content, cube, least)
            assert found is not None
            return found.id

    def key(self, id_: str) -> bytes | None:
        """Return a cube's data key by its id; None if it was destroyed."""
        with self._lock:
            wrapped = next((each.key for each in self._content.cubes if each.id == id_), None)
            return None if wrapped is None else self._unwrapped(id_, wrapped)[:KEY_BYTES]

    def destroy(self, erased: Collection[tuple[str, datetime]]) -> dict[str, int]:
        """Destroy the keys of cubes that were erased at a time; return how many, by cube.

        The file is replaced and its old blocks are overwritten first; what the disk keeps of them is beyond a program.
        """
        with self._lock:
            gone = self._of_erased(self._reread(), erased)
            if gone:
                self._change(lambda now: replace(now, cubes=tuple(one for one in now.cubes if one.id not in gone)))
                self._close(gone)
        return dict(Counter(gone.values()))

    def _of_erased(self, content: KeysFile, erased: Collection[tuple[str, datetime]]) -> dict[str, str]:
        """Return the cube of each key, by the key's id, that an erased cube had."""
        at: dict[str, int] = {}
        for cube, moment in erased:
            at[cube] = max(at.get(cube, 0), to_micros(moment))
        names = {each.id: self._cube_of(each) for each in content.cubes}
        return {each.id: names[each.id] for each in content.cubes if each.made_at <= at.get(names[each.id], -1)}

    def _close(self, gone: Collection[str]) -> None:
        for id_ in gone:
            self._opened.pop(id_, None)

    def rotate(self, master: bytes) -> None:
        """Wrap the root key with another master key; nothing else changes."""
        self._change(lambda now: replace(now, root=_wrap(master, self._root, f"root {now.id}")))

    def copy_into(self, place: Place, *, only_existing: bool = False) -> None:
        """Write a copy of the file into a place of backups, whose name says of which installation it is."""
        name = copy_name(self.id)
        if only_existing and read_copy(place, self.id) is None:
            return
        content = self._reread().written()
        if isinstance(place, FolderPlace):
            with disk_errors(place.folder):
                _write(place.folder / name, content)
        else:
            place.put_last(name, content)

    def _reread(self) -> KeysFile:
        found = self._stored()
        if found is None or found.id != self.id:
            raise IntegrityError(f"{self.where} was removed or replaced while it was in use; put it back.")
        self._content = found
        return found

    def _stored(self) -> KeysFile | None:
        return read_keys(self.path)

    def _change(self, change: Callable[[KeysFile], KeysFile]) -> None:
        with self._lock, _locked(self.path.parent), disk_errors(self.path.parent):
            content = change(self._reread())
            _write(self.path, content.written())
            self._content = content

    def _with_shared(self, now: KeysFile, name: str) -> KeysFile:
        if name in now.shared:
            return now
        wrapped = _wrap(self._root, os.urandom(KEY_BYTES), f"shared {name}")
        return replace(now, shared={**now.shared, name: wrapped})

    def _with_cube(self, now: KeysFile, cube: str, least: int) -> KeysFile:
        if self._newest(now, cube, least) is not None:
            return now
        id_ = new_id()
        made = CubeKey(id_, least, _wrap(self._root, os.urandom(KEY_BYTES) + cube.encode(), id_))
        return replace(now, cubes=(*now.cubes, made))

    def _newest(self, content: KeysFile, cube: str, least: int) -> CubeKey | None:
        mine = (each for each in content.cubes if each.made_at >= least and self._cube_of(each) == cube)
        return max(mine, key=lambda each: each.made_at, default=None)

    def _cube_of(self, key: CubeKey) -> str:
        return self._unwrapped(key.id, key.key)[KEY_BYTES:].decode()

    def _unwrapped(self, about: str, wrapped: str) -> bytes:
        if about not in self._opened:
            try:
                self._opened[about] = _unwrap(self._root, wrapped, about)
            except ValueError as error:
                raise IntegrityError(f"{self.where} is damaged: a key in it was changed; put back a copy.") from error
        return self._opened[about]


def copy_name(id_: str) -> str:
    return f"keys-{id_}.json"


def read_copy(place: Place, id_: str) -> KeysFile | None:
    """Return the copy of an installation's keys in a place of backups, None if there is none."""
    name = copy_name(id_)
    if isinstance(place, FolderPlace):
        return read_keys(place.folder / name)
    try:
        with place.open(name) as file:
            return parse_keys(file.read(), f"{place}/{name}")
    except FileNotFoundError:
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with disk_errors(folder):
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    """Replace a file, whole after a crash; the bytes of the old one are overwritten."""
    temporary = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    old: Any = None
    with suppress(FileNotFoundError):
        old = path.open("r+b")
    temporary.replace(path)
    sync_folder(path.parent)
    if old is not None:
        with old:
            size = old.seek(0, os.SEEK_END)
            old.seek(0)
            old.write(b"\0" * size)
            old.flush()
            os.fsync(old.fileno())
