"""Kills and other faults under load of several tenants; `benchmarks.chaos` has the schedule and what it checks."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import chaos
from benchmarks.chaos.history import ABSENT, Fault, History, Kind, State
from benchmarks.chaos.program import Run, run_rounds
from benchmarks.chaos.worlds import Servers
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.postgres_server import PostgresServer

NEVER = [fault.value for fault in Fault]


def test_forty_eight_kills_of_an_installation_in_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--kills", "48", "--seed", "1", "--survey-every", "15", "--pause-s", "0.2"]
    assert chaos.main(arguments) == 0, capsys.readouterr().err
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["kills"] >= 48
    assert figures["operations"]["add"] > 0
    assert figures["recovered_max_s"] is not None
    assert [figures[name] for name in NEVER] == [0] * len(NEVER)


def test_twelve_kills_of_two_servers_and_what_they_stand_on(
    tmp_path: Path, postgres_server: PostgresServer, neo4j_server: Neo4jServer
) -> None:
    with (
        closing(Servers(tmp_path, postgres_server, neo4j_server)) as world,
        closing(Run(world, 1, pause_s=0.2, survey_every=6)) as run,
    ):
        run.start()
        run_rounds(run, 12)
        assert run.kills >= 12
        assert run.history.counts["add"] > 0
        assert run.history.violations == []


def seen(history: History, tenant: str, *states: tuple[str, str]) -> list[Fault]:
    """Return the faults of a survey that shows these texts and statuses."""
    held = [
        {"id": str(number), "type": "message", "memory": text, "status": status}
        for number, (text, status) in enumerate(states)
    ]
    history.survey({tenant: held})
    return [violation.fault for violation in history.violations]


def test_a_survey_sees_what_is_lost_doubled_resurrected_leaked_or_half() -> None:
    def one(kind: Kind = Kind.HERE) -> tuple[History, str]:
        history = History()
        [memory] = history.new("ana", "anaa", 1)
        memory.states = {State(kind)}
        return history, memory.text(0)

    history, text = one()
    assert seen(history, "ana", (text, "active")) == []
    history, text = one()
    assert seen(history, "ana") == [Fault.LOST]
    history, text = one()
    assert seen(history, "ana", (text, "active"), (text, "active")) == [Fault.DOUBLED]
    history, text = one(Kind.ERASED)
    assert Fault.RESURRECTED in seen(history, "ana", (text, "active"))
    history, text = one(Kind.DELETED)
    assert seen(history, "ana", (text, "active")) == [Fault.RESURRECTED]
    history, text = one()
    assert Fault.LEAKED in seen(history, "ben", (text, "active"))
    history, text = one()
    assert seen(history, "ana", (text.replace("revision0", "revision7"), "active")) == [Fault.LOST]


def test_a_change_without_an_answer_may_have_happened_or_not_and_is_settled_by_a_survey() -> None:
    for there in (True, False):
        history = History()
        first, second = history.new("ana", "anaa", 2)
        history.doubt([first, second], State(Kind.HERE))
        held = [(first.text(0), "active"), (second.text(0), "active")] if there else []
        assert seen(history, "ana", *held) == []
        assert {first.state, second.state} == ({State(Kind.HERE)} if there else {ABSENT})
        assert not first.doubtful
    history = History()
    pair = history.new("ana", "anaa", 2)
    history.doubt(pair, State(Kind.HERE))
    assert seen(history, "ana", (pair[0].text(0), "active")) == [Fault.BROKEN]
