"""Where a run happens: an embedded installation on a disk of its own, or two servers over PostgreSQL and others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos import server
from benchmarks.chaos.server import INSPECT, RESTORE, SERVE
from benchmarks.report import CannotRun
from benchmarks.servers import started
from memos.errors import BackendUnavailable
from memos.reader.facts.extractor import WRITTEN
from tests.support import forks
from tests.support.scripted_chat import PASSING
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, answer, error
from tests.support.servers.postgres_server import PostgresServer, free_port
from tests.support.servers.proxy import Proxy

_START_S = 60.0
# An engine that is killed leaves its sparse files without holes on a tmpfs, and erasing copies them.
_DISK_MIB = 1536


class NotStarted(Exception):
    """A server or a look ended before it answered; `code` is its exit code."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(f"exit code {code}: {told}")
        self.code = code


class Server:
    """One server process on a port that stays, behind a proxy."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = dict(arguments)
        self.port = free_port()
        self.proxy = Proxy(self.port)
        self.process: forks.Script | None = None

    def start(self) -> dict[str, Any]:
        """Start and wait until it is announced. Raises: NotStarted."""
        arguments = {**self.arguments, "env": {**self.arguments["env"], "MEMOS_SERVER__PORT": str(self.port)}}
        process = forks.Script(SERVE, json.dumps(arguments), of=server.__name__)
        waiting = threading.Timer(_START_S, process.kill)
        waiting.start()
        line = process.stdout.readline()
        waiting.cancel()
        told: dict[str, Any] = json.loads(line) if line else {}
        if "url" not in told:
            process.stdout.close()
            raise NotStarted(process.wait(), told.get("message", "no answer"))
        self.process = process
        return told

    def kill(self) -> None:
        """End it as SIGKILL does."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.stdout.close()
            process.wait()

    def stop(self) -> int:
        """End it as SIGTERM does; return its exit code."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        waiting = threading.Timer(_START_S, process.kill)
        waiting.start()
        code = process.wait()
        waiting.cancel()
        process.stdout.close()
        return code

    def close(self) -> None:
        self.kill()
        self.proxy.__exit__()


class Model:
    """A model endpoint that does what `mode` says: answers, or fails in one of the ways that endpoints do."""

    MODES = ("500", "429", "cut", "slow", "nonsense", "empty")

    def __init__(self) -> None:
        self.mode = ""
        self.asked = 0
        self._gate = threading.Event()
        self.server = OpenAIServer(self._said)

    def _said(self, asked: Asked) -> Said:
        self.asked += 1
        match self.mode:
            case "500":
                return error(500, "scripted")
            case "429":
                return error(429, "scripted", headers={"Retry-After": "1"})
            case "cut":
                return Said(body={"choices": []}, cut=7)
            case "slow":
                return Said(body=answer(json.dumps({"facts": []})).body, drip=40)
            case "nonsense":
                return answer('{"facts": [{"type": 7}, "zq", null], "traits": "')
            case "empty":
                return answer("")
        return answer(_facts(str(asked.body["messages"][-1]["content"])))


def _facts(asked: str) -> str:
    """Return a fact for each message that is shown, quoting all of it; it passes the examination of readers, too."""
    if all(text in asked for text, _ in WRITTEN):
        return PASSING
    facts = []
    for line in asked.splitlines():
        with suppress(ValueError):
            shown = json.loads(line)
            if isinstance(shown, dict) and "message" in shown:
                said = {"text": shown["text"], "quote": shown["text"], "message": shown["message"]}
                facts.append({"type": "user", "subject": shown["speaker"], **said})
    return json.dumps({"facts": facts})


class World:
    """What both worlds have: servers, a model endpoint, a clock, a log."""

    name: str
    home: Path

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.log = folder / "clock", folder / "log"
        self.clock.write_text("0")
        self.model = Model()
        self.servers: list[Server] = []
        self._stack = ExitStack()
        self._stack.enter_context(self.model.server)

    def environment(self) -> dict[str, str]:
        return {
            "MEMOS_INDEX__WAIT_S": "1",
            "MEMOS_LIMITS__MIN_FREE_BYTES": "0",
            "MEMOS_TASKS__WORKERS": "1",
            "MEMOS_CHAT_MODEL__BASE_URL": self.model.server.url,
            "MEMOS_CHAT_MODEL__MODEL": "scripted",
            "MEMOS_CHAT_MODEL__TIMEOUT_S": "1",
            "MEMOS_SERVER__LOG_LEVEL": "error",
        }

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a program in this world."""
        return {"env": self.environment(), "home": str(self.home), "log": str(self.log), "clock": str(self.clock)}

    def ports(self) -> Sequence[int]:
        return [one.proxy.port for one in self.servers]

    def children(self) -> list[psutil.Process]:
        """Return the processes of engines."""
        found = []
        for template in psutil.Process().children():
            with suppress(psutil.Error):
                if any(part.endswith("/engines") for part in template.cmdline()[3:4]):
                    found += template.children()
        return found

    def inspect(self, **changes: Any) -> dict[str, Any]:
        """Return what an installation holds and how it verifies. Raises: NotStarted."""
        return self._told(INSPECT, **changes)

    def restore(self, backup: Path, home: Path) -> dict[str, Any]:
        """Restore a backup into a folder, whatever this world has its stores on. Raises: NotStarted."""
        return self._told(RESTORE, backup=str(backup), home=str(home), env=self.embedded_environment())

    def verify(self) -> list[str]:
        """Return the differences that `verify` finds in the whole installation."""
        found: list[str] = self.inspect()["differences"]
        return found

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `memos` with arguments, of this installation."""
        told = self.arguments()
        return forks.command(
            [*arguments, "--data-dir", told["home"]], env={**os.environ, **told["env"]}, timeout=_START_S
        )

    def embedded_environment(self) -> dict[str, str]:
        """Return the settings of an embedded installation, whatever this world has its stores on."""
        stores = ("MEMOS_LEDGER_URL", "MEMOS_QDRANT", "MEMOS_NEO4J")
        return {name: value for name, value in self.environment().items() if not name.startswith(stores)}

    def _told(self, program: str, **changes: Any) -> dict[str, Any]:
        with forks.Script(program, json.dumps({**self.arguments(), **changes}), of=server.__name__) as look:
            lines = look.stdout.read().splitlines()
            told: dict[str, Any] = json.loads(lines[-1]) if lines else {}
            if "differences" not in told:
                raise NotStarted(look.wait(), told.get("message", "no answer"))
        return told

    def mend(self) -> None:
        """Take every fault away."""
        self.clock.write_text("0")
        self.model.mode = ""
        for one in self.servers:
            one.proxy.mend()

    def close(self) -> None:
        for one in self.servers:
            one.close()
        self._stack.close()


class Embedded(World):
    """A folder with ledger and index, on a tmpfs of its own where this user may mount one."""

    name = "embedded"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.mounted = self._mount()
        self.home = self.disk / "home"
        self.homes = 0
        self.servers = [Server(self.arguments())]

    def _mount(self) -> bool:
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return False
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "hippocube-chaos", str(self.disk)]
        done = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if done:
            self._stack.callback(subprocess.run, ["umount", "-l", str(self.disk)], check=False)
        return done

    def remount(self, *options: str) -> bool:
        """Change options of the disk; return False where the kernel refuses."""
        command = ["mount", "-o", ",".join(("remount", *options)), str(self.disk)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def shrink(self, free: int) -> bool:
        """Leave so many bytes free."""
        used = shutil.disk_usage(self.disk).used
        return self.remount(f"size={(used + free) // 1024}k")

    def mend(self) -> None:
        if self.mounted:
            self.remount("rw", f"size={_DISK_MIB}m")
        super().mend()

    def verify(self) -> list[str]:
        """Return what `memos data verify` says of the running server's installation."""
        done = self.verified()
        if done.returncode not in (0, 1):
            return [f"exit code {done.returncode}: {done.stderr[-2000:]}"]
        found: list[str] = [str(each) for each in json.loads(done.stdout)["differences"]]
        return found

    def verified(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run `memos data verify` through the server, again while that is too busy to answer the command in time."""
        deadline = time.monotonic() + _START_S
        while True:
            done = self.command("data", "verify", "--json", *options)
            busy = done.returncode == BackendUnavailable.exit_code and "is in use by" in done.stderr
            if not busy or time.monotonic() > deadline:
                return done

    def move_to(self, home: Path) -> None:
        """Serve another folder from the next start on."""
        self.home = home
        self.servers[0].arguments = self.arguments()


class Qdrant:
    """A Qdrant server: the program at `QDRANT_BIN`, or else the tests' double of it, which forgets all when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binary = os.environ.get("QDRANT_BIN") or None
        self._process: subprocess.Popen[bytes] | forks.Script | None = None
        self.proxy = Proxy(0)
        self.start()

    @property
    def named(self) -> str:
        return "the tests' double" if self._binary is None else f"server {Path(self._binary).name}"

    @property
    def keeps(self) -> bool:
        """Whether what it holds is there again after its end."""
        return self._binary is not None

    def start(self) -> None:
        if self._binary is None:
            self._process = forks.Script(_DOUBLE)
            self.proxy.target = int(self._process.stdout.readline())
            return
        self.proxy.target, grpc = free_port(), free_port()
        storage = self._folder / "storage"
        settings = {
            "SERVICE__HOST": "127.0.0.1",
            "SERVICE__HTTP_PORT": self.proxy.target,
            "SERVICE__GRPC_PORT": grpc,
            "STORAGE__STORAGE_PATH": storage,
            "STORAGE__SNAPSHOTS_PATH": self._folder / "snapshots",
            "TELEMETRY_DISABLED": "true",
            "LOG_LEVEL": "WARN",
        }
        env = {**os.environ, **{f"QDRANT__{name}": str(value) for name, value in settings.items()}}
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            command = ["setpriv", "--pdeathsig", "KILL", self._binary]
            self._process = subprocess.Popen(command, cwd=self._folder, env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.proxy.target), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise CannotRun(f"Qdrant does not start; see {self._folder / 'log'}") from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if isinstance(self._process, forks.Script):
            self._process.stdout.close()

    def close(self) -> None:
        self.kill()
        self.proxy.__exit__()


_DOUBLE = """
import time
from tests.support.servers.qdrant_rest import QdrantDouble
with QdrantDouble() as double:
    print(double.url.rsplit(":", 1)[1], flush=True)
    time.sleep(1_000_000)
"""


class Servers(World):
    """Two servers over PostgreSQL, Qdrant and Neo4j, each behind a proxy."""

    name = "servers"

    def __init__(self, folder: Path, postgres: PostgresServer, neo4j: Neo4jServer) -> None:
        super().__init__(folder)
        self.home = folder / "home"
        self.postgres, self.neo4j = postgres, neo4j
        self._url = postgres.url()
        self.qdrant = Qdrant(folder / "qdrant")
        self.to_postgres, self.to_neo4j = Proxy(postgres.port), Proxy(neo4j.port)
        self.backends = {"PostgreSQL": self.to_postgres, "Qdrant": self.qdrant.proxy, "Neo4j": self.to_neo4j}
        self.servers = [Server(self.arguments()) for _ in range(2)]

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "MEMOS_LEDGER_URL": self._url.replace(f":{self.postgres.port}/", f":{self.to_postgres.port}/"),
            "MEMOS_QDRANT__URL": f"http://127.0.0.1:{self.qdrant.proxy.port}",
            "MEMOS_NEO4J__URL": f"bolt://127.0.0.1:{self.to_neo4j.port}",
            "MEMOS_NEO4J__PASSWORD": self.neo4j.password,
        }

    def mend(self) -> None:
        for proxy in self.backends.values():
            proxy.mend()
        super().mend()

    def close(self) -> None:
        super().close()
        self.qdrant.close()
        for proxy in self.backends.values():
            proxy.__exit__()


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """Start the servers of a world on servers. Raises: CannotRun, which says what to install."""
    with started(fsync=False) as running, closing(Servers(folder, running.postgres, running.neo4j)) as world:
        yield world
