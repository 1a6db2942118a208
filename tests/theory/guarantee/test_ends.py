"""Where two and more arms end."""

import numpy as np
import pytest

from klip.shapes import KLReverseK3, parse
from klip.theory.guarantee.ends import two_armed_end, where_it_ends
from klip.theory.guarantee.law import Law


@pytest.mark.parametrize("name", ["spo", "kl-k3", "kl-reverse-k3", "clip", "ramp"])
def test_the_root_and_the_flow_agree(name):
    law, p = Law(parse(name).initial), 0.3
    a = (1.0, -p / (1 - p))
    end = two_armed_end(law, p, a)
    flow = where_it_ends(law, np.array([p, 1 - p]), np.array(a))
    assert flow[0] / p == pytest.approx(end, rel=5e-3)


def test_reverse_kl_ends_at_its_softmax():
    p, a = np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.5, -0.7])
    softmax = p * np.exp(a / 0.5) / (p * np.exp(a / 0.5)).sum()
    assert where_it_ends(Law(KLReverseK3(b=0.5)), p, a) == pytest.approx(softmax, abs=1e-6)
