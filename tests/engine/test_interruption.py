"""Signals as a request: the first asks, the second does not wait."""

import signal

import pytest

from klip.engine.interruption import Interruption


def interrupted(*signals, said=lambda text: None, error=None):
    """Send signals to ourselves while they are caught; whether each was only taken as a request."""
    asked = []
    try:
        with Interruption(said) as stop:
            asked.append(stop())
            for number in signals:
                signal.raise_signal(number)
                asked.append(stop())
            if error is not None:
                raise error
    finally:
        interrupted.asked = asked


@pytest.mark.parametrize(
    ("number", "raised", "name"),
    [(signal.SIGINT, KeyboardInterrupt, "Ctrl-C"), (signal.SIGTERM, SystemExit, "SIGTERM")],
)
def test_the_first_asks_and_is_raised_at_the_end(number, raised, name):
    before, said = signal.getsignal(number), []
    with pytest.raises(raised):
        interrupted(number, said=said.append)
    assert interrupted.asked == [False, True]
    assert said[0].startswith(f"{name}: saving the runs")
    assert signal.getsignal(number) == before


def test_the_second_does_not_wait():
    with pytest.raises(KeyboardInterrupt):
        interrupted(signal.SIGTERM, signal.SIGINT)
    assert interrupted.asked == [False, True]


def test_an_error_goes_first():
    with pytest.raises(ValueError, match="mine"):
        interrupted(signal.SIGINT, error=ValueError("mine"))


def test_nothing_happens_without_a_signal():
    interrupted()
    assert interrupted.asked == [False]
