"""`MemOS.conversations`: conversations as exchanges of a user's turn and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memos.core.browsing import StoredMessage
from memos.core.text.rendering import is_untrusted
from memos.core.text.validation import check_name
from memos.core.types import DEFAULT_CUBE, FOUND, LOCAL_OWNER, Json, Role, Source, Trust
from memos.kernel.context import Context
from memos.memcube.ledger import browsing, expiry, items, tier_moves
from memos.memcube.ledger.segments import Page
from memos.reader.arguments import ids_of, within

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's turn and its answer, empty where missing; `messages` are their memories. Untrusted if any of them is."""

    cube: str
    conversation: str | None
    at: datetime | None
    user: str
    assistant: str
    info: Mapping[str, Json]
    messages: tuple[str, ...]
    trust: Trust


class Conversations:
    """The conversations of an installation, as exchanges."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def newest(
        self, conversation: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = 10
    ) -> tuple[Exchange, ...]:
        """Return the newest exchanges of a conversation that are in the short tier, oldest first. Raises: NotFound."""
        scope = self._context.scopes.check([cube], actor, embeds=False)
        name, limit = check_name("conversation", conversation), within("limit", limit, 1, _MOST)
        name = self._context.scopes.masking(scope).name("conversation", name)
        with self._context.ledger.read() as connection:
            pages = self._live(tier_moves.newest(connection, scope.cubes[0], name, limit))
            told = items.sources_of(connection, [message.id for page in pages for message in page.messages])
        return tuple(_exchange(page, told) for page in pages)

    def around(
        self, messages: Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> tuple[Exchange, ...]:
        """Return the exchanges that contain these messages, each once, in the messages' order.

        Unknown and deleted ids are ignored. Raises: InvalidInput, NotFound (cube).
        """
        scope, ids = self._context.scopes.check([cube], actor, embeds=False), ids_of(messages, least=0)
        pages: dict[tuple[str | None, int | str], Page] = {}
        with self._context.ledger.read() as connection:
            states = items.current(connection, scope.cubes, ids)
            for state in (states[id_] for id_ in ids if id_ in states and states[id_].status in FOUND):
                if state.conversation is None or state.page is None:
                    pages[None, state.id] = Page(0, (state,))
                elif (state.conversation, state.page) not in pages:
                    found = tier_moves.numbered(connection, scope.cubes[0], state.conversation, (state.page,))
                    pages |= {(state.conversation, number): page for number, page in found.items()}
            shown = self._live(pages.values())
            told = items.sources_of(connection, [message.id for page in shown for message in page.messages])
        return tuple(_exchange(page, told) for page in shown)

    def _live(self, pages: Iterable[Page]) -> list[Page]:
        """Return the pages without what has expired."""
        now = self._context.clock.now()
        left = [Page(page.number, tuple(expiry.live(page.messages, now))) for page in pages]
        return [page for page in left if page.messages]

    def messages(
        self, item_ids: Sequence[str], *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER
    ) -> tuple[StoredMessage, ...]:
        """Return messages as they were said, in the order of their ids; unknown, deleted and expired ones are left out.

        Raises: InvalidInput, NotFound (cube).
        """
        scope, ids = self._context.scopes.check([cube], actor, embeds=False), ids_of(item_ids, least=0)
        with self._context.ledger.read() as connection:
            found = browsing.messages(connection, scope.cubes[0], ids, self._context.clock.now())
        return tuple(found[id_] for id_ in ids if id_ in found)

    def transcript(
        self, conversation: str, *, cube: str = DEFAULT_CUBE, actor: str = LOCAL_OWNER, limit: int = _MOST
    ) -> tuple[StoredMessage, ...]:
        """Return the newest messages of a conversation as they were said, the oldest first.

        Deleted and expired ones are left out. Raises: InvalidInput, NotFound (cube).
        """
        scope = self._context.scopes.check([cube], actor, embeds=False)
        name, limit = check_name("conversation", conversation), within("limit", limit, 1, _MOST)
        name = self._context.scopes.masking(scope).name("conversation", name)
        with self._context.ledger.read() as connection:
            return tuple(browsing.transcript(connection, scope.cubes[0], name, limit, self._context.clock.now()))


def _exchange(page: Page, told: Mapping[str, tuple[Source, ...]]) -> Exchange:
    first = page.messages[0]
    said = {
        role: "\n".join(message.memory for message in page.messages if message.role is role)
        for role in (Role.USER, Role.ASSISTANT)
    }
    untrusted = any(is_untrusted(told.get(message.id, ())) for message in page.messages)
    return Exchange(
        first.cube,
        first.conversation,
        first.said_at,
        said[Role.USER],
        said[Role.ASSISTANT],
        first.info,
        tuple(message.id for message in page.messages),
        Trust.UNTRUSTED if untrusted else Trust.TRUSTED,
    )
