"""Requests of `/api/v1` about adapters and activation memory, named as in `MemOS.adapters` and `MemOS.kv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memos.api.client import values
from memos.api.client.calls import Call, Download, Reply, as_model
from memos.api.client.v1_cubes import new_file
from memos.api.client.v1_requests import as_list, changing, getting, nothing, path_of, queried

# A server copies and checks all files before it says anything.
_SILENT_S = 300.0


def list_adapters(cube: str | None = None, *, user: str | None = None) -> Call[list[values.Adapter]]:
    """Return a cube's adapters, the newest first. Raises: NotFound."""
    return getting(path_of("adapters"), as_list(values.Adapter), {"cube": cube, "user": user})


def get_adapter(adapter: str, *, user: str | None = None) -> Call[values.Adapter]:
    """Return one adapter. Raises: NotFound."""
    return getting(path_of("adapters", ("adapter", adapter)), as_model(values.Adapter), {"user": user})


def preview_learning(cube: str | None = None, *, user: str | None = None) -> Call[values.Learnable]:
    """Return what would be learned now, and why other memories would not. Raises: NotFound."""
    return getting(path_of("adapters", "preview"), as_model(values.Learnable), {"cube": cube, "user": user})


def allow_learning(cube: str | None = None, *, user: str | None = None) -> Call[None]:
    """Allow that memories of a cube are learned, which they are not otherwise. Raises: NotFound, PermissionDenied."""
    return changing("POST", path_of("adapters", "allow"), nothing, body={"cube": cube, "user": user})


def disallow_learning(cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Take that back and remove what was learned; return how many adapters. Raises: NotFound, PermissionDenied."""

    def read(reply: Reply) -> int:
        return as_model(values.Consent)(reply).removed

    return changing("POST", path_of("adapters", "disallow"), read, body={"cube": cube, "user": user})


def train_adapter(cube: str | None = None, *, user: str | None = None) -> Call[values.Learning]:
    """Have an adapter trained in the background; `client.tasks.wait` waits for the `task` of the answer.

    Raises: NotFound, PermissionDenied, Conflict (not allowed, nothing to learn), BackendUnavailable (no model there).
    """
    return _learning("train", cube, user)


def retrain_adapter(cube: str | None = None, *, user: str | None = None) -> Call[values.Learning]:
    """Have one trained again where that is due; else the answer has the `adapter` that knows all there is to learn.

    Raises: as `train`.
    """
    return _learning("retrain", cube, user)


def activate_adapter(adapter: str, *, user: str | None = None) -> Call[values.Adapter]:
    """Let an adapter answer, instead of the one that does. Raises: NotFound, PermissionDenied, Conflict."""
    path = path_of("adapters", ("adapter", adapter), "activate")
    return changing("POST", path, as_model(values.Adapter), query={"user": user})


def rollback_adapter(cube: str | None = None, *, user: str | None = None) -> Call[values.Adapter]:
    """Let the adapter answer that did before. Raises: NotFound, PermissionDenied, Conflict (there is none)."""
    path, body = path_of("adapters", "rollback"), {"cube": cube, "user": user}
    return changing("POST", path, as_model(values.Adapter), body=body)


def diff_adapters(adapter: str, other: str | None = None, *, user: str | None = None) -> Call[values.AdapterDiff]:
    """Return which memories an adapter saw and another one, else the one before it, did not. Raises: NotFound."""
    path = path_of("adapters", ("adapter", adapter), "diff")
    return getting(path, as_model(values.AdapterDiff), {"other": other, "user": user})


def forget_learned(
    items: str | Sequence[str], cube: str | None = None, *, user: str | None = None
) -> Call[values.Unlearned]:
    """Have memories leave what was learned, and never be learned again; they themselves stay.

    Raises: NotFound, PermissionDenied, InvalidInput.
    """
    path, body = path_of("adapters", "forget"), _memories(items, cube, user)
    return changing("POST", path, as_model(values.Unlearned), body=body)


def learn_again(items: str | Sequence[str], cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Take that back; return of how many memories. Raises: NotFound, PermissionDenied, InvalidInput."""

    def read(reply: Reply) -> int:
        return as_model(values.LearnAgain)(reply).items

    return changing("POST", path_of("adapters", "learn-again"), read, body=_memories(items, cube, user))


def remove_adapter(adapter: str, *, user: str | None = None) -> Call[None]:
    """Remove an adapter and its files. Raises: NotFound, PermissionDenied."""
    return changing("DELETE", path_of("adapters", ("adapter", adapter)), nothing, query={"user": user})


def export_adapter(adapter: str, file: str | Path, *, user: str | None = None) -> Download[Path]:
    """Write an adapter's files into a new zip, which appears whole or not at all; return its path.

    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file is there; the adapter may not answer).
    """
    target = new_file(file)
    call = Call(
        "GET",
        path_of("adapters", ("adapter", adapter), "export"),
        lambda _: target,
        query=queried({"user": user}),
        repeatable=True,
        least_s=_SILENT_S,
    )
    return Download(call, target)


def _learning(how: str, cube: str | None, user: str | None) -> Call[values.Learning]:
    return changing("POST", path_of("adapters", how), as_model(values.Learning), body={"cube": cube, "user": user})


def _memories(items: str | Sequence[str], cube: str | None, user: str | None) -> dict[str, object]:
    return {"item_ids": [items] if isinstance(items, str) else list(items), "cube": cube, "user": user}


# A server loads the model, computes a whole prefix, or reads a whole disk tier before it says anything.


def show_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values.CubePrefix]:
    """Return the memories that prompts of a cube begin with. Raises: NotFound."""
    return getting(path_of("activation"), as_model(values.CubePrefix), {"cube": cube, "user": user})


def compose_prefix(cube: str | None = None, *, user: str | None = None) -> Call[str]:
    """Have that composed by what is hot and pinned now; return the task, for which `client.tasks.wait` waits.

    Raises: NotFound, PermissionDenied.
    """

    def read(reply: Reply) -> str:
        return as_model(values.Composing)(reply).task

    return changing("POST", path_of("activation", "compose"), read, body={"cube": cube, "user": user})


def warm_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values.Warmed]:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner.

    Raises: NotFound, PermissionDenied, BackendUnavailable (no model that keeps anything), ModelError.
    """
    path, body = path_of("activation", "warm"), {"cube": cube, "user": user}
    return replace(changing("POST", path, as_model(values.Warmed), body=body), least_s=_SILENT_S)


def drop_kv(cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Remove what is kept of a cube's prompts; return how many blocks. It is computed again when it is needed.

    Raises: NotFound, PermissionDenied, BackendUnavailable.
    """

    def read(reply: Reply) -> int:
        return as_model(values.Dropped)(reply).blocks

    return changing("POST", path_of("activation", "drop"), read, body={"cube": cube, "user": user})


def kv_stats(*, user: str | None = None) -> Call[values.KvStats]:
    """Return how full the tiers are with what is kept of all cubes, for admins. Raises: PermissionDenied."""
    return getting(path_of("activation", "stats"), as_model(values.KvStats), {"user": user})


def verify_kv(*, user: str | None = None) -> Call[tuple[str, ...]]:
    """Read every block on the disk, for admins; the damaged ones are removed, return their keys.

    Raises: PermissionDenied.
    """

    def read(reply: Reply) -> tuple[str, ...]:
        return as_model(values.Damaged)(reply).damaged

    return replace(changing("POST", path_of("activation", "verify"), read, query={"user": user}), least_s=_SILENT_S)
