"""Memory as MCP tools: a real client of the official SDK over HTTP and over standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from memos import MemOS, Settings
from memos.api import endpoint
from memos.api.app import create_app
from memos.api.local.sharing import in_background
from memos.api.serving import first_key
from memos.core.settings import IndexSettings, LimitSettings
from tests.fakes import WordEmbedder

EVERYDAY = {"search_memories", "add_memory", "correct_memory", "forget_memory", "get_user_context"}
TOOLS = EVERYDAY | {
    "add", "search", "get", "update", "delete", "feedback", "memory_relations", "review_relations", "decide_relation",
    "list_cubes", "share_cube", "task_status", "add_exchange", "retrieve_memory", "get_user_profile",
}  # fmt: skip


class Http(NamedTuple):
    """A server with three users' keys."""

    url: str
    memos: MemOS
    keys: dict[str, str]

    @asynccontextmanager
    async def client(self, user: str, mode: str = "auto", query: str = "") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.keys[user]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.url + query, http_client=http), mode=mode) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    settings = Settings(index=IndexSettings(wait_s=30), limits=LimitSettings(min_free_bytes=1_000_000))
    home: Path = tmp_path_factory.mktemp("mcp")
    with MemOS.open(home, settings=settings, embedder=WordEmbedder()) as memos:
        keys = {"admin": str(first_key(memos))}
        for user in ("ana", "ben"):
            memos.users.create(user)
            keys[user] = memos.keys.create(user, "test").secret
        keys["looker"] = memos.keys.create("ana", "looks", rights=["read"]).secret
        make = lambda token, stopping: create_app(memos, local_token=token, stopping=stopping)  # noqa: E731
        with in_background(home, make) as found:
            yield Http(f"{found.url}/mcp", memos, {**keys, "local": found.token})


async def told(client: Client, tool: str, **arguments: Any) -> Any:
    """Return what a tool that works answers."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the sentence of a tool that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    text: str = result.content[0].text
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert "\n" not in text
    return text


async def try_everyday_tools(client: Client, user: str) -> None:
    """Call the five tools that every client sees, and use the prompts."""
    [item] = (await told(client, "add_memory", text="My sister Noor lives in Bergen."))["ids"]
    [found] = (await told(client, "search_memories", query="Where does Noor live?", top_k=1))["memories"]
    assert (found["id"], found["memory"]) == (item, "My sister Noor lives in Bergen.")
    assert (await told(client, "search_memories", query="Where does Noor live?", min_relevance=1)) == {"memories": []}
    assert json.loads((await client.read_resource(f"memory://{item}")).contents[0].text)["memory"] == found["memory"]
    corrected = await told(client, "correct_memory", text="no, Noor lives in Oslo", ids=[item])
    assert corrected["related"] == [item]
    assert (await told(client, "get_user_context"))["user"] == user
    ids = [item, corrected["id"]]
    assert await told(client, "forget_memory", ids=ids) == {"deleted": ids}
    assert "deleted" in await refused(client, "get", id=item)
    prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    assert prompts == {"remember", "recall", "what-do-you-know-about-me"}
    [asked] = (await client.get_prompt("recall", {"about": "Noor"})).messages
    assert "Noor" in asked.content.text
    assert "search_memories" in asked.content.text
    [asked] = (await client.get_prompt("remember", {})).messages
    assert "add_memory" in asked.content.text
    assert [each.uri_template for each in (await client.list_resource_templates()).resource_templates] == [
        "memory://{id}"
    ]


async def try_every_tool(client: Client, user: str) -> None:
    """Call each tool of a client that sees all, and whose user has nothing stored yet, and read the resources."""
    listed = (await client.list_tools()).tools
    assert {tool.name for tool in listed} == TOOLS
    assert all(tool.description and tool.output_schema for tool in listed)
    destructive = {tool.name for tool in listed if tool.annotations and tool.annotations.destructive_hint}
    assert destructive == {"delete", "forget_memory"}
    await try_everyday_tools(client, user)
    added = await told(client, "add", text="The otter lives in Oslo", tags=["zoo"], fine=True)
    [item] = added["ids"]
    assert (await told(client, "task_status", task=added["task"]))["cube"] == added["cube"]
    found = await told(client, "search", query="otter", token_budget=200)
    assert found["memories"][0]["id"] == item
    assert "Oslo" in found["context"]
    assert (await told(client, "search", query="otter", min_relevance=1))["memories"] == []
    assert (await told(client, "update", id=item, text="The otter lives in Rome"))["version"] == 2
    assert (await told(client, "get", id=item))["memory"] == "The otter lives in Rome"
    assert (await told(client, "feedback", text="no, in Bergen", about=[item]))["related"] == [item]
    later = (await told(client, "add", text="The otter moved to Bergen"))["ids"][0]
    talk = [["human", "Is the vixen asleep?"], {"role": "model", "content": [{"type": "text", "text": "She is."}]}]
    shaped = (await told(client, "add", messages=talk))["ids"]
    assert [(await told(client, "get", id=id_))["speaker"] for id_ in shaped] == ["user", "assistant"]
    decided = await told(client, "decide_relation", newer=later, older=item, holds=True)
    assert decided["relations"][0] == {
        "newer": later, "older": item, "kind": "UPDATES", "confidence": 1.0, "decided_by": user
    }  # fmt: skip
    assert decided["relations"][0] in (await told(client, "memory_relations", id=item))["relations"]
    assert await told(client, "review_relations") == {"relations": []}
    assert (await told(client, "delete", ids=[item, later])) == {"deleted": [item, later]}
    assert added["cube"] in {cube["id"] for cube in (await told(client, "list_cubes"))["cubes"]}
    for number in range(2):
        stored = await told(
            client, "add_exchange", user_input=f"I like swans {number}", agent_response="Noted",
            timestamp="2026-01-02T03:04:05+00:00", meta_data={"number": number},
        )  # fmt: skip
        assert (stored["status"], len(stored["ids"])) == ("success", 2)
    got = await told(client, "retrieve_memory", query="swans", relationship_with_user="friend", style_hint="brief")
    assert got["short_term_count"] == len(got["short_term_memory"]) == 2
    assert got["short_term_memory"][0]["user_input"] == "I like swans 0"
    assert got["short_term_memory"][0]["agent_response"] == "Noted"
    assert got["short_term_memory"][1]["meta_info"] == {"number": 1}
    assert set(got) == {
        "status", "query", "timestamp", "user_profile", "short_term_memory", "short_term_count", "retrieved_pages",
        "retrieved_user_knowledge", "retrieved_assistant_knowledge", "total_pages_found", "total_user_knowledge_found",
        "total_assistant_knowledge_found",
    }  # fmt: skip
    profile = await told(client, "get_user_profile", include_knowledge=True, include_assistant_knowledge=True)
    assert profile["user_id"] == user
    status = json.loads((await client.read_resource("memoryos://status")).contents[0].text)
    assert (status["status"], status["user"]) == ("ok", user)
    config = (await client.read_resource("memoryos://config")).contents[0].text
    assert json.loads(config)["limits"]["top_k"] > 0
    assert {resource.uri for resource in (await client.list_resources()).resources} == {
        "memoryos://status", "memoryos://config",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_over_http_uses_every_tool(http: Http, mode: str) -> None:
    user = {"auto": "ana", "legacy": "cleo"}[mode]
    if user not in http.keys:
        http.memos.users.create(user)
        http.keys[user] = http.memos.keys.create(user, "test").secret

    async def talk() -> None:
        async with http.client(user, mode, "?tools=all") as client:
            await try_every_tool(client, user)
            assert (await told(client, "share_cube", identity="ben"))["cube"] == user
        http.memos.sharing.revoke(user, "ben")

    anyio.run(talk)


def test_wrong_arguments_are_errors_in_a_sentence(http: Http) -> None:
    async def talk() -> None:
        async with http.client("ana") as client:
            for tool, arguments, named in (
                ("add", {}, "text"), ("add", {"text": ""}, "content"), ("add", {"text": 1}, "text"),
                ("add", {"text": "x\0y", "conversation": "\0"}, "conversation"), ("add", {"text": "x", "no": 1}, "no"),
                ("add", {"text": "x", "tag": []}, "unknown argument; did you mean `tags`?"),
                ("add", {"text": "x", "tags": {"a": 1}}, "tags"), ("add", {"text": "x", "role": "king"}, "role"),
                ("search", {"query": "x", "top_k": 10**30}, "top_k"), ("search", {"query": " "}, "query"),
                ("search", {"query": "x", "top_k": "many"}, "top_k"), ("search", {"query": "x", "cubes": []}, "cubes"),
                ("search", {"query": "x", "filter": {"a": {"zz": 1}}}, "zz"), ("get", {"id": "x" * 999}, "item"),
                ("search", {"query": "x", "as_of": "soon"}, "as_of"), ("delete", {"ids": []}, "item"),
                ("get", {"id": "none"}, "No such item"), ("task_status", {"task": "none"}, "No such task"),
                ("share_cube", {"identity": "nobody"}, "nobody"), ("no_such_tool", {}, "no_such_tool"),
                ("search_memory", {}, "`search_memories`"), ("add_memories", {}, "`add_memory`"),
                ("retrieve_memory", {"query": "x", "max_results": 0}, "max_results"),
                ("add_exchange", {"user_input": " ", "agent_response": "x"}, "user_input"),
                ("add_exchange", {"user_input": "x", "agent_response": "y", "timestamp": "soon"}, "chat_time"),
                ("add_memory", {}, "text"), ("forget_memory", {"ids": []}, "item"), ("search_memories", {}, "query"),
                ("search", {"query": "x", "min_relevance": "0.5"}, "min_relevance"),
                ("search_memories", {"query": "x", "min_relevance": 2}, "min_relevance"),
                ("search_memories", {"query": "x", "k": 3}, "unknown argument; here it is `top_k`"),
            ):  # fmt: skip
                assert named in await refused(client, tool, **arguments), (tool, arguments)
            with pytest.raises(MCPError):
                await client.read_resource("memoryos://nothing")
            with pytest.raises(MCPError, match="No such item"):
                await client.read_resource("memory://none")

    anyio.run(talk)


def test_arguments_may_have_the_names_of_other_programs(http: Http) -> None:
    async def talk() -> None:
        async with http.client("ana") as client:
            added = await told(client, "add", text="The kiln is in the yard", session_id="pots", infer=True)
            item = added["ids"][0]
            assert added["task"]
            assert (await told(client, "get", memory_id=item))["conversation"] == "pots"
            found = await told(client, "search_memories", query="Where is the kiln?", limit=1)
            assert [memory["id"] for memory in found["memories"]] == [item]
            corrected = await told(client, "correct_memory", text="No, it is in the shed", memory_id=item)
            assert item in corrected["related"]
            assert "unknown argument" in await refused(client, "share_cube", user_id="ben")  # a habit grants nothing
            http.memos.sharing.revoke("ana", "ben", actor="ana")
            assert (await told(client, "forget_memory", id=item))["deleted"] == [item]
            for arguments, words in (
                ({"query": "x", "top_k": 1, "limit": 2}, "another word for `top_k`"),
                ({"query": "x", "user_id": "ana"}, "user_id': unknown argument"),
            ):
                assert words in await refused(client, "search", **arguments)

    anyio.run(talk)


def test_a_client_sees_five_tools_and_the_others_and_former_names_answer(http: Http) -> None:
    async def talk() -> None:
        async with http.client("ana") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == EVERYDAY
            added = await told(client, "add", text="Rye bread is in the oven")
            assert (await told(client, "get", id=added["ids"][0]))["memory"] == "Rye bread is in the oven"
            stored = await told(client, "add_memory", user_input="I bake rye bread", agent_response="Noted")
            assert stored["status"] == "success"

    anyio.run(talk)


def test_a_connection_that_may_only_read_is_shown_only_what_reads(http: Http, tmp_path: Path) -> None:
    async def look(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"search_memories", "get_user_context"}
        assert "remember" not in {prompt.name for prompt in (await client.list_prompts()).prompts}
        for tool, arguments in (("add_memory", {"text": "x"}), ("add", {"text": "x"}), ("forget_memory", {"ids": []})):
            assert "connection is read-only" in await refused(client, tool, **arguments)
        await told(client, "search_memories", query="otter")

    async def both() -> None:
        async with http.client("looker") as client:
            await look(client)
        async with on_stdio(tmp_path / "home", "--read-only") as client:
            await look(client)

    anyio.run(both)


def test_two_tenants_see_nothing_of_each_other_also_at_once(http: Http) -> None:
    async def talk(user: str, other: str, items: dict[str, str], both: anyio.Event) -> None:
        async with http.client(user) as client:
            word = f"secretof{user}"
            items[user] = (await told(client, "add", text=f"{word} otter"))["ids"][0]
            if len(items) == 2:
                both.set()
            await both.wait()
            for _ in range(5):
                found = await told(client, "search", query=f"secretof{other} otter")
                assert {memory["cube"] for memory in found["memories"]} == {user}
            assert "No such item" in await refused(client, "get", id=items[other])
            assert "No such item" in await refused(client, "update", id=items[other], text="mine")
            assert "No such item" in await refused(client, "delete", ids=[items[other]])
            assert "No such cube" in await refused(client, "search", query="otter", cubes=[other])
            assert "No such cube" in await refused(client, "add", text="x", cube=other)
            assert "No such cube" in await refused(client, "share_cube", cube=other, identity=user)
            assert [cube["id"] for cube in (await told(client, "list_cubes"))["cubes"]] == [user]
            everything = [
                await told(client, "retrieve_memory", query=f"secretof{other}"),
                await told(client, "get_user_profile"),
                (await client.read_resource("memoryos://status")).contents[0].text,
            ]
            assert f"secretof{other}" not in json.dumps(everything).replace(f'"query": "secretof{other}"', "")

    async def both_talk() -> None:
        items: dict[str, str] = {}
        both = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk, "ana", "ben", items, both)
            tasks.start_soon(talk, "ben", "ana", items, both)

    anyio.run(both_talk)


def test_a_key_is_needed_with_every_message_and_holds_it_to_its_rights(http: Http) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_cubes", "arguments": {}}}
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    for key in ("", "Bearer wrong"):
        answer = httpx2.post(http.url, json=call, headers={**headers, **({"Authorization": key} if key else {})})
        assert answer.status_code == 401
    named = {**headers, "Authorization": f"Bearer {http.keys['ben']}", "Mcp-Session-Id": "of ana"}
    answer = httpx2.post(http.url, json=call, headers=named)
    assert "ana" not in answer.text

    async def look() -> None:
        async with http.client("looker") as client:
            assert "connection is read-only" in await refused(client, "add", text="x")
            await told(client, "search", query="otter")
        async with http.client("local") as client:
            assert (await told(client, "list_cubes"))["home"] == "default"

    anyio.run(look)


@asynccontextmanager
async def on_stdio(home: Path, *words: str) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "memos", "mcp", "--data-dir", str(home), *words],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    async with Client(command, read_timeout_seconds=120) as client:
        yield client


@pytest.mark.heavy
def test_clients_on_stdio_share_a_folder_and_outlive_each_other(tmp_path: Path) -> None:
    home = tmp_path / "home"

    async def talk() -> None:
        async with on_stdio(home, "--user", "dora") as second:
            async with on_stdio(home, "--all-tools") as first:
                await try_every_tool(first, "owner")
                assert (await told(second, "list_cubes"))["home"] == "dora"
                added = await told(second, "add", text="A heron fishes")
                assert (await told(first, "get", id=added["ids"][0]))["cube"] == "dora"
                assert "No such cube" in await refused(second, "search", query="x", cubes=["default"])
            assert (await told(second, "get", id=added["ids"][0]))["memory"] == "A heron fishes"
        async with on_stdio(home) as third, on_stdio(home) as fourth:
            for client in (third, fourth):
                assert (await told(client, "search", query="heron", cubes=["dora"]))["memories"]

    anyio.run(talk)
    assert endpoint.find(home) is None


@pytest.mark.heavy
def test_a_client_on_stdio_works_through_the_server_that_has_the_folder_open(http: Http) -> None:
    home = http.memos.home
    before = endpoint.find(home)

    async def talk() -> str:
        async with on_stdio(home, "--user", "ana") as client, http.client("ana") as beside:
            added = await told(client, "add", text="A puffin digs")
            assert added["cube"] == "ana"
            assert (await told(beside, "get", id=added["ids"][0]))["memory"] == "A puffin digs"
            theirs = (await told(beside, "add", text="A puffin dives"))["ids"][0]
            assert (await told(client, "get", id=theirs))["memory"] == "A puffin dives"
            return str(added["ids"][0])

    item = anyio.run(talk)
    assert http.memos.get(item).memory == "A puffin digs"  # the server's own process has the folder open, and has it
    assert endpoint.find(home) == before


HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


@pytest.mark.heavy
def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    lines = [json.dumps(HELLO), "not JSON", json.dumps(ready), json.dumps(ask)]
    command = [sys.executable, "-m", "memos", "mcp", "--data-dir", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        ids = []
        while 2 not in ids:
            ids.append(json.loads(process.stdout.readline()).get("id"))
        rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in said


@pytest.mark.heavy
def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memos", "mcp", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        while endpoint.find(tmp_path) is None:  # opened once the first message is answered
            time.sleep(0.05)
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert endpoint.find(tmp_path) is None
