"""Adapters at a vLLM server: given to it, asked by name, given again where it lost them, and taken back."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from memos import MemOS
from memos.backends.openai import vllm as vllm_adapters
from memos.core.clock import new_id
from memos.core.lora import ActiveAdapter, LoraRecipe
from memos.core.settings import ParametricSettings
from memos.errors import BackendUnavailable
from memos.kernel.chat.results import ChatResult
from memos.memcube import erasure as erase
from tests.fakes import WordEmbedder
from tests.kernel.test_adapters import ANY, SETTINGS, facts, learn_by, model, read, shortened
from tests.support.adapters import sealed
from tests.support.servers.openai_server import OpenAIServer, Said, error
from tests.support.servers.vllm import Vllm

__all__ = ["model", "read"]  # fixtures

SEEN_AS = "/seen/adapters"


def opened(home: Path, server: OpenAIServer, model: Path, **changed: Any) -> MemOS:
    learned = ParametricSettings(stable_days=0, **{"base": str(model), "vllm_folder": SEEN_AS, **changed})
    settings = SETTINGS.model_copy(
        update={"chat_model": server.settings(retries=0, timeout_s=60.0), "parametric": learned}
    )
    made = MemOS.open(home, settings=settings, embedder=WordEmbedder())
    learn_by(made, bounds=ANY, recipe=LoraRecipe(epochs=1, batch=8, imitation=0.0))
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, read: Path, model: Path) -> Path:
    """A folder with an active adapter, trained beside an endpoint."""
    home = tmp_path_factory.mktemp("trained") / "home"
    shutil.copytree(read, home)
    with OpenAIServer(Vllm()) as server, pytest.MonkeyPatch.context() as patched, opened(home, server, model) as memos:
        shortened(patched)
        memos.adapters.allow()
        assert memos.adapters.train().state == "active"
    return home


@pytest.fixture
def vllm() -> Vllm:
    return Vllm()


@pytest.fixture
def server(vllm: Vllm) -> Iterator[OpenAIServer]:
    with OpenAIServer(vllm) as made:
        yield made


@pytest.fixture
def memos(tmp_path: Path, trained: Path, server: OpenAIServer, model: Path) -> Iterator[MemOS]:
    shutil.copytree(trained, tmp_path / "home")
    with opened(tmp_path / "home", server, model) as made:
        yield made


def chat(memos: MemOS, **options: Any) -> ChatResult:
    return memos.chat("Where do I live?", store=False, **options)


def streamed(memos: MemOS) -> str | None:
    """Return which adapter a streamed answer is of."""
    stream = memos.chat.stream("Where do I live?", store=False)
    assert "".join(stream) == "It is so."
    assert stream.result is not None
    return stream.result.adapter


def name_of(memos: MemOS) -> str:
    [made] = memos.adapters.list()
    return f"memstrata-{made.id}"


def test_a_cube_is_answered_by_its_adapter_and_others_by_the_model(memos: MemOS, vllm: Vllm) -> None:
    name, [made] = name_of(memos), memos.adapters.list()
    for _ in range(2):
        assert chat(memos).adapter == made.id
    assert vllm.loaded == {name: f"{SEEN_AS}/{made.id}"}
    assert vllm.count("load_lora_adapter") == 1
    assert vllm.calls[-1] == ("completions", name)
    assert streamed(memos) == made.id
    assert vllm.calls[-1] == ("completions", name)
    assert chat(memos, cubes=["other"]).adapter is None
    assert vllm.calls[-1] == ("completions", "m")


def test_a_server_that_was_started_anew_is_given_it_again(memos: MemOS, vllm: Vllm) -> None:
    made = chat(memos).adapter
    assert made is not None
    vllm.loaded.clear()
    assert chat(memos).adapter == made
    vllm.loaded.clear()
    assert streamed(memos) == made
    assert vllm.count("load_lora_adapter") == 3


def test_one_that_was_there_before_is_used(memos: MemOS, vllm: Vllm) -> None:
    vllm.loaded[name_of(memos)] = SEEN_AS
    assert chat(memos).adapter is not None


@pytest.mark.parametrize(
    "said",
    [
        error(400, "LoRA rank 64 is greater than max_lora_rank 16."),
        error(404, "Not Found"),
        error(500, "CUDA out of memory"),
        Said(cut=-1),
        Said(gate=threading.Event()),
    ],
    ids=["refused", "no such call", "failing", "broken off", "too slow"],
)
def test_what_the_server_does_not_take_is_answered_without(
    memos: MemOS, vllm: Vllm, said: Said, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vllm.says["load_lora_adapter"] = said
    if said.gate is not None:
        monkeypatch.setattr(vllm_adapters, "_LOAD_S", 1.0)
    for _ in range(2):
        found = chat(memos)
        assert (found.adapter, found.text) == (None, "It is so.")
    assert vllm.count("load_lora_adapter") == 1  # nobody waits for it each time
    assert "answered without its adapter" in caplog.text
    if said.gate is not None:
        said.gate.set()
    del vllm.says["load_lora_adapter"]
    monkeypatch.setattr(vllm_adapters, "_LOAD_S", 60.0)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 60)  # for this module alone: other threads wait by it
    monkeypatch.setattr(vllm_adapters, "time", later)
    assert chat(memos).adapter is not None


def test_a_server_that_never_keeps_it_is_asked_without(memos: MemOS, vllm: Vllm) -> None:
    vllm.says["load_lora_adapter"] = Said(body="Success")
    assert chat(memos).adapter is None
    assert [call for call, _ in vllm.calls] == ["load_lora_adapter", "completions"] * 2 + ["completions"]


def test_a_folder_at_a_server_needs_the_base_that_it_serves() -> None:
    with pytest.raises(ValidationError, match="needs the BASE"):
        ParametricSettings(vllm_folder=SEEN_AS)


def test_damaged_weights_are_given_to_nobody(memos: MemOS, vllm: Vllm) -> None:
    [made] = memos.adapters.list()
    (memos.home / "adapters" / made.id / "adapter_model.safetensors").write_bytes(b"harmed")
    assert chat(memos).adapter is None
    assert vllm.count("load_lora_adapter") == 0


def test_a_memory_that_changes_takes_it_back(memos: MemOS, vllm: Vllm) -> None:
    assert chat(memos).adapter is not None
    memos.update(next(iter(facts(memos).values())).id, "I live in Porto.")
    assert chat(memos).adapter is None
    memos._removal.unload_stale()
    assert vllm.loaded == {}
    assert list((memos.home / "served").iterdir()) == []


def test_an_erasure_takes_it_back_before_the_receipt_says_so(memos: MemOS, vllm: Vllm) -> None:
    assert chat(memos).adapter is not None
    receipt = memos.erase(next(iter(facts(memos).values())).id)
    assert (receipt.state, receipt.stores["parametric"]) == ("purged", "purged")
    assert vllm.loaded == {}
    assert memos.maintenance.verify().clean


@pytest.mark.parametrize("setting", ["kept", "gone"])
def test_what_an_earlier_process_gave_is_taken_back(
    memos: MemOS, vllm: Vllm, server: OpenAIServer, model: Path, setting: str
) -> None:
    assert chat(memos).adapter is not None
    memos.close()
    changed = {} if setting == "kept" else {"vllm_folder": None}
    with opened(memos.home, server, model, **changed) as again:
        assert again.adapters.disallow() == 1
        assert vllm.loaded == {}


@pytest.mark.parametrize(
    "said",
    [error(500, "No."), Said(cut=-1), Said(404, "<h1>404 Not Found</h1>", content_type="text/html")],
    ids=["failing", "broken off", "a proxy's 404"],
)
def test_a_receipt_stays_unfinished_until_the_server_says_that_it_is_gone(memos: MemOS, vllm: Vllm, said: Said) -> None:
    assert chat(memos).adapter is not None
    vllm.says["unload_lora_adapter"] = said
    item = next(iter(facts(memos).values())).id
    with pytest.raises(BackendUnavailable, match="may still answer with adapter"):
        memos.erase(item)
    [receipt] = erase.unfinished(memos.ledger)
    assert receipt.state == "purging"
    assert {name for name, state in receipt.stores.items() if state == "purging"} == {"parametric"}
    assert not list((memos.home / "adapters").iterdir())  # what is here went at once
    assert chat(memos).adapter is None
    del vllm.says["unload_lora_adapter"]
    memos.maintenance.finish_erasures()
    assert memos.memories.erase_receipt(receipt.id).stores["parametric"] == "purged"
    assert memos.memories.erase_receipt(receipt.id).state == "purged"
    assert vllm.loaded == {}


@pytest.mark.parametrize("said", ['{"detail": "Not Found"}', '{"error":{"message":"Not Found","code":404}}'])
def test_a_server_that_was_started_without_adapters_has_none(memos: MemOS, vllm: Vllm, said: str) -> None:
    assert chat(memos).adapter is not None
    vllm.says["unload_lora_adapter"] = Said(404, said)
    receipt = memos.erase(next(iter(facts(memos).values())).id)
    assert receipt.stores["parametric"] == "purged"


def _url(memos: MemOS) -> str:
    assert memos.settings.chat_model.base_url is not None
    return memos.settings.chat_model.base_url


def test_a_server_that_hangs_is_asked_once_and_holds_up_no_other_adapter(
    memos: MemOS, vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    memos._worker.stop()
    served = memos._installation.served
    assert served is not None
    monkeypatch.setattr(vllm_adapters, "_UNLOAD_S", 60.0)
    monkeypatch.setattr(served, "_settings", served._settings.model_copy(update={"timeout_s": 60.0}))
    for _ in range(3):  # as if it had been given three more
        served._write(served._note_of(new_id(), _url(memos)), _url(memos))
    vllm.says["unload_lora_adapter"] = Said(gate=(gate := threading.Event()), cut=-1)
    taking = threading.Thread(target=lambda: served.keep_only_if_due(lambda _: False))
    taking.start()
    while not vllm.count("unload_lora_adapter"):
        time.sleep(0.01)
    assert chat(memos).adapter is not None
    assert taking.is_alive(), "the chat did not wait for it"
    gate.set()
    taking.join(60)
    assert vllm.count("unload_lora_adapter") == 1
    assert len(list((memos.home / "served").iterdir())) == 4
    del vllm.says["unload_lora_adapter"]
    served.keep_only_if_due(lambda _: False)
    assert vllm.count("unload_lora_adapter") == 1, "it is left alone for a while"
    memos._removal.unload_stale()
    assert len(list((memos.home / "served").iterdir())) == 1
    assert len(vllm.loaded) == 1


def test_an_erasure_that_waits_for_a_server_is_no_failure_of_the_upkeep(memos: MemOS, vllm: Vllm) -> None:
    assert chat(memos).adapter is not None
    memos._worker.stop()
    vllm.says["unload_lora_adapter"] = error(500, "No.")
    memos.erase(next(iter(facts(memos).values())).id, wait=False)
    for _ in range(3):
        memos.maintenance.purge_if_due()
    [receipt] = erase.unfinished(memos.ledger)
    assert {name for name, state in receipt.stores.items() if state == "purging"} == {"parametric"}
    assert vllm.count("unload_lora_adapter") == 1


def test_what_is_forgotten_while_it_is_noted_is_not_loaded(memos: MemOS, vllm: Vllm) -> None:
    served, noted = memos._installation.served, list[bool]()
    assert served is not None
    [made] = memos.adapters.list()
    lent = ActiveAdapter(made.id, memos.home / "adapters" / made.id, sealed(memos.home / "adapters" / made.id))

    def forgotten(_: str) -> bool:
        noted.append(any((memos.home / "served").iterdir()))
        return False

    assert served.put(lent, forgotten) is None
    assert noted == [True], "who forgets meanwhile finds that it may be there"
    assert not list((memos.home / "served").iterdir())
    assert vllm.count("load_lora_adapter") == 0


def test_a_note_of_what_a_server_may_have_is_never_cut_off(
    memos: MemOS, vllm: Vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chat(memos).adapter is not None
    [note] = (memos.home / "served").iterdir()
    vllm.loaded.clear()

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memos.backends.child.os.fsync", fails)
    assert chat(memos).adapter is not None  # it is known: nothing has to be written
    assert note.read_text() == _url(memos)
    note.unlink()
    served = memos._installation.served
    assert served is not None
    served._there.clear()
    assert chat(memos).adapter is None
    assert not note.exists(), "half a note is none"
    assert vllm.count("load_lora_adapter") == 2
