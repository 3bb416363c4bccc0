"""The TypeScript client against a server of this tree: its own tests, the package that is packed, other runtimes.

What needs frameworks and other runtimes (600 MB of packages) is marked `typescript`: `make test-typescript` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from memos import MemOS, Settings
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings, ServerSettings
from memos.errors import NotFound
from memos.version import __version__
from tests.api.running import running
from tests.browser.conftest import browser
from tests.fakes import WordEmbedder
from tests.support.scripted_chat import ScriptedChat
from tests.support.servers.fixtures import unavailable

__all__ = ["browser"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clients" / "typescript"
FRAMEWORKS = PACKAGE / "tests" / "frameworks"
NODE = (20, 3)
TSC = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
SEEN = ["I keep bees in Lyon.", True, "string", "create", "You live in Lyon.", "available", "# Bees", "enough", 1]


class Served(NamedTuple):
    """A server with a scripted chat model, an admin's key, and the origin of pages that may call it."""

    memos: MemOS
    url: str
    admin: str
    origin: str

    def environment(self, key: str | None = None) -> dict[str, str]:
        """Return the environment of a program that uses the server."""
        told = {"MEMOS_BASE_URL": self.url, "MEMOS_API_KEY": key or self.admin, "MASTRA_TELEMETRY_DISABLED": "1"}
        return {**os.environ, **told}

    def key_of(self, user: str) -> str:
        """Return the key of a new user."""
        self.memos.users.create(user)
        return self.memos.keys.create(user, "test").secret

    def told(self, user: str) -> list[str]:
        """Return what is remembered of a user."""
        try:
            return [item.memory for item in self.memos.memories.list(cube=user)]
        except NotFound:
            return []


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(PACKAGE))) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_address[1]}"
        settings = Settings(
            index=IndexSettings(wait_s=30),
            limits=LimitSettings(min_free_bytes=1_000_000),
            server=ServerSettings(cors_origins=(origin,)),
        )
        model = ScriptedChat(lambda _: "You live in Lyon [m1].")
        home = tmp_path_factory.mktemp("served")
        with (
            MemOS.open(home, settings=settings, embedder=WordEmbedder(), chat_model=model) as memos,
            running(memos) as url,
        ):
            admin = first_key(memos)
            assert admin is not None
            yield Served(memos, url, admin, origin)
        pages.shutdown()


def run(*command: str | Path, cwd: Path = PACKAGE, **environment: str) -> str:
    """Run a program and return what it prints; if it fails, so does the test, with what it printed."""
    around = {**os.environ, "npm_config_update_notifier": "false", **environment}
    told = [str(part) for part in command]
    done = subprocess.run(told, cwd=cwd, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(folder: Path) -> Path:
    """Install what a package.json pins, once for each state of it, and return its `node_modules`."""
    modules, wanted = folder / "node_modules", (folder / "package.json").read_text(encoding="utf-8")
    stamp = modules / ".installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(modules, ignore_errors=True)
        run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", cwd=folder)
        stamp.write_text(wanted, encoding="utf-8")
    return modules


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of the built package."""
    version = run("node", "--version", cwd=ROOT) if shutil.which("npm") and shutil.which("node") else "v0"
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < NODE:
        unavailable("no Node 20.3 or later with npm here: install Debian's packages `nodejs` and `npm`")
    installed(PACKAGE)
    shutil.rmtree(PACKAGE / "dist", ignore_errors=True)
    run("node", TSC)
    return PACKAGE / "dist"


@pytest.fixture(scope="module")
def packed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packed package, a tarball."""
    assert built.is_dir()
    folder = tmp_path_factory.mktemp("packed")
    name = run("npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", folder).strip()
    return folder / name


def blocks(language: str) -> list[str]:
    told = (PACKAGE / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", told, re.MULTILINE | re.DOTALL)


def test_the_types_are_those_of_the_present_document(built: Path, served: Served) -> None:
    """Otherwise: python scripts/typescript_types.py."""
    assert built.is_dir()
    document = httpx2.get(f"{served.url}/api/v1/openapi.json", timeout=60).text
    types = subprocess.run(
        ["node", "scripts/types.mjs"], cwd=PACKAGE, input=document, stdout=subprocess.PIPE, text=True, check=True
    )
    assert (PACKAGE / "src" / "openapi.ts").read_text(encoding="utf-8") == types.stdout


def test_the_code_is_formatted_and_follows_the_rules(built: Path) -> None:
    assert built.is_dir()
    run(PACKAGE / "node_modules" / ".bin" / "biome", "check", ".")


def test_its_own_tests_pass_with_node(built: Path, served: Served) -> None:
    assert built.is_dir()
    shutil.rmtree(PACKAGE / "build", ignore_errors=True)
    run("node", TSC, "-p", "tests")
    told = run("node", "--test", "build/", **served.environment())
    assert re.search(r"^# pass [1-9]\d", told, re.MULTILINE)


def test_its_example_runs(built: Path, served: Served) -> None:
    assert built.is_dir()
    told = run("node", "examples/quickstart.mjs", **served.environment())
    assert "in June 2025: I live in Oslo and keep bees." in told
    assert "<memory>" in told


@pytest.mark.typescript
def test_the_packed_package_has_what_is_needed_and_runs_the_blocks_of_its_readme(
    packed: Path, served: Served, tmp_path: Path
) -> None:
    """In an empty project with strict types, which Node runs as it is, and from CommonJS."""
    listed = run("tar", "tzf", packed).split()
    assert {name for name in listed if "/dist/" not in name} == {f"package/{name}" for name in _AROUND}
    assert {name.removeprefix("package/dist/").split(".")[0] for name in listed if "/dist/" in name} == {
        path.name.split(".")[0] for path in (PACKAGE / "src").glob("*.ts") if not path.name.endswith(".d.ts")
    }
    told = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert told["version"] == __version__
    assert "dependencies" not in told
    pins = told["devDependencies"]
    tools = [f"{name}@{pins[name]}" for name in ("typescript", "@types/node")]
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    run("npm", "install", "--no-audit", "--no-fund", "--prefer-offline", packed, *tools, cwd=tmp_path)
    for number, block in enumerate(blocks("ts")):
        (tmp_path / f"block{number}.ts").write_text(block, encoding="utf-8")
    strict = (
        "--strict",
        "--exactOptionalPropertyTypes",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--lib",
        "es2022",
    )
    run("node", TSC, *strict, "--types", "node", *sorted(tmp_path.glob("*.ts")), cwd=tmp_path)
    for script in sorted(tmp_path.glob("*.js")):
        run("node", script, cwd=tmp_path, **served.environment())
    (tmp_path / "common.cjs").write_text(
        "console.log(Object.keys(require('hippocube-client')).length)", encoding="utf-8"
    )
    assert int(run("node", "--no-warnings", "common.cjs", cwd=tmp_path)) > 10


_AROUND = {"LICENSE", "README.md", "package.json"}


@pytest.fixture(scope="module")
def frameworks(packed: Path) -> Path:
    """The modules of frameworks and runtimes, with the packed package among them."""
    modules = installed(FRAMEWORKS)
    shutil.rmtree(modules / "hippocube-client", ignore_errors=True)
    (modules / "hippocube-client").mkdir()
    run("tar", "xzf", packed, "--strip-components=1", "-C", modules / "hippocube-client")
    return modules


@pytest.mark.typescript
def test_memory_in_agents_of_the_ai_sdk_and_of_mastra(frameworks: Path, served: Served) -> None:
    run("node", TSC, "-p", "tests/frameworks")
    node = frameworks / "node" / "bin" / "node"
    tests = sorted(FRAMEWORKS.glob("*.test.ts"))
    told = run(node, "--test", *tests, cwd=FRAMEWORKS, **served.environment())
    assert re.search(r"^# pass [1-9]\d", told, re.MULTILINE)


_PROVIDER = {
    "package.json": '{"type": "module", "exports": {"types": "./index.d.ts", "default": "./index.js"}}',
    "index.d.ts": """
import type { MockLanguageModelV3 } from "ai/test";
export declare function openai(model: string): MockLanguageModelV3;
""",
    "index.js": """
import { scripted, whereLives } from "../../../scripted.ts";
export const openai = () => scripted(whereLives).v6;
""",
}


@pytest.mark.typescript
@pytest.mark.parametrize("framework", ["ai-sdk", "mastra"])
def test_blocks_of_the_readme_for_frameworks_run(frameworks: Path, served: Served, framework: str) -> None:
    """With a package in the place of a provider's, whose model is scripted."""
    provider = frameworks / "@ai-sdk" / "openai"
    provider.mkdir(parents=True, exist_ok=True)
    for name, text in _PROVIDER.items():
        (provider / name).write_text(text, encoding="utf-8")
    [block] = blocks(f"ts {framework}")
    script = FRAMEWORKS / f"block-{framework}.mts"
    before = served.told("ana").count("I am allergic to nuts.")
    try:
        script.write_text(block, encoding="utf-8")
        run("node", TSC, "-p", "tests/frameworks")
        run(frameworks / "node" / "bin" / "node", script, cwd=FRAMEWORKS, **served.environment())
    finally:
        script.unlink(missing_ok=True)
        shutil.rmtree(provider)
    assert served.told("ana").count("I am allergic to nuts.") == before + 1


Program = Callable[[Path], list[str | Path]]


@pytest.mark.typescript
@pytest.mark.parametrize(
    ("runtime", "program"),
    [
        ("node-20", lambda _: ["node"]),
        ("node-22", lambda modules: [modules / "node" / "bin" / "node"]),
        ("bun", lambda modules: [modules / ".bin" / "bun"]),
        ("deno", lambda modules: [modules / ".bin" / "deno", "run", "--allow-net", "--allow-env"]),
    ],
)
def test_it_runs_in(frameworks: Path, served: Served, runtime: str, program: Program) -> None:
    key = served.key_of(f"runtime-{runtime}")
    told = run(*program(frameworks), "tests/runtimes/main.js", **served.environment(key))
    assert json.loads(told) == SEEN


@pytest.mark.typescript
def test_it_runs_in_a_browser_from_an_origin_that_the_server_allows(
    built: Path, served: Served, request: pytest.FixtureRequest
) -> None:
    assert built.is_dir()
    chromium = request.getfixturevalue("browser")
    key = served.key_of("runtime-browser")
    page = chromium.new_page()
    page.goto(f"{served.origin}/tests/runtimes/page.html#baseUrl={served.url}&apiKey={key}")
    assert page.evaluate("window.seen") == SEEN
    page.close()
