"""A MemoryOS program on this project's storage: its old files are imported, its calls stay as they are."""

import json
import tempfile
from collections.abc import Generator
from pathlib import Path

from memos import MemOS
from memos.compat.importing import import_memoryos
from memos.compat.memoryos import Memoryos
from memos.core.ports import ChatReply, ChatRequest
from memos.core.tokens import Tokens


class Parrot:
    """Stands in for a language model here; without it, give `Memoryos` a key."""

    name = "parrot"

    def complete(self, request: ChatRequest) -> ChatReply:
        """Count what it was shown."""
        shown = request.messages[-1].content
        return ChatReply(f"(an answer made from {shown.count('User: ')} remembered exchanges)", Tokens(0, 0, True))

    def stream(self, request: ChatRequest) -> Generator[str | ChatReply, None, None]:
        """Say the same in one piece."""
        reply = self.complete(request)
        yield from (reply.text, reply)

    def close(self) -> None:
        """Hold nothing."""


def old_files(root: Path) -> Path:
    """Write what a MemoryOS program leaves behind."""
    user = root / "users" / "alice"
    user.mkdir(parents=True)
    page = {"user_input": "I planted basil.", "agent_response": "Lovely.", "timestamp": "2025-05-01 10:00:00"}
    (user / "short_term.json").write_text(json.dumps([page]))
    fact = {"knowledge": "Alice is allergic to peanuts.", "timestamp": "2025-05-02 10:00:00"}
    (user / "long_term_user.json").write_text(json.dumps({"user_profiles": {}, "knowledge_base": [fact]}))
    return root


with tempfile.TemporaryDirectory() as folder:
    old, home = old_files(Path(folder) / "old"), Path(folder) / "new"
    with MemOS.open(home) as memos:
        for attempt in ("first", "second"):
            summary = import_memoryos(memos, old)
            print(f"{attempt} time: {summary.added} added, {summary.known} known; {summary.note}")

    with Memoryos("alice", None, home, chat_model=Parrot()) as memory:
        memory.add_memory("The basil grows well.", "Then pesto is near.")
        print(memory.get_response("What did I plant?", relationship_with_user="gardener"))
        print(memory.get_memory_stats())
