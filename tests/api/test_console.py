"""The console without a browser: sessions, forged requests, headers, and the way for scripts to `/api/v1`."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from memos import __version__
from memos.api.console.view import csrf_token
from tests.api.conftest import Server


class SignedIn(NamedTuple):
    """Somebody's browser: its client, and the token that its forms carry."""

    http: TestClient
    csrf: str


@pytest.fixture
def ana(server: Server) -> SignedIn:
    http = TestClient(server.http.app, follow_redirects=False)
    answer = http.post("/console/sign-in", data={"key": server.ana})
    assert answer.status_code == 303
    return SignedIn(http, csrf_token(answer.cookies["memos_session"]))


def test_the_cookie_is_kept_from_scripts_and_other_sites(server: Server) -> None:
    http = TestClient(server.http.app, follow_redirects=False, base_url="https://memory.example")
    cookie = http.post("/console/sign-in", data={"key": server.ana}).headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=lax", "Secure", "Path=/console", "Max-Age=43200"):
        assert word in cookie


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}]
)
def test_another_site_changes_nothing(ana: SignedIn, server: Server, headers: dict[str, str]) -> None:
    told = {**headers, "x-csrf-token": ana.csrf}
    answer = ana.http.post("/console/api/memories", json={"messages": "I live in Rome."}, headers=told)
    assert answer.status_code == 403
    assert ana.http.post("/console/sign-in", data={"key": server.ben}, headers=headers).status_code == 401
    assert ana.http.post("/console/sign-out", headers=told).status_code == 403


def test_a_change_needs_the_token_of_its_session(ana: SignedIn) -> None:
    body = {"messages": "I live in Rome."}
    assert ana.http.post("/console/api/memories", json=body).status_code == 403
    wrong = {"x-csrf-token": csrf_token("another")}
    assert ana.http.post("/console/api/memories", json=body, headers=wrong).status_code == 403
    right = {"x-csrf-token": ana.csrf}
    assert ana.http.post("/console/api/memories", json=body, headers=right).status_code == 201


def test_scripts_have_the_rights_of_who_is_signed_in(ana: SignedIn, server: Server) -> None:
    stored = server.memos.add("Ben's door code is 4711.", cube="ben", actor="ben").item_ids[0]
    assert ana.http.get(f"/console/api/memories/{stored}").status_code == 404
    assert ana.http.get("/console/api/me").json()["identity"]["id"] == "ana"
    headers = {"authorization": f"Bearer {server.ben}"}
    assert ana.http.get("/console/api/me", headers=headers).json()["identity"]["id"] == "ana"
    assert "4711" not in ana.http.get("/console/ask?cube=ben&q=door").text


def test_answers_forbid_what_they_do_not_need(ana: SignedIn) -> None:
    page = ana.http.get("/console/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    data = ana.http.get("/console/api/me")
    assert "sandbox" in data.headers["content-security-policy"]
    assert data.headers["x-content-type-options"] == "nosniff"


def test_without_a_session_only_the_way_in_is_shown(server: Server) -> None:
    http = TestClient(server.http.app, follow_redirects=False)
    assert http.get("/console/").headers["location"] == "/console/sign-in?next=%2Fconsole%2F"
    assert http.get("/console/api/me").status_code == 401
    http.cookies.set("memos_session", "mss_wrong", path="/console")
    assert http.get("/console/").status_code == 303


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/console/../x//y", "/other"])
def test_signing_in_leads_nowhere_else(server: Server, target: str) -> None:
    http = TestClient(server.http.app, follow_redirects=False)
    answer = http.post("/console/sign-in", data={"key": server.ana, "next": target})
    assert answer.headers["location"] == "/console/"


def test_memory_text_is_text(ana: SignedIn, server: Server) -> None:
    server.memos.add("<img src=x onerror=alert(1)> is my **favourite** [tag](javascript:x)", cube="ana", actor="ana")
    page = ana.http.get("/console/?cube=ana").text
    assert "&lt;img src=x" in page
    assert "<img src=x" not in page


def test_a_session_is_listed_and_ended(ana: SignedIn, server: Server) -> None:
    mine = server.http.get("/api/v1/sessions", headers=server.headers("ana")).json()
    assert {each["identity"] for each in mine} == {"ana"}
    other = server.http.delete(f"/api/v1/sessions/{mine[0]['id']}", headers=server.headers("ben"))
    assert other.status_code == 404
    for each in mine:
        ended = server.http.delete(f"/api/v1/sessions/{each['id']}", headers=server.headers("ana"))
        assert ended.status_code == 204
    assert ana.http.get("/console/").status_code == 303


def test_failed_sessions_of_one_address_do_not_shut_others_out(server: Server) -> None:
    stranger = TestClient(server.http.app, follow_redirects=False, client=("203.0.113.9", 1))
    stranger.cookies.set("memos_session", "mss_guessed", path="/console")
    for _ in range(40):
        stranger.get("/console/")
    other = TestClient(server.http.app, follow_redirects=False, client=("198.51.100.7", 1))
    assert other.post("/console/sign-in", data={"key": server.ben}).status_code == 303
    assert other.get("/console/").status_code == 200


def test_browsers_are_led_to_the_console(server: Server) -> None:
    http = TestClient(server.http.app, follow_redirects=False)
    assert http.get("/console").headers["location"] == "/console/"
    assert http.get("/", headers={"accept": "text/html,*/*"}).headers["location"] == "/console/"


def test_other_programs_are_told_the_addresses_at_the_root(server: Server) -> None:
    told = TestClient(server.http.app).get("/", headers={"accept": "*/*"}).json()
    assert (told["name"], told["version"], told["api"]) == ("hippocube", __version__, "/api/v1")
    for link in ("console", "docs", "health"):
        assert server.http.get(told[link]).status_code == 200, link


def test_an_admins_key_without_the_right_own_lists_nobody_elses_sessions(server: Server, ana: SignedIn) -> None:
    weak = server.memos.keys.create("admin", "weak", rights=["read"]).secret
    path = "/api/v1/sessions"
    assert "ana" in {each["identity"] for each in server.http.get(path, headers=server.headers("admin")).json()}
    listed = server.http.get(path, headers={"Authorization": f"Bearer {weak}"}).json()
    assert {each["identity"] for each in listed} <= {"admin"}


def test_a_link_of_another_site_does_not_choose_the_cube(ana: SignedIn, server: Server) -> None:
    server.memos.cubes.create("shared", actor="ana")
    ana.http.get("/console/?cube=shared", headers={"sec-fetch-site": "cross-site"})
    assert "memos_cube" not in ana.http.cookies
    ana.http.get("/console/?cube=shared", headers={"sec-fetch-site": "same-origin"})
    assert "memos_cube" in ana.http.cookies


def test_buttons_follow_the_role_in_the_cube(ana: SignedIn, server: Server) -> None:
    server.memos.cubes.create("readable", actor="ben")
    item = server.memos.add("I keep bees.", cube="readable", actor="ben").item_ids[0]
    server.memos.sharing.grant("readable", "ana", "reader", actor="ben")
    me = "/console/api/me"
    assert set(ana.http.get(me).json()["rights"]) == {"read", "write", "own"}
    assert ana.http.get(me, params={"cube": "readable"}).json()["rights"] == ["read"]
    assert ana.http.get(me, params={"cube": "ben"}).status_code == 404
    page = f"/console/memories/{item}?cube=readable"
    assert "Forget" not in ana.http.get(page).text
    server.memos.sharing.grant("readable", "ana", "editor", actor="ben")
    assert ana.http.get(me, params={"cube": "readable"}).json()["rights"] == ["read", "write"]
    assert "Forget" in ana.http.get(page).text
