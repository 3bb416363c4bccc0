"""Both clients on activation memory: as `MemOS.kv` has it, with a real model, without one, and as who may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from memos.api.client import v1_models
from memos.core.clock import new_id
from memos.errors import BackendUnavailable, ConnectionLost, NotFound, PermissionDenied
from tests.api.client.conftest import Listening, Open
from tests.api.client.flaky import CUT, Flaky, answer
from tests.api.keys import keys_of
from tests.api.model_here import noted, saved, settled
from tests.api.model_here import opened as opened_with
from tests.api.running import running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """A server with a model."""
    home: Path = tmp_path_factory.mktemp("here")
    with opened_with(home / "home", saved(home / "model")) as memos, running(memos) as url:
        yield Listening(url, memos, *keys_of(memos))


@pytest.mark.heavy
def test_what_prompts_begin_with_is_composed_shown_dropped_and_warmed(here: Listening, opened: Open) -> None:
    client, (cube, ids) = opened(here.url, here.ana), noted(here.memos, "ana")
    assert client.tasks.wait(client.kv.compose(cube)).state == "done"
    settled(here.memos)
    shown = client.kv.show(cube)
    assert shown.model_dump() == asdict(here.memos.kv.show(cube, actor="ana"))
    assert [entry.item for entry in shown.entries] == ids
    assert client.kv.drop(cube) == shown.blocks["host"] > 0
    assert client.kv.show(cube).blocks == {}
    warmed = client.kv.warm(cube)
    assert (warmed.cube, warmed.tokens) == (cube, shown.tokens)
    assert warmed.seconds > 0
    assert client.kv.show(cube) == shown
    assert opened(here.url, here.admin).kv.show(cube, user="ana") == shown
    with pytest.raises(NotFound):
        opened(here.url, here.ben).kv.show(cube)


def test_all_of_it_is_told_and_verified_for_admins_alone(here: Listening, opened: Open) -> None:
    admin, ana = opened(here.url, here.admin), opened(here.url, here.ana)
    ana.kv.warm()
    settled(here.memos)
    found = admin.kv.stats()
    assert found.model_dump() == asdict(here.memos.kv.stats())
    assert sum(tier.blocks for tier in found.tiers) > 0
    assert admin.kv.verify() == ()
    for call in (ana.kv.stats, ana.kv.verify):
        with pytest.raises(PermissionDenied):
            call()
    with pytest.raises(PermissionDenied):
        admin.kv.verify(user="ana")


def test_without_a_model_the_errors_are_those_of_python(listening: Listening, opened: Open) -> None:
    client, cube = opened(listening.url, listening.ana), new_id()
    client.cubes.create(cube)
    with pytest.raises(BackendUnavailable, match="PREFIX_CACHE"):
        client.kv.warm(cube)
    assert (client.kv.show(cube).room, client.kv.drop(cube)) == (0, 0)
    for call in (client.kv.show, client.kv.compose, client.kv.warm, client.kv.drop):
        with pytest.raises(NotFound):
            call(new_id())


def test_a_warming_may_take_long_and_is_asked_for_once(flaky: Flaky, opened: Open) -> None:
    flaky.plays(CUT, answer(200, {"cube": "c", "tokens": 1, "seconds": 1.0}))
    with pytest.raises(ConnectionLost):
        opened(flaky.url).kv.warm("c")
    assert [(request.path, request.json) for request in flaky.requests] == [("/api/v1/activation/warm", {"cube": "c"})]
    assert v1_models.warm_prefix("c").least_s > 60  # a client's usual limit
