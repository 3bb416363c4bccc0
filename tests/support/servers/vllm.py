"""What vLLM does with adapters, as its `serving_models` has it: loads, unloads, and answers by their names."""

from __future__ import annotations

from tests.support.servers.openai_server import Asked, Said, answer, error, events

BASE = "m"


class Vllm:
    """A script for `OpenAIServer`. `loaded` are names with paths; `says` takes the place of an answer to a call."""

    def __init__(self) -> None:
        self.loaded: dict[str, str] = {}
        self.says: dict[str, Said] = {}
        self.calls: list[tuple[str, str]] = []

    def __call__(self, asked: Asked) -> Said:
        call = asked.path.rpartition("/")[2]
        name = asked.body.get("lora_name") or asked.body["model"]
        self.calls.append((call, name))
        if call in self.says:
            return self.says[call]
        match call:
            case "load_lora_adapter":
                return self._load(name, asked.body["lora_path"])
            case "unload_lora_adapter":
                if self.loaded.pop(name, None) is None:
                    return error(404, f"The lora adapter '{name}' cannot be found.", code=404)
                return Said(body=f"Success: LoRA adapter '{name}' removed successfully.", content_type="text/plain")
        if name != BASE and name not in self.loaded:
            return error(404, f"The model `{name}` does not exist.", code=404)
        return events("It is ", "so.") if asked.body.get("stream") else answer("It is so.")

    def count(self, call: str) -> int:
        """Return how often a call was made."""
        return [made for made, _ in self.calls].count(call)

    def _load(self, name: str, path: str) -> Said:
        if name in self.loaded:
            return error(400, f"The lora adapter '{name}' has already been loaded.", code=400)
        self.loaded[name] = path
        return Said(body=f"Success: LoRA adapter '{name}' added successfully.", content_type="text/plain")
