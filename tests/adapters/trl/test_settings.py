"""Every setting that would make the shape wrong in silence is refused, with the way out."""

import pytest
import trl
from trl import GRPOConfig, GRPOTrainer

from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_settings import LOSS_TYPES
from klip.adapters.verl_settings import Settings
from klip.errors import KlipError
from klip.shapes import Clip, KLk3, Truncate
from klip.tokens import OPSM, ReferenceKL, TokenRegion
from tests.adapters.trl.world import trainer

VLLM = {"use_vllm": True}
PLAIN = {"shape": "clip"}
REFUSED = {
    "cispo": ({"loss_type": "cispo"}, PLAIN, "loss_type='dapo' and shape='cispo(cap=...)'"),
    "sapo": ({"loss_type": "sapo"}, PLAIN, "loss_type='grpo' and shape='sapo("),
    "luspo": ({"loss_type": "luspo"}, PLAIN, "loss_type='dr_grpo' and level='sequence-mean'"),
    "vespo": ({"loss_type": "vespo"}, PLAIN, "no shape is VESPO"),
    "unknown": ({"loss_type": "new"}, PLAIN, "grpo, bnpo, dr_grpo, dapo"),
    "level": ({"importance_sampling_level": "sequence"}, PLAIN, "level='sequence-mean'"),
    "delta": ({"delta": 4.0}, PLAIN, "dual-clip(low=0.2, high=0.2, cap=4.0)"),
    "epsilon": ({"epsilon": 0.3}, PLAIN, "shape='clip(low=0.3, high=0.3)'"),
    "epsilon_high": ({"epsilon_high": 0.28}, PLAIN, "shape='clip(low=0.2, high=0.28)'"),
    "opsm": ({"off_policy_mask_threshold": 0.5}, PLAIN, "gates=['opsm(delta=0.5)']"),
    "opsm-vllm": ({"off_policy_mask_threshold": 0.5, **VLLM}, PLAIN, "anchor=behaviour"),
    "kl": ({"beta": 0.1}, PLAIN, "set use_bias_correction_kl=False"),
    "kl-ours": ({"beta": 0.1}, PLAIN, "reference-kl(b=0.1, estimator=weighted-k3)"),
    "no-reference": ({}, {**PLAIN, "penalties": [ReferenceKL()]}, "only if beta is not 0"),
    "no-sampler": ({}, {"shape": "truncate * clip"}, "use_vllm=True or a rollout_func"),
    "sapo-pos": ({"sapo_temperature_pos": 2.0}, PLAIN, "shape='sapo(tau_positive=2.0)'"),
    "sapo-neg": ({"sapo_temperature_neg": 2.0}, PLAIN, "shape='sapo(tau_negative=2.0)'"),
    "vespo-k": ({"vespo_k_pos": 1.0}, PLAIN, "vespo_k_pos=1.0 would be ignored"),
    "masked-penalty": (
        {"top_entropy_quantile": 0.2}, {**PLAIN, "penalties": [KLk3()]}, "into the shape",
    ),
    "weighed-penalty": (VLLM, {**PLAIN, "penalties": [KLk3()]}, "into the shape"),
    "corrected-twice": (VLLM, {**PLAIN, "gates": [Truncate(cap=2)]}, "do it twice"),
    "corrected-twice-sequence": (VLLM, {**PLAIN, "gates": ["sequence-tis"]}, "do it twice"),
    "corrected-twice-inside": (VLLM, {"shape": "icepop * clip"}, "do it twice"),
    "controller": ({}, {"shape": "adaptive-kl"}, "keeps no state"),
    "state-kl": ({}, {"shape": "kl(b=1)"}, "choose a sampled penalty"),
    "no-field": ({}, {"shape": "topr(sign='reward')"}, "needs reward"),
    "no-list": ({}, {**PLAIN, "gates": "opsm"}, "must be a list of gates"),
    "no-gate": ({}, {**PLAIN, "gates": ["clip"]}, "'clip' is not a gate"),
    "penalty": ({}, {**PLAIN, "penalties": [Clip()]}, "must be a penalty or its spelling"),
    "level-name": ({}, {**PLAIN, "level": "sequence"}, "no level is called 'sequence'"),
    "marker": ({}, {**PLAIN, "answer_marker": "Z"}, "text that the tokenizer knows"),
    "no-marker": ({}, {**PLAIN, "answer_marker": ""}, "text that the tokenizer knows"),
    "name": ({}, {"shape": "clap"}, "did you mean clip?"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_way_out(name, tmp_path):
    settings, ours, way_out = REFUSED[name]
    with pytest.raises(KlipError) as told:
        trainer(tmp_path, KlipGRPOTrainer, ours=ours, **settings)
    assert way_out in str(told.value)
    assert "\n" not in str(told.value)
    for setting, value in settings.items():
        if setting != "use_vllm" and name != "kl-ours":
            assert f"{setting}={value!r}" in str(told.value)


ACCEPTED = {
    **{kind: ({"loss_type": kind}, PLAIN) for kind in LOSS_TYPES},
    "the defaults, spelled out": ({"epsilon": 0.2, "epsilon_high": None, "delta": None}, PLAIN),
    "entropy quantile": ({"top_entropy_quantile": 0.2}, {"shape": "clip + kl-k3(b=0.1)"}),
    "opsm": ({}, {**PLAIN, "gates": [OPSM(delta=0.1)]}),
    "spelled": ({}, {**PLAIN, "gates": ["opsm(delta=0.1)"], "level": "sequence-mean"}),
    "entropy": ({}, {"shape": "clip(eps=by-entropy(below=0.2, above=0.4, cut=1))"}),
    "kl": ({"beta": 0.1, "use_bias_correction_kl": False}, PLAIN),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_goes_together_is_accepted(name, tmp_path):
    settings, ours = ACCEPTED[name]
    assert trainer(tmp_path, KlipGRPOTrainer, ours=ours, **settings).train_dataset is not None


def test_every_value_is_looked_at_before_a_model_is_loaded(tmp_path):
    args = GRPOConfig(str(tmp_path), delta=4.0, use_cpu=True, bf16=False, report_to=[])
    with pytest.raises(KlipError, match="delta=4"):
        KlipGRPOTrainer("no/such-model", None, args, shape="clip")


def test_a_replaced_trainer_is_refused(tmp_path, monkeypatch):
    replaced = type("UnslothGRPOTrainer", (GRPOTrainer,), {"__module__": "unsloth_compiled_cache"})
    monkeypatch.setattr(trl, "GRPOTrainer", replaced)
    with pytest.raises(KlipError, match=r"unsloth_compiled_cache.UnslothGRPOTrainer.*Unsloth"):
        trainer(tmp_path, KlipGRPOTrainer, ours=PLAIN)


def test_a_patched_loss_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs: 0.0)
    with pytest.raises(
        KlipError, match=r"has been replaced by tests\.adapters\.trl\.test_settings"
    ):
        trainer(tmp_path, KlipGRPOTrainer, ours=PLAIN)


def test_an_older_trl_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.15.2")
    with pytest.raises(KlipError, match=r"TRL 1.15.2 is too old .* install trl>=1.16"):
        trainer(tmp_path, KlipGRPOTrainer, ours=PLAIN)


def test_levels_gates_and_penalties_are_spelled_as_in_the_other_trainers(tmp_path):
    """The words of `klip.tokens`, which verl's file, Tinker and prime-rl take too."""
    words = {
        "shape": "clip(low=0.2, high=0.28)",
        "level": "geometric-mean(low=0.3, high=0.4)",
        "gates": ["opsm(delta=0.1)"],
        "penalties": ["kl-k3(b=0.1)"],
    }
    made = trainer(tmp_path, KlipGRPOTrainer, ours=words)
    assert made._klip.region == TokenRegion.read(**words)
    assert Settings(**words).region == TokenRegion.read(**words)
