"""The spaces of the embedders that come with the program, known before any of their libraries is loaded."""

from __future__ import annotations

from typing import Final

from memos.core.types import Fingerprint

MINILM: Final = Fingerprint("all-MiniLM-L6-v2-int8", dimension=384, prefix_rule="none", normalised=True)
E5: Final = Fingerprint("multilingual-e5-small-q4", dimension=384, prefix_rule="query-passage", normalised=True)
