"""What a notebook shows of a trust region, a study, a probe and a guarantee."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import jax.numpy as jnp
import pytest

import klip
from klip.draw.notebook import notebook
from klip.shapes import Shape, parse
from klip.studies.study import Study
from klip.theory.guarantee.verdict import Guarantee, Verdict


def texts(html):
    return "".join(ET.fromstring(html).itertext())


@pytest.mark.parametrize(
    "spelling",
    ["clip", "tr-ppo", "adaptive-kl", "truncate * clip + kl-k3(b=0.1)", "by-sign(clip, spo)"],
)
def test_every_kind_of_region_shows_its_spelling_its_formulas_and_a_picture(spelling):
    region = parse(spelling)
    shown = region._repr_html_()
    assert shown == notebook(region)
    assert str(region) in texts(shown)
    assert all(part.formula in texts(shown) for part in region.parts())
    assert "<svg" in shown


def test_a_shape_that_cannot_be_drawn_says_why():
    @dataclass(frozen=True)
    class Broken(Shape):
        """m = A / 0 <b>"""

        def multiplier(self, s):
            raise ZeroDivisionError("by <zero>")

    shown = Broken()._repr_html_()
    assert "m = A / 0 <b>" in texts(shown)
    assert "It has no picture: broken raises ZeroDivisionError: by <zero>" in texts(shown)
    assert "<svg" not in shown


def test_a_study_shows_its_table():
    study = klip.read_study("examples/cartpole")
    shown = texts(study._repr_html_())
    for row in klip.returns(study).rows(named=True):
        assert f"{row['task']}{row['label']}3{row['mean']:.4g}" in shown


def test_a_study_of_tokens_shows_its_arms():
    study = klip.read_study("results/tokens")
    assert "plain clip5 of 5 done0.855" in texts(study._repr_html_())


def test_a_study_shows_what_it_could_not_read_as_text():
    study = klip.read_study("examples/cartpole")
    shown = Study(study.runs, ("<b> is damaged",))._repr_html_()
    assert "<li>&lt;b&gt; is damaged</li>" in shown


def test_a_probe_shows_what_is_wrong():
    def loss(new, old, advantages):
        return -(new - old) * 0.0 - jnp.exp(2 * (new - old)) * advantages

    probed = klip.probe(lambda *batch: loss(*batch).mean())
    shown = probed._repr_html_()
    assert not probed.ok
    assert all(finding.code in shown for finding in probed.findings)
    assert "nothing looks wrong" not in shown


def test_a_guarantee_shows_every_verdict():
    found = Guarantee("<b>", (Verdict("improvement", "holds", "", points=12),))
    shown = found._repr_html_()
    assert "<b>" not in shown
    assert "improvementholds at 12 points" in texts(f"<div>{shown}</div>")
