"""Signals set a flag that is looked at between steps; handlers that were there come back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from calotype.train.checkpoint import StopSignal, agreed
from calotype.train.checkpoint.preemption import STOP_SIGNALS


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers of our own, so that a failing test does not end pytest."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, _remember)
    _seen.clear()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


_seen: list[int] = []


def _remember(number: int, frame: object) -> None:
    _seen.append(number)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_asks_for_a_stop_and_says_which(number: signal.Signals) -> None:
    with StopSignal() as stop:
        before = (stop.requested, stop.reason)
        send(number)
        assert (stop.requested, stop.reason) == (True, number.name)
    assert before == (False, None)
    assert _seen == []


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_handlers_before_come_back(number: signal.Signals) -> None:
    with StopSignal():
        assert signal.getsignal(number) is not _remember
    send(number)
    assert _seen == [number]


def test_the_handlers_come_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), StopSignal():
        raise ZeroDivisionError
    assert all(signal.getsignal(number) is _remember for number in STOP_SIGNALS)


def test_the_first_reason_stays() -> None:
    with StopSignal() as stop:
        send(signal.SIGUSR1)
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop.reason == "SIGUSR1"


def test_a_second_interrupt_does_not_wait() -> None:
    with StopSignal() as stop:
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_one_inside_another_leaves_the_outer_in_charge() -> None:
    with StopSignal() as outer:
        with StopSignal() as inner:
            send(signal.SIGTERM)
        assert inner.requested
        assert not outer.requested
        send(signal.SIGTERM)
        assert outer.requested


def test_a_keyboard_that_is_switched_off_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignal() as stop:
        send(signal.SIGINT)
        assert not stop.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_from_outside_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    with StopSignal():
        send(signal.SIGTERM)
    assert _seen == [signal.SIGTERM]


def test_in_another_thread_it_only_offers_the_flag() -> None:
    found: list[tuple[bool, str | None]] = []

    def work() -> None:
        with StopSignal() as stop:
            found.append((stop.requested, stop.reason))
            stop.request("the end of the lease")
            found.append((stop.requested, stop.reason))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [(False, None), (True, "the end of the lease")]
    assert all(signal.getsignal(number) is _remember for number in STOP_SIGNALS)


@pytest.mark.parametrize("flag", [True, False])
def test_alone_one_agrees_with_oneself(flag: bool) -> None:
    assert agreed(flag) is flag
