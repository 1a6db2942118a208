"""How long this machine takes, beside the one on which costs were measured."""

import time

from klip.tasks import pace as module
from klip.tasks.pace import REFERENCE, microseconds, pace


def test_a_slower_simulation_is_told(monkeypatch):
    """By the time that its steps take; a machine that takes milliseconds more is seen to."""
    usual, made = microseconds(), module.make_lanes

    def slow(*asked):
        lanes = made(*asked)
        step = lanes.step

        def slept(action):
            time.sleep(0.005)
            return step(action)

        lanes.step = slept
        return lanes

    monkeypatch.setattr(module, "make_lanes", slow)
    assert usual > 0
    assert microseconds() >= 5000 / module.LANES


def test_the_pace_is_measured_once(monkeypatch):
    pace.cache_clear()
    monkeypatch.setattr(module, "microseconds", lambda: 2 * REFERENCE)
    assert pace() == 2
    monkeypatch.setattr(module, "microseconds", lambda: REFERENCE)
    assert pace() == 2
    pace.cache_clear()


def test_a_faster_simulation_promises_no_shorter_time(monkeypatch):
    """On one machine it took three quarters of the time, and training as long as before."""
    pace.cache_clear()
    monkeypatch.setattr(module, "microseconds", lambda: 0.75 * REFERENCE)
    assert pace() == 1
    pace.cache_clear()
