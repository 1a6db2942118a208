"""The bandits of the explorer, against the library's."""

import numpy as np
import pytest

from klip.pages.explorer.explorer import explorer_page
from klip.shapes import parse
from klip.theory.guarantee.ends import where_it_ends
from klip.theory.guarantee.law import Law

pytest_plugins = ["tests.pages.browser"]

ROOT = "document.querySelector('.klip-explorer').klip"
NAMES = ("clip", "kl", "dppo-tv", "tr-ppo")


@pytest.fixture(scope="module")
def some():
    return explorer_page([parse(name) for name in NAMES])


def test_the_arms_end_where_the_library_says(page, some):
    """With the true old probability and the true KL, for shapes that ask for them."""
    for name in NAMES:
        law = Law(parse(name).initial)
        page.open(some, hash=f"#explore?a={name}&P=0.1").settle()
        for count in (3, 2) if name == "clip" else (3,):
            arms = page.evaluate(f"{ROOT}.bandit({count})")
            old, a = np.array(arms["p"]), np.array(arms["a"])
            assert old.sum() == pytest.approx(1)
            assert old @ a == pytest.approx(0, abs=1e-12)
            end = page.evaluate(f"{ROOT}.ends({ROOT}.state.a, {count}).at(-1)")
            assert end == pytest.approx(where_it_ends(law, old, a), abs=3e-3)
        assert page.evaluate("document.querySelectorAll('.kx-simplex svg path').length") > 100
        assert not page.errors


def test_the_arms_follow_the_sliders(page, some):
    page.open(some).settle()
    said = "document.querySelector('.kx-simplex figcaption').textContent"
    before = page.evaluate(said)
    page.set("#kx-mass", "0.05")
    after = page.evaluate(said)
    assert "4.80" in after
    assert before != after
    page.set("#kx-a-p-eps", "0.4")
    assert "8.6" in page.evaluate(said)
    page.wait("location.hash.includes('P=0.05')")
