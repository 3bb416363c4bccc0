"""Sealed files: what was sealed comes back, and no changed, moved, missing or added byte is overlooked."""

from __future__ import annotations

import hashlib
import io
import os
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from memos.errors import InvalidInput
from memos.memcube.dump import container as sealing
from memos.memcube.dump.container import Encryptor, check_passphrase, is_sealed, unseal

SECRET = check_passphrase("correct horse")
HEADER = 52
CHUNK = (1 << 20) + 16


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_LOG_N", 10)


def sealed(data: bytes) -> bytes:
    out = io.BytesIO()
    sealer = Encryptor(out, SECRET)
    for start in range(0, len(data), 700_001):
        sealer.write(data[start : start + 700_001])
    sealer.finish()
    return out.getvalue()


def opened(raw: bytes, secret: bytes = SECRET) -> bytes:
    out = io.BytesIO()
    unseal(io.BytesIO(raw), out, secret)
    return out.getvalue()


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_what_was_sealed_comes_back(size: int) -> None:
    data = os.urandom(size)
    raw = sealed(data)
    assert is_sealed(raw)
    assert size < 100 or data[:100] not in raw
    assert opened(raw) == data


def test_two_sealings_of_the_same_differ() -> None:
    assert sealed(b"same")[16:] != sealed(b"same")[16:]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: HEADER + CHUNK],  # at the end of a chunk
        lambda raw: raw[:HEADER],
        lambda raw: raw[: HEADER - 1],
        lambda raw: raw[:16],
        lambda raw: raw + b"x",
        lambda raw: raw + raw[HEADER:],
        lambda raw: raw[:HEADER] + raw[HEADER + CHUNK :],
        lambda raw: raw[:HEADER] + raw[HEADER + CHUNK : HEADER + 2 * CHUNK] + raw[HEADER : HEADER + CHUNK]
        + raw[HEADER + 2 * CHUNK :],
        lambda raw: raw[: HEADER + 5] + bytes([raw[HEADER + 5] ^ 1]) + raw[HEADER + 6 :],
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 128]),
        *(lambda raw, at=at: raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(16, HEADER)),
    ],
)  # fmt: skip
def test_a_changed_file_is_not_opened(spoil: object) -> None:
    raw = sealed(bytes(5 << 19))  # three chunks, the last a half
    with pytest.raises(InvalidInput, match=r"is wrong|is encrypted in a format"):
        opened(spoil(raw))  # type: ignore[operator]


def test_another_passphrase_does_not_open_it_and_is_not_told() -> None:
    with pytest.raises(InvalidInput) as told:
        opened(sealed(b"text"), check_passphrase("another one"))
    assert "another one" not in str(told.value)


def test_letters_composed_otherwise_are_the_same_passphrase() -> None:
    assert check_passphrase("cafe\u0301 au lait") == check_passphrase("caf\u00e9 au lait")


@pytest.mark.parametrize("given", ["", "short", "x" * 2000, "\ud800" * 10, None, 12345678])
def test_an_impossible_passphrase_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="passphrase"):
        check_passphrase(given)  # type: ignore[arg-type]


def test_a_header_that_asks_for_too_much_work_is_refused() -> None:
    raw = bytearray(sealed(b"text"))
    raw[16] = 30
    with pytest.raises(InvalidInput, match="is encrypted in a format"):
        opened(bytes(raw))


def test_a_sealed_file_opens_as_the_page_of_the_format_says() -> None:
    """With nothing of ours, so that the page stays true."""
    data = os.urandom(2_500_000)
    raw = sealed(data)
    header, chunks = raw[:52], raw[52:]
    magic, log_n, r, p, salt, prefix, size = struct.unpack(">16sBII16s7sI", header)
    assert magic == b"MEMCUBE-SEALED-1"
    key = hashlib.scrypt(b"correct horse", salt=salt, n=1 << log_n, r=r, p=p, maxmem=1 << 30, dklen=32)
    pieces = [chunks[start : start + size + 16] for start in range(0, len(chunks), size + 16)]
    found = b"".join(
        AESGCM(key).decrypt(prefix + number.to_bytes(4, "big") + bytes([number == len(pieces) - 1]), piece, header)
        for number, piece in enumerate(pieces)
    )
    assert found == data
