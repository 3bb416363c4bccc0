"""Slows down who tries keys: an address that failed often is told to wait, unless its key was good a moment ago.

Holds a bounded number of addresses and digests of keys. Keys are too long to be guessed; this keeps trying them cheap.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from memos.errors import LimitReached

_MOST_FAILURES = 20
_WITHIN_S = 60.0
_ADDRESSES = 4_096
_GOOD_KEYS = 1_024
_IPV6_PREFIX = 64


class Attempts:
    """Counts failed authentications by address; for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed) + len(self._good)

    def check(self, address: str, secret: str) -> None:
        """Let an address try a key. Raises: LimitReached."""
        since, failures = self._failed.get(_place(address), (0.0, 0))
        left_s = since + _WITHIN_S - self._clock()
        if failures >= _MOST_FAILURES and left_s > 0 and _digest(secret) not in self._good:
            raise LimitReached(
                "Too many wrong keys came from this address: wait before trying another.", retry_after_s=left_s
            )

    def failed(self, address: str) -> None:
        """Count a wrong key."""
        place, now = _place(address), self._clock()
        since, failures = self._failed.pop(place, (now, 0))
        self._failed[place] = (now, 1) if now - since >= _WITHIN_S else (since, failures + 1)
        while len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)

    def succeeded(self, secret: str) -> None:
        """Remember that a key was good: others at its address must not keep it out."""
        digest = _digest(secret)
        self._good.pop(digest, None)
        self._good[digest] = None
        while len(self._good) > _GOOD_KEYS:
            self._good.popitem(last=False)


def _place(address: str) -> str:
    """Return what counts as one place: who has one IPv6 address has the whole /64."""
    with suppress(ValueError):
        known = ipaddress.ip_address(address)
        if known.version == 6:
            return str(ipaddress.ip_network((int(known), _IPV6_PREFIX), strict=False))
    return address[:64]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
