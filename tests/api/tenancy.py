"""Requests of every route about the things of one of two tenants, and what an answer tells of them.

When a route takes a parameter that is not in `VALUES`, `test_tenants.py` fails and says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import httpx2

from memos import MemOS
from memos.memcube.parametric.forgetting import FOLDER
from tests.api.conftest import Server
from tests.api.walking import Found
from tests.support.adapters import active, with_card, with_files

VICTIM, OTHER, NOBODY = "quokka", "numbat", "bilby-x"
TALK, BASE = "what they said", "bandicoot-books"
WORD = "xylophonist"
MADE_UP = "01900000-0000-7000-8000-00000000000"


@dataclass(frozen=True)
class Things:
    """What a tenant has: values of parameters by their name."""

    name: str
    item: str
    file: str
    image: str
    seen: str
    task: str
    key: str
    receipt: str
    rule: str
    segment: str
    base: str
    adapter: str
    conversation: str
    session: str
    response: str
    record: str

    @property
    def secrets(self) -> set[str]:
        """Return what nobody else may ever read."""
        names = ("item", "file", "image", "seen", "task", "key", "receipt", "rule", "base", "adapter", "session")
        return {WORD, self.name, *(getattr(self, name) for name in names)}


# What each parameter is when a request is about somebody's things. Parameters that name nothing of anybody are below.
VALUES: dict[str, Callable[[Things], Any]] = {
    "user": lambda t: t.name, "user_id": lambda t: t.name, "identity": lambda t: t.name, "id": lambda t: t.name,
    "group": lambda t: t.name, "member": lambda t: t.name, "acts_for": lambda t: t.name, "owner": lambda t: t.name,
    "speaker": lambda t: t.name,
    "cube": lambda t: t.name, "cubes": lambda t: [t.name], "subject": lambda t: t.name,
    "newer": lambda t: t.item, "older": lambda t: t.seen, "into": lambda t: t.seen, "about": lambda t: t.item,
    "item": lambda t: t.item, "item_ids": lambda t: [t.item], "receipt": lambda t: t.receipt, "task": lambda t: t.task,
    "adapter": lambda t: t.adapter, "other": lambda t: t.adapter,
    "session": lambda t: t.session, "response": lambda t: t.response, "ids": lambda t: [t.record],
    "records": lambda t: [{"id": t.record, "memory": "hello"}],
    "key": lambda t: t.key, "file": lambda t: t.file, "rule": lambda t: t.rule, "segment": lambda t: t.segment,
    "conversation": lambda t: t.conversation, "conversation_id": lambda t: t.conversation,
    "session_id": lambda t: t.conversation,
    "filter": lambda t: json.dumps({"id": t.item}),
    "agent_id": lambda t: t.name, "owner_id": lambda t: t.name, "user_name": lambda t: t.name,
    "cube_id": lambda t: t.name, "mem_cube_id": lambda t: t.name, "mem_cube_ids": lambda t: [t.name],
    "readable_cube_ids": lambda t: [t.name], "writable_cube_ids": lambda t: [t.name], "store_in": lambda t: t.name,
    "knowledgebase_id": lambda t: t.base, "knowledgebase_ids": lambda t: [t.base],
    "allow_knowledgebase_ids": lambda t: [t.base], "knowledgebase_name": lambda t: t.base,
    "cube_name": lambda t: t.name, "memory_id": lambda t: t.item, "memory_ids": lambda t: [t.item],
    "retrieved_memory_ids": lambda t: [t.item], "file_id": lambda t: t.file, "file_ids": lambda t: [t.file],
    "task_id": lambda t: t.task,
    "bind_list": lambda t: [{"user_id": t.name, "profile_template_id": "standard"}],
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "messages": "hello", "query": WORD[:4], "text": "no, it is another", "content": base64.b64encode(b"# a").decode(),
    "name": "get_weather", "role": "reader", "to_version": 1, "version": 1, "tier": "long", "enabled": False,
    "dimension": "personality.openness", "value": "high", "since": "2020-01-01", "action": "erase", "yes": True,
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "template": {"name": "t", "groups": [{"id": "g", "name": "G", "dimensions": [
        {"id": "g.a", "name": "A", "about": "a thing"}]}]},
    "timeout_s": 0, "timeout_seconds": 0.01, "description": "d", "wait": True, "feedback_content": "no, it is another",
    "expected": 1, "documents": ["a", "b"], "holds": True, "alias": MADE_UP, "into": "get_weather",
    "profile_template_id": "standard", "metadata": {"personality.openness": "high"}, "model": "some",
    "search_query": WORD[:4], "minutes": 5, "step": 1, "limits": {"items_per_day": 0},
    "history": [{"role": "user", "content": "hello"}], "add": ["zebra"], "memory": "hello",
    "hook_event_name": "UserPromptSubmit", "prompt": WORD,
}  # fmt: skip
# Parameters that are left out: a request is about the same things without them.
LEFT_OUT = {
    "tags", "info", "mode", "limit", "offset", "after", "kind", "kinds", "state", "states", "reason",
    "expected_version",
    "memory", "confidence", "type", "status", "valid_from", "valid_to", "top_k", "as_of", "reference_time",
    "token_budget", "explain", "rerank", "max_tokens", "confirmed", "chat_time", "everything", "redact_pii",
    "time_zone", "repair", "admin", "rights", "expires_at", "arguments", "until", "types", "statuses", "age_days",
    "min_relevance", "top_p", "marks", "working", "store", "temperature", "system_prompt", "stream",
    "allow_memory_view", "source", "allow_public", "app_id", "async_mode", "feedback_time", "conversation_limit_number",
    "message_limit_number", "include_tool_memory", "context_format", "include_memory_view", "relativity",
    "skill_limit_number", "tool_memory_limit_number", "memory_limit_number", "preference_limit_number",
    "include_preference", "include_skill", "size", "page", "page_size", "title", "memory_type", "extraction_types",
    "knowledgebase_description", "top_n", "remove_fields", "is_feedback", "custom_tags", "chat_history",
    "corrected_answer", "pref_top_k", "search_tool_memory", "search_memory_type", "skill_mem_top_k", "internet_search",
    "limits", "model_name", "model_name_or_path", "add_message_on_answer", "max_new_tokens",
    "dedup", "tool_mem_top_k", "include_skill_memory", "search_type", "cube_path", "language",
    "vectors", "kv", "adapters", "at", "stored", "about", "least", "merge", "trust",
    "restore_erased", "remove", "by", "sort", "around", "order",
    "before", "newest", "start", "everyone", "format", "on_bad", "progress", "together", "date_order",
    "owner", "transfer_to", "overlap_s", "prefix", "depth", "ttl_s", "index", "refresh_ttl", "recent", "known",
    "texts", "scan", "mentions",
}  # fmt: skip
# Routes that no document tells of, and why nothing of a tenant can be in them.
UNTOLD = {
    "GET /api/v1/openapi.json": "the document itself, of no installation",
    "GET /api/openmem/v1/openapi.json": "the document itself, of no installation",
    **dict.fromkeys(
        (
            "POST /api/v1/adapters/retrain",
            "POST /api/v1/adapters/rollback",
            "POST /api/v1/adapters/learn-again",
            "GET /api/v1/adapters/{adapter}/diff",
        ),
        "removed: says what does the same, and looks at nothing",
    ),
    "MOUNT /console": "asks /api/v1 with the rights of who is signed in, walked in tests/browser",
    "ANY /mcp": "speaks a protocol of its own, walked with two tenants in test_mcp",
}
# Bodies that no document tells the parts of.
BODIES: dict[str, Callable[[Things], Any]] = {
    "POST /hooks/claude-code/messages": lambda t: {
        "session": t.conversation, "messages": [{"role": "user", "content": "hello"}]
    },
    "POST /product/get_memory_by_ids": lambda t: [t.item],
    "POST /openai/v1/chat/completions": lambda t: {
        "model": "some", "user": t.name, "messages": [{"role": "user", "content": WORD[:4]}]
    },
    "POST /openai/v1/responses": lambda t: {"input": WORD[:4], "user": t.name, "previous_response_id": t.response},
    "POST /anthropic/v1/messages": lambda t: {
        "max_tokens": 5, "metadata": {"user_id": t.name}, "messages": [{"role": "user", "content": WORD[:4]}]
    },
    "POST /anthropic/v1/messages/count_tokens": lambda t: {"messages": [{"role": "user", "content": WORD[:4]}]},
    "POST /api/openmem/v1/add/knowledgebase-file": lambda t: {
        "knowledgebase_id": t.base, "file": [{"name": "a.md", "content": "IyBh"}]
    },
}  # fmt: skip
# Whose answers depend on whether a name is taken, as names of cubes and users are everybody's.
TAKES_NAMES = {
    "POST /api/v1/cubes", "POST /api/v1/knowledge-bases", "POST /api/openmem/v1/create/knowledgebase",
    "POST /product/create_cube", "POST /product/register_cube",
}  # fmt: skip
# Left out when the victim itself walks, so that its things are there for the next route.
DESTROYS = {
    "delete", "merge", "reopen", "read-again", "erase", "/erasures", "reject", "retention/run", "disallow", "forget"
}  # fmt: skip
# For admins, for the person at the machine, or in need of a language model or of a segment that is not there.
OUT_OF_REACH = {
    "POST /api/openmem/v1/chat", "POST /product/chat/complete", "POST /product/chat/stream",
    "POST /api/v1/adapters/train", "POST /api/v1/adapters/retrain",
    "POST /api/v1/activation/first-token",
    "POST /api/v1/activation/warm", "GET /api/v1/activation/stats", "POST /api/v1/activation/verify",
    "POST /api/v1/cubes/inspect", "POST /api/v1/cubes/load", "POST /api/v1/imports", "POST /api/v1/imports/preview",
    "GET /", "GET /api/v1/activity",
    "GET /api/v1/backups", "POST /api/v1/backups",  # for admins; what those before take is a file
    "POST /api/v1/chat", "POST /api/v1/reflect", "POST /openai/v1/chat/completions", "GET /openai/v1/models/{model}",
    "POST /openai/v1/responses", "POST /anthropic/v1/messages", "GET /anthropic/v1/models/{model}",
    "GET /api/v1/segments/{segment}", "GET /api/v1/doctor", "GET /api/v1/settings",
    "POST /api/v1/segments/{segment}/move", "POST /api/v1/profile/rollback", "POST /api/v1/users", "GET /api/v1/users",
    "PATCH /api/v1/users/{identity}", "POST /api/v1/users/{identity}/offboard", "PUT /api/v1/audit/reads",
    "PUT /api/v1/keys/{key}/limits", "GET /api/v1/groups/{group}/members",
    "PUT /api/v1/groups/{group}/members/{member}", "GET /local/proof", "GET /local/about", "GET /local/calls",
    "POST /local/call", "POST /api/v1/erasures/verify",  # a scan reads what everybody says
}  # fmt: skip
WHO = {"user", "user_id", "agent_id", "owner_id", "user_name"}
WHERE = {
    "cube", "cubes", "cube_id", "mem_cube_id", "mem_cube_ids", "readable_cube_ids", "writable_cube_ids", "store_in",
    "knowledgebase_id", "knowledgebase_ids", "allow_knowledgebase_ids",
}  # fmt: skip
# What is left out in turn, so that each of the others has to be refused by itself.
WITHOUT: tuple[set[str], ...] = (
    {"agent_id"}, {"user", "user_id"}, WHO, WHO | WHERE, WHO | WHERE | {"identity", "filter"},
    WHO | WHERE | {"filter", "memory_ids"}, WHO | WHERE | {"memory_ids", "file_ids"},
)  # fmt: skip


def possessions(memos: MemOS) -> Things:
    mine = {"cube": VICTIM, "actor": VICTIM}
    picture = base64.b64encode(_png()).decode()
    parts = [
        {"type": "text", "text": f"the {WORD} hums"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
    ]
    seen = memos.add([{"role": "user", "content": parts}], conversation=TALK, **mine).item_ids[0]
    gone = memos.add(f"a {WORD} too many", **mine).item_ids[0]
    item = memos.add(f"My brother is a {WORD}", **mine).item_ids[0]
    memos.add("He plays Marimba and Vibraphone.", **mine)
    memos.knowledge.create(BASE, actor=VICTIM)
    file = memos.documents.add((f"{WORD}.md", f"# About the {WORD}".encode()), cube=BASE, actor=VICTIM)
    memos.documents.wait(file.id, 60)
    note = {"response": {"model": "m"}, "inputs": 1, "system": [], "chain": [], "missing": []}
    response = f"resp_{MADE_UP.replace('-', '')}f"
    memos.add(
        [
            {"role": "user", "content": f"a {WORD}?"},
            {"role": "assistant", "content": [{"type": "text", "text": f"the {WORD}", "response": note}]},
        ],
        idempotency_key=response,
        conversation=TALK,
        **mine,
    )
    return Things(
        response=response,
        name=VICTIM,
        item=item,
        file=file.id,
        image=memos.images.of(seen)[0].id,
        seen=seen,
        task=memos.tasks.list(cubes=[VICTIM])[0].id,
        key=memos.keys.list(VICTIM)[0].id,
        receipt=memos.erase(gone, **mine).id,
        rule=memos.retention.add(action="archive", tags=["old"], **mine).id,
        segment=item,
        base=BASE,
        adapter=_learned(memos, item),
        conversation=TALK,
        session=memos.sessions.start(memos.keys.authenticate(memos.keys.create(VICTIM, "browser").secret)).session.id,
        record=str(memos.records.put("instruments/loud", f"A {WORD} in a record", **mine).record_id),
    )


def _learned(memos: MemOS, item: str) -> str:
    """Return an adapter that saw a memory."""
    assert memos.home is not None
    memos.adapters.allow(VICTIM, actor=VICTIM)
    id_ = active(memos.ledger, [item], cube=VICTIM)
    with_card(with_files(memos.home / FOLDER, id_))
    return id_


def _png() -> bytes:
    from io import BytesIO  # noqa: PLC0415

    from PIL import Image  # noqa: PLC0415

    file = BytesIO()
    Image.new("RGB", (3, 3)).save(file, "PNG")
    return file.getvalue()


NOTHING = Things(
    NOBODY, *(f"{MADE_UP}{place}" for place in range(9)), "bilby-books", f"{MADE_UP}9", "talk of nothing at all",
    f"{MADE_UP}a", f"resp_{MADE_UP.replace('-', '')}e", "instruments/none",
)  # fmt: skip


def _value(name: str, found: Found, things: Things, without: Set[str]) -> Any:
    if name == "file" and "/images/" in found.path:
        return things.image
    if name == "id" and "/record" in found.path:
        return things.record
    if name in {"cube", "id"} and "/knowledge-bases" in found.path:
        return things.base
    if name == "cube" and found.in_path >= {"file"} and "/documents/" in found.path:
        return things.base
    if name == "key" and "keys" not in found.path:
        return None  # what a memory says something about
    if name == "name" and "{name}" not in found.path and found.path.endswith("/documents"):
        return "a.md"
    if name in ("name", "into") and found.path.startswith(("/api/v1/graph", "/api/v1/timeline")):
        return {"name": "Marimba", "into": "Vibraphone"}[name]
    if name == "filter" and found.method != "GET":
        return {"id": things.item}
    if name in WHO and name in without:
        return OTHER  # one has to be named
    value = VALUES[name](things) if name in VALUES else PLAIN[name]
    many = found.method == "GET" and name == "cube" and found.path.endswith(("/tasks", "/counts", "/overview"))
    return [value] if many else value


def send(server: Server, found: Found, things: Things, key: dict[str, str], without: Set[str]) -> httpx2.Response:
    """Send a request about somebody's things, leaving some parameters out."""
    path = found.path
    if str(found) in BODIES:
        return server.http.request(found.method, path, headers=key, json=BODIES[str(found)](things))
    for name in found.in_path:
        path = path.replace("{" + name + "}", quote(str(_value(name, found, things, without)), safe=""))
    query = {name: _value(name, found, things, without) for name in sorted(found.query - without - LEFT_OUT)}
    body = {
        name: value
        for name, required in found.body.items()
        if required or name not in without | LEFT_OUT
        if (value := _value(name, found, things, without)) is not None
    }
    if found.media == "multipart/form-data":
        files = {"file": ("a.md", b"# a file")}
        body.pop("file")
        return server.http.request(found.method, path, params=query, headers=key, data=body, files=files)
    return server.http.request(found.method, path, params=query, headers=key, json=body if found.media else None)


def told_of_others(answer: httpx2.Response, things: Things) -> set[str]:
    """Return what an answer tells of somebody that the request did not say itself."""
    sent = str(answer.request.url)
    with suppress(httpx2.RequestNotRead):  # a body that was streamed: a file of the tests
        sent += f"\n{answer.request.content.decode('utf-8', 'replace')}"
    return {secret for secret in things.secrets if secret not in sent and secret in answer.text}


def is_refused(answer: httpx2.Response) -> bool:
    """Say whether an answer is an error: some families tell so by a code besides."""
    told = answer.json() if answer.content and answer.headers["Content-Type"] == "application/json" else None
    return answer.status_code >= 400 or (isinstance(told, dict) and told.get("code", 0) not in (0, 200))


def state_of(memos: MemOS) -> list[Any]:
    """Return all of the victim's that a request could change, without what the background may."""
    cubes = [VICTIM, BASE]
    events = [event for cube in cubes for event in memos.events.list(cube, limit=10_000)]
    items = [item for cube in cubes for item in memos.memories.list(cube=cube)]
    files = [file for cube in cubes for file in memos.documents.list(cube=cube)]
    return [
        {(item.id, item.version_id, item.memory, item.status) for item in items if item.type == "message"},
        {(event.cube, event.seq) for event in events if event.actor == OTHER},
        [(memos.cubes.get(cube).description, memos.cubes.get(cube).owner) for cube in cubes],
        [replace(key, last_used_at=None) for key in memos.keys.list(VICTIM)],
        memos.users.get(VICTIM),
        [memos.sharing.grants(cube) for cube in cubes],
        [(file.id, file.state) for file in files],
        memos.retention.list(cube=VICTIM),
        memos.tools.list(cube=VICTIM),
        [(each.id, each.state, each.stale) for each in memos.adapters.list(VICTIM)],
        memos.adapters.preview(VICTIM),
    ]
