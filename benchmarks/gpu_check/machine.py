"""The machine: hardware, driver, versions, and the limits that figures are shares of."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check.steps import Step

_PACKAGES = ("hippocube", "torch", "transformers", "peft", "tokenizers", "safetensors", "numpy", "triton")


def hardware() -> dict[str, Any]:
    """Return what this ran on."""
    told: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpu": None,
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        told["gpu"] = {
            "name": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": _driver(),
            "count": torch.cuda.device_count(),
        }
    return told


def limits(step: Step, device: str, work: Path, *, tiny: bool) -> dict[str, Any]:
    """Measure copies, matrix products and the disk: what the figures of other steps are shares of."""
    size = 2**22 if tiny else 2**30
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found: dict[str, Any] = {"device_copy_bytes_per_s": 2 * size / best(lambda: target.copy_(source), device)}
    host = torch.empty(size // 4, dtype=torch.uint8, pin_memory=device == "cuda")
    part = source[: size // 4]
    up, down = best(lambda: part.copy_(host), device), best(lambda: host.copy_(part), device)
    found |= {"host_to_device_bytes_per_s": len(host) / up, "device_to_host_bytes_per_s": len(host) / down}
    began = time.perf_counter()
    pinned = torch.empty(size // 4 + 4096, dtype=torch.uint8, pin_memory=device == "cuda")
    found["pin_bytes_per_s"] = len(pinned) / max(1e-9, time.perf_counter() - began)
    side = 128 if tiny else 8192
    one, other = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    found["bfloat16_flop_per_s"] = 2 * side**3 / best(lambda: one @ other, device)
    found |= _disk(work, size // 4, tiny=tiny)
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def best(work: Any, device: str, runs: int = 5) -> float:
    """Return the seconds of the quickest of some runs, by the GPU's own clock where there is one."""
    work()
    times = []
    for _ in range(runs):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
        else:
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
    return max(1e-9, min(times))


def drop_cached(file: Path) -> None:
    """Write a file out and have the system forget its pages, so that the next read is of the disk."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _disk(work: Path, size: int, *, tiny: bool) -> dict[str, float]:
    file, piece = work / "disk", os.urandom(min(size, 2**24))
    began = time.perf_counter()
    with file.open("wb") as out:
        for _ in range(size // len(piece)):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    wrote_s = time.perf_counter() - began
    drop_cached(file)
    began = time.perf_counter()
    with file.open("rb", buffering=0) as source:
        room = bytearray(2**20 if tiny else 2**23)
        while source.readinto(room):
            pass
    read_s = time.perf_counter() - began
    file.unlink()
    return {"disk_write_bytes_per_s": size / wrote_s, "disk_read_bytes_per_s": size / max(1e-9, read_s)}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
