"""verl finds the loss by itself, in processes that nobody else has told of Klip."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klip.adapters import doctor

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
        assert found["klip/kill"] == pytest.approx(found["actor/pg_clipfrac"], abs=1e-6)
    # The clip mattered: without a trust region training goes elsewhere.
    assert report["without a trust region"]["difference"] > 0.01


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
        assert found["plugin"] == doctor.Check(
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
