"""Results: what is shown follows from the runs, packed or not, and damage is named."""

import json
import shutil

import numpy as np
import pytest

from klip.errors import KlipError
from klip.lab.figures import records, write_figures
from klip.lab.page import conclusion, points, render, says
from klip.lab.results import Arm, difference, final, pack_results, read_results, start
from klip.studies.scores import Estimate
from klip.studies.study import Run


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def fake(name, finals, starts=0.5, status="done"):
    """An arm whose runs ended with these accuracies."""
    runs = [
        Run(
            name, name, {"seed": seed, "task": "addition", "shape": "clip"}, status, "", (), (),
            (), "", {"held_out": np.array([value]), "start_held_out": np.array([starts]),
                     "kill": np.array([0.1])},
        )
        for seed, value in enumerate(finals)
    ]  # fmt: skip
    return Arm(name, "g", "clip", 0, "", tuple(runs))


def test_arms_stand_in_the_order_of_the_plan(trained):
    groups = read_results(trained).groups
    assert [arm.name for arm in groups["position"]] == ["plain clip", "sharp <answer>", "wide clip"]
    assert [arm.name for arm in groups["age"]] == ["constant epsilon", "hard drop"]
    assert all([run.seed for run in arm.runs] == [0, 1] for arm in groups["position"])


def test_differences_are_paired_by_seed():
    e = difference(fake("x", [0.6, 0.7, 0.9]), fake("y", [0.5, 0.6, 0.7]))
    assert e.estimate == pytest.approx(0.4 / 3)
    assert (e.n, e.low < 0.1 < e.high) == (3, True)


def test_a_run_below_half_of_its_warm_up_has_collapsed():
    assert fake("x", [0.24, 0.26, 0.9]).collapsed == 1
    assert fake("x", [0.9], status="diverged").collapsed == 1


def test_the_conclusion_says_what_the_intervals_allow_and_no_more():
    base = fake("plain", [0.70, 0.72, 0.71, 0.69, 0.73])
    better = fake("better", [0.80, 0.83, 0.81, 0.80, 0.84])
    worse = fake("worse", [0.50, 0.55, 0.52, 0.50, 0.51])
    unclear = fake("unclear", [0.60, 0.85, 0.71, 0.75, 0.66])
    told = conclusion([base, better, worse, unclear])
    higher, lower, left = (
        next(line for line in told if line.startswith(how))
        for how in ("Shown to end higher", "Shown to end lower", "Not told apart")
    )
    assert "“better” (" in higher
    assert "“worse” (" in lower
    assert "“unclear” (" in left
    assert "better" not in left


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.1, 0.2, "higher"), (-0.2, -0.1, "lower"), (-0.1, 0.2, "open"), (None, None, "open"),
     (0.1, 0.1, "open"), (0.0, 0.2, "open")],
)  # fmt: skip
def test_a_verdict_needs_an_interval_that_leaves_out_zero(low, high, said):
    assert says(Estimate(0.1, low, high, 5, "t", 0.95)) == said


def test_points_have_a_sign():
    assert [points(x) for x in (0.1, -0.1, 0.0, None)] == ["+10.0", "−10.0", "0.0", "–"]


def test_the_packed_form_is_small_and_gives_the_same_page(trained, tmp_path):
    results = read_results(trained)
    made = pack_results(results, tmp_path / "packed")
    assert made.size < 200_000
    again = read_results(tmp_path / "packed")
    assert render(again) == render(results)
    assert records(again) == records(results)
    shutil.copytree(trained, tmp_path / "elsewhere")
    assert render(read_results(tmp_path / "elsewhere")) == render(results)


def test_figures_are_written_and_are_the_same_twice(trained, tmp_path):
    results = read_results(trained)
    one = write_figures(results, tmp_path / "one")
    two = write_figures(results, tmp_path / "two")
    assert len(one) == 13
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", ["samples.json", "addition.parquet", "runs.json"])
def test_packed_files_that_are_damaged_or_missing_are_named(trained, tmp_path, name):
    folder = tmp_path / "packed"
    pack_results(read_results(trained), folder)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(KlipError, match=r"damaged|cannot be read"):
        read_results(folder)
    (folder / name).unlink()
    with pytest.raises(KlipError, match=name.partition(".")[0]):
        read_results(folder)


def test_changed_samples_are_found_out(trained, tmp_path):
    pack_results(read_results(trained), tmp_path / "packed")
    path = tmp_path / "packed" / "samples.json"
    about = json.loads(path.read_text())
    about["samples"] = about["samples"].replace('"age":0', '"age":1', 1)
    path.write_text(json.dumps(about))
    with pytest.raises(KlipError, match="checksum"):
        read_results(tmp_path / "packed")


def test_a_metrics_file_that_was_changed_is_said_on_the_page(copy):
    path = next(copy.rglob("metrics.jsonl"))
    path.write_text(path.read_text().replace('"iteration": 2', '"iteration": 9'))
    assert "metrics.jsonl is damaged" in render(read_results(copy))


def test_a_run_that_lost_its_checkpoint_is_said_on_the_page(copy):
    folder = next(copy.rglob("metrics.jsonl")).parent
    (folder / "checkpoint.safetensors").write_bytes(b"nothing")
    (folder / "previous.safetensors").unlink(missing_ok=True)
    results = read_results(copy)
    assert [run.status for run in results.study.runs].count("damaged") == 1
    assert "9 of 10" in render(results)


def test_folders_of_something_else_are_refused(tmp_path):
    with pytest.raises(KlipError, match="there is no folder"):
        read_results(tmp_path / "nothing")
    with pytest.raises(KlipError, match="klip tokens run PLAN"):
        read_results(tmp_path)


def test_finals_are_those_of_the_last_row(trained):
    arm = read_results(trained).arms[0]
    for run in arm.runs:
        lines = (trained / run.path / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert (final(run), start(run)) == (rows[-1]["held_out"], rows[0]["start_held_out"])


def test_a_page_can_be_made_while_runs_go_on(copy):
    """An arm without a run that is done, and ages that never came up, leave the page whole."""
    for folder in [p.parent for p in copy.rglob("config.json") if "hard_drop" in str(p)]:
        shutil.rmtree(folder)
    for path in copy.rglob("config.json"):
        if "wide_clip" in str(path):
            (path.parent / "checkpoint.safetensors").unlink()
            (path.parent / "previous.safetensors").unlink(missing_ok=True)
    text = render(read_results(copy))
    assert "Without a seed that is done in both: “wide clip”" in text
