"""What is particular to the graph on a Neo4j server: its schema, plans, installations, outages, many processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from memos.backends.graph import neo4j as neo4j_graph
from memos.backends.graph.neo4j import STATEMENTS, Neo4jGraph
from memos.core.ports import GraphNode
from memos.core.settings import Neo4jSettings
from memos.errors import BackendTimeout, BackendUnavailable, InvalidInput, MemosError
from tests.support.graphs import neighbours
from tests.support.servers.neo4j_server import Neo4jServer, free_port

ROOT = Path(__file__).resolve().parents[2]
Cypher = Callable[..., list[list[Any]]]


@pytest.fixture
def there(neo4j_server: Neo4jServer) -> Neo4jSettings:
    return Neo4jSettings(url=neo4j_server.url, password=SecretStr(neo4j_server.password))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"n{abs(hash(request.node.nodeid))}"


@pytest.fixture
def graph(there: Neo4jSettings, name: str) -> Iterator[Neo4jGraph]:
    opened = Neo4jGraph.open(there, name)
    yield opened
    opened.close()


@pytest.fixture
def session(there: Neo4jSettings) -> Iterator[Any]:
    """A session beside the graph's own."""
    import neo4j  # noqa: PLC0415 - an extra, which the other tests do without

    assert there.url
    assert there.password
    auth = ("neo4j", there.password.get_secret_value())
    with neo4j.GraphDatabase.driver(there.url, auth=auth) as driver, driver.session(database="neo4j") as opened:
        yield opened


def item(number: int, *entities: str, previous: int | None = None, links: tuple[int, ...] = ()) -> GraphNode:
    before = None if previous is None else f"m{previous}"
    return GraphNode(f"m{number}", "a", 1, "c", before, entities, tuple(("RELATES", f"m{end}") for end in links))


def held(session: Any, installation: str) -> int:
    [[count]] = session.run("MATCH (n) WHERE n.installation = $name RETURN count(n)", name=installation).values()
    return int(count)


def operators(plan: dict[str, Any]) -> Iterator[str]:
    yield plan["operatorType"].split("@")[0]
    for child in plan.get("children", ()):
        yield from operators(child)


def named_schema(session: Any) -> list[list[str]]:
    show = "SHOW {} YIELD name WHERE name STARTS WITH 'Memos' RETURN name ORDER BY name"
    return [[name for (name,) in session.run(show.format(kind)).values()] for kind in ("CONSTRAINTS", "INDEXES")]


def empty(session: Any) -> None:
    session.run("MATCH (n) WHERE n.installation IS NOT NULL DETACH DELETE n").consume()
    for constraint in named_schema(session)[0]:
        session.run(f"DROP CONSTRAINT {constraint}").consume()
    for index in named_schema(session)[1]:
        session.run(f"DROP INDEX {index}").consume()


def test_several_may_open_an_empty_database_at_once(there: Neo4jSettings, session: Any) -> None:
    empty(session)
    with ThreadPoolExecutor(8) as pool:
        for opening in [pool.submit(Neo4jGraph.open, there, f"open{number}") for number in range(8)]:
            opening.result().close()
    made = named_schema(session)
    assert [len(names) for names in made] == [4, 5]
    Neo4jGraph.open(there, "again").close()
    assert named_schema(session) == made


def test_every_statement_finds_its_nodes_by_an_index(there: Neo4jSettings, session: Any) -> None:
    values = {
        "installation": "x", "rows": [], "ids": ["m1"], "pairs": [["m1", "m2"]], "id": "m1", "cubes": ["a", "b"],
        "hub": 9, "paths": 9, "limit": 9, "from": "", "page": 9, "cube": "a", "mark": 1,
    }  # fmt: skip
    empty(session)
    graph = Neo4jGraph.open(there, "plans")
    for count in (0, 1, 500):  # what the planner believes depends on what there is
        graph.upsert([item(n, f"e{n % 9}", previous=n - 1 if n else None) for n in range(count)])
        session.run("CALL db.clearQueryCaches()").consume()
        for statement in STATEMENTS:
            found = list(operators(session.run(f"EXPLAIN {statement}", values).consume().plan))
            assert any("IndexSeek" in operator for operator in found), (count, statement, found)
            wrong = [name for name in found if "Scan" in name or "Sort" in name or name.startswith("Top")]
            assert not wrong, (count, statement, found)
    graph.close()


def test_ids_of_another_installation_are_neither_seen_nor_removed(there: Neo4jSettings, session: Any) -> None:
    one, two = Neo4jGraph.open(there, "apart_1"), Neo4jGraph.open(there, "apart_2")
    for graph in (one, two):
        graph.upsert([item(1, "e"), item(2, "e", previous=1)])
    before = held(session, "apart_2")
    one.delete(["m1", "m2"])
    assert (held(session, "apart_1"), held(session, "apart_2")) == (0, before)
    assert [near.paths for near in neighbours(two, ["a"], ["m1"])] == [2]
    one.close()
    two.close()


def test_what_nothing_names_any_more_is_gone_from_the_database(graph: Neo4jGraph, session: Any, name: str) -> None:
    graph.upsert([item(1, "e", "f", previous=7, links=(8,)), item(2, "e")])
    assert held(session, name) == 7  # the two, the unknown 7 and 8, e, f, and the conversation
    graph.upsert([item(1, "e")])
    assert held(session, name) == 4
    graph.delete(["m1", "m2", "m1"])
    assert held(session, name) == 0


@pytest.mark.parametrize("bad", ["", "a-b", "a b", "é", "x" * 65, "a'"])
def test_a_name_for_an_installation_is_plain(bad: str) -> None:
    with pytest.raises(InvalidInput, match="installation"):
        Neo4jGraph.open(Neo4jSettings(url="bolt://127.0.0.1:1"), bad)


def test_an_unknown_kind_of_link_writes_nothing(graph: Neo4jGraph) -> None:
    odd = GraphNode("m2", "a", 1, None, None, (), (("KNOWS]->() DELETE n //", "m1"),))
    with pytest.raises(InvalidInput, match="links: unknown kind"):
        graph.upsert([item(1), odd])
    assert graph.cubes() == []


def test_text_that_is_no_unicode_is_refused_and_the_graph_goes_on(graph: Neo4jGraph) -> None:
    with pytest.raises(InvalidInput, match="Unicode"):
        graph.upsert([GraphNode("\ud800", "a", 1, None, None, (), ())])
    graph.upsert([item(1)])
    assert graph.cubes() == ["a"]


def test_paging_finds_everything_once(graph: Neo4jGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neo4j_graph, "_PAGE", 3)
    cubes = ["", "a", "a\0", "a b", "ab", "b", "é", "\uffff", "\U0001f600"]
    nodes = [GraphNode(f"{cube}:{n}", cube, n + 1, None, None, (), ()) for cube in cubes for n in range(7)]
    graph.upsert(nodes)
    assert graph.cubes() == sorted(cubes)
    for cube in cubes:
        found = [(stamp.item, stamp.revision) for stamp in graph.scan(cube)]
        assert sorted(found) == [(f"{cube}:{n}", n + 1) for n in range(7)]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"password": SecretStr("wrong-secret")}, "refused the user or the password"),
        ({"url": "bolt://nobody@127.0.0.1:{port}"}, "refused the user or the password"),
        ({"password": None}, "refused the user or the password"),
        ({"url": "bolt://127.0.0.1:{free}"}, "cannot be reached: start it"),
        ({"url": "neo4j://127.0.0.1:{free}"}, "cannot be reached: start it"),
        ({"url": "bolt+s://127.0.0.1:{port}"}, "the encryption"),
        ({"url": "bolt://no-such-host.invalid"}, "cannot be reached"),
        ({"url": "http://127.0.0.1:{port}"}, "not a Bolt URL"),
        ({"url": "127.0.0.1:{port}"}, "not a Bolt URL"),
        ({"url": "bolt://127.0.0.1:99999"}, "not a Bolt URL"),
        ({"url": "bolt://u:wrong-secret@127.0.0.1:{port}"}, "not a Bolt URL"),
        ({"url": None}, "not a Bolt URL"),
    ],
)
def test_a_wrong_setting_is_told_in_one_sentence(
    there: Neo4jSettings, neo4j_server: Neo4jServer, changed: dict[str, Any], told: str
) -> None:
    url = changed.get("url")
    where = {"url": url.format(port=neo4j_server.port, free=free_port())} if url else {}
    with pytest.raises(BackendUnavailable, match=told) as raised:
        Neo4jGraph.open(there.model_copy(update={**changed, **where}), "wrong")
    assert str(raised.value).count(". ") == 0
    whole = "".join(traceback.format_exception(raised.value))
    assert neo4j_server.password not in whole
    assert "wrong-secret" not in whole


def test_a_server_that_is_no_neo4j_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer() -> None:
            for _ in range(8):
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(BackendUnavailable, match=r"MEMOS_NEO4J__URL"):
            Neo4jGraph.open(Neo4jSettings(url=f"bolt://127.0.0.1:{port}", password=SecretStr("x")), "other")


def test_the_oldest_version_is_5_26(neo4j_server: Neo4jServer) -> None:
    from memos.backends.graph.neo4j_client import check_version  # noqa: PLC0415 - needs the driver

    for fine in ("5.26.0", "5.26.30", "5.27-aura", "2025.01.0", "2026.10.1"):
        check_version(fine)
    for old in ("5.25.1", "4.4.40", "3.5", "5", ""):
        with pytest.raises(BackendUnavailable, match=r"needs 5\.26 or newer"):
            check_version(old)


def test_a_missing_driver_is_named() -> None:
    script = (
        "import sys; sys.modules['neo4j'] = None\n"
        "from memos.backends.graph.neo4j import Neo4jGraph\nfrom memos.core.settings import Neo4jSettings\n"
        "from memos.errors import BackendUnavailable\n"
        "try: Neo4jGraph.open(Neo4jSettings(url='bolt://127.0.0.1:1'), 'x')\n"
        "except BackendUnavailable as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "pip install '.[neo4j]'" in done.stdout


def test_a_transaction_that_has_to_wait_too_long_is_given_up_and_can_be_repeated(
    there: Neo4jSettings, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memos.backends.graph.neo4j_client.TIMEOUT_S", 1)
    graph = Neo4jGraph.open(there, "slow")
    graph.upsert([item(1)])
    with session.begin_transaction() as other:
        other.run("MATCH (n:MemosMemory {installation: 'slow', id: 'm1'}) SET n.lock = false").consume()
        with pytest.raises(BackendTimeout, match="within 1 s"):
            graph.upsert([item(2, previous=1)])
        assert [stamp.item for stamp in graph.scan("a")] == ["m1"]  # undone, and reading goes on meanwhile
    graph.upsert([item(2, previous=1)])
    assert graph.adjacent(["a"], "m1", 9) == ["m2"]
    graph.close()


def test_a_refused_statement_disturbs_no_other_thread(there: Neo4jSettings) -> None:
    from memos.backends.graph.neo4j_client import Neo4jConnection  # noqa: PLC0415 - needs the driver

    connection = Neo4jConnection.open(there)
    told: list[str] = []

    def work() -> None:
        for _ in range(150):
            try:
                connection.write(lambda run: run("RETURN 1 / 0", {}))
            except MemosError as error:
                told.append(str(error))
            [[total]] = connection.read(lambda run: run("UNWIND range(1, 3000) AS x RETURN sum(x)", {}))
            assert total == 4_501_500

    with ThreadPoolExecutor(12) as pool:
        for done in [pool.submit(work) for _ in range(12)]:
            done.result(timeout=100)  # with the driver alone a thread or two wait for ever, and some calls fail
    assert len(told) == 12 * 150
    assert all("ArithmeticError" in text for text in told)
    connection.close()


def test_a_closed_graph_says_so(there: Neo4jSettings) -> None:
    graph = Neo4jGraph.open(there, "closed")
    graph.close()
    graph.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        graph.mark()


def test_the_graph_works_again_after_the_server_crashed(graph: Neo4jGraph, neo4j_server: Neo4jServer) -> None:
    graph.upsert([item(n, "e") for n in range(50)])
    graph.flush(4)
    with ThreadPoolExecutor(8) as pool:  # several open connections, all of which will be dead
        list(pool.map(lambda _: graph.mark(), range(64)))
    neo4j_server.kill()
    for call in (graph.mark, lambda: graph.upsert([item(99)]), lambda: graph.adjacent(["a"], "m1", 9)):
        with pytest.raises(BackendUnavailable, match=r"cannot be reached: start it"):
            call()
    neo4j_server.start()
    assert (graph.mark(), graph.restart_count) == (4, 0)
    graph.upsert([item(50, "e")])
    assert len(list(graph.scan("a"))) == 51
    assert len(neighbours(graph, ["a"], ["m50"])) == 50


WRITER = """
import os, random, sys
from pydantic import SecretStr
from memos.backends.graph.neo4j import Neo4jGraph
from memos.core.settings import Neo4jSettings
from tests.servers.test_neo4j_graph import universe
url, name, seed, deletes = sys.argv[1:]
graph = Neo4jGraph.open(Neo4jSettings(url=url, password=SecretStr(os.environ["SECRET"])), name)
chance, nodes = random.Random(int(seed)), universe()
for _ in range(12):
    some = chance.sample(nodes, 25)
    if deletes == "yes":
        graph.delete([one.id for one in chance.sample(nodes, 8)])
    graph.upsert(some)
graph.upsert(chance.sample(nodes, len(nodes)))
graph.close()
"""


def universe() -> list[GraphNode]:
    return [
        item(n, "all", f"e{n % 5}", f"f{n % 2}", previous=n - 1 if n else None, links=((n * 7) % 60, (n * 11) % 60))
        for n in range(60)
    ]


@pytest.mark.parametrize("deletes", ["no", "yes"])
def test_processes_that_write_the_same_nodes_leave_what_one_would(
    there: Neo4jSettings, graph: Neo4jGraph, session: Any, name: str, deletes: str
) -> None:
    assert there.url
    assert there.password
    environment = {**os.environ, "SECRET": there.password.get_secret_value()}
    command = [sys.executable, "-c", WRITER, there.url, name]
    writers = [
        subprocess.Popen([*command, str(seed), deletes], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    told = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0], told
    if deletes == "yes":  # the last deletion may have taken edges that another process had written
        graph.upsert(universe())
    alone = Neo4jGraph.open(there, f"{name}_alone")
    alone.upsert(universe())
    for n in range(60):
        assert neighbours(graph, ["a"], [f"m{n}"]) == neighbours(alone, ["a"], [f"m{n}"])
    alone.delete([node.id for node in universe()])
    alone.close()
    graph.delete([node.id for node in universe()])
    assert held(session, name) == 0
