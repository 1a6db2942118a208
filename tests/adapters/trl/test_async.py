"""AsyncGRPOTrainer with a shape: TRL's own gradients and runs with a clip, ages from versions.

TRL's attention over packed rows is a kernel for GPUs; here a few lines of PyTorch stand in for it,
for stock and ours alike. The worker is a queue that was filled before.
"""

import queue
from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import PrinterCallback
from trl.experimental.async_grpo import (
    AsyncGRPOConfig,
    AsyncGRPOTrainer,
    async_grpo_trainer,
    packing,
)
from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from examples.trl_grpo import a_model, a_tokenizer, prompts, reward
from klip.adapters.trl_async import AGE, KlipAsyncGRPOTrainer, _OfVersion, with_ages
from klip.errors import KlipError
from tests.adapters.trl.world import logged, parameters

STEPS, ROWS = 6, 8


class Kernel:
    """Attention over segments, each to its own path, causal at the end."""

    @staticmethod
    def flash_attn_varlen_func(q, k, v, cu_q, cu_k, *_, softmax_scale=None, **__):
        outs = []
        for i in range(len(cu_q) - 1):
            a, b = (x[cu[i] : cu[i + 1]].transpose(0, 1) for x, cu in ((q, cu_q), (k, cu_k)))
            c = v[cu_k[i] : cu_k[i + 1]].transpose(0, 1)
            late = b.shape[1] - a.shape[1]
            seen = torch.ones(a.shape[1], b.shape[1]).tril(late).bool()
            out = torch.nn.functional.scaled_dot_product_attention(
                a, b, c, attn_mask=seen, scale=softmax_scale
            )
            outs.append(out.transpose(0, 1))
        return torch.cat(outs)


@pytest.fixture(autouse=True)
def _kernel(monkeypatch):
    monkeypatch.setattr(packing, "_flash_attn", lambda: Kernel)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


class Quiet:
    """A worker and a transfer of weights that do nothing; its rollouts are there from the start."""

    def __init__(self, samples=()):
        self.rollout_buffer, self.metrics_queue = queue.Queue(), queue.Queue()
        for sample in samples:
            self.rollout_buffer.put(sample)

    def __getattr__(self, name):
        return lambda *args, **named: None


def samples(count, seed=0, spread=0.3):
    """Completions by a sampler whose log-probs are some way off; prompts are shared."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        ids = np.concatenate([[4 + i // 4 % 3], rng.integers(3, 8, rng.integers(3, 8))])
        mask = np.r_[0, np.ones(len(ids) - 1)].astype(int)
        guess = np.r_[0.0, -2.08 + spread * rng.normal(size=len(ids) - 1)]
        made.append(RolloutSample([], [], ids, mask, guess, float(rng.normal()), i % 3, i // 4, {}))
    return made


def trainer(folder, kind=AsyncGRPOTrainer, rollouts=(), ours=None, **changes):
    tokenizer = a_tokenizer()
    model = a_model(tokenizer)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.3)  # nearly uniform, as the sampler is
    model.save_pretrained(folder / "model")
    usual = dict(
        output_dir=str(folder), per_device_train_batch_size=ROWS, max_steps=STEPS, token_budget=0,
        logging_steps=1, learning_rate=1e-2, save_strategy="no", report_to=[], use_cpu=True,
        bf16=False, gradient_checkpointing=False, disable_tqdm=True, max_staleness=100, seed=0,
        model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    made = kind(
        str(folder / "model"),
        reward,
        AsyncGRPOConfig(**(usual | changes)),
        train_dataset=prompts(),
        processing_class=tokenizer,
        rollout_worker=Quiet(rollouts),
        weight_transfer=Quiet(),
        **(ours or {}),
    )
    made.remove_callback(PrinterCallback)
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    return made


def batch(seed=1, now=4):
    rows = [packing.TreeRow()]
    for sample in samples(12, seed):
        advantage = _OfVersion(sample.advantage)
        advantage.version = sample.model_version
        rows[0].add({**asdict(sample), "advantage": advantage})
    return with_ages(DataCollatorForRollout(0), lambda: now)([rows])


def gradient(of, inputs):
    of.model.zero_grad()
    loss = of.compute_loss(of.model, inputs)
    loss.backward()
    grads = [p.grad.flatten() for p in of.model.parameters() if p.grad is not None]
    return loss.detach(), torch.cat(grads)


@pytest.mark.parametrize("high", [0.2, 0.28])
def test_gradients_are_trls_own(tmp_path, high):
    inputs = batch()
    stock = trainer(tmp_path, epsilon_high=high)
    bare = {name: x for name, x in inputs.items() if name != AGE}
    _, wanted = gradient(stock, bare)
    clipped = stock._metrics["train"]["clip_ratio/region_mean"][0]
    assert 0.05 < clipped < 0.5
    ours = trainer(tmp_path, KlipAsyncGRPOTrainer, ours={"shape": f"clip(low=0.2, high={high})"})
    loss, found = gradient(ours, inputs)
    assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()
    row = ours._klip_windows["train"].metrics()
    assert row["kill"] == pytest.approx(clipped, abs=1e-6)
    assert loss.item() != pytest.approx(
        -1, abs=0.01
    )  # the mean of -m, and not TRL's of a ratio of 1
    assert "clip_ratio/region_mean" not in ours._metrics["train"]
    assert "entropy" in ours._metrics["train"]


def test_a_sequences_ratio_is_that_of_its_own_tokens(tmp_path):
    """Terms lie in trie order; shuffling them changes nothing."""
    ours = trainer(
        tmp_path, KlipAsyncGRPOTrainer,
        ours={"shape": "clip(eps=0.05)", "level": "sequence-mean"},
    )  # fmt: skip
    inputs = batch()
    _, wanted = gradient(ours, inputs)
    order = torch.randperm(inputs["token_index"].shape[1], generator=torch.Generator())
    names = ("token_index", "old_log_probs", "advantages", "segment_id", AGE)
    mixed = inputs | {name: inputs[name][:, order] for name in names}
    _, found = gradient(ours, mixed)
    assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_a_run_is_trls_own_run(tmp_path):
    ends = []
    for kind, ours in ((AsyncGRPOTrainer, {}), (KlipAsyncGRPOTrainer, {"shape": "clip"})):
        made = trainer(tmp_path, kind, samples(ROWS * (STEPS + 4)), ours)
        made.train()
        assert made.state.global_step == STEPS
        ends.append((parameters(made), logged(made)))
    (wanted, its), (found, own) = ends
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    kills = [entry["klip/kill"] for entry in own]
    assert kills == pytest.approx([entry["clip_ratio/region_mean"] for entry in its], abs=1e-3)
    assert 0.05 < sum(kills) / len(kills) < 0.5
    for entry in own:  # learned from once: what was off was off before
        assert entry["klip/move/kill"] == 0
        assert entry["klip/mismatch/kill"] == pytest.approx(entry["klip/kill"])
        for ratio, spread in (("move", 0), ("mismatch", 0.2)):
            low, middle, high = (entry[f"klip/{ratio}/ratio_{p}"] for p in ("p01", "p50", "p99"))
            assert low <= middle <= high
            assert high - low >= spread
        assert any(name.startswith("klip/age=") for name in entry)


def test_ages_are_versions_ago(tmp_path):
    inputs = batch(now=4)
    assert set(inputs[AGE].flatten().tolist()) == {2, 3, 4}
    kills = {}
    for shape in ("clip", "age-conditioned(half_life=1)"):
        ours = trainer(tmp_path, KlipAsyncGRPOTrainer, ours={"shape": shape})
        gradient(ours, inputs)
        row = ours._klip_windows["train"].metrics()
        assert row["age=2-3/tokens"] + row["age=4-7/tokens"] == row["tokens"]
        kills[shape] = row["age=4-7/kill"]
    assert kills["age-conditioned(half_life=1)"] > kills["clip"] + 0.1


def test_refusals(tmp_path):
    def refused(ours, **changes):
        with pytest.raises(KlipError) as caught:
            trainer(tmp_path, KlipAsyncGRPOTrainer, ours=ours, **changes)
        return str(caught.value)

    assert "shape='clip(low=0.1, high=0.1)'" in refused({"shape": "clip"}, epsilon=0.1)
    assert "reference_log_ratio" in refused({"shape": "clip", "penalties": ["reference-kl"]})
    row, collate = packing.TreeRow(), with_ages(DataCollatorForRollout(0), lambda: 1)
    row.add(asdict(samples(1)[0]))
    with pytest.raises(KlipError, match="without its model version"):
        collate([[row]])
