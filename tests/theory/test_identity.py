"""The theorems hold, and the check of them can fail."""

import numpy as np
import pytest

from klip.shapes import PerSample, ratio, where
from klip.theory.identity import Claim, draw, verify
from klip.theory.partition import Partition, partition

SAMPLES = 1 << 14
EPS = 0.2


def test_the_paper_is_right():
    certificate = verify(samples=SAMPLES)
    assert certificate.ok, [c for c in certificate.checks if not c.ok]
    names = " ".join(check.name for check in certificate.checks)
    for part in ("theorem 1", "theorem 2", "float64", "float32", "bit for bit", "Gaussian",
                 "categorical", "minibatch of 60", "NumPy", "JAX, compiled"):  # fmt: skip
        assert part in names


def kill_and_pass(x, a):
    _, kill, passing = partition(x, a)
    return ratio(x) * a, kill, passing


def flipped(x, a):
    pull, kill, _ = kill_and_pass(x, a)
    return where(kill, pull, 0.0)


def swapped(x, a):
    pull, _, passing = kill_and_pass(x, a)
    return where(passing, -pull, 0.0)


def without_ratio(x, a):
    _, kill, _ = kill_and_pass(x, a)
    return where(kill, -a, 0.0)


def one_sided(x, a):
    pull, kill, _ = kill_and_pass(x, a)
    return where(kill & (a > 0), -pull, 0.0)


def both_sides(x, a):
    pull, kill, passing = kill_and_pass(x, a)
    return where(kill | passing, -pull, 0.0)


def scalar(x, a):
    return 1.0 + 0.0 * x


def zero_is_killed(x, a):
    """As `partition`, but a zero advantage outside the band counts as killed."""
    inside, kill, passing = partition(x, a)
    outside = (a == 0) & (abs(ratio(x) - 1) > EPS)
    return Partition(inside & ~outside, kill | outside, passing)


def edge_is_killed(x, a):
    """As `partition`, but the edge itself lies outside."""
    inside, kill, passing = partition(x, a)
    w = ratio(x)
    edge = ((w >= 1 + EPS) & (a > 0)) | ((w <= 1 - EPS) & (a < 0))
    return Partition(inside & ~edge, kill | edge, passing)


WRONG = {
    "sign flipped": Claim(beta=flipped),
    "kill and pass swapped": Claim(beta=swapped),
    "w missing": Claim(beta=without_ratio),
    "epsilon 1 % too large": Claim(beta=PerSample(eps=EPS * 1.01).beta),
    "epsilon 1 % too small": Claim(beta=PerSample(eps=EPS * 0.99).beta),
    "gradient through beta": Claim(detached=False),
    "upper edge shifted": Claim(beta=PerSample(low=EPS, high=EPS + 0.001).beta),
    "lower edge shifted": Claim(beta=PerSample(low=EPS + 0.001, high=EPS).beta),
    "one side only": Claim(beta=one_sided),
    "pass killed too": Claim(beta=both_sides),
    "one scalar for all": Claim(beta=scalar),
    "no coefficient": Claim(beta=lambda x, a: 0.0 * x),
    "zero advantage counted as kill": Claim(partition=zero_is_killed),
    "edge counted as kill": Claim(partition=edge_is_killed),
}


@pytest.mark.parametrize("claim", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_claim_is_rejected(claim):
    """And by the check that it concerns: the gradient's, or the partition's."""
    certificate = verify(claim, samples=SAMPLES, minibatches=(60,))
    failed = {check.name.split(" ")[0] for check in certificate.checks if not check.ok}
    assert not certificate.ok
    wrong_partition = claim.partition is not partition
    assert failed == {"partition"} if wrong_partition else "theorem" in failed


def test_the_samples_fill_every_corner():
    x, a = draw(1 << 20, seed=0)
    _, kill, passing = partition(x, a)
    for corner in (kill & (a > 0), kill & (a < 0), passing & (a > 0), passing & (a < 0)):
        assert corner.sum() >= 10_000
    assert (a == 0).sum() >= 10_000
    assert np.isclose(np.exp(x), 1 + EPS).sum() >= 2
