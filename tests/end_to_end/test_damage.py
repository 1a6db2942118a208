"""Damaged runs, by `benchmarks/damage.py`: fewer of them than there, every kind of outcome."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def damage(monkeypatch):
    """The benchmark, which is a script and in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import damage

    return damage


def test_random_damages_are_never_believed(damage):
    outcomes, wrong = damage.many(300, seed=1)
    assert wrong == []
    assert {
        "previous checkpoint used",
        "metrics restored from the checkpoint",
        "refused until --start-over",
        "config written anew",
        "only rows after the checkpoint, which are trained again",
    } <= set(outcomes)
    assert min(outcomes.values()) > 5


def test_the_trainer_ends_in_the_same_bytes(damage):
    """Eight runs in one cohort, killed in the middle and damaged, each in its way.

    Their checkpoints hold old policies and old samples, too, and no byte of those is believed.
    """
    outcomes = damage.trained(8, seed=1, ask=False, old=True)
    assert outcomes["ended in the same bytes"] == 8
    assert outcomes["began again, which it says"] == 2  # those without a whole checkpoint


def test_the_benchmark_notices_what_is_wrong(damage, monkeypatch):
    """With a reader that believes whatever it finds, it says so."""
    from klip.runs import checkpoint

    monkeypatch.setattr(checkpoint.Checkpoint, "covers", lambda self, text: True)
    _, wrong = damage.many(60, seed=1)
    assert wrong
