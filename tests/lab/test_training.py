"""Training: the shape really decides, ages really vary, and the same seed gives the same bytes."""

import numpy as np
import pytest

from klip.lab.running import Keeping, train
from klip.lab.training import Run
from klip.lab.warmup import read_warmup, warmup_path
from klip.runs import read_run

from .conftest import tiny


def start(home, c):
    return Run(c, read_warmup(warmup_path(home, c.warmup), c.warmup))


def rows_of(home, c, count=None):
    run = start(home, c)
    return [run.iterate() for _ in range(count or c.iterations)]


def test_the_clip_kills_tokens_and_without_a_band_nothing_changes(home):
    narrow, wide, none = (rows_of(home, tiny(s)) for s in ("clip(eps=0.05)", "clip(eps=1e6)", "is"))
    assert np.mean([row["kill"] for row in narrow]) > 0.01
    assert all(row["kill"] == 0 for row in wide)
    # a clip that never bites is importance sampling: the very same training
    assert [row["return_mean"] for row in wide] == [row["return_mean"] for row in none]
    assert [row["return_mean"] for row in narrow] != [row["return_mean"] for row in none]


def test_the_first_update_of_a_fresh_batch_kills_nothing(home):
    rows = rows_of(home, tiny("clip(eps=0.05)", epochs=1, minibatches=1), 3)
    assert all(row["kill"] < 1e-3 for row in rows)


def test_spans_add_up_to_the_whole(home):
    for row in rows_of(home, tiny("clip(eps=0.05)"), 3):
        for part in ("kill", "pass"):
            whole = sum(row[f"{s}_share"] * row[f"{s}_{part}"] for s in ("answer", "reasoning"))
            assert whole == pytest.approx(row[part])


def test_a_threshold_by_span_acts_in_its_span_alone(home):
    shape = "clip(eps=from-end(tail=1e6, body=0.02, count=1))"
    rows = rows_of(home, tiny(shape), 3)
    assert all(row["answer_kill"] == 0 for row in rows)
    assert any(row["reasoning_kill"] > 0 for row in rows)


def test_ages_vary_from_none_to_the_oldest(home):
    rows = rows_of(home, tiny(replay=3))
    assert rows[0]["age_share"] == [1.0, 0.0, 0.0, 0.0]
    late = np.mean([row["age_share"] for row in rows[3:]], axis=0)
    assert (late > 0.05).all()
    assert all(sum(row["age_share"]) == pytest.approx(1) for row in rows)
    for row in rows:
        kill = sum(s * (k or 0.0) for s, k in zip(row["age_share"], row["age_kill"], strict=True))
        assert kill == pytest.approx(row["kill"])


def test_all_arms_of_a_seed_see_the_same_prompts_and_dice(home):
    first = [rows_of(home, tiny(shape), 1)[0] for shape in ("clip(eps=0.05)", "is")]
    other = rows_of(home, tiny(seed=7), 1)[0]
    for key in ("return_mean", "entropy", "start_held_out"):
        assert first[0][key] == first[1][key]
    assert other["entropy"] != first[0]["entropy"]


@pytest.mark.parametrize("replay", [0, 3])
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bytes(home, tmp_path, replay):
    c = tiny(replay=replay)
    copy = tmp_path / "stopped"
    for out in (tmp_path / "whole", copy):
        out.mkdir()
        (out / "warm-up").symlink_to(home / "warm-up")
    assert train(c, Keeping(tmp_path / "whole")).status == "done"
    for _ in range(c.iterations):  # one iteration at a time, each in a run begun anew
        calls = iter([False, True])
        train(c, Keeping(copy), lambda calls=calls: next(calls))
    assert train(c, Keeping(copy)).status == "done"
    one, two = (read_run(Keeping(out).path(c)) for out in (tmp_path / "whole", copy))
    assert one.digest() == two.digest()
    metrics = [(record.path / "metrics.jsonl").read_bytes() for record in (one, two)]
    assert metrics[0] == metrics[1]


def test_a_diverged_run_says_so_and_is_not_repeated(home, tmp_path):
    (tmp_path / "warm-up").symlink_to(home / "warm-up")
    c = tiny("is", learning_rate=1e30)
    news = train(c, Keeping(tmp_path))
    assert news.status == "diverged"
    assert "not finite" in news.reason
    assert train(c, Keeping(tmp_path)).status == "diverged"


def test_sample_completions_explain_their_tokens(home):
    c = tiny("clip(eps=0.05)", prompts=16)
    run = start(home, c)
    for _ in range(c.shown):
        run.iterate()
    assert run.samples
    for sample in run.samples:
        sets = zip(sample.part, sample.ratio, sample.pull, strict=True)
        for part, w, m in sets:
            out = w > 1.05 if sample.advantage > 0 else w < 0.95
            assert (part == "k") == out
            assert m == (0 if part == "k" else pytest.approx(w * sample.advantage, rel=2e-3))


@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_run_goes_on_from_any_iteration(home, done):
    """Stopped before its first update, too, where the optimiser has nothing to remember."""
    c = tiny(replay=3)
    whole, part, again = (start(home, c) for _ in range(3))
    rows = [whole.iterate() for _ in range(done + 2)]
    for _ in range(done):
        part.iterate()
    again.restore(done, part.arrays())
    assert [again.iterate() for _ in range(2)] == rows[done:]
