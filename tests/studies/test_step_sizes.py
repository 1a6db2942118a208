"""Ladders of step sizes: where they break, how many a shape survives, and how sure that is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.studies.reading import read_study
from klip.studies.step_sizes import apart, records, step_sizes, survived
from tests.studies.folders import config, make_run, small

RATES = (3e-4, 3e-3, 3e-2)
LEVELS = {"clip(eps=0.2)": (900, 950, 900), "spo(eps=0.2)": (900, 850, 20), "sapo": (900, 20, 30)}
"""Final returns by step size: clip survives all, spo two, sapo one."""


def make(out, levels=LEVELS, epochs=(10, 40), seeds=3, **more):
    for shape, of in levels.items():
        for k in epochs:
            for rate, level in zip(RATES, of, strict=False):
                for seed in range(seeds):
                    fields = small(lr=rate, epochs=k, **more)
                    make_run(out, config("Hopper-v4", shape, seed, **fields), level=float(level))
    return out


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return step_sizes(read_study(make(tmp_path_factory.mktemp("runs"))))


def test_a_cell_for_each_set_of_other_settings(found):
    assert [cell.name for cell in found.cells] == ["Hopper-v4, epochs 10", "Hopper-v4, epochs 40"]
    for cell in found.cells:
        assert cell.rates == RATES
        assert [ladder.label for ladder in cell.ladders] == ["clip", "sapo", "spo"]


def test_each_shape_breaks_where_it_was_made_to(found):
    for cell in found.cells:
        says = {ladder.label: ladder.says for ladder in cell.ladders}
        assert says == {"clip": "not up to 0.03", "spo": "at 0.03", "sapo": "at 0.003"}
    assert [(each.label, each.survived.estimate) for each in found.shapes] == [
        ("clip", 3.0), ("spo", 2.0), ("sapo", 1.0)
    ]  # fmt: skip
    for each in found.shapes:
        assert (each.survived.low, each.survived.high) == (each.survived.estimate,) * 2
        assert each.survived.n == 3
    assert found.left == ()


def test_the_difference_of_two_groups(found):
    e = apart(found.shapes, ["clip", "sapo"], ["spo"])
    assert (e.estimate, e.low, e.high) == (0.0, 0.0, 0.0)
    assert apart(found.shapes, ["clip"], ["spo", "sapo"]).estimate == 1.5
    assert apart(found.shapes, ["clip"], ["sapo"]).p < 0.05


def test_a_break_that_seeds_do_not_agree_on_is_uncertain(tmp_path):
    """At the largest step size some seeds keep everything and some lose it."""
    make(tmp_path, {"clip(eps=0.2)": (900, 900)}, epochs=(10,), seeds=4)
    for seed in range(4):
        level = 1000.0 if seed < 2 else 0.0
        make_run(tmp_path, config("Hopper-v4", seed=seed, **small(lr=0.03, epochs=10)), level=level)
    (each,) = step_sizes(read_study(tmp_path)).shapes
    assert (each.survived.low, each.survived.high) == (2.0, 3.0)


def test_a_run_that_diverged_counts_at_the_lowest(tmp_path):
    make(tmp_path, {"clip(eps=0.2)": (900, 900)}, epochs=(10,), seeds=2)
    for seed in range(2):
        c = config("Hopper-v4", seed=seed, **small(lr=0.03, epochs=10))
        make_run(tmp_path, c, 5, "diverged", "not finite")
    found = step_sizes(read_study(tmp_path))
    (ladder,) = found.cells[0].ladders
    assert (ladder.survived, ladder.breaks) == (2, 0.03)
    last = ladder.returns[0.03]
    assert (last.diverged, last.counted) == (2, 2)
    assert last.estimate <= found.cells[0].zero


def test_a_shape_that_lacks_a_step_size_is_shown_and_not_compared(tmp_path):
    make(tmp_path, {"clip(eps=0.2)": (900, 900, 900), "spo(eps=0.2)": (900, 20)}, epochs=(10,))
    make_run(tmp_path, config("Hopper-v4", "is", **small(lr=3e-4, epochs=10)))
    found = step_sizes(read_study(tmp_path))
    assert [ladder.label for ladder in found.cells[0].ladders] == ["clip", "spo"]
    assert [each.label for each in found.shapes] == ["clip"]
    assert found.left == ("spo",)
    assert found.of("spo")[0].says == "at 0.003"
    assert found.of("is") == [None]


def test_one_seed_has_no_interval(tmp_path):
    found = step_sizes(read_study(make(tmp_path, epochs=(10,), seeds=1)))
    assert {each.survived.low for each in found.shapes} == {None}
    assert apart(found.shapes, ["clip"], ["sapo"]).p is None


def test_other_studies_have_no_ladder(tmp_path):
    make_run(tmp_path, config(**small(lr=3e-4)))
    make_run(tmp_path, config(**small(lr=3e-3, gamma=0.9)))
    assert step_sizes(read_study(tmp_path)) is None


def test_every_number_is_a_record(found):
    rows = records(found)
    assert len(rows) == 2 * 3 * 3
    broken = {(r["label"], r["breaks_at"]) for r in rows}
    assert broken == {("clip", None), ("spo", 0.03), ("sapo", 0.003)}
    assert {r["seeds"] for r in rows} == {3}


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6), st.floats(0.01, 100))
def test_the_unit_of_returns_does_not_matter(gains, factor):
    gains = np.round(gains, 3)
    assert survived(gains) == survived(gains * 2.0 ** np.round(np.log2(factor)))
    assert 0 <= survived(gains) <= len(gains)


def test_what_rises_does_not_break_and_what_recovers_has():
    assert survived(np.array([-5.0, 1.0, 2.0, 3.0])) == 4
    assert survived(np.array([9.0, 1.0, 8.0])) == 1
    assert survived(np.array([1.0, 9.0, 4.5])) == 3
    assert survived(np.array([0.0, 0.0])) == 0
