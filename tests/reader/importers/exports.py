"""Small exports of other programs, as these programs write them, and what is read of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memos.core.types import Json
from memos.reader.importers.base import ExportRecord
from memos.reader.importers.formats import Format, checked, detect, read_export
from memos.reader.importers.sources import ExportOptions, Given

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def write(folder: Path, files: Mapping[str, Json]) -> Path:
    """Write files, text as it is and anything else as JSON, into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, str | bytes) else json.dumps(content, ensure_ascii=False)
        path.write_bytes(raw if isinstance(raw, bytes) else raw.encode())
    return folder


def zipped(path: Path, files: Mapping[str, Json]) -> Path:
    """Write the same files as a ZIP archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            raw = content if isinstance(content, str | bytes) else json.dumps(content, ensure_ascii=False)
            archive.writestr(name, raw)
    return path


def read(given: Given, zone: str = "UTC", **options: Any) -> tuple[Format, list[ExportRecord]]:
    """Return the format that is recognised, and the records that an import would get."""
    wanted = ExportOptions(**options)
    found = detect(given, wanted.name)
    return found, [entry.record for entry in checked(read_export(given, found, None, wanted), ZoneInfo(zone), NOW)]


def said(records: list[ExportRecord]) -> list[tuple[str, str, Json]]:
    """Return conversation, speaker and content of every message."""
    return [
        (each.conversation, each.message.get("name") or each.message.get("role", "user"), each.message["content"])
        for each in records
        if each.message
    ]


def times(records: list[ExportRecord]) -> list[str]:
    """Return when each message was said."""
    return [str(each.message.get("chat_time")) for each in records if each.message]


def left_out(records: list[ExportRecord]) -> dict[str, int]:
    """Return how much was left out for which reason."""
    reasons: dict[str, int] = {}
    for each in records:
        if each.left_out:
            reasons[each.reason] = reasons.get(each.reason, 0) + each.left_out
    return reasons


def problems(records: list[ExportRecord]) -> list[tuple[str, str]]:
    """Return place and problem of what could not be read."""
    return [(each.place, each.problem) for each in records if each.problem is not None]
