"""The requests of `/api/v1` about activation memory: each function describes one, named as in `MemOS.kv`."""

from __future__ import annotations

from dataclasses import replace

from memos.api.client import values as values_kv
from memos.api.client.calls import Call, Reply, as_model
from memos.api.client.v1_requests import changing, getting, path_of

# A server loads the model, computes a whole prefix, or reads a whole disk tier before it says anything.
_SILENT_S = 300.0


def show_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values_kv.CubePrefix]:
    """Return the memories that prompts of a cube begin with. Raises: NotFound."""
    return getting(path_of("activation"), as_model(values_kv.CubePrefix), {"cube": cube, "user": user})


def compose_prefix(cube: str | None = None, *, user: str | None = None) -> Call[str]:
    """Have that composed by what is hot and pinned now; return the task, for which `client.tasks.wait` waits.

    Raises: NotFound, PermissionDenied.
    """

    def read(reply: Reply) -> str:
        return as_model(values_kv.Composing)(reply).task

    return changing("POST", path_of("activation", "compose"), read, body={"cube": cube, "user": user})


def warm_prefix(cube: str | None = None, *, user: str | None = None) -> Call[values_kv.Warmed]:
    """Have the model compute what prompts of a cube begin with, so that the next answer begins sooner.

    Raises: NotFound, PermissionDenied, BackendUnavailable (no model that keeps anything), ModelError.
    """
    path, body = path_of("activation", "warm"), {"cube": cube, "user": user}
    return replace(changing("POST", path, as_model(values_kv.Warmed), body=body), least_s=_SILENT_S)


def drop_kv(cube: str | None = None, *, user: str | None = None) -> Call[int]:
    """Remove what is kept of a cube's prompts; return how many blocks. It is computed again when it is needed.

    Raises: NotFound, PermissionDenied, BackendUnavailable.
    """

    def read(reply: Reply) -> int:
        return as_model(values_kv.Dropped)(reply).blocks

    return changing("POST", path_of("activation", "drop"), read, body={"cube": cube, "user": user})


def kv_stats(*, user: str | None = None) -> Call[values_kv.KvStats]:
    """Return how full the tiers are with what is kept of all cubes, for admins. Raises: PermissionDenied."""
    return getting(path_of("activation", "stats"), as_model(values_kv.KvStats), {"user": user})


def verify_kv(*, user: str | None = None) -> Call[tuple[str, ...]]:
    """Read every block on the disk, for admins; the damaged ones are removed, return their keys.

    Raises: PermissionDenied.
    """

    def read(reply: Reply) -> tuple[str, ...]:
        return as_model(values_kv.Damaged)(reply).damaged

    return replace(changing("POST", path_of("activation", "verify"), read, query={"user": user}), least_s=_SILENT_S)
