"""Whole runs: ours with PPO-Clip is TRL's own; spans and ages reach the shape and the metrics."""

import math

import pytest
import torch
from trl import GRPOTrainer

from examples.trl_grpo import prompts
from klip.adapters.trl import KlipGRPOTrainer
from klip.shapes import ByAge, Clip, FromEnd
from tests.adapters.trl.world import Wide, WideKlip, logged, parameters, trainer

STEPS, ITERATIONS = 24, 4


def run(folder, kind, ours=None, **changes):
    """24 updates, four on each batch of completions."""
    settings = {"max_steps": STEPS, "num_iterations": ITERATIONS, "learning_rate": 2e-3}
    made = trainer(folder, kind, ours=ours, **(settings | changes))
    start = parameters(made).clone()
    made.train()
    assert made.state.global_step == STEPS
    assert (parameters(made) - start).norm() > 0.03 * start.norm()  # it went somewhere
    return made


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Ours with PPO-Clip, its log-probs in float64."""
    return run(tmp_path_factory.mktemp("plain"), WideKlip, {"shape": "clip(eps=0.2)"})


def killed_when_old(of):
    """The share killed at each update that is not the first on its completions."""
    kills = [entry["klip/kill"] for entry in logged(of)]
    assert kills[::ITERATIONS] == [0.0] * (STEPS // ITERATIONS)  # every ratio is 1 there
    return [kill for i, kill in enumerate(kills) if i % ITERATIONS]


def test_a_run_is_trls_own_run(plain, tmp_path):
    # Completions are sampled from what was learned, so that rounding would feed back: in float64
    # no draw is near enough to an edge to fall otherwise.
    stock = run(tmp_path, Wide)
    wanted, got = parameters(stock), parameters(plain)
    assert (got - wanted).abs().max() <= 1e-14 * wanted.abs().max()
    kills = killed_when_old(plain)
    assert sum(kill > 0 for kill in kills) > 0.9 * len(kills)
    assert 0.05 < sum(kills) / len(kills) < 0.6
    for its, own in zip(logged(stock), logged(plain), strict=True):
        assert own["klip/kill"] == pytest.approx(its["clip_ratio/region_mean"], abs=1e-6)
        if "reward" in its:
            assert own["reward"] == its["reward"]  # the very same completions


def test_a_run_with_trls_own_log_probs_is_trls_own_run(tmp_path):
    stock = run(tmp_path, GRPOTrainer)
    ours = run(tmp_path, KlipGRPOTrainer, {"shape": "clip(eps=0.2)"})
    wanted, got = parameters(stock), parameters(ours)
    assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    kills = killed_when_old(ours)
    assert sum(kill > 0 for kill in kills) > 0.9 * len(kills)


def test_several_minibatches_a_batch_are_off_policy_too(tmp_path):
    changes = {
        "num_iterations": 1, "per_device_train_batch_size": 8, "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,
    }  # fmt: skip
    stock = run(tmp_path, Wide, **changes)
    ours = run(tmp_path, WideKlip, {"shape": "clip(eps=0.2)"}, **changes)
    wanted, got = parameters(stock), parameters(ours)
    assert (got - wanted).abs().max() <= 1e-14 * wanted.abs().max()
    entries = logged(ours)
    assert all("klip/age=0/kill" in entry for entry in entries[::2])
    assert all("klip/age=1/kill" in entry for entry in entries[1::2])
    assert sum(entry["klip/kill"] > 0 for entry in entries[1::2]) > 8


def test_spans_are_told_apart_and_equal_thresholds_are_the_plain_shape(plain, tmp_path):
    by_part = Clip(eps=FromEnd(tail=0.2, body=0.2, count=1))
    same = run(tmp_path, WideKlip, {"shape": by_part, "answer_marker": "#"})
    assert torch.equal(parameters(same), parameters(plain))
    entries = logged(same)
    both = [e for e in entries if e["klip/answer/tokens"] and e["klip/reasoning/tokens"]]
    assert len(both) == STEPS
    assert all(0 < e["klip/answer_found"] < 1 for e in entries if "klip/answer_found" in e)
    for e in both:
        whole = e["klip/answer/tokens"] + e["klip/reasoning/tokens"]
        assert whole == e["klip/tokens"]
        split = [
            e[f"klip/{part}/kill"] * e[f"klip/{part}/tokens"] for part in ("answer", "reasoning")
        ]
        assert sum(split) == pytest.approx(e["klip/kill"] * whole, abs=1e-3)
    assert sum(e["klip/answer/kill"] != e["klip/reasoning/kill"] for e in both) > STEPS // 2


def test_a_sharp_answer_is_killed_more(tmp_path):
    sharp = Clip(eps=FromEnd(tail=0.02, body=0.4, count=1))
    made = run(tmp_path, WideKlip, {"shape": sharp, "answer_marker": "#"})
    late = [e for i, e in enumerate(logged(made)) if i % ITERATIONS]
    answer = sum(e["klip/answer/kill"] for e in late) / len(late)
    reasoning = sum(e["klip/reasoning/kill"] for e in late) / len(late)
    assert answer > reasoning + 0.1


def test_ages_are_told_apart_and_equal_thresholds_are_the_plain_shape(plain, tmp_path):
    by_age = Clip(eps=ByAge(fresh=0.2, half_life=1.0, floor=0.2))
    same = run(tmp_path, WideKlip, {"shape": by_age})
    assert torch.equal(parameters(same), parameters(plain))
    labels = ["0", "1", "2-3", "2-3"]
    for i, entry in enumerate(logged(same)):
        label = labels[i % ITERATIONS]
        assert entry[f"klip/age={label}/kill"] == entry["klip/kill"]
        assert not any(f"klip/age={other}/kill" in entry for other in set(labels) - {label})


def test_a_region_that_shrinks_with_age_kills_more_of_the_old(plain, tmp_path):
    narrowing = run(tmp_path, WideKlip, {"shape": "age-conditioned(eps=0.2, half_life=0.5)"})
    assert not torch.equal(parameters(narrowing), parameters(plain))

    def mean(of, start):
        kills = [e["klip/kill"] for e in logged(of)][start::ITERATIONS]
        return sum(kills) / len(kills)

    assert mean(narrowing, 3) > mean(plain, 3) + 0.1


def test_the_log_probs_of_a_rollout_function_reach_the_gate(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def uniform(prompts, its):
        """Five of the five tokens that say something, each at random."""
        completions = [torch.randint(3, 8, (5,)).tolist() for _ in prompts]
        return {
            "prompt_ids": [its.processing_class.encode(text) for text in prompts],
            "completion_ids": completions,
            "logprobs": [[-math.log(5)] * 5 for _ in prompts],
        }

    def first_pull(shape):
        made = trainer(
            tmp_path, WideKlip, ours={"shape": shape, "rollout_func": uniform}, max_steps=2
        )
        made.train()
        entry = logged(made)[0]
        assert entry["klip/inert"] == 1  # the ratio to the old policy is 1, the sampler's is not
        return entry["klip/pull"]

    assert first_pull("clip") == 1
    assert 0.05 < first_pull("truncate(cap=1.0) * clip") < 0.95


def test_evaluation_has_diagnostics_of_its_own(tmp_path):
    made = trainer(tmp_path, KlipGRPOTrainer, ours={"shape": "clip", "answer_marker": "#"})
    found = made.evaluate(eval_dataset=prompts(8))
    assert torch.isfinite(torch.tensor(found["eval_loss"]))
    seen = {name for entry in made.state.log_history for name in entry}
    assert {"eval_klip/kill", "eval_klip/answer/tokens", "eval_klip/age=0/kill"} <= seen
    assert not any("clip_ratio/" in name for name in seen)


def test_a_run_resumes_from_a_checkpoint(plain, tmp_path):
    changes = {"max_steps": 8, "num_iterations": ITERATIONS, "learning_rate": 2e-3}
    saving = {"save_strategy": "steps", "save_steps": 4}
    ours = {"shape": "clip(eps=by-age(fresh=0.2, half_life=2, floor=0.1))"}
    whole = trainer(tmp_path, WideKlip, ours=ours, **changes, **saving)
    whole.train()
    again = trainer(tmp_path, WideKlip, ours=ours, **changes)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert torch.equal(parameters(again), parameters(whole))
    ages = [
        [n for n in e if n.startswith("klip/age=") and n.endswith("/kill")] for e in logged(again)
    ]
    assert ages[4:] == [[f"klip/age={label}/kill"] for label in ("0", "1", "2-3", "2-3")]
