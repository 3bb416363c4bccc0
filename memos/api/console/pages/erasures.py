"""The receipt of an erasure."""

from __future__ import annotations

from starlette.responses import Response

from memos.api.console.rest import part
from memos.api.console.view import Page, View

_TABLES = {
    "versions": "versions of them",
    "messages": "messages as they were written",
    "sources": "references to messages",
    "links": "links to other memories",
    "events": "events whose details were removed",
    "warmth": "records of how much they were used",
    "extractions": "answers of models about them",
    "adapters": "adapters that were trained on them",
    "prefix_entries": "places among what prompts begin with",
    "file_items": "passages of documents",
    "adapter_exclusions": "notes that adapters may not learn them",
    "requests": "records of requests",
    "outbox": "waiting updates of indexes",
}
_STORES = {
    "ledger": "the ledger, where memories are kept",
    "vector": "the index for searches by meaning and words",
    "graph": "the graph index",
    "cache": "caches",
    "activation": "attention state of models",
    "parametric": "adapters of models",
}


async def receipt(view: View) -> Response:
    """Show an erasure's receipt; while files are still being rewritten, the page looks again."""
    receipt = await view.rest.get(f"/erasures/{part(view.request.path_params['receipt'])}")
    block = "receipt" if view.partial else None
    return view.render("erasure.html", block=block, receipt=receipt, tables=_TABLES, stores=_STORES)


PAGES = (Page("/erasures/{receipt}", receipt),)
