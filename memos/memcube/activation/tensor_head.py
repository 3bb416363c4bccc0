"""The beginning of a `safetensors` file: what it holds, as JSON behind its length. Pure.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

from memos.core.types import Json


def tensor_head(told: Mapping[str, Json]) -> bytes:
    """Return the beginning of a file with these tensors, ended so that the data behind it is aligned to 8 bytes."""
    raw = json.dumps(told, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw
