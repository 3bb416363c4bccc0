"""The page Chat without scripts: what stored answers were made from, also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings, TaskSettings
from memos.errors import InvalidInput
from tests.api.conftest import Console, Server
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import ScriptedChat

DOORS = [f"Door number {number} of the secret corridor is blue." for number in range(1, 8)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model cites the third memory that it is shown."""
    settings = Settings(
        index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), tasks=TaskSettings(workers=0)
    )
    model = ScriptedChat(lambda _: "A blue door [m3].")
    home: Path = tmp_path_factory.mktemp("server")
    with (
        MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        yield Server(memos, http, *keys_of(memos))


def test_a_stored_answer_shows_what_it_recalled_cited_and_wrote(server: Server) -> None:
    server.memos.add([{"role": "user", "content": door} for door in DOORS], cube="ana", actor="ana")
    told = server.memos.chat("Which door is secret?", cubes=["ana"], actor="ana", conversation="doors")
    assert told.receipt is not None
    [cited] = told.cited_ids
    page = Console(server.http, server.ana).get("/chat", cube="ana", conversation="doors")
    assert page.count("/console/memories/" + cited) == 1
    assert page.index(cited) < page.index("cited")
    assert all(page.count("/console/memories/" + id_) == 2 for id_ in told.receipt.item_ids)
    assert "4 more that the model saw" in page
    whole = Console(server.http, server.ana).get("/chat/recalled", answer=told.receipt.item_ids[1])
    assert all(door in whole for door in DOORS)


def test_what_was_recalled_and_is_gone_is_told_and_never_anothers(server: Server) -> None:
    kept, gone = server.memos.add(["The red key.", "The green key."], cube="ana", actor="ana").item_ids
    of_ben = server.memos.add("Ben's key is golden.", cube="ben", actor="ben").item_ids[0]
    answer = {"role": "assistant", "content": "A key.", "recalled": [gone, of_ben, kept], "cited": []}
    stored = server.memos.add(answer, cube="ana", actor="ana", conversation="keys").item_ids[0]
    server.memos.erase(gone, cube="ana", actor="ana")
    for path, query in (("/chat", {"conversation": "keys", "cube": "ana"}), ("/chat/recalled", {"answer": stored})):
        page = Console(server.http, server.ana).get(path, **query)
        assert "The red key." in page
        assert "golden" not in page
    assert "2 memories are no longer there" in page
    Console(server.http, server.ben).get("/chat/recalled", 404, answer=stored)


def test_answers_of_other_programs_say_what_they_were_made_from(server: Server) -> None:
    id_ = server.memos.add("I sail.", cube="ana", actor="ana").item_ids[0]
    for wrong in ("x", [1], [""], ["x" * 65], ["x"] * 1_001):
        with pytest.raises(InvalidInput, match="recalled"):
            server.memos.add({"role": "assistant", "content": "You sail.", "recalled": wrong}, cube="ana", actor="ana")
    with pytest.raises(InvalidInput, match="assistant"):
        server.memos.add({"role": "user", "content": "I sail.", "cited": [id_]}, cube="ana", actor="ana")
    answer = {"role": "assistant", "content": "You sail.", "recalled": [id_, id_]}
    stored = server.memos.add(answer, cube="ana", actor="ana", info={"app": "mine"}).item_ids[0]
    assert server.memos.get(stored).info == {"app": "mine", "recalled": [id_]}
    wanted = {"info.recalled": {"contains": id_}}
    assert [item.id for item in server.memos.memories.list(cube="ana", actor="ana", filter=wanted)] == [stored]
    found = server.memos.search("sail", cubes=["ana"], actor="ana", filter=wanted)
    assert [hit.item.id for hit in found.hits] == [stored]


def test_info_of_the_same_name_breaks_no_page(server: Server) -> None:
    server.memos.add("A talk.", cube="ana", actor="ana", conversation="odd", info={"recalled": "yesterday"})
    answer = {"role": "assistant", "content": "Indeed."}
    server.memos.add(answer, cube="ana", actor="ana", conversation="odd", info={"recalled": "yesterday"})
    assert "Indeed." in Console(server.http, server.ana).get("/chat", cube="ana", conversation="odd")
