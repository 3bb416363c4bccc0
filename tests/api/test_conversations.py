"""Messages of a conversation over HTTP: the newest, those before one, those around one, each user's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import Server


@pytest.fixture(scope="module")
def talk(server: Server) -> list[str]:
    """Ids of ten messages of Ana's conversation."""
    said = [{"role": "user", "content": f"Message number {number} of the talk."} for number in range(10)]
    added = server.memos.add(said, cube="ana", actor="ana", conversation="the/talk")
    return list(added.item_ids)


def _messages(server: Server, who: str = "ana", **query: Any) -> Any:
    path = "/api/v1/conversations/the%2Ftalk/messages"
    return server.http.get(path, params=query, headers=server.headers(who))


def test_messages_come_in_order_from_the_end(server: Server, talk: list[str]) -> None:
    assert [item["id"] for item in _messages(server).json()] == talk
    assert [item["id"] for item in _messages(server, limit=3).json()] == talk[-3:]
    assert [item["id"] for item in _messages(server, limit=3, before=talk[4]).json()] == talk[1:4]


def test_those_around_one_include_it(server: Server, talk: list[str]) -> None:
    assert [item["id"] for item in _messages(server, around=talk[5], limit=5).json()] == talk[3:8]
    assert [item["id"] for item in _messages(server, around=talk[0], limit=5).json()] == talk[:3]


def test_deleted_ones_are_left_out(server: Server, talk: list[str]) -> None:
    server.memos.delete(talk[5], actor="ana")
    assert talk[5] not in [item["id"] for item in _messages(server).json()]
    server.memos.memories.rollback(talk[5], actor="ana")
    assert talk[5] in [item["id"] for item in _messages(server).json()]


def test_wrong_places_are_told(server: Server, talk: list[str]) -> None:
    assert _messages(server, around=talk[1], before=talk[2]).json()["error"]["field"] == "before"
    assert _messages(server, around="nothing").json() == []
    assert _messages(server, limit=0).status_code == 400


def test_nobody_reads_anothers(server: Server, talk: list[str]) -> None:
    assert _messages(server, "ben").json() == []
    assert _messages(server, "ben", around=talk[3]).json() == []
    assert _messages(server, "ben", cube="ana").status_code == 404
