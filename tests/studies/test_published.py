"""What was published: whole, and set beside ours only where it may be."""

import numpy as np
import pytest

from klip.studies.published import (
    PAPER,
    TASKS,
    TITLES,
    published_curve,
    published_peak_kill,
    published_return,
    why_not_compared,
)


def test_the_published_numbers():
    assert list(TITLES) == list(PAPER)
    for task in TASKS:
        for key in PAPER:
            cell, curve = published_return(task, key), published_curve(task, key)
            late = curve.mean[curve.steps >= np.quantile(curve.steps, 0.9)]
            tolerance = 1.0 if curve.std is not None else 0.04 * abs(cell.mean) + 40
            assert late.mean() == pytest.approx(cell.mean, abs=tolerance)
    assert published_peak_kill("Humanoid-v4") == 0.572
    assert published_peak_kill("CartPole-v1") is None
    assert published_peak_kill("Humanoid-v5") is None
    assert why_not_compared("Mine-v0", "clip(eps=0.2)", {}) == "task not in the paper"
