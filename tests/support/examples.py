"""How many examples dear property tests try: their share of what hypothesis allows any other test.

`pytest --hypothesis-profile more` (tests/conftest.py) tries ten times as many as CI does.
"""

from __future__ import annotations

from hypothesis import settings


def share(percent: int) -> int:
    """Return this share of the profile's number of examples, which is 100 unless another profile is named."""
    return settings().max_examples * percent // 100
