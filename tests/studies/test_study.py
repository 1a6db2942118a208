"""Studies: runs in order, their variants and labels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from klip.runs import read_run
from klip.studies.reading import read_study
from klip.studies.study import area_per_step, natural, plain
from tests.studies.folders import config, make_run, make_study, small


def test_runs_come_in_order_with_their_final_returns(tmp_path):
    make_study(tmp_path, ["Hopper-v4", "CartPole-v1"], ["spo(eps=0.2)", "clip(eps=0.2)"], 2,
               **small())  # fmt: skip
    study = read_study(tmp_path)
    assert study.tasks == ["CartPole-v1", "Hopper-v4"]
    assert [(v.task, v.label, len(v.runs)) for v in study.variants] == [
        ("CartPole-v1", "clip", 2), ("CartPole-v1", "spo", 2),
        ("Hopper-v4", "clip", 2), ("Hopper-v4", "spo", 2),
    ]  # fmt: skip
    for run in study.runs:
        record = read_run(tmp_path / run.path)
        assert run.final == record.final_return
        assert run.digest == record.digest()
        assert run.rows == run.iterations == 20


def test_labels_say_in_what_variants_differ(tmp_path):
    for lr in (3e-4, 1e-3):
        make_run(tmp_path, config(**small(lr=lr)))
    make_run(tmp_path, config(shape="my.py:Mine(a=1.0)", **small(), code="aa"))
    make_run(tmp_path, config(shape="my.py:Mine(a=1.0)", **small(), code="bb"))
    assert sorted(v.label for v in read_study(tmp_path).variants) == [
        "clip", "clip, lr 0.001", "my.py:Mine(a=1.0), code aa", "my.py:Mine(a=1.0), code bb",
    ]  # fmt: skip


def test_a_config_from_before_a_field_is_at_its_default(tmp_path):
    old = config(seed=1, **small())
    del old["code"], old["per_epoch"]
    make_run(tmp_path, old)
    make_run(tmp_path, config(seed=0, **small()))
    (variant,) = read_study(tmp_path).variants
    assert [run.seed for run in variant.runs] == [0, 1]


def test_plain_values():
    assert [plain(v) for v in (True, None, 2048, 0.99, [64, 64], "x")] == [
        "yes", "none", "2,048", "0.99", "64-64", "x",
    ]  # fmt: skip


def test_labels_with_their_own_numbers_come_first(tmp_path):
    for shape in ("clip(eps=0.1)", "clip(eps=0.2)", "spo(eps=0.2)", "kl(b=0.1)"):
        make_run(tmp_path, config(shape=shape, **small()))
    assert read_study(tmp_path).labels == ("clip", "spo", "clip(eps=0.1)", "kl(b=0.1)")


def test_settings_are_in_the_order_of_their_numbers(tmp_path):
    for b in (10.0, 0.03, 3.0, 1.0):
        make_run(tmp_path, config(shape=f"kl(b={b})", **small()))
    for lag in (16, 2):
        make_run(tmp_path, config(**small(lag=lag)))
    assert read_study(tmp_path).labels == (
        "clip, lag 2", "kl", "clip, lag 16", "kl(b=0.03)", "kl(b=3.0)", "kl(b=10.0)",
    )  # fmt: skip


@given(st.lists(st.text("ab(=,-.0123456789e", max_size=8), max_size=6))
def test_any_labels_can_be_ordered(labels):
    """Words and numbers are never compared with each other, whatever a shape is called."""
    assert len(sorted(labels, key=natural)) == len(labels)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2))
def test_labels_that_differ_in_a_number_go_by_its_size(numbers):
    labels = {f"kl-k3(b={number}), lag 2": number for number in numbers}
    assert [labels[label] for label in sorted(labels, key=natural)] == sorted(labels.values())


def test_labels_with_usual_settings_come_before_others(tmp_path):
    for shape in ("clip(eps=0.2)", "spo(eps=0.2)"):
        for rate in (3e-4, 1e-3):
            make_run(tmp_path, config("Hopper-v4", shape, **small(lr=rate)))
    labels = read_study(tmp_path).labels
    assert labels == ("clip", "spo", "clip, lr 0.001", "spo, lr 0.001")


def test_what_a_plan_asks_about_comes_first_and_the_reference_before_it(tmp_path):
    shapes = ("kl(b=1.0)", "clip(eps=0.2)", "per-sample(eps=0.2)", "clip(eps=0.1)", "spo(eps=0.2)",
              "z.py:Mine(a=1.0)", "sapo")  # fmt: skip
    for shape in shapes:
        make_run(tmp_path, config(shape=shape, **small()))
    study = read_study(tmp_path)
    first = ("clip", "z.py:Mine(a=1.0)", "sapo", "spo", "per-sample", "kl", "clip(eps=0.1)")
    assert study.labels == first
    assert [v.label for v in study.variants] == list(first)
    assert [v.own for v in study.variants] == [False, True] + 5 * [False]


def test_the_area_under_a_curve_is_that_of_trapezia():
    steps, nan = np.array([1.0, 2.0, 4.0, 5.0]), np.nan
    assert area_per_step(steps, np.array([0.0, 2.0, 4.0, 6.0])) == (1 + 6 + 5) / 4
    assert area_per_step(steps, np.array([nan, 2.0, nan, 8.0])) == 5.0
    assert area_per_step(steps, np.array([nan, nan, 3.0, nan])) == 3.0
    assert area_per_step(steps, np.full(4, nan)) is None


def test_only_a_run_that_is_done_has_an_area(tmp_path):
    make_run(tmp_path, config(seed=0, **small()))
    make_run(tmp_path, config(seed=1, **small()), 4, "diverged", "nan")
    make_run(tmp_path, config(seed=2, **small()), 4, "running")
    (variant,) = read_study(tmp_path).variants
    done = variant.runs[0]
    expected = area_per_step(done.metrics["step"], done.metrics["return_mean"])
    assert variant.over_training == {0: expected, 1: None}
