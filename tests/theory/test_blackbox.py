"""A loss as a black box: how it is called, and what comes back."""

import numpy as np
import pytest

from klip.errors import KlipError
from klip.theory.blackbox import (
    FLAT,
    GRID,
    call,
    half_precision,
    one_by_one,
    open_box,
    openings,
)

torch = pytest.importorskip("torch")


def squared(new_log_probs, old_log_probs, advantages):
    return ((new_log_probs - old_log_probs) ** 2 * advantages).sum()


def old_first(old_log_probs, log_probs, advantages):
    return -(torch.exp(log_probs - old_log_probs) * advantages).mean()


def with_mask(new, old, advantages, mask):
    return (torch.exp(new - old) * advantages * mask).sum() / mask.sum()


def test_the_gradient_is_the_losses_own():
    x, a = np.array([[0.1, -0.2], [0.3, 0.0]]), np.array([[1.0, -1.0], [2.0, 0.5]])
    box = open_box(squared, "torch", lambda box: True)
    answer = call(box, x, a)
    assert (box.layout, box.masked) == (FLAT, False)
    np.testing.assert_allclose(answer.gradient, 2 * x * a, atol=1e-12)
    np.testing.assert_allclose(answer.value, (x**2 * a).sum())


def test_a_mask_makes_a_grid_likelier():
    box = next(openings(with_mask, "torch"))
    assert (box.layout, box.masked, box.referenced) == (GRID, True, False)


def test_the_first_way_that_works_is_taken():
    layouts = [box.layout for box in openings(squared, "torch")]
    chosen = open_box(squared, "torch", lambda box: box.layout == layouts[1])
    assert chosen.layout == layouts[1]


@pytest.mark.parametrize(
    ("loss", "framework", "message"),
    [
        (3, "torch", "3 is not callable"),
        (squared, "mxnet", "framework='mxnet' is unknown"),
        (lambda n, o, a: None, "torch", "returns None, which has no gradient"),
        (lambda n, o, a: (o * a).sum(), "torch", "does not require grad"),
        (lambda n, o, a: n.no_such(), "torch", "raises on every layout"),
    ],
)
def test_what_is_no_loss_is_named(loss, framework, message):
    def works(box):
        call(box, np.zeros((2, 3)), np.ones((2, 3)))
        return True

    with pytest.raises(KlipError, match=message):
        open_box(loss, framework, works)


def with_reference(new, old, ref, advantages):
    return ((new - ref) * advantages + 0.0 * old).sum()


def test_the_reference_is_given_by_its_distance_from_the_old_policy():
    box = open_box(with_reference, "torch", lambda box: True)
    x, a = np.array([[0.1, -0.2]]), np.array([[1.0, 2.0]])
    assert box.referenced
    np.testing.assert_allclose(call(box, x, a, reference=0.3).value, ((x - 0.3) * a).sum())


def shared(new, old, advantages):
    return -(torch.exp(new - old).mean() * advantages).mean()


def counted(new, old, advantages):
    """Cannot be mapped: it looks at its values."""
    return shared(new, old, advantages) * (2.0 if advantages[0].item() > 5 else 1.0)


@pytest.mark.parametrize("loss", [shared, counted])
def test_samples_that_share_can_be_asked_one_by_one(loss):
    box = one_by_one(open_box(loss, "torch", lambda box: True))
    x, a = np.array([[0.1, -0.2, 0.3]]), np.array([[1.0, -1.0, 2.0]])
    np.testing.assert_allclose(call(box, x, a).gradient, -np.exp(x) * a)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_is_seen(half):
    kind = getattr(torch, half)

    def inside(new, old, advantages):
        return -(torch.exp((new - old).to(kind)) * advantages).mean()

    def beside(new, old, advantages):
        (new - old).to(kind).exp().mean()
        return -(torch.exp(new - old) * advantages).mean()

    found = [half_precision(open_box(f, "torch", lambda box: True)) for f in (inside, beside)]
    assert found == [half, ""]
