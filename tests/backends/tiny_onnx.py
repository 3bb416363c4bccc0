"""Cross-encoders of a few nodes, written as ONNX by hand: what they answer can be counted, and no torch is needed.

The format is onnx/onnx.proto at https://github.com/onnx/onnx; field numbers stand beside their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import processors

from memos.backends.encoders import minilm

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_FLOAT, _INT32, _INT64 = 1, 6, 7


def make_reranker(
    folder: Path,
    *,
    inputs: Sequence[str] = INPUTS,
    columns: int = 1,
    narrow: bool = False,
    nan: bool = False,
    place: str = "model.onnx",
) -> Path:
    """Make a folder with a cross-encoder that counts the pairs of equal tokens of question and text, plus one.

    Without `token_type_ids` it counts the tokens of the text alone. `narrow` inputs are int32.
    """
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_model(inputs, columns, _INT32 if narrow else _INT64, nan=nan))
    _save_tokenizer(folder)
    return folder


def with_a_logit(model: Path, folder: Path) -> None:
    """Make a folder with a cross-encoder of an encoder's layers whose logit is the mean of its last hidden state.

    Messages of the format are merged by standing one behind the other: nodes and outputs are added.
    """
    more = _bytes(1, _node("ReduceMean", ["last_hidden_state"], "logits", axes=[1, 2], keepdims=0))
    more += _bytes(12, _value("logits", _FLOAT, ["n"]))
    (folder / "model.onnx").write_bytes(model.read_bytes() + _bytes(7, more))
    _save_tokenizer(folder)


def _save_tokenizer(folder: Path) -> None:
    tokenizer = minilm._tokenizer()
    specials = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=specials
    )
    tokenizer.enable_padding(length=8)  # what exports have, and nothing may depend on
    tokenizer.save(str(folder / "tokenizer.json"))


def _model(inputs: Sequence[str], columns: int, kind: int, *, nan: bool) -> bytes:
    typed = "token_type_ids" in inputs
    nodes = _counting() if typed else _adding()
    constants = [_constant(name, np.array(axes)) for name, axes in (("a1", [1]), ("a2", [2]), ("a12", [1, 2]))]
    if nan:
        nodes += [_node("Sub", ["count", "count"], "none"), _node("Div", ["none", "none"], "score")]
    else:
        nodes.append(_node("Identity", ["count"], "score"))
    nodes.append(_node("Unsqueeze", ["score", "a1"], "column"))
    nodes.append(_node("Neg", ["column"], "other"))
    of_all = ["other"] * (columns - 1) + ["column"]
    nodes.append(_node("Concat", of_all, "logits", axis=1))
    shapes = [_value(name, kind, ["n", "t"]) for name in inputs]
    graph = b"".join(
        [
            *(_bytes(1, node) for node in nodes), _bytes(2, b"tiny"), *(_bytes(5, constant) for constant in constants),
            *(_bytes(11, shape) for shape in shapes), _bytes(12, _value("logits", _FLOAT, ["n", columns])),
        ]
    )  # fmt: skip
    return _int(1, 8) + _bytes(8, _int(2, 13)) + _bytes(7, graph)


def _counting() -> list[bytes]:
    """Equal tokens of question and text, those behind the mask left out."""
    return [
        _node("Unsqueeze", ["input_ids", "a2"], "rows"), _node("Unsqueeze", ["input_ids", "a1"], "across"),
        _node("Equal", ["rows", "across"], "equal"), _node("Cast", ["equal"], "same", to=_FLOAT),
        _node("Cast", ["attention_mask"], "mask", to=_FLOAT), _node("Cast", ["token_type_ids"], "type", to=_FLOAT),
        _node("Mul", ["type", "mask"], "text"), _node("Sub", ["mask", "text"], "question"),
        _node("Unsqueeze", ["question", "a2"], "q"), _node("Unsqueeze", ["text", "a1"], "t"),
        _node("Mul", ["q", "t"], "both"), _node("Mul", ["both", "same"], "shared"),
        _node("ReduceSum", ["shared", "a12"], "count", keepdims=0),
    ]  # fmt: skip


def _adding() -> list[bytes]:
    """The tokens that are no padding."""
    return [
        _node("Cast", ["attention_mask"], "mask", to=_FLOAT), _node("Cast", ["input_ids"], "ids", to=_FLOAT),
        _node("Mul", ["ids", "mask"], "kept"), _node("Sign", ["kept"], "ones"),
        _node("ReduceSum", ["ones", "a1"], "count", keepdims=0),
    ]  # fmt: skip


def _node(op: str, inputs: Sequence[str], output: str, **numbers: int | Sequence[int]) -> bytes:
    attributes = [_bytes(1, name.encode()) + _numbers(value) for name, value in numbers.items()]
    return b"".join(
        [
            *(_bytes(1, name.encode()) for name in inputs), _bytes(2, output.encode()), _bytes(4, op.encode()),
            *(_bytes(5, attribute) for attribute in attributes),
        ]
    )  # fmt: skip


def _numbers(value: int | Sequence[int]) -> bytes:
    """The value of an attribute, and of what type it is: INT or INTS."""
    if isinstance(value, int):
        return _int(3, value) + _int(20, 2)
    return b"".join(_int(8, each) for each in value) + _int(20, 7)


def _constant(name: str, values: NDArray[np.int64]) -> bytes:
    return _int(1, len(values)) + _int(2, _INT64) + _bytes(8, name.encode()) + _bytes(9, values.tobytes())


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = [_bytes(2, size.encode()) if isinstance(size, str) else _int(1, size) for size in shape]
    tensor = _int(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
