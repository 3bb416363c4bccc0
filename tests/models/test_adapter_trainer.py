"""An adapter trained in a child that may be ended at any moment: nothing is lost but the steps since it was kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from memos.backends import child
from memos.backends.lora.trainer import AdapterTrainer
from memos.core.lora import LoraRecipe
from memos.errors import BackendUnavailable, IntegrityError, InvalidInput
from memos.memcube.parametric.training import Examined
from tests.models.test_lora_training import PROMPTS, RECIPE, TAUGHT, exercises, local_loading, peft
from tests.support import forks, tiny_models  # skips without the extra `local`

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.saved(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Iterator[AdapterTrainer]:
    """A trainer that has made all of its steps at once."""
    with opened(folder) as trainer:
        assert trainer.advance(10_000) > 0
        yield trainer


def opened(folder: Path, recipe: LoraRecipe = RECIPE) -> AdapterTrainer:
    trainer = AdapterTrainer()
    try:
        trainer.open(str(folder), recipe)
        trainer.prepare(exercises())
    except BaseException:
        trainer.kill()
        raise
    return trainer


def weights(trainer: AdapterTrainer, folder: Path) -> bytes:
    trainer.save(folder)
    return (folder / WEIGHTS).read_bytes()


def test_what_is_taught_is_answered_from_the_child(trained: AdapterTrainer) -> None:
    examined: Examined = trained
    assert (trained.step, trained.steps) == (150, 150)
    assert trained.advance(1) == 0.0
    assert examined.answers(PROMPTS, adapter=True) == list(TAUGHT.values())
    assert examined.answers(PROMPTS, adapter=False, most=4) != list(TAUGHT.values())
    assert (
        1
        < examined.perplexity(["A plain text."], adapter=True)
        != examined.perplexity(["A plain text."], adapter=False)
    )


def test_the_files_are_those_of_peft(trained: AdapterTrainer, tmp_path: Path) -> None:
    trained.save(tmp_path)
    config = peft.PeftConfig.from_pretrained(tmp_path)
    assert (config.r, config.lora_alpha) == (RECIPE.rank, RECIPE.alpha)
    assert len(peft.load_peft_weights(tmp_path, device="cpu")) == 3 * 7 * 2  # A and B of each linear layer


def test_others_go_first_at_the_processor_and_it_is_the_first_to_go(trained: AdapterTrainer) -> None:
    process = psutil.Process(trained.pid)
    assert process.nice() == min(19, psutil.Process().nice() + 10)
    assert Path(f"/proc/{trained.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_child_killed_in_the_middle_goes_on_in_another_to_the_same_bits(
    trained: AdapterTrainer, folder: Path, tmp_path: Path
) -> None:
    kept, damaged = tmp_path / "kept.safetensors", tmp_path / "damaged.safetensors"
    with opened(folder) as cut:
        cut.advance(50)
        cut.save_checkpoint(kept)
        threading.Timer(0.15, os.kill, (cut.pid, signal.SIGKILL)).start()
        with pytest.raises(BackendUnavailable, match=r"was ended in advance.* resumes from the last checkpoint"):
            cut.advance(10_000)
        with pytest.raises(BackendUnavailable):
            cut.advance(1)
    damaged.write_bytes(kept.read_bytes()[:-100])
    with opened(folder) as again:
        with pytest.raises(IntegrityError, match="damaged, or of another training"):
            again.resume(damaged)
        again.resume(kept)
        assert (again.step, again.steps) == (50, 150)
        again.advance(10_000)
        assert again.step == 150
        assert weights(again, tmp_path / "again") == weights(trained, tmp_path / "whole")


def test_what_cannot_be_trained_is_refused_with_words_and_the_next_model_is_opened(
    trained: AdapterTrainer, folder: Path, tmp_path: Path
) -> None:
    large, broken = (Path(shutil.copytree(folder, tmp_path / name)) for name in ("large", "broken"))
    truncated_weights(large / "model.safetensors", size_bytes=1 << 40)
    os.truncate(broken / "model.safetensors", 1000)
    other = tiny_models.saved(tmp_path / "other", seed=1)
    with AdapterTrainer() as trainer:
        with pytest.raises(InvalidInput, match="there is no folder") as refused:
            trainer.open(str(tmp_path / "nowhere"), RECIPE)
        assert refused.value.field == "model"
        with pytest.raises(
            BackendUnavailable, match=r"takes about 1\d\d\d\.\d GiB of memory to train, and .* are free"
        ):
            trainer.open(str(large), RECIPE)
        with pytest.raises(InvalidInput, match="cannot be loaded"):
            trainer.open(str(broken), RECIPE)
        trainer.open(str(other), RECIPE)
        assert len(trainer.base) == 64
        assert trainer.base != trained.base
        trainer.open(str(folder), LoraRecipe(), remembered=tmp_path / "weights.json")
        assert trainer.base == trained.base
        assert (tmp_path / "weights.json").exists()


def test_weights_that_were_trained_elsewhere_are_taken_where_they_fit(
    trained: AdapterTrainer, folder: Path, tmp_path: Path
) -> None:
    there = weights(trained, tmp_path / "there")
    with AdapterTrainer() as trainer:
        trainer.open(str(folder), RECIPE)
        assert weights(trainer, tmp_path / "before") != there
        trainer.load(tmp_path / "there" / WEIGHTS)
        assert weights(trainer, tmp_path / "here") == there
        trainer.open(str(folder), replace(RECIPE, rank=RECIPE.rank + 1))
        with pytest.raises(IntegrityError, match="of another shape"):
            trainer.load(tmp_path / "there" / WEIGHTS)


def truncated_weights(file: Path, *, size_bytes: int) -> None:
    """Write weights that take no disk: all of them are a hole."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [size_bytes // 4], "data_offsets": [0, size_bytes]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(file, 8 + len(header) + size_bytes)


def test_a_full_disk_is_told_leaves_nothing_and_the_training_goes_on(
    trained: AdapterTrainer, folder: Path, tmp_path: Path
) -> None:
    place = tmp_path / "kept"
    place.mkdir()
    with opened(folder) as cut:
        cut.advance(50)
        resource.prlimit(cut.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        for write in (partial(cut.save_checkpoint, place / "kept.safetensors"), partial(cut.save, place)):
            with pytest.raises(BackendUnavailable, match=r"could not be written \(.*too large.*free some disk"):
                write()
            assert [path.name for path in place.iterdir() if path.suffix != ".md"] == []
        resource.prlimit(cut.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        cut.save_checkpoint(place / "kept.safetensors")
        cut.advance(10_000)
        assert weights(cut, tmp_path / "cut") == weights(trained, tmp_path / "whole")
    assert (
        len(local_loading.weights_digest(str(folder), place / "kept.safetensors" / "weights.json")) == 64
    )  # no folder for it


def test_weights_of_the_same_size_and_time_are_another_model(folder: Path, tmp_path: Path) -> None:
    remembered, mine = tmp_path / "weights.json", Path(shutil.copytree(folder, tmp_path / "mine"))
    other = tiny_models.saved(tmp_path / "other", seed=1)
    place = mine / "model.safetensors"
    before, stat = local_loading.weights_digest(str(mine), remembered), place.stat()
    assert local_loading.weights_digest(str(mine), remembered) == before
    shutil.copyfile(other / "model.safetensors", place)  # as an image does whose files have all the same time
    os.utime(place, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place.stat().st_size == stat.st_size
    assert local_loading.weights_digest(str(mine), remembered) != before


def test_without_the_extra_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(child, "started", forks.start_anew)
    with AdapterTrainer() as trainer, pytest.raises(InvalidInput, match=r"pip install '\.\[local\]'"):
        trainer.open("owner/model", RECIPE)


def test_a_base_model_is_the_same_wherever_it_runs() -> None:
    made_by = {
        "config": {"layers": 3, "transformers_version": "5.0"},
        "weights": "w",
        "tokenizer": "t",
        "template": "m",
    }
    here = local_loading.base_of(made_by | {"torch": "2.6", "device": "cpu", "dtype": "torch.float32"})
    newer = {"layers": 3, "transformers_version": "5.1"}
    assert local_loading.base_of(made_by | {"config": newer, "torch": "2.7", "device": "H200"}) == here
    changes = ({"config": {"layers": 4}}, {"weights": "v"}, {"tokenizer": "u"}, {"template": "n"})
    assert len({here, *(local_loading.base_of(made_by | change) for change in changes)}) == 5


ORPHAN = """
import os, signal, sys, threading
from memos.backends.lora.trainer import AdapterTrainer
from memos.core.ports import ChatMessage
from memos.core.lora import LoraRecipe
from memos.core.lora import TrainingExample
trainer = AdapterTrainer()
trainer.open(sys.argv[1], LoraRecipe(epochs=100_000, replay=0))
trainer.prepare([TrainingExample((ChatMessage("user", "Where do I live?"),), "In Lyon.")])
trainer.advance(1)
print(trainer.pid, "torch" in sys.modules, flush=True)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
trainer.advance(100_000)
print("all steps made")
"""


def test_the_child_ends_with_a_killed_parent_in_the_middle_of_a_training(folder: Path) -> None:
    command = [sys.executable, "-c", ORPHAN, str(folder)]
    parent = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    pid, loaded = parent.stdout.split()
    assert loaded == "False"
    deadline = time.monotonic() + 10
    while is_running(int(pid)):
        assert time.monotonic() < deadline


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
