"""The project's own promises: versions agree, settings are documented, examples and README blocks run, links stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from packaging.specifiers import SpecifierSet
from pydantic import BaseModel

import memos
from benchmarks.small_model import small_model
from memos.core.settings import Settings
from memos.memcube.ledger import engine, migrate, schema
from memos.memcube.ledger.engine import Ledger, sqlite_url
from tests.project import test_examples
from tests.support.servers.fixtures import unavailable
from tests.support.servers.memoryos_client import Missing, python_of
from tests.support.servers.openai_server import OpenAIServer, answer

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def test_the_version_is_the_changelogs_newest_release() -> None:
    heading = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading is not None
    assert heading[1] == memos.__version__
    assert f"version: {memos.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_constrained_versions_run_on_the_oldest_python() -> None:
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    needs = {}
    for name in pinned:
        with suppress(metadata.PackageNotFoundError):
            needs[name] = metadata.metadata(name).get("Requires-Python") or ""
    assert len(needs) > len(pinned) / 2
    assert {name: wanted for name, wanted in needs.items() if not SpecifierSet(wanted).contains("3.11.0")} == {}


def settings_of(model: type[BaseModel] = Settings, prefix: str = "MEMOS_") -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= settings_of(field.annotation, f"{prefix}{name.upper()}__")
        else:
            found.add(f"{prefix}{name.upper()}")
    return found


def test_there_are_at_most_sixty_settings_each_on_the_pages_about_them() -> None:
    """Otherwise: python scripts/settings_pages.py."""
    assert len(settings_of()) <= 60
    check = [sys.executable, "scripts/settings_pages.py", "--check"]
    assert subprocess.run(check, cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    "path",
    [
        README,
        ROOT / "docker-compose.yml",
        *sorted(page for page in (ROOT / "docs").rglob("*.md") if "development" not in page.parts),
        *sorted((ROOT / "deploy").glob("*.*")),
        *sorted((ROOT / "memos").rglob("*.py")),
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_what_is_told_to_be_set_is_a_setting(path: Path) -> None:
    if path.name == "settings.md" or path == ROOT / "memos/core/settings.py":
        return  # names that are wrong; former ones
    known = settings_of()
    for name in re.findall(r"MEMOS_[A-Z0-9]+__[A-Z0-9_]*", path.read_text(encoding="utf-8")):
        assert name in known or (name.endswith("__") and any(other.startswith(name) for other in known)), name


def test_the_packages_are_visible_at_the_root_through_links() -> None:
    for name in ("memcube", "scheduler", "reader", "api"):
        link = ROOT / name
        assert link.is_symlink()
        assert link.readlink() == Path("memos") / name
        assert link.is_dir()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(
    "page",
    [
        README,
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "clients").glob("*/README.md")),
        ROOT / "examples" / "README.md",
    ],
    ids=lambda page: page.stem,
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if urlsplit(link).scheme:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_picture_of_the_packages_is_what_the_code_says() -> None:
    """Otherwise: python scripts/architecture_picture.py."""
    assert (
        subprocess.run([sys.executable, "scripts/architecture_picture.py", "--check"], cwd=ROOT, check=False).returncode
        == 0
    )


def test_the_docs_have_thirty_thousand_words_at_the_most() -> None:
    """All of `docs` but the reference, in which one looks things up."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.relative_to(ROOT / "docs").parts[0] != "reference"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 30_000


def test_every_picture_is_on_a_page_and_made_by_a_command() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in [README, *(ROOT / "docs").rglob("*.md")])
    makers = "".join(
        path.read_text(encoding="utf-8") for name in ("scripts", "benchmarks") for path in (ROOT / name).glob("*.py")
    )
    for picture in filter(Path.is_file, (ROOT / "docs/images").rglob("*")):
        assert f"images/{picture.relative_to(ROOT / 'docs/images')}" in pages, picture.name
        commands = (picture.name, f'    ("{picture.stem}", ')  # a script's output; a page of the console
        plotted = f"--plot docs/images/{picture.name}"
        assert plotted in pages or any(command in makers for command in commands), picture.name


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    told = re.split(r"^## ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    [section] = [each for each in told if each.startswith("How well it works")]
    pages = [ROOT / "docs/benchmarks.md", *(ROOT / "docs/reference/benchmarks").glob("*.md")]
    measured = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    figures = re.findall(r"(?<![\w.])\d\.\d{2,3}(?![\w.])", section)
    assert len(figures) > 10
    assert [figure for figure in figures if figure not in measured] == []


def test_pages_that_code_and_tests_name_exist() -> None:
    for folder in ("memos", "benchmarks", "scripts", "tests", "examples", "deploy"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".html", ".sh", ".yml", ".toml"):
                for named in re.findall(r"(?<![/.\w])docs/[\w./-]+\.\w+", path.read_text(encoding="utf-8")):
                    assert (ROOT / named).exists(), f"{path.relative_to(ROOT)} names {named}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/development/architecture.md", "docs/development/release.md"])
def test_files_that_pages_for_developers_name_exist(page: str) -> None:
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", (ROOT / page).read_text(encoding="utf-8"))
    packages = {folder.name for folder in (ROOT / "memos").iterdir() if folder.is_dir()}
    for name in named:
        in_package = name.partition("/")[0] in packages - {"api"} or name.startswith("api/")
        places = [ROOT / name] if not in_package else [ROOT / "memos" / name, ROOT / "memos" / f"{name}.py"]
        assert any(place.exists() for place in places), name
    assert named


@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_the_ledgers_head_is_the_newest_migration_and_makes_the_declared_tables(tmp_path: Path) -> None:
    assert migrate._script().get_current_head() == engine.HEAD
    ledger = Ledger.open(sqlite_url(tmp_path / "ledger.db"))
    with ledger.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    ledger.close()


PAGES = (
    README,
    *(ROOT / "docs" / f"{page}.md" for page in ("reference/commands", "how-to/server", "how-to/evaluating")),
)
"""Pages of which every block is run by itself, each in its own folder."""
ELSEWHERE = {
    "how-to/documents.md": "tests/kernel/test_documents.py",
    "how-to/integrations": "tests/integrations/test_examples.py",
    "how-to/migrating/langmem.md": "tests/integrations/test_langmem_page.py",
    "how-to/migrating": "tests/compat/test_migrating.py",
    "reference/clients.md": "tests/processes/test_client_package.py",
    "reference/mcp.md": "tests/api/test_local.py",
    "reference/memcube-format.md": "tests/kernel/test_travel.py",
}
"""Pages, or folders of them, whose blocks another test runs."""
DOCS = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if page not in PAGES
    and "```python\n" in page.read_text(encoding="utf-8")
    and not any(str(page.relative_to(ROOT / "docs")).startswith(name) for name in ELSEWHERE)
)
"""All others: the blocks of each are run as one program."""


def blocks(language: str) -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server that `make serve` starts; what it says is in the environment of the README's blocks."""
    venv = Path(sys.prefix)
    command = ["make", "--silent", f"--old-file={venv / '.base'}", "serve", "PORT=0", f"VENV={venv}"]
    around = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    around |= {"MEMOS_HOME": str(tmp_path_factory.mktemp("served"))}
    with (
        OpenAIServer(lambda _: answer("You live in Lyon.")) as model,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**around, "MEMOS_CHAT_MODEL__BASE_URL": model.url, "MEMOS_CHAT_MODEL__MODEL": "scripted"},
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        url, key = (process.stdout.readline().split()[-1] for _ in range(2))
        yield {"MEMOS_BASE_URL": url, "MEMOS_API_KEY": key, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-test"}
        process.terminate()  # make tells it on


@pytest.mark.heavy
def test_make_serve_starts_a_server_on_loopback_that_its_key_opens(server: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {server['MEMOS_API_KEY']}"}
    me = httpx2.get(f"{server['MEMOS_BASE_URL']}/api/v1/me", headers=headers, timeout=60)
    assert urlsplit(server["MEMOS_BASE_URL"]).hostname == "127.0.0.1"
    assert me.json()["identity"]["admin"] is True


@pytest.mark.heavy
@pytest.mark.parametrize("block", blocks("python"), ids=range(len(blocks("python"))))
def test_python_blocks_run(block: str, tmp_path: Path, server: dict[str, str]) -> None:
    _run([sys.executable, "-W", "error", "-c", block], tmp_path, {**os.environ, **server})


@pytest.mark.heavy
@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_python_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path, server: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    environment = {**os.environ, "MEMOS_HOME": str(tmp_path / "home"), **server}
    if "memos.chat(" in code:
        model = {"MEMOS_CHAT_MODEL__BASE_URL": server["OPENAI_BASE_URL"], "MEMOS_CHAT_MODEL__MODEL": "scripted"}
        environment |= model
    _run([sys.executable, "-W", "error", "-c", code], tmp_path, environment)


def test_pages_whose_blocks_run_elsewhere_are_named_there() -> None:
    for name, test in ELSEWHERE.items():
        assert (ROOT / "docs" / name).exists()
        assert re.split(r"[/.]", name)[1] in (ROOT / test).read_text(encoding="utf-8"), name


@pytest.mark.heavy
@pytest.mark.parametrize("block", blocks("python memoryos"), ids=range(len(blocks("python memoryos"))))
def test_blocks_for_the_client_of_another_package_run_with_it(
    block: str, tmp_path: Path, server: dict[str, str]
) -> None:
    try:
        python = python_of()
    except Missing as missing:
        unavailable(str(missing))
    _run([str(python), "-I", "-c", block], tmp_path, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **server})


@pytest.mark.parametrize("block", blocks("json"), ids=range(len(blocks("json"))))
def test_a_host_can_start_what_the_readme_tells_it_to(block: str, tmp_path: Path) -> None:
    [host] = json.loads(block)["mcpServers"].values()
    assert host["command"] == "memos"
    arguments = [argument.replace("/home/me/memory", str(tmp_path / "home")) for argument in host["args"]]
    assert arguments != host["args"]
    started = StdioServerParameters(command=str(Path(sys.executable).parent / "memos"), args=arguments)

    async def run() -> None:
        async with Client(started) as client:
            assert "search_memories" in {tool.name for tool in (await client.list_tools()).tools}

    anyio.run(run)


@pytest.mark.heavy
@pytest.mark.parametrize("block", blocks("bash"), ids=range(len(blocks("bash"))))
def test_shell_blocks_run(block: str, tmp_path: Path, server: dict[str, str]) -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    _run(["/bin/bash", "-euo", "pipefail", "-c", block], tmp_path, {"PATH": path, "HOME": str(tmp_path), **server})


@pytest.mark.heavy
@pytest.mark.parametrize(
    "example",
    [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem not in test_examples.PRINTED],
    ids=lambda path: path.stem,
)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    if "the extra `local`" in example.read_text(encoding="utf-8") and find_spec("peft") is None:
        pytest.skip("needs the extra `local`: make setup-local")
    # Threads of PyTorch that wait for one another beside other tests take ten times as long as one.
    # What `make setup-local` unpacked once need not be unpacked again.
    model = [str(small_model())] if example.stem == "activation_memory" else []
    _run([sys.executable, "-W", "error", str(example), *model], tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.heavy
def test_without_the_extra_local_what_needs_it_is_skipped_when_tests_are_collected() -> None:
    # As after `make test` on a new machine, which CI is not: it installs that extra.
    missing = "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'peft', 'safetensors.torch']))"
    asked = "import pytest; sys.exit(pytest.main(['--collect-only', '-q', '-p', 'no:cacheprovider', 'tests']))"
    _run([sys.executable, "-c", f"{missing}; {asked}"], ROOT)


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
