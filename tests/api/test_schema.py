"""`/api/v1` is what its OpenAPI document says: no input makes the server fail, and every answer is of a told shape."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CheckContext
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.conftest import Server

DOCUMENT = "/api/v1/openapi.json"
TYPESCRIPT = Path(__file__).resolve().parents[2] / "clients" / "typescript" / "src" / "client.ts"
EXAMPLES = 6
# A cube that comes as a file is there then: loading it again is refused, or adds nothing.
MADE_ONCE = {"/cubes/load"}


def no_mistake(_: CheckContext, response: schemathesis.Response, __: schemathesis.Case) -> None:
    """See that the server did not fail; without a language model 503 is the right answer to some."""
    assert response.status_code not in {500, 502, 504}, response.text


CHECKS = [
    no_mistake, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
# They go on for minutes, as they should; test_waiting is about them.
STREAMS = {"tasks_stream", "events_stream"}


def test_every_part_of_the_document_is_told(server: Server) -> None:
    document = server.http.get(DOCUMENT).json()
    assert document["servers"] == [{"url": "/api/v1"}]
    assert document["security"] == [{"key": []}]
    names = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            names.append(operation["operationId"])
            assert operation["description"], where
            assert {"400", "401", "403", "404", "409", "500", "503"} <= set(operation["responses"]), where
            assert "422" not in operation["responses"], where
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), f"{where} {parameter['name']}"
            if method == "post" and "201" in operation["responses"] and path not in MADE_ONCE:
                assert "idempotency-key" in {one["name"] for one in operation["parameters"]}, where
    assert len(names) == len(set(names))
    assert {"memories_add", "search_search", "cubes_share", "keys_create", "tasks_wait"} <= set(names)
    for name, schema in document["components"]["schemas"].items():
        for field, told in schema.get("properties", {}).items():
            assert told.get("description"), f"{name}.{field}"


def test_the_typescript_client_asks_for_routes_that_there_are(server: Server) -> None:
    """Its types are generated: after a change of routes, python scripts/typescript_types.py."""
    code = TYPESCRIPT.read_text(encoding="utf-8")
    asked = set(re.findall(r'this\.#?api\.\w+\(\s*(?:"\w+",\s*)?"(/[^"]+)"', code))
    assert len(asked) > 50
    assert asked <= set(server.http.get(DOCUMENT).json()["paths"])


@pytest.mark.heavy
@pytest.mark.parametrize(("who", "mode"), [("admin", GenerationMode.POSITIVE), ("ana", GenerationMode.NEGATIVE)])
def test_no_input_makes_it_fail_and_every_answer_is_as_told(server: Server, who: str, mode: GenerationMode) -> None:
    config = SchemathesisConfig(
        seed=7, projects=ProjectsConfig(default=ProjectConfig(generation=GenerationConfig(database="none")))
    )
    schema = schemathesis.openapi.from_asgi(DOCUMENT, server.http.app, config=config)
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] in STREAMS:
            continue

        @seeded(7)
        @settings(
            max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            nonlocal tried
            tried += 1
            if "timeout_s" in case.query:
                case.query["timeout_s"] = 0
            case.call_and_validate(headers=server.headers(who), checks=CHECKS, timeout=120)

        with suppress(Unsatisfiable):  # every text is a right id, so nothing is wrong input there
            ask()
    assert tried > 150
