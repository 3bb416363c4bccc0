"""Pages of the console without scripts: standings, far dates, addresses after changes, keys that may only read."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from memos import MemOS
from memos.api.app import create_app
from memos.api.console.pages import PAGES
from memos.api.console.pages.memories_bulk import Changed, packed, unpacked
from memos.api.console.rest import part
from memos.core.settings import LimitSettings, Settings, UpkeepSettings
from memos.errors import InvalidInput
from tests.api.conftest import Console, Server
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder


def cube_of(server: Server, name: str, *texts: str, who: str = "ana") -> list[str]:
    """Make a cube with memories; return their ids."""
    server.memos.cubes.create(name, actor=who)
    said = [{"role": "user", "content": text} for text in texts]
    return list(server.memos.add(said, cube=name, actor=who, conversation="talk").item_ids) if said else []


# One standing everywhere


def test_a_memory_stands_the_same_on_every_page(server: Server, ana_at_console: Console) -> None:
    old, new, ended = cube_of(server, "standing", "Zed lives in Rome.", "Zed lives in Nice.", "Zed sails on Sundays.")
    console, memos = ana_at_console, server.memos
    memos.review.decide(new, old, holds=True, actor="ana")
    address = {"cube": "standing"}
    pages = {
        "start": console.get("/", **address),
        "table": console.get("/memories", **address),
        "memory": console.get(f"/memories/{old}"),
        "ask": console.get("/ask", **address, q="Where does Zed live?"),
        "person": console.get("/people/Zed", **address),
        "life": console.get("/timeline/life", **address, name="Zed"),
        "bulk": console.get("/memories/bulk", **address, what="forget", item=[old]),
    }
    for name, page in pages.items():
        assert page.count('standing-replaced">replaced</span>') == 1, name
    told = server.http.get(
        "/api/v1/memories/standings", params={**address, "id": [new, old, "none"]}, headers=server.headers("ana")
    )
    assert [(each["item"], each["standing"], each["replaced_by"]) for each in told.json()] == [
        (new, "current", None),
        (old, "replaced", new),
    ]
    memos.review.decide(new, old, holds=False, actor="ana")
    assert "standing-replaced" not in console.get("/memories", **address)
    memos.delete(ended, actor="ana")
    assert 'standing-deleted">forgotten</span>' in console.get("/", **address)
    assert 'standing-deleted">forgotten</span>' in console.get(f"/memories/{ended}")
    others = server.http.get(
        "/api/v1/memories/standings", params={**address, "id": [old]}, headers=server.headers("ben")
    )
    assert others.status_code == 404
    of_ben = server.memos.add("Ben's door.", cube="ben", actor="ben").item_ids[0]
    none = server.http.get("/api/v1/memories/standings", params={"id": [of_ben]}, headers=server.headers("ana"))
    assert none.json() == []


def test_a_fact_stands_as_the_message_that_it_is_the_whole_of(server: Server) -> None:
    old, new = cube_of(server, "whole", "I love anchovies on pizza.", "I can't stand anchovies on pizza.")
    memos = server.memos
    memos.tiers.analyse(cube="whole", actor="ana", everything=True)
    memos.tasks.wait(timeout_s=60)
    memos.review.decide(new, old, holds=True, actor="ana")
    facts = memos.memories.list(cube="whole", actor="ana", filter={"type": "preference"})
    told = {
        each.item: each for each in memos.browse.standings([old, *(f.id for f in facts)], cube="whole", actor="ana")
    }
    assert told[old].standing == "replaced"
    [fact] = [fact for fact in facts if fact.memory == "I love anchovies on pizza."]
    assert told[fact.id].standing == "replaced"


# Dates


FAR = ["9999-12-31", "0001-01-01", "nonsense", "2025-02-30", "99999-01-01", "-1", ""]


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/New_York"])
def test_no_date_breaks_the_timeline(server: Server, ana_at_console: Console, zone: str) -> None:
    cube = zone.partition("/")[2]
    server.memos.cubes.create(cube, actor="ana", time_zone=zone)
    for at in ("0001-01-01T00:00:00Z", "2025-01-01T10:00:00Z", "9999-12-31T23:59:59Z"):
        server.memos.add({"role": "user", "content": f"Said at {at}.", "chat_time": at}, cube=cube, actor="ana")
    for at in FAR:
        ana_at_console.get("/timeline", cube=cube, at=at)
        ana_at_console.get("/timeline", cube=cube, offset=at.removeprefix("-") or "999999")
        ana_at_console.get("/timeline/difference", cube=cube, since=at, until="2025-01-02")
        ana_at_console.get("/timeline/difference", cube=cube, since="2025-01-02", until=at)
        ana_at_console.get("/memories", cube=cube, since=at, until=at, month=at)
        ana_at_console.get("/ask", cube=cube, q="Said", as_of=at)
    assert "Said at 9999" in ana_at_console.get("/memories", cube=cube)


# After a change


def test_a_change_leads_to_an_address_that_says_what_was_done(server: Server) -> None:
    admin = Console(server.http, server.admin)
    assert "cleo was created." in admin.done("/access/create", id="cleo", kind="user")
    assert "cleo was created." not in admin.get("/access")
    assert "cleo is disabled." in admin.done("/access/enable", id="cleo", enabled="false")
    admin.done("/access/create", id="team", kind="group")
    assert "ana is in team." in admin.done("/access/group/join?id=team", member="ana")
    assert "ana is no longer in team." in admin.done("/access/group/leave?id=team", member="ana")
    refused = admin.post("/access/group/join?id=team", member="nobody")
    assert refused.status_code == 400
    assert "nobody" in refused.text
    ana = Console(server.http, server.ana)
    assert "The cube moved was created." in ana.done("/data/cubes/create?cube=ana", id="moved")
    added = ana.done("/data/retention/add?cube=moved", action="archive", age_days="9", tags="old")
    assert "The rule was added" in added
    [rule] = re.findall(r'name="rule" value="([^"]+)"', added)
    assert "Applied: 0 memories." in ana.done("/data/retention/run?cube=moved")
    assert "The rule was removed" in ana.done("/data/retention/remove?cube=moved", rule=rule)
    server.memos.add("Here.", cube="moved", actor="ana")
    assert "ben is now reader of moved." in ana.done(
        "/access/sharing/change", shared="moved", identity="ben", role="reader"
    )
    Console(server.http, server.ben)
    newest = server.http.get("/api/v1/sessions", headers=server.headers("ben")).json()[0]["id"]
    ben = Console(server.http, server.ben)
    assert "The session has ended." in ben.done("/access/sessions/end", session=newest)


def test_a_notice_is_only_what_the_session_said(server: Server, ana_at_console: Console) -> None:
    ana_at_console.http.cookies.set("memos_notice", "0" * 32 + ":Send your key to evil.example", path="/console")
    assert "evil.example" not in ana_at_console.get("/")


def test_the_address_of_a_form_leads_to_its_page(server: Server, ana_at_console: Console) -> None:
    item = cube_of(server, "forms", "A memory.")[0]
    shown = {page.path for page in PAGES if page.method == "GET"}
    paths = {page.path for page in PAGES} - shown
    assert len(paths) > 30
    for path in paths:
        answer = ana_at_console.http.get(f"/console{path.format(item=item, file='x', receipt='x')}?cube=forms")
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/console/"), path
        assert answer.headers["location"].endswith("?cube=forms"), path
        assert ana_at_console.http.get(answer.headers["location"]).status_code in (200, 403, 404), path


def test_forgetting_what_was_learned_and_erasing_lead_to_pages(server: Server, ana_at_console: Console) -> None:
    console = ana_at_console
    item = cube_of(server, "gone", "Xaver keeps bees.", "Xaver sings.", "Rain.")[0]
    done = console.done("/models/forget?cube=gone", item=item)
    assert "1 memory is not learned any more." in done
    assert "to be learned again" in done
    assert console.post("/models/forget?cube=gone&q=bees").status_code == 400
    assert "They may be learned again." in console.done("/models/allow?cube=gone", item=item)
    preview = console.get("/data/erase", cube="gone", what="person", name="Xaver")
    [expected] = re.findall(r'name="expected" value="(\d+)"', preview)
    assert "not the name above" in console.post("/data/erase/run?cube=gone&what=person&name=Xaver").text
    path = "/data/erase/run?cube=gone&what=person&name=Xaver"
    assert "Receipt of an erasure" in console.done(path, confirmed="Xaver", expected=expected)
    answer = console.post("/data/erase/run?cube=gone&what=cube", confirmed="gone")
    receipt = answer.headers["location"]
    assert receipt.startswith("/console/erasures/")
    # Who erased the cube sees the receipt, though nobody may read the cube any more.
    assert "Receipt of an erasure" in console.http.get(receipt).text
    assert Console(server.http, server.ben).http.get(receipt).status_code == 404


def test_names_that_no_address_can_have_are_refused(server: Server) -> None:
    for name in (".", ".."):
        with pytest.raises(InvalidInput, match="address"):
            server.memos.cubes.create(name, actor="ana")
        with pytest.raises(InvalidInput, match="address"):
            server.memos.users.create(name)
    assert (part("."), part(".."), part("a/.."), part("...")) == ("%2E", "%2E%2E", "a%2F..", "...")
    console = Console(server.http, server.ana)
    for path in ("/memories/%2E%2E", "/documents/%2E%2E", "/erasures/%2E"):
        assert console.http.get(f"/console{path}").status_code == 404


# Bulk


def test_a_bulk_action_has_addresses_and_is_undone_unless_it_changed_again(
    server: Server, ana_at_console: Console
) -> None:
    console = ana_at_console
    ids = cube_of(server, "bulk", *(f"Line {number} about newts." for number in range(4)))
    preview = console.get("/memories/bulk", cube="bulk", what="forget", all="1", q="newts")
    assert "Forget: 4 memories" in preview
    one = console.get("/memories/bulk", cube="bulk", what="forget", item=ids[:2])
    assert "Forget: 2 memories" in one
    answer = console.post("/memories/apply?cube=bulk", what="forget", ids=" ".join(ids[:2]), q="newts")
    done = answer.headers["location"]
    assert "q=newts" in done
    for _ in range(2):  # by reload, too
        page = console.http.get(done).text
        assert "Forgotten: 2 memories." in page
        assert page.count('standing-deleted">forgotten</span>') == 2
    [changed] = re.findall(r'name="changed" value="([^"]+)"', page)
    server.memos.memories.rollback(ids[0], actor="ana")
    server.memos.update(ids[0], "Line 0 about frogs.", actor="ana")
    undone = console.done("/memories/apply?cube=bulk", what="restore", changed=changed)
    assert "Restored: 1 memory." in undone
    assert "1 memory changed again since then" in unescape(undone)
    assert server.memos.get(ids[0]).memory == "Line 0 about frogs."
    assert server.memos.get(ids[1]).status == "active"
    assert "Unpinned: 1 memory." in console.done("/memories/apply?cube=bulk", what="unpin", ids=ids[0])
    for query in ({"what": "forget"}, {"what": "nothing", "item": ids}, {"what": "tag", "item": ids}):
        assert 'class="problem"' in console.get("/memories/bulk", cube="bulk", **query)
    assert console.post("/memories/apply?cube=bulk", what="nothing").status_code == 400
    exported = console.http.get("/console/memories/bulk", params={"cube": "bulk", "what": "export", "item": ids})
    assert {each["id"] for each in exported.json()["memories"]} == set(ids)
    assert Console(server.http, server.ben).http.get(done).status_code == 404


def test_memories_of_an_address_are_what_was_packed() -> None:
    ids = [Changed(f"01a22868-68d4-7613-8f4e-cd654f749e{number:02x}", number) for number in range(3)]
    assert unpacked(packed(ids)) == ids
    for strange in ("", "x", "!!", "AAAA", packed(ids)[:-3], "A" * 10_000):
        assert unpacked(strange) == [] or len(unpacked(strange)) <= 500


# Keys that may only read


GUIDANCE = re.compile(
    r"Add something|Add a memory|Add a file|Remember</button>|Correct</summary>|Forget</button>|“Read now”|Add a manual"
    r"|Create one above|Add a rule|Import</button>|New cube|New key|Approve|Edit</summary>|Merge</button>|Restore"
    r"|Allow learning|name=\"store\"|Add a conversation|or add it|Load a cube file|Erase for good</button>"
)


@pytest.mark.parametrize("filled", [True, False])
def test_a_reader_is_not_told_to_do_what_it_cannot(server: Server, filled: bool) -> None:
    cube = f"read-{filled}"
    texts = ("Yara keeps bees.", "Yara sails with Zoe.") if filled else ()
    ids = cube_of(server, cube, *texts)
    if filled:
        server.memos.update(ids[1], status="pending", actor="ana")
    server.memos.sharing.grant(cube, "ben", "reader", actor="ana")
    key = server.memos.keys.create("ben", "reader", rights=["read"]).secret
    reader = Console(server.http, key)
    paths = [page.path for page in PAGES if page.method == "GET" and "{" not in page.path]
    if filled:
        paths += [f"/memories/{ids[0]}", "/people/Yara", "/ask?q=Yara", "/ask?q=Yara&why=x", "/chat?q=bees"]
    skipped = ("/tiers/topic", "/ask/around", "/documents/row", "/people/trait", "/review/similar", "/access/group")
    for path in paths:
        if path in (*skipped, "/health/doctor", "/chat/recalled", "/memories/bulk"):
            continue
        answer = reader.http.get(f"/console{path}", params={"cube": cube}, follow_redirects=True)
        assert answer.status_code == 200, path
        assert GUIDANCE.findall(answer.text) == [], path
    owner = Console(server.http, server.ana)
    assert GUIDANCE.search(owner.get("/", cube=cube))


# Sessions that end


def test_what_was_typed_is_kept_until_somebody_signs_in_again(server: Server) -> None:
    item = cube_of(server, "kept", "A long note.")[0]
    console = Console(server.http, server.ana)
    typed = {"memory": "A long <b>note</b> & more.\nSecond line.", "tags": "", "reason": "", "expected_version": "1"}
    path = f"/console/memories/{item}/edit?cube=kept"
    own = {"sec-fetch-site": "same-origin"}
    console.post("/sign-out")
    console.http.cookies.set("memos_session", "mss_ended", path="/console")
    answer = console.http.post(path, data={"csrf": console.csrf, **typed}, headers=own)
    assert answer.status_code == 401
    assert "what you typed is kept" in answer.text
    [kept] = re.findall(r'name="kept" value="([^"]*)"', answer.text)
    wrong = console.http.post("/console/sign-in", data={"key": "mst_wrong", "kept": unescape(kept)}, headers=own)
    assert wrong.status_code == 401
    assert kept in wrong.text
    resumed = console.http.post("/console/sign-in", data={"key": server.ana, "kept": unescape(kept)}, headers=own)
    assert resumed.status_code == 200
    assert server.memos.get(item).memory == "A long note."
    assert "<b>note" not in resumed.text
    fields = {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', resumed.text)}
    assert fields["memory"] == typed["memory"]
    [action] = re.findall(r'action="([^"]+)"', resumed.text)
    assert console.http.post(unescape(action), data=fields, headers=own).status_code == 303
    assert server.memos.get(item).memory == typed["memory"]


def test_a_form_of_an_earlier_session_is_asked_about_and_one_of_another_site_is_not(server: Server) -> None:
    console = Console(server.http, server.ana)
    data = {"csrf": "0" * 64, "text": "I keep newts in the cellar."}
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {}):
        assert console.http.post("/console/add?cube=ana", data=data, headers=headers).status_code == 403
    own = {"origin": "http://testserver"}
    page = console.http.post("/console/add?cube=ana", data=data, headers=own)
    assert page.status_code == 200
    assert "nothing has been done yet" in page.text
    assert "I keep newts in the cellar." in page.text
    script = console.http.post("/console/ask/correct", data=data, headers={**own, "hx-request": "true"})
    assert (script.status_code, script.headers["x-console-stale"]) == (403, "1")
    told = console.http.get("/console/token").json()
    assert told == {"csrf": console.csrf, "identity": "ana"}
    console.http.cookies.clear()
    assert console.http.get("/console/token").status_code == 401
    ended = console.http.post("/console/ask/correct", data=data, headers={**own, "hx-request": "true"})
    assert ended.status_code == 401
    assert "Sign in again" in ended.text


@pytest.mark.parametrize(
    "kept", ["x", "[]", '["/a"]', '["//evil.example", []]', '["\\\\evil", []]', '["/a", [["b"]]]', "[" * 5_000, "{}"]
)
def test_a_kept_form_that_no_page_made_is_refused(server: Server, kept: str) -> None:
    http = TestClient(server.http.app, follow_redirects=False, raise_server_exceptions=False)
    answer = http.post("/console/sign-in", data={"key": server.ana, "kept": kept})
    assert answer.status_code in (400, 503)
    assert "set-cookie" not in answer.headers


def test_what_is_too_long_or_a_file_is_not_kept(server: Server) -> None:
    http = TestClient(server.http.app, follow_redirects=False)
    own: dict[str, Any] = {"headers": {"sec-fetch-site": "same-origin"}}
    long = http.post("/console/add", data={"text": "x" * 70_000}, **own)
    assert (long.status_code, long.headers["location"]) == (303, "/console/sign-in")
    file = http.post("/console/documents/upload", files={"file": ("a.txt", b"a")}, **own)
    assert (file.status_code, file.headers["location"]) == (303, "/console/sign-in")


# Review


def waiting(server: Server, cube: str, text: str) -> str:
    item = server.memos.add(text, cube=cube, actor="ana").item_ids[0]
    server.memos.update(item, status="pending", reason="the source is not trusted", actor="ana")
    return item


def test_what_another_reviewer_decided_is_told(server: Server, ana_at_console: Console) -> None:
    cube_of(server, "shared-review")
    server.memos.sharing.grant("shared-review", "ben", "editor", actor="ana")
    item = waiting(server, "shared-review", "The safe is open.")
    server.memos.review.approve(item, actor="ben")
    for action in ("approve", "edit", "reject"):
        fields = {"item": item, "version": "2", "text": "The safe is shut."}
        assert "ben approved it meanwhile" in ana_at_console.done(f"/review/{action}?cube=shared-review", **fields)
    assert server.memos.get(item).memory == "The safe is open."
    changed = waiting(server, "shared-review", "The door is open.")
    server.memos.update(changed, "The door is shut.", actor="ben")
    page = ana_at_console.done("/review/approve?cube=shared-review", item=changed, version="2")
    assert "It was changed meanwhile" in page
    assert "The door is shut." in page
    older, newer = server.memos.add(
        ["The rent is 900 euros.", "The rent is 980 euros."], cube="shared-review", actor="ana"
    ).item_ids
    server.memos.review.decide(newer, older, holds=True, actor="ana")
    server.memos.review.reopen(newer, older, actor="ana")
    server.memos.review.decide(newer, older, holds=False, actor="ben")
    told = ana_at_console.done("/review/decide?cube=shared-review", newer=newer, older=older, holds="yes")
    assert "ben decided meanwhile: both hold." in told
    [relation] = server.memos.memories.relations(newer, actor="ana")
    assert relation.confidence == 0
    gone = ana_at_console.done("/review/merge?cube=shared-review", item=newer, version="1", into=older, correction="1")
    assert "ben decided meanwhile" in gone


def test_an_undo_keeps_the_reason(server: Server, ana_at_console: Console) -> None:
    cube_of(server, "reasons")
    item = waiting(server, "reasons", "The lamp is lit.")
    page = ana_at_console.get("/review", cube="reasons")
    assert "Waits because: the source is not trusted" in page
    done = ana_at_console.done("/review/reject?cube=reasons", item=item, version="2", why="the source is not trusted")
    undo = dict(re.findall(r'name="(rollback|why)" value="([^"]*)"', done))
    back = ana_at_console.done("/review/undo?cube=reasons", **undo)
    assert "Waits because: the source is not trusted" in back
    [waits] = server.memos.review.list(cube="reasons", actor="ana")
    assert waits.why == "the source is not trusted"
    assert "It was changed again since" in ana_at_console.done("/review/undo?cube=reasons", **undo)


# Backups


def test_an_admin_backs_up_everything_from_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    settings = Settings(limits=LimitSettings(min_free_bytes=1_000_000), upkeep=UpkeepSettings(backup_folder=folder))
    with (
        MemOS.open(tmp_path / "home", settings=settings, embedder=WordEmbedder()) as memos,
        TestClient(create_app(memos), raise_server_exceptions=False) as http,
    ):
        admin, ana, _ = keys_of(memos)
        memos.add("I live in Porto.")
        console = Console(http, admin)
        assert str(folder) in console.get("/data/backups")
        console.done("/data/backups/create")
        memos.tasks.wait(timeout_s=60)
        page = console.get("/data/backups")
        [made] = [each for each in memos.maintenance.backups() if "/manual-" in each.folder]
        assert made.folder in unescape(page)
        assert ">complete<" in page
        assert str(folder) not in Console(http, ana).get("/data/backups")


# Keys and people


def test_keys_are_rotated_and_limited_and_who_leaves_has_no_access(server: Server) -> None:
    memos = server.memos
    memos.users.create("dora")
    memos.cubes.create("doras plans", actor="dora")
    memos.audit.record_reads()
    admin = Console(server.http, server.admin)
    made = admin.post(
        "/access/keys/create?identity=dora", owner="dora", name="ci", rights="read", cubes="doras plans\r\n"
    ).text
    secret = re.search(r'class="secret" readonly value="(mst_[\w-]+)"', made)
    assert secret is not None
    key = memos.keys.authenticate(secret[1]).key
    assert (key.cubes, key.rights) == (("doras plans",), ("read",))
    assert "in doras plans" in made
    rotated = admin.post("/access/keys/rotate", key=key.id).text
    new = re.search(r'class="secret" readonly value="(mst_[\w-]+)"', rotated)
    assert new is not None
    assert memos.keys.get(key.id).replaced_by == memos.keys.authenticate(new[1]).key.id
    assert "rotated already" in admin.post("/access/keys/rotate", key=key.id).text
    dora = Console(server.http, memos.keys.create("dora", "browser").secret)
    assert "doras plans" in dora.get("/memories", cube="doras plans")
    assert "read" in admin.get("/access/audit", area="read")
    assert "is your own" in admin.post("/access/offboard", id="admin").text
    left = admin.done("/access/offboard", id="dora", transfer_to="ben")
    assert "dora has left: 3 keys, 1 sessions" in left
    assert memos.cubes.get("doras plans", actor="ben").owner == "ben"
    assert dora.http.get("/console/memories").status_code == 303
    memos.audit.record_reads(enabled=False)
