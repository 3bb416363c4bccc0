"""A small OpenID Connect provider on loopback: discovery, keys, sign-in without a question, and tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey


class Provider:
    """A provider; `claims` replaces claims of its next id tokens, `key` and `header` how they are signed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.own_key = RSAKey.generate_key(2048, {"kid": "1"})
        self.key: RSAKey | OctKey = self.own_key
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "1"}
        self.claims: dict[str, Any] = {}
        self.subject = "ana"
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[dict[str, str]] = []

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Return the address to go back to, with a code."""
        self.asked.append(query)
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return query["redirect_uri"] + "?" + urlencode({"code": code, "state": query["state"]})

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return tokens for a code that was not used yet, if its verifier fits the challenge."""
        query = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if query is None or query["code_challenge"] != challenge or query["code_challenge_method"] != "S256":
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": self.subject, "aud": query["client_id"], "exp": now + 300, "iat": now,
            "nonce": query["nonce"], **self.claims,
        }  # fmt: skip
        told = {name: value for name, value in claims.items() if value is not None}
        algorithms = [self.header["alg"]]
        return 200, {
            "access_token": "at",
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": jwt.encode(self.header, told, self.key, algorithms=algorithms),
        }


@contextmanager
def provider() -> Iterator[Provider]:
    """Run a provider on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/.well-known/openid-configuration":
                self._answer(200, made.metadata())
            elif parts.path == "/keys":
                self._answer(200, {"keys": [made.own_key.as_dict(private=False, use="sig", alg="RS256")]})
            else:
                self.send_response(302)
                self.send_header("Location", made.authorize(_flat(parts.query)))
                self.end_headers()

        def do_POST(self) -> None:
            self._answer(*made.token(_flat(self.rfile.read(int(self.headers["Content-Length"])).decode())))

        def _answer(self, status: int, told: dict[str, Any]) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _flat(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}
