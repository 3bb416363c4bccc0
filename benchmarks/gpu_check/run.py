"""Unpack the wheels beside this file and run the check with them: `python run.py [--out FOLDER]`.

It needs Python 3.12 with PyTorch, transformers and peft, and neither a network nor a writable folder of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Replace this process with the check, whose modules come from the wheels."""
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    site = work / "site"
    for wheel in sorted((HERE / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
    caches = ("HF_HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    env = dict(os.environ)
    env |= {name: str(work / "cache") for name in caches}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    env.setdefault("USER", "gpu-check")  # PyTorch asks for a name, which a bare user id has not
    env.setdefault("HOME", str(work))
    # What the machine has stays: only packages that PyTorch, transformers and peft do not bring are in the wheels.
    paths = [str(HERE), str(site), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    arguments = ["-m", "benchmarks.gpu_check", "--work", str(work), *sys.argv[1:]]
    os.execve(sys.executable, [sys.executable, *arguments], env)  # noqa: S606 - this interpreter


if __name__ == "__main__":
    main()
