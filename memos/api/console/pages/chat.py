"""Chat: talk to the configured model with memory; each answer shows what was recalled for it and what was written."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from memos.api.console.rest import RestError, memories_of, part
from memos.api.console.view import Page, View

_EARLIER = 40
_SHOWN = 3  # memories beside an answer; the others on demand


async def chat(view: View) -> Response:
    conversation, question = view.query("conversation").strip(), view.query("q").strip()
    model, earlier = await asyncio.gather(view.rest.get("/chat/model"), _said(view, conversation))
    prompt, problem = None, ""
    if question and (model["model"] is None or view.query("part") == "prompt"):
        prompt, problem = await _prompt(view, conversation, question)
    values = {"conversation": conversation, "question": question, "model": model["model"], "prompt": prompt}
    if view.partial and view.query("part") == "prompt":
        return view.render("chat.html", block="prompt", problem=problem, **values)
    return view.render(
        "chat.html", earlier=earlier, new=_new_name(), most=_EARLIER, answer=None, problem=problem, **values
    )


async def ask(view: View) -> Response:
    """Answer, or show the prompt, without scripts: the whole page comes back when it is complete."""
    question, conversation = (await view.field("q")).strip(), (await view.field("conversation")).strip()
    conversation = conversation or _new_name()
    body = _body(view, conversation, question) | {"store": await view.field("store", "") == "1"}
    model, earlier = await asyncio.gather(view.rest.get("/chat/model"), _said(view, conversation))
    answer, prompt, problem = None, None, ""
    if await view.field("part") == "prompt":
        prompt, problem = await _prompt(view, conversation, question)
    else:
        try:
            answer = await view.rest.post("/chat", body)
        except RestError as error:
            problem = error.message
    if answer is not None and answer["receipt"] is not None:
        return view.redirect("/chat", conversation=conversation)
    return view.render(
        "chat.html",
        conversation=conversation,
        question=question,
        model=model["model"],
        earlier=earlier,
        new=_new_name(),
        most=_EARLIER,
        answer=answer,
        prompt=prompt,
        problem=problem,
    )


def _new_name() -> str:
    return f"console-{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(3)}"


def _body(view: View, conversation: str, question: str) -> dict[str, Any]:
    body: dict[str, Any] = {"query": question}
    if conversation:
        body["conversation"] = conversation
    if view.cube:
        body["cubes"] = [view.cube]
    return body


async def _prompt(view: View, conversation: str, question: str) -> tuple[Mapping[str, Any] | None, str]:
    try:
        return await view.rest.post("/chat/prompt", _body(view, conversation, question)), ""
    except RestError as error:
        return None, error.message


async def recalled(view: View) -> Response:
    """Show all that a stored answer was made from."""
    answer = await view.rest.get(f"/memories/{part(view.query('answer'))}")
    view.cube = answer["cube"]
    ids, cited = _made_from(answer)
    items = await memories_of(view.rest, view.cube, ids, deleted=True)
    told = {"answer": answer, "items": items, "cited": cited, "gone": len(ids) - len(items)}
    return view.render("chat_recalled.html", block="list" if view.partial else None, **told)


async def _said(view: View, conversation: str) -> list[dict[str, Any]]:
    """Return the newest messages of a conversation, oldest first; with answers, what each was made from."""
    if not conversation or view.cube not in {each["id"] for each in view.cubes}:
        return []
    wanted = {"conversation": conversation, "type": "message"}
    newest = await view.rest.get(
        "/memories", cube=view.cube, filter=json.dumps(wanted), sort="-created_at", limit=_EARLIER
    )
    turns: list[dict[str, Any]] = [{"item": item, "ids": [], "cited": [], "written": []} for item in reversed(newest)]
    for before, turn in zip([None, *turns], turns, strict=False):
        item = turn["item"]
        if item["role"] != "assistant" or "recalled" not in item["info"]:
            continue
        turn["ids"], turn["cited"] = _made_from(item)
        asked = before is not None and before["item"]["role"] == "user"
        turn["written"] = [before["item"], item] if before is not None and asked else [item]
    shown = [id_ for turn in turns for id_ in turn["ids"][:_SHOWN]]
    found = {item["id"]: item for item in await memories_of(view.rest, view.cube, shown, deleted=True)}
    for turn in turns:
        turn["recalled"] = [found[id_] for id_ in turn["ids"][:_SHOWN] if id_ in found]
    return turns


def _made_from(answer: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the memories that a stored answer was made from, those that it cites first, and of these."""
    told, cited = (_ids(answer["info"].get(name)) for name in ("recalled", "cited"))
    return list(dict.fromkeys([*cited, *told])), cited


def _ids(value: Any) -> list[str]:
    """Return ids that a message was stored with; other programs may keep something else under the same name."""
    return [str(each) for each in value] if isinstance(value, list) else []


PAGES = (Page("/chat", chat), Page("/chat/ask", ask, "POST"), Page("/chat/recalled", recalled))
