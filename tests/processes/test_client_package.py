"""The distribution `hippocube-client`: built, alone in a fresh environment, against a server, and beside hippocube."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from memos import MemOS, Settings, __version__
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings
from tests.api.running import running
from tests.fakes import WordEmbedder

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("clients/python/README.md", "docs/reference/clients.md")
INSTALLED = """annotated-types anyio h11 hippocube-client httpcore2 httpx2 idna pydantic pydantic-core truststore
    typing-extensions typing-inspection"""

CALLS = """
import asyncio
import memos_client
from memos_client import AsyncMemOSClient, AddReceipt, Hit, MemOSClient, NotFound, Options, Streamed
from memos_client.errors import MemosError
from memos_client.values import SearchAnswer

with MemOSClient() as client:
    added = client.memories.add("I moved to Lyon.", mode="fine")
    assert isinstance(added, AddReceipt)
    followed = client.tasks.follow(added.task)
    assert isinstance(followed, Streamed)
    assert next(followed).id == added.task
    followed.close()
    [hit] = client.memories.search("Lyon")
    assert isinstance(hit, Hit) and hit.item.memory == "I moved to Lyon.", hit
    assert isinstance(client.search_memory("Lyon", user_id=client.users.me().identity.id), SearchAnswer)
    try:
        client.cubes.get("nowhere")
    except NotFound as error:
        assert isinstance(error, MemosError) and error.status == 404 and error.request_id
    else:
        raise AssertionError


async def ask():
    async with AsyncMemOSClient() as client:
        await client.memories.add("I keep bees.")
        assert "I keep bees." in [hit.item.memory for hit in await client.memories.search("bees")]
        async with await client.events.follow(after=0) as events:
            assert (await anext(events)).seq == 1


asyncio.run(ask())
"""

TYPED = """
from memos_client import Hit, Item, MemOSClient, NotFound, errors
from memos_client.values import SearchAnswer


def texts(client: MemOSClient) -> list[str]:
    found: list[Hit] = list(client.memories.search("Lyon"))
    first: Item = found[0].item
    answer: SearchAnswer = client.search_memory("Lyon", user_id="ana")
    kinds: list[type[errors.MemosError]] = [NotFound]
    return [first.memory, str(first.model_dump()), str(answer.memories), str(kinds)]
"""

CLASSES = """
import memos_client, memos_client.errors, memos_client.values
import memos.api.client, memos.api.values, memos.errors

assert memos_client.__all__ == memos.api.client.__all__
names = [name for name in memos_client.__all__ if name != "__version__"]
print(all(getattr(memos_client, name) is getattr(memos.api.client, name) for name in names))
print(any(getattr(memos_client, name) is getattr(memos.api.client, name) for name in names))
print(memos_client.errors.NotFound is memos.errors.NotFound, memos_client.values.Life is memos.api.values.Life)
"""


def run(*command: str | Path, environment: dict[str, str] | None = None, cwd: Path = Path("/")) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **(environment or {})},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(environment: Path, *what: str | Path) -> Path:
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    command = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*command, "--python", environment / "bin/python", *what)
    return environment / "bin/python"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, ROOT / "clients/python")
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [wheel] = built.glob(f"hippocube_client-{__version__}-py3-none-any.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has nothing but the client and what it needs."""
    return install(tmp_path_factory.mktemp("env") / "env", wheel)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home = tmp_path_factory.mktemp("home")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos, running(memos) as url:
        key = first_key(memos)
        assert key is not None
        yield {"MEMOS_BASE_URL": url, "MEMOS_API_KEY": key}


def test_it_brings_httpx_and_pydantic_alone(python: Path, built: Path) -> None:
    listed = run(sys.executable, "-m", "uv", "pip", "freeze", "--python", python)
    assert {re.split("==| @ ", line)[0] for line in listed.splitlines()} == set(INSTALLED.split())
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "NOTICE", "memos_client/py.typed", "memos_client/_memos/api/client/calls.py"} <= names


def test_both_clients_work_with_it_alone(python: Path, server: dict[str, str]) -> None:
    run(python, "-I", "-W", "error", "-c", CALLS, environment=server)


@pytest.mark.parametrize("page", PAGES)
def test_programs_of_its_pages_run(page: str, python: Path, server: dict[str, str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if "NotFound" in block]
    said = run(python, "-I", "-W", "error", "-c", block, environment=server)
    assert "I moved to Lyon." in said
    assert "No such" in said


def test_importing_it_loads_no_models_of_answers(python: Path) -> None:
    code = "import sys, memos_client; memos_client.NotFound; assert 'pydantic' not in sys.modules"
    run(python, "-I", "-W", "error", "-c", code)


def test_programs_that_use_it_are_type_checked(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, tmp_path / "program.py", cwd=tmp_path)


def test_an_error_is_named_as_it_is_imported(python: Path) -> None:
    named = "import memos_client as c, pickle; e = pickle.loads(pickle.dumps(c.Conflict('x'))); print(type(e))"
    assert run(python, "-I", "-c", named) == "<class 'memos_client.errors.Conflict'>\n"


def test_beside_hippocube_of_the_same_version_the_classes_are_the_same(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "beside")
    beside = {"PYTHONPATH": str(tmp_path / "beside")}
    assert run(sys.executable, "-W", "error", "-c", CLASSES, environment=beside).split() == ["True"] * 4
    told = tmp_path / "beside/memos_client/_memos/version.py"
    # Of another length: a file of one size and second counts as compiled.
    told.write_text(told.read_text().replace(__version__, "0.0.12345"))
    assert run(sys.executable, "-W", "error", "-c", CLASSES, environment=beside).split() == ["False"] * 4


BROKEN = {
    "core/closing.py": ("import numpy", "core.closing, line 4: the client may not import 'numpy'"),
    "errors.py": ("from memos.kernel import doctor", "errors: the client may not import 'memos.kernel.doctor'"),
    "api/client/calls.py": ("from memos import MemOS", "api.client.calls: the client may not import 'memos.MemOS'"),
    "api/client/v1_graph.py": ("import importlib; importlib.import_module('numpy')", "import with a statement"),
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("builder") / "env", "hatchling")


@pytest.mark.parametrize("module", BROKEN)
def test_a_build_fails_when_the_client_would_need_more(module: str, builder: Path, tmp_path: Path) -> None:
    for path in (ROOT / "memos").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    line, reason = BROKEN[module]
    changed = tmp_path / "memos" / module
    future = "from __future__ import annotations\n"
    changed.write_text(changed.read_text(encoding="utf-8").replace(future, f"{future}{line}\n", 1), encoding="utf-8")
    code = "import sys; from pathlib import Path; import hatch_build; hatch_build.client_modules(Path(sys.argv[1]))"
    done = subprocess.run(
        [builder, "-c", code, tmp_path], cwd=ROOT / "clients/python", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert reason in done.stderr
