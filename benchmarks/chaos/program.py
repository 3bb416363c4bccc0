"""Kills and other faults under load, by a seeded schedule: nothing acknowledged is lost, doubled, resurrected, leaked.

Each round lets clients of several tenants work, makes something wrong (disk, network, clock, model), kills a process,
maybe does something to its files, starts it again, and measures how long it is until a change is acknowledged. Every
few rounds everything stops, and all that is stored is compared with what the clients did; `verify` has to be clean.

A seed repeats the schedule: who is killed when, and what else is wrong. The clients' choices are seeded too; how they
and the kills interleave is up to the machine. A run that finds something keeps its folder and prints the command.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, TypeVar

from benchmarks.chaos import faults
from benchmarks.chaos.history import Fault, History, Kind
from benchmarks.chaos.load import Client, Connection, Gate, Sharing
from benchmarks.chaos.worlds import Embedded, NotStarted, Server, World, servers
from benchmarks.report import Report, figures_table, output_parser, positive, run
from memos.errors import BackendUnavailable
from tests.support import forks

TENANTS = ("ana", "ben", "cleo")
_CLIENTS_EACH = 2
_RECOVERED_WITHIN_S = 60.0
_IDLE_WITHIN_S = 60.0
_TELL_EVERY = 20
_FOR_EVER = 1e9
_T = TypeVar("_T")


class Run:
    """One run in one world."""

    def __init__(self, world: World, seed: int, *, pause_s: float, survey_every: int) -> None:
        self.world = world
        self.history = History()
        self.gate = Gate()
        self.sharing = Sharing(TENANTS)
        self.notes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.kills = 0
        self.recovered_s: dict[str, list[float]] = {}
        self.must_repair = False
        self.purged: set[str] = set()
        """Words of memories that were erased before the last survey: no file may hold them any more."""
        self.backups: list[tuple[Path, set[str], set[str]]] = []
        self.beside: list[threading.Thread] = []
        self._seed, self._pause_s, self._survey_every = seed, pause_s, survey_every
        self.second = Server(world.arguments())
        self.clients: list[Client] = []
        self._keys: dict[str, str] = {}

    def start(self) -> None:
        """Start the servers, make the tenants, let their clients begin."""
        admin = ""
        for server in self.world.servers:
            admin = server.start()["key"] or admin
        asking = Connection(self.world.ports, admin, Random(0))
        for tenant in TENANTS:
            asking.ask("POST", "/api/v1/users", {"id": tenant})
            made = asking.ask("POST", "/api/v1/keys", {"name": "chaos", "identity": tenant})
            assert made.ok, made
            self._keys[tenant] = made.body["secret"]
        asking.close()
        for tenant in TENANTS:
            for number in range(_CLIENTS_EACH):
                name = f"{tenant}{'abcdef'[number]}"
                seed = f"{self._seed}/{name}"
                connection = Connection(self.world.ports, self._keys[tenant], Random(seed))
                self.clients.append(
                    Client(
                        name,
                        tenant,
                        TENANTS,
                        connection,
                        self.history,
                        self.gate,
                        self.sharing,
                        seed,
                        shares=number == 0,
                        pause_s=self._pause_s,
                    )
                )
        self.gate.resume()

    def round(self, number: int) -> None:
        """Let one kill happen, with what else goes wrong around it."""
        self.history.round = number
        dice = Random(f"{self._seed}/{number}")
        embedded = isinstance(self.world, Embedded)
        weather = self._choose(dice, faults.EMBEDDED_WEATHER if embedded else faults.SERVERS_WEATHER)
        kill = self._choose(dice, faults.EMBEDDED_KILLS if embedded else faults.SERVERS_KILLS)
        change = self._choose(dice, faults.EMBEDDED_CHANGES if embedded else faults.SERVERS_CHANGES)
        beside = self._choose(dice, faults.BESIDE if embedded else faults.SERVERS_BESIDE)
        time.sleep(dice.uniform(0, 0.3))
        beside(self, dice)
        self.faults.update(each.__name__ for each in (weather, change, beside) if each is not faults.nothing)
        with weather(self, dice):
            time.sleep(dice.uniform(0, 0.4))
            began = time.monotonic()
            killed = kill(self, dice)
            self.kills += killed
            self.faults[kill.__name__] += killed
            down = any(server.process is None for server in self.world.servers)
            if weather is not faults.fine and weather is not faults.full_disk and dice.random() < 0.5 and down:
                self._start_in_weather()
        self.world.mend()
        if change is not faults.nothing:
            faults.kill_all_servers(self, dice)
            change(self, dice)
        self.start_servers()
        if self.must_repair:
            self._repair()
        self._await_recovery(kill.__name__, began, counted=change is faults.nothing and killed > 0)
        if number % self._survey_every == 0:
            self.survey()

    def start_servers(self) -> None:
        """Start every server that is down."""
        for server in self.world.servers:
            while server.process is None:
                beside = any(thread.is_alive() for thread in self.beside)
                try:
                    server.start()
                except NotStarted as error:
                    # A command that found no server has the folder for itself until it is done.
                    if not (beside and error.code == BackendUnavailable.exit_code):
                        self.history.violated(Fault.STUCK, f"a server did not start: {error}")
                        raise

    def survey(self) -> None:
        """Stop the clients and compare all that is stored with what they did."""
        self.gate.pause()
        try:
            for thread in self.beside:
                thread.join()
            self.beside.clear()
            self._await_idle()
            self.purged |= self.history.words(Kind.ERASED)
            asking = {tenant: Connection(self.world.ports, key, Random(0)) for tenant, key in self._keys.items()}
            self.history.survey({tenant: self._held(asking[tenant]) for tenant in TENANTS})
            for one, other in self.sharing.certain:
                grants = self._answer(asking[one], f"/api/v1/cubes/{one}/grants")
                self.sharing.change((one, other), any(grant["identity"] == other for grant in grants))
            for connection in asking.values():
                connection.close()
            self._verify()
            for folder, here, gone in self.backups:
                self._check_backup(folder, here, gone)
            self.backups.clear()
            for client in self.clients:
                client.searches_find = True
        finally:
            self.gate.resume()

    def check_copy(self, home: Path, here: set[str], gone: set[str], where: str, *, repair: bool = False) -> None:
        """Open an older copy of the installation and check that it is whole, maybe once its index was repaired."""
        try:
            found = self.world.inspect(home=str(home), env=self.world.embedded_environment(), repair=repair)
        except NotStarted as error:
            self.history.violated(Fault.STUCK, f"{where} does not open: {error}")
            return
        held: dict[str, list[Mapping[str, Any]]] = {}
        for item in found["items"]:
            held.setdefault(item["cube"], []).append(item)
        self.history.check_copy(held, gone, where)
        self.history.check_whole(held, here, where)
        if found["differences"]:
            self.history.violated(Fault.UNCLEAN, f"{where}: {found['differences'][:3]}")

    def doubt_searches(self) -> None:
        """Let searches miss memories until the next survey: an index is damaged, and may not be whole again yet."""
        for client in self.clients:
            client.searches_find = False

    def close(self) -> None:
        self.gate.end()
        for client in self.clients:
            client.join()
        for thread in self.beside:
            thread.join()
        self.second.close()

    def _choose(self, dice: Random, among: Mapping[_T, int]) -> _T:
        mounted = not isinstance(self.world, Embedded) or self.world.mounted
        able = {each: weight for each, weight in among.items() if mounted or each not in faults.NEEDS_MOUNT}
        if shutil.which("strace") is None:
            able = {each: weight for each, weight in able.items() if each is not faults.slow_disk}
        [chosen] = dice.choices(list(able), list(able.values()))
        return chosen

    def _start_in_weather(self) -> None:
        for server in self.world.servers:
            if server.process is None:
                try:
                    server.start()
                except NotStarted as error:
                    self.notes[f"starts that were refused (exit code {error.code})"] += 1

    def _repair(self) -> None:
        """Repair as `verify` tells to after damage of an index."""
        assert isinstance(self.world, Embedded)
        self.doubt_searches()
        done = self.world.verified("--repair")
        self.must_repair = False
        if done.returncode not in (0, 1):
            self.history.violated(Fault.UNCLEAN, f"verify --repair: {done.returncode}: {done.stderr}")

    def _await_recovery(self, name: str, began: float, *, counted: bool) -> None:
        deadline = time.monotonic() + _RECOVERED_WITHIN_S
        since = began if counted else time.monotonic()
        while not any(client.last_write >= since for client in self.clients):
            if time.monotonic() > deadline:
                self.history.violated(Fault.STUCK, f"no change was acknowledged {_RECOVERED_WITHIN_S:g} s after {name}")
                return
            time.sleep(0.005)
        if counted:
            self.recovered_s.setdefault(name, []).append(time.monotonic() - began)

    def _await_idle(self) -> None:
        """Wait until the servers work on no request any more that a client gave up."""
        deadline = time.monotonic() + _IDLE_WITHIN_S
        for server in self.world.servers:
            one = Connection(lambda port=server.port: [port], "", Random(0))  # type: ignore[misc]
            while one.text("/metrics").find("memos_requests_under_way 1.0") < 0:
                if time.monotonic() > deadline:
                    self.history.violated(Fault.STUCK, "requests are under way without a client")
                    break
                time.sleep(0.02)

    def _held(self, asking: Connection) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for wanted in ("", "&filter=%7B%22status%22%3A%22deleted%22%7D"):
            found += self._answer(asking, f"/api/v1/memories?limit=10000{wanted}")
        return found

    def _answer(self, asking: Connection, path: str) -> Any:
        deadline = time.monotonic() + _RECOVERED_WITHIN_S
        while not (answer := asking.ask("GET", path)).ok:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{path} is not answered: {answer}")
            time.sleep(0.05)
        return answer.body

    def _verify(self) -> None:
        if differences := self.world.verify():
            self.history.violated(Fault.UNCLEAN, f"verify: {differences[:5]}")

    def _check_backup(self, folder: Path, here: set[str], gone: set[str]) -> None:
        """Restore a backup that was written under load into a folder of its own."""
        try:
            self.world.restore(folder / "backup", folder / "home")
        except NotStarted as error:
            self.history.violated(Fault.BROKEN, f"data restore: {error}")
        else:
            self.check_copy(folder / "home", here, gone, "a restored backup")
            self.notes["backups under load that were restored"] += 1
        shutil.rmtree(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run as the arguments say; return the exit code, 1 when something happened that must never happen."""
    parser = output_parser(__doc__)
    parser.add_argument("--world", choices=("embedded", "servers"), default="embedded", help="where it runs")
    parser.add_argument("--kills", type=positive, default=60, help="end after so many kills (default 60)")
    parser.add_argument("--minutes", type=float, default=0, help="but not before so many minutes (default 0)")
    parser.add_argument("--at-most", type=float, default=_FOR_EVER, metavar="MINUTES", help="end after so many minutes")
    parser.add_argument("--pause-s", type=float, default=0.1, help="mean pause of a client (default 0.1)")
    parser.add_argument("--survey-every", type=positive, default=10, help="rounds between two surveys (default 10)")
    found: list[Run] = []
    code = run("chaos", parser.parse_args(argv), lambda arguments: _measured(arguments, found))
    return code or int(bool(found and found[0].history.violations))


def _measured(arguments: argparse.Namespace, found: list[Run]) -> Report:
    folder = Path(tempfile.mkdtemp(prefix="hippocube-chaos-"))
    began = time.monotonic()
    try:
        with closing(Embedded(folder)) if arguments.world == "embedded" else servers(folder) as world:
            with closing(
                Run(world, arguments.seed, pause_s=arguments.pause_s, survey_every=arguments.survey_every)
            ) as chaos:
                found.append(chaos)
                chaos.start()
                run_rounds(chaos, arguments.kills, arguments.minutes, arguments.at_most)
            figures = _figures(chaos, time.monotonic() - began)
            if chaos.history.violations:
                shutil.copytree(world.home, folder / "found", dirs_exist_ok=True)
    finally:
        forks.stop()
    if chaos.history.violations:
        _tell(chaos.history, folder, arguments)
    else:
        shutil.rmtree(folder)
    rows = {name: _times(times) for name, times in sorted(chaos.recovered_s.items())}
    return Report(figures, tables=[figures_table("seconds from a kill to the next acknowledged change", _TIMES, rows)])


def run_rounds(chaos: Run, kills: int, minutes: float = 0, at_most: float = _FOR_EVER) -> None:
    """Run rounds until there were so many kills and so many minutes are over, or `at_most` are; then survey."""
    began = time.monotonic()
    number, passed = 0, 0.0
    while passed < at_most and (chaos.kills < kills or passed < minutes):
        number += 1
        chaos.round(number)
        passed = (time.monotonic() - began) / 60
        if number % _TELL_EVERY == 0:
            told = f"round {number}: {chaos.kills} kills, {sum(chaos.history.counts.values())} operations"
            print(f"{told}, {len(chaos.history.violations)} violations, {passed:.1f} min", file=sys.stderr, flush=True)
    chaos.survey()


_TIMES = ("times", "p50", "max")


def _times(seconds: Sequence[float]) -> dict[str, Any]:
    return {"times": len(seconds), "p50": round(median(seconds), 2), "max": round(max(seconds), 2)}


def _figures(chaos: Run, seconds: float) -> dict[str, Any]:
    history = chaos.history
    faults_found = Counter(each.fault for each in history.violations)
    every = [time_s for times in chaos.recovered_s.values() for time_s in times]
    mounted = not isinstance(chaos.world, Embedded) or chaos.world.mounted
    return {
        "n": sum(history.counts.values()),
        "world": chaos.world.name,
        "minutes": round(seconds / 60, 1),
        "kills": chaos.kills,
        "rounds": history.round,
        "memories": len(history.memories),
        **{fault.value: faults_found[fault] for fault in Fault},
        "recovered_p50_s": _times(every)["p50"] if every else None,
        "recovered_max_s": _times(every)["max"] if every else None,
        "operations": dict(sorted(history.counts.items())),
        "errors": dict(sorted(history.errors.items())),
        "faults": dict(sorted(chaos.faults.items())),
        "notes": dict(sorted(chaos.notes.items())),
        "left_out": [] if mounted else ["full and read-only disk: this user may not mount a tmpfs"],
    }


def _tell(history: History, folder: Path, arguments: argparse.Namespace) -> None:
    again = f"python -m benchmarks.chaos --world {arguments.world} --seed {arguments.seed} --kills {arguments.kills}"
    print(f"{len(history.violations)} violations; files: {folder}; again: {again}", file=sys.stderr, flush=True)
    everything = [json.dumps([each.fault, each.what, each.history]) for each in history.violations]
    (folder / "violations.jsonl").write_text("\n".join(everything), encoding="utf-8")
