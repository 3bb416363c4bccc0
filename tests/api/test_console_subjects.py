"""The page about a person: who may ask, what goes, the archive, forgetting after the preview, receipts and checks."""

from __future__ import annotations

import base64
import itertools
import json
import re
import zipfile
from html import unescape
from io import BytesIO
from typing import Any

import pytest

from memos.errors import NotFound
from tests.api.conftest import Console, Server

HOSTILE = '"><script>alert(1)</script> \u202eeve {{7*7}}'
_NUMBERS = itertools.count(10)


@pytest.fixture
def who(server: Server) -> str:
    """Return a new user with a memory, who also added one to a cube of Ben's that is shared with it."""
    user = f"user-{next(_NUMBERS)}"
    server.memos.users.create(user)
    server.memos.cubes.create(f"{user}-team", actor="ben")
    server.memos.sharing.grant(f"{user}-team", user, "editor", actor="ben")
    server.memos.add(f"{user} keeps the pangolin.", cube=user, actor=user)
    server.memos.add(f"{user} added a numbat.", cube=f"{user}-team", actor=user)
    server.memos.add(f"Yesterday {user} was at the lake.", cube=f"{user}-team", actor="ben")
    return user


def key_of(server: Server, user: str, **limits: Any) -> str:
    return server.memos.keys.create(user, "test", **limits).secret


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


def expected_of(page: str) -> str:
    [expected] = re.findall(r'name="expected" value="(\d+)"', page)
    return str(expected)


def action_of(page: str) -> str:
    """Return where the form that forgets leads to, below the console."""
    [action] = re.findall(r'action="/console(/data/subject/forget[^"]*)"', page)
    return unescape(action)


def saved_in(page: str) -> list[Any]:
    """Return the JSON files that a receipt's page has to save."""
    return [json.loads(base64.b64decode(each)) for each in re.findall(r"data:application/json;base64,([^\"]+)", page)]


def test_a_user_sees_takes_along_and_ends_what_is_held_about_it(server: Server, who: str) -> None:
    console = Console(server.http, key_of(server, who))
    assert "About a person</a>" in console.get("/data")
    assert 'name="who"' not in console.get("/data/subject")  # it may ask about itself alone
    page = console.get("/data/subject", look="1")
    told = text_of(page)
    assert "What is held about you" in told
    assert "2 memories go if you are forgotten" in told
    assert "1 memory of others mentions you, and stays" in told
    for memory in (f"{who} keeps the pangolin.", f"{who} added a numbat.", f"Yesterday {who} was at the lake."):
        assert memory in told
    assert "1 API key" in told

    answer = console.http.get("/console/data/subject/archive", params={"kind": "user", "who": who})
    assert answer.headers["content-type"] == "application/zip"
    assert "attachment" in answer.headers["content-disposition"]
    with zipfile.ZipFile(BytesIO(answer.content)) as archive:
        assert {"index.html", "archive.json", "account.json"} <= set(archive.namelist())
        assert json.loads(archive.read("archive.json"))["subject"] == who

    action, expected = action_of(page), expected_of(page)
    assert "nothing was forgotten" in console.post(action, confirmed="somebody", expected=expected).text
    assert "Look at what goes first" in console.post(action, confirmed=who).text
    stale = console.post(action, confirmed=who, expected="7")
    assert stale.status_code == 400
    assert "2 memories would go now, not 7" in stale.text
    assert console.http.post(f"/console{action}", data={"confirmed": who, "expected": expected}).status_code == 403
    assert server.memos.memories.list(cube=who, actor=who)

    done = console.post(action, confirmed=who, expected=expected)
    assert done.status_code == 200
    assert "Forgotten: 2 memories of 2 cubes, and the account." in text_of(done.text)
    assert "1 memory of others still mentions the user." in text_of(done.text)
    assert "You are signed out" in done.text
    assert 'memos_session=""' in done.headers["set-cookie"]
    whole, *by_cube = saved_in(done.text)
    assert whole["receipts"] == by_cube
    assert whole["receipts"][0]["fingerprints"]
    assert who not in json.dumps({**whole, "receipts": [each for each in by_cube if each["cube"] != f"{who}-team"]})
    with pytest.raises(NotFound):
        server.memos.cubes.get(who)
    assert [item.memory for item in server.memos.memories.list(cube=f"{who}-team")] == [
        f"Yesterday {who} was at the lake."
    ]


def test_an_admin_forgets_a_user_and_checks_the_receipt(server: Server, who: str) -> None:
    admin = Console(server.http, server.admin)
    assert f'href="/console/data/subject?cube={server.memos.users.get("admin").home}&amp;kind=user&amp;who={who}"' in (
        admin.get("/access")
    )
    assert f'<option value="{who}">' in admin.get("/data/subject")
    page = admin.get("/data/subject", cube=who, kind="user", who=who, mentions="1")
    assert "3 memories go if they are forgotten" in text_of(page)
    done = admin.post(action_of(page), confirmed=who, expected=expected_of(page)).text
    assert "Forgotten: 3 memories of 2 cubes" in text_of(done)
    assert "still mention" not in done
    assert f'<option value="{who}"' not in done  # neither among the cubes nor chosen
    receipt = re.findall(r'href="/console(/erasures/[^"?]+)', done)[0]
    assert "Check this receipt" in admin.get(receipt)

    server.memos.maintenance.finish_erasures()
    cell = admin.http.get(f"/console{receipt}/state", headers={"hx-request": "true"}).text
    assert "finished" in cell
    assert "hx-get" not in cell
    whole = saved_in(done)[0]
    found = admin.post("/data/erase/check", receipt=json.dumps(whole), texts=f"{who} keeps the pangolin").text
    assert text_of(found).count("Nothing contradicts it.") == 2
    assert "1 text and" in text_of(found)
    file = {"file": ("receipt.json", json.dumps(whole["receipts"][0]).encode())}
    answer = admin.http.post("/console/data/erase/check", data={"csrf": admin.csrf, "scan": "1"}, files=file)
    assert text_of(answer.text).count("Nothing contradicts it.") == 1
    assert "0 places" in text_of(answer.text)
    assert "There is no user" in text_of(admin.get("/data/subject", kind="user", who=who))
    server.memos.add(f"We miss {who}.", cube="ben", actor="ben")
    page = text_of(admin.get("/data/subject", kind="user", who=who))
    assert "There is no user with this id; this is what mentions the name" in page
    assert "1 memory of others mentions them" in page


def test_nobody_asks_about_another_user(server: Server, who: str) -> None:
    ben = Console(server.http, server.ben)
    for path in ("/data/subject", "/data/subject/archive"):
        page = ben.get(path, status=403, kind="user", who=who)
        assert "pangolin" not in page
        assert "is not an admin" in unescape(page)
    answer = ben.post(f"/data/subject/forget?kind=user&who={who}", confirmed=who, expected="2")
    assert answer.status_code == 403
    assert f"/data/subject?cube=ben&amp;kind=user&amp;who={who}" not in ben.get("/access")
    assert ben.get("/data/subject", status=404, kind="person", who=who, only=who)
    assert "2 memories" in text_of(Console(server.http, key_of(server, who)).get("/data/subject", look="1"))


def test_a_key_that_may_only_read_forgets_nobody(server: Server, who: str) -> None:
    reader = Console(server.http, key_of(server, who, rights=["read"]))
    page = reader.get("/data/subject", kind="user", who=who)
    assert "2 you may see, but not erase" in text_of(page)
    assert f"{who} keeps the pangolin." in page
    assert "Your key does not allow forgetting" in page
    assert "Forget for good" not in page
    assert reader.http.get("/console/data/subject/archive", params={"kind": "user", "who": who}).content[:2] == b"PK"
    answer = reader.post(f"/data/subject/forget?kind=user&who={who}", confirmed=who, expected="2")
    assert answer.status_code == 400
    assert "lacks the right `own`" in unescape(answer.text)
    assert len(server.memos.memories.list(cube=who, actor=who)) == 1


def test_a_key_that_is_limited_to_cubes_ends_no_account(server: Server, who: str) -> None:
    server.memos.cubes.create(f"{who}-some", actor=who)
    limited = Console(server.http, key_of(server, who, cubes=[f"{who}-some"]))
    page = limited.get("/data/subject", look="1")
    answer = limited.post(action_of(page), confirmed=who, expected=expected_of(page))
    assert answer.status_code == 400
    assert "limited to cubes and cannot forget a user" in answer.text
    assert not server.memos.users.get(who).disabled


def test_a_person_who_is_spoken_of_is_forgotten_where_one_may(server: Server, who: str) -> None:
    """The name is hostile, and every part of the pages shows it as text."""
    name = f"{HOSTILE} {who}"
    for cube in (who, f"{who}-team"):
        said = [{"role": "user", "name": name, "content": f"I sail from {cube}."}]
        server.memos.add(said, cube=cube, actor=who)
    server.memos.add(f"A postcard came from {name} today.", cube=who, actor=who)
    server.memos.sharing.grant(f"{who}-team", who, "reader", actor="ben")
    console = Console(server.http, key_of(server, who))
    page = console.get("/data/subject", kind="person", who=name)
    assert "<script>alert" not in page
    told = text_of(page)
    assert f"What is held about {name}" in told
    assert "1 memory goes if they are forgotten" in told
    assert "1 you may see, but not erase" in told
    assert "A postcard came" in told
    only = console.get("/data/subject", kind="person", who=name, only=f"{who}-team")
    assert "0 memories go" in text_of(only)
    assert "Forget for good" not in only
    assert "ask an owner of the cubes" in only
    with_mentions = console.get("/data/subject", cube=who, kind="person", who=name, mentions="1")
    assert "2 memories go if they are forgotten" in text_of(with_mentions)
    done = console.post(action_of(with_mentions), confirmed=name, expected=expected_of(with_mentions))
    assert done.status_code == 200
    assert "Forgotten: 2 memories of 1 cube." in text_of(done.text)
    assert "1 memory is left in cubes where you may not erase" in text_of(done.text)
    assert name not in unescape(done.text)
    assert "You are signed out" not in done.text
    assert [item.memory for item in server.memos.memories.list(cube=who, actor=who)] == [f"{who} keeps the pangolin."]
    again = console.post(action_of(with_mentions), confirmed=name, expected=expected_of(with_mentions))
    assert "0 memories would go now, not 2" in again.text


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Ze\u0301 Beta", "Z\u00e9 Beta"),
        ("\u202eeve\u202c  two", "eve two"),
        ("\u200b", "\u200b"),
        ("line\nbreak", "line break"),
        ("n" * 256, "n" * 256),
    ],
    ids=["accent of its own", "marks of direction and two spaces", "nothing to see", "two lines", "as long as may be"],
)
def test_a_name_is_typed_as_it_is_seen(server: Server, who: str, name: str, typed: str) -> None:
    server.memos.add([{"role": "user", "name": name, "content": "I sail."}], cube=who, actor=who)
    console = Console(server.http, key_of(server, who))
    page = console.get("/data/subject", kind="person", who=name)
    assert "1 memory goes" in text_of(page)
    assert console.post(action_of(page), confirmed=f"{typed}?", expected="1").status_code == 400
    done = console.post(action_of(page), confirmed=typed, expected="1")
    assert "Forgotten: 1 memory of 1 cube." in text_of(done.text)


def test_empty_and_unknown_names_are_told_plainly(server: Server, who: str) -> None:
    console, admin = Console(server.http, key_of(server, who)), Console(server.http, server.admin)
    assert "Give the name of a person." in console.get("/data/subject", status=400, kind="person", look="1", who=" ")
    assert "Give the id of a user." in admin.get("/data/subject", status=400, kind="user", look="1")
    nobody = console.get("/data/subject", kind="person", who="<b>Nobody</b>")
    assert "No memory that you may read is by or about “&lt;b&gt;Nobody&lt;/b&gt;”" in nobody
    assert "Download" not in nobody.split("<dialog")[0]
    assert "There is no user “nobody-here”" in admin.get("/data/subject", kind="user", who="nobody-here")
    long = admin.get("/data/subject", status=400, kind="user", who="x" * 200)
    assert 'class="problem"' in long
    assert "is the owner of the installation" in admin.get("/data/subject", status=400, kind="user", who="owner")
    assert "is the owner of the installation" in admin.get("/data/subject/archive", status=400, who="owner")
    answer = console.http.get("/console/data/subject/archive")
    assert answer.headers["location"].startswith("/console/data/subject?")


def test_a_receipt_that_is_none_or_was_changed_is_told(server: Server, who: str) -> None:
    console = Console(server.http, key_of(server, who))
    item = server.memos.add("The spare key is under the third flowerpot.", cube=who, actor=who).item_ids[0]
    id_ = server.memos.erase(item, actor=who).id
    assert f">{id_}</textarea>" in console.get("/data/erase/check", receipt=id_)
    assert "Only admins may look" in console.get("/data/erase/check")
    assert "Nothing contradicts it." in console.post("/data/erase/check", receipt=id_, scan="1").text
    receipt = json.loads(console.http.get(f"/console/api/erasures/{id_}").content)
    changed = console.post("/data/erase/check", receipt=json.dumps({**receipt, "cube": "<i>else</i>"})).text
    assert "does not hold" in changed
    assert "it was changed after it was signed" in changed
    assert "<i>else" not in changed
    assert "Nothing contradicts it." in console.post("/data/erase/check", receipt="\ufeff" + json.dumps(receipt)).text
    not_json = ('{"id": NaN}', '{"id": 1e999}', '{"id": "\\ud800"}', json.dumps({**receipt, "id": "\ud800"}))
    for wrong in ("", "[1]", "<p>", "{}", '{"receipts": []}', '{"receipts": [1]}', "[" * 10_000, *not_json):
        answer = console.post("/data/erase/check", receipt=wrong)
        assert answer.status_code == 400, wrong
        assert 'class="problem" role="alert"' in answer.text
    file = {"file": ("x.json", b"\xff\xfe\x00")}
    answer = console.http.post("/console/data/erase/check", data={"csrf": console.csrf}, files=file)
    assert "it is not text" in answer.text
