"""The files of a trained adapter: which there are, and whether they are still what was examined. Knows no ledger.

Weights are told by the ledger, the configuration by the manifest beside it: both change what answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from memos.core.recipes import ADAPTER_FILE
from memos.core.types import Json
from memos.errors import BackendUnavailable, IntegrityError

CONFIG, MANIFEST, CARD = "adapter_config.json", "manifest.json", "README.md"
FILES = (CONFIG, ADAPTER_FILE, MANIFEST)
"""The files without which an adapter cannot answer."""

_MOST_BYTES = 16 << 20
"""Of a manifest: some 150 bytes for each memory."""


def digests(folder: Path) -> dict[str, str]:
    """Return what a manifest says of the files beside it: SHA-256, in hexadecimal. Raises: OSError."""
    return {"weights_sha256": _digest_of(folder / ADAPTER_FILE), "config_sha256": _digest_of(folder / CONFIG)}


def manifest_in(folder: Path) -> dict[str, Json]:
    """Return a manifest. Raises: OSError, ValueError or RecursionError (it is not what was written)."""
    with (folder / MANIFEST).open("rb") as file:
        told = json.loads(file.read(_MOST_BYTES))
    if not isinstance(told, dict):
        raise ValueError(MANIFEST)
    return told


def check(folder: Path, digest: str | None) -> None:
    """See that an adapter's files are those that were examined; `digest` is that of its weights.

    Raises: IntegrityError, which says what is wrong.
    """
    if (wrong := wrong_with(folder, digest)) is not None:
        raise IntegrityError(f"The adapter in {folder} cannot be used: {wrong}.")


def wrong_with(folder: Path, digest: str | None) -> str | None:
    """Return what is wrong with an adapter's files, None when nothing is."""
    try:
        for name in FILES:
            if not (folder / name).is_file():
                return f"{name} is missing"
        found = digests(folder)
        told = manifest_in(folder)
    except OSError as error:
        return f"its files cannot be read ({error.strerror or type(error).__name__})"
    except (ValueError, RecursionError):
        return f"{MANIFEST} is not what was written"
    if found["weights_sha256"] != digest:
        return f"{ADAPTER_FILE} is not what was examined"
    if told.get("config_sha256") != found["config_sha256"]:
        return f"{CONFIG} is not what was examined"
    return None


def card_of(manifest: Mapping[str, Json]) -> str:
    """Return what is said of an adapter to who is handed it: a model card, with its manifest."""
    told, model = json.dumps(manifest, indent=1, ensure_ascii=False), str(manifest.get("model", ""))
    # A name of the hub is what a card links; of a folder here only the last part says something elsewhere.
    base = Path(model).name if Path(model).is_absolute() else model
    head = f"base_model: {json.dumps(base)}\n" if base else ""
    return (
        f"---\n{head}library_name: peft\n---\n\n# Adapter of a memory cube\n\nIt knows memories of people: treat it as "
        "you treat them. It was trained on questions about the memories that are named below by id, and answers best "
        f"together with what is looked up. Made by memstrata.\n\n```json\n{told}\n```\n"
    )


def unwritten(why: object) -> BackendUnavailable:
    """Return what a training ends with when the disk takes no more of it."""
    return BackendUnavailable(
        f"The adapter could not be written ({why}): free some disk and train again; it goes on from what was kept."
    )


def _digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
