"""Check what is in `dist` before it is uploaded: `make release-check` builds it and runs this.

Names, versions, sizes and contents of the distributions, `twine check`, and an installation of the wheels in an empty
environment, of files whose digests are known (`scripts/lock.py`), in which the README's first program and the examples
that need no extra run. Writes a bill of materials (CycloneDX) of that environment beside the distributions. Needs a
package index.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 5 * 1024 * 1024
# What no distribution contains: models, archives, and data of tests and benchmarks.
UNWANTED = {".onnx", ".gguf", ".safetensors", ".bin", ".pt", ".memcube", ".zip", ".gz", ".db", ".jsonl", ".pyc", ".env"}
MAY_BE_JSONL = "examples/data/"
PARTS = {
    "hippocube": {"memos", "examples", "hatch_build.py", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md"},
    "hippocube_client": {"memos_client", "hatch_build.py", "README.md", "LICENSE", "NOTICE"},
}
ALWAYS = {"pyproject.toml", "PKG-INFO", ".gitignore"}
UV = (sys.executable, "-m", "uv")


def version() -> str:
    """Return the version, which every file that has one must have. Raises: SystemExit."""
    told = {
        "memos/version.py": r'__version__ = "([^"]+)"',
        "CHANGELOG.md": r"^## \[(\d[^\]]*)\]",
        "CITATION.cff": r"^version: (.+)$",
        "docker-compose.yml": r"image: hippocube:(\S+)",
        "clients/typescript/package.json": r'"version": "([^"]+)"',
    }
    found = {}
    for name, pattern in told.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1] if match else "none"
    if len(set(found.values())) != 1:
        sys.exit(f"versions differ: {found}")
    return found["memos/version.py"]


def problems_of(file: Path) -> list[str]:
    """Return what is wrong with the size and the contents of a distribution."""
    size = file.stat().st_size
    found = [f"is {size:,} bytes, more than {MOST_BYTES:,}"] if size > MOST_BYTES else []
    package = file.name.partition("-")[0]
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
        wanted = {next(iter(PARTS[package] & {"memos", "memos_client"}))}
        names = [name for name in names if ".dist-info/" not in name]
    else:
        with tarfile.open(file) as archive:
            names = [info.name.partition("/")[2] for info in archive.getmembers() if info.isfile()]
        wanted = PARTS[package] | ALWAYS
    for name in names:
        path = PurePosixPath(name)
        if path.parts[0] not in wanted:
            found.append(f"contains {name}")
        if path.suffix in UNWANTED and not name.startswith(MAY_BE_JSONL):
            found.append(f"contains {name}")
        if {"tests", "node_modules", "__pycache__"} & set(path.parts):
            found.append(f"contains {name}")
    return sorted(set(found))


def run(*command: str | Path, cwd: Path, home: Path) -> str:
    """Run a command in an environment of its own; return what it prints. Raises: SystemExit."""
    around = {"PATH": os.environ["PATH"], "HOME": str(home), "VOICE_BUDGET_S": "60"}
    around |= {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_", "LANG"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=around, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def try_installed(files: list[Path], scratch: Path, number: str) -> None:
    """Install the wheels alone, run the README's first program and the examples, and write the bill of materials."""
    environment, home = scratch / "environment", scratch / "home"
    home.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=scratch, home=home)
    python = environment / "bin/python"
    wheels = [file for file in files if file.suffix == ".whl"]
    constraints = ("--constraint", ROOT / "constraints.txt", "--constraint", ROOT / "constraints-hashes.txt")
    run(*UV, "pip", "install", "--quiet", "--python", python, *constraints, *wheels, cwd=scratch, home=home)
    for command in ("memos", "hippocube"):
        assert number in run(environment / "bin" / command, "--version", cwd=scratch, home=home)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if first is None:
        sys.exit("README.md has no program")
    said = run(python, "-I", "-W", "error", "-c", first[1], cwd=scratch, home=home)
    print(f"the README's first program prints:\n{said}")
    page = (ROOT / "examples/README.md").read_text(encoding="utf-8").partition("## One feature")[0]
    for name in re.findall(r"\]\((\w+\.py)\)", page):
        run(python, "-I", "-W", "error", ROOT / "examples" / name, cwd=scratch, home=home)
        print(f"examples/{name} runs")
    target = files[0].parent / f"hippocube-{number}.cdx.json"
    made = ("cyclonedx-py", "environment", "--output-reproducible", "--of", "JSON", "-o", target, python)
    run(*UV, "tool", "run", "--quiet", "--from", "cyclonedx-bom", *made, cwd=scratch, home=home)
    bill = json.loads(target.read_text(encoding="utf-8"))
    for component in bill["components"]:  # the wheels lay in a folder of this machine
        links = component.get("externalReferences", [])
        component["externalReferences"] = [link for link in links if not link["url"].startswith("file:")]
    target.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    print(f"{target.name}: {len(bill['components'])} components")


def main() -> None:
    """Check the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    folder: Path = parser.parse_args().folder.resolve()
    number = version()
    files = [folder / f"{package}-{number}{kind}" for package in PARTS for kind in (".tar.gz", "-py3-none-any.whl")]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        sys.exit(f"{folder} lacks {', '.join(missing)}; run make release-check")
    wrong = [f"{file.name} {problem}" for file in files for problem in problems_of(file)]
    if wrong:
        sys.exit("\n".join(wrong))
    for file in files:
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        run(*UV, "tool", "run", "--quiet", "--from", "twine", "twine", "check", "--strict", *files, cwd=home, home=home)
        print("twine check: passed")
        cited = ("cffconvert", "--validate", "-i", ROOT / "CITATION.cff")
        print(run(*UV, "tool", "run", "--quiet", "--from", "cffconvert", *cited, cwd=home, home=home).strip())
        try_installed(files, home, number)


if __name__ == "__main__":
    main()
