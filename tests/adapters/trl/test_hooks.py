"""The hooks fire or say that they did not; what is logged is ours; an inert shape is announced."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer

from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_settings import on_policy
from klip.errors import KlipError
from klip.tokens import ReferenceKL
from tests.adapters.trl.world import batch, gradient, trainer, window


@pytest.fixture
def ours(tmp_path):
    return trainer(tmp_path, KlipGRPOTrainer, ours={"shape": "clip"})


def test_a_loss_that_asks_for_no_log_probs_is_an_error(ours, monkeypatch):
    inputs = batch(ours)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: torch.zeros(()))
    with pytest.raises(KlipError, match=r"the shape would not act.*trl==1.16"):
        ours._compute_loss(ours.model, inputs)


def test_a_loss_that_reads_the_advantages_too_early_is_an_error(ours, monkeypatch):
    inputs = batch(ours)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda _, model, inputs: inputs["advantages"])
    with pytest.raises(KlipError, match="the shape would not act"):
        ours._compute_loss(ours.model, inputs)


def test_a_fault_of_the_loss_itself_is_not_hidden(ours, monkeypatch):
    inputs = batch(ours)
    its = GRPOTrainer._compute_loss

    def faulty(self, model, inputs):
        its(self, model, inputs)
        raise KeyError("other")

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", faulty)
    with pytest.raises(KeyError, match="other"):
        ours._compute_loss(ours.model, inputs)
    monkeypatch.undo()
    assert gradient(ours, inputs).norm() > 0  # and nothing of it is left behind


def test_log_probs_asked_for_outside_a_loss_are_trls(ours, tmp_path):
    stock = trainer(tmp_path)
    inputs = batch(stock)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attend = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    for of in (stock, ours):
        of.model.eval()
    theirs = stock._get_per_token_logps_and_entropies(stock.model, ids, attend, 12)
    own = ours._get_per_token_logps_and_entropies(ours.model, ids, attend, 12)
    assert torch.equal(own[0], theirs[0])
    assert not ours._metrics["train"]


def test_numbers_that_are_not_finite_are_an_error(ours):
    inputs = batch(ours)
    inputs["old_per_token_logps"][2, 1] = float("nan")
    with pytest.raises(KlipError, match=r"not finite at sequence 2, token 1.*: a smaller"):
        ours._compute_loss(ours.model, inputs)


def test_a_batch_of_which_nothing_counts_pulls_nowhere(ours):
    inputs = batch(ours)
    inputs["completion_mask"] = torch.zeros_like(inputs["completion_mask"])
    assert not gradient(ours, inputs).any()
    assert window(ours)["tokens"] == 0


def test_trls_own_clip_ratios_give_way_to_ours(ours):
    inputs = batch(ours)
    gradient(ours, inputs), gradient(ours, inputs)
    log, own = ours._metrics["train"], window(ours)
    assert not [name for name in log if name.startswith("clip_ratio")]
    assert len(log["entropy"]) == 2
    assert own["tokens"] == 2 * inputs["completion_mask"].sum()
    assert {"inside", "pass", "killed_mass", "beta_p50", "ratio_max"} <= own.keys()
    assert own["kill_negative"] + own["kill_positive"] == pytest.approx(own["kill"])


def test_the_penalty_takes_the_place_of_trls_kl(tmp_path):
    def found(beta, b):
        penalties = [ReferenceKL(b=b)]
        made = trainer(
            tmp_path, KlipGRPOTrainer, ours={"shape": "is", "penalties": penalties}, beta=beta
        )
        inputs = batch(made)
        inputs["advantages"] = torch.zeros(8)  # the penalty alone is left
        inputs["ref_per_token_logps"] = inputs["old_per_token_logps"] - 0.2
        return gradient(made, inputs), made._metrics["train"] | window(made)

    own, log = found(beta=0.1, b=0.5)
    assert torch.allclose(found(beta=9.0, b=0.5)[0], own)  # beta only keeps a reference
    assert torch.allclose(found(beta=0.1, b=1.0)[0], 2 * own)
    assert own.norm() > 0
    assert "kl" not in log
    assert log["reference_k3"] > 0


def test_every_ratio_is_one_is_said_at_once(tmp_path):
    with pytest.warns(UserWarning, match=r"every ratio will be exactly 1.*say by num_iterations=2"):
        made = trainer(tmp_path, KlipGRPOTrainer, ours={"shape": "clip"}, num_iterations=1)
    with warnings.catch_warnings():  # and only once
        warnings.simplefilter("error", UserWarning)
        made.args.max_steps = 2
        made.train()


@pytest.mark.parametrize(
    ("accumulate", "reuse", "iterations", "inert"),
    [(1, 1, 1, True), (4, 4, 1, True), (4, 2, 2, True), (1, 2, 1, False), (2, 2, 2, False)],
)
def test_it_is_said_exactly_when_trl_needs_no_old_log_probs(
    tmp_path, accumulate, reuse, iterations, inert
):
    def make(kind, **more):
        made = trainer(
            tmp_path,
            kind,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=accumulate,
            steps_per_generation=reuse,
            num_iterations=iterations,
            **more,
        )
        return made

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        made = make(KlipGRPOTrainer, ours={"shape": "clip"})
    told = [str(w.message) for w in said if "every ratio will be exactly 1" in str(w.message)]
    assert len(told) == inert
    if inert:  # and what it says to do helps
        enough = int(told[0].rpartition("=")[2])
        better = {**vars(made.args), "num_iterations": enough}
        assert not on_policy(SimpleNamespace(**better))
    scored = made._generate_and_score_completions([{"prompt": "a"}] * 8 * reuse)
    assert ("old_per_token_logps" not in scored) == inert


def test_a_batch_on_which_nothing_moved_is_said_once(tmp_path):
    still = trainer(
        tmp_path, KlipGRPOTrainer, ours={"shape": "clip"},
        learning_rate=0.0, num_iterations=2, max_steps=6,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="every ratio was exactly 1") as said:
        still.train()
    told = [str(w.message) for w in said if "every ratio was exactly 1" in str(w.message)]
    assert len(told) == 1
    assert "in all 2 losses" in told[0]
    assert "learning rate was 0" in told[0]
