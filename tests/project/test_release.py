"""`scripts/check_release.py` names what a distribution must not contain; tests/processes has the real ones."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import check_release, lock


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("memos/search/searcher.py", None),
        ("memos/model.onnx", "contains memos/model.onnx"),
        ("memos/tests/test_search.py", "contains memos/tests/test_search.py"),
        ("tests/data/home.zip", "contains tests/data/home.zip"),
        (".env", "contains .env"),
    ],
)
def test_a_file_that_does_not_belong_there_is_named(name: str, problem: str | None, tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "hippocube-1.0-py3-none-any.whl", tmp_path / "hippocube-1.0.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, "x")
        archive.writestr("hippocube-1.0.dist-info/METADATA", "x")
    (tmp_path / "file").write_text("x")
    with tarfile.open(sdist, "w:gz") as packed:
        packed.add(tmp_path / "file", f"hippocube-1.0/{name}")
    assert [check_release.problems_of(file) for file in (wheel, sdist)] == [[problem] if problem else []] * 2


def test_a_large_distribution_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "hippocube-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("memos/large.py", bytes(check_release.MOST_BYTES))
    assert check_release.problems_of(wheel) == [
        f"is {wheel.stat().st_size:,} bytes, more than {check_release.MOST_BYTES:,}"
    ]


def test_all_that_is_needed_to_serve_is_pinned_with_its_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lock.problems() == []
    text = lock.HASHES.read_text(encoding="utf-8")
    changed = tmp_path / lock.HASHES.name
    monkeypatch.setattr(lock, "HASHES", changed)
    changed.write_text(text.replace("\nanyio==", "\nanyio==0"), encoding="utf-8")
    assert [problem.split()[0] for problem in lock.problems()] == ["anyio"]
    changed.write_text(text.replace("\nnumpy==", "\nnumpi=="), encoding="utf-8")
    assert any("numpy has no digest" in problem for problem in lock.problems())
