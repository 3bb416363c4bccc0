"""Execute the Dockerfile without Docker and try the server as a container would run it.

Each instruction of the Dockerfile is read and executed in a clean Debian root, which stands for the base image. Then
the image's command runs as the image's user and PID 1 in namespaces of its own: the root file system is read-only, the
volume and /tmp are writable, there is no capability and no way to get one. Needs root on Linux, `mmdebstrap`, `unshare`
and `nsenter`, a mirror of Debian and an index of Python packages.

Usage: sudo python scripts/check_image.py [--keep]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hippocube/image-check"
STOP_WITHIN_S = 30  # docker-compose.yml's stop_grace_period
HEALTHY_WITHIN_S = 90  # the health check's start period and retries
_BASE = re.compile(r"python:(\d+\.\d+)-slim-(\w+)")
# What pip and uv need on machines with a mirror, a proxy or certificates of their own. It stays out of the image.
_PASSED_ON = re.compile(r"(PIP_CERT|PIP_INDEX_URL|UV_\w+|SSL_CERT_FILE|https?_proxy|no_proxy)", re.IGNORECASE)
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

Instruction = tuple[str, str]


@dataclass
class Image:
    """What the instructions so far have made: a root file system and how it is run."""

    root: Path
    folder: str = "/"
    user: str = "0"
    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    )
    volume: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    stopsignal: str = "SIGTERM"
    expose: str = ""

    def at(self, path: str) -> Path:
        """Return where an absolute path of the image is on this machine."""
        return self.root / path.lstrip("/")

    def ids(self) -> tuple[int, int]:
        """Return the user's and its group's numbers."""
        user, _, group = self.user.partition(":")
        for line in self.at("/etc/passwd").read_text(encoding="utf-8").splitlines():
            name, _, uid, gid = line.split(":")[:4]
            if user in (name, uid):
                return int(uid), int(group or gid)
        sys.exit(f"USER {self.user} is not in /etc/passwd")


def instructions(dockerfile: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, lines joined and comments left out."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        yield name.upper(), rest.strip()


def is_ignored(path: PurePosixPath, patterns: list[str]) -> bool:
    """Return True if .dockerignore keeps a path, relative to the context, out of it: the last pattern to match wins."""
    ignored = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!").strip("/")
        regex = re.escape(wanted).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        if any(re.fullmatch(regex, str(part)) for part in (path, *path.parents)):
            ignored = not pattern.startswith("!")
    return ignored


def context(folder: Path) -> list[PurePosixPath]:
    """Return the files that Git knows or would take, and that .dockerignore lets into the build context."""
    patterns = [
        line.strip()
        for line in (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={folder}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = (PurePosixPath(name) for name in listed.split("\0") if name and (folder / name).is_file())
    return [file for file in files if not is_ignored(file, patterns)]


def base(reference: str, root: Path) -> Image:
    """Unpack a Debian root with the Python of an official image. It is made once, into the user's cache."""
    found = _BASE.fullmatch(reference)
    if found is None:
        sys.exit(f"FROM {reference}: this script knows python:X.Y-slim-SUITE alone")
    python, suite = found.groups()
    archive = CACHE / f"{suite}-python{python}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        made = archive.with_suffix(".new.tar")
        packages = f"python{python},python{python}-venv,ca-certificates"
        run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", suite, str(made)])
        made.replace(archive)
    root.mkdir(parents=True)
    run(["tar", "--extract", "--file", str(archive), "--directory", str(root)])
    for name in ("python", "python3"):  # where official images have it
        (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/python{python}")
    return Image(root)


def build(work: Path) -> Image:
    """Execute every instruction of the Dockerfile and return the last stage."""
    stages: dict[str, Image] = {}
    image: Image | None = None
    for name, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        began = time.monotonic()
        if name == "FROM":
            reference, _, alias = re.sub(r"(?i)\s+as\s+", " ", rest).partition(" ")
            image = base(reference, work / (alias or f"stage{len(stages)}"))
            stages[alias or str(len(stages))] = image
        else:
            assert image is not None, "FROM comes first"
            execute(image, name, rest, stages)
        print(f"  {time.monotonic() - began:6.1f} s  {name} {rest[:90]}")
    assert image is not None
    return image


def execute(image: Image, name: str, rest: str, stages: dict[str, Image]) -> None:
    """Execute one instruction."""
    match name:
        case "RUN":
            run_step(image, rest)
        case "COPY":
            copy(image, rest, stages)
        case "WORKDIR":
            image.folder = str(PurePosixPath(image.folder) / rest)
            image.at(image.folder).mkdir(parents=True, exist_ok=True)
        case "ENV":
            for variable in shlex.split(rest):
                key, _, value = variable.partition("=")
                known = image.environment
                image.environment[key] = re.sub(r"\$(\w+)", lambda found, known=known: known[found[1]], value)
        case "USER" | "VOLUME" | "EXPOSE" | "STOPSIGNAL":
            setattr(image, name.lower(), rest)
        case "ENTRYPOINT":
            image.entrypoint, image.command = json.loads(rest), []
        case "CMD":
            image.command = json.loads(rest)
        case "HEALTHCHECK":
            image.health = json.loads(rest.partition(" CMD ")[2])
        case _:
            sys.exit(f"{name}: this script does not know the instruction; teach it")


def run_step(image: Image, script: str) -> None:
    """Run a shell command in the root, with the network of this machine, as the image's user."""
    uid, gid = image.ids()
    passed = {key: value for key, value in os.environ.items() if _PASSED_ON.fullmatch(key)}
    borrowed = {_CERTIFICATES: image.at(str(_CERTIFICATES)), Path("/etc/resolv.conf"): image.at("/etc/resolv.conf")}
    mounts = [["mount", "-t", "proc", "proc", str(image.at("/proc"))]]
    for source, target in borrowed.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        mounts.append(["mount", "--bind", str(source), str(target)])
    step = [
        "setpriv",
        "--reuid",
        str(uid),
        "--regid",
        str(gid),
        "--clear-groups",
        "sh",
        "-c",
        f"cd {image.folder} && {script}",
    ]
    commands = [*mounts, ["exec", "chroot", str(image.root), *step]]
    run(
        ["unshare", "--mount", "sh", "-ec", "\n".join(map(shlex.join, commands))],
        env={**passed, **image.environment, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"},
    )


def copy(image: Image, rest: str, stages: dict[str, Image]) -> None:
    """Copy from the build context, or from another stage."""
    *sources, target = shlex.split(rest)
    into = image.at(str(PurePosixPath(image.folder) / target))
    if sources[0].startswith("--from="):
        [source] = sources[1:]
        into.parent.mkdir(parents=True, exist_ok=True)
        run(["cp", "--archive", "--no-target-directory", str(stages[sources[0][7:]].at(source)), str(into)])
        return
    known = context(ROOT)
    for source in sources:
        found = [file for file in known if file == PurePosixPath(source) or PurePosixPath(source) in file.parents]
        if not found:
            sys.exit(f"COPY {source}: nothing of that name is in the build context; see .dockerignore")
        for file in found:
            inside = file.relative_to(source) if file != PurePosixPath(source) else PurePosixPath(file.name)
            (into / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, into / inside)


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a command; end with what it said if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(
            f"{shlex.join(command)[:300]} failed with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )


class Container:
    """The image's command as PID 1: its user, no capabilities, a read-only root, a volume, and loopback alone."""

    def __init__(self, image: Image, volume: Path, log: Path) -> None:
        self._image = image
        uid, gid = image.ids()
        root = str(image.root)
        self._as_user = [
            "/usr/bin/setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "--",
        ]  # fmt: skip
        commands = [
            ["mount", "--bind", root, root],
            ["mount", "-t", "proc", "proc", f"{root}/proc"],
            ["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec", "tmpfs", f"{root}/tmp"],
            ["mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec,size=64m", "tmpfs", f"{root}/dev/shm"],
            ["mount", "--bind", str(volume), str(image.at(image.volume))],
            ["mount", "-o", "remount,ro,bind", root],
            [sys.executable, "-c", _LOOPBACK_UP],
            ["exec", "chroot", root, *self._as_user, *image.entrypoint, *image.command],
        ]
        with log.open("ab") as output:
            self._outer = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-ec",
                 "\n".join(map(shlex.join, commands))],
                env=image.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.began = time.monotonic()

    @property
    def pid(self) -> int:
        """Return the id outside of what is PID 1 inside."""
        children = f"/proc/{self._outer.pid}/task/{self._outer.pid}/children"
        return int(wait_for(lambda: Path(children).read_text(encoding="utf-8").split(), 60)[0])

    def command(self, *command: str) -> list[str]:
        """Return what runs a command inside, as `docker exec` does."""
        namespaces = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root"]
        return [*namespaces, "--wd=/", *self._as_user, *command]

    def exec(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        environment = self._image.environment
        return subprocess.run(
            self.command(*command), check=False, capture_output=True, text=True, env=environment, timeout=60
        )

    def is_healthy(self) -> bool:
        """Return True if the image's health check succeeds."""
        check("the server is alive", self._outer.poll() is None)
        return self.exec(*self._image.health).returncode == 0

    def request(self, method: str, path: str, key: str, body: object = None) -> object:
        """Send a request from inside, and return the answer."""
        done = self.exec(
            "python", "-c", _REQUEST, method, f"http://127.0.0.1:{self._image.expose}{path}", key, json.dumps(body)
        )
        check(f"{method} {path} is answered {done.stderr[-300:]}", done.returncode == 0)
        return json.loads(done.stdout)

    def begin_to_stop(self) -> None:
        """Send the image's signal to stop."""
        os.kill(self.pid, signal.Signals[self._image.stopsignal])

    def ended(self) -> int:
        """Return the exit code. Docker would kill it after this time."""
        return self._outer.wait(timeout=STOP_WITHIN_S)

    def kill(self) -> None:
        """End it however it is."""
        if self._outer.poll() is None:
            self._outer.kill()
            self._outer.wait()


_LOOPBACK_UP = (
    "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14x', b'lo', 0x1 | 0x40))"
)
_REQUEST = """
import sys, urllib.request
method, url, key, body = sys.argv[1:]
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
data = None if body == "null" else body.encode()
print(urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30).read().decode())
"""
# A request whose second half is sent after the signal to stop.
_SLOW_REQUEST = """
import http.client, sys
port, key, body = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
slow, other = (http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(2))
slow.putrequest("POST", "/api/v1/memories")
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Content-Length": str(len(body))}
for name, value in headers.items():
    slow.putheader(name, value)
slow.endheaders(body[:10])
under_way = b""
while b"memos_requests_under_way 2.0" not in under_way:
    other.request("GET", "/metrics")
    under_way = other.getresponse().read()
print("begun", flush=True)
sys.stdin.readline()
slow.send(body[10:])
print(slow.getresponse().status, flush=True)
"""


def wait_for(look: Callable[[], Any], within_s: float) -> Any:
    """Return the first true value of `look`."""
    until = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > until:
            sys.exit(f"failed: nothing within {within_s} s")
        time.sleep(0.05)
    return found


def check(what: str, holds: bool) -> None:
    """End unless something holds."""
    if not holds:
        sys.exit(f"failed: {what}")


def shown(what: str) -> None:
    """Print what has been shown."""
    print(f"  ok  {what}", flush=True)


def files_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, time of change and owner of every file below a folder."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            status = (Path(folder) / name).lstat()
            found[str((Path(folder) / name).relative_to(root))] = status.st_size, status.st_mtime_ns, status.st_uid
    return found


def try_server(image: Image, work: Path) -> None:
    """Run the image and check what it promises."""
    uid, _ = image.ids()
    volume, log = work / "volume", work / "log"
    run(["cp", "--archive", str(image.at(image.volume)), str(volume)])  # as Docker fills a new volume
    before = files_of(image.root)
    with running(image, volume, log) as server:
        wait_for(server.is_healthy, HEALTHY_WITHIN_S)
        shown(f"healthy after {time.monotonic() - server.began:.1f} s, by the image's HEALTHCHECK")
        look_at_process(server, uid)
        key = re.search(r"API key, shown only once: (\S+)", log.read_text(encoding="utf-8"))
        assert key is not None, log.read_text(encoding="utf-8")
        server.request("POST", "/api/v1/memories", key[1], {"messages": "I keep bees in Lyon."})
        check("the memory is found", "bees" in found_by(server, key[1]))
        shown("a memory was added and found over HTTP")
        stop_during_a_request(image, server, key[1])
    with running(image, volume, log) as server:
        wait_for(server.is_healthy, HEALTHY_WITHIN_S)
        text = found_by(server, key[1])
        check(f"both memories are there after the restart: {text}", "bees" in text and "mead" in text)
        shown("after a restart both memories are there, also the one of the request that the stop met")
        server.begin_to_stop()
        check("it stops in order", server.ended() == 0)
    with running(image, volume, log) as server:
        wait_for(lambda: catches(server.pid, signal.SIGTERM), 60)  # before its modules are imported
        began = time.monotonic()
        server.begin_to_stop()
        code, seconds = server.ended(), time.monotonic() - began
        check(f"a stop during the start ends it: {code}", code == 128 + signal.SIGTERM)
        shown(f"{image.stopsignal} during the start ends it with code {code} after {seconds:.1f} s")
    changed = {name for name, now in files_of(image.root).items() if before.get(name) != now}
    check(f"nothing was written outside of the volume and /tmp: {sorted(changed)[:5]}", not changed)
    shown(f"none of {len(before):,} files of the root file system has changed, none is new")
    owners = {owner for *_, owner in files_of(volume).values()}
    check(f"files of the volume are the user's: {owners}", owners == {uid})


def catches(pid: int, number: int) -> bool:
    """Return True if a process has a handler for a signal."""
    found = re.search(r"^SigCgt:\t(\w+)$", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


@contextmanager
def running(image: Image, volume: Path, log: Path) -> Iterator[Container]:
    """Start a container and end it in any case."""
    server = Container(image, volume, log)
    try:
        yield server
    except BaseException:
        sys.stderr.write(log.read_text(encoding="utf-8")[-3000:])
        raise
    finally:
        server.kill()


def look_at_process(server: Container, uid: int) -> None:
    """Check user, rights and number of processes, and that the root file system refuses writes."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8").splitlines()
    )
    check(f"runs as {uid}", status["Uid"].split() == [str(uid)] * 4)
    check("has no capability", all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")))
    check("gets no privileges", status["NoNewPrivs"] == "1")
    first = server.exec("python", "-c", "print(open('/proc/1/cmdline').read().replace(chr(0), ' '))").stdout
    check(f"PID 1 is the server: {first}", "memos serve" in first)
    shown(f"PID 1 is `{first.strip()}`, of user {uid}, with no capabilities and no_new_privs")
    listed = server.exec("python", "-c", "import os; print(*[name for name in os.listdir('/proc') if name.isdigit()])")
    shown(f"{len(listed.stdout.split()) - 1} processes: the server, and its children for the embedded index")
    refused = server.exec("python", "-c", "open('/opt/hippocube/new', 'w')")
    check("the root file system is read-only", refused.returncode != 0)
    shown("the root file system refuses writes")


def found_by(server: Container, key: str) -> str:
    """Return what a search answers, as text."""
    return json.dumps(server.request("POST", "/api/v1/search", key, {"query": "What do the bees make?"}))


def stop_during_a_request(image: Image, server: Container, key: str) -> None:
    """Stop the server while a request is under way: it has to be answered first."""
    body = json.dumps({"messages": "The bees make mead, says my neighbour."})
    slow = subprocess.Popen(
        server.command("python", "-c", _SLOW_REQUEST, image.expose, key, body),
        env=image.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert slow.stdin is not None
    assert slow.stdout is not None
    check("a slow request has begun", slow.stdout.readline() == "begun\n")
    began = time.monotonic()
    server.begin_to_stop()
    time.sleep(1)
    slow.stdin.write("\n")
    slow.stdin.flush()
    answered = slow.stdout.readline().strip()
    slow.wait(timeout=30)
    check(f"the request under way is answered: {answered!r}", answered == "201")
    code = server.ended()
    check(f"exit code 0, got {code}", code == 0)
    shown(
        f"{image.stopsignal} while a request was under way: it was answered 201, and the server ended with code 0 "
        f"after {time.monotonic() - began:.1f} s"
    )


def main() -> None:
    """Build, run, and say what was shown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the roots, and print where they are")
    keep = parser.parse_args().keep
    missing = [name for name in ("mmdebstrap", "unshare", "nsenter", "setpriv", "git") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        sys.exit(
            f"Run it as root on Linux{''.join(f', install {name}' for name in missing)} (docs/reference/containers.md)."
        )
    work = Path(tempfile.mkdtemp(prefix="hippocube-image-"))
    began = time.monotonic()
    try:
        print("Building")
        image = build(work)
        print("Running")
        try_server(image, work)
    finally:
        if keep:
            print(work)
        else:
            shutil.rmtree(work)
    print(f"The image holds what it promises ({time.monotonic() - began:.0f} s).")


if __name__ == "__main__":
    main()
