"""KlipPPO is the PPO of Stable-Baselines3 where its shape is the clip; else the shape steers it."""

import json
import zipfile
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import (
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor

from klip.adapters import sb3
from klip.adapters.sb3 import KlipPPO, OldPolicy
from klip.errors import KlipError
from klip.shapes import SPO, Clip, Controller, Shape
from klip.shapes.region import FEEDBACK_FIELDS

BRIEF = {"n_steps": 256, "n_epochs": 5, "learning_rate": 3e-3, "seed": 3, "device": "cpu"}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


class Doubled(FlattenExtractor):
    def forward(self, observations):
        return super().forward(observations).double()


class DoublePolicy(ActorCriticPolicy):
    """In float64, where nothing is rounded differently: a whole run can be compared by its bits."""

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.double()
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1))


class Seen(BaseCallback):
    """What train() logged, rollout by rollout."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def _on_rollout_start(self):
        self.rows.append(dict(self.logger.name_to_value))

    def _on_training_end(self):
        self.rows.append(dict(self.logger.name_to_value))

    def _on_step(self):
        return True

    def all(self, name):
        return [row[name] for row in self.rows if name in row]


def run(cls, env, steps=1024, **options):
    double = {"policy_kwargs": {"features_extractor_class": Doubled}}
    seen, model = Seen(), cls(DoublePolicy, env, **BRIEF | double | options)
    model.learn(steps, callback=seen)
    return model, seen


def difference(one, other):
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


def load(folder, **changes):
    return KlipPPO.load(folder / "model", env=gymnasium.make("CartPole-v1"), **changes)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"ent_coef": 0.01, "clip_range_vf": 0.2, "n_epochs": 4}),
        ("Pendulum-v1", {"ent_coef": 0.01, "clip_range_vf": 0.2}),
        ("Pendulum-v1", {"target_kl": 0.02, "normalize_advantage": False, "learning_rate": 1e-2}),
        ("Pendulum-v1", {"use_sde": True, "sde_sample_freq": 4}),
    ],
    ids=["discrete", "value clip", "continuous", "target_kl", "gSDE"],
)
def test_a_whole_run_is_that_of_stable_baselines3(env, options):
    """The main claim: the shape `clip` is its clip, to the last bit of every parameter."""
    theirs, seen = run(PPO, env, **options)
    ours, logged = run(KlipPPO, env, shape="clip(eps=0.2)", **options)
    assert difference(theirs, ours) == 0
    fractions = seen.all("train/clip_fraction")
    assert np.mean(fractions) > 0, "nothing was clipped, so nothing was compared"
    names = {name for name in seen.rows[-1] if name.startswith("train/")}
    assert names <= logged.rows[-1].keys()
    for name in names:
        assert logged.all(name) == pytest.approx(seen.all(name), rel=1e-6, abs=1e-9), name


def test_minibatches_of_other_sizes_agree_to_rounding():
    """1/N is no power of two, so the last bit of the gradient differs."""
    options = {"n_steps": 250, "batch_size": 60, "n_epochs": 4}
    with pytest.warns(UserWarning, match="truncated mini-batch"):
        theirs, seen = run(PPO, "CartPole-v1", 750, **options)
    with pytest.warns(UserWarning, match="truncated mini-batch"):
        ours, _ = run(KlipPPO, "CartPole-v1", 750, **options)
    assert 0 < difference(theirs, ours) < 1e-12
    assert np.mean(seen.all("train/clip_fraction")) > 0


@pytest.mark.parametrize(
    "eps", ["by-step(start=0.2, end=0, steps=1024)", "by-progress(start=0.2, end=0)"]
)
def test_a_clip_range_that_is_annealed_is_a_threshold(eps):
    theirs, _ = run(PPO, "CartPole-v1", clip_range=lambda left: 0.2 * left)
    ours, _ = run(KlipPPO, "CartPole-v1", shape=f"clip(eps={eps})")
    assert difference(theirs, ours) < 1e-12


def test_several_environments():
    env = make_vec_env("CartPole-v1", n_envs=4, seed=1)
    theirs, _ = run(PPO, env, n_steps=64)
    ours, _ = run(KlipPPO, make_vec_env("CartPole-v1", n_envs=4, seed=1), n_steps=64)
    assert difference(theirs, ours) == 0


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_so_is_a_run_in_float32(env):
    """As users have it: one bit of one ratio would grow into another run."""
    theirs, seen = PPO("MlpPolicy", env, **BRIEF), Seen()
    theirs.learn(2048, callback=seen)
    ours = KlipPPO("MlpPolicy", env, shape="clip(eps=0.2)", **BRIEF)
    ours.learn(2048)
    assert difference(theirs, ours) == 0
    assert np.mean(seen.all("train/clip_fraction")) > 0.01


@pytest.mark.parametrize("shape", ["spo(eps=0.2)", "ramp(eps=0.2, width=0.05)", "kl-k3(b=0.1)"])
def test_other_shapes_learn_and_are_other(shape):
    options = BRIEF | {"learning_rate": 1e-3}
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape=shape, **options)
    model.learn(3072)
    lengths = [episode["l"] for episode in model.ep_info_buffer]
    assert np.mean(lengths[-5:]) > 2 * np.mean(lengths[:10])
    clip = KlipPPO("MlpPolicy", "CartPole-v1", shape="clip", **options)
    clip.learn(256)
    other = KlipPPO("MlpPolicy", "CartPole-v1", shape=shape, **options)
    other.learn(256)
    assert difference(clip, other) > 1e-4


@pytest.mark.parametrize(
    "shape",
    ["kl(b=1)", "truly-ppo", "tr-ppo(delta=0.01)", "clip + kl(b=0.5)", "clip(eps=by-entropy)",
     "trgppo", "dppo-tv"],
)  # fmt: skip
def test_shapes_with_context_train(shape):
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape=shape, **BRIEF)
    seen = Seen()
    model.learn(512, callback=seen)
    assert len(seen.all("klip/zeroed")) == 2
    assert all(torch.isfinite(x).all() for x in model.policy.parameters())


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_heavy_kl_penalty_holds_the_policy(env):
    """The closed-form channel reaches the parameters, in both kinds of action space."""
    moved = {}
    for b in (0.0, 100.0):
        seen, model = Seen(), KlipPPO("MlpPolicy", env, shape=f"kl(b={b})", **BRIEF)
        model.learn(256, callback=seen)
        moved[b] = seen.all("train/approx_kl")[-1]
    assert moved[100.0] < 0.1 * moved[0.0]


class ThreeNumbers(IdentityEnvBox):
    """Continuous actions of several parts."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-1, 1, (3,))


@pytest.mark.parametrize(
    "env",
    [IdentityEnv(2), ThreeNumbers(), IdentityEnvMultiDiscrete(2), IdentityEnvMultiBinary(3)],
    ids=lambda env: type(env).__name__,
)
def test_the_closed_form_kl_is_the_mean_of_the_sampled_one(env):
    """KL(old || new) = E_old[log old - log new], and 0 while the two are one."""
    model = KlipPPO("MlpPolicy", env, shape="kl(b=1)", **BRIEF)
    policy = model.policy
    env.observation_space.seed(0)
    observations, _ = policy.obs_to_tensor(np.array([env.observation_space.sample()]))
    rollout = OldPolicy(policy)
    assert rollout.kl(observations).item() == 0
    torch.manual_seed(0)
    many = torch.cat([observations] * 40_000)
    with torch.no_grad():
        actions = policy.get_distribution(many).sample()
        old = policy.get_distribution(many).log_prob(actions)
        for x in policy.parameters():
            x.add_(0.05 * torch.randn_like(x))
        new = policy.get_distribution(many).log_prob(actions)
    kl = rollout.kl(observations)
    spread = float((old - new).std()) / len(many) ** 0.5
    assert kl.item() > 0
    assert kl.item() == pytest.approx(float((old - new).mean()), abs=5 * spread)
    kl.sum().backward()
    assert any(x.grad is not None and x.grad.any() for x in policy.parameters())


def test_a_controller_steers_and_is_saved(tmp_path):
    """adaptive-kl doubles b where the KL is far above its target; the state goes with the model."""
    options = BRIEF | {"shape": "adaptive-kl(target=0.00001)"}
    model = KlipPPO("MlpPolicy", "CartPole-v1", **options)
    seen = Seen()
    model.learn(768, callback=seen)
    assert seen.all("klip/b") == [2.0, 4.0, 8.0]
    model.save(tmp_path / "model")
    again = load(tmp_path)
    assert again.shape_state == {"b": 8.0}
    assert again.shape == model.shape


@dataclass(frozen=True)
class Hears(Controller):
    """A controller that keeps what `stop` and `update` were told."""

    shape: Shape = Clip()

    def stop(self, state, feedback):
        HEARD.append({name: float(getattr(feedback, name)) for name in FEEDBACK_FIELDS})
        return False

    def update(self, state, feedback):
        self.stop(state, feedback)
        return state


HEARD = []


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_a_controller_hears_every_field_at_every_call(task):
    HEARD.clear()
    model = KlipPPO("MlpPolicy", task, shape=Hears(), **BRIEF)
    model.learn(2 * BRIEF["n_steps"])
    epochs = model.n_epochs
    assert len(HEARD) == 2 * (epochs + 1)  # after each epoch, and after each rollout
    assert [told["epoch"] for told in HEARD[: epochs + 1]] == [*range(1, epochs + 1), epochs]
    for told in HEARD:
        assert told["kl"] >= 0
        assert told["k3"] >= 0
        assert told["kept"] + told["zeroed"] == pytest.approx(1)
        assert told["zeroed"] == pytest.approx(told["kill"])
        assert told["samples"] == BRIEF["n_steps"]
        assert told["tv"] == told["ratio_deviation"] / 2
    assert 0 <= HEARD[0]["progress"] < HEARD[-1]["progress"] <= 1
    assert HEARD[-1]["kl"] > 0


def test_a_controller_scales_the_step_size():
    halves = "tv-step-size(shape=clip, target=1e-9, factor=2)"
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape=halves, **BRIEF)
    sizes = []
    for _ in range(3):
        model.learn(256, reset_num_timesteps=False)
        sizes.append(model.policy.optimizer.param_groups[0]["lr"])
    assert sizes == [3e-3, 1.5e-3, 7.5e-4]


def test_a_target_kl_stops_the_epochs():
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape="target-kl(target=1e-9)", **BRIEF)
    model.learn(BRIEF["n_steps"])
    assert model._n_updates == 1


def test_a_controller_stops_the_epochs():
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape="espo(delta=0.000001)", **BRIEF)
    model.learn(512)
    assert model._n_updates == 2  # one epoch in each of two rollouts, not ten


def test_target_kl_ends_the_epochs_and_says_so(capsys):
    model = KlipPPO("MlpPolicy", "CartPole-v1", target_kl=1e-6, verbose=1, **BRIEF)
    model.learn(256)
    assert model._n_updates == 1
    assert "Stopped in epoch 0" in capsys.readouterr().out


def test_saving_and_loading(tmp_path):
    """The file has the shape's spelling; the loaded model trains on, alike."""
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape=SPO(eps=0.3), **BRIEF)
    model.learn(256)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as saved:
        assert json.loads(saved.read("data"))["shape"] == "spo(eps=0.3)"
    assert difference(model, load(tmp_path)) == 0
    twins = [load(tmp_path).learn(256, reset_num_timesteps=False) for _ in range(2)]
    assert all(twin._region == SPO(eps=0.3) for twin in twins)
    assert difference(*twins) == 0
    assert difference(model, twins[0]) > 0
    assert load(tmp_path, shape="clip(eps=0.1)")._region == Clip(eps=0.1)
    with pytest.raises(KlipError, match=r"clip_range=0\.4 and the shape is spo"):
        load(tmp_path, clip_range=0.4)


@dataclass(frozen=True)
class Halved(Shape):
    """m = wA / 2"""

    def multiplier(self, s):
        return 0.5 * s.w * s.advantage


def test_a_shape_without_a_spelling_is_saved_as_a_value(tmp_path):
    model = KlipPPO("MlpPolicy", "CartPole-v1", shape=Halved(), **BRIEF)
    model.save(tmp_path / "model")
    assert KlipPPO.load(tmp_path / "model")._region == Halved()


def test_what_is_logged():
    seen = Seen()
    KlipPPO("MlpPolicy", "CartPole-v1", **BRIEF).learn(512, callback=seen)
    row = seen.rows[-1]
    assert row["klip/inside"] + row["klip/kill"] + row["klip/pass"] == pytest.approx(1)
    assert row["klip/kill"] > 0
    assert row["klip/killed_mass"] > 0
    assert row["klip/beta_p05"] <= row["klip/beta_p50"] <= row["klip/beta_p95"]
    assert row["train/clip_range"] == 0.2
    assert row["train/clip_fraction"] == pytest.approx(row["klip/kill"] + row["klip/pass"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_range": 0.3}, r"clip_range=0\.3 and the shape is clip\(eps=0\.2\): the shape dec"),
        ({"shape": "spo", "clip_range": lambda _: 0.2}, "clip_range is a schedule"),
        ({"shape": "kl(b=1)", "clip_range": 0.2}, r"leave clip_range out"),
        ({"shape": "clap"}, "no shape is called 'clap'"),
        ({"shape": 0.2}, "must be a shape or its spelling"),
        ({"shape": "position-aware"}, "length .* does not reach the loss in Stable-Baselines3"),
        ({"shape": "age-conditioned"}, "age .* does not reach the loss in Stable-Baselines3"),
        ({"shape": "truncate(cap=2) * clip"}, "behaviour_log_ratio"),
        ({"shape": "topr(sign=reward)"}, "reward .* does not reach"),
        ({"shape": "adaptive-kl(shape=age-conditioned + kl(b=1))"}, "age"),
    ],
)
def test_what_would_be_wrong_in_silence_is_refused(options, message):
    with pytest.raises(KlipError, match=message):
        KlipPPO("MlpPolicy", "CartPole-v1", **BRIEF | options)


def test_a_clip_range_that_agrees_is_taken():
    model = KlipPPO("MlpPolicy", "CartPole-v1", 1e-3, clip_range=0.3, shape=Clip(eps=0.3))
    assert model.learning_rate == 1e-3
    assert model.clip_range(1.0) == 0.3


def test_densities_are_no_probabilities():
    with pytest.raises(KlipError, match="needs the probability of an action"):
        KlipPPO("MlpPolicy", "Pendulum-v1", shape="dppo-tv", **BRIEF)


def test_one_gradient_step_per_rollout_is_warned_of():
    with pytest.warns(UserWarning, match="every shape inert"):
        KlipPPO("MlpPolicy", "CartPole-v1", n_epochs=1, batch_size=256, n_steps=256)


def test_the_train_that_ours_follows_is_the_installed_one(monkeypatch):
    """If this fails, compare `PPO.train` with ours, then take the new fingerprint."""
    assert sb3.train_fingerprint() == sb3.FOLLOWED
    monkeypatch.setattr(sb3, "FOLLOWED", "another")
    with pytest.warns(UserWarning, match="has not been compared with"):
        KlipPPO("MlpPolicy", "CartPole-v1", **BRIEF)
