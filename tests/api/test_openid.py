"""Signing in with OpenID Connect: a provider on loopback names a user, who must be there; nothing forged gets in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from joserfc.jwk import OctKey, RSAKey
from pydantic import SecretStr, ValidationError
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.core.settings import IndexSettings, LimitSettings, OidcSettings
from tests.api.keys import keys_of
from tests.fakes import WordEmbedder
from tests.support.openid_provider import Provider, provider

HERE = "http://testserver"


class Site(NamedTuple):
    """An installation with users `ana` and `ben`, and its identity provider."""

    memos: MemOS
    app: Any
    provider: Provider

    def browser(self) -> TestClient:
        return TestClient(self.app, follow_redirects=False)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with provider() as made:
        oidc = OidcSettings(issuer=made.url, client_id="console", client_secret=SecretStr("s3cret"))
        settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000), oidc=oidc)
        home: Path = tmp_path_factory.mktemp("openid")
        with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
            keys_of(memos)
            memos.users.create("gone")
            memos.users.enable("gone", enabled=False)
            memos.users.create("team", kind="group")
            yield Site(memos, create_app(memos), made)


@pytest.fixture
def site(running: Site) -> Site:
    made = running.provider
    made.claims, made.subject, made.key = {}, "ana", made.own_key
    made.header = {"alg": "RS256", "kid": made.own_key.kid}
    return running


def sign_in(site: Site, http: TestClient | None = None, **query: str) -> httpx2.Response:
    """Walk the whole way; return the answer to what the provider sends the browser back to."""
    http = http or site.browser()
    left = http.get("/console/sign-in/openid", params=query)
    assert left.status_code == 303, left.text
    back = httpx2.get(left.headers["location"], follow_redirects=False).headers["location"]
    assert back.startswith(f"{HERE}/console/sign-in/openid/return?")
    return http.get(back.removeprefix(HERE))


def test_whom_the_provider_names_is_signed_in_with_their_own_rights(site: Site) -> None:
    http = site.browser()
    assert "Sign in with your organisation" in http.get("/console/sign-in").text
    answer = sign_in(site, http, next="/console/ask?q=Where")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/ask?q=Where")
    me = http.get("/console/api/me").json()
    assert (me["identity"]["id"], me["identity"]["admin"]) == ("ana", False)
    assert http.get("/console/api/users").status_code == 403
    [key] = [key for key in site.memos.keys.list("ana") if key.name == "OpenID Connect"]
    site.memos.keys.revoke(key.id)
    assert http.get("/console/api/me").status_code == 401


def test_the_provider_is_asked_with_pkce_state_and_nonce(site: Site) -> None:
    sign_in(site)
    asked = site.provider.asked[-1]
    assert (asked["response_type"], asked["code_challenge_method"], asked["scope"]) == ("code", "S256", "openid email")
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert "s3cret" not in str(asked)


@pytest.mark.parametrize("subject", ["nobody", "gone", "team", "owner", ""])
def test_only_users_who_are_there_and_enabled_get_in(site: Site, subject: str) -> None:
    site.provider.subject = subject
    http = site.browser()
    assert sign_in(site, http).status_code == 401
    assert http.get("/console/api/me").status_code == 401
    assert {each.id for each in site.memos.users.list()} == {"admin", "ana", "ben", "gone", "team"}


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"}, {"nonce": None}, {"iss": "https://evil.example"}, {"aud": "another"},
        {"exp": int(time.time()) - 3600}, {"iat": None}, {"azp": "another"}, {"at_hash": "wrong"},
    ],
)  # fmt: skip
def test_tokens_for_others_old_or_replayed_ones_are_refused(site: Site, claims: dict[str, Any]) -> None:
    site.provider.claims = claims
    http = site.browser()
    assert sign_in(site, http).status_code == 401
    assert "memos_session" not in http.cookies


def test_tokens_that_the_provider_did_not_sign_are_refused(site: Site) -> None:
    site.provider.key = RSAKey.generate_key(2048, {"kid": "1"})
    assert sign_in(site).status_code == 401
    site.provider.key, site.provider.header = OctKey.import_key("s3cret" * 8), {"alg": "HS256"}
    assert sign_in(site).status_code == 401


def test_new_keys_of_the_provider_are_looked_up(site: Site) -> None:
    assert sign_in(site).status_code == 303
    site.provider.own_key = site.provider.key = RSAKey.generate_key(2048, {"kid": "2"})
    site.provider.header = {"alg": "RS256", "kid": "2"}
    assert sign_in(site).status_code == 303


def test_an_answer_that_was_not_asked_for_here_is_refused(site: Site) -> None:
    mine, other = site.browser(), site.browser()
    back = httpx2.get(mine.get("/console/sign-in/openid").headers["location"], follow_redirects=False)
    path = back.headers["location"].removeprefix(HERE)
    assert other.get(path).status_code == 401  # a browser that did not leave from here
    other.get("/console/sign-in/openid")
    assert other.get(path).status_code == 401  # or left for another sign-in
    assert mine.get(path).status_code == 303
    assert mine.get(path).status_code == 401  # a code works once, and its cookie is gone


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/other"])
def test_it_leads_nowhere_else(site: Site, target: str) -> None:
    assert sign_in(site, next=target).headers["location"] == "/console/"


def test_an_issuer_must_be_safe() -> None:
    for wrong in ("http://login.example.org", "ftp://x", "login"):
        with pytest.raises(ValidationError, match="https"):
            OidcSettings(issuer=wrong)


@pytest.mark.parametrize(("verified", "status"), [(True, 303), (False, 401), (None, 401)])
def test_a_verified_address_is_the_id_of_a_user(site: Site, verified: bool | None, status: int) -> None:
    site.provider.subject = "not-here"
    site.provider.claims = {"email": "ana", "email_verified": verified}
    assert sign_in(site).status_code == status
