"""The sdist, alone in an empty environment, imports and runs the demo from `/`; the wheel is what it installs."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from scripts.check_release import problems_of
from tests.support.servers.openai_server import OpenAIServer, answer

ROOT = Path(__file__).resolve().parents[2]
MAX_BASE_INSTALL_BYTES = 400 * 1024 * 1024
# Compiling all that is installed takes forty seconds of CPU; 4,745 compiled files took 1.22 times their sources.
COMPILED_BY_SOURCE = 1.3
INSTALLER = (sys.executable, "-m", "uv", "pip")


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


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the source distribution, and what it needs, alone."""
    [sdist] = built.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    run(*INSTALLER, "install", "--quiet", "--python", folder / "bin/python", sdist, cwd=folder)
    return folder


def test_they_are_small_and_contain_no_tests_and_no_models(built: Path) -> None:
    files = sorted(built.iterdir())
    assert len(files) == 2
    for file in files:
        assert problems_of(file) == []


def test_the_sdist_alone_installs_imports_and_runs_the_demo_and_the_wheel_is_what_it_installs(
    built: Path, environment: Path
) -> None:
    """What a wheel installs is decided by its bytes, so a second installation would show nothing more."""
    [wheel] = built.glob("*.whl")
    python = environment / "bin/python"
    listed = run(*INSTALLER, "list", "--python", python, cwd=built).split()
    assert not {"torch", "openai", "mcp", "fastapi"} & set(listed)
    assert size_of(environment) < MAX_BASE_INSTALL_BYTES
    location = Path(run(python, "-c", "import memos; print(memos.__file__)", cwd=Path("/")).strip())
    assert environment in location.parents
    said = run(environment / "bin/memos", "demo", cwd=Path("/"))
    assert "clean" in said
    assert "memos console" in said
    run(environment / "bin/memos", "--help", cwd=Path("/"))
    for command, extra in (("serve", "server"), ("console", "server"), ("mcp", "mcp")):
        refused = subprocess.run([environment / "bin/memos", command], capture_output=True, text=True, check=False)
        assert f"pip install '.[{extra}]'" in refused.stderr
        assert "Traceback" not in refused.stderr
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        [told] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    assert "memos/api/console/static/vendor/htmx.min.js" in held
    site = location.parents[1]
    kept = (path for path in location.parent.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert {str(path.relative_to(site)): path.read_bytes() for path in kept} == held
    [installed] = site.glob("hippocube-*.dist-info/METADATA")
    assert installed.read_text(encoding="utf-8") == told


def test_the_server_runs_beside_the_older_packages_that_frameworks_want(
    built: Path, environment: Path, tmp_path: Path
) -> None:
    """CrewAI wants openai 2, Semantic Kernel mcp 1; this test changes the environment and comes last."""
    [wheel] = built.glob("*.whl")
    python, wanted = environment / "bin/python", f"hippocube[server] @ file://{wheel}"
    run(*INSTALLER, "install", "--quiet", "--python", python, wanted, "openai<3", "mcp<2", cwd=tmp_path)
    memos = environment / "bin/memos"
    with (
        OpenAIServer(lambda _: answer("You live in Lyon.")) as model,
        subprocess.Popen(
            [memos, "serve", "--port", "0", "--data-dir", tmp_path / "home"],
            stdout=subprocess.PIPE, text=True, cwd="/",
            env={
                "PYTHONUNBUFFERED": "1", "HOME": str(tmp_path), "MEMOS_CHAT_MODEL__BASE_URL": model.url,
                "MEMOS_CHAT_MODEL__MODEL": "scripted",
            },
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        url, key = (process.stdout.readline().split()[-1] for _ in range(2))
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
            said = http.post("/api/v1/chat", json={"query": "Where do I live?"})
            assert said.json()["text"] == "You live in Lyon.", said.text
            refused = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert refused.status_code == 503
            assert re.search(r"pip install '\.\[mcp\]'.* 1\.\d+\.\d+ is installed", refused.json()["error"]["message"])
        process.terminate()
    assert process.returncode == 0
    told = subprocess.run([memos, "mcp"], capture_output=True, text=True, check=False, cwd="/")
    assert "pip install '.[mcp]'" in told.stderr
