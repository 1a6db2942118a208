"""What theory says of the suite, it must show."""

import numpy as np
import pytest

from klip.shapes import SPO, Clip, ImportanceSampling, KLk1, KLk3
from klip.theory.guarantee.dynamics import LENGTHS, dynamics, run, suites
from klip.theory.guarantee.law import Law


def test_what_keeps_the_sign_is_safe_at_every_rate_on_tables():
    figures = dynamics(Clip()).figures
    assert figures["tabular"]["largest safe rate"] == 100
    assert figures["tabular"]["fell"] == [0, 0, 0]
    assert min(figures["tabular"]["worst"]) >= 0


def test_every_figure_is_there_after_each_number_of_steps_and_said():
    verdict = dynamics(Clip())
    for row in verdict.figures.values():
        lists = {name for name, of in row.items() if isinstance(of, list)}
        assert lists == {
            "fell", "worst", "mean", "largest ratio", "variation", "kl", "certified",
            "surrogate fell",
        }  # fmt: skip
        assert all(len(row[name]) == len(LENGTHS) for name in lists)
        assert row["largest ratio"] == sorted(row["largest ratio"])
        assert " / ".join(f"{x:.3g}" for x in row["kl"]) in verdict.words
    assert "60 fell" in verdict.words
    assert "certified by Achiam's bound 0% / 0% / 0%" in verdict.words


def test_what_reverses_is_not():
    verdict = dynamics(SPO())
    assert verdict.figures["tabular"]["largest safe rate"] < 1
    assert verdict.outcome == "measured"


def test_a_seed_decides_all():
    assert dynamics(SPO(), seed=5).figures == dynamics(SPO(), seed=5).figures
    assert dynamics(SPO(), seed=5).figures != dynamics(SPO(), seed=6).figures


def test_k1_and_k3_are_the_same_flow_with_shared_parameters_too():
    suite = suites(0)["shared"]
    ends = [run(Law(s), suite, np.array([0.1]), (30,))[0] for s in (KLk1(), KLk3())]
    assert np.allclose(*ends, rtol=1e-7)


def test_the_unconstrained_flow_in_closed_form():
    suite = suites(0)["tabular"]
    (end,) = run(Law(ImportanceSampling()), suite, np.array([0.2]), (10,))
    expected = suite.old * np.exp(0.2 * 10 * suite.advantages)
    assert np.allclose(end[0], expected / expected.sum(axis=-1, keepdims=True))


def test_shared_steps_follow_the_gradient():
    """One small step of theta is the numerical gradient of the mean surrogate."""
    suite = suites(0)["shared"]
    (end,) = run(Law(ImportanceSampling()), suite, np.array([1e-4]), (1,))
    w = np.log(end[0] / suite.old)
    flat = suite.features - suite.features.mean(axis=2, keepdims=True)
    theta = np.linalg.lstsq(
        flat[0].reshape(-1, 3), (w - w.mean(axis=-1, keepdims=True))[0].ravel(), rcond=None
    )[0]

    def value(at):
        q = suite.old[0] * np.exp(suite.features[0] @ at)
        q = q / q.sum(axis=-1, keepdims=True)
        return (suite.visits[0][:, None] * q * suite.advantages[0]).sum()

    slope = [(value(1e-5 * e) - value(-1e-5 * e)) / 2e-5 for e in np.eye(3)]
    assert theta / 1e-4 == pytest.approx(slope, rel=1e-3)
