"""Tables in the paper's definitions, and what is left out of them."""

import csv
import io
import json

import numpy as np
import pytest

from klip.studies.comparing import holm
from klip.studies.published import (
    PAPER,
    why_not_compared,
)
from klip.studies.reading import read_study
from klip.studies.tables import (
    as_csv,
    as_json,
    as_latex,
    differences,
    finals,
    latex,
    records,
    returns_as_latex,
    sweeps,
    table_1,
)
from tests.studies.folders import config, make_run, make_study, small


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """CartPole as in the paper, two seeds; and one that is not."""
    out = make_study(tmp_path_factory.mktemp("runs"), shapes=PAPER.values(), seeds=2)
    make_run(out, config(shape="clip(eps=0.3)"))
    make_run(out, config(shape="clip(eps=0.2)", lr=0.1))
    return read_study(out)


def test_a_cell_is_the_papers_definition(paper):
    row = finals(paper)[0]
    runs = row.variant.runs
    late = [run.metrics["return_mean"][run.metrics["step"] >= np.quantile(run.metrics["step"], 0.9)]
            for run in runs]  # fmt: skip
    expected = [values.mean() for values in late]
    assert row.summary.mean == pytest.approx(np.mean(expected))
    assert row.summary.std == pytest.approx(np.std(expected))
    assert row.summary.n == row.mean.n == 2
    assert row.published.mean == 478
    assert row.difference.estimate == pytest.approx(np.mean(expected) - 478)


def test_only_the_papers_config_stands_in_its_table(paper):
    cells = table_1(finals(paper))
    assert list(cells) == ["CartPole-v1"]
    assert list(cells["CartPole-v1"]) == list(PAPER)
    apart = {row.variant.label: row.apart for row in finals(paper)}
    assert apart["clip"] == ""
    assert apart["clip, lr 0.1"] == "other settings: lr 0.1 (paper: 0.0003)"
    assert apart["clip(eps=0.3)"] == "not the paper's knob"
    assert why_not_compared("Ant-v4", "spo(eps=0.2)", {}) == "not in the paper"


def test_differences_are_to_clip_and_not_paired(paper):
    found = {d.first.label: d for d in differences(paper)}
    assert found.keys() == {"per-sample", "kl", "adaptive-kl", "clip(eps=0.3)"}
    assert {d.second.label for d in found.values()} == {"clip"}
    same = found["per-sample"]
    assert (same.identical, same.final.estimate, same.final.p) == (True, 0.0, None)
    kl = found["kl"]
    pairs = [a.final - b.final for a, b in zip(kl.first.runs, kl.second.runs, strict=True)]
    assert kl.final.estimate == pytest.approx(np.mean(pairs))
    assert (kl.final.method, kl.final.n, kl.final.against) == ("Welch t", 2, 2)
    assert (found["clip(eps=0.3)"].final.low, found["clip(eps=0.3)"].final.against) == (None, 2)


def test_claims_are_corrected_for_all_comparisons_of_the_study(tmp_path):
    shapes = ("clip(eps=0.2)", "per-sample(eps=0.2)", "kl(b=1.0)", "spo(eps=0.2)")
    make_study(tmp_path, ("CartPole-v1", "Hopper-v4"), shapes, 3, **small())
    found = differences(read_study(tmp_path))
    tested = [d for d in found if not d.identical]
    assert (len(found), len(tested)) == (6, 4)  # per-sample is clip, to the byte: nothing to test
    for measure in ("final", "over_training"):
        estimates = [getattr(d, measure) for d in tested]
        assert [e.p_holm for e in estimates] == holm(np.array([e.p for e in estimates])).tolist()
        assert {e.family for e in estimates} == {4}


def test_how_old_samples_are_held_is_part_of_a_method(tmp_path):
    """Each is held to PPO-Clip with samples as old, held in the same way, else as usual."""
    settings = [
        ("clip(eps=0.2)", {"lag": 2}), ("spo(eps=0.2)", {"lag": 2}),
        ("clip(eps=0.2)", {"lag": 2, "ratio": "decoupled"}),
        ("spo(eps=0.2)", {"lag": 2, "ratio": "decoupled"}),
        ("spo(eps=0.2)", {"lag": 2, "trace": "recorded"}),
        ("spo(eps=0.2)", {"lag": 4, "ratio": "decoupled"}),
        ("clip(eps=0.2)", {}), ("clip(eps=0.2)", {"normalise_advantages": "none"}),
    ]  # fmt: skip
    for shape, more in settings:
        make_run(tmp_path, config(shape=shape, **small(**more)))
    found = differences(read_study(tmp_path))
    assert {d.first.label: d.second.label for d in found} == {
        "spo, lag 2": "clip, lag 2",
        "clip, lag 2, ratio decoupled": "clip, lag 2",
        "spo, lag 2, ratio decoupled": "clip, lag 2, ratio decoupled",
        "spo, lag 2, trace recorded": "clip, lag 2",
    }


def test_somebodys_own_shape_is_never_the_reference_beside_a_known_one(tmp_path):
    make_study(tmp_path, shapes=("a.py:Mine()", "spo(eps=0.2)"), seeds=2, **small())
    (found,) = differences(read_study(tmp_path))
    assert (found.first.shape, found.second.shape) == ("a.py:Mine()", "spo(eps=0.2)")


def test_the_area_under_the_curve_stands_beside_the_final_return(paper):
    study_rows, compared = finals(paper), differences(paper)
    written = records(study_rows, compared)
    for row, record in zip(study_rows, written, strict=True):
        area = [run.over_training for run in row.variant.scored]
        if area:
            assert row.over_training.estimate == pytest.approx(np.mean(area))
            assert record["over_training"] == row.over_training.estimate
            assert record["over_training_low"] == row.over_training.low
            assert f"${row.over_training.estimate:.0f}$" in returns_as_latex(study_rows)
    (kl,) = [d for d in compared if d.first.label == "kl"]
    assert kl.over_training.estimate == pytest.approx(
        np.mean(list(kl.first.over_training.values()))
        - np.mean(list(kl.second.over_training.values()))
    )
    assert "over_training_minus_reference_p_holm" in as_csv(written)
    assert json.loads(as_json(written)) == written


def test_diverged_and_open_runs_are_counted_and_not_averaged(tmp_path):
    make_run(tmp_path, config(seed=0, **small()))
    make_run(tmp_path, config(seed=1, **small()), 4, "diverged", "nan")
    make_run(tmp_path, config(seed=2, **small()), 4, "running")
    make_run(tmp_path, config(seed=0, shape="is", **small()), 4, "diverged", "nan")
    clip, free = finals(read_study(tmp_path))
    assert (clip.summary.n, clip.summary.diverged, clip.open) == (1, 1, 1)
    assert clip.mean.low is None
    assert (free.summary, free.mean, free.open) == (None, None, 0)
    assert differences(read_study(tmp_path)) == []


def test_a_run_without_returns_has_no_score(tmp_path):
    make_run(tmp_path, config(**small()), without=("kill",))
    path = make_run(tmp_path, config(seed=1, **small()), 1)
    assert path.exists()
    study = read_study(tmp_path)
    study.runs[1].metrics["return_mean"][:] = np.nan
    (row,) = finals(study)
    assert row.summary.n == 1


def test_sweeps(tmp_path):
    for eps in (0.1, 0.2, 0.3):
        make_study(tmp_path, shapes=[f"clip(eps={eps})"], seeds=2, **small())
    for target in (0.01, 0.1):
        full = PAPER["ppo_kl_adaptive"].replace("target=0.02", f"target={target}")
        make_study(tmp_path, shapes=[full], seeds=2, **small())
    make_run(tmp_path, config(shape="spo(eps=0.2)", **small()))
    make_run(tmp_path, config(shape="clip(low=0.2, high=0.3)", **small()))
    found = {(s.shape, s.knob): s for s in sweeps(finals(read_study(tmp_path)))}
    assert found.keys() == {("clip", "eps"), ("adaptive-kl", "target")}
    assert [value for value, _ in found["clip", "eps"].points] == [0.1, 0.2, 0.3]
    assert [row.mean.n for _, row in found["clip", "eps"].points] == [2, 2, 2]


def test_sweeps_do_not_mix_settings(tmp_path):
    make_run(tmp_path, config(shape="clip(eps=0.1)", **small()))
    make_run(tmp_path, config(shape="clip(eps=0.2)", **small(lr=0.1)))
    assert sweeps(finals(read_study(tmp_path))) == []


def test_csv_has_every_number(paper):
    rows = finals(paper)
    read = list(csv.DictReader(io.StringIO(as_csv(records(rows, differences(paper))))))
    assert len(read) == len(rows)
    for row, line in zip(rows, read, strict=True):
        assert line["label"] == row.variant.label
        assert float(line["mean"]) == row.summary.mean
        assert float(line["std"]) == row.summary.std
        assert int(line["seeds"]) == row.summary.n
    assert (read[0]["published_mean"], read[0]["not_compared"]) == ("478.0", "")
    assert as_csv([]) == ""


def test_latex(paper):
    rows = finals(paper)
    text = as_latex(table_1(rows))
    mean, std = rows[0].summary.mean, rows[0].summary.std
    assert rf"CartPole & ours ($n = 2$) & ${mean:.0f} \pm {std:.0f}$" in text
    assert r"& paper & $478 \pm 18$ & $478 \pm 18$ & $484 \pm 23$ & $492 \pm 9$ \\" in text
    assert text.count("{") == text.count("}")
    assert "No finished runs" in as_latex({})
    assert returns_as_latex(rows).count(r"\\") == len(rows) + 1
    assert latex(r"50% of \a_b{c}~^") == (
        r"50\% of \textbackslash{}a\_b\{c\}\textasciitilde{}\textasciicircum{}"
    )
