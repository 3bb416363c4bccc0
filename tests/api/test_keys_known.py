"""A key that was checked a moment ago is not looked up again, and never outlives what it stands for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from memos import MemOS
from memos.api.app import create_app
from memos.errors import PermissionDenied
from tests.fakes import HeldClock, WordEmbedder

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Known(NamedTuple):
    """A server whose key `secret` of Ana, with the id `key`, was just used."""

    memos: MemOS
    clock: HeldClock
    http: TestClient
    key: str
    secret: str

    def status(self) -> int:
        """Return how a request with the key is answered."""
        return self.http.get("/api/v1/me", headers={"Authorization": f"Bearer {self.secret}"}).status_code


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    clock = HeldClock(NOW)
    with MemOS.open(tmp_path, embedder=WordEmbedder(), clock=clock) as memos:
        memos.users.create("root", admin=True)
        memos.users.create("ana")
        made = memos.keys.create("ana", "laptop", expires_at=NOW + timedelta(hours=1))
        with TestClient(create_app(memos)) as http:
            server = Known(memos, clock, http, made.key.id, made.secret)
            assert memos.keys.recognise(made.secret) is None
            assert server.status() == 200
            caller = memos.keys.recognise(made.secret)
            assert caller is not None
            assert (caller.identity.id, caller.key.id) == ("ana", made.key.id)
            yield server


@pytest.mark.parametrize(
    "end",
    [
        lambda server: server.memos.keys.revoke(server.key),
        lambda server: server.memos.users.enable("ana", enabled=False),
        lambda server: server.clock.advance(timedelta(hours=1)),
    ],
    ids=["revoked", "owner disabled", "expired"],
)
def test_a_known_key_ends_at_once(known: Known, end: Callable[[Known], object]) -> None:
    end(known)
    assert known.memos.keys.recognise(known.secret) is None
    assert known.status() == 401


def test_new_limits_of_a_known_key_hold_at_once(known: Known) -> None:
    known.memos.keys.limit(known.key, {"requests_per_minute": 1})
    assert [known.status(), known.status()] == [200, 429]


def test_the_use_of_a_known_key_is_noted_every_minute(known: Known) -> None:
    for _ in range(3):
        known.clock.advance(timedelta(seconds=40))
        assert known.status() == 200
    used_at = known.memos.keys.get(known.key).last_used_at
    assert used_at is not None
    assert used_at.replace(microsecond=0) == NOW + timedelta(seconds=80)


def test_no_call_begun_after_a_key_is_revoked_is_let_in(known: Known) -> None:
    keys, revoked, late = known.memos.keys, threading.Event(), []

    def ask() -> None:
        while True:
            after = revoked.is_set()
            try:
                found = keys.recognise(known.secret) or keys.authenticate(known.secret)
            except PermissionDenied:
                return
            if after:
                late.append(found)
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    keys.revoke(known.key)
    revoked.set()
    for thread in threads:
        thread.join()
    assert not late
