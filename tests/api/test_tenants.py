"""Every route, with the keys of two tenants: nothing of one's is ever seen, or changed, by the other.

A new route is walked by itself. When it takes a parameter that is not in `VALUES`, the test fails and says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from memos import MemOS
from tests.api.conftest import Server
from tests.api.walking import Found, every_route

VICTIM, OTHER, NOBODY = "quokka", "numbat", "bilby-x"
TALK = "what the quokka said"
WORD = "xylophonist"
MADE_UP = "01900000-0000-7000-8000-00000000000"


@dataclass(frozen=True)
class Things:
    """What a tenant has: values of parameters by their name."""

    name: str
    item: str
    file: str
    image: str
    task: str
    key: str
    receipt: str
    rule: str
    segment: str
    conversation: str

    @property
    def secrets(self) -> set[str]:
        """Return what nobody else may ever read."""
        return {
            WORD,
            self.name,
            *(getattr(self, n) for n in ("item", "file", "image", "task", "key", "receipt", "rule")),
        }


# What each parameter is when a request is about somebody's things. Parameters that name nothing of anybody are below.
VALUES: dict[str, Callable[[Things], Any]] = {
    "user": lambda t: t.name, "user_id": lambda t: t.name, "identity": lambda t: t.name, "id": lambda t: t.name,
    "group": lambda t: t.name, "member": lambda t: t.name, "acts_for": lambda t: t.name, "speaker": lambda t: t.name,
    "cube": lambda t: t.name, "cubes": lambda t: [t.name], "subject": lambda t: t.name,
    "item": lambda t: t.item, "item_ids": lambda t: [t.item], "receipt": lambda t: t.receipt, "task": lambda t: t.task,
    "key": lambda t: t.key, "file": lambda t: t.file, "rule": lambda t: t.rule, "segment": lambda t: t.segment,
    "conversation": lambda t: t.conversation,
    "filter": lambda t: json.dumps({"id": t.item}),
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "messages": "hello", "query": WORD[:4], "text": "no, it is another", "content": base64.b64encode(b"# a").decode(),
    "name": "get_weather", "role": "reader", "to_version": 1, "version": 1, "tier": "long", "enabled": False,
    "dimension": "work.occupation", "value": "x", "since": "2020-01-01", "action": "erase", "yes": True,
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "template": {"name": "t", "groups": [{"id": "g", "name": "G", "dimensions": [
        {"id": "g.a", "name": "A", "about": "a thing"}]}]},
    "timeout_s": 0, "wait": True,
}  # fmt: skip
# Parameters that are left out: a request is about the same things without them.
LEFT_OUT = {
    "tags", "info", "mode", "limit", "offset", "after", "kind", "kinds", "state", "states", "reason",
    "expected_version",
    "memory", "confidence", "type", "status", "valid_from", "valid_to", "top_k", "as_of", "reference_time",
    "token_budget", "explain", "max_tokens", "confirmed", "chat_time", "everything", "description", "redact_pii",
    "time_zone", "repair", "admin", "rights", "expires_at", "arguments", "until", "types", "statuses", "age_days",
    "vectors", "merge", "trust", "restore_erased",
}  # fmt: skip
# Routes that no document tells of, and why nothing of a tenant can be in them.
UNTOLD = {"GET /api/v1/openapi.json": "the document itself, of no installation"}
# Whose answers depend on whether a name is taken, as names of cubes and users are everybody's.
TAKES_NAMES = {"POST /api/v1/cubes", "POST /api/v1/knowledge-bases"}


@pytest.fixture(scope="module")
def tenants(server: Server) -> Iterator[tuple[Things, dict[str, str], dict[str, str]]]:
    """Give the victim one of everything; return that, and the headers of the other and of the victim."""
    memos = server.memos
    keys = {}
    for user in (VICTIM, OTHER):
        memos.users.create(user)
        keys[user] = {"Authorization": f"Bearer {memos.keys.create(user, 'test').secret}"}
    yield _possessions(memos), keys[OTHER], keys[VICTIM]


def _possessions(memos: MemOS) -> Things:
    mine = {"cube": VICTIM, "actor": VICTIM}
    picture = base64.b64encode(_png()).decode()
    parts = [
        {"type": "text", "text": f"the {WORD} hums"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
    ]
    seen = memos.add([{"role": "user", "content": parts}], conversation=TALK, **mine).item_ids[0]
    gone = memos.add(f"a {WORD} too many", **mine).item_ids[0]
    item = memos.add(f"My brother is a {WORD}", **mine).item_ids[0]
    file = memos.documents.add((f"{WORD}.md", f"# About the {WORD}".encode()), **mine)
    memos.documents.wait(file.id, 60)
    return Things(
        name=VICTIM, item=item, file=file.id, image=memos.images.of(seen)[0].id,
        task=memos.tasks.list(cubes=[VICTIM])[0].id, key=memos.keys.list(VICTIM)[0].id,
        receipt=memos.erase(gone, **mine).id, rule=memos.retention.add(action="archive", tags=["old"], **mine).id,
        segment=item, conversation=TALK,
    )  # fmt: skip


def _png() -> bytes:
    from io import BytesIO  # noqa: PLC0415

    from PIL import Image  # noqa: PLC0415

    file = BytesIO()
    Image.new("RGB", (3, 3)).save(file, "PNG")
    return file.getvalue()


NOTHING = Things(NOBODY, *(f"{MADE_UP}{place}" for place in range(8)), "talk of nothing at all")


def _value(name: str, found: Found, things: Things) -> Any:
    if name == "file" and "/images/" in found.path:
        return things.image
    if name == "key" and "keys" not in found.path:
        return None  # what a memory says something about
    if name == "name" and "{name}" not in found.path and found.path.endswith("/documents"):
        return "a.md"
    if name == "filter" and found.method != "GET":
        return {"id": things.item}
    value = VALUES[name](things) if name in VALUES else PLAIN[name]
    many = found.method == "GET" and name == "cube" and found.path.endswith(("/tasks", "/counts", "/overview"))
    return [value] if many else value


def _send(server: Server, found: Found, things: Things, key: dict[str, str], without: set[str]) -> httpx2.Response:
    """Send a request about somebody's things, leaving some parameters out."""
    path = found.path
    for name in found.in_path:
        path = path.replace("{" + name + "}", quote(str(_value(name, found, things)), safe=""))
    query = {name: _value(name, found, things) for name in sorted(found.query - without - LEFT_OUT)}
    body = {
        name: value
        for name, required in found.body.items()
        if required or name not in without | LEFT_OUT
        if (value := _value(name, found, things)) is not None
    }
    if found.media == "multipart/form-data":
        files = {"file": ("a.md", b"# a file")}
        body.pop("file")
        return server.http.request(found.method, path, params=query, headers=key, data=body, files=files)
    return server.http.request(found.method, path, params=query, headers=key, json=body if found.media else None)


def _routes(server: Server) -> list[Found]:
    return list(every_route(server.http.app))


def test_every_parameter_of_every_route_has_a_value(server: Server) -> None:
    for found in _routes(server):
        if not found.told:
            assert str(found) in UNTOLD, f"{found} is told by no document: say in UNTOLD why nothing can leak there"
            continue
        names = found.in_path | found.query | set(found.body)
        unknown = names - set(VALUES) - set(PLAIN) - LEFT_OUT
        assert not unknown, f"{found}: add values for {unknown} to VALUES, PLAIN or LEFT_OUT"


def test_nobody_sees_or_changes_what_is_anothers(
    server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]
) -> None:
    things, other, _ = tenants
    before = _state(server.memos)
    walked, wrong = 0, []
    for found in _routes(server):
        if not found.told:
            continue
        for without in (set[str](), {"user"}, {"user", "cube", "cubes"}, {"user", "cube", "cubes", "identity"}):
            answer = _send(server, found, things, other, without)
            if answer.status_code >= 500 or _told(answer, things):
                wrong.append(f"{found}: {answer.status_code} {answer.text}")
            walked += 1
            if str(found) in TAKES_NAMES:
                continue
            # What is another's is answered as what is nowhere.
            nowhere = _send(server, found, NOTHING, other, without)
            if answer.status_code != nowhere.status_code or (
                answer.status_code >= 400 and answer.text != _as_if(nowhere, things)
            ):
                wrong.append(f"{found} tells what is there: {answer.text} and not {nowhere.text}")
    assert not wrong, "\n".join(wrong)
    assert walked > 300
    assert _state(server.memos) == before


def test_the_walk_reaches_the_victims_things_with_the_victims_key(
    server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]
) -> None:
    things, _, victim = tenants
    reached = 0
    for found in _routes(server):
        if found.told and found.method == "GET" and (found.in_path or "cube" in found.query):
            answer = _send(server, found, things, victim, {"user"})
            reached += answer.status_code == 200
    assert reached > 35  # so that a refusal in the other walk is one for the key, not for a wrong request


def _told(answer: httpx2.Response, things: Things) -> set[str]:
    """Return what an answer tells of somebody that the request did not say itself."""
    sent = f"{answer.request.url}\n{answer.request.content.decode('utf-8', 'replace')}"
    return {secret for secret in things.secrets if secret not in sent and secret in answer.text}


def _as_if(nowhere: httpx2.Response, things: Things) -> str:
    """Return an answer about made-up things as it would be about somebody's."""
    text = nowhere.text
    for name in Things.__dataclass_fields__:
        text = text.replace(getattr(NOTHING, name), getattr(things, name))
    return text


def _state(memos: MemOS) -> list[Any]:
    """Return all of the victim's that a request could change."""
    return [
        memos.list(cube=VICTIM), memos.events.head(VICTIM), memos.cubes.get(VICTIM), memos.keys.list(VICTIM),
        memos.users.get(VICTIM), memos.sharing.grants(VICTIM), memos.documents.list(cube=VICTIM),
        memos.retention.list(cube=VICTIM), [task.id for task in memos.tasks.list(cubes=[VICTIM])],
    ]  # fmt: skip


def test_counts_are_of_ones_own(server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]) -> None:
    _, other, _ = tenants
    server.memos.tasks.wait(timeout_s=60)
    counted = server.http.get("/api/v1/tasks/counts", headers=other).json()
    cubes = [cube.id for cube in server.memos.cubes.list(actor=OTHER)]
    assert counted == {str(state): count for state, count in server.memos.tasks.counts(cubes=cubes).items()}
    assert sum(counted.values()) < sum(server.memos.tasks.counts().values())
    shown = server.http.get("/api/v1/overview", headers=other).json()
    assert {cube["cube"] for cube in shown["cubes"]} <= set(cubes)
    assert shown["more_cubes"] == 0
