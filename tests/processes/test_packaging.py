"""The sdist, alone in an empty environment, imports and runs the demo from `/`; the wheel is what it installs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_BASE_INSTALL_BYTES = 400 * 1024 * 1024
# Compiling all that is installed takes forty seconds of CPU; 4,745 compiled files took 1.22 times their sources.
COMPILED_BY_SOURCE = 1.3


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def size_of(folder: Path) -> float:
    """Return the bytes of an environment once every module is compiled, as pip leaves it and uv does not."""
    sizes = [(path.suffix, path.lstat().st_size) for path in folder.rglob("*") if path.suffix != ".pyc"]
    return sum(size * (1 + COMPILED_BY_SOURCE * (suffix == ".py")) for suffix, size in sizes)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_the_sdist_alone_installs_imports_and_runs_the_demo_and_the_wheel_is_what_it_installs(
    built: Path, tmp_path: Path
) -> None:
    """What a wheel installs is decided by its bytes, so a second installation would show nothing more."""
    [sdist], [wheel] = built.glob("*.tar.gz"), built.glob("*.whl")
    environment = tmp_path / "env"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin/python"
    installer = (sys.executable, "-m", "uv", "pip")
    run(*installer, "install", "--quiet", "--python", python, sdist, cwd=tmp_path)
    assert "torch" not in run(*installer, "list", "--python", python, cwd=tmp_path)
    assert size_of(environment) < MAX_BASE_INSTALL_BYTES
    location = Path(run(python, "-c", "import memos; print(memos.__file__)", cwd=Path("/")).strip())
    assert environment in location.parents
    said = run(environment / "bin/memos", "demo", cwd=Path("/"))
    assert "clean" in said
    assert "memos console" in said
    run(environment / "bin/memos", "--help", cwd=Path("/"))
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        [told] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    assert "memos/api/console/static/vendor/htmx.min.js" in held
    site = location.parents[1]
    kept = (path for path in location.parent.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert {str(path.relative_to(site)): path.read_bytes() for path in kept} == held
    [installed] = site.glob("hippocube-*.dist-info/METADATA")
    assert installed.read_text(encoding="utf-8") == told
