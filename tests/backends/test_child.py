"""An answer is taken by the call that asked for it, whatever ends a call in the middle."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator
from random import Random
from types import FrameType

import pytest

from memos.backends.child import Child, ChildDied


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child("tests.backends.echoing_child", "echo")
    yield made
    made.kill()


def ends(signal_: int, frame: FrameType | None) -> None:
    raise SystemExit(143)


def interrupts(signal_: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("handler", "raised"), [(ends, SystemExit), (interrupts, KeyboardInterrupt)])
def test_the_answer_to_a_call_that_was_ended_is_not_the_next_ones(
    child: Child, handler: Callable[[int, FrameType | None], None], raised: type[BaseException]
) -> None:
    assert child.call("say", "before", 0.0) == "before"
    usual = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(raised):
            child.call("say", "stale", 1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    with pytest.raises(ChildDied):
        child.call("say", "mine", 0.0)


@pytest.mark.heavy
def test_wherever_a_call_is_ended_the_next_one_gets_its_own_answer() -> None:
    chance = Random(5)
    made, ended = Child("tests.backends.echoing_child", "echo"), 0
    usual = signal.signal(signal.SIGALRM, ends)
    try:
        for number in range(1_500):
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 3e-4))
                try:
                    made.call("say", -number, 0.0)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except SystemExit:
                ended += 1
            except ChildDied:
                made = Child("tests.backends.echoing_child", "echo")
            try:
                assert made.call("say", number, 0.0) == number
            except ChildDied:
                made = Child("tests.backends.echoing_child", "echo")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
        made.kill()
    assert ended


def test_what_cannot_be_sent_leaves_the_child_to_others(child: Child) -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):  # which one depends on the version of Python
        child.call("say", lambda: None, 0.0)
    assert child.call("say", "after", 0.0) == "after"


def test_what_fails_meanwhile_leaves_no_answer_behind(child: Child) -> None:
    def fails() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        child.call("say", "stale", 0.1, meanwhile=fails)
    assert child.call("say", "mine", 0.0) == "mine"
