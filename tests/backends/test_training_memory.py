"""What is free to train with: of the machine, and of what a container may have."""

from __future__ import annotations

from pathlib import Path

import pytest

training_memory = pytest.importorskip(
    "memos.backends.lora.resources", reason="needs the extra `local`: make setup-local"
)

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a machine with 16 GiB free, and of a container that may have 8 and has 7, 5 of them cached files."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {16 * GIB // 1024} kB\n")
    (tmp_path / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{7 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {2 * GIB}\ninactive_file {4 * GIB}\nactive_file {GIB}\n")
    monkeypatch.setattr(training_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(training_memory, "_CGROUP", tmp_path)
    return tmp_path


def test_cached_files_of_a_container_are_free(group: Path) -> None:
    assert training_memory._free_bytes() == 6 * GIB


def test_without_a_limit_the_machine_counts(group: Path) -> None:
    (group / "memory.max").write_text("max\n")
    assert training_memory._free_bytes() == 16 * GIB
    (group / "memory.max").unlink()
    assert training_memory._free_bytes() == 16 * GIB


def test_no_container_has_more_than_its_machine(group: Path) -> None:
    (group / "memory.max").write_text(f"{64 * GIB}\n")
    assert training_memory._free_bytes() == 16 * GIB
