"""A real Neo4j Community server for tests: jars from Maven, kept in the user's cache, data in a folder of its own.

`resolve` and `Neo4jServer.start` raise `Missing`, which says what to install.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import platformdirs

POM = Path(__file__).parent / "neo4j" / "pom.xml"
INSTALL = "install Java 17 or newer and Maven: apt install openjdk-17-jre-headless maven"
START_S = 120
STOP_S = 60
# Of a new server, until its first user sets another.
_INITIAL = "neo4j"
CONF = """
server.default_listen_address=127.0.0.1
server.bolt.listen_address=127.0.0.1:{port}
server.bolt.advertised_address=127.0.0.1:{port}
server.http.enabled=false
server.https.enabled=false
server.memory.pagecache.size=64m
db.tx_log.preallocate=false
dbms.usage_report.enabled=false
"""


class Missing(Exception):
    """The machine cannot run the server; the message says what to install."""


def resolve() -> str:
    """Return the class path of the server, downloaded once for all test runs of this user. Raises: Missing."""
    if not importlib.util.find_spec("neo4j"):
        raise Missing("the driver is not there; run: pip install '.[neo4j]'")
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            raise Missing(f"{tool} is not there; {INSTALL}")
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if not version or int(version[1]) < 17:
        raise Missing(f"Java is too old ({told.splitlines()[:1]}); {INSTALL}")
    found = re.search(r"<neo4j.version>(.+)</neo4j.version>", POM.read_text())
    assert found
    cache = platformdirs.user_cache_path("hippocube-tests", appauthor=False)
    cache.mkdir(parents=True, exist_ok=True)
    lib = cache / f"neo4j-{found[1]}"
    with (cache / "lock").open("w") as lock:  # two runs of Maven at once would spoil its own cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lib.exists():
            _download(cache, lib)
    return f"{lib}/*"


def _download(cache: Path, lib: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        fresh = Path(folder) / "lib"
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
        done = subprocess.run(["mvn", "-B", "-q", "-f", str(POM), *goal], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"Maven cannot fetch Neo4j ({done.stdout[-500:].strip()}); {INSTALL}")
        fresh.rename(lib)


class Neo4jServer:
    """One server on loopback; it can be stopped and started again with the same data, port and password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.user, self.password = "neo4j", secrets.token_hex(8)
        self._classpath = resolve()
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("conf", "data", "logs"):
            (folder / name).mkdir(parents=True)
        (folder / "conf" / "neo4j.conf").write_text(CONF.format(port=self.port))
        self._has_password = False

    @property
    def url(self) -> str:
        return f"bolt://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server printed and logged last."""
        files = [self.folder / "out.log", self.folder / "logs" / "neo4j.log"]
        return "\n".join(path.read_text(errors="replace")[-3_000:] for path in files if path.exists())

    def start(self) -> None:
        """Start and wait until it answers."""
        assert self._process is None
        home = [f"--home-dir={self.folder}", f"--config-dir={self.folder / 'conf'}"]
        # However the tests end, the server ends with them: the kernel kills it when its parent is gone.
        command = ["setpriv", "--pdeathsig", "KILL", *self._java(), *home]
        with (self.folder / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"The Neo4j server did not start:\n{self.log}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop in order, or kill what does not; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """End the server as a crash does; its data stay."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        from neo4j.exceptions import DriverError, Neo4jError  # noqa: PLC0415 - an extra, which the other tests do without

        try:
            if not self._has_password:  # Neo4j's own command for it starts a second Java machine
                self._run("system", _INITIAL, "ALTER CURRENT USER SET PASSWORD FROM $old TO $new")
                self._has_password = True
            self._run("neo4j", self.password, "RETURN 1")
        except (DriverError, Neo4jError):
            return False
        return True

    def _run(self, database: str, password: str, statement: str) -> None:
        import neo4j  # noqa: PLC0415 - an extra, which the other tests do without

        with (
            neo4j.GraphDatabase.driver(self.url, auth=(self.user, password)) as driver,
            driver.session(database=database) as session,
        ):
            session.run(statement, old=_INITIAL, new=self.password).consume()

    def _java(self) -> list[str]:
        # It lives for minutes: what a second compiler would win later costs more now.
        quick = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return ["java", *quick, "-cp", self._classpath, "org.neo4j.server.CommunityEntryPoint"]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "NEO4J_HOME": str(self.folder), "NEO4J_CONF": str(self.folder / "conf")}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
