"""Waiting takes no thread: 200 waiters keep no search waiting; streams tell what happens and end with the client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread

from memos.core.clock import new_id
from memos.memcube.ledger import tasks as rows
from memos.memcube.ledger.tasks import NewTask
from tests.api.asgi import Ongoing, Waiters
from tests.api.conftest import Server

WAITERS = 200


@pytest.fixture
def task(server: Server) -> Iterator[str]:
    """Return a task of ana's that nobody will do."""
    now = server.memos.clock.now()
    with server.memos.ledger.write() as connection:
        rows.enqueue(connection, "ana", [NewTask("none does this", key=new_id())], now)
    [task] = server.memos.tasks.list(cubes=["ana"], kinds=["none does this"], states=["waiting"])
    yield task.id
    if not server.memos.tasks.get(task.id).ended:
        server.memos.tasks.cancel(task.id)


def test_two_hundred_waiters_leave_the_threads_to_others(server: Server, task: str) -> None:
    server.memos.add("The otter lives in Oslo", cube="ana", actor="ana")

    async def run() -> None:
        app = server.http.app
        # As few threads as there may be: were one waiter to hold one, nobody else would get any.
        to_thread.current_default_thread_limiter().total_tokens = 4
        with anyio.fail_after(240):
            await together(app)

    async def together(app: Any) -> None:
        async with Waiters() as group:
            paths = [f"/api/v1/tasks/{task}/wait", f"/api/v1/tasks/{task}/stream", "/api/v1/events/stream"]
            waiting = [
                Ongoing(app, paths[number % 3], server.ana, "timeout_s=3000").start(group) for number in range(WAITERS)
            ]
            for each in waiting[1::3]:
                await each.until("event: task")
            for each in waiting[2::3]:
                await each.begun.wait()
            headers = server.headers("ana")
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as http:
                found = await http.post("/api/v1/search", json={"query": "otter"}, headers=headers, timeout=120)
            assert found.json()["hits"][0]["item"]["memory"] == "The otter lives in Oslo"
            assert not any(each.over.is_set() for each in waiting)
            await to_thread.run_sync(server.memos.tasks.cancel, task)
            for each in waiting[0::3]:
                await each.over.wait()
                assert (each.status, each.json()["state"]) == (200, "cancelled")
            for each in waiting[1::3]:
                await each.over.wait()
                assert "event: end" in each.body.decode()
            assert not any(each.over.is_set() for each in waiting[2::3])

    anyio.run(run)


def test_a_wait_whose_time_is_over_tells_how_things_stand(server: Server, task: str) -> None:
    answer = server.http.get(f"/api/v1/tasks/{task}/wait?timeout_s=0", headers=server.headers("ana"))
    assert (answer.status_code, answer.json()["ended"]) == (200, False)
    for wrong in ("-1", "nan", "inf", "1e400", "x", "4000"):
        answer = server.http.get(f"/api/v1/tasks/{task}/wait?timeout_s={wrong}", headers=server.headers("ana"))
        assert answer.status_code == 400, wrong


def test_a_stream_tells_each_event_once_and_goes_on_where_it_was_left(server: Server) -> None:
    async def run() -> None:
        app = server.http.app
        async with Waiters() as group:
            first = Ongoing(app, "/api/v1/events/stream", server.ana, "kind=add").start(group)
            await first.begun.wait()
            await to_thread.run_sync(lambda: server.memos.add("one", cube="ana", actor="ana"))
            await first.until("event: add")
            first.gone.set()
            await first.over.wait()
            number = first.body.decode().split("id: ")[1].split("\n")[0]
            await to_thread.run_sync(lambda: server.memos.add("two", cube="ana", actor="ana"))
            again = Ongoing(app, "/api/v1/events/stream", server.ana, f"kind=add&after={number}").start(group)
            await again.until("event: add")
            assert again.body.count(b"event: add") == 1
            assert f"id: {number}\n".encode() not in again.body

    anyio.run(run)


def test_a_stream_ends_when_the_client_goes_and_when_the_cube_is_taken_back(server: Server) -> None:
    server.memos.cubes.create("lent", actor="ana")
    server.memos.sharing.grant("lent", "ben", "reader", actor="ana")

    async def run() -> None:
        app = server.http.app
        async with Waiters() as group:
            going = Ongoing(app, "/api/v1/events/stream", server.ben, "cube=lent").start(group)
            staying = Ongoing(app, "/api/v1/events/stream", server.ben, "cube=lent").start(group)
            await going.begun.wait()
            await staying.begun.wait()
            going.gone.set()
            await going.over.wait()
            assert not staying.over.is_set()
            await to_thread.run_sync(lambda: server.memos.sharing.revoke("lent", "ben", actor="ana"))
            await staying.over.wait()
            assert "event: error" in staying.body.decode()
            assert "unshare" not in staying.body.decode()
            refused = Ongoing(app, "/api/v1/events/stream", server.ben, "cube=lent").start(group)
            await refused.over.wait()
            assert refused.status == 404

    anyio.run(run)


def test_what_waits_and_what_is_streamed_ends_with_its_key(server: Server, task: str) -> None:
    key = server.memos.keys.create("ana", "short", actor="ana")

    async def run() -> None:
        app = server.http.app
        async with Waiters() as group:
            waiting = Ongoing(app, f"/api/v1/tasks/{task}/wait", key.secret, "timeout_s=3000").start(group)
            told = Ongoing(app, f"/api/v1/tasks/{task}/stream", key.secret).start(group)
            followed = Ongoing(app, "/api/v1/events/stream", key.secret).start(group)
            other = Ongoing(app, "/api/v1/events/stream", server.ana).start(group)
            await told.until("event: task")
            await followed.begun.wait()
            await other.begun.wait()
            await to_thread.run_sync(lambda: server.memos.keys.revoke(key.key.id, actor="ana"))
            await to_thread.run_sync(lambda: server.memos.add("behind the end of a key", cube="ana", actor="ana"))
            for each in (waiting, told, followed):
                await each.over.wait()
            assert (waiting.status, waiting.json()["error"]["code"]) == (401, "unauthenticated")
            for each in (told, followed):
                assert each.body.count(b"event: error") == 1
                assert b"unauthenticated" in each.body
            assert b"event: add" not in followed.body
            await other.until("event: add")

    anyio.run(run)


@pytest.mark.parametrize("number", ["x", "-1", "9" * 400, "1.5", "\u0661"])
def test_a_number_of_an_event_that_is_none_is_refused(server: Server, number: str) -> None:
    headers = {**server.headers("ana"), "Last-Event-ID": number.encode()}
    answer = server.http.get("/api/v1/events/stream?timeout_s=0", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "last-event-id"
