"""Sets the environment that the loss reads."""

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.utils import losses

from klip.adapters.common import say_once
from klip.adapters.verl import pooled_by_verl
from klip.adapters.verl_batch import telling
from klip.adapters.verl_watch import watch_losses


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    names = ("SHAPE", "CONFIG", "WATCH", "ANSWER_MARKER", "KEEP_TOKENS", "KEEP_IN")
    for name in names:
        monkeypatch.delenv(f"KLIP_{name}", raising=False)
    say_once.cache_clear()
    # Each test has a clock of its own.
    monkeypatch.setattr(losses, "ppo_loss", telling(losses.ppo_loss.__wrapped__))


@pytest.fixture
def watching(monkeypatch):
    """verl's losses, watched beside one shape until the test ends."""
    monkeypatch.setenv("KLIP_WATCH", "sapo")
    before = dict(POLICY_LOSS_REGISTRY)
    watch_losses(pooled_by_verl)
    yield
    POLICY_LOSS_REGISTRY.update(before)


@pytest.fixture
def configure(monkeypatch, tmp_path):
    """`configure(shape, level)`: the loss `klip` is this from now on."""

    def configure(shape, level="token", **more):
        if level == "token" and not more:
            return monkeypatch.setenv("KLIP_SHAPE", shape)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
        lines = [f'shape = "{shape}"', f'level = "{level}"']
        path.write_text("\n".join(lines + [f"{key} = {value}" for key, value in more.items()]))
        return monkeypatch.setenv("KLIP_CONFIG", str(path))

    return configure
