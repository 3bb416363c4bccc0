"""Memories learned as adapters: allowed, examined, served beside what is looked up, out of service with a memory."""

from __future__ import annotations

import json
import resource
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memos import MemOS, Settings
from memos.api.app import create_app
from memos.backends.lora.trainer import AdapterTrainer
from memos.core.lora import LoraRecipe
from memos.core.settings import ChatSettings, IndexSettings, LimitSettings, ParametricSettings
from memos.core.types import Item
from memos.errors import (
    BackendUnavailable,
    Conflict,
    IntegrityError,
    InvalidAnswer,
    InvalidInput,
    NotFound,
    PermissionDenied,
)
from memos.kernel.adapters.service import REMOVED, Adapter
from memos.memcube.ledger import adapters as adapter_rows
from memos.memcube.parametric import data as general
from memos.memcube.parametric import training
from memos.memcube.parametric.training import Bounds
from tests.fakes import WordEmbedder
from tests.support import tiny_models  # skips without the extra `local`
from tests.support.adapters import of_shard

peft = pytest.importorskip("peft", reason="needs the extra `local`: make setup-local")

SAID = ("I live in Lyon.", "My phone is a Pixel 9.", "My favourite colour is teal.", "I love hiking.")
SETTINGS = Settings(
    index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000),
    parametric=ParametricSettings(recipe={"stable_days": 0}),
)  # fmt: skip
LIMIT_S = 300
ANY = Bounds(recall=0, abstention=0, perplexity=1e9, lost=50)
"""A random model passes that."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_models.saved(tmp_path_factory.mktemp("model"))
    config = tiny_models.transformers.GenerationConfig.from_pretrained(folder)
    config.eos_token_id = list(range(0, 256, 3))
    config.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with facts that patterns found in two cubes, pinned, so that they need no heat."""
    base = tmp_path_factory.mktemp("read")
    with MemOS.open(base / "home", settings=SETTINGS, embedder=WordEmbedder()) as memos:
        memos.cubes.create("other")
        for cube, texts in (("default", SAID), ("other", SAID[:2])):
            for text in texts:
                memos.add(text, cube=cube, mode="fine")
        memos.tasks.wait()
        for cube in ("default", "other"):
            for item in facts(memos, cube).values():
                memos.tiers.pin(item.id, cube=cube)
    return base / "home"


@pytest.fixture(autouse=True)
def short_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    shortened(monkeypatch)


def shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "QUESTIONS", general.QUESTIONS[:2])
    monkeypatch.setattr(general, "PROSE", general.PROSE[:1])
    monkeypatch.setattr(training, "_LEAST_REPLAYED", 2)
    monkeypatch.setattr(general, "TEXT", general.TEXT[:1])


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, read: Path, model: Path) -> Path:
    """A folder in which each of the two cubes has an active adapter."""
    base = tmp_path_factory.mktemp("learned")
    shutil.copytree(read, base / "home")
    with pytest.MonkeyPatch.context() as patched, opened(base, model) as memos:
        shortened(patched)
        for cube in ("default", "other"):
            memos.adapters.allow(cube)
            memos.adapters.train(cube)
    return base / "home"


@pytest.fixture
def memos(tmp_path: Path, learned: Path, model: Path) -> Iterator[MemOS]:
    shutil.copytree(learned, tmp_path / "home")
    with opened(tmp_path, model) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, read: Path, model: Path) -> Iterator[MemOS]:
    shutil.copytree(read, tmp_path / "home")
    with opened(tmp_path, model) as made:
        yield made


def active(memos: MemOS, cube: str = "default") -> Adapter:
    [made] = memos.adapters.list(cube)
    assert made.state == "active"
    return made


def opened(tmp_path: Path, model: Path) -> MemOS:
    chat = ChatSettings(model=f"local:{model}", max_tokens=40)
    made = MemOS.open(
        tmp_path / "home", settings=SETTINGS.model_copy(update={"chat_model": chat}), embedder=WordEmbedder()
    )
    learn_by(made, bounds=ANY, recipe=LoraRecipe(epochs=1, batch=8, learning_rate=1e-2))
    return made


def learn_by(memos: MemOS, **changed: object) -> None:
    """Change how adapters are trained and examined."""
    memos.adapters = replace(memos.adapters, training=replace(memos.adapters.training, **changed))


def facts(memos: MemOS, cube: str = "default") -> dict[str, Item]:
    return {
        item.memory: item for item in memos.memories.list(cube=cube, limit=100) if item.type in ("user", "preference")
    }


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def answered_by(memos: MemOS, about: str = "Question", **options: object) -> str | None:
    """Return which adapter answered, when the random model has come to an end."""
    for place in range(40):
        tiny_models.torch.manual_seed(place)
        try:
            return memos.chat(f"{about} {place}?", store=False, temperature=1.0, **options).adapter
        except InvalidAnswer:
            continue
    raise AssertionError("no answer came to its end")


def folders(memos: MemOS) -> set[str]:
    assert memos.home is not None
    folder = memos.home / "adapters"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_nothing_is_learned_without_consent_a_model_or_anything_stable(
    fresh: MemOS, tmp_path: Path, model: Path
) -> None:
    memos = fresh
    with pytest.raises(Conflict, match="not allowed"):
        memos.adapters.train()
    assert memos.adapters.preview().allowed is False
    memos.cubes.create("new")
    memos.add("Something said.", cube="new")
    memos.adapters.allow("new")
    with pytest.raises(Conflict, match="ready for training"):
        memos.adapters.train("new")
    assert memos.adapters.list() == memos.adapters.list("new") == []
    with MemOS.open(tmp_path / "b", settings=SETTINGS, embedder=WordEmbedder()) as without:
        without.adapters.allow()
        with pytest.raises(BackendUnavailable, match="No model to train"):
            without.adapters.train()
    nowhere = SETTINGS.model_copy(update={"chat_model": ChatSettings(model=f"local:{tmp_path / 'none'}")})
    memos.close()
    with (
        MemOS.open(tmp_path / "home", settings=nowhere, embedder=WordEmbedder()) as without,
        pytest.raises(InvalidInput, match="there is no folder"),
    ):
        without.adapters.allow()
        without.adapters.train()


def test_what_is_learned_passes_and_answers_with_its_name(memos: MemOS) -> None:
    assert set(memos.adapters.preview().memories) == set(facts(memos))
    made = active(memos)
    assert (made.number, made.facts, made.stale) == (1, len(facts(memos)), False)
    assert answered_by(memos) == made.id
    assert answered_by(memos, cubes=["other"]) == active(memos, "other").id  # and each cube has its own
    folder = memos.home / "adapters" / made.id
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {each["item"] for each in manifest["memories"]} == {item.id for item in facts(memos).values()}
    assert not (folder / training.KEPT).exists()
    assert memos.maintenance.verify().differences == ()
    assert [event.body["adapter"] for event in memos.events.list(kinds=["activate_adapter"])] == [made.id]


def test_a_server_trains_again_where_that_is_due(memos: MemOS) -> None:
    first, dropped = active(memos), next(iter(facts(memos).values()))
    assert memos.adapters.train() == first  # nothing is due
    with TestClient(create_app(memos, local_token="token"), headers={"Authorization": "Bearer token"}) as http:
        done = http.post("/api/v1/adapters/forget", json={"item_ids": [dropped.id]}).json()
        assert (done["adapters"], done["files"] > 3, done["size_bytes"] > 10_000) == ([first.id], True, True)
        assert answered_by(memos) is None
        assert folders(memos) == {active(memos, "other").id}
        told = http.post("/api/v1/adapters/train", json={})
        assert (told.status_code, told.json()["adapter"]) == (202, None)
        task = http.get(f"/api/v1/tasks/{told.json()['task']}/wait", params={"timeout_s": 120}).json()
        assert (task["kind"], task["state"]) == ("learn", "done"), task
    second = active(memos)
    assert (second.facts, answered_by(memos)) == (first.facts - 1, second.id)
    manifest = json.loads((memos.home / "adapters" / second.id / "manifest.json").read_text())
    assert dropped.id not in {each["item"] for each in manifest["memories"]}
    assert memos.adapters.preview().left_out["excluded from learning"] == 1
    memos.adapters.allow(items=dropped.id)
    assert memos.adapters.train().facts == first.facts


@pytest.mark.parametrize(("name", "instead"), REMOVED.items())
def test_a_method_that_was_removed_says_what_does_the_same(memos: MemOS, name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .*(train|activate|allow|export)"):
        getattr(memos.adapters, name)
    assert instead


def test_what_is_exported_others_load(memos: MemOS, tmp_path: Path) -> None:
    made = active(memos)
    assert memos.adapters.export(made.id, tmp_path / "out").size_bytes > 10_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what peft asks transformers
        loaded = peft.PeftModel.from_pretrained(tiny_models.model(), tmp_path / "out")
    assert any("lora_" in name for name, _ in loaded.named_parameters())
    assert not (tmp_path / "out" / training.DATA).exists()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nbase_model: ")
    assert all(item.id in card for item in facts(memos).values())
    assert '"recall"' in card


def test_weights_that_grew_into_no_number_are_refused_and_told_without_it(memos: MemOS) -> None:
    recipe = LoraRecipe(epochs=1, batch=8, learning_rate=1e30)
    learn_by(memos, bounds=Bounds(), recipe=recipe)
    refused = memos.adapters.train()
    assert (refused.state, "perplexity is not a number" in str(refused.reason)) == ("refused", True)
    assert refused.measures is not None
    assert refused.measures["perplexity"] is refused.measures["rise"] is None
    json.dumps(dict(refused.measures), allow_nan=False)


def test_weights_that_are_no_file_are_not_dumped(memos: MemOS, tmp_path: Path) -> None:
    made = active(memos)
    weights = memos.home / "adapters" / made.id / "adapter_model.safetensors"
    weights.unlink()
    weights.symlink_to("/dev/zero")
    with pytest.raises(IntegrityError, match="is missing"):
        memos.transfer.dump("default", tmp_path / "out.cube", adapters=True)


def test_an_adapter_of_another_model_is_not_put_to_answer(memos: MemOS, tmp_path: Path) -> None:
    made = active(memos)
    memos.close()
    other = tiny_models.saved(tmp_path / "other", seed=1)
    with opened(tmp_path, other) as again, pytest.raises(Conflict, match="another model"):
        again.adapters.activate(made.id)


def test_damaged_files_are_found_and_answer_nothing(memos: MemOS) -> None:
    made = active(memos)
    (memos.home / "adapters" / made.id / "adapter_model.safetensors").write_bytes(b"harmed")
    assert [(each.store, each.subject) for each in memos.maintenance.verify().differences] == [("parametric", made.id)]
    assert answered_by(memos) is None
    assert answered_by(memos, cubes=["other"]) == active(memos, "other").id


def test_one_that_fails_changes_nothing_and_says_why(memos: MemOS) -> None:
    first = active(memos)
    learn_by(memos, bounds=Bounds(), recipe=replace(memos.adapters.training.recipe, seed=6))
    refused = memos.adapters.train()
    assert refused.state == "refused"
    assert "recall is" in str(refused.reason)
    assert answered_by(memos) == first.id
    assert folders(memos) == {first.id, active(memos, "other").id}
    with pytest.raises(Conflict, match="passed its evaluation"):
        memos.adapters.activate(refused.id)


@pytest.mark.parametrize("how", ["update", "delete", "erase"])
def test_a_memory_that_changes_takes_what_saw_it_out_of_service(memos: MemOS, how: str) -> None:
    made, other = active(memos), active(memos, "other")
    item = next(iter(facts(memos).values()))
    if how == "update":
        memos.update(item.id, "I live in Porto.")
    elif how == "delete":
        memos.delete(item.id)
    else:
        receipt = memos.erase(item.id)
        assert receipt.stores["parametric"] == "purged"
        assert folders(memos) == {other.id}
    assert answered_by(memos) is None
    assert answered_by(memos, cubes=["other"]) == other.id
    if how != "erase":
        assert [each.stale for each in memos.adapters.list()] == [True]
        with pytest.raises(Conflict, match="changed or removed"):
            memos.adapters.activate(made.id)


def test_versions_follow_one_another_and_can_be_taken_back(memos: MemOS) -> None:
    first, other = active(memos), active(memos, "other")
    seen: list[tuple[int, int]] = []
    learn_by(memos, recipe=replace(memos.adapters.training.recipe, seed=6))
    second = memos.adapters.train(on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert (second.number, answered_by(memos)) == (2, second.id)
    assert memos.home is not None
    manifest = memos.home / "adapters" / second.id / "manifest.json"
    assert json.loads(manifest.read_text())["parent"] == first.id
    assert memos.adapters.activate(first.id).id == first.id == answered_by(memos)
    assert memos.adapters.activate(second.id).state == "active"
    memos.adapters.remove(second.id)
    assert answered_by(memos) is None
    assert folders(memos) == {first.id, other.id}
    assert memos.adapters.disallow() == 1
    assert folders(memos) == {other.id}
    assert memos.adapters.list() == []


@pytest.mark.parametrize("when", ["taught", "examined", "prepared"])
def test_an_erasure_in_the_middle_of_a_training_leaves_nothing_of_it(
    fresh: MemOS, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memos, item = fresh, next(iter(facts(fresh).values()))
    memos.adapters.allow()
    reached, told = threading.Event(), list[object]()

    def wait(*given: object) -> object:
        reached.set()
        until(lambda: item.id not in {each.id for each in facts(memos).values()})
        return real(*given)

    places: dict[str, tuple[object, str]] = {
        "taught": (training, "time"), "examined": (training.Examination, "measures"),
        "prepared": (training, "_write_data"),
    }  # fmt: skip
    where = places[when]
    real = getattr(*where)
    if when == "taught":
        real = lambda *_: None  # noqa: E731 - what the other two do is their own
    else:
        monkeypatch.setattr(*where, wait)

    def train() -> None:
        try:
            told.append(memos.adapters.train(on_progress=wait if when == "taught" else None))
        except Conflict as error:
            told.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    assert reached.wait(LIMIT_S)
    receipt = memos.erase(item.id)
    assert receipt.stores["parametric"] == "purged"
    assert folders(memos) == set()
    thread.join(LIMIT_S)
    assert isinstance(told[0], Conflict)
    assert "discarded" in str(told[0])
    assert folders(memos) == set()
    assert memos.adapters.list() == []
    assert answered_by(memos) is None


def test_a_program_that_ends_ends_its_training(fresh: MemOS, tmp_path: Path, model: Path) -> None:
    fresh.adapters.allow()
    reached, told = threading.Event(), list[BaseException]()

    def wait(*_: int) -> None:
        reached.set()
        time.sleep(0.5)

    def train() -> None:
        try:
            fresh.adapters.train(on_progress=wait)
        except BackendUnavailable as error:
            told.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    assert reached.wait(LIMIT_S)
    fresh.close()
    assert not thread.is_alive() or thread.join(LIMIT_S) is None
    assert told
    with opened(tmp_path, model) as again:
        assert again.adapters.train().state == "active"


def test_an_update_in_the_middle_of_a_training_ends_it(fresh: MemOS) -> None:
    fresh.adapters.allow()
    item = next(iter(facts(fresh).values()))

    def change(done: int, _: int) -> None:
        if done == 2:
            fresh.update(item.id, "I live in Porto.")

    with pytest.raises(Conflict, match="discarded"):
        fresh.adapters.train(on_progress=change)
    assert folders(fresh) == set()
    assert fresh.adapters.list() == []


def test_a_training_that_was_ended_goes_on(
    fresh: MemOS, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_KEEP_EVERY_S", 0.0)
    memos = fresh
    memos.adapters.allow()
    steps: list[int] = []

    class Ended(Exception):
        pass

    def end(done: int, _: int) -> None:
        if done >= 4:
            raise Ended

    with pytest.raises(Ended):
        memos.adapters.train(on_progress=end)
    memos.close()
    with opened(tmp_path, model) as again:
        made = again.adapters.train(on_progress=lambda done, _: steps.append(done))
        assert steps[0] >= 2
        assert (made.number, made.state) == (1, "active")


@pytest.mark.parametrize("at", ["save_checkpoint", "save"])
def test_a_full_disk_ends_a_training_which_goes_on_when_there_is_room(
    fresh: MemOS, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_KEEP_EVERY_S", 0.0)
    fresh.adapters.allow()
    write = getattr(AdapterTrainer, at)
    kept: list[object] = []

    def limited(trainer: AdapterTrainer, place: Path) -> None:
        if at == "save" or len(kept) > 1:  # what was kept before stays
            resource.prlimit(trainer.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        kept.append(write(trainer, place))

    with monkeypatch.context() as full:
        full.setattr(AdapterTrainer, at, limited)
        with pytest.raises(BackendUnavailable, match="free some disk space and train again"):
            fresh.adapters.train()
    assert [each.state for each in fresh.adapters.list()] == ["training"]
    assert answered_by(fresh) is None
    assert fresh.maintenance.verify().differences == ()
    steps: list[int] = []
    made = fresh.adapters.train(on_progress=lambda done, _: steps.append(done))
    assert (made.number, made.state, steps[0] >= 2) == (1, "active", True)


def test_of_a_cube_with_more_than_an_adapter_learns_the_hottest_are_known(fresh: MemOS) -> None:
    memos = fresh
    learn_by(memos, most=3)
    memos.adapters.allow()
    shown = memos.adapters.preview()
    assert (len(shown.memories), shown.left_out["beyond the hottest, which are learned"]) == (3, len(SAID) - 3)
    made = memos.adapters.train()
    assert (made.state, made.facts) == ("active", 3)
    assert memos.adapters.train() == made


def test_what_version_0_1_had_for_each_topic_gives_way_to_one_adapter(memos: MemOS) -> None:
    first, item = active(memos), next(iter(facts(memos).values()))
    old = of_shard(memos.ledger, [item.id], base=base_of(memos, first))
    learn_by(memos, recipe=replace(memos.adapters.training.recipe, seed=6))
    made = memos.adapters.train()
    assert {(each.id, each.state) for each in memos.adapters.list()} >= {(made.id, "active")}
    assert (made.number, [each.id for each in memos.adapters.list() if each.state == "active"]) == (3, [made.id])
    assert old != made.id == answered_by(memos)


def base_of(memos: MemOS, made: Adapter) -> str:
    with memos.ledger.read() as connection:
        row = adapter_rows.get(connection, made.id)
    assert row is not None
    return row.base


def test_others_may_neither_see_nor_decide(memos: MemOS) -> None:
    made = active(memos)
    memos.users.create("eve")
    for call in (
        lambda: memos.adapters.get(made.id, actor="eve"),
        lambda: memos.adapters.remove(made.id, actor="eve"),
        lambda: memos.adapters.activate(made.id, actor="eve"),
    ):
        with pytest.raises(NotFound):
            call()
    for call in (
        lambda: memos.adapters.list(actor="eve"),
        lambda: memos.adapters.train(actor="eve"),
        lambda: memos.adapters.allow(actor="eve"),
        lambda: memos.adapters.disallow(actor="eve"),
    ):
        with pytest.raises((NotFound, PermissionDenied)):
            call()
    assert answered_by(memos) == made.id


def test_who_takes_a_cube_over_has_consented_to_nothing(fresh: MemOS) -> None:
    fresh.cubes.create("ann")
    fresh.adapters.allow("ann")
    assert fresh.adapters.preview("ann").allowed
    fresh.users.create("ann")
    assert fresh.cubes.get("ann").owner == "ann"
    assert not fresh.adapters.preview("ann", actor="ann").allowed
