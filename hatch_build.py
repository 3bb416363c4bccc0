"""Build hook: fetch the scripts of other projects that the console serves, and check them.

They come from Python packages through pip, whose hashes are fixed here, so that neither a checkout nor a build needs
Node. Files that are there with the right digest are kept: a source distribution contains them and builds offline.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDOR = Path("memos/api/console/static/vendor")


class Script(NamedTuple):
    """A file that a wheel contains: the pinned package, the wheel's digest, the file in it, and the file's digest."""

    package: str
    wheel: str
    member: str
    digest: str


SCRIPTS = {
    "htmx.min.js": Script(
        "django-htmx==1.29.0",
        "0ec5be1645ed71e6787bd75e0250624f00274ac3bb1730f07b6629a95688929b",
        "django_htmx/static/django_htmx/htmx-2.min.js",
        "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de",
    ),
    "vis-network.min.js": Script(
        "pyvis==0.3.2",
        "5720c4ca8161dc5d9ab352015723abb7a8bb8fb443edeb07f7a322db34a97555",
        "pyvis/lib/vis-9.1.2/vis-network.min.js",
        "1f20f0736f32cb9bedf8f6383b25cfea2f839e1abe80d6e8040b4d5bea378c69",
    ),
}


def fetch(root: Path) -> None:
    """Put each script that is missing or differs into the folder of static files."""
    for name, script in SCRIPTS.items():
        target = root / VENDOR / name
        if not (target.is_file() and _digest(target.read_bytes()) == script.digest):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_member(script))


def _member(script: Script) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text(f"{script.package} --hash=sha256:{script.wheel}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run([*command, "--only-binary=:all:", "--dest", folder, "-r", str(wanted)], check=False)
        if done.returncode:
            raise RuntimeError(
                f"pip cannot fetch {script.package}, which contains a script of the console; "
                "build where a package index can be reached, or from a source distribution, which contains it"
            )
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as packed:
            content = packed.read(script.member)
    if _digest(content) != script.digest:
        raise RuntimeError(f"{script.member} of {script.package} is not the file that was checked")
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class ScriptsHook(BuildHookInterface):
    """Fetches the scripts before a wheel, a source distribution or an editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the scripts, and have the build take them although git ignores them."""
        fetch(Path(self.root))
        build_data["artifacts"].extend(f"/{VENDOR}/{name}" for name in SCRIPTS)
