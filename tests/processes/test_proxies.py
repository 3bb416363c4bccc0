"""What was said through one of the proxies is known to all of them, and to its user alone, in the next process."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai

from tests.processes.test_running import process
from tests.support.servers.openai_server import OpenAIServer, answer


@contextmanager
def serving(home: Path, upstream: OpenAIServer) -> Iterator[tuple[str, str]]:
    """Yield the address of a server in a process of its own, and the key that it prints when it is new."""
    model = {"BASE_URL": upstream.url, "MODEL": "m", "API_KEY": "sk-test"}
    environment = {f"MEMOS_CHAT_MODEL__{name}": value for name, value in model.items()}
    with process("serve", "--port", "0", "--data-dir", str(home), **environment) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        yield url, server.stdout.readline().split()[-1]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_a_response_is_continued_and_its_facts_are_recalled_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with OpenAIServer([answer("Noted.")]) as upstream:
        with serving(home, upstream) as (url, key), openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key) as client:
            said = "My sister Maria lives in Lyon."
            ana = client.responses.create(model="m", input=said, user="ana")
            ben = client.responses.create(model="m", input="My brother Maurice lives in Oslo.", user="ben")
        with serving(home, upstream) as (url, _), openai.OpenAI(base_url=f"{url}/openai/v1", api_key=key) as client:
            client.responses.create(model="m", input="Sure?", user="ana", previous_response_id=ana.id)
            talk = [
                message["content"] for message in upstream.asked[-1].body["messages"] if message["role"] != "system"
            ]
            assert talk == [said, "Noted.", "Sure?"]
            headers = {"X-Memos-User": "ben"}
            assert client.responses.retrieve(ben.id, extra_headers=headers).output_text == "Noted."
            with anthropic.Anthropic(base_url=f"{url}/anthropic", api_key=key) as other:
                question = {"role": "user", "content": "In which city does my sister live?"}
                for user in ("ana", "ben"):
                    other.messages.create(model="m", max_tokens=9, messages=[question], metadata={"user_id": user})
                    prompt = json.dumps(upstream.asked[-1].body["messages"])
                    assert ("Lyon" in prompt) == (user == "ana")
