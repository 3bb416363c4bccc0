"""Documents: add files, watch them being read, see the passages they were cut into, read again and remove them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from starlette.datastructures import UploadFile
from starlette.responses import Response

from memos.api.console.rest import RestError, part
from memos.api.console.view import Page, View

_FILES = 50
_PASSAGES = 50
_STATES = {
    "processing": "being read",
    "available": "available",
    "failed": "failed",
    "superseded": "replaced",
    "deleted": "deleted",
}


async def documents(view: View) -> Response:
    state = view.query("state") if view.query("state") in _STATES else ""
    files: list[dict[str, Any]] = []
    if view.cube in {each["id"] for each in view.cubes}:
        asked = {"cube": view.cube, "state": state, "limit": _FILES + 1, "after": view.query("after")}
        files = await view.rest.get("/documents", **asked)
    more = view.url("/documents", state=state, after=files[_FILES - 1]["id"]) if len(files) > _FILES else ""
    block = "rows" if view.partial else None
    return view.render("documents.html", block=block, files=files[:_FILES], more=more, state=state, states=_STATES)


async def row(view: View) -> Response:
    """Show one file as a row of the list, as it stands now."""
    if not view.partial:
        return view.redirect("/documents")
    file = await view.rest.get(f"/documents/{part(view.query('file'))}")
    return view.render("documents.html", block="rows", files=[file], more="", states=_STATES)


async def upload(view: View) -> Response:
    """Add the files of a form, for browsers without scripts."""
    added = []
    form = await view.form()
    try:
        for file in form.getlist("file"):
            if isinstance(file, UploadFile) and file.filename:
                content = base64.b64encode(await file.read()).decode("ascii")
                body = {"name": file.filename, "content": content, "cube": view.cube or None}
                added.append(await view.rest.post("/documents", body))
    finally:
        await form.close()
    if not added:
        raise RestError(400, "invalid_input", "Choose a file to add.", "file")
    path = f"/documents/{part(added[0]['id'])}" if len(added) == 1 else "/documents"
    return view.redirect(path, f"{len(added)} {'file is' if len(added) == 1 else 'files are'} being read.")


async def document(view: View) -> Response:
    id_, start, page = _file(view), view.query("start"), view.query("page")
    shown = "text" if view.query("show") == "text" else "passages"
    asked = {"start": start if start.isdigit() else None, "page": page if page.isdigit() else None}
    path = f"/documents/{part(id_)}"
    file, passages, work = await asyncio.gather(
        view.rest.get(path),
        view.rest.get(f"{path}/passages", limit=_PASSAGES + 1, **asked),
        view.rest.get("/tasks", about=id_, limit=1),
    )
    more = ""
    if len(passages) > _PASSAGES:
        after = passages[_PASSAGES - 1]["end"]
        more = view.url(path, show=shown, start=after, page=asked["page"])
    return view.render(
        "document.html",
        block="passages" if view.partial else None,
        file=file,
        passages=passages[:_PASSAGES],
        more=more,
        show=shown,
        page=asked["page"],
        task=work[0] if work else None,
    )


async def state(view: View) -> Response:
    """Show how far the reading of a file is; once it has ended, the whole page anew."""
    id_ = _file(view)
    if not view.partial:
        return view.redirect(f"/documents/{part(id_)}")
    file, work = await asyncio.gather(
        view.rest.get(f"/documents/{part(id_)}"), view.rest.get("/tasks", about=id_, limit=1)
    )
    if file["state"] != "processing":
        return Response(status_code=204, headers={"HX-Refresh": "true"})
    return view.render("document.html", block="reading", file=file, task=work[0] if work else None)


async def read_again(view: View) -> Response:
    new = await view.rest.post(f"/documents/{part(_file(view))}/read-again")
    return view.redirect(f"/documents/{part(new['id'])}", "It is being read again.")


async def delete(view: View) -> Response:
    id_ = _file(view)
    await view.rest.delete(f"/documents/{part(id_)}")
    return view.redirect(f"/documents/{part(id_)}", "Deleted: no search finds it any more.")


async def erase(view: View) -> Response:
    receipt = await view.rest.post(f"/documents/{part(_file(view))}/erase")
    return view.redirect(f"/erasures/{part(receipt['id'])}")


def _file(view: View) -> str:
    return str(view.request.path_params["file"])


PAGES = (
    Page("/documents", documents),
    Page("/documents/row", row),
    Page("/documents/upload", upload, "POST"),
    Page("/documents/{file}", document),
    Page("/documents/{file}/state", state),
    Page("/documents/{file}/read-again", read_again, "POST"),
    Page("/documents/{file}/delete", delete, "POST"),
    Page("/documents/{file}/erase", erase, "POST"),
)
