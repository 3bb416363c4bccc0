"""`MemOS.memories`: add, read, correct, delete and erase memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self, Unpack
from zoneinfo import ZoneInfo

from memos.core.aliases import AddAliases, ConversationAliases, CubeAliases, FeedbackAliases, ItemAliases, ItemsAliases
from memos.core.browsing import ErasePreview, SortField
from memos.core.clock import to_micros
from memos.core.filters import And, Condition, Node, Not, Op, fields_of, parse
from memos.core.identities import Right
from memos.core.message_shapes import Shaped, shape_messages
from memos.core.ports import ImageSource
from memos.core.telemetry import Listeners
from memos.core.text.corrections import read_correction
from memos.core.text.validation import check_name, check_text
from memos.core.types import (
    DEFAULT_CUBE,
    LOCAL_OWNER,
    AddReceipt,
    Draft,
    EraseReceipt,
    ErasurePreview,
    ExtractionRecord,
    FeedbackReceipt,
    Item,
    ItemType,
    Json,
    Mode,
    Relation,
    Scope,
    Status,
    Version,
)
from memos.errors import Conflict, InvalidInput, NotFound
from memos.kernel.context import Context, accept_aliases, retry_read, retry_write
from memos.kernel.corrections import Corrected, apply_correction
from memos.kernel.maintenance import Maintenance
from memos.kernel.search import SearchService
from memos.kernel.tools import remember_tools
from memos.memcube import changes, documents, erasure
from memos.memcube import images as image_store
from memos.memcube.changes import Change
from memos.memcube.erasure import retract
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.ledger import browsing, expiry, files, idempotency, items, reading, relations
from memos.memcube.ledger.browsing import Order
from memos.memcube.ledger.idempotency import Request
from memos.memcube.records import names_in
from memos.reader import messages as fast
from memos.reader.arguments import (
    edits_of,
    ids_of,
    info_of,
    json_copy,
    member_of,
    switch,
    tags_of,
    ttl_of,
    version_of,
    within,
)
from memos.reader.facts.extractor import FEEDBACK
from memos.reader.images import ImageParts
from memos.reader.masking import Masking
from memos.reader.messages import MAX_MESSAGES, ToolDefinition, read_messages, read_tools

_SAMPLE = 20
# Statuses of items that are listed when a filter names none.
LISTED = (Status.ACTIVE, Status.PENDING, Status.SUPERSEDED, Status.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of items, newest first, and the total that passes the filter."""

    items: tuple[Item, ...]
    total: int


class Addition(NamedTuple):
    """The arguments of one add in `add_all`: messages of one conversation, in any form that `add` takes."""

    messages: Json
    conversation: str | None = None
    tags: Sequence[str] = ()
    info: Mapping[str, Json] | None = None


class _ReadAddition(NamedTuple):
    drafts: Sequence[Draft]
    conversation: str | None
    request: Request | None
    tools: Sequence[ToolDefinition]
    ttl_s: float | None
    masking: Masking


Items = list[Item]  # `list` is a method below
Versions = list[Version]
Drafts = list[Draft]
Receipts = list[AddReceipt]


class _Wanted(NamedTuple):
    node: Node
    limit: int
    offset: int

    @classmethod
    def of(cls, filter: Json, limit: int, offset: int, now: datetime) -> Self:
        node = parse(filter)
        limit, offset = within("limit", limit, 1, 10_000), within("offset", offset, 0, 10**9)
        parts: list[Node] = [Not(Condition("expires_at", Op.LTE, to_micros(now)))]
        if "status" not in fields_of(node):
            parts.append(Condition("status", Op.IN, tuple(str(status) for status in LISTED)))
        return cls(And((*parts, *([] if node is None else [node]))), limit, offset)


class Memories:
    """The memories of an installation."""

    def __init__(
        self,
        context: Context,
        maintenance: Maintenance,
        search: SearchService,
        short_capacity: int,
        listeners: Listeners,
        web_images: ImageSource | None,
    ) -> None:
        self._context = context
        self._maintenance = maintenance
        self._search = search
        self._short_capacity = short_capacity
        self._listeners = listeners
        self._web_images = web_images

    @accept_aliases
    def add(  # noqa: PLR0913 - the wire contract names them all
        self,
        messages: Json,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        conversation: str | None = None,
        tags: Sequence[str] = (),
        info: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        mode: str = Mode.ROUGH,
        tools: Json = None,
        ttl_s: float | None = None,
        **_aliases: Unpack[AddAliases],
    ) -> AddReceipt:
        """Store a string, a message or a list of messages; they are committed and searchable when this returns.

        A message id that the conversation has, or a repeated idempotency key, stores nothing twice.

        Args:
            messages: A text, a message as a mapping of `role` and `content`, or a list of messages; those of OpenAI,
                Anthropic and LangChain are taken as they are, as mappings or as objects, and `(role, text)` pairs too.
            cube: The cube to store them in; `cubes` with one name is taken, too.
            actor: Who stores them.
            conversation: The conversation they belong to.
            tags: Tags of every item that is stored.
            info: Further data of every item.
            idempotency_key: A repeated call with the same key returns the first receipt.
            mode: `fine` has the messages read into facts in the background; the receipt names the task.
            tools: Definitions of the tools that were at hand, in OpenAI's shape.
            ttl_s: Seconds to live: after that the memories are in no answer, and are erased in the background.

        Raises:
            InvalidInput: An argument is not usable.
            NotFound: The cube does not exist.
            Conflict: The conversation has the message id with other content, or the key was used for another call.
            BackendUnavailable: The disk is full, or a store is out of reach.
        """
        with self._listeners.call("add") as clock:
            scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
            clock.about(scope.cubes)
            finely = member_of("mode", mode, Mode) is Mode.FINE
            with clock.stage("read"):
                addition = Addition(messages, conversation, tags, info)
                read = self._read_addition(addition, scope, idempotency_key, tools, ttl_s)
            with clock.stage("store"):
                [receipt] = self._store(scope, [read], finely=finely)
            with clock.stage("index"):
                indexed = self._context.wait_indexed()
        return replace(receipt, indexed=indexed)

    def add_all(
        self,
        additions: Sequence[Addition],
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        mode: str = Mode.ROUGH,
        wait: bool = True,
    ) -> Receipts:
        """Make several adds in one transaction, in their order: all are stored, or none.

        Args:
            additions: What each of them stores.
            cube: The cube to store them in.
            actor: Who stores them.
            mode: As of `add`.
            wait: Without it the indexes follow in the background, for whoever stores much: what is stored is committed
                and found when this returns, which waits only while many changes are not indexed.
                `maintenance.catch_up` waits for the rest.

        Raises: as `add`.
        """
        with self._listeners.call("add") as clock:
            scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
            clock.about(scope.cubes)
            finely = member_of("mode", mode, Mode) is Mode.FINE
            with clock.stage("read"):
                read = [self._read_addition(Addition(*addition), scope) for addition in additions]
            with clock.stage("store"):
                receipts = self._store(scope, read, finely=finely)
            with clock.stage("index"):
                if not wait:
                    self._context.indexes.follow()
                indexed = wait and self._context.wait_indexed()
        return [replace(receipt, indexed=indexed) for receipt in receipts]

    def _read_addition(
        self,
        addition: Addition,
        scope: Scope,
        idempotency_key: str | None = None,
        tools: Json = None,
        ttl_s: float | None = None,
    ) -> _ReadAddition:
        messages, conversation, tags, info = addition
        masking = self._context.scopes.masking(scope)
        # Mask before checking, so that no error shows what must not be shown. A request is recognised by a salted
        # digest of it as it was given.
        shaped = shape_messages(messages)
        given, said = (shaped.given, tags, info, tools), masking.messages(shaped, MAX_MESSAGES)
        tags, info = tags_of(masking.any("tags", tags)), info_of(masking.any("info", info))
        conversation = None if conversation is None else check_name("conversation", conversation)
        key = None if idempotency_key is None else check_name("idempotency_key", idempotency_key)
        drafts, ttl_s = self.read(said, scope, tags, info), ttl_of(ttl_s)
        defined = read_tools(masking.any("tools", tools), self._context.clock.now())
        request = None if key is None else _request(key, conversation, *given, ttl_s)
        conversation = None if conversation is None else masking.name("conversation", conversation)
        return _ReadAddition(drafts, conversation, request, defined, ttl_s, masking)

    @retry_write
    def _store(self, scope: Scope, read: Sequence[_ReadAddition], *, finely: bool) -> Receipts:
        receipts = []
        with self._context.change(scope) as change:
            for each in read:
                receipts.append(self._store_one(change, each, finely=finely))
                # A moment for each, as if it were added alone: what is in no conversation is ordered by it.
                now = max(self._context.clock.now(), change.now + timedelta(microseconds=1))
                change = replace(change, now=now)  # noqa: PLW2901
        return receipts

    def _store_one(self, change: Change, read: _ReadAddition, *, finely: bool) -> AddReceipt:
        receipt = changes.add(change, read.drafts, read.conversation, read.request, self._short_capacity, read.ttl_s)
        remember_tools(change, read.tools, read.drafts, receipt)
        if any(draft.message.pictures for draft in read.drafts):
            image_store.store(change, read.drafts, receipt)
        if finely:
            found = reading.queue(change.connection, change.cube, receipt.item_ids, change.now)
            receipt = replace(receipt, task=found[0] if found else None)
        if not receipt.replayed:
            read.masking.record(change)
        return replace(receipt, masked=read.masking.masked)

    @accept_aliases
    @retry_write
    def update(
        self,
        item: str = "",
        memory: str | None = None,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
        reason: str = "updated",
        **fields: Any,
    ) -> Item:
        """Write an item's next version: text, tags, info, key, value, confidence, tier, status or validity.

        `ttl_s` sets how long it lives from now on, None for ever; without it the end stays, and with nothing else there
        is no new version. Raises: NotFound, Conflict (no longer at `expected_version`), InvalidInput.
        """
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        expected_version = None if expected_version is None else version_of("expected_version", expected_version)
        masking = self._context.scopes.masking(scope)
        given = masking.fields({**({} if memory is None else {"memory": memory}), **fields})
        lives = {"ttl_s": ttl_of(given.pop("ttl_s"))} if "ttl_s" in given else {}
        edits = edits_of(given) if given or not lives else {}
        reason = masking.text("reason", check_text("reason", reason, 1000))
        memory, zone = edits.get("memory"), ZoneInfo(scope.time_zone)
        with self._context.change(scope) as change:
            before = items.require(change.connection, scope.cubes, item)
            if memory is not None:
                # What was read out of the old text must not stand for the new one.
                read = names_in(memory) if before.type is ItemType.RECORD else fast.restated(before, memory, zone)
                edits = {**read, **edits}
            _check_type(before, edits)
            changes.update(change, item, expected_version, edits, reason, **lives)
            masking.record(change)
            if memory is not None:
                retract(change, [item])
        self._context.wait_indexed()
        return self.get(item, cube=scope.cubes[0], actor=actor)

    @accept_aliases
    @retry_write
    def feedback(
        self,
        text: str,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        speaker: str | None = None,
        conversation: str | None = None,
        item_ids: Sequence[str] = (),
        chat_time: Json = None,
        **_aliases: Unpack[FeedbackAliases],
    ) -> FeedbackReceipt:
        """Apply a correction in plain words: "no, I moved to Lyon in May", "three eggs, not four", "forget my salary".

        It edits one detail of a statement, replaces, ends or forgets it, or adds a new one; the receipt's `outcome`
        says which. The statement is one of `item_ids`, or else the one that a search finds and that fits best. In
        doubt nothing is changed: both stay, the newer first. `rollback` undoes a change.

        Raises: InvalidInput, NotFound.
        """
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        ids = ids_of(item_ids, least=0)
        conversation = None if conversation is None else check_name("conversation", conversation)
        message: dict[str, Json] = {"role": "user", "content": text, "chat_time": chat_time}
        if speaker is not None:
            message["name"] = speaker
        zone, masking = ZoneInfo(scope.time_zone), self._context.scopes.masking(scope)
        conversation = None if conversation is None else masking.name("conversation", conversation)
        message = masking.fields(message, "feedback")
        read = read_messages([message], zone, self._context.clock.now())
        [draft] = fast.read(read, (FEEDBACK,), {}, zone)
        for item_id in ids:
            self.get(item_id, cube=cube, actor=actor)
        correction = read_correction(draft.memory)
        near = self._search.near(correction.text, scope)
        with self._context.change(scope) as change:
            receipt = apply_correction(
                Corrected(change, draft, correction, conversation, self._short_capacity), near, ids, zone
            )
            masking.record(change)
        return replace(receipt, indexed=self._context.wait_indexed(), masked=masking.masked)

    @accept_aliases
    @retry_write
    def delete(
        self,
        item_ids: str | Sequence[str] = (),
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        reason: str = "deleted",
        **_aliases: Unpack[ItemsAliases],
    ) -> tuple[str, ...]:
        """Delete items, all or none; `rollback` restores them. Raises: NotFound, InvalidInput."""
        ids = ids_of(item_ids)
        scope = self._context.scopes.check_item(ids[0], cube, actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            deleted = erasure.delete(
                change, ids, self._context.scopes.masking(scope).text("reason", check_text("reason", reason, 1000))
            )
        self._context.wait_indexed()
        return tuple(state.id for state in deleted)

    @retry_write
    def rollback(
        self,
        item: str,
        to_version: int | None = None,
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        expected_version: int | None = None,
    ) -> Item:
        """Write a new version equal to an old one, by default the one before; restores a deleted item too.

        Raises: NotFound, Conflict (no version before, or changed).
        """
        scope = self._context.scopes.check_item(item, cube, actor, right=Right.WRITE)
        to_version = None if to_version is None else version_of("to_version", to_version)
        expected_version = None if expected_version is None else version_of("expected_version", expected_version)
        with self._context.change(scope) as change:
            documents.check_rollback(change, item)
            changes.rollback(change, item, to_version, expected_version)
            retract(change, [item])
        self._context.wait_indexed()
        return self.get(item, cube=scope.cubes[0], actor=actor)

    @accept_aliases
    @retry_write
    def erase(
        self,
        item_ids: str | Sequence[str] = (),
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        wait: bool = True,
        **_aliases: Unpack[ItemsAliases],
    ) -> EraseReceipt:
        """Erase items in every form, with what was derived from them; a receipt without content stays.

        With `wait` files and logs are purged on return, else by the background. Raises: NotFound, InvalidInput,
        BackendUnavailable (the rows are gone, files still being purged).
        """
        ids, wait = ids_of(item_ids), switch("wait", wait)
        scope = self._context.scopes.check_item(ids[0], cube, actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            receipt = erasure.erase(change, ids, key=self._context.key)
        return self._maintenance.finish_erasure(receipt, wait=wait)

    purge = erase

    @retry_read
    def preview_erase(
        self, item_ids: str | Sequence[str], *, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> ErasePreview:
        """Return what an erasure of items would remove with them. Raises: NotFound, InvalidInput."""
        ids = ids_of(item_ids)
        scope = self._context.scopes.check_item(ids[0], cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            for id_ in ids:
                items.require(connection, scope.cubes, id_)
            derived = erasure.derived(connection, ids)
            saw = adapter_rows.that_saw(connection, scope.cubes[0], {*ids, *derived})
        return ErasePreview(tuple(ids), tuple(sorted(derived)), tuple(saw))

    @retry_write
    def tag(
        self,
        item_ids: str | Sequence[str],
        *,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        reason: str = "tagged",
    ) -> tuple[str, ...]:
        """Add tags to items and remove others, all or none; return those that changed. Raises: NotFound, InvalidInput.

        Each that changes gets a new version; `rollback` undoes it.
        """
        ids = ids_of(item_ids)
        scope = self._context.scopes.check_item(ids[0], cube, actor, right=Right.WRITE)
        masking = self._context.scopes.masking(scope)
        more, fewer = tags_of(masking.any("tags", add)), set(tags_of(remove))
        reason = masking.text("reason", check_text("reason", reason, 1000))
        changed = []
        with self._context.change(scope) as change:
            for id_ in ids:
                state = items.require(change.connection, scope.cubes, id_)
                tags = tags_of([tag for tag in dict.fromkeys((*state.tags, *more)) if tag not in fewer])
                if tags != state.tags:
                    changed.append(changes.update(change, id_, None, {"tags": tags}, reason).id)
            masking.record(change)
        self._context.wait_indexed()
        return tuple(changed)

    def preview_erasure(
        self, filter: Mapping[str, Json] | None = None, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> ErasurePreview:
        """Return what erasing the items that pass a filter would remove; without one, all of the cube.

        Unlike in `list`, deleted items count too. Raises: InvalidInput, NotFound.
        """
        scope, node = self._context.scopes.check([cube], actor, embeds=False), parse(filter)
        with self._context.ledger.read() as connection:
            named = items.matching_ids(connection, scope.cubes, node)
            derived = erasure.derived(connection, named)
            doomed = [*named, *derived]
            kinds, talks = items.tally_of(connection, doomed)
            held = set(files.of_cube(connection, cube) if node is None else files.of_items(connection, doomed).values())
            whole = files.with_bytes(connection, held)
            newest = items.matching(connection, scope.cubes, node, limit=_SAMPLE, newest=True)
        return ErasurePreview(scope.cubes[0], len(named), len(derived), kinds, talks, len(whole), tuple(newest))

    @retry_write
    def erase_matching(
        self,
        filter: Mapping[str, Json],
        *,
        expected: int,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        wait: bool = True,
    ) -> EraseReceipt:
        """Erase the items that pass a filter, deleted ones too, with what was derived from them.

        Args:
            filter: Which items; must not be empty (`cubes.drop` erases a whole cube).
            expected: How many `preview_erasure` found.
            cube: The cube.
            actor: Who asks.
            wait: Purge files and logs before this returns.

        Raises:
            InvalidInput: The filter is wrong, empty, or passes nothing.
            Conflict: Another number of items passes the filter now.
            NotFound: The cube does not exist, or the actor may not see it.
        """
        node, wait = parse(filter), switch("wait", wait)
        if node is None:
            raise InvalidInput("filter", "must not be empty; drop the cube to erase everything in it")
        expected = within("expected", expected, 0, 10**12)
        scope = self._context.scopes.check([cube], actor, embeds=False, right=Right.WRITE)
        with self._context.change(scope) as change:
            found = items.matching_ids(change.connection, scope.cubes, node)
            if len(found) != expected:
                raise Conflict(f"{len(found):,} memories match now, not {expected:,}; look at the preview again.")
            if not found:
                raise InvalidInput("filter", "matches nothing")
            receipt = erasure.erase(change, found, key=self._context.key)
        return self._maintenance.finish_erasure(receipt, wait=wait)

    def erase_receipt(self, receipt_id: str, *, actor: str = LOCAL_OWNER) -> EraseReceipt:
        """Return the current receipt of an erasure, to readers of its cube and to who erased. Raises: NotFound.

        It is signed anew; the fingerprints were in the answer of the erasure alone.
        """
        self._context.lifecycle.check_open()
        readable = self._context.scopes.readable(check_name("actor", actor, 128))
        ledger = self._context.ledger
        receipt = erasure.find(ledger, check_name("receipt", receipt_id, 64))
        reads = receipt is not None and (readable is None or receipt.cube in readable)
        # A cube that was erased as a whole has no readers left.
        if receipt is None or not (reads or erasure.is_by(ledger, receipt.id, actor)):
            raise NotFound("receipt", receipt_id)
        return self._maintenance.signed(receipt)

    @retry_read
    def receipt(self, idempotency_key: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER) -> AddReceipt:
        """Return the receipt of an add by its idempotency key. Raises: NotFound (also after an erasure)."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        key = check_name("idempotency_key", idempotency_key)
        with self._context.ledger.read() as connection:
            found = idempotency.receipt_of(connection, scope.cubes[0], key)
        if found is None:
            raise NotFound("add with the key", key)
        return found

    @accept_aliases
    @retry_read
    def get(
        self,
        item: str = "",
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        **_aliases: Unpack[ItemAliases],
    ) -> Item:
        """Return an item's current state with its sources. Raises: NotFound (also when deleted or erased)."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            state = items.require(connection, scope.cubes, item)
            if state.status is Status.DELETED:
                raise NotFound("item", item, f"It is deleted; restore it with `memos memory rollback {item}`.")
            return replace(state, sources=items.sources_of(connection, [item]).get(item, ()))

    @accept_aliases
    @retry_read
    def list(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        limit: int = 100,
        offset: int = 0,
        sort: str = "created_at",
        after: str | None = None,
        **_aliases: Unpack[CubeAliases],
    ) -> Items:
        """Return a cube's items that pass the filter; deleted ones only if the filter names status.

        Args:
            cube: The cube to list.
            actor: Who asks.
            filter: What they must pass (docs/reference/filters.md).
            limit: The most to return.
            offset: How many to skip.
            sort: `created_at`, `said_at`, `updated_at`, `confidence` or `heat`, with `-` before it for the highest
                first; by default the oldest come first.
            after: The id of the last item of the page before: continue after it, which stays quick however far.

        Raises: InvalidInput, NotFound (cube).
        """
        cubes = self._context.scopes.check([cube], actor, embeds=False).cubes
        order, wanted = _order_of(sort), _Wanted.of(filter, limit, offset, self._context.clock.now())
        after = None if after is None else check_name("after", after, 64)
        with self._context.ledger.read() as connection:
            found = browsing.page(
                connection, cubes[0], wanted.node, order, after=after, limit=wanted.limit, offset=wanted.offset
            )
        if found is None:
            raise InvalidInput("after", "is not the id of a memory of this cube; begin again without it")
        return found

    @accept_aliases
    @retry_read
    def page(
        self,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        filter: Mapping[str, Json] | None = None,
        limit: int = 100,
        offset: int = 0,
        **_aliases: Unpack[CubeAliases],
    ) -> Page:
        """Return a page of items as `list` does, newest first, with sources and the total. Raises: NotFound."""
        cubes = self._context.scopes.check([cube], actor, embeds=False).cubes
        wanted = _Wanted.of(filter, limit, offset, self._context.clock.now())
        with self._context.ledger.read() as connection:
            found = items.matching(
                connection, cubes, wanted.node, limit=wanted.limit, offset=wanted.offset, newest=True
            )
            sources = items.sources_of(connection, [item.id for item in found])
            total = items.count(connection, cubes, wanted.node)
        return Page(tuple(replace(item, sources=sources.get(item.id, ())) for item in found), total)

    @accept_aliases
    @retry_read
    def history(
        self,
        item: str = "",
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        **_aliases: Unpack[ItemAliases],
    ) -> Versions:
        """Return every version of an item: who, when, why, before and after; the last has its relations.

        Raises: NotFound.
        """
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            entries = items.history(connection, scope.cubes, item)
            entries[-1] = replace(entries[-1], relations=tuple(relations.of_items(connection, [item])))
            return entries

    @accept_aliases
    @retry_read
    def relations(
        self,
        item: str = "",
        *,
        cube: str | None = None,
        actor: str = LOCAL_OWNER,
        **_aliases: Unpack[ItemAliases],
    ) -> tuple[Relation, ...]:
        """Return the relations of an item to older and newer ones, the surest first. Raises: NotFound."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(relations.of_items(connection, [item]))

    @retry_read
    def derived(self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER) -> Items:
        """Return the items derived from an item, such as the facts of a message, by id. Raises: NotFound."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            made = items.current(connection, scope.cubes, sorted(items.derived_from(connection, [item])))
        live = [made[id_] for id_ in sorted(made) if made[id_].status is not Status.DELETED]
        return expiry.live(live, self._context.clock.now())

    @retry_read
    def extractions(
        self, item: str, *, cube: str | None = None, actor: str = LOCAL_OWNER
    ) -> tuple[ExtractionRecord, ...]:
        """Return which reader (patterns, or a model) extracted facts from a message, and when. Raises: NotFound."""
        scope = self._context.scopes.check_item(item, cube, actor, embeds=False)
        with self._context.ledger.read() as connection:
            items.require(connection, scope.cubes, item)
            return tuple(reading.records(connection, item))

    @accept_aliases
    @retry_write
    def read_finely(
        self,
        conversation: str | None = None,
        *,
        cube: str = DEFAULT_CUBE,
        actor: str = LOCAL_OWNER,
        **_aliases: Unpack[ConversationAliases],
    ) -> tuple[str, ...]:
        """Queue fact extraction, once a message, for a conversation or a cube; return the tasks. Raises: NotFound."""
        name = None if conversation is None else check_name("conversation", conversation)
        scope = self._context.scopes.check([cube], actor, right=Right.WRITE)
        with self._context.change(scope) as change:
            if name is not None and not reading.is_conversation(change.connection, change.cube, name):
                raise NotFound("conversation", name, "List memories with `memos list`.")
            return tuple(reading.queue_all(change.connection, change.cube, name, change.now))

    def read(self, messages: Json | Shaped, scope: Scope, tags: Sequence[str], info: Mapping[str, Json]) -> Drafts:
        """Return drafts of what would be stored. Raises: InvalidInput."""
        zone = ZoneInfo(scope.time_zone)
        read = read_messages(messages, zone, self._context.clock.now(), ImageParts(self._web_images))
        return fast.read(read, tags, info, zone)


def _check_type(before: Item, edits: Mapping[str, Any]) -> None:
    wanted = edits.get("type", before.type)
    if wanted is not before.type and ItemType.RECORD in (wanted, before.type):
        raise InvalidInput("type", "cannot be changed to or from record; put a record, or add a memory")


def _order_of(sort: str) -> Order:
    descending = isinstance(sort, str) and sort.startswith("-")
    return Order(member_of("sort", sort.removeprefix("-") if descending else sort, SortField), descending)


def _request(
    key: str,
    conversation: str | None,
    messages: Json,
    tags: Sequence[str],
    info: Json,
    tools: Json,
    ttl_s: float | None,
) -> Request:
    body = [messages, conversation, list(dict.fromkeys(tags)), info or {}]
    rest: list[Json] = [] if ttl_s is None else [tools or None, ttl_s]
    return Request(key, json_copy([*body, *(rest or ([tools] if tools else []))]))
