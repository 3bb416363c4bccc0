"""The requests of `/api/v1` that move cubes as files: each function describes one, named as in `MemOS.travel`."""

from __future__ import annotations

from pathlib import Path

from memos.api.client import values
from memos.api.client.address import Misused
from memos.api.client.calls import Call, Download, as_model
from memos.api.client.openmem import existing
from memos.api.client.own import path_of, queried
from memos.errors import Conflict

# A server writes and checks a whole file before it says anything.
_SILENT_S = 1_800.0
_LONGEST_PASSPHRASE = 1_024


def dump_cube(
    cube: str, file: str | Path, *, passphrase: str | None = None, vectors: bool = True, kv: bool = False,
    adapters: bool = False, user: str | None = None,
) -> Download[Path]:  # fmt: skip
    """Write a cube with its history into a new file, which appears whole or not at all; return its path.

    With a passphrase it is sealed; with `kv` it has what models in the server keep of its prompts, with `adapters`
    the weights of those that answer for it.
    Raises: InvalidInput, NotFound, PermissionDenied, Conflict (the file is there).
    """
    target, query = new_file(file), queried({"vectors": vectors, "kv": kv, "adapters": adapters, "user": user})
    call = Call(
        "GET", path_of("cubes", ("cube", cube), "dump"), lambda _: target, query=query, headers=_sealed(passphrase),
        repeatable=True, least_s=_SILENT_S,
    )  # fmt: skip
    return Download(call, target)


def load_cube(
    file: str | Path,
    *,
    cube: str | None = None,
    merge: bool = False,
    trust: bool = False,
    restore_erased: bool = False,
    passphrase: str | None = None,
    user: str | None = None,
) -> Call[values.Loaded]:
    """Load a dump as a new cube, under its own id or `cube`; with `merge` into one that is there. All of it or nothing.

    What it says counts as untrusted unless `trust`; what was erased there stays erased unless `restore_erased`.
    Raises: InvalidInput (damaged, sealed, none), Conflict (the id is taken), NotFound, PermissionDenied.
    """
    query = {
        "cube": cube, "merge": merge, "trust": trust, "restore_erased": restore_erased, "user": user
    }  # fmt: skip
    return Call(
        "POST", path_of("cubes", "load"), as_model(values.Loaded), query=queried(query), headers=_sent(passphrase),
        upload=existing("file", file), least_s=_SILENT_S,
    )  # fmt: skip


def inspect_dump(file: str | Path, *, passphrase: str | None = None) -> Call[values.Dump]:
    """Have a dump checked and say what it is of, loading nothing. Raises: InvalidInput (damaged, sealed, none)."""
    return Call(
        "POST", path_of("cubes", "inspect"), as_model(values.Dump), headers=_sent(passphrase),
        upload=existing("file", file), least_s=_SILENT_S, repeatable=True,
    )  # fmt: skip


def new_file(file: str | Path) -> Path:
    """Return where a file is to be written. Raises: Conflict (it is there), InvalidInput."""
    try:
        target = Path(file).expanduser()
        there, folder = target.exists(), target.parent.is_dir()
    except (TypeError, ValueError, OSError, RuntimeError):
        raise Misused("file", f"is no path: {file!r:.200}") from None
    if there:
        raise Conflict(f"{target} exists already; choose another name, or remove it first.")
    if not folder:
        raise Misused("file", f"lies in no folder that is there: {str(target)!r:.200}")
    return target


def _sent(passphrase: str | None) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", **_sealed(passphrase)}


def _sealed(passphrase: str | None) -> dict[str, str]:
    if passphrase is None:
        return {}
    fine = isinstance(passphrase, str) and 0 < len(passphrase) <= _LONGEST_PASSPHRASE
    # A header's value has no line ends, and loses spaces around it.
    if not fine or not passphrase.isprintable() or passphrase != passphrase.strip():
        raise Misused("passphrase", f"must be 1 to {_LONGEST_PASSPHRASE:,} printable characters without spaces around")
    return {"X-Memos-Passphrase": passphrase}
