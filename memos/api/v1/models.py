"""Routes of `/adapters` and `/activation`: what models in the server learn and keep of a cube."""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from memos.api import values
from memos.api.dialects import file_response
from memos.api.families import CurrentCaller, CurrentMemos
from memos.api.streaming import CurrentRunner
from memos.api.v1.common import AdapterId, CubeBody, CurrentIdentity, CurrentTarget, target_of, value_router
from memos.core.kv_cache import CubePrefix, FirstToken, KvStats, Warmed
from memos.errors import NotFound
from memos.kernel.adapters.service import REMOVED, open_export

router = value_router("adapters", prefix="/adapters")
activation_router = value_router("activation", prefix="/activation")

_ZIP = "application/zip"


class MemoriesBody(CubeBody):
    """A selection of a cube's memories."""

    item_ids: list[str] = Field(description="Ids of the memories")


class AllowBody(CubeBody):
    """A cube to allow training on."""

    item_ids: list[str] = Field([], description="Ids of forgotten memories that are allowed in training again")


@router.get("", name="list_")
def list_adapters(memos: CurrentMemos, target: CurrentTarget) -> list[values.Adapter]:
    """Return a cube's adapters, the newest first."""
    return [values.Adapter.model_validate(each) for each in memos.adapters.list(**target)]


@router.get("/preview", name="preview")
def preview_learning(memos: CurrentMemos, target: CurrentTarget) -> values.Learnable:
    """Return what a cube's next adapter would know, and why other memories are left out."""
    return values.Learnable.model_validate(memos.adapters.preview(**target))


@router.post("/allow", name="allow")
def allow_learning(body: AllowBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Consent:
    """Allow that memories of a cube are learned, which they are not otherwise; its owner does."""
    target = target_of(memos, caller, body)
    memos.adapters.allow(items=body.item_ids, **target)
    return values.Consent(cube=target["cube"], allowed=True, removed=0)


@router.post("/disallow", name="disallow")
def disallow_learning(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Consent:
    """Take that back, and remove what was learned."""
    target = target_of(memos, caller, body)
    return values.Consent(cube=target["cube"], allowed=False, removed=memos.adapters.disallow(**target))


@router.post("/train", status_code=202, name="train")
def train_adapter(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Learning:
    """Train and evaluate an adapter in the background if one is due; an adapter that passes becomes active."""
    return values.Learning(task=memos.adapters.submit(**target_of(memos, caller, body)), adapter=None)


@router.post("/forget", name="forget")
def forget_learned(body: MemoriesBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Unlearned:
    """Remove what was learned of memories, for good; they themselves stay and are looked up."""
    return values.Unlearned.model_validate(memos.adapters.forget(body.item_ids, **target_of(memos, caller, body)))


@router.post("/retrain", include_in_schema=False)
@router.post("/rollback", include_in_schema=False)
@router.post("/learn-again", include_in_schema=False)
@router.get("/{adapter}/diff", include_in_schema=False)
def removed_route(request: Request) -> None:
    """Name the replacement of a route of version 0.1. Raises: NotFound."""
    name = request.url.path.rpartition("/")[2]
    raise NotFound("route", name, f"It was removed: {REMOVED[name.replace('-', '_')]}.")


@router.get("/{adapter}", name="get")
def get_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> values.Adapter:
    """Return one adapter with what its evaluation found."""
    return values.Adapter.model_validate(memos.adapters.get(adapter, actor=acting.actor))


@router.get(
    "/{adapter}/export",
    response_class=StreamingResponse,
    responses={200: {"content": {_ZIP: {}}, "description": "The files, as a zip"}},
    name="export",
)
def export_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> Response:
    """Return an adapter's files, as peft and others load them; owners of its cube may."""
    out = open_export(memos.adapters, adapter, actor=acting.actor)
    return file_response(out, "adapter.zip", _ZIP)


@router.post("/{adapter}/activate", name="activate")
def activate_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> values.Adapter:
    """Activate an adapter that passed its evaluation, in place of the active one."""
    return values.Adapter.model_validate(memos.adapters.activate(adapter, actor=acting.actor))


@router.delete("/{adapter}", status_code=204, name="remove")
def remove_adapter(adapter: AdapterId, memos: CurrentMemos, acting: CurrentIdentity) -> None:
    """Remove an adapter and its files."""
    memos.adapters.remove(adapter, actor=acting.actor)


@activation_router.get("", name="show")
def show_prefix(memos: CurrentMemos, target: CurrentTarget) -> CubePrefix:
    """Return the memories that prompts of a cube begin with, and how many blocks of it are kept where."""
    return memos.kv.show(**target)


@activation_router.post("/compose", status_code=202, name="compose")
def compose_prefix(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Composing:
    """Compose a cube's prompt prefix in the background, from its hot and pinned memories."""
    target = target_of(memos, caller, body)
    return values.Composing(cube=target["cube"], task=memos.kv.compose(**target))


@activation_router.post("/warm", name="warm")
async def warm_prefix(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner) -> Warmed:
    """Precompute a cube's prompt prefix in the model, so that the next answer starts sooner."""

    def warmed() -> Warmed:
        return memos.kv.warm(**target_of(memos, caller, body))

    return await runner.run(warmed)


@activation_router.get("/first-token", name="measured")
def measured_first_token(memos: CurrentMemos, target: CurrentTarget) -> FirstToken | None:
    """Return the time to the first token that was measured last in this process; null before that."""
    return memos.kv.measured(**target)


@activation_router.post("/first-token", name="measure")
async def measure_first_token(
    body: CubeBody, memos: CurrentMemos, caller: CurrentCaller, runner: CurrentRunner
) -> FirstToken:
    """Measure the time to the first token without and with the kept prefix; needs a model in the server."""

    def measured() -> FirstToken:
        return memos.kv.measure(**target_of(memos, caller, body))

    return await runner.run(measured)


@activation_router.post("/drop", name="drop")
def drop_kv(body: CubeBody, memos: CurrentMemos, caller: CurrentCaller) -> values.Dropped:
    """Remove what is kept of a cube's prompts; it is computed again when it is needed."""
    target = target_of(memos, caller, body)
    return values.Dropped(cube=target["cube"], blocks=memos.kv.drop(**target))


@activation_router.get("/stats", name="stats")
def kv_stats(memos: CurrentMemos, acting: CurrentIdentity) -> KvStats:
    """Return how full the tiers are with what is kept of all cubes; for admins."""
    return memos.kv.stats(actor=acting.actor)


@activation_router.post("/verify", name="verify")
def verify_kv(memos: CurrentMemos, acting: CurrentIdentity) -> values.Damaged:
    """Read every block on the disk and remove the damaged ones; for admins."""
    return values.Damaged(damaged=memos.kv.verify(actor=acting.actor))
