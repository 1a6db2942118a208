"""A stock trainer that is watched: nothing changes, and what is said of its tokens is true."""

import pytest
import torch
from transformers import PrinterCallback
from trl import GRPOTrainer, RLOOConfig, RLOOTrainer

from examples.trl_grpo import a_model, a_tokenizer, prompts, reward
from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_batch import look
from klip.adapters.trl_settings import own_region
from klip.adapters.trl_watch import KlipWatch
from klip.errors import KlipError
from klip.theory.diagnostics import FATES
from klip.tokens import TokenRegion
from tests.adapters.trl.world import batch, logged, parameters, trainer, window

RUN = {"max_steps": 20, "num_iterations": 4, "learning_rate": 5e-3}
INSTEAD = ["sapo", "cispo(cap=1.2)", "spo"]


def rloo(folder, **changes):
    """A stock RLOOTrainer of the model that the others have."""
    tokenizer = a_tokenizer()
    usual = dict(
        per_device_train_batch_size=16, num_generations=8, max_completion_length=12,
        beta=0.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False,
        gradient_checkpointing=False, disable_tqdm=True, seed=0,
    )  # fmt: skip
    made = RLOOTrainer(
        model=a_model(tokenizer),
        reward_funcs=reward,
        args=RLOOConfig(output_dir=str(folder), **(usual | changes)),
        train_dataset=prompts(),
        processing_class=tokenizer,
    )
    made.remove_callback(PrinterCallback)
    return made


def without_ours(entries):
    timed = ("time", "runtime", "per_second", "num_tokens")
    return [
        {k: v for k, v in e.items() if not k.startswith("klip/") and not k.endswith(timed)}
        for e in entries
    ]


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_a_watched_run_is_the_stock_run_bit_for_bit(kind, tmp_path):
    make = rloo if kind == "rloo" else trainer
    stock = make(tmp_path, **RUN)  # which seeds every generator
    start = parameters(stock).clone()
    stock.train()
    watched = make(tmp_path, **RUN)
    watch = KlipWatch(watched, INSTEAD, answer_marker="#")
    watched.add_callback(watch)
    watched.train()
    assert stock.state.global_step == 20
    assert not torch.equal(start, parameters(stock))
    assert torch.equal(parameters(stock), parameters(watched))
    assert without_ours(logged(stock)) == without_ours(logged(watched))
    entries = logged(watched)
    assert sum(e["klip/zeroed"] > 0.05 for e in entries) > 8
    by_sequence = kind == "rloo"
    for e in entries:
        assert sum(e[f"klip/{fate}"] for fate in FATES) == pytest.approx(1)
        if not by_sequence:
            clipped = e["clip_ratio/region_mean"]
            assert e["klip/kill"] == pytest.approx(clipped, abs=1e-6)
        assert {"klip/answer/zeroed", "klip/instead/sapo/of_zeroed/pull"} <= e.keys() or (
            e["klip/zeroed"] == 0
        )
        assert any(name.startswith("klip/entropy=") for name in e)
        assert any(name.startswith("klip/age=") for name in e)
    assert len(watch.says()) == 3
    assert watch.says()[0].startswith("sapo would have zeroed 0 % of the tokens (clip(eps=0.2)")
    assert "_compute_loss" not in vars(watched)  # the hooks are gone


SETTINGS = [
    {},
    {"epsilon_high": 0.28, "loss_type": "dapo"},
    {"delta": 1.3},
    {"loss_type": "cispo", "epsilon_high": 1.2},
    {"loss_type": "sapo"},
    {"importance_sampling_level": "sequence", "loss_type": "grpo", "epsilon": 0.05},
    {"off_policy_mask_threshold": 0.05},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_is_said_of_a_token_is_what_its_gradient_says(settings, tmp_path):
    stock = trainer(tmp_path, **settings)
    seen, score = [], stock._get_per_token_logps_and_entropies

    def keep(*args, **named):
        scored = score(*args, **named)
        scored[0].retain_grad()
        seen.append(scored)
        return scored

    inputs = batch(stock)
    stock._get_per_token_logps_and_entropies = keep
    stock._compute_loss(stock.model, inputs).backward()
    log_prob, entropy, _ = seen[-1]
    own = look(own_region(stock.args, False), inputs, log_prob.detach(), entropy, 0)
    # Where every ratio and every advantage is 1, the gradient of the loss is a token's weight.
    ones = inputs | {"advantages": torch.ones(8), "old_per_token_logps": log_prob.detach()}
    plain = stock._compute_loss(stock.model, ones)
    (weight,) = torch.autograd.grad(plain, seen[-1][0])
    wanted = torch.where(own.active, log_prob.grad / weight, 0.0)
    assert (own.m - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    changed = own.active & (own.observed.fate != FATES.index("kept"))
    assert float(changed.sum() / own.active.sum()) > 0.05


def test_what_would_have_been_done_is_what_is_done(tmp_path):
    stock = trainer(tmp_path)
    inputs = batch(stock)
    watch = KlipWatch(stock, INSTEAD, metrics="all")
    watch.on_train_begin(None, None, None)
    stock._compute_loss(stock.model, inputs)
    row = watch._windows["train"].metrics()
    for shape in INSTEAD:
        ours = trainer(tmp_path, KlipGRPOTrainer, ours={"shape": shape})
        ours._compute_loss(ours.model, inputs)
        does = window(ours)
        would = {k.split(f"{shape}/")[1]: x for k, x in row.items() if f"instead/{shape}/" in k}
        of_all = {k: x for k, x in would.items() if not k.startswith("of_zeroed/")}
        assert len(of_all) > 40
        for name, value in of_all.items():
            assert value == pytest.approx(does[name], rel=1e-6, abs=1e-9), (shape, name)
    watch.on_train_end(None, None, None)


def test_a_run_that_was_broken_off_can_be_watched_again(tmp_path):
    """The hooks that it left are not hooked again, and those of others stay where they were."""
    made = trainer(tmp_path)
    inputs, own, calls = batch(made), made._compute_loss, []

    def somebodys(model, inputs):
        calls.append(model)
        return own(model, inputs)

    made._compute_loss = somebodys
    watch = KlipWatch(made, ["sapo"])
    for _ in range(2):  # a run that is broken off has no end
        watch.on_train_begin(None, None, None)
    made._compute_loss(made.model, inputs)
    assert len(calls) == 1
    tokens = watch._windows["train"].metrics()["tokens"]
    assert tokens == int(inputs["completion_mask"].sum())
    watch.on_train_end(None, None, None)
    assert made._compute_loss is somebodys
    assert "_calculate_rewards" not in vars(made)
    for watcher in (watch, KlipWatch(made)):
        made.add_callback(watcher)
    with pytest.raises(KlipError, match=r"two KlipWatch .* give one of them all shapes"):
        watch.on_train_begin(None, None, None)


def test_few_are_some_twenty(tmp_path):
    made = trainer(tmp_path, max_steps=2, num_iterations=2)
    made.add_callback(KlipWatch(made, ["sapo"]))
    made.train()
    ours = [name for name in logged(made)[1] if name.startswith("klip/")]
    assert 12 < len(ours) < 26
    assert "klip/instead/sapo/zeroed" in ours


class TestRefused:
    def refused(self, made, *args, **named):
        with pytest.raises(KlipError) as caught:
            KlipWatch(made, *args, **named)
        return str(caught.value)

    def test_what_is_no_trainer(self):
        assert "give TRL's GRPOTrainer or RLOOTrainer" in self.refused(object())

    def test_ours(self, tmp_path):
        made = trainer(tmp_path, KlipGRPOTrainer, ours={"shape": "clip"})
        assert "logs its own diagnostics" in self.refused(made)

    def test_a_loss_of_somebody_elses(self, tmp_path):
        class Own(GRPOTrainer):
            def _compute_loss(self, model, inputs):
                return super()._compute_loss(model, inputs)

        assert "not TRL's own" in self.refused(trainer(tmp_path, Own))

    def test_vespo(self, tmp_path):
        assert "loss_type='vespo' is no shape" in self.refused(trainer(tmp_path, loss_type="vespo"))

    def test_arguments(self, tmp_path):
        made = trainer(tmp_path)
        assert "instead truncate * clip" in self.refused(made, ["truncate * clip"])
        assert "metrics='some'" in self.refused(made, metrics="some")
        assert "every=0" in self.refused(made, every=0)
        twice = [TokenRegion.read("clip", "sequence-mean")]
        assert "has no name of its own" in self.refused(made, twice)

    def test_a_loss_that_asks_for_no_log_probs(self, tmp_path):
        made = trainer(tmp_path)
        watch = KlipWatch(made)
        watch.on_train_begin(None, None, None)
        made._compute_loss = watch_only_loss(watch)
        with pytest.raises(KlipError, match="nothing to watch"):
            made._compute_loss(made.model, {})


def watch_only_loss(watch):
    """A loss of another make, hooked."""
    return lambda model, inputs: watch._on_compute_loss(lambda: torch.zeros(()), model, inputs)
