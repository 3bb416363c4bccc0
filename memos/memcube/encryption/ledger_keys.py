"""The keys of an encrypted ledger on PostgreSQL: in the ledger, so that all its processes have the same.

They are as `keys.json` is elsewhere, wrapped by the master key, in a mark of the table `meta`, which no backup has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from memos.errors import BackendUnavailable, Conflict, InvalidInput, PermissionDenied
from memos.memcube.encryption.keys import (
    KEYS_FILE,
    SETTING,
    Keyring,
    KeysFile,
    KeyState,
    master_key,
    new_keys,
    parse_keys,
)
from memos.memcube.ledger.engine import Ledger
from memos.memcube.ledger.postgres import KEYS_MARK
from memos.memcube.ledger.schema import cubes, meta
from memos.memcube.ledger.sealing import ColumnSealer

_NUMBER = "mark:keys-number"


class LedgerKeyring(Keyring):
    """The opened keys of an installation whose ledger is on a server."""

    def __init__(self, ledger: Ledger, content: KeysFile, root: bytes) -> None:
        super().__init__(Path(KEYS_FILE), content, root)
        self.where = f"the keys in {ledger.description}"
        self._ledger = ledger
        with ledger.read() as connection:
            self.number = self._number(connection)

    @classmethod
    def create_in(cls, ledger: Ledger, master: bytes, state: KeyState) -> LedgerKeyring:
        """Make new keys. Raises: Conflict (another process made some), BackendUnavailable (the extra is missing)."""
        content, root = new_keys(master, state)
        store(ledger, content)
        return cls(ledger, content, root)

    @classmethod
    def open_in(cls, ledger: Ledger, content: KeysFile, master: bytes) -> LedgerKeyring:
        """Open keys with their master key. Raises: PermissionDenied (it is another), BackendUnavailable (the extra)."""
        return cls(ledger, content, content.opened(master, f"the keys in {ledger.description}"))

    def watch(self, connection: sa.Connection) -> str:
        """Return the number of the last change of keys, and keep keys there until the transaction ends."""
        query = sa.select(meta.c.value).where(meta.c.key == _NUMBER)
        return str(connection.scalar(query.with_for_update(read=True)))

    def reread(self) -> None:
        """Take over what other processes made or destroyed."""
        with self._lock:
            self._reread()
            self._opened.clear()

    def key(self, id_: str) -> bytes | None:
        found = super().key(id_)
        if found is None:
            self.reread()
            found = super().key(id_)
        return found

    def _stored(self) -> KeysFile | None:
        return read_stored(self._ledger)

    def _change(self, change: Callable[[KeysFile], KeysFile]) -> None:
        with self._lock, self._ledger.write() as connection:
            after = change(self._locked(connection))
            self._write(connection, after)
        self._content = after

    def destroy(self, erased: Collection[tuple[str, datetime]]) -> dict[str, int]:
        with self._lock:
            if not self._of_erased(self._reread(), erased):
                return {}
        with self._ledger.write() as connection:
            # Before the lock of this keyring: it waits for transactions that seal, and these may have to make a key.
            mine = meta.c.key == _NUMBER
            number = int(connection.scalar(sa.select(meta.c.value).where(mine).with_for_update()) or 0)
            connection.execute(sa.update(meta).where(mine).values(value=str(number + 1)))
            with self._lock:
                before = self._locked(connection)
                gone = self._of_erased(before, erased)
                self._content = replace(before, cubes=tuple(one for one in before.cubes if one.id not in gone))
                self._write(connection, self._content)
                self._close(gone)
        return dict(Counter(gone.values()))

    def _locked(self, connection: sa.Connection) -> KeysFile:
        stored = sa.select(meta.c.value).where(meta.c.key == KEYS_MARK).with_for_update()
        return parse_keys(connection.scalar(stored) or "", self.where)

    def _write(self, connection: sa.Connection, content: KeysFile) -> None:
        text = content.written().decode()
        connection.execute(sa.update(meta).where(meta.c.key == KEYS_MARK).values(value=text))

    def _number(self, connection: sa.Connection) -> str:
        return str(connection.scalar(sa.select(meta.c.value).where(meta.c.key == _NUMBER)))


def store(ledger: Ledger, content: KeysFile) -> None:
    """Put keys into a ledger that has none. Raises: Conflict (it has some)."""
    rows = [{"key": KEYS_MARK, "value": content.written().decode()}, {"key": _NUMBER, "value": "0"}]
    with ledger.write() as connection:
        connection.execute(sa.insert(meta), rows)


def read_stored(ledger: Ledger) -> KeysFile | None:
    """Return the keys in a ledger without opening any, None if there are none. Raises: IntegrityError."""
    with ledger.read() as connection:
        text = connection.scalar(sa.select(meta.c.value).where(meta.c.key == KEYS_MARK))
    return None if text is None else parse_keys(text, f"the keys in {ledger.description}")


def open_stored(ledger: Ledger, place: str | None) -> LedgerKeyring | None:
    """Open the keys of an encrypted ledger, None if it is not encrypted. Raises: PermissionDenied, InvalidInput."""
    content = read_stored(ledger)
    if content is None or content.state is KeyState.OFF:
        return None
    if place is None:
        raise PermissionDenied(
            f"{ledger.description} is encrypted: set {SETTING} to where its master key is. Nothing was changed."
        )
    return LedgerKeyring.open_in(ledger, content, master_key(place))


def unlock_ledger(ledger: Ledger, place: str | None, *, may_be_plain: bool = False) -> LedgerKeyring | None:
    """Open the keys of a ledger on a server, or make them for a new one, and have it seal its columns of text.

    Args:
        ledger: The ledger, which is open.
        place: The setting `encryption_key`.
        may_be_plain: Accept a key although the ledger is not encrypted.

    Raises:
        InvalidInput: A key is set, but the ledger is not encrypted, or the key cannot be read.
        PermissionDenied: The key is missing, or is another one.
        BackendUnavailable: A conversion was cut off, or the extra is missing.
    """
    keys = open_stored(ledger, place)
    if keys is None:
        if place is None:
            return None
        with ledger.read() as connection:
            is_new = connection.scalar(sa.select(cubes.c.id).limit(1)) is None
        content = read_stored(ledger)
        if content is not None and content.state is KeyState.ON:  # another process made it meanwhile
            return unlock_ledger(ledger, place)
        if not is_new:
            if may_be_plain:
                return None
            raise InvalidInput(
                SETTING, f"is set, but {ledger.description} is not encrypted: run `memos data encrypt`, or unset it"
            )
        master = master_key(place)
        if content is None:
            try:
                keys = LedgerKeyring.create_in(ledger, master, KeyState.ON)
            except Conflict:
                return unlock_ledger(ledger, place)
        else:
            keys = LedgerKeyring.open_in(ledger, content, master)
            keys.set_state(KeyState.ON)
    elif keys.state is not KeyState.ON:
        word = "encrypt" if keys.state is KeyState.ENCRYPTING else "decrypt"
        raise BackendUnavailable(
            f"The conversion of {ledger.description} was cut off: run `memos data {word}` again to finish it. Nothing "
            "was lost.",
            permanent=True,
        )
    ledger.seal(ColumnSealer(keys))
    return keys
