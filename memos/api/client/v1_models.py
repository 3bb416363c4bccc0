"""Requests of `/api/v1` about adapters and activation memory, named as in `MemOS.adapters` and `MemOS.kv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memos.api.client import values
from memos.api.client.calls import Call, Download, as_field, as_model
from memos.api.client.v1_cubes import fetching, new_file
from memos.api.client.v1_requests import as_list, changing, getting, nothing, path_of

# A server loads a model, reads a whole disk tier or checks all files before it answers.
_SILENT_S = 300.0


def list_adapters(cube: str | None = None, *, user: str | None = None) -> Call[list[values.Adapter]]:
    """Return a cube's adapters, newest first. Raises: NotFound."""
    return getting(path_of("adapters"), as_list(values.Adapter), {"cube": cube, "user": user})


def get_adapter(adapter: str, *, user: str | None = None) -> Call[values.Adapter]:
    """Return one adapter. Raises: NotFound."""
    return getting(path_of("adapters", ("adapter", adapter)), as_model(values.Adapter), {"user": user})


def preview_learning(cube: str | None = None, *, user: str | None = None) -> Call[values.Learnable]:
    """Return the memories that would be learned now, and why others would not. Raises: NotFound."""
    return getting(path_of("adapters", "preview"), as_model(values.Learnable), {"cube": cube, "user": user})


def allow_learning(cube: str | None = None, *, items: str | Sequence[str] = (), user: str | None = None) -> Call[None]:
    """Allow a cube's memories to be learned; by default they are not. Forgotten `items` may be learned again.

    Raises: NotFound, PermissionDenied.
    """
    return changing("POST", path_of("adapters", "allow"), nothing, body=_memories(items, cube, user))


def disallow_learning(cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Stop learning a cube's memories; return how many adapters were removed. Raises: NotFound, PermissionDenied."""
    read = as_field(values.Consent, lambda found: found.removed)
    return changing("POST", path_of("adapters", "disallow"), read, body={"cube": cube, "user": user})


def train_adapter(cube: str | None = None, *, user: str | None = None) -> Call[values.Learning]:
    """Train an adapter in the background; `client.tasks.wait` waits for the `task` of the answer.

    Raises: NotFound, PermissionDenied, Conflict (not allowed, or nothing to learn), BackendUnavailable (no model).
    """
    body = {"cube": cube, "user": user}
    return changing("POST", path_of("adapters", "train"), as_model(values.Learning), body=body)


def activate_adapter(adapter: str, *, user: str | None = None) -> Call[values.Adapter]:
    """Make an adapter the one that answers. Raises: NotFound, PermissionDenied, Conflict."""
    path = path_of("adapters", ("adapter", adapter), "activate")
    return changing("POST", path, as_model(values.Adapter), query={"user": user})


def forget_learned(
    items: str | Sequence[str], cube: str | None = None, *, user: str | None = None
) -> Call[values.Unlearned]:
    """Unlearn memories for good; they themselves stay. Raises: NotFound, PermissionDenied, InvalidInput."""
    path, body = path_of("adapters", "forget"), _memories(items, cube, user)
    return changing("POST", path, as_model(values.Unlearned), body=body)


def remove_adapter(adapter: str, *, user: str | None = None) -> Call[None]:
    """Remove an adapter and its files. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("adapters", ("adapter", adapter)), nothing, query={"user": user})


def export_adapter(adapter: str, file: str | Path, *, user: str | None = None) -> Download[Path]:
    """Write an adapter's files to a new zip and return its path; it appears only once it is complete.

    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file exists, or the adapter may not answer).
    """
    target = new_file(file)
    return fetching(path_of("adapters", ("adapter", adapter), "export"), target, {"user": user}, least_s=_SILENT_S)


def _memories(items: str | Sequence[str], cube: str | None, user: str | None) -> dict[str, object]:
    return {"item_ids": [items] if isinstance(items, str) else list(items), "cube": cube, "user": user}


def show_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values.CubePrefix]:
    """Return the memories that a cube's prompts begin with. Raises: NotFound."""
    return getting(path_of("activation"), as_model(values.CubePrefix), {"cube": cube, "user": user})


def compose_prefix(cube: str | None = None, *, user: str | None = None) -> Call[str]:
    """Compose the prompt prefix anew; return the task, for `client.tasks.wait`. Raises: NotFound, PermissionDenied."""
    read = as_field(values.Composing, lambda found: found.task)
    return changing("POST", path_of("activation", "compose"), read, body={"cube": cube, "user": user})


def warm_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values.Warmed]:
    """Precompute a cube's prompt prefix in the model, so that the next answer starts sooner.

    Raises: NotFound, PermissionDenied, BackendUnavailable (no model keeps a cache), ModelError.
    """
    path, body = path_of("activation", "warm"), {"cube": cube, "user": user}
    return replace(changing("POST", path, as_model(values.Warmed), body=body), least_s=_SILENT_S)


def measure_first_token(cube: str | None = None, *, user: str | None = None) -> Call[values.FirstToken]:
    """Measure the time to the first token without and with the kept prefix; needs a model in the server.

    Raises: NotFound, PermissionDenied, BackendUnavailable (no model there), Conflict (no prefix).
    """
    call = changing(
        "POST",
        path_of("activation", "first-token"),
        as_model(values.FirstToken),
        body={"cube": cube, "user": user},
    )
    return replace(call, least_s=_SILENT_S)


def drop_kv(cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Remove a cube's key-value caches; return how many. Raises: NotFound, PermissionDenied, BackendUnavailable."""
    read = as_field(values.Dropped, lambda found: found.blocks)
    return changing("POST", path_of("activation", "drop"), read, body={"cube": cube, "user": user})


def kv_stats(*, user: str | None = None) -> Call[values.KvStats]:
    """Return how full the tiers of the key-value cache are. Admins only. Raises: PermissionDenied."""
    return getting(path_of("activation", "stats"), as_model(values.KvStats), {"user": user})


def verify_kv(*, user: str | None = None) -> Call[tuple[str, ...]]:
    """Check every block on disk; remove damaged ones and return their keys. Admins only. Raises: PermissionDenied."""
    read = as_field(values.Damaged, lambda found: found.damaged)
    return replace(changing("POST", path_of("activation", "verify"), read, query={"user": user}), least_s=_SILENT_S)
