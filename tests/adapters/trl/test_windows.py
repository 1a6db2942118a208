"""What is logged is of all tokens since the last entry: nothing in it is a mean of means."""

import numpy as np
import pytest
import torch

from examples.trl_grpo import prompts
from klip.adapters import trl_window
from klip.adapters.trl import KlipGRPOTrainer
from klip.theory import ranked
from klip.theory.diagnostics import QUANTILES
from tests.adapters.trl.world import logged, trainer

WINDOW = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "logging_steps": 4,
    "max_steps": 8,
    "learning_rate": 5e-3,
}
"""Sixteen losses an entry: four of each update, and four updates."""


class Watched(KlipGRPOTrainer):
    """Keeps what the shape did to each token of each loss."""

    def __init__(self, *args, **named):
        self.seen = []
        self.windows = []
        super().__init__(*args, **named)

    def _log_diagnostics(self):
        self.seen.append(self._klip.diagnostics)
        super()._log_diagnostics()

    def log(self, logs, start_time=None):
        if self.seen:
            self.windows.append(self.seen)
            self.seen = []
        super().log(logs, start_time)


def by_hand(window, chosen):
    """The metrics of PPO-Clip over the tokens of all losses of a window, with NumPy alone."""

    def every(tensor):
        parts = [tensor(d).expand_as(d.m)[chosen(d)] for d in window]
        return torch.cat(parts).double().numpy()

    w, a = np.exp(every(lambda d: d.log_ratio)), every(lambda d: d.advantage)
    m = every(lambda d: d.m)
    mass, beta = np.abs(w * a), m - w * a
    beta[np.abs(beta) < 1e-6] = 0.0
    kill = ((w > 1.2) & (a > 0)) | ((w < 0.8) & (a < 0))
    row = {
        "tokens": w.size, "kill": kill.mean(), "killed_mass": mass[kill].sum() / mass.sum(),
        "pull": np.abs(m).sum() / mass.sum(), "ratio_mean": w.mean(), "ratio_std": w.std(),
        "ratio_max": w.max(), "ratio_min": w.min(), "k3": (w - 1 - np.log(w)).mean(),
        "zeroed": ((m == 0) & (a != 0)).mean(), "surrogate": (w * a).mean(),
    }  # fmt: skip
    for name, values in (("ratio", w), ("beta", beta), ("beta_kill", beta[kill])):
        row |= {f"{name}_p{q:02d}": np.percentile(values, q) for q in QUANTILES}
    return row


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    ours = {"shape": "clip(eps=0.2)", "answer_marker": "#"}
    made = trainer(tmp_path_factory.mktemp("windows"), Watched, ours=ours, **WINDOW)
    made.train()
    return made


def test_an_entry_is_of_all_tokens_since_the_last(run):
    entries = logged(run)
    assert [len(window) for window in run.windows] == [16, 16]
    assert len(entries) == 2
    for entry, window in zip(entries, run.windows, strict=True):
        wanted = by_hand(window, lambda d: d.active)
        assert wanted["kill"] > 0.02
        for name, value in wanted.items():
            assert entry[f"klip/{name}"] == pytest.approx(value, rel=2e-5, abs=2e-5), name
        assert entry["klip/sequences"] == 16 * 8
        for name in ("ratio_max", "ratio_min"):
            per_loss = [d.metrics()[name] for d in window]
            assert entry[f"klip/{name}"] in per_loss  # an extreme is one token's
            assert abs(np.mean(per_loss) - entry[f"klip/{name}"]) > 0.05


def test_spans_and_ages_are_of_all_tokens_too(run):
    for entry, window in zip(logged(run), run.windows, strict=True):
        for span in ("answer", "reasoning"):
            wanted = by_hand(window, lambda d, span=span: d.active & d.spans[span])
            for name in ("tokens", "kill", "killed_mass", "ratio_max", "ratio_std"):
                found = entry[f"klip/{span}/{name}"]
                assert found == pytest.approx(wanted[name], rel=2e-5, abs=2e-5), (span, name)
        ages = [name for name in entry if name.startswith("klip/age=") and "tokens" in name]
        assert sum(entry[name] for name in ages) == entry["klip/tokens"]
        assert not [n for n in entry if n.startswith("klip/answer/") and n.endswith("_p50")]


def test_a_diagnostic_that_is_added_is_pooled_by_itself(run):
    """Every metric that one batch has is in the log, whatever it is called."""
    names = run.windows[0][0].metrics()
    whole = {name for name in names if "/" not in name}
    assert {f"klip/{name}" for name in whole} <= logged(run)[0].keys()


def test_the_share_of_answers_is_of_all_completions(run):
    for entry in logged(run):
        share = entry["klip/answer_found"]
        assert 0 < share < 1
        assert share * 64 == pytest.approx(round(share * 64))  # two generations of 32 completions


def test_windows_of_evaluation_are_their_own(tmp_path):
    changes = WINDOW | {"logging_steps": 2, "max_steps": 4, "per_device_eval_batch_size": 8}
    ours = {"shape": "clip(eps=0.2)", "eval_dataset": prompts(2)}
    held = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}
    made = trainer(tmp_path, Watched, ours=ours, **changes, **held)
    made.train()
    history = made.state.log_history
    train = [e["klip/sequences"] for e in history if "klip/sequences" in e]
    held = [e["eval_klip/sequences"] for e in history if "eval_klip/sequences" in e]
    assert train == [64, 64]  # two updates of four losses of eight
    assert held == [16] * 5  # two losses an evaluation, or one of two prompts' completions
    assert not made._klip.windows


def test_many_tokens_are_counted_in_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(ranked.joined, "__defaults__", (100,))
    monkeypatch.setattr(trl_window, "LIMIT", 100)
    made = trainer(tmp_path, Watched, ours={"shape": "clip(eps=0.2)"}, **WINDOW | {"max_steps": 4})
    made.train()
    (entry,), (window,) = logged(made), made.windows
    wanted = by_hand(window, lambda d: d.active)
    assert wanted["tokens"] > 500
    for name, value in wanted.items():
        allowed = {"rel": 2 * ranked.ERROR} if "_p" in name else {"rel": 2e-5}
        assert entry[f"klip/{name}"] == pytest.approx(value, abs=2e-5, **allowed), name


def test_what_is_left_at_the_end_is_logged(tmp_path):
    made = trainer(tmp_path, Watched, ours={"shape": "clip"}, **WINDOW | {"max_steps": 6})
    made.train()
    counts = [e["klip/sequences"] for e in made.state.log_history if "klip/sequences" in e]
    assert counts == [128, 64]
