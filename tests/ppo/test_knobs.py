"""Fields and numbers of shapes by their names, and every combination of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.ppo.knobs import combinations, path_in, turned
from klip.shapes import numbers, parse


@pytest.mark.parametrize(
    ("shape", "knob", "path"),
    [
        ("clip", "lr", None),
        ("clip", "eps", "eps"),
        ("clip", "shape.eps", "eps"),
        ("target-kl(clip, target=0.02)", "eps", "shape.eps"),
        ("target-kl(clip, target=0.02)", "shape.eps", "shape.eps"),
        ("target-kl(clip, target=0.02)", "target", "target"),
    ],
)
def test_where_a_knob_lies(shape, knob, path):
    assert path_in(shape, knob) == path


@pytest.mark.parametrize(
    ("shape", "knobs", "message"),
    [
        ("clip", {"width": 1.0}, "'width' is no config field, and clip has no such number: it has"),
        ("is", {"eps": 1.0}, "it has no number"),
        ("kl-k3 + kl-k1", {"b": 0.1}, "'b' is in kl-k3 [+] kl-k1 several times: give one of"),
        ("clip", {"eps": -1.0}, "eps=-1.0 must be greater than 0"),
        ("clip", {"eps": "wide"}, "eps='wide' must be a number"),
        ("clip", {"seed": 1}, "'seed' is no config field"),
    ],
)
def test_a_knob_that_is_none(shape, knobs, message):
    with pytest.raises(KlipError, match=message):
        turned(shape, {}, knobs)


@given(st.floats(1e-3, 0.9), st.floats(1e-4, 0.5))
def test_a_number_that_is_set_is_there_and_nothing_else_changes(eps, target):
    shape = "target-kl(ramp(width=0.07), factor=1.1)"
    made = turned(shape, {"steps": 1}, {"eps": eps, "target": target, "epochs": 3})
    assert made.fields == {"steps": 1, "epochs": 3}
    before, after = numbers(parse(shape)), numbers(parse(made.shape))
    assert after == {**before, "shape.eps": eps, "target": target}


VALUES = st.lists(st.integers(), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4))
def test_every_combination_once(grid):
    made = combinations(grid)
    count = 1
    for values in grid.values():
        count *= len(values)
    assert len(made) == count == len({tuple(each.items()) for each in made})
    assert all(each.keys() == grid.keys() for each in made)


@pytest.mark.parametrize("wrong", [3, {"lr": 1e-3}, {"lr": []}, {"lr": "fast"}])
def test_a_grid_that_is_none(wrong):
    with pytest.raises(KlipError, match="list"):
        combinations(wrong)
