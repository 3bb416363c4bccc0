"""A new user's walk: a fresh copy of the repository, an empty home, and nothing but the blocks of the README."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ ([^#\n]*[^#\s])", README, re.MULTILINE)
"""Every command of the README's blocks, in its order."""
OPTIONAL = ("documents", "local", "make test")
"""Install commands that are not run: extras of hundreds of megabytes, and the tests themselves."""

pytestmark = pytest.mark.heavy


class Walk:
    """The user: a clone, a home, and a shell in which commands are typed one after the other."""

    def __init__(self, folder: Path) -> None:
        self.clone, self.home = folder / "hippocube", folder / "home"
        self.home.mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            target = self.clone / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).exists():
                shutil.copy2(ROOT / name, target, follow_symlinks=False)
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "BROWSER": "true",
            "PORT": "0",
        }
        python = shutil.which("python3")
        assert python is not None
        self.env["PATH"] = f"{Path(python).parent}:{self.env['PATH']}"

    def type(self, command: str, answer: str = "") -> str:
        """Run a command as the README has it, in the activated environment once there is one."""
        activated = f". .venv/bin/activate 2>/dev/null; {command}"
        done = subprocess.run(
            ["bash", "-c", activated], cwd=self.clone, env=self.env, input=answer, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(tmp_path_factory.mktemp("walk"))


@pytest.fixture(scope="module")
def installed(walk: Walk) -> Walk:
    """The user after `make demo` and the commands of "Install"."""
    assert COMMANDS[:2] == ["make demo", "make console"]
    walk.type("make demo")
    for command in COMMANDS[2:]:
        if not any(word in command for word in OPTIONAL):
            walk.type(command)
    return walk


@pytest.fixture
def console(installed: Walk) -> Iterator[str]:
    """The link that `make console` prints."""
    with subprocess.Popen(
        ["make", "console"], cwd=installed.clone, env=installed.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = ""
        until = time.monotonic() + 300
        while not (link := re.search(r"http://127\.0\.0\.1:\d+/console\S*", said)) and time.monotonic() < until:
            said += process.stdout.readline()
        assert link is not None, said
        yield link[0]
        os.killpg(process.pid, signal.SIGINT)


def test_the_console_opens(console: str) -> None:
    """The link is the form of one button, which a browser sends."""
    with httpx2.Client(follow_redirects=True, timeout=60) as browser:
        assert browser.get(console).status_code == 200
        address, _, link = console.partition("?link=")
        page = browser.post(address, data={"link": link})
    assert page.status_code == 200
    assert {"Ask", "Memories", "Timeline"} <= set(re.findall(r"[A-Z]\w+", re.sub(r"<[^>]+>", " ", page.text)))
    assert "API key" not in page.text


def test_a_script_has_memory(installed: Walk) -> None:
    script = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    (installed.clone / "try.py").write_text(script, encoding="utf-8")
    assert installed.type("python try.py").splitlines()[0] == "I moved to Lyon."


def test_claude_code_has_memory(installed: Walk) -> None:
    assert "`memos claude install`" in README
    installed.type("memos claude install", answer="y\n")
    [plugin] = (installed.home / ".claude").rglob("plugin.json")
    assert json.loads(plugin.read_text(encoding="utf-8"))["name"] == "hippocube"


def test_the_first_program_is_near_the_top() -> None:
    """Line 30 at the latest, of about 120."""
    lines = README.splitlines()
    assert lines.index("```python") < 30
    assert len(lines) <= 130
