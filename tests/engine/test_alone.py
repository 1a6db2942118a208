"""A group of one: what goes wrong in an iteration ends the run, and is said in a line."""

import pytest

from klip.engine.alone import Alone
from klip.engine.job import Stopped
from klip.errors import KlipError, NotFinite
from klip.lab.config import Warmup


class Scripted:
    """Does in each iteration what a list says: returns a row, or raises."""

    def __init__(self, *script):
        self.script = list(script)

    def iterate(self, stop):
        if stop():
            raise Stopped
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def arrays(self):
        return {}

    def restore(self, iteration, arrays):
        pass


def alone(*script, steps=3):
    return Alone(Warmup(steps=steps), Scripted(*script))


def never():
    return False


def test_to_the_end():
    group = alone({"a": 1}, {"a": 2}, {"a": [3, None]})
    assert [group.iterate(never)[0]["a"] for _ in range(3)] == [1, 2, [3, None]]
    assert (group.iteration, group.status, group.reason) == (3, "done", "")
    assert list(group.runs) == [group]


@pytest.mark.parametrize(
    ("step", "status", "reason"),
    [
        (NotFinite("m is not finite"), "diverged", "m is not finite, in iteration 2 of 3; nothing"),
        ({"a": [1.0, float("nan")]}, "diverged", "the metric a is not finite, in iteration 2"),
        (KeyError("x"), "failed", "KeyError: 'x', in iteration 2 of 3"),
        (KlipError("no\nway"), "failed", "KlipError: no way, in iteration 2 of 3"),
    ],
)
def test_trouble(step, status, reason):
    group = alone({"a": 1}, step)
    group.iterate(never)
    assert group.iterate(never) == [None]
    assert (group.iteration, group.status) == (1, status)
    assert group.reason.startswith(reason)
    assert group.reason.isprintable()
    assert bool(group.traceback) == (status == "failed")


def test_asked_to_stop():
    group = alone({"a": 1})
    with pytest.raises(Stopped):
        group.iterate(lambda: True)
    assert group.status == "running"


def test_from_where_it_was():
    group = alone({"a": 1})
    group.restore(0, 2, {})
    group.iterate(never)
    assert group.status == "done"
