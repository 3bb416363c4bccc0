"""Every route of every family, from the application's own tables, with every kind of key that should not do everything.

What is expected is written down by class of route below; a new route is in one of the classes or fails. What another
tenant sees in detail is walked in `test_tenants.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from memos import MemOS
from memos.api.app import create_app
from memos.api.console.pages import PAGES
from memos.api.console.view import COOKIE, csrf_token
from memos.core.settings import IndexSettings, LimitSettings, Settings
from tests.api.keys import keys_of
from tests.api.tenancy import OTHER, VALUES, VICTIM, WITHOUT, WORD, Things, possessions, send, state_of, told_of_others
from tests.api.walking import Found, every_route
from tests.fakes import FixedClock, WordEmbedder

# Answered without a key, and the same with any.
OPEN = {
    "GET /", "GET /console", "GET /health", "GET /ready", "GET /metrics", "GET /api/v1/openapi.json",
    "GET /api/openmem/v1/openapi.json", "GET /local/proof", "GET /product/health",
}  # fmt: skip
# For the token in the data folder alone.
LOCAL = {"GET /local/about", "GET /local/calls", "POST /local/call"}
# GET, and yet not for who may only read: for admins, for owners, or gone.
GUARDED_READS = {
    "GET /api/v1/activity", "GET /api/v1/users", "GET /api/v1/groups/{group}/members", "GET /api/v1/backups",
    "GET /api/v1/activation/stats", "GET /api/v1/doctor", "GET /api/v1/settings",
    "GET /api/v1/cubes/{cube}/dump", "GET /api/v1/cubes/{cube}/grants", "GET /api/v1/adapters/{adapter}/export",
}  # fmt: skip
# POST, and yet for who may only read: questions that are too long for an address, and previews.
READS = {
    "POST /api/v1/memories/erase/preview", "POST /api/v1/erasures/preview", "POST /api/v1/memories/used",
    "POST /api/v1/records/get", "POST /api/v1/records/search", "POST /api/v1/search", "POST /api/v1/search/why-not",
    "POST /api/v1/chat/recall", "POST /api/v1/chat/prompt", "POST /api/v1/cubes/{cube}/verify",
    "POST /api/v1/imports/preview", "POST /api/v1/tools/{name}/called", "POST /hooks/claude-code",
    "POST /api/openmem/v1/get/message", "POST /api/openmem/v1/get/status", "POST /api/openmem/v1/search/memory",
    "POST /api/openmem/v1/get/memory", "POST /api/openmem/v1/get/knowledgebase-file",
    "POST /api/openmem/v1/download/knowledgebase-file", "POST /api/openmem/v1/extract/memory",
    "POST /api/openmem/v1/rerank", "POST /product/search", "POST /product/get_memory",
    "POST /product/get_memory_by_ids", "POST /product/get_all", "POST /product/suggestions",
    "POST /product/scheduler/wait", "POST /anthropic/v1/messages/count_tokens",
    "POST /api/v1/subjects/preview", "POST /api/v1/subjects/export",
    "POST /product/register_cube",  # of a cube that is there, as here
}  # fmt: skip
# In need of a language model before rights are looked at: without one 503.
NEED_MODEL = {
    "POST /api/v1/chat", "POST /api/openmem/v1/chat", "POST /product/chat/complete", "POST /product/chat/stream",
    "POST /openai/v1/chat/completions", "POST /openai/v1/responses", "POST /anthropic/v1/messages",
    "POST /api/v1/activation/warm",
}  # fmt: skip
# Removed: each says what does the same.
GONE = {
    "POST /api/v1/adapters/retrain", "POST /api/v1/adapters/rollback", "POST /api/v1/adapters/learn-again",
    "GET /api/v1/adapters/{adapter}/diff",
}  # fmt: skip
# Of this installation or of the key's owner, not of a cube.
OF_ONESELF = {
    "GET /api/v1/me", "GET /api/v1/users/{identity}", "GET /api/v1/keys", "GET /api/v1/sessions", "GET /api/v1/audit",
}  # fmt: skip
MESSAGE = '{"role": "user", "content": "written by who may only read"}'
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
# Of what the tenant has; not a word that the other asks for itself, which the console shows as a slow search.
SAID = (f"is a {WORD}", f"{WORD} hums", f"{WORD}.md", f"{WORD} in a record")
LACKS = re.compile("lacks the right|not an admin")


class ManyAddresses:
    """An application that every request reaches from another address: none has failed too often."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            number = next(self._numbers)
            scope = {**scope, "client": (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1)}
        await self.app(scope, receive, send)


@dataclass(frozen=True)
class Matrix:
    """A server with a tenant who has one of everything, and keys that should not do everything, by what they are."""

    memos: MemOS
    http: TestClient
    things: Things
    routes: list[Found]
    keys: Mapping[str, str]

    def ask(self, found: Found, key: str | None) -> httpx2.Response:
        """Send a request about the tenant's things, the first that is not wrong in itself."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        if not found.told:
            method = found.method if found.method in ("GET", "POST", "DELETE") else "POST"
            return self.http.request(method, found.path, headers=headers, json=MCP if method == "POST" else None)
        if found.path == "/api/v1/imports":
            return self.http.post(found.path, params={"cube": VICTIM}, headers=headers, content=MESSAGE)
        if str(found) == "POST /api/v1/users":
            return self.http.post(found.path, headers=headers, json={"id": "somebody-new"})
        answer = send(self, found, self.things, headers, set())  # type: ignore[arg-type]
        for without in WITHOUT:
            if answer.status_code != 400:
                break
            answer = send(self, found, self.things, headers, without)  # type: ignore[arg-type]
        return answer


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    clock = FixedClock()
    home = tmp_path_factory.mktemp("matrix")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder(), clock=clock) as memos,
        TestClient(ManyAddresses(create_app(memos, local_token="local-token")), raise_server_exceptions=False) as http,
    ):
        keys_of(memos)
        memos.users.create(VICTIM)
        memos.users.create(OTHER)
        memos.keys.create(VICTIM, "first")
        things = possessions(memos)
        memos.cubes.create("elsewhere", actor=VICTIM)
        revoked = memos.keys.create(VICTIM, "revoked")
        memos.keys.revoke(revoked.key.id)
        expired = memos.keys.create(VICTIM, "expired", expires_at=clock.now() + timedelta(seconds=30))
        keys = {
            "unknown": "mst_" + "x" * 43,
            "revoked": revoked.secret,
            "expired": expired.secret,
            "other": memos.keys.create(OTHER, "other").secret,
            "limited": memos.keys.create(VICTIM, "limited", cubes=["elsewhere"]).secret,
            "read-only": memos.keys.create(VICTIM, "read-only", rights=["read"]).secret,
        }
        assert http.get("/api/v1/me", headers={"Authorization": f"Bearer {expired.secret}"}).status_code == 200
        clock.advance(timedelta(minutes=1))
        memos.audit.record_reads()  # nothing that reads may hang or fail for it
        yield Matrix(memos, http, things, list(every_route(http.app.app)), keys)  # type: ignore[attr-defined]


def test_every_named_route_is_there(matrix: Matrix) -> None:
    there = {str(found) for found in matrix.routes}
    assert there >= OPEN | LOCAL | GUARDED_READS | READS | NEED_MODEL | GONE | OF_ONESELF
    assert len(there) > 200


def test_without_a_valid_key_nothing_is_answered_and_nothing_told_of_why(matrix: Matrix) -> None:
    before = state_of(matrix.memos)
    wrong = []
    for found in matrix.routes:
        if found.method == "MOUNT":
            continue  # the console, below
        answers = [
            matrix.ask(found, key) for key in (None, *(matrix.keys[k] for k in ("unknown", "revoked", "expired")))
        ]
        codes = {answer.status_code for answer in answers}
        if str(found) in OPEN:
            if codes & {401, 403, 500} or len(codes) > 1:
                wrong.append(f"{found} is open, and answers {codes}")
            continue
        if codes != {401} or any(answer.headers["WWW-Authenticate"] != "Bearer" for answer in answers):
            wrong.append(f"{found} answers {codes}")
        if len({answer.text for answer in answers[1:]}) > 1:
            wrong.append(f"{found} tells an unknown, a revoked and an expired key apart")
        wrong += [f"{found} tells {answer.text}" for answer in answers if told_of_others(answer, matrix.things)]
    assert not wrong, "\n".join(wrong)
    assert state_of(matrix.memos) == before


def test_a_key_that_may_only_read_reads_and_changes_nothing(matrix: Matrix) -> None:
    before = state_of(matrix.memos)
    wrong = []
    for found in matrix.routes:
        name = str(found)
        if name in OPEN or found.method in ("MOUNT", "ANY"):
            continue
        answer = matrix.ask(found, matrix.keys["read-only"])
        code = answer.status_code
        if name in LOCAL:
            fine = code == 403
        elif name in GONE:
            fine = code == 404
        elif name in NEED_MODEL:
            fine = code == 503
        elif name in READS or (found.method == "GET" and name not in GUARDED_READS):
            fine = code in (200, 204) or (code == 404 and found.in_path & {"segment", "model"} != set())
        else:
            fine = code == 403 and LACKS.search(answer.text) is not None
        if not fine:
            wrong.append(f"{found} answers {code}: {answer.text[:200]}")
    assert not wrong, "\n".join(wrong)
    assert state_of(matrix.memos) == before
    assert len(matrix.memos.audit.list(kinds=["read"], by=VICTIM, limit=1_000)) > 50


@pytest.mark.parametrize("whose", ["other", "limited"])
def test_another_tenant_and_a_key_for_another_cube_see_and_change_nothing(matrix: Matrix, whose: str) -> None:
    before = state_of(matrix.memos)
    wrong = []
    for found in matrix.routes:
        if str(found) in OPEN or found.method in ("MOUNT", "ANY"):
            continue
        answer = matrix.ask(found, matrix.keys[whose])
        told = told_of_others(answer, matrix.things)
        if whose == "limited":  # it is the tenant's own key
            own = {VICTIM, matrix.things.key, matrix.things.session} if str(found) in OF_ONESELF else {VICTIM}
            told -= own
        if answer.status_code in (401, 500) or told:
            wrong.append(f"{found} answers {answer.status_code}, with {told}: {answer.text[:200]}")
    assert not wrong, "\n".join(wrong)
    assert state_of(matrix.memos) == before


def test_the_console_shows_and_changes_nothing_without_a_session_that_holds(matrix: Matrix) -> None:
    memos, before = matrix.memos, state_of(matrix.memos)
    made = memos.keys.create(VICTIM, "browser")
    ended = memos.sessions.start(memos.keys.authenticate(made.secret)).secret
    memos.keys.revoke(made.key.id)
    only = memos.sessions.start(memos.keys.authenticate(matrix.keys["read-only"])).secret
    other = memos.sessions.start(memos.keys.authenticate(matrix.keys["other"])).secret
    wrong = []
    for page in PAGES:
        path = "/console" + re.sub(
            r"{(\w+)(:\w+)?}", lambda m: str(VALUES[m[1]](matrix.things)) if m[1] in VALUES else "x", page.path
        )
        for who, secret in {"nobody": "", "revoked": ended, "other": other, "read-only": only}.items():
            matrix.http.cookies.clear()
            cookie = {"Cookie": f"{COOKIE}={secret}"} if secret else {}
            fields = {"csrf": csrf_token(secret)} if secret else {}
            fields |= {"id": VICTIM, "cube": VICTIM, "key": matrix.things.key, "item": matrix.things.item}
            sent = {"data": fields} if page.method == "POST" else {"params": {"cube": VICTIM}}
            answer = matrix.http.request(page.method, path, headers=cookie, follow_redirects=False, **sent)
            known = who in ("read-only", "other")
            if answer.status_code == 500 or (not known and answer.status_code == 200 and page.method == "GET"):
                wrong.append(f"{page.method} {path} answers {who} with {answer.status_code}")
            if who != "read-only" and any(part in answer.text for part in SAID):
                wrong.append(f"{page.method} {path} tells {who} of what is another's: {answer.text}")
    assert not wrong, "\n".join(wrong)
    after = state_of(memos)
    assert [after[:3], after[4:]] == [before[:3], before[4:]]  # all but the keys, of which this test made one
