"""The wheel and the sdist, each alone in an empty environment, import and run the demo from `/`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_BASE_INSTALL_BYTES = 400 * 1024 * 1024


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_a_distribution_installs_imports_and_runs_the_demo(built: Path, tmp_path: Path, pattern: str) -> None:
    [distribution] = built.glob(pattern)
    environment = tmp_path / "env"
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    python = environment / "bin/python"
    empty = size_of(environment)  # pip's own size is not ours
    run(python, "-m", "pip", "install", "--quiet", distribution, cwd=tmp_path)
    assert "torch" not in run(python, "-m", "pip", "list", cwd=tmp_path)
    assert size_of(environment) - empty < MAX_BASE_INSTALL_BYTES
    location = run(python, "-c", "import memos; print(memos.__file__)", cwd=Path("/"))
    assert str(environment) in location
    said = run(environment / "bin/memos", "demo", cwd=Path("/"))
    assert "clean" in said
    run(environment / "bin/memos", "--help", cwd=Path("/"))
