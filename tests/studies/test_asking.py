"""The sampler is a function of its seed and of what it hears."""

import sys

import numpy as np
import pytest

from klip.errors import KlipError
from klip.studies.asking import Sampler, library
from klip.studies.ranges import ranges_in

OVER = ranges_in("clip", ["lr=1e-5..1e-1", "epochs=1..20", "gamma=0.9,0.99,0.999", "activation"])


def score(knobs):
    """Best at lr 1e-3 and gamma 0.99; the rest does not matter."""
    return -abs(np.log10(knobs["lr"]) + 3) - 3 * (knobs["gamma"] != 0.99)


def asked(batches, seed=0, size=8):
    with library() as optuna:
        sampler, made = Sampler(optuna, OVER, seed, size), []
        for _ in range(batches):
            batch = sampler.ask(size)
            sampler.tell([score(knobs) for knobs in batch])
            made.append(batch)
        return made, sampler.importance()


def test_it_asks_the_same_again():
    first, importance = asked(4)
    again, same = asked(4)
    assert first == again
    assert importance == same
    assert asked(2)[0] == first[:2], "more batches begin with the same ones"
    assert asked(1, seed=1)[0] != first[:1]


def test_values_are_those_of_the_ranges():
    for knobs in np.concatenate(asked(4)[0]):
        assert 1e-5 <= knobs["lr"] <= 1e-1
        assert knobs["epochs"] in range(1, 21)
        assert knobs["gamma"] in (0.9, 0.99, 0.999)
        assert knobs["activation"] in ("tanh", "relu", "elu", "swish")


def test_it_learns_from_what_it_hears_and_says_what_mattered():
    batches, importance = asked(8)
    means = [np.mean([score(knobs) for knobs in batch]) for batch in batches]
    assert np.mean(means[-3:]) > np.mean(means[:2]) + 0.5
    assert sum(importance.values()) == pytest.approx(1)
    assert importance["lr"] + importance["gamma"] > 0.6


def test_trials_that_do_not_differ_say_nothing():
    with library() as optuna:
        sampler = Sampler(optuna, OVER, 0, 4)
        sampler.ask(4)
        sampler.tell([1.0] * 4)
        assert sampler.importance() == {}


def test_without_optuna_a_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(KlipError, match=r'pip install "klip-rl\[tune\]"'), library():
        pass
