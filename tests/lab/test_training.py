"""Training: the shape really decides, ages really vary, and the same seed gives the same bytes."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from klip.engine.advance import Keeping
from klip.engine.job import Stopped
from klip.errors import NotFinite
from klip.lab.training import TokenRun
from klip.runs import read_run
from klip.runs.completions import Completion
from klip.runs.kept import kept_frame

from .conftest import begun, start, tiny, train


def rows_of(home, c, count=None):
    run = start(home, c)
    return [run.iterate() for _ in range(count or c.iterations)]


def test_the_clip_kills_tokens_and_without_a_band_nothing_changes(home):
    narrow, wide, none = (rows_of(home, tiny(s)) for s in ("clip(eps=0.05)", "clip(eps=1e6)", "is"))
    assert np.mean([row["zeroed"] for row in narrow]) > 0.01
    assert all(row["zeroed"] == 0 for row in wide)
    # a clip that never bites is importance sampling: the very same training
    assert [row["return_mean"] for row in wide] == [row["return_mean"] for row in none]
    assert [row["return_mean"] for row in narrow] != [row["return_mean"] for row in none]


def test_the_first_update_of_a_fresh_batch_kills_nothing(home):
    rows = rows_of(home, tiny("clip(eps=0.05)", epochs=1, minibatches=1), 3)
    assert all(row["zeroed"] < 1e-3 for row in rows)


def test_spans_add_up_to_the_whole(home):
    for row in rows_of(home, tiny("clip(eps=0.05)"), 3):
        for part in ("zeroed", "kept", "kill", "pass"):
            whole = sum(row[f"{s}_share"] * row[f"{s}_{part}"] for s in ("answer", "reasoning"))
            assert whole == pytest.approx(row[part])


def test_a_threshold_by_span_acts_in_its_span_alone(home):
    shape = "clip(eps=from-end(tail=1e6, body=0.02, count=1))"
    rows = rows_of(home, tiny(shape), 3)
    assert all(row["answer_zeroed"] == 0 for row in rows)
    assert any(row["reasoning_zeroed"] > 0 for row in rows)


def test_ages_vary_from_none_to_the_oldest(home):
    rows = rows_of(home, tiny(replay=3))
    assert rows[0]["age_share"] == [1.0, 0.0, 0.0, 0.0]
    late = np.mean([row["age_share"] for row in rows[3:]], axis=0)
    assert (late > 0.05).all()
    assert all(sum(row["age_share"]) == pytest.approx(1) for row in rows)
    for row in rows:
        kill = sum(s * (k or 0.0) for s, k in zip(row["age_share"], row["age_zeroed"], strict=True))
        assert kill == pytest.approx(row["zeroed"])


def test_two_ratios_reach_the_shapes_of_old_completions(home):
    """The start is the policy before the first update: nothing has moved, and c is what is old."""
    run = start(home, tiny("geppo(eps=0.05)", replay=3))
    for _ in range(3):
        run.iterate()
    run.buffer = [*run.buffer, run._sample()[0]]
    batch = run._drawn()
    diagnostics = run._loss(batch, run._masks(batch), run._begun(batch)).diagnostics
    move, mismatch = diagnostics.ratios
    age = (run.iteration - batch.version)[:, None].expand_as(move)
    assert float(move[diagnostics.active].abs().max()) < 1e-5
    assert float(mismatch[diagnostics.active & (age == 0)].abs().max()) < 1e-5
    assert float(mismatch[diagnostics.active & (age == 3)].abs().max()) > 1e-3
    assert diagnostics.metrics()["kill"] == 0  # its band is around c


def test_fresh_completions_need_no_second_look(home):
    """Without replay the start is the sampler, so GePPO is the clip, to the last bit."""
    runs = [start(home, tiny(shape)) for shape in ("geppo(eps=0.05)", "clip(eps=0.05)")]
    rows = [[run.iterate() for _ in range(2)] for run in runs]
    assert rows[0] == rows[1]
    assert same(*(run.arrays() for run in runs))


@pytest.mark.parametrize("shape", ["m2po(limit=1e-6) * is", "vaco(delta=1e-3) * is", "p3o-ess"])
def test_what_looks_at_the_batch_acts_on_old_completions(home, shape):
    kept = np.array([row["age_kept"] for row in rows_of(home, tiny(shape, replay=3))], float)
    assert np.nanmin(kept[:, 1:]) < 1


def test_all_arms_of_a_seed_see_the_same_prompts_and_dice(home):
    first = [rows_of(home, tiny(shape), 1)[0] for shape in ("clip(eps=0.05)", "is")]
    other = rows_of(home, tiny(seed=7), 1)[0]
    for key in ("return_mean", "entropy", "start_held_out"):
        assert first[0][key] == first[1][key]
    assert other["entropy"] != first[0]["entropy"]


def after(calls):
    """Asks to stop at the n-th look."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("replay", [0, 3])
def test_stopped_anywhere_a_run_goes_on_to_the_same_bytes(home, tmp_path, replay):
    """Between iterations and in the middle of their updates, again and again."""
    c = tiny(replay=replay)
    whole, cut = (begun(home, tmp_path / name) for name in ("whole", "cut"))
    assert train(c, whole).status == "done"
    lives, last = 0, ""
    while last != "done":
        last = train(c, cut, after(9 + lives % 3)).status  # an iteration looks seven times
        assert last in ("done", "stopped")
        lives += 1
    assert lives >= c.iterations - 1
    one, two = (read_run(Keeping(out).path(c)) for out in (whole, cut))
    assert one.digest() == two.digest()
    metrics = [(record.path / "metrics.jsonl").read_bytes() for record in (one, two)]
    assert metrics[0] == metrics[1]
    assert set(one.machines[0]) == {"since", "klip", "numpy", "torch", "python", "cpu"}


def same(one, two):
    return one.keys() == two.keys() and all(one[k].tobytes() == two[k].tobytes() for k in one)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (NotFinite("log_prob is not finite"), "diverged", "log_prob is not finite"),
        (ZeroDivisionError("by zero\nor so"), "failed", "ZeroDivisionError: by zero or so"),
    ],
)
def test_trouble_costs_no_state(home, tmp_path, monkeypatch, error, status, said):
    """In the middle of the second iteration, after two of its updates: the run stays before it."""
    c, loss, calls = tiny(shown=99), TokenRun._loss, []

    def late(run, *part):
        calls.extend([run.iteration] * (run.iteration == 1))
        if len(calls) == 3:
            raise error
        return loss(run, *part)

    out = begun(home, tmp_path / "runs")
    with monkeypatch.context() as patch:
        patch.setattr(TokenRun, "_loss", late)
        news = train(c, out)
    assert news.status == status
    assert said in news.reason
    assert "in iteration 2 of 6" in news.reason
    assert "\n" not in news.reason
    record = read_run(Keeping(out).path(c))
    assert (record.status, record.iteration, len(record.rows)) == (status, 1, 1)
    whole = start(home, c)
    whole.iterate()
    assert same(dict(record.arrays), whole.arrays())
    assert train(c, out).status == ("done" if status == "failed" else "diverged")


OWN = """
from klip.shapes import Shape

class Raises(Shape):
    def multiplier(self, s):
        raise ZeroDivisionError("by zero")

class NeverStarts(Raises):
    def init(self):
        raise ZeroDivisionError("by\\nzero")

class NaN(Shape):
    def multiplier(self, s):
        return s.w * float("nan")
"""


@pytest.mark.parametrize(
    ("shape", "status", "said"),
    [
        ("Raises", "failed", "ZeroDivisionError: by zero, in iteration 1 of 6"),
        ("NeverStarts", "failed", "a mistake in the code: ZeroDivisionError: by zero ("),
        ("NaN", "diverged", "the multiplier is not finite at sequence 0, token 0 ("),
    ],
)
def test_a_shape_that_goes_wrong_says_so_in_a_line(home, tmp_path, shape, status, said):
    """And advises nothing that a plan does not have."""
    file = tmp_path / "own.py"
    file.write_text(OWN)
    news = train(tiny(f"{file}:{shape}"), begun(home, tmp_path / "runs"))
    assert (news.status, news.saved) == (status, 0)
    assert news.reason.startswith(said)
    assert news.reason.isprintable()
    assert "nonfinite" not in news.reason


def test_a_diverged_run_says_so_and_is_not_repeated(home, tmp_path):
    c, out = tiny("is", learning_rate=1e30), begun(home, tmp_path / "runs")
    news = train(c, out)
    assert news.status == "diverged"
    assert "not finite" in news.reason
    assert "nothing of it was applied" in news.reason
    record = read_run(Keeping(out).path(c))
    assert record.iteration == 0
    assert same(dict(record.arrays), start(home, c).arrays())
    assert train(c, out).status == "diverged"


def test_without_its_warm_up_a_run_says_what_it_needs(tmp_path):
    news = train(tiny(), tmp_path)
    assert news.status == "stopped"
    assert "it needs the warm-up of seed 0, which is not there" in news.reason


def test_asked_to_stop_it_stops_between_two_updates(home):
    run = start(home, tiny())
    with pytest.raises(Stopped):
        run.iterate(after(3))


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


def test_kept_tokens_change_nothing_else(home):
    """At every look, from learning that is the same to the bit; and in place of `shown`."""
    slow = {"prompts": 16, "learning_rate": 1e-3}  # so that completions go on to differ
    plain, keeping = (start(home, tiny("clip(eps=0.05)", keep_tokens=n, **slow)) for n in (0, 3))
    rows = [[run.iterate() for _ in range(6)] for run in (plain, keeping)]
    assert rows[0] == rows[1]
    before, after = plain.arrays(), keeping.arrays()
    assert all(np.array_equal(before[name], after[name]) for name in before if name != "samples")
    frame = kept_frame(keeping.samples, "clip", 0)
    assert frame["step"].unique().sort().to_list() == [2, 4, 6]
    assert not any(frame[name].is_null().any() for name in frame.columns)
    for row in frame.iter_rows(named=True):
        out = row["ratio"] > 1.05 if row["advantage"] > 0 else row["ratio"] < 0.95
        assert (row["part"] == "kill") == (row["fate"] == "zeroed") == out
    after_marker = (pl.col("text") == "#").cum_sum().over("step", "sequence") > 0
    answers = frame.filter(after_marker & (pl.col("text") != "#"))["span"]
    assert answers.unique().to_list() == ["answer"]
    assert Completion.from_json(after["samples"].tobytes()) == keeping.samples


def test_a_run_without_kept_tokens_is_the_run_that_it_was():
    c = tiny("clip")
    assert "keep_tokens" not in c.stored
    assert replace(c, keep_tokens=2).id != c.id == replace(c, keep_tokens=0).id
