"""Whether bfloat16 pays: by what a processor says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

halves = pytest.importorskip("memos.backends.lora.resources", reason="needs the extra `local`: make setup-local")


@pytest.mark.parametrize(
    ("said", "pays"),
    [
        ("vendor_id\t: AuthenticAMD\nflags\t\t: avx512f avx512_bf16\n", True),
        ("vendor_id\t: GenuineIntel\nflags\t\t: avx512f avx512_bf16\n", False),
        ("vendor_id\t: GenuineIntel\nflags\t\t: avx512f avx512_bf16 amx_bf16 amx_tile\n", True),
        ("Features\t: asimd bf16 i8mm\n", True),
    ],
)
def test_intels_multiply_halves_faster_by_tiles_alone(
    said: str, pays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(halves, "_multiplies_bfloat16", lambda: True)
    assert halves.bfloat16_pays(), "nothing is told"
    (tmp_path / "cpuinfo").write_text(said)
    assert halves.bfloat16_pays() is pays
    monkeypatch.setattr(halves, "_multiplies_bfloat16", lambda: False)
    assert not halves.bfloat16_pays()
