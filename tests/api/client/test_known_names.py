"""The clients have the methods of the known client (PyPI `MemoryOS` 2.0.33), with its parameters and defaults."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from memos import errors
from memos.api import client, values
from memos.api.client import AsyncMemOSClient, MemOSClient
from memos.api.client.clients import Cubes, Tasks

KNOWN = """
get_message(user_id, conversation_id=None, conversation_limit_number=None, message_limit_number=None,
    source=None)
add_message(messages, user_id=None, conversation_id=None, info=None, source=None, app_id=None, agent_id=None,
    async_mode=True, tags=None, allow_public=False, allow_knowledgebase_ids=None, allow_memory_view=None)
search_memory(query, user_id=None, conversation_id=None, agent_id=None, memory_limit_number=6,
    include_preference=True, knowledgebase_ids=None, filter=None, source=None, include_tool_memory=False,
    preference_limit_number=6, tool_memory_limit_number=6, relativity=None, include_skill=False,
    skill_limit_number=6, include_memory_view=None, context_format='memory')
get_memory(user_id=None, include_preference=True, page=1, size=10, agent_id=None, include_tool_memory=True,
    include_memory_view=None, filter=None)
get_memory_by_id(memid)
create_knowledgebase(knowledgebase_name, knowledgebase_description=None)
delete_knowledgebase(knowledgebase_id)
add_knowledgebase_file_json(knowledgebase_id, file)
add_knowledgebase_file_form(knowledgebase_id, files, type=None)
delete_knowledgebase_file(file_ids)
get_knowledgebase_file(file_ids=None, knowledgebase_id=None, type=None, page=None, page_size=None)
get_task_status(task_id)
add_feedback(user_id, conversation_id=None, feedback_content=None, agent_id=None, app_id=None,
    feedback_time=None, allow_public=False, allow_knowledgebase_ids=None)
delete_memory(user_ids=None, memory_ids=None, *, user_id=None, agent_id=None, filter=None, memory_type=None)
update_memory(memory_id, content=None, title=None, status=None)
extract_memory(messages, extraction_types=None, model=None)
rerank(query, documents, model=None, top_n=None)
bind_profile_template(bind_list)
edit_profile(profile_template_id, user_id=None, agent_id=None, metadata=None, remove_fields=None)
delete_profile(profile_template_id, user_id=None, agent_id=None)
chat(user_id, conversation_id, query, internet_search=False, force_stop=False, use_mem_os_cube=False,
    source=None, system_prompt=None, model_name=None, knowledgebase_ids=None, filter=None,
    add_message_on_answer=True, app_id=None, agent_id=None, async_mode=True, tags=None, info=None,
    allow_public=False, allow_knowledgebase_ids=None, max_tokens=8192, temperature=0.7, top_p=0.95,
    include_preference=True, preference_limit_number=6, memory_limit_number=6, stream=False,
    include_tool_memory=False, tool_memory_limit_number=6, relativity=None)
"""


def known() -> list[tuple[str, str]]:
    return [(match[1], " ".join(match[2].split())) for match in re.finditer(r"(\w+)\(([^)]*)\)", KNOWN)]


def parameters(method: object) -> str:
    """Return parameters and defaults without types."""
    assert callable(method)
    given = [entry for name, entry in inspect.signature(method).parameters.items() if name != "self"]
    bare = inspect.Signature([entry.replace(annotation=inspect.Parameter.empty) for entry in given])
    return str(bare).strip("()")


@pytest.mark.parametrize("client", [MemOSClient, AsyncMemOSClient])
@pytest.mark.parametrize(("name", "expected"), known(), ids=[name for name, _ in known()])
def test_a_method_is_called_as_the_known_one(client: type, name: str, expected: str) -> None:
    method = getattr(client, name)
    assert parameters(method) == expected
    assert method.__doc__
    assert inspect.iscoroutinefunction(method) is (client is AsyncMemOSClient)


def test_the_known_client_has_21_methods() -> None:
    assert len(known()) == 21


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> set[str]:
        return {
            name.removeprefix("a") if name == "aclose" else name for name in dir(client) if not name.startswith("_")
        }

    assert methods(MemOSClient) == methods(AsyncMemOSClient)


def test_a_method_tells_what_it_returns() -> None:
    told = {
        MemOSClient.add_message: "TaskAnswer", Tasks.list: "list[Task]", Tasks.wait: "Task",
        Tasks.follow: "Iterator[Task]", Cubes.dump: "Path",
        MemOSClient.chat: "ChatAnswer | Iterator[str]",
    }  # fmt: skip
    for method, returned in told.items():
        assert inspect.signature(method).return_annotation == returned


def test_importing_the_clients_imports_no_server_no_engine_and_no_models_of_answers() -> None:
    heavy = ["fastapi", "uvicorn", "starlette", "numpy", "onnxruntime", "sqlalchemy", "openai", "mcp", "rich", "typer"]
    heavy += ["pydantic", "uuid_utils"]
    code = f"import sys, memos.api.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_clients_values_and_errors_have_one_doorway() -> None:
    offered = {name: getattr(client, name) for name in client.__all__}
    assert offered["NotFound"] is errors.NotFound
    assert offered["Item"] is values.Item is client.values.Item
    assert client.values.SearchAnswer.__name__ == "SearchAnswer"
    for module in (client, client.values):
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError, match="Itme"):
            module.Itme  # noqa: B018
