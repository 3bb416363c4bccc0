"""Requests to the endpoints of embedders and rerankers, with retries and errors that name the setting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final

import httpx2

from memos.backends.http import TooLarge
from memos.core.types import Json
from memos.errors import BackendTimeout, BackendUnavailable, ModelError

ATTEMPTS: Final = 3
_LONGEST_WAIT_S: Final = 2.0


def wait_until(until: float, first_wait_s: float) -> Callable[[Exception], bool | float]:
    """Return a retry rule for stamina: seconds to wait after an error, False to give up. `until` is monotonic time."""
    waits = 0

    def wait_after(error: Exception) -> bool | float:
        nonlocal waits
        if not isinstance(error, BackendUnavailable) or error.permanent or isinstance(error, BackendTimeout):
            return False
        wait_s = max(error.retry_after_s or 0.0, min(_LONGEST_WAIT_S, first_wait_s * 2.0**waits))
        waits += 1
        return False if time.monotonic() + wait_s >= until else wait_s

    return wait_after


def post(
    client: httpx2.Client, url: str, body: Mapping[str, Json], left_s: float, *, there: str, setting: str, slow: str
) -> httpx2.Response:
    """Send a request.

    Args:
        client: The client, which limits the size of answers.
        url: The whole address.
        body: The body, as JSON.
        left_s: Timeout in seconds.
        there: The endpoint, as error messages call it.
        setting: The variable that has its address.
        slow: The message of a timeout.

    Raises:
        BackendTimeout, BackendUnavailable, ModelError (an answer that is too large).
    """
    try:
        return client.post(url, json=body, timeout=left_s)
    except httpx2.TimeoutException as error:
        raise BackendTimeout(slow) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = f"{error}" or type(error).__name__
        raise BackendUnavailable(
            f"{there} cannot be reached, or the connection was lost ({reason:.200}); start it, or check {setting}."
        ) from error
    except TooLarge as error:
        raise ModelError(f"{there} sent an answer that is too large; check {setting}.") from error


def json_of(response: httpx2.Response) -> Json:
    """Return the body of a response, None if it is not JSON."""
    try:
        return json.loads(response.content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
