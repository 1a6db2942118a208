"""A sample: what a formula may ask for."""

import numpy as np
import pytest

from klip.shapes import Context, MissingContext, Sample, ratio


def test_the_ratio_is_computed_once():
    s = Sample(np.array([0.0, 0.5]), np.ones(2))
    np.testing.assert_array_equal(s.w, ratio(s.log_w))
    assert s.w is s.w


def test_every_field_of_the_context_is_the_samples_own():
    s = Sample(0.0, 1.0, Context(age=3.0, kl=0.1))
    assert (s.age, s.kl) == (3.0, 0.1)
    with pytest.raises(MissingContext, match=r"the context has no reward .* pass Context"):
        _ = s.reward


def test_what_no_sample_has_is_named():
    with pytest.raises(AttributeError, match=r"no 'ratio'; it has w, log_w, advantage, old_log"):
        _ = Sample(0.0, 1.0).ratio


def test_the_same_samples_elsewhere():
    s = Sample(0.0, 2.0, Context(age=1.0)).at(0.5)
    assert (s.log_w, s.advantage, s.age) == (0.5, 2.0, 1.0)
