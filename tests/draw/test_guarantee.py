"""`klip.guarantee` from Python, and its picture."""

import json

import numpy as np
import pytest

from klip.draw.guarantee import ARMS, CORNERS, _half, flow, guarantee, lattice, picture
from klip.errors import KlipError
from klip.shapes import SPO, TIS, Clip, ImportanceSampling
from klip.theory.guarantee.examine import examined
from klip.theory.guarantee.law import Law


def test_several_shapes_a_picture_and_a_file_to_replay(tmp_path):
    found = guarantee(["is", Clip()], tmp_path / "both.svg", keep=tmp_path / "kept")
    assert [each.shape for each in found] == ["is", "clip(eps=0.2)"]
    assert (tmp_path / "both.svg").stat().st_size > 10_000
    path = tmp_path / "kept" / "0-is.json"
    again = guarantee(replay=path)
    assert again.change == pytest.approx(found[0].counterexample["change"], rel=1e-6)
    assert again.change < 0


def test_a_file_starts_no_code(tmp_path):
    path = tmp_path / "theirs.json"
    about = {"format": "klip guarantee 1", "shape": "theirs.py:Theirs", "rate": 1, "steps": 1}
    path.write_text(json.dumps(about | {"change": -1.0, "mdp": {}}))
    with pytest.raises(KlipError, match="name the shape before --replay"):
        guarantee(replay=path)
    with pytest.raises(KlipError, match="an MDP needs transitions"):
        guarantee("clip", replay=path)


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_another_file_is_one_line(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(KlipError, match=r"cannot replay .*other\.json"):
        guarantee(replay=path)


def test_nothing_named():
    with pytest.raises(KlipError, match="name at least one shape"):
        guarantee([])
    with pytest.raises(KlipError, match="cannot read"):
        guarantee(replay="nowhere.json")


def test_the_flow_stays_on_the_simplex_and_climbs_the_advantage():
    points = lattice(9)
    assert np.allclose(points.sum(axis=1), 1)
    for shape in (Clip(), SPO(), ImportanceSampling()):
        assert np.allclose(flow(Law(shape), ARMS, points).sum(axis=1), 0)
    climbs = flow(Law(ImportanceSampling()), ARMS, points) @ np.array(ARMS.advantages)
    assert np.all(climbs >= 0)


def test_the_shaded_part_is_where_the_return_falls():
    part = _half(np.array([-1.0, 1.0, -1.0]))
    assert np.all(part @ np.array([-1.0, 1.0, -1.0]) <= 1e-12)
    assert len(part) == 4
    assert len(CORNERS) == 3


def test_a_witness_is_drawn_where_there_is_one():
    found = examined("tis", measured=False, attacked=False)
    figure = picture([TIS()], [found])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert "J up, return down" in labels
    assert "return falls" in labels
