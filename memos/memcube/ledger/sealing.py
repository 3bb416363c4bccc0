"""Seals the columns of text of a ledger on PostgreSQL, with AES-256-GCM and the key of the cube that a row belongs to.

A sealed value says which key opens it, so that reading needs to know no cube. What is empty stays as it is. The name
of the column is authenticated: whoever may write the database can move a value between rows, and nowhere else.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from memos.core.clock import from_micros
from memos.errors import IntegrityError, InvalidInput
from memos.memcube.encryption.keys import NONCE_BYTES, cipher
from memos.memcube.ledger import schema as t
from memos.memcube.ledger.columns import CUBE, SEALER, kind_of, sealed_columns

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from memos.memcube.encryption.ledger_keys import LedgerKeyring
    from memos.memcube.ledger.engine import Ledger

MARK = "hc1:"
_SHARED = "ledger"
_SEEN = "memos_keys_seen"


class ColumnSealer:
    """Seals what is written to an encrypted ledger, and opens what is read.

    Args:
        keys: Those of the installation.
        writes_plain: Write plain text and read both forms, to decrypt a ledger.
        may_be_plain: Also read plain text, to encrypt a ledger.
    """

    def __init__(self, keys: LedgerKeyring, *, writes_plain: bool = False, may_be_plain: bool = False) -> None:
        self.keys = keys
        self._writes_plain = writes_plain
        self._may_be_plain = may_be_plain or writes_plain
        self._of_cube: dict[str, str] = {}
        self._opened: dict[str, AESGCM] = {}
        self._state = keys.number

    def attach(self, engine: sa.Engine) -> None:
        """Encrypt and decrypt the columns of every later statement on an engine."""
        is_new = getattr(engine.dialect, SEALER, None) is None
        setattr(engine.dialect, SEALER, self)
        if not is_new:
            return

        # Functions of this engine alone: the registry of events knows engines and functions by their addresses.
        @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
        def _before(
            connection: sa.Connection, _cursor: Any, statement: str, parameters: Any, context: Any, _many: bool
        ) -> tuple[str, Any]:
            return statement, _sealed_parameters(connection, parameters, context)

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.info.pop(_SEEN, None)

    # Reading

    def opened(self, about: str, value: Any) -> Any:
        """Return the content of a column. Raises: IntegrityError (changed, not sealed, or its key is gone)."""
        if isinstance(value, bytes | bytearray | memoryview):
            head, _, sealed = bytes(value).partition(b":")[2].partition(b":")
            is_sealed, key_id = bytes(value[: len(MARK)]) == MARK.encode(), head.decode(errors="replace")
        elif isinstance(value, str) and value.startswith(MARK):
            key_id, _, text = value[len(MARK) :].partition(":")
            is_sealed = True
            try:
                sealed = base64.b64decode(text, validate=True)
            except binascii.Error:
                sealed = b""
        else:
            is_sealed, key_id, sealed = False, "", b""
        content = self._content(about, key_id, sealed) if is_sealed else None
        if content is None:
            if self._may_be_plain:
                return value
            raise IntegrityError(
                f"A value of {about} in the ledger was changed, or is not sealed with a key of this installation. "
                "Restore the database from a backup. Nothing was changed."
            )
        if isinstance(value, str):
            return _unpacked(content)
        return content

    def _content(self, about: str, key_id: str, sealed: bytes) -> bytes | None:
        opener = self._opener(key_id)
        if opener is None:
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        try:
            return opener.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            return None

    def _opener(self, key_id: str) -> AESGCM | None:
        found = self._opened.get(key_id)
        if found is None:
            key = self.keys.shared(_SHARED) if key_id == _SHARED else self.keys.key(key_id)
            if key is None:
                return None
            found = self._opened[key_id] = cipher(key)
        return found

    # Writing

    def sealed(self, about: str, key_id: str, content: bytes) -> bytes:
        """Return a nonce and the sealed content."""
        opener, nonce = self._opener(key_id), os.urandom(NONCE_BYTES)
        if opener is None:
            raise IntegrityError(f"The key {key_id} was destroyed while it was in use; repeat the call.")
        return nonce + opener.encrypt(nonce, content, about.encode())

    def seal_row(self, connection: sa.Connection, table: sa.Table, raw: Mapping[str, Any], cube: str | None) -> Any:
        """Return the sealed values of a row by column; `raw` has them as the caller gave them."""
        found: dict[str, Any] = {}
        if self._writes_plain:
            return found
        for column in sealed_columns(table):
            value = raw.get(column.name)
            if not value:
                continue
            about = f"{table.name}.{column.name}"
            key_id = _SHARED if table.name == t.cubes.name else self._key_of(connection, raw.get("cube_id") or cube)
            if isinstance(kind_of(column), sa.LargeBinary):
                found[column.name] = f"{MARK}{key_id}:".encode() + self.sealed(about, key_id, bytes(value))
                continue
            text = base64.b64encode(self.sealed(about, key_id, _packed(value))).decode()
            written = f"{MARK}{key_id}:{text}"
            found[column.name] = json.dumps(written) if isinstance(kind_of(column), sa.JSON) else written
        return found

    def _key_of(self, connection: sa.Connection, cube: str | None) -> str:
        if cube is None:
            raise RuntimeError("A value is to be sealed, and the statement does not say of which cube.")
        seen = connection.info.get(_SEEN)
        if seen is None:
            # Shared until this transaction ends: no key that it seals with is destroyed meanwhile.
            seen = connection.info[_SEEN] = self.keys.watch(connection)
        if seen != self._state:  # another process made or destroyed keys
            self.keys.reread()
            self._of_cube, self._opened, self._state = {}, {}, seen
        if cube not in self._of_cube:
            self._of_cube[cube] = self.keys.for_cube(cube, _made_at(connection, cube))
        return self._of_cube[cube]


def _made_at(connection: sa.Connection, cube: str) -> datetime:
    query = sa.select(sa.type_coerce(t.cubes.c.created_at, sa.BigInteger)).where(t.cubes.c.id == cube)
    found = connection.scalar(query)
    if found is None:
        raise RuntimeError(f"A value is to be sealed for the cube {cube!r}, which does not exist.")
    return from_micros(found)


def _packed(value: Any) -> bytes:
    if not isinstance(value, str):
        return b"J" + json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if "\0" in value:
        raise InvalidInput("value", "has a NUL character, which cannot be stored; remove it")
    try:
        return b"T" + value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("value", "has a lone surrogate, which cannot be stored; send valid Unicode") from error


def _unpacked(content: bytes) -> Any:
    if content[:1] == b"J":
        return json.loads(content[1:].decode("utf-8", "surrogatepass"))
    return content[1:].decode()


def _sealed_parameters(connection: sa.Connection, parameters: Any, context: Any) -> Any:
    """Replace the values of sealed columns in the parameters of an insert or an update."""
    if context is None or not (context.isinsert or context.isupdate) or context.compiled is None:
        return parameters
    table = t.metadata.tables.get(context.compiled.statement.table.name)
    if table is None or not sealed_columns(table):
        return parameters
    sealer: ColumnSealer = getattr(connection.dialect, SEALER)
    cube = context.execution_options.get(CUBE)
    rows = parameters if isinstance(parameters, list) else [parameters]
    sealed = [
        {**row, **sealer.seal_row(connection, table, raw, cube)}
        for row, raw in zip(rows, context.compiled_parameters, strict=True)
    ]
    return sealed if isinstance(parameters, list) else sealed[0]


_ROWS_AT_ONCE = 100


def rewrite(ledger: Ledger) -> None:
    """Write all sealed columns again as the ledger's sealer has it, and every table anew, without what it held before.

    What was cut off is done again: who has the ledger alone reads sealed values and others.
    """
    for table in t.metadata.sorted_tables:
        columns = sealed_columns(table)
        if columns:
            _rewrite_rows(ledger, table, columns)
    ledger.compact([table.name for table in t.metadata.sorted_tables if sealed_columns(table)])


def _rewrite_rows(ledger: Ledger, table: sa.Table, columns: list[sa.Column[Any]]) -> None:
    ids = list(table.primary_key)
    its_cube = t.files.c.cube_id if table is t.file_parts else table.c.get("cube_id", t.cubes.c.id)
    query = sa.select(its_cube.label("its_cube"), *(column.label(f"its_{column.name}") for column in ids), *columns)
    if table is t.file_parts:
        query = query.join_from(t.file_parts, t.files, t.files.c.id == t.file_parts.c.file_id)
    changed = sa.update(table).where(*(column == sa.bindparam(f"its_{column.name}") for column in ids))
    with ledger.read() as connection:
        rows = connection.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})
        for batch in rows.partitions():
            by_cube: dict[str, list[dict[str, Any]]] = {}
            for row in batch:
                told = row._asdict()
                by_cube.setdefault(told.pop("its_cube"), []).append(told)
            with ledger.write() as writing:
                for cube, entries in by_cube.items():
                    writing.execute(changed, entries, execution_options={CUBE: cube})
