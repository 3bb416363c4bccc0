"""docker-compose.yml keeps its promises: schema, pinned images, users, health checks, limits, volumes, no secrets."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
import yaml

import memos
from tests.project.test_project import settings_of
from tests.support.servers import postgres_server

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / "deploy/compose.env.example"
PROXY = ROOT / "deploy/haproxy.cfg"
SCHEMA = ROOT / "tests/data/compose-spec.json"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MIB = {"m": 1, "g": 1024}

every_service = pytest.mark.parametrize("name", SERVICES)


def variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{(\w+)", text))


def test_the_program_and_its_servers_are_there_and_profiles_add_more() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}
    assert {name for name in profiles if not profiles[name]} == {"memos", "worker", "postgres", "qdrant", "neo4j"}
    assert profiles["replica"] == profiles["proxy"] == ["replicas"]
    assert profiles["vllm"] == ["vllm"]
    assert profiles["prometheus"] == profiles["grafana"] == ["observability"]


def test_the_image_of_the_program_is_its_version_and_runs_as_nobody_special() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert all("-slim" in line for line in dockerfile.splitlines() if line.startswith("FROM"))
    assert re.search(r"^USER (?!0)\d+:\d+$", dockerfile, re.MULTILINE)
    assert "HEALTHCHECK" in dockerfile
    for name in ("memos", "replica", "worker"):
        assert SERVICES[name]["image"] == f"hippocube:{memos.__version__}"
        assert SERVICES[name]["build"] == "."
        unknown = set(SERVICES[name]["environment"]) - settings_of()
        assert unknown == ({"FORWARDED_ALLOW_IPS"} if name == "replica" else set())
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
def test_no_service_can_gain_privileges_and_few_may_write_outside_their_volumes(name: str) -> None:
    service = SERVICES[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "network_mode", "userns_mode"}
    assert service.get("read_only", False) is (name not in ("neo4j", "vllm"))
    # The others' images name a user of their own; Qdrant's does so with the tag.
    assert service.get("user") == {"postgres": "postgres", "neo4j": "neo4j"}.get(name)
    assert (name == "qdrant") is service["image"].endswith("-unprivileged")


def test_servers_differ_in_what_is_said_and_in_nothing_else() -> None:
    first, replica, worker = (SERVICES[name]["environment"] for name in ("memos", "replica", "worker"))
    assert replica == {**first, "FORWARDED_ALLOW_IPS": "*"}
    assert first == {**worker, "MEMOS_TASKS__WORKERS": "0"}
    assert "ports" not in SERVICES["replica"]  # else anybody could say who the client is
    assert f"replica:{SERVICES['memos']['ports'][0].rpartition(':')[2]}" in PROXY.read_text(encoding="utf-8")
    processes = len([first, worker]) + SERVICES["replica"]["deploy"]["replicas"]
    options = dict(part[2:].split("=") for part in SERVICES["postgres"]["command"][1:])
    assert processes * 33 + 10 <= int(options["max_connections"])


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
    assert ("ports" in SERVICES[name]) is (name not in ("worker", "replica"))
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


class MissingVariable(Exception):
    """A variable that has to be set is not."""


def interpolated(value: Any, variables: dict[str, str]) -> Any:
    """Return a value as `docker compose config` does, with `$$`, `$NAME`, `${NAME}` and `${NAME:?message}` replaced."""

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found["plain"] or found["braced"]
        if found["message"] is not None and not variables.get(name):
            raise MissingVariable(f"{name}: {found['message']}")
        return variables.get(name, "")

    if isinstance(value, dict):
        return {key: interpolated(inside, variables) for key, inside in value.items()}
    if isinstance(value, list):
        return [interpolated(inside, variables) for inside in value]
    pattern = r"\$(?:\$|(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>\w+)(?::\?(?P<message>[^}]*))?\})"
    return re.sub(pattern, replaced, value) if isinstance(value, str) else value


def test_the_file_is_of_the_compose_specification_and_stops_without_a_secret() -> None:
    full = dict.fromkeys(variables(FILE.read_text(encoding="utf-8")), "0123456789abcdef")
    config = interpolated({key: value for key, value in COMPOSE.items() if not key.startswith("x-")}, full)
    assert "$" not in json.dumps(config["services"]["memos"])
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(config)
    for service in config["services"].values():
        assert set(service.get("depends_on", {})) <= set(config["services"])
    for missing in full:
        with pytest.raises(MissingVariable, match=f"^{missing}: .*{EXAMPLE.name}"):
            interpolated(COMPOSE, {**full, missing: ""})


def limit_mib(name: str) -> int:
    return mib(SERVICES[name]["deploy"]["resources"]["limits"]["memory"])


def mib(size: str) -> int:
    return int(size[:-1]) * MIB[size[-1].lower()]
