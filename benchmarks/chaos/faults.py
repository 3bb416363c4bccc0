"""The faults: what is wrong around a kill (weather), whom it kills, and what happens to files while a server is down.

Each takes the run and the dice of its round, so that a round is the same for the same seed.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import psutil

from benchmarks.chaos.history import Fault, Kind
from benchmarks.chaos.worlds import Embedded, Model, NotStarted, Servers
from memos.errors import BackendUnavailable, PermissionDenied

if TYPE_CHECKING:
    from benchmarks.chaos.program import Run

Weather = Callable[["Run", Random], AbstractContextManager[None]]
Killing = Callable[["Run", Random], int]
Change = Callable[["Run", Random], None]

_DETACHED_WITHIN_S = 10.0
_READY_S = 0.3


# Weather: from before the kill until the server is there again


@contextmanager
def fine(_run: Run, _dice: Random) -> Iterator[None]:
    yield


@contextmanager
def cut_clients(run: Run, dice: Random) -> Iterator[None]:
    """Cut the connections of clients again and again."""
    for _ in range(dice.randint(2, 6)):
        time.sleep(dice.uniform(0.01, 0.08))
        for server in run.world.servers:
            server.proxy.drop()
    yield


@contextmanager
def slow_clients(run: Run, dice: Random) -> Iterator[None]:
    for server in run.world.servers:
        server.proxy.delay_s = dice.uniform(0.005, 0.05)
    yield


@contextmanager
def failing_model(run: Run, dice: Random) -> Iterator[None]:
    run.world.model.mode = dice.choice(Model.MODES)
    yield


@contextmanager
def jumping_clock(run: Run, dice: Random) -> Iterator[None]:
    """Let the clock jump forward and back by up to six hours: keys of idempotency are kept for a day."""
    for _ in range(3):
        run.world.clock.write_text(str(dice.uniform(-6, 6) * 3600))
        time.sleep(dice.uniform(0.02, 0.1))
    yield


@contextmanager
def slow_disk(run: Run, dice: Random) -> Iterator[None]:
    """Delay every system call that writes or syncs, in all processes."""
    pids = [server.process.pid for server in run.world.servers if server.process is not None]
    pids += [child.pid for child in run.world.children()]
    calls = "fsync,fdatasync,msync,pwrite64,ftruncate"
    slow = f"inject={calls}:delay_exit={dice.randint(2_000, 20_000)}"
    attached = [part for pid in pids for part in ("-p", str(pid))]
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", "-e", slow, *attached]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as tracer:
        time.sleep(_READY_S)
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            try:
                tracer.wait(_DETACHED_WITHIN_S)
            except subprocess.TimeoutExpired:
                tracer.kill()  # strace may wait for a thread it delays for ever; the kernel lets go of all of them


@contextmanager
def full_disk(run: Run, dice: Random) -> Iterator[None]:
    """Leave less than a few writes need."""
    assert isinstance(run.world, Embedded)
    if not run.world.shrink(dice.choice((0, 4096, 100_000, 400_000))):
        run.notes["a disk that was not made smaller"] += 1
    yield


@contextmanager
def cut_backend(run: Run, dice: Random) -> Iterator[None]:
    """Cut a server of databases off, or its connections again and again."""
    assert isinstance(run.world, Servers)
    proxy = run.world.backends[dice.choice(list(run.world.backends))]
    if dice.random() < 0.5:
        proxy.cut()
    else:
        for _ in range(dice.randint(2, 6)):
            time.sleep(dice.uniform(0.01, 0.08))
            proxy.drop()
    yield


@contextmanager
def slow_backend(run: Run, dice: Random) -> Iterator[None]:
    assert isinstance(run.world, Servers)
    run.world.backends[dice.choice(list(run.world.backends))].delay_s = dice.uniform(0.002, 0.02)
    yield


# Kills: each returns how many processes it ended


def kill_server(run: Run, dice: Random) -> int:
    """Kill one server; its children have to end by themselves."""
    dice.choice(run.world.servers).kill()
    return 1


def kill_all_servers(run: Run, _dice: Random) -> int:
    for server in run.world.servers:
        server.kill()
    return len(run.world.servers)


def kill_children(run: Run, _dice: Random) -> int:
    """Kill the processes of engines, and not their server."""
    killed = 0
    for child in run.world.children():
        with suppress(psutil.Error):
            child.kill()
            killed += 1
    return killed


def kill_server_and_children(run: Run, dice: Random) -> int:
    return kill_children(run, dice) + kill_server(run, dice)


def kill_connection_of_postgresql(run: Run, dice: Random) -> int:
    """Kill a process of PostgreSQL that serves a connection: the whole server then restarts by itself."""
    assert isinstance(run.world, Servers)
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(run.world.postgres.pid).children():
            if any("127.0.0.1" in part for part in child.cmdline()):
                found.append(child)
    with suppress(psutil.Error):
        if found:
            dice.choice(found).kill()
            return 1
    return 0


def restart_postgresql(run: Run, dice: Random) -> int:
    assert isinstance(run.world, Servers)
    run.world.postgres.stop(fast=dice.random() < 0.5)
    time.sleep(dice.uniform(0, 0.2))
    run.world.postgres.start()
    return 1


def kill_qdrant(run: Run, dice: Random) -> int:
    assert isinstance(run.world, Servers)
    run.world.qdrant.kill()
    time.sleep(dice.uniform(0, 0.3))
    run.world.qdrant.start()
    if not run.world.qdrant.keeps:
        # It has lost the index, and hippocube says: "restart hippocube, which rebuilds it from the ledger".
        run.doubt_searches()
        return 1 + kill_all_servers(run, dice)
    return 1


def kill_neo4j(run: Run, dice: Random) -> int:
    assert isinstance(run.world, Servers)
    run.world.neo4j.kill()
    time.sleep(dice.uniform(0, 0.3))
    run.world.neo4j.start()
    return 1


# While the embedded server is down


def nothing(_run: Run, _dice: Random) -> None:
    pass


def damage_index(run: Run, dice: Random) -> None:
    """Overwrite, cut off or remove a file of the vector index; `verify --repair` follows the start."""
    assert isinstance(run.world, Embedded)
    folder = run.world.home / "vector"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    if not files:
        return
    path, size = (found := dice.choice(files)), found.stat().st_size
    match dice.choice(("garbage", "cut", "gone")):
        case "garbage":
            with path.open("r+b") as file:
                file.seek(dice.randrange(size))
                file.write(dice.randbytes(min(size, 4096)))
        case "cut":
            os.truncate(path, dice.randrange(size))
        case "gone":
            path.unlink()
    run.must_repair = True


def tear_journal(run: Run, dice: Random) -> None:
    """Leave of the ledger's journal what a cut in the middle of a commit leaves: the commits before it, and a part."""
    assert isinstance(run.world, Embedded)
    journal = run.world.home / "ledger.db-wal"
    if journal.exists() and (end := end_of_commits(journal)):
        os.truncate(journal, end)
        with journal.open("ab") as file:
            file.write(dice.randbytes(dice.randrange(1, 9_000)))


def end_of_commits(journal: Path) -> int:
    """Return where the last whole commit of a write-ahead log ends (sqlite.org/fileformat2.html, section 4)."""
    content = journal.read_bytes()
    if len(content) < 32:
        return 0
    page, salts = struct.unpack(">I", content[8:12])[0], content[16:24]
    end = 0
    for at in range(32, len(content) - page - 23, page + 24):
        if content[at + 8 : at + 16] != salts:
            break
        if content[at + 4 : at + 8] != b"\0\0\0\0":
            end = at + page + 24
    return end


def checkpointed(journal: Path) -> int:
    """Return up to where a checkpoint may have copied a write-ahead log (sqlite.org/walformat.html, section 2.1)."""
    header, index = journal.read_bytes()[:32], journal.with_name(journal.name.replace("-wal", "-shm"))
    if len(header) < 32 or not index.exists():
        return 0
    [frames] = struct.unpack_from("=I", index.read_bytes(), 128)
    page = struct.unpack(">I", header[8:12])[0]
    return int(32 + frames * (page + 24)) if frames else 0


def cut_journal_of_copy(run: Run, dice: Random) -> None:
    """Cut the ledger's journal in a copy of the folder: older, and whole once `verify --repair` ran.

    What was acknowledged last is then lost, which no program can help; nothing else may be wrong. What a checkpoint has
    begun to move into the database stays: no cut of power takes it, since it is synced before.
    """
    assert isinstance(run.world, Embedded)
    gone = run.history.words(Kind.ERASED)
    with tempfile.TemporaryDirectory(prefix="hippocube-copy-", dir=run.world.folder) as folder:
        copy = Path(folder) / "home"
        shutil.copytree(run.world.home, copy)
        journal = copy / "ledger.db-wal"
        if journal.exists() and (least := checkpointed(journal)) < journal.stat().st_size:
            os.truncate(journal, dice.randrange(least, journal.stat().st_size))
        run.check_copy(copy, set(), gone & run.purged, "a copy with a cut journal", repair=True)


def read_only_disk(run: Run, _dice: Random) -> None:
    """Start a server where it cannot write: it is refused, and says so."""
    assert isinstance(run.world, Embedded)
    if not run.world.remount("ro"):
        run.notes["a disk that was not made read-only"] += 1
        return
    try:
        run.world.servers[0].start()
    except NotStarted as refused:
        if refused.code != PermissionDenied.exit_code:
            run.history.violated(Fault.BROKEN, f"a start on a read-only disk: {refused}")
    else:
        run.history.violated(Fault.BROKEN, "a server started on a read-only disk")
        run.world.servers[0].kill()
    finally:
        run.world.remount("rw")


def restore(run: Run, dice: Random) -> None:
    """Back up while nobody writes, and go on with what was restored elsewhere."""
    world = run.world
    assert isinstance(world, Embedded)
    run.gate.pause()
    try:
        run.start_servers()
        world.homes += 1
        backup, home = world.folder / f"backup{world.homes}", world.disk / f"home{world.homes}"
        done = world.command("data", "backup", str(backup))
        if done.returncode:
            run.history.violated(Fault.BROKEN, f"data backup: {done.returncode}: {done.stderr}")
        kill_all_servers(run, dice)
        before = world.home
        try:
            if differences := world.restore(backup, home)["differences"]:
                run.history.violated(Fault.UNCLEAN, f"a restored installation: {differences}")
        except NotStarted as error:
            run.history.violated(Fault.BROKEN, f"data restore: {error}")
        else:
            world.move_to(home)
            shutil.rmtree(before)
        shutil.rmtree(backup)
    finally:
        run.gate.resume()


# Beside a running server


def back_up_under_load(run: Run, _dice: Random) -> None:
    """Write a backup while others write, kills included; restored elsewhere it is of one moment."""
    here = run.history.words(Kind.HERE)
    gone = run.history.words(Kind.ERASED)
    folder = Path(tempfile.mkdtemp(prefix="hippocube-backup-", dir=run.world.folder))

    def work() -> None:
        done = run.world.command("data", "backup", str(folder / "backup"))
        if done.returncode == 0:
            run.backups.append((folder, here, gone))
        else:
            run.notes[f"backups that were cut off (exit code {done.returncode})"] += 1
            shutil.rmtree(folder)

    thread = threading.Thread(target=work)
    thread.start()
    run.beside.append(thread)


def second_server(run: Run, _dice: Random) -> None:
    """Start a second server on the same folder: it is refused, and the first works on."""
    if run.world.servers[0].process is None:
        return
    run.second.arguments = run.world.arguments()
    try:
        told = run.second.start()
    except NotStarted as refused:
        if refused.code != BackendUnavailable.exit_code:
            run.history.violated(Fault.BROKEN, f"a second server: {refused}")
    else:
        run.history.violated(Fault.BROKEN, f"a second server started: {told}")
        run.second.kill()


EMBEDDED_WEATHER: Mapping[Weather, int] = {
    fine: 8,
    cut_clients: 3,
    slow_clients: 2,
    failing_model: 4,
    jumping_clock: 3,
    slow_disk: 2,
    full_disk: 3,
}
SERVERS_WEATHER: Mapping[Weather, int] = {
    fine: 6,
    cut_clients: 2,
    slow_clients: 1,
    failing_model: 3,
    jumping_clock: 2,
    cut_backend: 5,
    slow_backend: 3,
}
EMBEDDED_KILLS: Mapping[Killing, int] = {
    kill_server: 12,
    kill_children: 4,
    kill_server_and_children: 4,
}
SERVERS_KILLS: Mapping[Killing, int] = {
    kill_server: 12,
    kill_all_servers: 3,
    kill_connection_of_postgresql: 3,
    restart_postgresql: 2,
    kill_qdrant: 2,
    kill_neo4j: 1,
}
EMBEDDED_CHANGES: Mapping[Change, int] = {
    nothing: 20,
    damage_index: 3,
    tear_journal: 3,
    cut_journal_of_copy: 1,
    read_only_disk: 1,
    restore: 1,
}
SERVERS_CHANGES: Mapping[Change, int] = {nothing: 1}
BESIDE: Mapping[Change, int] = {nothing: 16, back_up_under_load: 2, second_server: 1}
SERVERS_BESIDE: Mapping[Change, int] = {nothing: 16, back_up_under_load: 1}
NEEDS_MOUNT: frozenset[object] = frozenset({full_disk, read_only_disk})
