"""When a request is sent again and how long is waited before, without sending anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memos.api.client import openmem
from memos.api.client import v1_requests as own_memories
from memos.api.client.calls import Call, Options, Reply, Waiting, exchange, failure, pause_before, retry_after_s
from memos.errors import (
    BackendTimeout,
    BackendUnavailable,
    Conflict,
    ConnectionLost,
    InvalidInput,
    LimitReached,
    MemosError,
    ModelError,
    NotFound,
)

LOST = ConnectionLost("broken")


def clock_at(*times: float) -> Iterator[float]:
    yield from times


def test_pauses_double_up_to_the_most_and_end_with_the_retries() -> None:
    options = Options(retries=4, pause_s=1.0, most_pause_s=5.0)
    for attempt, (least, most) in enumerate([(0.5, 1), (1, 2), (2, 4), (2.5, 5)], start=1):
        pauses = {pause_before(attempt, LOST, options) for _ in range(50)}
        assert all(pause is not None and least <= pause <= most for pause in pauses)
        assert len(pauses) > 10  # drawn, not computed
    assert pause_before(5, LOST, options) is None


def test_the_server_is_waited_for_at_least_as_long_as_it_asks() -> None:
    asked = BackendUnavailable("full", retry_after_s=7)
    pause = pause_before(1, asked, Options(most_pause_s=10))
    assert pause is not None
    assert 7 < pause < 8
    assert pause_before(1, asked, Options(most_pause_s=6)) is None


@pytest.mark.parametrize("error", [BackendUnavailable("no", permanent=True), InvalidInput("x", "y"), ModelError("bad")])
def test_what_would_fare_the_same_again_is_not_tried(error: MemosError) -> None:
    assert pause_before(1, error, Options()) is None


def test_an_add_is_not_sent_again_when_the_server_may_have_forgotten_it() -> None:
    call = openmem.add_message([{"role": "user", "content": "x"}], user_id="a")
    times = clock_at(0.0, 10.0, 59.0)
    steps = exchange(call, Options(retries=9, pause_s=0.0), lambda: next(times))
    assert next(steps) == 0
    assert steps.send(LOST) == 0
    with pytest.raises(ConnectionLost):
        steps.send(LOST)


def test_what_was_sent_before_may_still_be_carried_out() -> None:
    busy = Conflict("A call with this idempotency key is being answered.")
    steps = exchange(own_memories.add("x"), Options(pause_s=0.0))
    next(steps)
    assert steps.send(LOST) == 0
    assert steps.send(busy) == 0
    with pytest.raises(Conflict):  # the retries are used up
        steps.send(busy)
    for call in (own_memories.add("x"), own_memories.update("m", "x")):
        steps = exchange(call, Options(pause_s=0.0))
        next(steps)
        with pytest.raises(Conflict):  # nothing of this call was sent before
            steps.send(busy)


@pytest.mark.parametrize(
    ("after", "date", "expected"),
    [
        ("7", "", 7), ("0", "", 0), ("-1", "", None), ("x", "", None), ("", "", None), ("9" * 400, "", 999_999_999),
        ("Sun, 22 Nov 2026 10:00:30 GMT", "Sun, 22 Nov 2026 10:00:00 GMT", 30),
        ("Sun, 22 Nov 2026 09:00:00 GMT", "Sun, 22 Nov 2026 10:00:00 GMT", 0),
        ("Sun, 22 Nov 2026 10:00:30 GMT", "", None), ("٣", "", None),
    ],
)  # fmt: skip
def test_retry_after_is_read_as_seconds_or_as_a_date(after: str, date: str, expected: float | None) -> None:
    assert retry_after_s({"retry-after": after, "date": date}) == expected


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (400, b'{"error": {"code": "invalid_input", "message": "k: is 0", "field": "k"}}', InvalidInput, "k: is 0"),
        (404, b'{"error": {"code": "not_found", "message": "No such cube: 1."}}', NotFound, "No such cube: 1."),
        (502, b'{"error": {"code": "model_error", "message": "It said nothing."}}', ModelError, "It said nothing."),
        (502, b"<html>", BackendUnavailable, "status 502"), (504, b"", BackendTimeout, "status 504"),
        (500, b'{"error": {"code": "refused", "message": "A mistake."}}', BackendUnavailable, "A mistake."),
        (429, b'{"code": 40309, "message": "slower"}', LimitReached, "slower"),
        (400, b'{"code": 40000, "message": "' + b"x" * 10_000 + b'"}', InvalidInput, "xxx"),
        (599, b'{"message": {"a": 1}, "code": [1]}', BackendUnavailable, "a"),
        (400, b"\xff", InvalidInput, "status 400"),
    ],
)  # fmt: skip
def test_an_answer_becomes_the_error_that_python_raises(
    status: int, body: bytes, kind: type[MemosError], text: str
) -> None:
    error = failure(status, {"x-request-id": "r"}, body)
    assert type(error) is kind
    assert text in str(error)
    assert len(str(error)) < 2_100
    assert (error.status, error.request_id) == (status, "r")


def test_fields_and_names_of_errors_are_found_again() -> None:
    wrong = failure(400, {}, b'{"code": 40000, "message": "messages.0.role: is unknown"}')
    assert isinstance(wrong, InvalidInput)
    assert (wrong.field, wrong.reason) == ("messages.0.role", "is unknown")
    missing = failure(404, {}, b'{"code": 50131, "message": "No such task: \'t\'."}')
    assert isinstance(missing, NotFound)
    assert (missing.what, missing.name) == ("task", "t")


def test_waiting_asks_until_it_is_done_or_late() -> None:
    def call(seconds: float) -> Call[int]:
        assert 0 <= seconds <= 20
        return Call("GET", "/x", lambda reply: reply.status)

    turns = Waiting(call, lambda found: found == 3, None, "it").turns()
    first = next(turns)
    assert first.read(Reply(2, {}, b"")) == 2
    assert turns.send(2).least_s > 20
    with pytest.raises(StopIteration) as done:
        turns.send(3)
    assert done.value.value == 3
    late = Waiting(call, lambda found: found == 3, 0.0, "it").turns()
    next(late)
    with pytest.raises(BackendTimeout, match="it"):
        late.send(2)
