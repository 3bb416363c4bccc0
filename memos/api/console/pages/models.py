"""Language models: which there are, what they keep of prompts, and adapters that learn a cube's memories."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.responses import Response

from memos.api.console.rest import part
from memos.api.console.view import Page, View, size

_LOG = 8
_HITS = 20
TIERS = {"device": "GPU", "host": "Main memory", "disk": "Disk"}
PURPOSES = {
    "chat": ("Chat", "answers, and summarises topics"),
    "reader": ("Reader", "reads facts from what was said"),
    "vision": ("Vision", "describes images"),
    "training": ("Training", "learns memories as adapters"),
}


class Measure(NamedTuple):
    """A result of an adapter's evaluation: its name in the API, its labels, what is wanted, and how it is shown."""

    name: str
    short: str
    label: str
    wanted: str
    base: str | None
    percent: bool = True


MEASURES = (
    Measure(
        "recall",
        "Knows what it learned",
        "Questions about learned memories answered right",
        "90 % or more",
        "base_recall",
    ),
    Measure(
        "abstention",
        "Says when it does not know",
        "Questions about what nobody told, answered with not knowing",
        "80 % or more",
        None,
    ),
    Measure("rise", "Perplexity rises by", "Rise of perplexity on plain prose", "5 % or less", None),
    Measure(
        "lost",
        "General questions lost",
        "General questions that are no longer answered",
        "2 or fewer",
        None,
        percent=False,
    ),
)


def _value(adapter: dict[str, Any], measure: Measure, name: str | None = None) -> float | None:
    told = (adapter["measures"] or {}).get(name or measure.name)
    if isinstance(told, list):
        return float(len(told))
    return float(told) if isinstance(told, int | float) else None


def _shown(value: float | None, *, percent: bool) -> str:
    if value is None:
        return "–"
    return f"{value * 100:.1f} %" if percent else f"{value:.0f}"


def _results(adapter: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "label": measure.short,
            "value": _shown(_value(adapter, measure), percent=measure.percent),
            "wanted": measure.wanted,
            "before": _shown(_value(adapter, measure, measure.base), percent=measure.percent) if measure.base else "",
        }
        for measure in MEASURES
    ]


async def models(view: View) -> Response:
    if not view.cube:
        return view.render("models.html", there=False, models=await view.rest.get("/models"), purposes=PURPOSES)
    cube = {"cube": view.cube}
    configured, prefix, measured, adapters, tasks = await asyncio.gather(
        view.rest.get("/models"),
        view.rest.get("/activation", **cube),
        view.rest.get("/activation/first-token", **cube),
        view.rest.get("/adapters", **cube),
        _tasks(view),
    )
    # What would be learned takes a second in a large cube, so that it comes after the page.
    preview = await view.rest.get("/adapters/preview", **cube) if view.query("whole") else None
    return view.render(
        "models.html",
        there=True,
        models=configured,
        purposes=PURPOSES,
        by_purpose={each["purpose"]: each for each in configured},
        adapters=adapters,
        preview=preview,
        results={each["id"]: _results(each) for each in adapters},
        **await _kept(view, prefix, measured),
        **_log(tasks),
    )


async def learning(view: View) -> Response:
    if not view.partial:
        return view.redirect("/models", whole=1)
    preview, configured = await asyncio.gather(
        view.rest.get("/adapters/preview", cube=view.cube), view.rest.get("/models")
    )
    by_purpose = {each["purpose"]: each for each in configured}
    return view.render("models.html", block="learning", preview=preview, by_purpose=by_purpose)


async def _kept(view: View, prefix: dict[str, Any], measured: dict[str, Any] | None) -> dict[str, Any]:
    stats = await view.rest.get("/activation/stats") if view.administers else None
    hits = sum(tier["hits"] for tier in stats["tiers"]) if stats else 0
    return {
        "prefix": prefix,
        "blocks": {TIERS.get(tier, tier): count for tier, count in prefix["blocks"].items()},
        "measured": measured,
        "stats": stats,
        "hits": hits,
        "asked": hits + (stats["misses"] if stats else 0),
        "tiers": TIERS,
    }


async def _tasks(view: View) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await view.rest.get("/tasks", cube=[view.cube], kind=["learn"], limit=_LOG)
    return found


def _log(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tasks": tasks, "running": any(not task["ended"] for task in tasks)}


async def log(view: View) -> Response:
    return await _log_part(view) if view.partial else view.redirect("/models")


async def _log_part(view: View) -> Response:
    return view.render("models.html", block="log", **_log(await _tasks(view)))


async def _activation(view: View, text: str) -> Response:
    """Show activation memory as it is now, and announce what was done."""
    if not view.partial:
        return view.redirect("/models", text)
    prefix, measured, configured = await asyncio.gather(
        view.rest.get("/activation", cube=view.cube),
        view.rest.get("/activation/first-token", cube=view.cube),
        view.rest.get("/models"),
    )
    by_purpose = {each["purpose"]: each for each in configured}
    kept = await _kept(view, prefix, measured)
    return view.announce(text, view.render("models.html", block="kept", by_purpose=by_purpose, **kept))


async def compose(view: View) -> Response:
    told = await view.rest.post("/activation/compose", {"cube": view.cube})
    await view.rest.get(f"/tasks/{part(told['task'])}/wait", timeout_s=10)
    return await _activation(view, "Composed from what is pinned and hot now.")


async def warm(view: View) -> Response:
    told = await view.rest.post("/activation/warm", {"cube": view.cube})
    return await _activation(view, f"Computed {told['tokens']:,} tokens in {told['seconds']:.2f} s.")


async def drop(view: View) -> Response:
    told = await view.rest.post("/activation/drop", {"cube": view.cube})
    return await _activation(view, f"Dropped {told['blocks']:,} blocks; the next answer computes them again.")


async def measure(view: View) -> Response:
    await view.rest.post("/activation/first-token", {"cube": view.cube})
    return await _activation(view, "Measured.")


async def verify(view: View) -> Response:
    damaged = (await view.rest.post("/activation/verify"))["damaged"]
    told = f"{len(damaged):,} damaged blocks were removed." if damaged else "Every block on the disk is whole."
    return await _activation(view, told)


async def allow(view: View) -> Response:
    again = [value for value in (await view.form()).getlist("item") if isinstance(value, str)]
    await view.rest.post("/adapters/allow", {"cube": view.cube, "item_ids": again})
    return view.redirect("/models", "They may be learned again." if again else "Adapters may learn this cube.")


async def disallow(view: View) -> Response:
    await view.rest.post("/adapters/disallow", {"cube": view.cube})
    return view.redirect("/models", "This cube is not learned any more, and its adapters are removed.")


async def train(view: View) -> Response:
    await view.rest.post("/adapters/train", {"cube": view.cube})
    return await view.after("The training has begun in the background.", "/models", _log_part)


async def cancel(view: View) -> Response:
    await view.rest.post(f"/tasks/{part(await view.field('task'))}/cancel")
    return await view.after("The training is cancelled.", "/models", _log_part)


async def activate(view: View) -> Response:
    await view.rest.post(f"/adapters/{part(await view.field('id'))}/activate")
    return view.redirect("/models", "The model answers with this adapter from now on.")


async def remove(view: View) -> Response:
    await view.rest.delete(f"/adapters/{part(await view.field('id'))}")
    return view.redirect("/models", "The adapter and its files are removed.")


async def forget(view: View, problem: str = "") -> Response:
    question = view.query("q").strip()
    hits: list[dict[str, Any]] = []
    if question:
        body = {"query": question, "cubes": [view.cube], "top_k": _HITS}
        hits = (await view.rest.post("/search", body))["hits"]
    done = [id_ for id_ in view.request.query_params.getlist("done") if id_][:_HITS]
    status = view.wrong(problem)
    return view.render("models_forget.html", question=question, hits=hits, done=done, problem=problem, status=status)


async def forget_now(view: View) -> Response:
    chosen = [value for value in (await view.form()).getlist("item") if isinstance(value, str)]
    if not chosen:
        return await forget(view, "Choose at least one memory.")
    done = await view.rest.post("/adapters/forget", {"cube": view.cube, "item_ids": chosen})
    adapters, files, size_told = len(done["adapters"]), done["files"], size(done["size_bytes"])
    gone = f" {adapters:,} {'adapter' if adapters == 1 else 'adapters'} with {files:,} files ({size_told}) removed."
    count = len(done["items"])
    told = f"{count:,} {'memory is' if count == 1 else 'memories are'} not learned any more.{gone if adapters else ''}"
    return view.redirect("/models/forget", told, done=done["items"])


async def compare(view: View) -> Response:
    every = await view.rest.get("/adapters", cube=view.cube)
    by_id = {each["id"]: each for each in every}
    pair = [by_id[id_] for id_ in (view.query("a"), view.query("b")) if id_ in by_id]
    if len(pair) < 2 and not (view.query("a") or view.query("b")):
        pair = every[:2]
    if len(pair) < 2:
        told = "One of these adapters is no longer there." if view.query("a") else ""
        return view.render("models_compare.html", every=every, pair=[], rows=[], told=told)
    rows = []
    for each in MEASURES:
        values = [_value(adapter, each) for adapter in pair]
        change = None if None in values else values[1] - values[0]  # type: ignore[operator] # neither is None
        sign = "" if change is None else f"{change * 100:+.1f} points" if each.percent else f"{change:+.0f}"
        rows.append((each, [_shown(value, percent=each.percent) for value in values], sign))
    return view.render("models_compare.html", every=every, pair=pair, rows=rows, told="")


PAGES = (
    Page("/models", models),
    Page("/models/learning", learning),
    Page("/models/log", log),
    Page("/models/compare", compare),
    Page("/models/forget", forget),
    Page("/models/forget", forget_now, "POST"),
    Page("/models/compose", compose, "POST"),
    Page("/models/warm", warm, "POST"),
    Page("/models/drop", drop, "POST"),
    Page("/models/measure", measure, "POST"),
    Page("/models/verify", verify, "POST"),
    Page("/models/allow", allow, "POST"),
    Page("/models/disallow", disallow, "POST"),
    Page("/models/train", train, "POST"),
    Page("/models/cancel", cancel, "POST"),
    Page("/models/activate", activate, "POST"),
    Page("/models/remove", remove, "POST"),
)
