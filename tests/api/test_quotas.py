"""Limits of keys: never passed, also not by many at once, kept over a restart; who tries keys has to wait."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.api.auth import LoginThrottle
from memos.core.identities import Caller, Identity, IdentityKind, Key, KeyLimits, NewKey, Right
from memos.core.ports import ChatMessage, ChatReply, ChatRequest
from memos.core.settings import IndexSettings, LimitSettings
from memos.core.tokens import Tokens
from memos.errors import InvalidInput, LimitReached, PermissionDenied
from memos.kernel.access.guard import acting_as
from memos.kernel.access.quotas import Quotas
from memos.llm.usage import UsageMeter
from memos.memcube.ledger.engine import Ledger
from tests.api.conftest import Server
from tests.fakes import FixedClock, WordEmbedder
from tests.support.servers.postgres_server import PostgresServer


def limited(memos: MemOS, user: str = "ana", **limits: int) -> NewKey:
    return memos.keys.create(user, "limited", limits=limits)


def headers(made: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {made.secret}"}


def together(count: int, work: Any) -> Counter[Any]:
    start, found, lock = threading.Barrier(count), Counter[Any](), threading.Lock()

    def one(number: int) -> None:
        start.wait()
        result = work(number)
        with lock:
            found[result] += 1

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return found


def test_a_key_over_its_limit_is_told_when_to_come_back_and_others_go_on(server: Server) -> None:
    made = limited(server.memos, items_per_day=2)
    for number in range(2):
        server.http.post("/api/v1/memories", json={"messages": f"n{number}"}, headers=headers(made)).raise_for_status()
    refused = server.http.post("/api/v1/memories", json={"messages": "n2"}, headers=headers(made))
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "limit_reached"
    assert 0 < int(refused.headers["Retry-After"]) <= 86_400
    assert server.http.post("/api/v1/search", json={"query": "n1"}, headers=headers(made)).status_code == 200
    assert (
        server.http.post("/api/v1/memories", json={"messages": "n3"}, headers=server.headers("ana")).status_code == 201
    )
    assert [item.memory for item in server.memos.memories.list(cube="ana") if item.memory == "n2"] == []
    assert server.memos.keys.used(made.key.id)["items"] == 2


def test_items_are_never_passed_by_many_at_once_and_what_fails_or_repeats_costs_nothing(server: Server) -> None:
    made = limited(server.memos, items_per_day=5)

    def add(number: int) -> int:
        body = {"messages": ["two", f"at once {number}"]}
        return server.http.post("/api/v1/memories", json=body, headers=headers(made)).status_code

    assert together(8, add) == {201: 2, 429: 6}
    assert server.memos.keys.used(made.key.id)["items"] == 4
    again = {**headers(made), "Idempotency-Key": "once"}
    for _ in range(3):
        server.http.post("/api/v1/memories", json={"messages": "the fifth"}, headers=again).raise_for_status()
    assert server.http.post("/api/v1/memories", json={"messages": ""}, headers=headers(made)).status_code == 400
    assert server.memos.keys.used(made.key.id)["items"] == 5


def test_bytes_count_texts_updates_and_files(server: Server) -> None:
    made = limited(server.memos, bytes_per_day=30)
    with acting_as(server.memos.keys.authenticate(made.secret)):
        item = server.memos.add("ten bytes!", cube="ana", actor="ana").item_ids[0]
        server.memos.update(item, "ten more!!", actor="ana")
        with pytest.raises(LimitReached):
            server.memos.documents.add(("a.txt", b"x" * 11), cube="ana", actor="ana")
        server.memos.documents.add(("a.txt", b"x" * 10), cube="ana", actor="ana")
        with pytest.raises(LimitReached, match="30 bytes"):
            server.memos.feedback("no", cube="ana", actor="ana")
    assert server.memos.keys.used(made.key.id)["bytes"] == 30
    server.memos.add("not with a key", cube="ana")


def test_requests_a_minute_are_counted_before_anything_is_done(server: Server) -> None:
    made = limited(server.memos, requests_per_minute=3)

    def ask(_: int) -> int:
        return server.http.post("/api/v1/search", json={"query": "x"}, headers=headers(made)).status_code

    found = together(8, ask)
    # A minute may end in between, and the next one allow three more.
    assert found[200] in (3, 6)
    assert found[200] + found[429] == 8
    caller = server.memos.keys.authenticate(made.secret)
    quotas = Quotas(server.memos.ledger, clock := FixedClock(), KeyLimits())
    for _ in range(3):
        quotas.request(caller)
    with pytest.raises(LimitReached) as refused:
        quotas.request(caller)
    assert 0 < refused.value.retry_after_s <= 60
    clock.advance(timedelta(minutes=1))
    quotas.request(caller)


def test_a_key_made_with_a_limited_key_uses_up_the_same(server: Server) -> None:
    made = limited(server.memos, items_per_day=1)
    with acting_as(server.memos.keys.authenticate(made.secret)):
        with pytest.raises(PermissionDenied):
            server.memos.keys.create("ana", "free", limits={"items_per_day": 9}, actor="ana")
        with pytest.raises(PermissionDenied):
            server.memos.keys.limit(made.key.id, {}, actor="ana")
        second = server.memos.keys.create("ana", "second", actor="ana")
    server.http.post("/api/v1/memories", json={"messages": "first"}, headers=headers(second)).raise_for_status()
    assert server.http.post("/api/v1/memories", json={"messages": "more"}, headers=headers(made)).status_code == 429
    server.memos.keys.limit(made.key.id, {"items_per_day": 2})
    server.http.post("/api/v1/memories", json={"messages": "more"}, headers=headers(made)).raise_for_status()


def test_an_admin_sets_limits_over_http_and_nobody_else(server: Server) -> None:
    body = {"name": "web", "identity": "ben", "limits": {"items_per_day": 3}}
    made = server.http.post("/api/v1/keys", json=body, headers=server.headers("admin"))
    assert made.status_code == 201, made.text
    assert made.json()["key"]["limits"]["items_per_day"] == 3
    assert (
        server.http.post("/api/v1/keys", json=body | {"identity": "ana"}, headers=server.headers("ana")).status_code
        == 403
    )
    wrong = body | {"limits": {"items": 3}}
    assert server.http.post("/api/v1/keys", json=wrong, headers=server.headers("admin")).status_code == 400


def test_an_admin_changes_the_limits_of_a_key_in_use_and_nobody_else(server: Server) -> None:
    made = limited(server.memos, items_per_day=1)
    path = f"/api/v1/keys/{made.key.id}/limits"

    def add(text: str) -> int:
        return server.http.post("/api/v1/memories", json={"messages": text}, headers=headers(made)).status_code

    assert (add("a first"), add("a second")) == (201, 429)
    more = {"limits": {"items_per_day": 2}}
    for key in (headers(made), server.headers("ana"), server.headers("ben")):
        assert server.http.put(path, json=more, headers=key).status_code == 403
    assert server.http.put(path, json=more | {"user": "ana"}, headers=server.headers("admin")).status_code == 403
    assert add("still too much") == 429
    told = server.http.put(path, json=more, headers=server.headers("admin"))
    assert (told.status_code, told.json()["limits"]["items_per_day"]) == (200, 2)
    assert (add("what was used still counts"), add("so this is one too many")) == (201, 429)
    server.http.put(path, json={"limits": {}}, headers=server.headers("admin")).raise_for_status()
    assert add("no limit is left") == 201
    for body in ({}, {"limits": {"items": 1}}, {"limits": {"items_per_day": -1}}, {"limits": [], "x": 1}):
        assert server.http.put(path, json=body, headers=server.headers("admin")).status_code == 400
    unknown = server.http.put("/api/v1/keys/none/limits", json=more, headers=server.headers("admin"))
    assert unknown.status_code == 404


@pytest.mark.parametrize(
    "limits",
    [
        {"items": 1},
        {"items_per_day": -1},
        {"items_per_day": 1.5},
        {"items_per_day": True},
        {"items_per_day": "9"},
        {"items_per_day": 10**400},
        ["items_per_day"],
        {1: 2},
    ],
)
def test_odd_limits_are_refused(server: Server, limits: Any) -> None:
    with pytest.raises(InvalidInput, match="limits"):
        server.memos.keys.create("ana", "odd", limits=limits)


class Talker:
    """Answers with one word and says what it cost."""

    name = "talker"

    def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply("yes", Tokens(prompt=20, completion=5))

    def close(self) -> None:
        pass


def test_defaults_hold_for_keys_without_limits_daily_counts_outlive_a_restart_and_tokens_are_set_aside(
    tmp_path: Path,
) -> None:
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000),
        quota={"items_per_day": 2, "tokens_per_day": 2_300},
    )  # fmt: skip

    def opened() -> MemOS:
        return MemOS.open(tmp_path, settings=settings, embedder=WordEmbedder(), chat_model=Talker())

    with opened() as memos:
        memos.users.create("ana")
        made = memos.keys.create("ana", "k")
        with TestClient(create_app(memos, local_token="local-token")) as http:
            http.post("/api/v1/memories", json={"messages": ["a", "b"]}, headers=headers(made)).raise_for_status()
            local = {"Authorization": "Bearer local-token"}
            for text in "xyz":
                http.post("/api/v1/memories", json={"messages": text}, headers=local).raise_for_status()
        assert memos.models.chat is not None
        with acting_as(memos.keys.authenticate(made.secret)):
            for word in ("one", "two"):
                memos.models.chat.complete_text([ChatMessage("user", word)], meter=UsageMeter("test"))
            assert memos.keys.used(made.key.id, actor="ana") == {"items": 2, "bytes": 0, "tokens": 50}
            with memos.quotas.reserve_tokens(2_000, "chat"), pytest.raises(LimitReached, match="tokens"):
                memos.models.chat.complete_text([ChatMessage("user", "three")], meter=UsageMeter("test"))
            assert memos.keys.used(made.key.id, actor="ana")["tokens"] == 50
    with opened() as memos, acting_as(memos.keys.authenticate(made.secret)), pytest.raises(LimitReached):
        memos.add("c", cube="ana", actor="ana")


def test_several_processes_on_postgresql_together_pass_no_limit(postgres_server: PostgresServer) -> None:
    url = postgres_server.url()
    ledgers = [Ledger.open(url) for _ in range(3)]
    clock = FixedClock()
    quotas = [Quotas(ledger, clock, KeyLimits(items_per_day=7, requests_per_minute=4)) for ledger in ledgers]
    caller = _caller()

    def charge(number: int) -> str:
        with acting_as(caller):
            try:
                with ledgers[number % 3].write() as connection:
                    quotas[number % 3].charge(connection, 2, 10)
            except LimitReached:
                return "refused"
            return "stored"

    assert together(12, charge) == {"stored": 3, "refused": 9}

    def ask(number: int) -> str:
        try:
            quotas[number % 3].request(caller)
        except LimitReached:
            return "refused"
        return "answered"

    found = together(9, ask)
    assert found == {"answered": 4, "refused": 5}
    for ledger in ledgers:
        ledger.close()


def _caller() -> Caller:
    now = FixedClock().now()
    identity = Identity("ana", IdentityKind.USER, "ana", False, False, "ana", None, "owner", now)
    return Caller(identity, Key("k" * 36, "ana", "k", "mst_", tuple(Right), "owner", now))


def test_wrong_keys_make_their_address_wait_but_not_a_key_that_was_good(server: Server) -> None:
    with TestClient(create_app(server.memos)) as http:  # of its own, so that the other tests' address stays free
        ask = {"json": {"query": "x"}}
        http.post("/api/v1/search", **ask, headers=server.headers("ana")).raise_for_status()
        statuses = [
            http.post("/api/v1/search", **ask, headers={"Authorization": f"Bearer wrong{n}"}).status_code
            for n in range(25)
        ]
        assert statuses == [401] * 20 + [429] * 5
        refused = http.post("/api/v1/search", **ask, headers=server.headers("ben"))
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) <= 60
        http.post("/api/v1/search", **ask, headers=server.headers("ana")).raise_for_status()


def test_attempts_are_forgotten_after_a_minute_and_take_bounded_memory() -> None:
    now = [0.0]
    attempts = LoginThrottle(lambda: now[0])
    for number in range(20):
        attempts.failed(f"2001:db8::{number:x}")  # one network
    with pytest.raises(LimitReached):
        attempts.check("2001:db8::ffff", "x")
    attempts.check("2001:db8:0:1::1", "x")
    now[0] = 60.5
    attempts.check("2001:db8::1", "x")
    for number in range(10_000):
        attempts.failed(f"10.{number % 250}.{number // 250}.1")
        attempts.failed("odd" * 1_000 + str(number))
        attempts.succeeded(f"key{number}")
    assert len(attempts) <= 4_096 + 1_024
