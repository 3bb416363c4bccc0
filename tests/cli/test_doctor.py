"""`memos doctor` says what is wrong and what to do, changes nothing, and shows no secret."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memos import MemOS, Settings
from memos.api.endpoint import Endpoint, announced
from memos.cli.doctor import examine
from memos.core.settings import ChatSettings, LimitSettings, Neo4jSettings, QdrantSettings, RerankSettings
from memos.kernel.doctor import Finding, State
from tests.backends.tiny_onnx import make_reranker
from tests.fakes import WordEmbedder
from tests.support.servers.postgres_server import PostgresServer, free_port

KEY = "sk-doctor-0123456789abcdef"


def of(settings: Settings, what: str) -> list[Finding]:
    return [finding for finding in examine(settings) if finding.what == what]


def states(settings: Settings, what: str) -> set[State]:
    return {finding.state for finding in of(settings, what)}


@pytest.fixture
def model() -> Iterator[str]:
    class Models(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.headers.get("Authorization") == f"Bearer {KEY}"
            body = json.dumps({"data": [{"id": "small"}]}).encode() if right else b"{}"
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_before_the_first_start_nothing_is_bad_and_nothing_is_made(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "new")
    found = examine(settings)
    assert {finding.what for finding in found} == {
        "settings", "folder", "server", "encryption", "ledger", "audit", "clock", "indexes", "embedder", "models",
        "reranker", "extras",
    }  # fmt: skip
    assert [finding for finding in found if finding.state is State.BAD] == []
    assert list(tmp_path.iterdir()) == []


def test_an_installation_in_use_damaged_newer_or_ahead_of_time_is_told(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with MemOS.open(tmp_path, embedder=WordEmbedder()) as memos:
        memos.add("otters")
        [server] = of(settings, "server")
        assert server.state is State.DOUBTFUL
        assert f"process {os.getpid()}" in server.told
        with announced(tmp_path, Endpoint(f"http://127.0.0.1:{free_port()}", "t" * 20, 1)):
            assert states(settings, "server") == {State.BAD}
    assert states(settings, "ledger") == {State.GOOD}
    [disk] = of(settings, "disk")
    assert re.fullmatch(r"\d+\.\d MiB \(.*\bledger \d+\.\d.*\), [\d,]+\.\d KiB for each of 1 memories", disk.told)
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute("UPDATE events SET at = at + 86400000000 * 400")
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert states(settings, "clock") == {State.BAD}
    assert "newer hippocube" in of(settings, "ledger")[0].told
    (tmp_path / "ledger.db").write_bytes(b"no database at all" * 500)
    assert states(settings, "ledger") == {State.BAD}


def test_models_and_servers_that_do_not_answer_or_refuse(tmp_path: Path, model: str) -> None:
    def with_model(**changes: Any) -> Settings:
        return Settings(home=tmp_path, chat_model=ChatSettings(**{"base_url": model, "model": "small", **changes}))

    def chat(settings: Settings) -> Finding:
        return next(finding for finding in of(settings, "models") if finding.told.startswith("chat"))

    assert chat(with_model(api_key=KEY)).state is State.GOOD
    assert chat(with_model(api_key=KEY, model="large")).state is State.DOUBTFUL
    assert chat(with_model()).state is State.BAD
    away = f"http://127.0.0.1:{free_port()}"
    assert chat(with_model(base_url=f"{away}/v1", api_key=KEY)).state is State.BAD
    settings = Settings(
        home=tmp_path, ledger_url=f"postgresql://memos:{KEY}@127.0.0.1:{free_port()}/memos",
        qdrant=QdrantSettings(url=away, api_key=KEY), limits=LimitSettings(min_free_bytes=10**18),
        neo4j=Neo4jSettings(url=f"bolt://127.0.0.1:{free_port()}", password=KEY),
    )  # fmt: skip
    found = examine(settings)
    bad = {finding.what for finding in found if finding.state is State.BAD}
    assert "ledger" in bad
    vector, graph = (finding for finding in found if finding.what == "indexes")  # each is looked at
    assert (vector.state, graph.state) == (State.BAD, State.BAD)
    assert away in vector.told
    assert settings.neo4j.url in graph.told
    assert KEY not in " ".join(finding.told for finding in found)
    low = Settings(home=tmp_path, limits=LimitSettings(min_free_bytes=10**18))
    assert states(low, "folder") == {State.BAD}


def test_a_reranker_is_loaded_and_asked(tmp_path: Path) -> None:
    def with_reranker(model: str | None, **changes: Any) -> Settings:
        return Settings(home=tmp_path, rerank=RerankSettings(model=model, **changes))

    assert states(with_reranker(None), "reranker") == {State.MISSING}
    folder = make_reranker(tmp_path / "model")
    assert states(with_reranker(f"onnx:{folder}"), "reranker") == {State.GOOD}
    (folder / "model.onnx").write_bytes(b"damaged")
    assert states(with_reranker(f"onnx:{folder}"), "reranker") == {State.BAD}
    assert states(with_reranker(f"onnx:{folder}/none"), "reranker") == {State.BAD}
    assert states(with_reranker("judge"), "reranker") == {State.BAD}
    away = f"http://127.0.0.1:{free_port()}/v1"
    assert states(with_reranker("m", base_url=away), "reranker") == {State.BAD}


def test_an_extra_that_is_missing_is_bad_where_the_settings_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extras(settings: Settings) -> dict[str, State]:
        return {finding.told.partition(":")[0]: finding.state for finding in of(settings, "extras")}

    plain, sealing = Settings(home=tmp_path), Settings(home=tmp_path, cube_passphrase=KEY)
    assert {extras(sealing)[name] for name in ("sealing", "ocr")} == {State.GOOD}
    for module in ("cryptography", "rapidocr"):
        monkeypatch.setitem(sys.modules, module, None)
    assert {extras(plain)[name] for name in ("sealing", "ocr")} == {State.MISSING}
    assert extras(sealing)["sealing"] is State.BAD


def test_a_ledger_on_postgresql_is_looked_at_without_making_anything(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    settings = Settings(home=tmp_path, ledger_url=postgres_server.url())
    [ledger] = of(settings, "ledger")
    assert ledger.state is State.DOUBTFUL
    assert "schema none" in ledger.told


def test_the_command_ends_with_1_when_something_is_bad(tmp_path: Path) -> None:
    config = tmp_path / "memos.toml"
    config.write_text("[limits]\nmin_free_bytes = 1000000000000000000\n", encoding="utf-8")
    config.chmod(0o644)
    command = [sys.executable, "-m", "memos", "doctor", "--json", "--quiet", "--config", str(config)]
    done = subprocess.run([*command, "--data-dir", str(tmp_path / "home")], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    told = {entry["what"]: entry["state"] for entry in json.loads(done.stdout)}
    assert told["folder"] == "bad"
    assert told["settings"] == "doubtful"
    assert not (tmp_path / "home").exists()


def test_in_a_narrow_window_each_check_is_still_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memos", "doctor", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=False)
    assert re.search(r"│ good +│ folder +│", done.stdout), done.stdout
