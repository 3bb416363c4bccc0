"""Chats with a model in this process: what their prompts begin with is kept, and leaves with the memories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from memos import MemOS, Settings
from memos.core.settings import ActivationSettings, ChatSettings
from memos.errors import InvalidAnswer, InvalidInput
from memos.memcube.ledger import schema as t
from tests.fakes import WordEmbedder
from tests.support import tiny_models  # skips without the extra `local`

SYSTEM = "You are a patient beekeeper who answers in few words and never guesses what nobody told. " * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that ends its answers with any of a third of all tokens."""
    folder = tiny_models.saved(tmp_path_factory.mktemp("model"))
    config = tiny_models.transformers.GenerationConfig.from_pretrained(folder)
    config.eos_token_id = list(range(0, 256, 3))
    config.save_pretrained(folder)
    return folder


@pytest.fixture
def memos(tmp_path: Path, settings: Settings, model: Path) -> Iterator[MemOS]:
    chat = ChatSettings(model=f"local:{model}", max_tokens=40)
    with MemOS.open(
        tmp_path / "home", settings=settings.model_copy(update={"chat_model": chat}), embedder=WordEmbedder()
    ) as opened:
        yield opened


def answered(memos: MemOS, **options: object):
    """Return the first answer that the random model finishes."""
    for place in range(30):
        tiny_models.torch.manual_seed(place)
        try:
            return memos.chat(f"Question {place}?", system_prompt=SYSTEM, store=False, temperature=1.0, **options)
        except InvalidAnswer:
            continue
    raise AssertionError("no answer came to its end")


def test_a_chat_answers_and_says_what_of_its_prompt_was_kept(memos: MemOS, model: Path) -> None:
    memos.add("Caroline keeps bees in Lyon.")
    first = answered(memos)
    assert first.model == f"local:{model}"
    assert first.activation is not None
    assert first.activation.prompt_tokens == first.prompt_tokens > 300
    again = answered(memos)
    assert again.text == first.text
    assert again.activation is not None
    assert again.activation.cached_tokens % 64 == 0
    assert again.activation.cached_tokens >= 256
    assert again.activation.tier == "host"


def test_a_stream_gives_the_same_answer(memos: MemOS) -> None:
    whole = answered(memos)
    for place in range(30):
        tiny_models.torch.manual_seed(place)
        with memos.chat.stream(f"Question {place}?", system_prompt=SYSTEM, store=False, temperature=1.0) as stream:
            try:
                text = "".join(stream)
            except InvalidAnswer:
                continue
            assert text.strip() == whole.text
            return


def test_an_erasure_leaves_no_block_of_its_cube(tmp_path: Path, memos: MemOS) -> None:
    kept = memos.add("Caroline keeps bees in Lyon.").item_ids
    for _ in range(3):
        answered(memos)
    memos._installation.activations._store.settle()
    folder = tmp_path / "home" / "activation"
    assert list(folder.glob("*/*.safetensors"))
    assert memos.erase(kept).state == "purged"
    assert not list(folder.glob("*/*.safetensors"))
    answered(memos)
    assert answered(memos).activation.cached_tokens > 0  # it fills again, without what was erased


def test_an_erasure_reaches_the_files_of_an_earlier_process(tmp_path: Path, settings: Settings, model: Path) -> None:
    home, chat = tmp_path / "home", ChatSettings(model=f"local:{model}", max_tokens=40)
    local = settings.model_copy(update={"chat_model": chat})
    with MemOS.open(home, settings=local, embedder=WordEmbedder()) as memos:
        kept = memos.add("Caroline keeps bees in Lyon.").item_ids
        for _ in range(3):
            answered(memos)
    assert list((home / "activation").glob("*/*.safetensors"))
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        assert memos.erase(kept).state == "purged"
    assert not list((home / "activation").glob("*/*.safetensors"))


def test_nothing_is_kept_where_the_budgets_are_none(tmp_path: Path, settings: Settings, model: Path) -> None:
    nothing = ActivationSettings(host_bytes=0, disk_bytes=0)
    chat = ChatSettings(model=f"local:{model}", max_tokens=40)
    update = {"chat_model": chat, "activation": nothing}
    with MemOS.open(tmp_path, settings=settings.model_copy(update=update), embedder=WordEmbedder()) as memos:
        assert answered(memos).activation.cached_tokens == 0
        assert answered(memos).activation.cached_tokens == 0
    assert not list(tmp_path.glob("activation/*/*"))


def test_a_wrong_path_is_told(tmp_path: Path, settings: Settings) -> None:
    chat = ChatSettings(model="local:/no/such/model")
    with (
        MemOS.open(tmp_path, settings=settings.model_copy(update={"chat_model": chat})) as memos,
        pytest.raises(InvalidInput, match="there is no folder /no/such/model"),
    ):
        memos.chat("Hello?")


def test_a_model_here_sees_no_images() -> None:
    with pytest.raises(ValidationError, match="images"):
        Settings(vision_model=ChatSettings(model="local:x"))


def files(home: Path) -> list[Path]:
    return list((home / "activation").glob("*/*.safetensors"))


def composed(memos: MemOS) -> None:
    """Wait for what composes and warms, and for nothing that a random model reads in vain."""
    deadline = time.monotonic() + 120
    while any(task.kind in ("compose", "warm") and not task.ended for task in memos.tasks.list(limit=1000)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def prefixed(memos: MemOS, *texts: str) -> list[str]:
    """Have prompts begin with these memories; return their ids."""
    ids = [item for text in texts for item in memos.add(text).item_ids]
    for id_ in ids:
        memos.tiers.pin(id_)
    composed(memos)
    assert [entry.item for entry in memos.kv.show().entries] == ids
    return ids


# Of such a length that no block ends with what every line begins with: that one would be the next memory's, too.
NOTES = [f"Note {n}: the hive at number {n} of the lane has a queen {n} weeks old." for n in range(12)]


def test_pinned_memories_are_warmed_and_the_first_question_finds_them(memos: MemOS) -> None:
    prefixed(memos, *NOTES)
    warm = memos.kv.show()
    assert warm.blocks == {"host": warm.blocks["host"]}
    asked = None
    for place in range(30):  # with the usual system prompt, which the warming had, too
        tiny_models.torch.manual_seed(place)
        try:
            asked = memos.chat(f"Question {place}?", store=False, temperature=1.0).activation
            break
        except InvalidAnswer:
            continue
    assert asked is not None
    assert asked.cached_tokens == warm.blocks["host"] * 64
    assert asked.cached_tokens > 0.9 * warm.tokens  # a byte is a token of this model, so there are many more


@pytest.mark.parametrize("how", ["delete", "erase"])
def test_a_memory_that_goes_takes_every_block_from_its_first_token_on_with_it(
    memos: MemOS, tmp_path: Path, how: str
) -> None:
    ids = prefixed(memos, *NOTES)
    for _ in range(3):
        answered(memos)
    store = memos._installation.activations._store
    store.settle()
    before = {block.key: block for block, _, _ in store.blocks()}
    gone = ids[6]
    told = {key for key, block in before.items() if gone in block.items}
    behind = set(told)
    for key, block in before.items():  # parents come first
        if block.parent in behind:
            behind.add(key)
    assert told
    assert len(behind) < len(before)
    on_disk = {path.stem for path in files(tmp_path / "home")}
    assert behind & on_disk, "else the disk would show nothing"
    getattr(memos, how)(gone)
    composed(memos)
    left = {block.key for block, _, _ in store.blocks()}
    assert not behind & left
    assert not behind & {path.stem for path in files(tmp_path / "home")}
    assert gone not in {item for block, _, _ in store.blocks() for item in block.items}


def test_another_model_may_be_named_for_one_chat(memos: MemOS, tmp_path: Path) -> None:
    folder = tiny_models.saved(tmp_path / "other", seed=7)
    config = tiny_models.transformers.GenerationConfig.from_pretrained(folder)
    config.eos_token_id = list(range(0, 256, 3))
    config.save_pretrained(folder)
    assert answered(memos, model=f"local:{folder}").model == f"local:{folder}"
    with pytest.raises(InvalidInput, match="there is no folder /no/such/model"):
        memos.chat("Hello?", model="local:/no/such/model")


def test_verifying_finds_damaged_blocks(memos: MemOS, tmp_path: Path) -> None:
    for _ in range(3):
        answered(memos)
    memos._installation.activations._store.settle()
    assert memos.maintenance.verify().clean
    [damaged, *_] = files(tmp_path / "home")
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\0\1\2\3\4\5\6\7")
    found = memos.maintenance.verify()
    assert [(each.store, each.kind) for each in found.differences] == [("activation", "damaged")]
    assert memos.maintenance.verify().clean


def test_what_another_process_erased_leaves_this_one_too(memos: MemOS, monkeypatch: pytest.MonkeyPatch) -> None:
    [gone, *_] = prefixed(memos, *NOTES)
    activations = memos._installation.activations
    with memos.ledger.write() as connection:  # as if another process had: nothing here hears of it
        connection.execute(sa.update(t.versions).where(t.versions.c.item_id == gone).values(status="deleted"))
    activations.forget_if_due()
    held = {item for block, _, _ in activations.blocks("default") for item in block.items}
    assert gone in held, "a folder of one's own has no other processes"
    monkeypatch.setattr(type(memos.ledger), "is_sqlite", False)
    activations.forget_if_due()
    held = {item for block, _, _ in activations.blocks("default") for item in block.items}
    assert gone not in held


def test_what_was_superseded_stays_with_what_says_so_behind_it(memos: MemOS) -> None:
    ids = prefixed(memos, *NOTES)
    before = memos.kv.show().blocks["host"]
    memos.update(ids[1], status="superseded")
    composed(memos)
    memos.kv.warm()
    assert "no longer so" in memos.kv.show().text
    assert memos.kv.show().blocks["host"] >= before
