"""The first sentences of a page: who won, how sure that is, and no more."""

import re

import numpy as np

from klip.pages.report import answer
from klip.studies.findings import find
from klip.studies.reading import read_study
from klip.studies.study import Study
from tests.pages.test_report import render, text_of
from tests.studies.folders import FORMS, config, make_run, make_study, small


def test_the_answer_says_what_is_shown_and_no_more(tmp_path):
    make_study(tmp_path, shapes=FORMS[:2], seeds=3, **small())
    for seed in range(3):
        make_run(tmp_path, config(shape="spo(eps=0.2)", seed=seed, **small()), level=900.0)
        make_run(tmp_path, config(shape="kl(b=1.0)", seed=seed, **small()), level=seed * 90.0)
    higher, left, same, many = answer(find(read_study(tmp_path)))
    assert higher.startswith("Shown to end higher than PPO-Clip: spo on CartPole-v1 (+")
    assert left == (
        "In 1 of 2 comparisons on a task these seeds do not tell a shape apart from PPO-Clip."
    )
    assert same == "The same final return at every seed: per-sample, on 1 task."
    assert many == "Claims are corrected for 2 comparisons (Holm), intervals are not."
    assert answer(find(Study(()))) == []


def test_the_answer_counts_what_is_too_much_to_name(tmp_path):
    for seed in range(3):
        make_run(tmp_path, config(seed=seed, **small()), level=100.0 + seed)
        for b in range(2, 14):
            shape, level = f"kl-k3(b={float(b)})", 1000.0 * b + seed
            make_run(tmp_path, config(shape=shape, seed=seed, **small()), level=level)
    first, *_ = answer(find(read_study(tmp_path)))
    least, most = re.fullmatch(
        r"Shown to end higher than PPO-Clip: 12 of 12 on CartPole-v1, by (\d+) to (\d+)\.", first
    ).groups()
    assert 1000 < int(least) < 2000 < 12_000 < int(most) < 13_000


def test_the_answer_counts_what_a_sweep_shows(tmp_path):
    """Its settings are in no picture of the first screen, but the correction counts them."""
    make_study(tmp_path, ["CartPole-v1", "Hopper-v4"], FORMS[:2], 3, **small())
    for seed in range(3):
        for eps, level in ((0.3, 900.0), (0.4, 900.0), (0.5, seed * 90.0)):
            shape = f"clip(eps={eps})"
            make_run(tmp_path, config(shape=shape, seed=seed, **small()), level=level)
    assert answer(find(read_study(tmp_path)))[0] == (
        "Of 3 comparisons of settings that not all tasks have, 2 are shown to end higher than "
        "PPO-Clip and 0 lower."
    )


def test_of_many_comparisons_one_that_leaves_zero_by_itself_is_no_claim(tmp_path):
    """Eleven shapes as good as PPO-Clip, and one whose own interval leaves 0 by luck."""
    lucky = "spo(eps=0.2)"
    shapes = ("clip(eps=0.2)", lucky, *(f"kl(b={b}.0)" for b in range(2, 12)))
    usual = [10.0, 14.0, 12.0, 11.0, 13.0]
    finals = {shape: [x + i / 100 for x in usual] for i, shape in enumerate(shapes)}
    finals[lucky] = [12.5, 17.0, 15.0, 13.5, 15.5]
    study = read_study(make_study(tmp_path, shapes=shapes, seeds=5, **small()))
    for run in study.runs:
        run.metrics["return_mean"] = np.full(run.rows, finals[run.shape][run.seed])
    found = find(study)
    (d,) = [d for d in found.differences if d.first.shape == lucky]
    assert d.final.low > 0
    assert (d.final.p <= 0.05, d.final.p_holm <= 0.05) == (True, False)
    said = answer(found)
    assert said[0] == "No shape is shown to end higher or lower than PPO-Clip."
    assert "the intervals of 1 leave 0, as some of so many do by chance" in said[1]
    page_says = text_of(render(study))
    assert "by itself it would be shown, among" in page_says
    assert "p, Holm" in page_says
    assert "Over training, 95 %" in page_says
