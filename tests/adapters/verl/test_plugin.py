"""verl finds the loss by itself, in processes that nobody else has told of Klip."""

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from klip.adapters import doctor
from klip.runs.kept import read_kept
from klip.tokens import OPSM

ROOT = Path(__file__).parents[3]


def run(*arguments, **environment):
    """A process as verl's workers are: of the same environment, with nothing imported yet."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


WORKER = """
import sys, verl
assert "klip.adapters.verl" in sys.modules
assert "jax" not in sys.modules  # it would take a GPU's memory
from verl.trainer.ppo.core_algos import get_policy_loss_fn
print(get_policy_loss_fn("klip").__module__)
"""


def test_importing_verl_registers_the_loss():
    assert run("-c", WORKER).splitlines()[-1] == "klip.adapters.verl"


def test_verls_own_engine_trains_alike(tmp_path):
    """24 updates of verl's FSDP engine with tokens clipped: the same parameters to rounding."""
    result = tmp_path / "result.json"
    run("-m", "tests.adapters.verl.engine", str(result), HF_HUB_OFFLINE="1")
    report = json.loads(result.read_text())
    stock, ours = report["stock"], report["ours"]
    assert len(ours["metrics"]) == 24
    clipped = [update["actor/pg_clipfrac"] for update in stock["metrics"]]
    assert 0.05 < sum(clipped) / len(clipped) < 0.5
    assert ours["moved"] > 0.01
    assert ours["difference"] < 2e-6
    for theirs, found in zip(stock["metrics"], ours["metrics"], strict=True):
        for name, value in theirs.items():
            assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
        # verl takes the mean of its own over microbatches, ours is of the minibatch's tokens
        assert found["klip/kill"] == pytest.approx(found["actor/pg_clipfrac"], abs=0.05)
        assert found["klip/ratio_max"] >= 1
    # The clip mattered: without a trust region training goes elsewhere.
    assert report["without a trust region"]["difference"] > 0.01
    # A run that is watched is the stock run, bit for bit.
    watched = report["watched"]
    assert watched["difference"] == 0.0
    for theirs, found in zip(stock["metrics"], watched["metrics"], strict=True):
        assert theirs.items() <= found.items()
        assert found["klip/kill"] == pytest.approx(found["actor/pg_clipfrac"], abs=0.05)
        assert found["klip/instead/is/zeroed"] == 0
        assert found["klip/mismatch/kill"] > 0  # the sampler is 0.3 away
        shares = [x for name, x in found.items() if re.search("entropy=.*/tokens_of_all", name)]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
    # Each minibatch is a step to this engine, which does not say where verl's steps end.
    kept = read_kept(tmp_path)
    assert kept.filter("trained").n_unique("step") == 24
    assert kept["shape"].unique(maintain_order=True).to_list() == ["vanilla", "sapo", "is"]
    assert not kept["entropy"].is_null().any()
    assert kept["text"].is_null().all()  # its model came without a tokenizer


class TestDoctor:
    def test_all_is_well(self, monkeypatch):
        monkeypatch.setenv("KLIP_SHAPE", "dual-clip(eps=0.2)")
        found = doctor.verl()
        assert [check.name for check in found if not check.ok] == []
        assert doctor.healthy(found)
        assert [check.name for check in found] == [
            "torch", "verl", "plugin", "loss", "shape", "trial",
        ]  # fmt: skip

    def test_a_plugin_that_fails(self, monkeypatch, tmp_path):
        """verl logs it where nobody looks; the doctor has the traceback's last line."""
        metadata = tmp_path / "klip-0.0.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: klip\nVersion: 0.0.0\n")
        (metadata / "entry_points.txt").write_text("[verl.plugins]\nklip = broken_plugin\n")
        (tmp_path / "broken_plugin.py").write_text("raise OSError('libcudart.so.12: not found')")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.setenv("KLIP_SHAPE", "clip")
        found = {check.name: check for check in doctor.verl()}
        assert found["verl"].ok
        assert found["plugin"] == doctor.DoctorCheck(
            "plugin", False, "OSError: libcudart.so.12: not found"
        )
        assert found["shape"].ok
        assert found["loss"].ok is None
        assert found["trial"].ok is None

    @pytest.mark.parametrize(
        ("shape", "message"),
        [(None, "KLIP_SHAPE"), ("clip(eps=-1)", "greater than 0"), ("tr-ppo", "needs kl")],
    )
    def test_no_good_shape(self, monkeypatch, shape, message):
        if shape:
            monkeypatch.setenv("KLIP_SHAPE", shape)
        found = {check.name: check for check in doctor.look()}
        assert found["loss"].ok
        assert found["shape"].ok is False
        assert message in found["shape"].says
        assert found["trial"].ok is None

    @pytest.mark.parametrize("level", ["token", "sequence-mean", "sequence-sum", "geometric-mean"])
    def test_the_trial_knows_every_level(self, configure, level):
        configure("clip(eps=by-position(start=0.3, end=0.1))", level)
        assert doctor.look()[-1].ok

    def test_the_trial_knows_gates_and_penalties(self, configure):
        configure("clip", gates=["opsm(delta=0.01)"], penalties=["kl-k3(b=0.1)"])
        found = {check.name: check for check in doctor.look()}
        assert found["trial"].ok, found["trial"].says
        gate = str(OPSM(delta=0.01))
        assert f"clip(eps=0.2) with {gate} with kl-k3(b=0.1) at the" in found["shape"].says

    def test_a_loss_whose_gradient_is_not_m(self, monkeypatch):
        from klip.adapters import verl

        monkeypatch.setenv("KLIP_SHAPE", "clip")
        monkeypatch.setattr(verl, "plain_loss", lambda name: lambda new, *_: new.sum())
        assert "off by" in doctor.look()[-1].says

    def test_another_plugin_of_the_same_name(self, monkeypatch):
        from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

        monkeypatch.setitem(POLICY_LOSS_REGISTRY, "klip", json.loads)
        found = {check.name: check for check in doctor.look()}
        assert "another plugin took the name" in found["loss"].says


class TestRun:
    """A run's settings, as one would paste them from its script."""

    USES = "actor_rollout_ref.actor.policy_loss.loss_mode=klip"
    VARIABLE = "+ray_kwargs.ray_init.runtime_env.env_vars.KLIP_SHAPE"

    @pytest.fixture(autouse=True)
    def _shape(self, monkeypatch):
        monkeypatch.setenv("KLIP_SHAPE", "clip(low=0.2, high=0.28)")

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ([], "4 updates a batch"),
            (["actor_rollout_ref.actor.clip_ratio_high=0.28"], "4 updates"),
            (["data.train_batch_size=256", "actor_rollout_ref.actor.ppo_epochs=2"], "2 updates"),
            (["algorithm.rollout_correction.bypass_mode=True"], "4 updates"),
            (["algorithm.rollout_correction.rollout_is=token"], "4 updates"),
            (["actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"], "4 updates"),
        ],
    )
    def test_that_uses_the_shape(self, settings, says):
        check = doctor.look([self.USES, *settings])[-1]
        assert check.name == "run"
        assert check.ok, check.says
        assert says in check.says

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            (["data.train_batch_size=512"], "loss_mode is vanilla"),
            ([USES, "data.train_batch_size=256"], "every ratio is 1"),
            ([USES, "actor_rollout_ref.actor.clip_ratio_high=0.3"], "actor.clip_ratio_high=0.3"),
            ([USES, "actor_rollout_ref.actor.policy_loss.dro_beta=0.1"], "dro_beta=0.1"),
            (
                [
                    USES,
                    "algorithm.rollout_correction.bypass_mode=True",
                    "algorithm.rollout_correction.rollout_rs=token_k1",
                ],
                "bypass_mode=True",
            ),
            ([USES, "data.trian_batch_size=256"], "trian_batch_size"),
            (
                [USES, "actor_rollout_ref.actor.loss_agg_mode=token-maen"],
                "verl does not aggregate by loss_agg_mode='token-maen'",
            ),
        ],
    )
    def test_that_does_not(self, settings, says):
        check = doctor.look(settings)[-1]
        assert check.ok is False
        assert says in check.says

    def test_variables_of_its_workers(self):
        """The quoting on the page is what Hydra takes."""
        run = [self.USES, f'{self.VARIABLE}="clip(low=0.2, high=0.28)"']
        assert doctor.worker_variables(run) == {"KLIP_SHAPE": "clip(low=0.2, high=0.28)"}
        assert doctor.worker_variables([self.USES]) == {}

    def test_a_worker_of_ray(self, monkeypatch):
        """Ray is started with the run's variables, asked, and let go, whatever it answers."""
        calls = []
        worker = types.SimpleNamespace(remote=lambda run: run)
        ray = types.SimpleNamespace(
            init=lambda **how: calls.append(how["runtime_env"]),
            remote=lambda function: worker,
            get=lambda run, timeout: [doctor.DoctorCheck("shape", True, f"{len(run)} settings")],
            shutdown=lambda: calls.append("shutdown"),
        )
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(doctor, "_fresh_process", lambda run: [])
        run = [self.USES, f"{self.VARIABLE}=clip"]
        said = doctor.verl(ray=True, run=run)
        assert said == [doctor.DoctorCheck("Ray worker: shape", True, "2 settings")]
        assert calls == [{"env_vars": {"KLIP_SHAPE": "clip"}}, "shutdown"]
        ray.get = None
        assert [check.ok for check in doctor.verl(ray=True)] == [False]
        assert calls[-1] == "shutdown"
