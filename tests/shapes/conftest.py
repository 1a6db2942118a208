"""Hands every shape to the tests that ask for one: shipped, composed, and a user's."""

from pathlib import Path

import pytest

from klip.shapes import Clip, KLk3, Shape, Truncate, by_sign, catalogue, parse

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_shapes.py"


def pytest_generate_tests(metafunc):
    """`shape`: every one; `published`: those with an objective of their own."""
    shipped = [cls() for cls in catalogue(Shape).values()]
    users = [parse(text) for text in (f"{EXAMPLE}:Cauchy", *metafunc.config.getoption("--shape"))]
    composed = [
        Truncate(cap=2.0) * Clip() + KLk3(b=0.1),
        by_sign(Clip(), KLk3(b=0.5)),
        parse("clip(eps=by-age(fresh=0.2, half_life=4.0))"),
        parse("ramp(eps=by-position(start=0.3, end=0.1), width=0.05)"),
        parse("aspo(eps=by-entropy(below=0.2, above=0.4))"),
        parse("max-age(limit=4) * dual-clip"),
        parse("topr(sign=reward)"),
        parse("truly-ppo(estimator=k3)"),
        parse("vaco(delta=0.5) * clip(eps=at-age(at_0=0.2, at_16=0.6))"),
        parse("weigh(by=per-age(fresh=1)) * clip"),
    ]
    if "shape" in metafunc.fixturenames:
        metafunc.parametrize("shape", [*shipped, *users, *composed], ids=lambda s: s.name)
    if "published" in metafunc.fixturenames:
        with_objective = [s for s in [*shipped, *users, *composed] if s.published]
        metafunc.parametrize("published", with_objective, ids=lambda s: s.name)


OWN = """
from dataclasses import dataclass
from klip.shapes import Shape, Threshold, parameter
from near import factor

@dataclass(frozen=True)
class Flat(Threshold):
    top: float = parameter(0.3)
    def value(self, context):
        return self.top + 0.0 * factor

@dataclass(frozen=True)
class Gauss(Shape):
    "Says what it is."
    b: float = parameter(0.5)
    def multiplier(self, s):
        return s.w * s.advantage * self.b
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a file of values, and another file that has a class of the same name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "near.py").write_text("factor = 1\n")
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "other.py").write_text(OWN.replace("parameter(0.5)", "parameter(0.9)"))
    return tmp_path
