"""The pages Ask and Chat without scripts: filters in the address, corrections and their undo, whole pages."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos.api.console.pages.asking import Row, as_curl, filter_of, rows_of
from memos.api.console.view import csrf_token
from memos.core.filters import parse
from tests.api.conftest import Server

ROWS = [
    [Row("tags", "in", "work, home"), Row("said_at", "gte", "2026-01-31"), Row("confidence", "lt", "0.5")],
    [Row("said_at", "gte", "2026-01-01"), Row("said_at", "lt", "2026-02-01")],
    [Row("info.done", "eq", "true"), Row("info.price", "gte", "2.5"), Row("info.code", "eq", '"12"')],
    [Row("key", "exists", "false"), Row("memory", "like", "a, b"), Row("speaker", "ne", "12")],
]


@pytest.mark.parametrize("rows", ROWS)
def test_conditions_become_a_filter_and_come_back(rows: list[Row]) -> None:
    made = filter_of(rows)
    parse(made)
    assert rows_of(made) is not None
    assert filter_of(rows_of(made) or []) == made
    assert {row.value for row in rows_of(made) or ()} == {row.value for row in rows}


def test_alternatives_stay_json() -> None:
    assert rows_of({"or": [{"tags": "a"}, {"tags": "b"}]}) is None
    assert rows_of({"and": [{"tags": "a"}, {"not": {"tags": "b"}}]}) is None


def test_a_question_with_quotes_is_one_word_of_the_command() -> None:
    words = shlex.split(as_curl("http://x", {"query": 'What\'s "this"; rm -rf $HOME?'}))
    assert words[-1] == '{"query": "What\'s \\"this\\"; rm -rf $HOME?"}'


class Browser:
    """Ana's browser without scripts."""

    def __init__(self, server: Server) -> None:
        self.http = TestClient(server.http.app, follow_redirects=False)
        answer = self.http.post("/console/sign-in", data={"key": server.ana})
        self.csrf = csrf_token(answer.cookies["memos_session"])

    def post(self, path: str, **fields: Any) -> str:
        answer = self.http.post(f"/console{path}?cube=ana", data={"csrf": self.csrf, **fields})
        assert answer.status_code == 200, answer.text
        return answer.text


def fields_of(page: str, action: str) -> dict[str, list[str]]:
    """Return the hidden fields of the first form with an action."""
    [form] = re.findall(rf'<form method="post" action="/console{action}[^>]*>(.*?)</form>', page, re.DOTALL)[:1]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form):
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def ana(server: Server) -> Browser:
    return Browser(server)


def test_a_correction_in_doubt_asks_which_one_is_meant(ana: Browser, server: Server) -> None:
    trains = ["Her train to Ghent arrives at nine.", "Her train to Liège arrives at ten."]
    ids = server.memos.add([{"role": "user", "content": text} for text in trains], cube="ana", actor="ana").item_ids
    told = ana.post("/ask/correct", text="Her train arrives at eleven.")
    assert "Not sure what is meant" in told
    asked = fields_of(told, "/ask/correct")
    assert asked["item"][0] in ids
    done = ana.post("/ask/correct", text=asked["text"][0], item=ids[0], instead=asked["instead"][0])
    assert "Replaced." in done or "Corrected." in done
    texts = [item.memory for item in server.memos.memories.list(cube="ana", actor="ana")]
    assert texts.count("Her train arrives at eleven.") <= 1
    undo = fields_of(done, "/ask/undo")
    again = {name: values for name, values in undo.items() if name != "csrf"}
    assert "Undone" in ana.post("/ask/undo", **again)
    standing = {item.id: item for item in server.memos.memories.list(cube="ana", actor="ana")}
    assert standing[ids[0]].memory == trains[0]
    assert standing[ids[0]].status == "active"
    twice = ana.http.post("/console/ask/undo?cube=ana", data={"csrf": ana.csrf, **again})
    assert twice.status_code in (404, 409)


def test_a_correction_that_fails_leaves_the_earlier_one(ana: Browser, server: Server) -> None:
    lamps = ["The lamp in the hall costs 20 euros.", "The lamp in the attic costs 30 euros."]
    server.memos.add([{"role": "user", "content": text} for text in lamps], cube="ana", actor="ana")
    asked = fields_of(ana.post("/ask/correct", text="The lamp costs 40 euros."), "/ask/correct")
    [earlier] = asked["instead"]
    fields = {"csrf": ana.csrf, "text": "The lamp costs 40 euros.", "instead": earlier}
    gone = server.memos.add("A candle.", cube="ana", actor="ana").item_ids[0]
    server.memos.erase(gone, cube="ana", actor="ana")
    assert ana.http.post("/console/ask/correct?cube=ana", data={**fields, "item": gone}).status_code == 404
    assert server.memos.get(earlier).memory == "The lamp costs 40 euros."
    assert ana.http.post("/console/ask/correct?cube=ana", data={**fields, "instead": gone}).status_code == 404


def test_what_is_not_found_is_not_forgotten(ana: Browser) -> None:
    told = ana.post("/ask/correct", text="forget the name of my submarine")
    assert "Not sure what is meant" in told or "Forgotten" in told
    assert "Nothing to correct" in ana.post("/ask/correct", text=" ")


def test_an_empty_number_and_a_wrong_filter_are_told_on_the_page(ana: Browser) -> None:
    for query in (
        "top_k=x",
        "filter=%7B",
        "filter=[]",
        "min_relevance=2",
        "as_of=never",
        "filter=%7B%22a%22%3A%7B%7D%7D",
    ):
        page = ana.http.get(f"/console/ask?cube=ana&q=train&{query}")
        assert page.status_code == 200
        assert 'class="problem" role="alert"' in page.text, query


def test_chat_without_a_model_says_so(ana: Browser) -> None:
    page = ana.http.get("/console/chat?cube=ana&q=train").text
    assert "No language model is set" in page
    assert "[user]\ntrain" in page
    answer = ana.post("/chat/ask", q="train", store="1")
    assert "No language model is configured" in answer
