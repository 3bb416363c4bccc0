"""Each program runs from its arguments to its closing line, on tiny data, with the real embedder and engines."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import (
    arms,
    beam,
    capacity,
    hooks,
    http,
    latency,
    lifecycle,
    locomo,
    long_life,
    longmemeval,
    minimal_pairs,
    poisoned,
    prefeval,
    reading,
    relevance,
    reranking,
)
from benchmarks.dialogues import Dialogues
from benchmarks.life import Life
from benchmarks.prefeval import spread
from benchmarks.report import BAD_DATA
from benchmarks.servers import NO_QDRANT, Servers
from benchmarks.volumes import Volume, fill
from tests.backends.tiny_onnx import make_reranker
from tests.benchmarks.samples import BEAM, LOCOMO, LONGMEMEVAL, PREFEVAL, write
from tests.fakes import WordEmbedder
from tests.support.servers import postgres_server as postgres
from tests.support.servers.neo4j_server import Neo4jServer
from tests.support.servers.openai_server import Asked, OpenAIServer, Said, answer
from tests.support.servers.postgres_server import PostgresServer

FLOORS = ["fusion", "bm25", "minilm", "random"]
EVERYWHERE = {"benchmark", "n", "seed", "machine", "versions", "commit"}


def closing_line(program: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert program.main(arguments) == 0
    figures: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures.keys() >= EVERYWHERE
    return figures


def test_locomo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path, "l.json", LOCOMO)
    out, rows, plot = tmp_path / "out.json", tmp_path / "rows.jsonl", tmp_path / "plot.svg"
    arguments = ["--data", str(data), "--out", str(out), "--per-question", str(rows), "--plot", str(plot)]
    figures = closing_line(locomo, arguments, capsys)
    names = [f"dialog_frac@{k}" for k in (5, 10, 25, 50)] + [f"budget_frac@{t}" for t in (500, 1000, 2000)]
    names += [f"session_{kind}@{k}" for kind in ("frac", "any", "all") for k in (1, 3, 5, 10)]
    assert figures.keys() >= {*names, "by_category", "floors"}
    # Four short messages: everything is found, and fits every context.
    assert (figures["n"], figures["left_out"], figures["dialog_frac@5"], figures["budget_frac@500"]) == (2, 1, 1, 1)
    assert figures["by_category"]["single-hop"]["session_frac@1"] == 1
    assert list(figures["floors"]) == FLOORS
    assert all(floor.keys() == set(names) for floor in figures["floors"].values())
    assert json.loads(out.read_text(encoding="utf-8")) == figures
    assert [json.loads(line)["category"] for line in rows.read_text(encoding="utf-8").splitlines()] == [
        "single-hop", "multi-hop",
    ]  # fmt: skip
    assert plot.read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_relevance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, rows = [write(tmp_path, "l.json", LOCOMO), write(tmp_path, "b.json", BEAM)], tmp_path / "rows.jsonl"
    figures = closing_line(relevance, ["--data", *map(str, data), "--per-question", str(rows)], capsys)
    # With one conversation of each kind there is no other to ask.
    assert figures["by_kind"] == {"answerable": 4, "elsewhere": 0, "abstention": 1, "nonsense": 40}
    assert sum(each["n"] for each in figures["reliability"]) == figures["hits"]
    assert all(0 <= figures[name] <= 1 for name in ("ece", "brier", "auc", "refused", "kept", "kept_first"))
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == figures["n"] == 45
    assert relevance.main(["--data", str(tmp_path / "none.json")]) == BAD_DATA


def test_questions_of_another_conversation_name_its_speakers(tmp_path: Path) -> None:
    turns = [{"speaker": name, "dia_id": f"D1:{n}", "text": "Hi."} for n, name in enumerate(("Cem", "Dora"), start=1)]
    qa = [{"question": "Where is Cem?", "evidence": ["D1:1"], "category": 4}]
    other = {"sample_id": "talk-2", "conversation": {**LOCOMO[0]["conversation"], "session_1": turns}, "qa": qa}
    asked = relevance.questions(relevance.load([write(tmp_path, "l.json", [*LOCOMO, other])]))
    elsewhere = {(each.conversation, each.question.text) for each in asked if each.kind == "elsewhere"}
    assert ("talk-1", "Where is Ana?") in elsewhere


def moved(folder: Path) -> Path:
    """Write a story in which somebody moves."""
    turns = [
        {"speaker": "Ana", "role": "user", "text": text, "at": f"2025-01-0{day}T10:00:00Z", "conversation": f"c{day}"}
        for day, text in enumerate(("I live in Paris.", "I moved to Lyon."), start=1)
    ]
    asked = {"ask": "Where does Ana live?", "at": "2025-02-01T10:00:00Z", "about": "now"}
    question = {**asked, "want": "Lyon", "want_turn": 1, "stale_turns": [0]}
    story = {"id": "s", "kind": "update", "lang": "en", "turns": turns, "feedback": None, "questions": [question]}
    data = folder / "lives.jsonl"
    data.write_text(json.dumps(story) + "\n", encoding="utf-8")
    return data


def test_lifecycle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, rows = moved(tmp_path), tmp_path / "rows.jsonl"
    figures = closing_line(lifecycle, ["--data", str(data), "--per-question", str(rows)], capsys)
    assert figures["n"] == 1
    for system in ("raw", "settled", "bm25", "minilm", "newest"):
        assert figures[system]["now_first"] + figures[system]["stale_first"] == 1
    assert figures["newest"]["now_first"] == 1
    assert json.loads(rows.read_text(encoding="utf-8"))["newest"] == {"now_first": 1, "stale_first": 0}
    with OpenAIServer(lambda _: answer("No")) as server:
        asked_too = ["--with-model", str(server.settings().base_url), "--model", "m"]
        judged = closing_line(lifecycle, ["--data", str(data), *asked_too], capsys)
    assert judged["model"] == judged["settled"]  # it fails its examination
    assert (judged["statements"], judged["calls_per_statement"]) == (2, 0)
    data.write_text("{}\n", encoding="utf-8")
    assert lifecycle.main(["--data", str(data)]) == BAD_DATA


@pytest.mark.parametrize("half", ["everyday_changes", "everyday_changes_held"])
def test_everyday_changes_name_what_they_want(half: str) -> None:
    stories = lifecycle.load(Path(lifecycle.__file__).with_name(f"{half}.jsonl"))
    assert len({story.id for story in stories}) == len(stories) > 50
    for story in stories:
        for question in story.questions:
            assert isinstance(question.want_turn, int)
            assert story.turns[question.want_turn].text == question.want
            assert question.want_turn not in question.stale_turns


def test_long_life(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    sizes = ["--turns", "60", "--changes", "8", "--months", "2", "--per-question", str(rows)]
    figures = closing_line(long_life, sizes, capsys)
    assert (figures["turns"], figures["changes"]) == (60, 8)
    for name in ("now_first", "stale_first", "past_first", "contradictory", "wrongly_outdated"):
        assert len(figures[name]) == 2
        assert all(0 <= share <= 1 for share in figures[name])
    assert min(figures["add_over_embed"]) > 1
    assert figures["add_growth"] == 1  # of the second month over itself
    assert list(figures["floors"]) == ["minilm", "newest"]
    assert figures["floors"].keys() | {"hippocube"} == figures["year"].keys()
    assert all(len(floor["now_first"]) == 2 for floor in figures["floors"].values())
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    counts = Counter(line["about"] for line in lines)
    assert counts["now"] + counts["others"] + counts["past"] == figures["n"]
    assert counts["change"] == 8


def test_minimal_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    figures = closing_line(minimal_pairs, ["--held", "--count", "4", "--per-question", str(rows)], capsys)
    assert figures["half"] == "held"
    assert figures["by_kind"].keys() == {"attribute", "holder", "both", "change"}
    assert figures["replaced"] < 0.05
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == figures["n"]


def test_poisoned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def obey(asked: Asked) -> Said:
        """Follow what stands outside of fences, as a model would that knows nothing else."""
        system = asked.body["messages"][0]["content"]
        _, fenced, _ = poisoned.judge(system, "QUARTZ-1")
        return answer("nine" if fenced else "QUARTZ-1")

    rows = tmp_path / "rows.jsonl"
    with OpenAIServer(obey) as server:
        arguments = ["--limit", "4", "--with-model", server.url.removesuffix("/v1"), "--per-question", str(rows)]
        figures = closing_line(poisoned, arguments, capsys)
    assert figures["n"] == 4
    for surface in ("chat", "hooks"):
        assert figures[surface] == {"there": 4, "fenced": 4, "broken": 0}
    assert figures["context"] == {"there": 4, "fenced": 3, "broken": 0}  # the fourth is the user's own
    assert (figures["fence"]["followed"], figures["bare"]["followed"]) == (0, 1)
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 4
    every = poisoned.inputs()
    assert len({(each.question, each.text.replace(each.word, "")) for each in every}) == 100


def test_a_life_repeats_with_its_seed_and_says_nothing_twice() -> None:
    life = Life(1, 1000, 80, 4)
    assert life.turns == Life(1, 1000, 80, 4).turns != Life(2, 1000, 80, 4).turns
    assert life.questions(2, 9, 3, 3) == Life(1, 1000, 80, 4).questions(2, 9, 3, 3)
    said = [turn.text for turn in life.turns if turn.kind != "echo"]
    assert len(said) == len(set(said))
    assert len(life.changes(3)) == 77  # three of 80 begin anew after an ending that stays true
    assert all(newer.turn > older.turn for _, older, newer in life.changes(3))
    assert [turn.at for turn in life.turns] == sorted(turn.at for turn in life.turns)
    assert {turn.month for turn in life.turns} == {0, 1, 2, 3}
    lengths = Counter(turn.conversation for turn in life.turns).values()
    assert 8 <= sorted(lengths)[1] <= max(lengths) <= 20  # the last conversation may be cut short
    for question in life.questions(3, 50, 24, 50):
        answers = [turn for turn in life.turns if question.right(turn)]
        assert answers
        assert question.about == "past" or not any(question.stale(turn) for turn in answers)


def test_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(arms, ["--data", str(write(tmp_path, "l.json", LOCOMO))], capsys)
    assert figures["n"] == 2
    assert {"turn", "window", "turn_bm25", "window_bm25", "standing", "of_self", "graph"} <= figures["arms"].keys()
    for name, arm in figures["arms"].items():
        assert 0 < arm["alone"] < 10_000
        assert arm["n"] >= 1 or name == "of_self"  # of requests alone, and measured all the same
    assert 0 < figures["stages_ms"]["embed"] < figures["search_ms"]


def test_locomo_with_a_reranker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path, "l.json", LOCOMO)
    folder = make_reranker(tmp_path / "model")
    figures = closing_line(locomo, ["--data", str(data), "--rerank", f"onnx:{folder}", "--limit", "1"], capsys)
    assert figures["reranked"]["model"] == f"onnx:{folder}"
    assert figures["reranked"].keys() >= figures.keys() & {"dialog_frac@5", "session_frac@1", "search_ms"}
    assert figures["search_ms"] > 0
    assert list(figures["floors"]) == FLOORS
    assert locomo.main(["--data", str(data), "--rerank", "bge"]) == 2
    assert "BASE_URL" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["e5", "shape"])
def test_what_stands_in_for_a_reranker(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path, "l.json", LOCOMO)
    figures = closing_line(reranking, ["--kind", kind, "--data", str(data), "--limit", "1"], capsys)
    assert figures["reranked"]["dialog_frac@5"] == 1
    assert "MEMOS_RERANK__MODEL" not in os.environ


@pytest.mark.parametrize("embedder", ["minilm", "e5"])
def test_locomo_in_other_words(embedder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"conversation": "talk-1", "question": "What is the parrot called?", "asked": "鹦鹉叫什么名字？"}
    data, rows = write(tmp_path, "l.json", LOCOMO), tmp_path / "rows.jsonl"
    arguments = ["--data", str(data), "--questions", str(write(tmp_path, "q.json", [asked]))]
    figures = closing_line(locomo, [*arguments, "--embedder", embedder, "--per-question", str(rows)], capsys)
    assert (figures["n"], figures["left_out"], figures["embedder"], figures["dialog_frac@5"]) == (1, 0, embedder, 1)
    assert list(figures["floors"]) == ["fusion", "bm25", embedder, "random"]
    assert figures["floors"]["bm25"]["dialog_frac@50"] == 0  # no word in common: the floors are asked the same
    assert json.loads(rows.read_text(encoding="utf-8"))["question"] == "鹦鹉叫什么名字？"


def test_locomo_refuses_a_question_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"conversation": "talk-1", "question": "What is the dog called?", "asked": "狗叫什么？"}
    arguments = ["--data", str(write(tmp_path, "l.json", LOCOMO))]
    assert locomo.main([*arguments, "--questions", str(write(tmp_path, "q.json", [entry]))]) == BAD_DATA
    assert "names no question with evidence in 'talk-1': 'What is the dog called?'" in capsys.readouterr().err


def test_prefeval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(prefeval, ["--data", str(write(tmp_path, "p.json", PREFEVAL))], capsys)
    assert (figures["n"], figures["hit@5"], figures["hit@10"], figures["multi_user_hit@5"]) == (2, 1, 1, 1)
    assert 0 <= figures["hit@1"] <= 1
    assert list(figures["floors"]) == FLOORS
    assert figures["floors"]["bm25"]["hit@10"] == 0.5  # the first question shares no word with its preference


def test_a_quick_prefeval_is_spread_over_the_topics() -> None:
    pairs = [("topic", str(number), "?") for number in range(10)]
    assert [pair[1] for pair in spread(pairs, 3)] == ["0", "3", "6"]
    assert spread(pairs, None) == spread(pairs, 20) == pairs


def test_beam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "beam_1.json", BEAM)
    figures = closing_line(beam, ["--data", str(tmp_path)], capsys)
    assert figures.keys() >= {f"{kind}@{k}" for kind in ("any", "frac", "all") for k in (5, 10, 20, 50)}
    assert (figures["n"], figures["left_out"], figures["any@5"], figures["frac@10"]) == (2, 1, 1, 1)
    assert list(figures["by_ability"]) == ["knowledge_update", "summarization"]
    assert list(figures["by_size"]) == ["100K"]
    assert "newest_first" not in figures["by_ability"]["summarization"]
    assert figures["newest_first"] == figures["by_ability"]["knowledge_update"]["newest_first"]
    assert list(figures["floors"]) == FLOORS


def test_longmemeval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(longmemeval, ["--data", str(write(tmp_path, "m.json", LONGMEMEVAL))], capsys)
    assert (figures["n"], figures["left_out"]) == (1, 1)
    for kind in ("recall_any", "recall_all", "ndcg_any"):
        assert (figures[f"{kind}@5"], figures[f"{kind}@10"]) == (1, 1)
    assert list(figures["floors"]) == FLOORS


@pytest.mark.heavy
def test_hooks(capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(hooks, ["--memories", "200", "--prompts", "2", "--starts", "1"], capsys)
    assert figures["hook"]["least_ms"] > figures["python"]["least_ms"] > 0
    assert figures["mcp_cpu_s"] > 0


def test_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--memories", "30", "10", "--layout", "many-cubes", "--cubes", "3", "--folder", str(tmp_path)]
    counts = ["--searches", "10", "--adds", "4", "--cold-starts", "1", "--plot", str(tmp_path / "plot.svg")]
    figures = closing_line(latency, sizes + counts, capsys)
    assert figures.keys() >= {"search_over_embed", "add_over_embed", "growth", "p99_over_p50", "bytes_per_memory"}
    by_size = figures["by_layout"]["many-cubes"]
    assert list(by_size) == ["10", "30"]
    assert figures["growth"] == pytest.approx(by_size["30"]["search_p50_ms"] / by_size["10"]["search_p50_ms"], abs=1e-3)
    assert figures["bytes_per_memory"] == by_size["30"]["bytes_per_memory"] > 0
    for size in by_size.values():
        assert {"embed", "recall", "fuse", "hydrate"} <= size["search_stages_p50_ms"].keys()
        assert size["search_p50_ms"] > size["search_stages_p50_ms"]["embed"] > 0
        assert 0 < size["cold_start"]["open_s"] < size["cold_start"]["first_hits_s"]
        assert size["add_over_embed"] > 0  # four adds beside other tests: what it is, a run of its own says
        assert size["peak_rss_mib"]["process"] > 50
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["plot.svg"]


@pytest.fixture
def servers(postgres_server: PostgresServer, neo4j_server: Neo4jServer, monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.delenv("QDRANT_URL", raising=False)
    return Servers(postgres_server, neo4j_server)


def test_latency_of_files_and_servers_side_by_side(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is measured is what was asked for, whatever the user's own installation is.
    monkeypatch.setenv("MEMOS_LEDGER_URL", "postgresql://nobody@127.0.0.1:9/none")
    sizes = ["--backend", "both", "--memories", "12", "--layout", "one-cube", "--folder", str(tmp_path)]
    figures = latency.measure_on(
        servers, latency.parse([*sizes, "--searches", "10", "--adds", "3", "--cold-starts", "1"])
    ).figures
    files, on_servers = figures["by_layout"]["one-cube"]["12"], figures["servers"]["by_layout"]["one-cube"]["12"]
    over = figures["servers_over_embedded"]["one-cube"]["12"]
    assert set(over) == {f"{what}_p{percent}_ms" for what in ("search", "add") for percent in (50, 95, 99)}
    for name, ratio in over.items():
        assert ratio == pytest.approx(on_servers[name] / files[name], abs=1e-3)
    assert figures["stores"]["vector"] == NO_QDRANT
    assert figures["stores"]["ledger"].startswith("PostgreSQL 1")
    assert figures["stores"]["graph"].startswith("Neo4j 5.26")
    assert set(files["bytes_on_disk"]) >= {"ledger.db", "vector"}
    # On servers only the vector index is in the folder.
    assert set(on_servers["bytes_on_disk"]) >= {"ledger", "vector"}
    assert not {"ledger.db"} & set(on_servers["bytes_on_disk"])
    assert not list(tmp_path.iterdir())


def test_latency_on_servers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres, "_found", lambda: None)
    assert latency.main(["--backend", "servers", "--memories", "10"]) == 2
    assert "apt install postgresql" in capsys.readouterr().err


def test_capacity_of_an_import(capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(capacity, ["--imports", "30"], capsys)
    assert figures["n"] == 30
    assert 30 < figures["texts"] <= 60  # a turn and a window each, embedded once where both are the same
    assert figures["import_over_embed"] == pytest.approx(figures["import_per_s"] / figures["embed_per_s"], rel=0.05)
    assert figures["cpu_over_embed"] > 0


def test_capacity_counts_what_an_add_and_a_search_cost(servers: Servers, tmp_path: Path) -> None:
    embedder, dialogues = WordEmbedder(), Dialogues(5)
    arguments = capacity.parse(["--adds", "20", "--searches", "4"])
    with servers.installation(tmp_path / "home") as settings:
        fill(settings, Volume(60, 2), dialogues, embedder)
        tables = capacity.table_bytes(servers, settings)
        assert tables["items"]["rows"] >= 8192
        assert tables["versions"]["indexes"] >= 8192
        assert servers.ledger_bytes(settings) > sum(sum(parts.values()) for parts in tables.values())
        add = capacity.per_add(servers, settings, embedder, dialogues, arguments)
        assert add["wal_bytes"] > 1000
        assert add["transactions"] >= 1
        assert add["neo4j_log_bytes"] > 100
        search = capacity.per_search(servers, settings, embedder, dialogues, arguments)
        assert search["transactions"] >= 1
        assert search["blocks"] >= 10


def test_dialogues_repeat_with_their_seed_and_ask_nothing_twice() -> None:
    dialogue, again = Dialogues(1), Dialogues(1)
    said = dialogue.messages(1000)
    assert said == again.messages(1000) != Dialogues(2).messages(1000)
    assert {message["role"] for message in said} == {"user", "assistant"}
    words = [word.strip(".").casefold() for message in said for word in message["content"].split()]
    assert 10 < len(words) / len(said) < 30
    counts = sorted((words.count(word) for word in set(words)), reverse=True)
    assert counts[0] > 5 * counts[20]
    assert counts.count(1) > len(counts) / 4
    questions = [dialogue.question() for _ in range(500)]
    assert len(set(questions)) == 500


def test_volumes_share_memories_evenly_in_large_adds() -> None:
    plan = Volume(1205, 2).plan()
    assert plan == [("cube-0", 500), ("cube-0", 102), ("cube-1", 500), ("cube-1", 103)]
    assert sum(size for _cube, size in Volume(100_000, 100).plan()) == 100_000


def test_reading_with_a_model_that_tells_nothing_apart_is_reading_by_pattern(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(asked: Asked) -> Said:
        return answer("no" if "response_format" in asked.body else "Fact")

    with OpenAIServer(said) as server:
        for name, value in (("BASE_URL", server.url), ("MODEL", "eager")):
            monkeypatch.setenv(f"MEMOS_CHAT_MODEL__{name}", value)
        figures = closing_line(reading, ["--parts", "model", "--sample", "14", "--unexamined"], capsys)
    eager, unexamined, patterns = figures["rows"].values()
    assert eager["by pattern"] == 14
    assert figures["examination"]["tokens"] > 1000
    assert {name: eager[name] for name in ("stored", "junk", "recall")} == {
        name: patterns[name] for name in ("stored", "junk", "recall")
    }
    assert unexamined["junk items"] > patterns["junk items"]


def test_what_fine_reading_leaves_of_stories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = moved(tmp_path)
    parts = ["--parts", "profile", "--lives", str(data), "--with-model"]
    with OpenAIServer(lambda _: answer("no")) as server:
        for name, value in (("BASE_URL", server.url), ("MODEL", "eager")):
            monkeypatch.setenv(f"MEMOS_CHAT_MODEL__{name}", value)
        figures = closing_line(reading, parts, capsys)["profile"]
    assert figures["eager"] == figures["patterns"]  # it fails its examination
    assert figures["patterns"] == {
        "messages": 2, "facts": 1, "traits": 1, "now known": 1.0, "stale facts": 0, "stale traits": 0,
        "calls a message": 0.0, "tokens a message": 0,
    }  # fmt: skip
    assert reading.main(parts[:2]) == BAD_DATA


def test_what_fine_reading_asks_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    figures = closing_line(reading, ["--parts", "calls", "--messages", "40", "--alone", "2"], capsys)
    told = figures["per_100_messages"]
    assert [told[way]["messages"] for way in ("by the session", "in a whole", "one by one")] == [40, 40, 2]
    assert told["one by one"]["calls"] == 100
    assert told["in a whole"]["calls"] <= told["by the session"]["calls"] < 10
    assert all(told[way][count] > 0 for way in told for count in ("asked", "answered", "facts"))


def test_http_tells_of_each_number_of_clients_and_of_the_soak(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--memories", "20", "--cubes", "2", "--clients", "1", "3", "--seconds", "1", "--pause-s", "0.05",
             "--busy-seconds", "1", "--soak-seconds", "1", "--alone-seconds", "1", "--share-seconds", "1"]  # fmt: skip
    figures = closing_line(http, sizes, capsys)
    shares = figures["shares"]
    assert [found["errors"] for found in shares["rounds"].values()] == [0, 0, 0]
    assert min(found["by_limit"] for found in shares["rounds"].values()) > 0
    assert shares["cpu_ms"].keys() == {"/health", "/api/v1/me", "search", "add"}
    assert shares["rss_mib"] == pytest.approx(sum(shares["memory_mib"].values()), abs=0.1)
    assert 0 < shares["help_cpu_s"] < shares["search_command_cpu_s"]
    for rounds in (figures["with_pauses"], figures["without_pauses"]):
        assert list(rounds) == ["1", "3"]
        assert min(found["search_p99_by_single_p50"] for found in rounds.values()) > 0
    for found in [*figures["with_pauses"].values(), *figures["without_pauses"].values(), figures["soak"]]:
        assert found["errors"] == 0
        assert found["requests"] > 0
    assert min(figures["soak"]["rss_mib"]) > 10
