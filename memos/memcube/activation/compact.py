"""Keys and values in 8 bits, for the disk: a quarter or half of their bytes, near what they were and never equal.

Keys have one scale a channel, values one a token, since a few channels of keys are far larger than the others.
Source: Liu et al., KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache, ICML 2024, section 3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COMPACT = "+I8"
"""What the type of a block ends with whose file is compact; its arrays are of the type before it."""

_LARGEST = 127.0
_BEYOND = 1e30


def packed(array: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return an array (2, layers, kv_heads, tokens, head_dim) in whole numbers from -127 to 127, and its scales.

    The scales are flat: those of keys (layers, kv_heads, head_dim), then those of values (layers, kv_heads, tokens).
    Raises: ValueError (a number is not finite, or near the largest there is).
    """
    if not np.abs(array).max() < _BEYOND:
        raise ValueError("its numbers are not finite")
    steps = np.abs(array[0]).max(axis=-2) / _LARGEST, np.abs(array[1]).max(axis=-1) / _LARGEST
    scales = [np.where(step > 0, step, 1.0).astype(np.float32) for step in steps]
    whole = np.stack([array[0] / scales[0][..., None, :], array[1] / scales[1][..., :, None]])
    return np.rint(whole).astype(np.int8), np.concatenate([scale.reshape(-1) for scale in scales])


def unpacked(whole: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the array that they stand for, each number at most half a scale from what it was."""
    _, layers, heads, tokens, width = whole.shape
    keys = scales[: layers * heads * width].reshape(layers, heads, 1, width)
    values = scales[layers * heads * width :].reshape(layers, heads, tokens, 1)
    return np.stack([whole[0] * keys, whole[1] * values])


def scale_count(shape: tuple[int, ...]) -> int:
    """Return how many scales an array of a shape has."""
    _, layers, heads, tokens, width = shape
    return layers * heads * (width + tokens)


def to_float(array: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.float32]:
    """Return an array as it is carried (F16 and BF16 as uint16) in single precision."""
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return (array.view(np.float16) if dtype == "F16" else array).astype(np.float32)


def from_float(array: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.generic]:
    """Return the same as it is carried, rounded to the nearest, of two to the even one."""
    if dtype == "BF16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return array.astype(np.float16).view(np.uint16) if dtype == "F16" else array
