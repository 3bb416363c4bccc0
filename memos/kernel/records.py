"""`MemOS.records`: memories with an id of the caller's, which a put replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of_class
from dataclasses import replace

from memos.core.filters import And, Condition, Op, fields_of, parse
from memos.core.identities import Right
from memos.core.telemetry import Listeners
from memos.core.text.validation import MAX_MESSAGE_BYTES, check_name, check_text, is_blank
from memos.core.types import (
    DEFAULT_CUBE,
    LOCAL_OWNER,
    Item,
    Json,
    RecordPrefix,
    Scope,
    SearchResult,
    Trust,
    Version,
)
from memos.errors import InvalidInput, shown
from memos.kernel.context import Context, retry_read, retry_write
from memos.kernel.memories import LISTED
from memos.kernel.search import SearchService
from memos.memcube import erasure, records
from memos.memcube.ledger import expiry, items
from memos.memcube.ledger import records as rows
from memos.memcube.ledger.schema import RECORD_ID_CHARS
from memos.memcube.records import NewRecord
from memos.reader.arguments import info_of, member_of, switch, tags_of, ttl_of, version_of, within
from memos.reader.masking import Masking

MOST_RECORDS = 1_000
"""Records that one call puts, gets or deletes."""

Items = list[Item]  # `list` is a method below
Versions = list[Version]
Prefixes = list[RecordPrefix]


class Records:
    """Records of cubes: a text and `info` under an id of the caller's, such as `users/ana/theme`."""

    def __init__(self, context: Context, search: SearchService, listeners: Listeners) -> None:
        self._context = context
        self._search = search
        self._listeners = listeners

    def put(  # noqa: PLR0913 - a record has that many parts
        self,
        id: str,
        memory: str,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        info: Mapping[str, Json] | None = None,
        tags: Sequence[str] = (),
        ttl_s: float | None = None,
        index: bool = True,
        trust: str = Trust.TRUSTED,
        expected_version: int | None = None,
    ) -> Item:
        """Store a record, or replace the one with this id by its next version; return it.

        A put that changes nothing writes nothing. A deleted record is brought back; one that has expired is a new one.

        Args:
            id: Any text up to 512 characters; with `/` between its parts, records are listed by prefix.
            memory: The text, found by searches.
            cube: The cube to store it in.
            actor: Who stores it.
            info: Further data: any JSON up to 64 KiB.
            tags: Tags.
            ttl_s: Seconds to live from now on; None for ever, also if the record had an end before.
            index: False to leave it out of all searches.
            trust: `untrusted` if the text is from a source that may not give instructions.
            expected_version: The version to replace; 0 if there must be none.

        Raises:
            InvalidInput: An argument is not usable.
            NotFound: The cube does not exist.
            Conflict: The record is at another version than expected.
        """
        given = {"id": id, "memory": memory, "info": info, "tags": tags, "ttl_s": ttl_s, "index": index, "trust": trust}
        return self._put([{**given, "expected_version": expected_version}], cube, actor, named=False)[0]

    def put_many(
        self, records: Sequence[Mapping[str, Json]], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> tuple[Item, ...]:
        """Store records, all or none; return them in order.

        Args:
            records: At most 1,000, as mappings of what `put` takes: `id`, `memory`, and what else is wanted.
            cube: The cube to store them in.
            actor: Who stores them.

        Raises: InvalidInput (also for one id twice), NotFound, Conflict.
        """
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Sequence):
            raise InvalidInput("records", f"must be a list of objects, not {type(records).__name__}")
        if len(records) > MOST_RECORDS:
            raise InvalidInput(
                "records", f"has {len(records):,} records, more than the limit of {MOST_RECORDS:,}; use several calls"
            )
        return self._put(records, cube, actor, named=True) if records else ()

    def _put(self, given: Sequence[Mapping[str, Json]], cube: str, actor: str, *, named: bool) -> tuple[Item, ...]:
        context = self._context
        with self._listeners.call("add") as clock:
            scope = context.scopes.check([cube], actor, right=Right.WRITE)
            clock.about(scope.cubes)
            masking = context.scopes.masking(scope)
            with clock.stage("read"):
                new = [_record(f"records[{n}]" if named else "", one, masking) for n, one in enumerate(given)]
                _check_distinct(new)
            with clock.stage("store"):
                ids = self._store(scope, new, masking)
            with clock.stage("index"):
                context.wait_indexed()
        return self._whole(scope, ids)

    @retry_write
    def _store(self, scope: Scope, new: Sequence[NewRecord], masking: Masking) -> Sequence[str]:
        with self._context.change(scope) as change:
            ids = records.put(change, new)
            masking.record(change)
        return ids

    def _whole(self, scope: Scope, ids: Sequence[str]) -> tuple[Item, ...]:
        with self._context.ledger.read() as connection:
            states = items.with_sources(connection, scope.cubes, ids)
        # Another call may have erased one meanwhile.
        return tuple(states[id_] for id_ in ids if id_ in states)

    def get(self, id: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, refresh_ttl: bool = False) -> Item:
        """Return a record with its source. Raises: NotFound (also when deleted or expired), InvalidInput.

        With `refresh_ttl` a record with a time to live lives as long again from now on, which takes the right to write.
        """
        found = self.get_many([id], cube=cube, actor=actor, refresh_ttl=refresh_ttl)
        if not found:
            raise records.unknown(id)
        return found[0]

    @retry_read
    def get_many(
        self, ids: Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, refresh_ttl: bool = False
    ) -> tuple[Item, ...]:
        """Return those of these records that are there, in the order of `ids`. Raises: NotFound (cube), InvalidInput.

        With `refresh_ttl` those with a time to live live as long again from now on, which takes the right to write.
        """
        wanted, refresh = _ids(ids), switch("refresh_ttl", refresh_ttl)
        scope = self._context.scopes.check([cube], actor, embeds=False, right=_right(refresh=refresh))
        now = self._context.clock.now()
        with self._context.ledger.read() as connection:
            found = records.present(connection, scope.cubes[0], wanted, now)
        return tuple(self._refreshed(scope, found) if refresh else found)

    def delete(self, id: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, reason: str = "deleted") -> str:
        """Delete a record; return the id of its memory, by which `rollback` brings it back. Raises: NotFound."""
        deleted = self.delete_many([id], cube=cube, actor=actor, reason=reason)
        if not deleted:
            raise records.unknown(id)
        return deleted[0]

    @retry_write
    def delete_many(
        self, ids: Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, reason: str = "deleted"
    ) -> tuple[str, ...]:
        """Delete those of these records that are there, in one step; return the ids of their memories.

        Raises: NotFound (cube), InvalidInput.
        """
        wanted = _ids(ids)
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)
        reason = self._context.scopes.masking(scope).text("reason", check_text("reason", reason, 1000))
        with self._context.change(scope) as change:
            found = records.present(change.connection, change.cube, wanted, change.now)
            deleted = [state.id for state in erasure.delete(change, [state.id for state in found], reason)]
        self._context.wait_indexed()
        return tuple(deleted)

    @retry_read
    def list(  # noqa: PLR0913 - what narrows it, and where it begins
        self,
        prefix: str = "",
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        limit: int = 100,
        offset: int = 0,
        after: str | None = None,
        refresh_ttl: bool = False,
    ) -> Items:
        """Return records in the order of their ids; deleted ones only if the filter names status.

        Args:
            prefix: What their ids begin with.
            cube: The cube.
            actor: Who asks.
            filter: What they must pass (docs/reference/filters.md).
            limit: The most to return, up to 10,000.
            offset: How many to skip.
            after: Continue after this id, the last of the page before, which stays quick however far.
            refresh_ttl: Those with a time to live live as long again from now on, which takes the right to write.

        Raises: InvalidInput, NotFound (cube).
        """
        node, refresh = parse(filter), switch("refresh_ttl", refresh_ttl)
        if "status" not in fields_of(node):
            listed = Condition("status", Op.IN, tuple(str(status) for status in LISTED))
            node = listed if node is None else And((listed, node))
        scope = self._context.scopes.check([cube], actor, embeds=False, right=_right(refresh=refresh))
        with self._context.ledger.read() as connection:
            found = rows.page(
                connection,
                scope.cubes[0],
                node,
                self._context.clock.now(),
                prefix=_prefix(prefix),
                after=None if after is None else check_name("after", after, RECORD_ID_CHARS),
                limit=within("limit", limit, 1, 10_000),
                offset=within("offset", offset, 0, 10**9),
            )
        return self._refreshed(scope, found) if refresh else found

    def search(  # noqa: PLR0913 - what narrows it
        self,
        query: str,
        prefix: str = "",
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        top_k: int = 10,
        min_relevance: float = 0,
        rerank: bool | None = None,
        refresh_ttl: bool = False,
    ) -> SearchResult:
        """Return the best records for a question, as `search` does for all memories.

        `prefix` is what their ids begin with; the other arguments are those of `search` and of `list`. Raises:
        InvalidInput, NotFound (cube).
        """
        begin: dict[str, Json] = {"startswith": text} if (text := _prefix(prefix)) else {"exists": True}
        wanted: dict[str, Json] = {"record_id": begin}
        if parse(filter) is not None:
            wanted = {"and": [wanted, filter]}
        refresh = switch("refresh_ttl", refresh_ttl)
        scope = self._context.scopes.check([cube], actor, right=_right(refresh=refresh))
        found = self._search(
            query, cubes=[cube], actor=actor, top_k=top_k, filter=wanted, min_relevance=min_relevance, rerank=rerank
        )
        if not refresh:
            return found
        refreshed = self._refreshed(scope, [hit.item for hit in found.hits])
        hits = tuple(replace(hit, item=item) for hit, item in zip(found.hits, refreshed, strict=True))
        return replace(found, hits=hits)

    @retry_read
    def prefixes(
        self,
        prefix: str = "",
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        depth: int | None = None,
        limit: int = 1_000,
        after: str | None = None,
    ) -> Prefixes:
        """Return what ids of records begin with, up to a `/`, with the number of records, in order.

        Args:
            prefix: What the ids begin with.
            cube: The cube.
            actor: Who asks.
            depth: Cut prefixes to so many parts after `prefix`; by default to what is before the last `/` of each id.
            limit: The most to return, up to 10,000.
            after: Continue after this one, the last of the page before.

        Raises: InvalidInput, NotFound (cube).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            return rows.prefixes(
                connection,
                scope.cubes[0],
                self._context.clock.now(),
                prefix=_prefix(prefix),
                depth=None if depth is None else within("depth", depth, 1, RECORD_ID_CHARS),
                after=None if after is None else check_name("after", after, RECORD_ID_CHARS),
                limit=within("limit", limit, 1, 10_000),
            )

    @retry_read
    def history(self, id: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> Versions:
        """Return every version of a record, also of a deleted one: who, when, why, before and after.

        Raises: NotFound, InvalidInput.
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        with self._context.ledger.read() as connection:
            state = records.require(connection, scope.cubes[0], _id("id", id), self._context.clock.now())
            return items.history(connection, scope.cubes, state.id)

    @retry_write
    def _refreshed(self, scope: Scope, found: Sequence[Item]) -> Items:
        with_end = [item.id for item in found if item.expires_at is not None]
        if not with_end:
            return [*found]
        with self._context.write() as connection:
            expiry.refresh(connection, with_end, self._context.clock.now())
            ends = {id_: state.expires_at for id_, state in items.current(connection, scope.cubes, with_end).items()}
        return [replace(item, expires_at=ends.get(item.id)) for item in found]


_FIELDS = {field.name for field in fields_of_class(NewRecord)} - {"searchable"} | {"index"}


def _record(where: str, given: Mapping[str, Json], masking: Masking) -> NewRecord:
    if not isinstance(given, Mapping):
        raise InvalidInput(where, f"must be an object with id and memory, not {type(given).__name__}")
    if unknown := given.keys() - _FIELDS:
        raise InvalidInput(where, f"has unknown fields {sorted(map(str, unknown))}; put extra data into info")
    try:
        return _checked(given, masking)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.{error.field}", error.reason) if where else error from None


def _checked(given: Mapping[str, Json], masking: Masking) -> NewRecord:
    id_ = _id("id", given.get("id"))
    if masking.name("id", id_) != id_:
        raise InvalidInput("id", "contains a secret, which no id may have; use another id")
    memory = given.get("memory")
    if isinstance(memory, str):
        memory = masking.text("memory", memory)
    memory = check_text("memory", memory, MAX_MESSAGE_BYTES)
    if is_blank(memory):
        raise InvalidInput("memory", "must not be empty; to delete the record, use delete")
    version = given.get("expected_version")
    return NewRecord(
        id_,
        memory,
        tags_of(masking.any("tags", given.get("tags", ()))),
        info_of(masking.any("info", given.get("info"))),
        ttl_of(given.get("ttl_s")),
        switch("index", given.get("index", True)),
        member_of("trust", given.get("trust", Trust.TRUSTED), Trust),
        None if version is None else version_of("expected_version", version),
    )


def _check_distinct(new: Sequence[NewRecord]) -> None:
    seen: dict[str, int] = {}
    for place, record in enumerate(new):
        if (first := seen.setdefault(record.id, place)) != place:
            raise InvalidInput(f"records[{place}].id", f"{shown(record.id)} is also that of records[{first}]")


def _id(where: str, value: Json) -> str:
    return check_name(where, value, RECORD_ID_CHARS)


def _ids(given: Sequence[str]) -> Sequence[str]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidInput("ids", f"must be a list of ids, not {type(given).__name__}")
    if len(given) > MOST_RECORDS:
        raise InvalidInput("ids", f"has {len(given):,} ids, more than the limit of {MOST_RECORDS:,}; use several calls")
    return tuple(dict.fromkeys(_id("ids", id_) for id_ in given))


def _prefix(value: Json) -> str:
    text = check_text("prefix", value, RECORD_ID_CHARS * 4)
    if len(text) > RECORD_ID_CHARS:
        raise InvalidInput("prefix", f"has {len(text)} characters, more than the limit of {RECORD_ID_CHARS}")
    return text


def _right(*, refresh: bool) -> Right:
    return Right.WRITE if refresh else Right.READ
