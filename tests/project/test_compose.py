"""docker-compose.yml keeps its promises: pinned images, health checks, limits, loopback ports, volumes, no secrets."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

import memos
from tests.project.test_project import settings_of
from tests.support.servers import postgres_server

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / "deploy/compose.env.example"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MIB = {"m": 1, "g": 1024}

every_service = pytest.mark.parametrize("name", SERVICES)


def variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{(\w+)", text))


def test_the_program_and_its_servers_are_there_and_profiles_add_more() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert {name for name in profiles if not profiles[name]} == {"memos", "worker", "postgres", "qdrant", "neo4j"}
    assert profiles["vllm"] == ["vllm"]
    assert profiles["prometheus"] == profiles["grafana"] == ["observability"]


def test_the_image_of_the_program_is_its_version_and_runs_as_nobody_special() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert all("-slim" in line for line in dockerfile.splitlines() if line.startswith("FROM"))
    assert re.search(r"^USER (?!root)\w+$", dockerfile, re.MULTILINE)
    assert "HEALTHCHECK" in dockerfile
    for name in ("memos", "worker"):
        assert SERVICES[name]["image"] == f"hippocube:{memos.__version__}"
        assert SERVICES[name]["build"] == "."
        unknown = set(SERVICES[name]["environment"]) - set(settings_of())
        assert unknown == set()
    extras = re.search(r"'\.\[([\w,]+)\]'", dockerfile)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(known)


@every_service
def test_images_are_pinned_to_a_release(name: str) -> None:
    tag = SERVICES[name]["image"].rpartition(":")[2]
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?(-[a-z]+)?(@sha256:[0-9a-f]{64})?", tag), tag


def test_the_images_are_new_enough_and_what_the_tests_run_on() -> None:
    numbers = {name: re.findall(r"\d+", SERVICES[name]["image"].rpartition(":")[2]) for name in SERVICES}
    assert [int(number) for number in numbers["qdrant"][:2]] >= [1, 19]
    pom = (ROOT / "tests/support/servers/neo4j/pom.xml").read_text(encoding="utf-8")
    assert f"<neo4j.version>{'.'.join(numbers['neo4j'])}</neo4j.version>" in pom


@every_service
def test_health_checks_restarts_and_time_to_stop(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert service["healthcheck"].keys() >= {"interval", "timeout", "retries", "start_period"}
    assert service["restart"] == "unless-stopped"
    assert "stop_grace_period" in service
    assert service["logging"]["options"]["max-size"]


@every_service
def test_memory_and_cpus_are_limited(name: str) -> None:
    assert limit_mib(name) >= 256
    assert float(SERVICES[name]["deploy"]["resources"]["limits"]["cpus"]) > 0


def test_the_limits_fit_a_host_of_8_gib_and_what_the_servers_take_fits_the_limits() -> None:
    assert sum(limit_mib(name) for name in SERVICES if "profiles" not in SERVICES[name]) <= 7.5 * 1024
    neo4j = SERVICES["neo4j"]["environment"]
    taken = mib(neo4j["NEO4J_server_memory_heap_max__size"]) + mib(neo4j["NEO4J_server_memory_pagecache_size"])
    assert taken + 512 <= limit_mib("neo4j")  # Java's own: classes, threads, network buffers
    options = dict(part[2:].split("=") for part in SERVICES["postgres"]["command"][1:])
    assert mib(options["shared_buffers"][:-1]) * 2 <= limit_mib("postgres")


@every_service
def test_ports_are_open_on_loopback_only(name: str) -> None:
    assert ("ports" in SERVICES[name]) is (name != "worker")
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in SERVICES[name].get("ports", []))


def test_data_is_in_named_volumes() -> None:
    folders = {
        "postgres": "/var/lib/postgresql/data", "qdrant": "/qdrant/storage", "neo4j": "/data",
        "memos": "/var/lib/hippocube", "worker": "/var/lib/hippocube", "prometheus": "/prometheus",
        "grafana": "/var/lib/grafana", "vllm": "/root/.cache/huggingface",
    }  # fmt: skip
    used = set()
    for name, folder in folders.items():
        volumes = [mount for mount in SERVICES[name]["volumes"] if not mount.startswith("./")]
        mounts = dict(reversed(mount.split(":")) for mount in volumes)
        for given in set(SERVICES[name]["volumes"]) - set(volumes):
            assert (ROOT / given.split(":")[0]).exists()
            assert given.endswith(":ro")
        assert mounts[folder] in COMPOSE["volumes"]
        used |= set(mounts.values())
    assert used == set(COMPOSE["volumes"])


def test_no_secret_stands_in_the_file() -> None:
    found = set()
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if value not in ("true", "false") and re.search(r"PASSWORD|SECRET|TOKEN|KEY|AUTH", name, re.IGNORECASE):
                # Nothing but a variable that has to be set; Neo4j's user stands before its password.
                assert re.fullmatch(r"(neo4j/)?\$\{\w+:\?[^}]+\}", value), name
                found |= variables(value)
    assert found == {"POSTGRES_PASSWORD", "QDRANT_API_KEY", "NEO4J_PASSWORD"}
    text = FILE.read_text(encoding="utf-8")
    assert variables(text) == found
    assert not re.search(r"\$\{\w+:?-", text)  # no default, which would be a secret that everybody knows


def test_the_example_names_each_variable_and_gives_none_a_value() -> None:
    lines = [line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert {line.partition("=")[0] for line in lines} == variables(FILE.read_text(encoding="utf-8"))
    assert all(line.endswith("=") for line in lines)


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers Qdrant's question for readiness."""

    status: ClassVar[int]

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_qdrants_health_check_tells_ready_from_not_ready_without_curl(port: int) -> None:
    *shell, script = SERVICES["qdrant"]["healthcheck"]["test"][1:]
    asked = [*shell, script.replace("$$", "$").replace("6333", str(port))]
    for Ready.status, healthy in ((200, True), (503, False)):
        assert (subprocess.run(asked, check=False).returncode == 0) is healthy
    nobody = [*shell, script.replace("$$", "$").replace("6333", str(postgres_server.free_port()))]
    assert subprocess.run(nobody, capture_output=True, check=False).returncode != 0


def test_postgresql_understands_its_options(postgres_server: postgres_server.PostgresServer) -> None:
    for option in SERVICES["postgres"]["command"][1:]:
        name, _, value = option[2:].partition("=")
        # A value of the wrong kind or out of range is refused here as at the start.
        assert postgres_server.sql("postgres", f"SELECT count(*) FROM pg_settings WHERE name = '{name}'") == "1"
        postgres_server.sql("postgres", f"ALTER SYSTEM SET {name} = '{value}'")
        postgres_server.sql("postgres", f"ALTER SYSTEM RESET {name}")


def test_compose_accepts_the_file_and_stops_without_a_secret(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    known = docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0
    if not docker or not known:
        pytest.skip("`docker compose` is not here: install Docker with its compose plugin; no engine has to run")
    full = tmp_path / "full.env"
    names = sorted(variables(FILE.read_text(encoding="utf-8")))
    full.write_text("".join(f"{name}=0123456789abcdef\n" for name in names), encoding="utf-8")
    done = config(docker, full, tmp_path)
    assert done.returncode == 0, done.stderr
    for missing in names:
        text = full.read_text(encoding="utf-8").replace(f"{missing}=0123456789abcdef", f"{missing}=")
        (tmp_path / "one.env").write_text(text, encoding="utf-8")
        refused = config(docker, tmp_path / "one.env", tmp_path)
        assert refused.returncode != 0
        assert missing in refused.stderr
        assert EXAMPLE.name in refused.stderr


def config(docker: str, env: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [docker, "compose", "--env-file", str(env), "-f", str(FILE), "config", "--quiet"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def limit_mib(name: str) -> int:
    return mib(SERVICES[name]["deploy"]["resources"]["limits"]["memory"])


def mib(size: str) -> int:
    return int(size[:-1]) * MIB[size[-1].lower()]
