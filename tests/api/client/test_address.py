"""What a client is given before anything is sent: addresses, keys, options, and calls that cannot be made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from memos.api.client import MemOSClient, openmem
from memos.api.client import v1_requests as own_memories
from memos.api.client.calls import LOCAL, Options, address_of
from memos.errors import BackendUnavailable, InvalidInput

TEXT = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1"), ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
        ("http://h:1/api/openmem/v1", "http://h:1"), ("http://h:1/api/openmem/v1/", "http://h:1"),
        ("https://h/memory/api/v1//", "https://h/memory"), (" http://[::1]:5 ", "http://[::1]:5"),
    ],
)  # fmt: skip
def test_a_base_url_may_name_the_routes_or_not(given: str, root: str) -> None:
    assert address_of("k", given, is_global=False).root == root


@pytest.mark.parametrize(
    "url",
    [
        "h:1",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h?x=1",
        "http://h#x",
        "http://h:99999",
        "http://[",
        5,
        "\x00",
    ],
)
def test_what_is_no_url_is_refused_without_being_shown(url: Any) -> None:
    with pytest.raises(InvalidInput, match="base_url") as told:
        MemOSClient("k", url)
    assert "u:p" not in str(told.value)


def test_key_and_url_come_from_the_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMOS_API_KEY", raising=False)
    monkeypatch.delenv("MEMOS_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="MEMOS_API_KEY"):  # as the known client
        MemOSClient()
    monkeypatch.setenv("MEMOS_API_KEY", "mst_env")
    assert address_of(None, None, "false").root == LOCAL
    monkeypatch.setenv("MEMOS_BASE_URL", "http://h:2/api/openmem/v1")
    found = address_of(None, None, "false")
    assert (found.root, found.key) == ("http://h:2", "mst_env")
    assert address_of("mst_given", "http://h:3", "false").key == "mst_given"
    assert "mst_env" not in repr(found)


@pytest.mark.parametrize("key", ["a b", "a\nb", "é", "\ud800", 5, "x" * 5_000])
def test_a_key_that_no_header_holds_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="api_key"):
        MemOSClient(key, "http://h")


def test_there_is_no_hosted_service() -> None:
    with pytest.raises(InvalidInput, match="is_global"):
        MemOSClient("k", "http://h", "true")


@pytest.mark.parametrize(
    "options",
    [{"retries": -1}, {"retries": True}, {"retries": 1.5}, {"timeout_s": 0}, {"timeout_s": math.nan}, {"pause_s": None},
     {"timeout_s": "1"}, {"most_pause_s": -1}, {"connect_timeout_s": 10**400}, {"timeouts": 1}],
)  # fmt: skip
def test_options_that_are_none_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Options().changed(**options)


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("add_message", {"messages": [], "user_id": "a"}, "messages"), ("add_message", {"messages": TEXT}, "user_id"),
        ("add_message", {"messages": TEXT, "user_id": "a", "info": {"x": math.nan}}, "info"),
        ("add_message", {"messages": TEXT, "user_id": "a", "info": {"x": object()}}, "info"),
        ("search_memory", {"query": "", "user_id": "a"}, "query"),
        ("search_memory", {"query": "x"}, "user_id"),
        ("search_memory", {"query": "x", "user_id": "a", "agent_id": "b"}, "user_id"),
        ("get_memory", {"user_id": "a", "size": 51}, "size"), ("get_memory_by_id", {"memid": ""}, "memid"),
        ("get_memory_by_id", {"memid": ".."}, "memid"), ("get_memory_by_id", {"memid": "\ud800"}, "memid"),
        ("delete_memory", {}, "memory_ids"), ("delete_memory", {"user_ids": ["a", "b"]}, "user_ids"),
        ("delete_memory", {"memory_ids": ["m"], "filter": {}}, "memory_ids"),
        ("update_memory", {"memory_id": "m"}, "content"),
        ("rerank", {"query": "x", "documents": ["y"], "top_n": 0}, "top_n"),
        ("edit_profile", {"profile_template_id": "p", "user_id": "a"}, "metadata"),
        ("get_knowledgebase_file", {}, "file_ids"),
        ("chat", {"user_id": "a", "conversation_id": "", "query": "x"}, "conv"),
        ("add_knowledgebase_file_form", {"knowledgebase_id": "k", "files": ["/no/such/file"]}, "files"),
        ("add_knowledgebase_file_form", {"knowledgebase_id": "k", "files": ["\x00"]}, "files"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_made_is_refused_before_it_is_sent(name: str, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field) as told:
        getattr(openmem, name)(**given)
    assert isinstance(told.value, ValueError)  # as the known client


@pytest.mark.parametrize("key", ["", "a\nb", "é", "x" * 300, 5])
def test_an_idempotency_key_fits_into_a_header(key: Any) -> None:
    with pytest.raises(InvalidInput, match="idempotency_key"):
        own_memories.add("x", idempotency_key=key)


def test_odd_text_is_sent_as_it_is() -> None:
    call = openmem.add_message([{"role": "user", "content": "\ud800 \x00 茶"}], user_id="a")
    assert call.body is not None
    assert b"\\ud800 \\u0000 \\u8336" in call.body
    assert openmem.get_memory_by_id("a/b?c#d é").path == "/api/openmem/v1/get/memory/a%2Fb%3Fc%23d%20%C3%A9"
    assert openmem.add_knowledgebase_file_form("k", __file__).files == (Path(__file__),)


def test_old_programs_may_name_one_user_in_a_list() -> None:
    assert openmem.delete_memory(["ana"]).body == b'{"user_id": "ana"}'


def test_a_closed_client_says_so() -> None:
    client = MemOSClient("k", "http://127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        client.get_task_status("t")
