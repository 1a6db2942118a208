"""Hands every shape to the tests that ask for one."""

import pytest
import torch

from klip.shapes import Clip, KLk3, Shape, Truncate, by_sign, catalogue, parse


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


def pytest_generate_tests(metafunc):
    if "shape" in metafunc.fixturenames:
        shipped = [cls() for cls in catalogue(Shape).values()]
        composed = [
            Truncate(cap=2.0) * Clip() + KLk3(b=0.1),
            by_sign(Clip(), KLk3(b=0.5)),
            parse("clip(eps=by-age(fresh=0.2, half_life=4.0))"),
            parse("ramp(eps=by-position(start=0.3, end=0.1), width=0.05)"),
            parse("clip(low=0.1, high=from-end(tail=0.1, body=0.3, count=2))"),
            parse("max-age(limit=4) * dual-clip"),
            parse("topr(sign=reward)"),
            parse("klip.tokens.gates:OPSM(delta=0.05) * clip"),
            parse("klip.tokens.gates:CPPO(delta=0.1) * is"),
            parse("klip.tokens.gates:SequenceTrust(delta=0.05, policy=new) * clip"),
            parse("klip.tokens.gates:SequenceTrust(delta=0.1, divergence=binary-tv) * is"),
            parse("klip.tokens.gates:SequenceTIS(cap=1.5) * clip"),
            parse("klip.tokens.gates:SequenceMIS(floor=0.2, cap=1.5) * is"),
            parse("vaco * clip"),
            parse("m2po * is"),
            parse("klip.tokens.penalties:ReferenceKL(b=0.1, estimator=k2)"),
        ]
        metafunc.parametrize("shape", [*shipped, *composed], ids=str)
