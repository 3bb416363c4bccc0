"""Every route, with the keys of two tenants: nothing of one's is ever seen, or changed, by the other.

A new route is walked by itself. When it takes a parameter that is not in `VALUES`, the test fails and says so.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.api.conftest import Server
from tests.api.tenancy import (
    DESTROYS,
    LEFT_OUT,
    NOTHING,
    OTHER,
    OUT_OF_REACH,
    PLAIN,
    TAKES_NAMES,
    UNTOLD,
    VALUES,
    VICTIM,
    WITHOUT,
    Things,
    is_refused,
    possessions,
    send,
    state_of,
    told_of_others,
)
from tests.api.walking import Found, every_route


@pytest.fixture(scope="module")
def tenants(server: Server) -> Iterator[tuple[Things, dict[str, str], dict[str, str]]]:
    """Give the victim one of everything; return that, and the headers of the other and of the victim."""
    memos = server.memos
    keys = {}
    for user in (VICTIM, OTHER):
        memos.users.create(user)
        keys[user] = {"Authorization": f"Bearer {memos.keys.create(user, 'test').secret}"}
    yield possessions(memos), keys[OTHER], keys[VICTIM]


def _routes(server: Server) -> list[Found]:
    return list(every_route(server.http.app))


def test_every_parameter_of_every_route_has_a_value(server: Server) -> None:
    for found in _routes(server):
        if not found.told:
            assert str(found) in UNTOLD, f"{found} is told by no document: say in UNTOLD why nothing can leak there"
            continue
        names = found.in_path | found.query | set(found.body)
        unknown = names - set(VALUES) - set(PLAIN) - LEFT_OUT
        assert not unknown, f"{found}: add values for {unknown} to VALUES, PLAIN or LEFT_OUT"


@pytest.mark.heavy
def test_nobody_sees_or_changes_what_is_anothers(
    server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]
) -> None:
    things, other, _ = tenants
    before = state_of(server.memos)
    walked, wrong = 0, []
    for found in _routes(server):
        if not found.told:
            continue
        for without in WITHOUT:
            answer = send(server, found, things, other, without)
            if answer.status_code == 500 or told_of_others(answer, things):  # without a model: 503
                wrong.append(f"{found}: {answer.status_code} {answer.text}")
            walked += 1
            if str(found) in TAKES_NAMES:
                continue
            # What is another's is answered as what is nowhere.
            nowhere = send(server, found, NOTHING, other, without)
            same = answer.status_code == nowhere.status_code
            if not same or (is_refused(answer) and answer.text != _as_if(nowhere, things)):
                wrong.append(f"{found} tells what is there: {answer.text} and not {nowhere.text}")
    assert not wrong, "\n".join(wrong)
    assert walked > 800
    assert state_of(server.memos) == before


def test_the_walk_reaches_the_victims_things_with_the_victims_key(
    server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]
) -> None:
    """A refusal in the other walk has to be one for the key, not one for a wrong request."""
    things, _, victim = tenants
    tried, missed = 0, set()
    for found in _routes(server):
        if not found.told or found.method == "DELETE" or any(word in found.path for word in DESTROYS):
            continue
        tried += 1
        answers = (send(server, found, things, victim, without) for without in WITHOUT)
        if all(is_refused(answer) and answer.status_code != 409 for answer in answers):
            missed.add(str(found))
    assert missed <= OUT_OF_REACH, "\n".join(missed - OUT_OF_REACH)
    assert tried > 110


def _as_if(nowhere: httpx2.Response, things: Things) -> str:
    """Return an answer about made-up things as it would be about somebody's."""
    text = nowhere.text
    for name in Things.__dataclass_fields__:
        text = text.replace(getattr(NOTHING, name), getattr(things, name))
    return text


def test_counts_are_of_ones_own(server: Server, tenants: tuple[Things, dict[str, str], dict[str, str]]) -> None:
    _, other, _ = tenants
    server.memos.tasks.wait(timeout_s=60)
    counted = server.http.get("/api/v1/tasks/counts", headers=other).json()
    cubes = [cube.id for cube in server.memos.cubes.list(actor=OTHER)]
    assert counted == {str(state): count for state, count in server.memos.tasks.counts(cubes=cubes).items()}
    assert sum(counted.values()) < sum(server.memos.tasks.counts().values())
    shown = server.http.get("/api/v1/overview", headers=other).json()
    assert {cube["cube"] for cube in shown["cubes"]} <= set(cubes)
    assert shown["more_cubes"] == 0
