"""`preset="sb3"`: from its weights and its rollout, the update of Stable-Baselines3 itself."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

from klip.ppo import policy
from klip.ppo.advantages import Rollout
from klip.ppo.config import config
from klip.tasks import Box, Discrete
from tests.ppo.first_updates import updated

STEPS, ENVS = 128, 2
TASKS = {"box": ("Pendulum-v1", 30), "discrete": ("CartPole-v1", 25)}
ABSOLUTE = 1e-6


class Watch(BaseCallback):
    """What the buffer does not keep: rewards before the value of a cut episode is added to them."""

    def __init__(self):
        super().__init__()
        self.rewards, self.ends, self.cuts = [], [], []

    def _on_step(self):
        self.rewards.append(np.array(self.locals["rewards"]))
        self.ends.append(np.array(self.locals["dones"]))
        for env, info in enumerate(self.locals["infos"]):
            if info.get("TimeLimit.truncated"):
                self.cuts.append((len(self.rewards) - 1, env, info["terminal_observation"]))
        return True


def theirs(task, limit, **options):
    """Their agent with its first rollout, and what was seen of it."""
    make = [lambda: TimeLimit(gymnasium.make(task).unwrapped, limit) for _ in range(ENVS)]
    torch.manual_seed(0)
    agent = PPO("MlpPolicy", DummyVecEnv(make), n_steps=STEPS, seed=0, device="cpu", **options)
    watch = Watch()
    _, called = agent._setup_learn(STEPS * ENVS, watch)
    agent.collect_rollouts(agent.env, called, agent.rollout_buffer, STEPS)
    return agent, watch


def weights(agent):
    """Their parameters as our vector has them."""
    state = {name: array.detach().numpy() for name, array in agent.policy.state_dict().items()}
    arrays = {}
    for net, head in (("policy", "action_net"), ("value", "value_net")):
        layers = (f"mlp_extractor.{net}_net.0", f"mlp_extractor.{net}_net.2", head)
        for depth, name in enumerate(layers):
            arrays[f"{net}.{depth}.weight"] = state[f"{name}.weight"].T
            arrays[f"{net}.{depth}.bias"] = state[f"{name}.bias"]
    if "log_std" in state:
        arrays["policy.log_std"] = state["log_std"]
    return arrays


def ours(agent, watch, task, **fields):
    """The same rollout, the layout, and the config of the preset for it."""
    space = agent.action_space
    action = Box(space.low, space.high) if hasattr(space, "low") else Discrete(int(space.n))
    c = config(task, preset="sb3", envs=ENVS, rollout=STEPS, steps=STEPS * ENVS, **fields)
    size = agent.observation_space.shape[0]
    layout = policy.layout_of(size, action, c.hidden, **c.networks)
    vector = np.asarray(layout.join(weights(agent)))
    buffer = agent.rollout_buffer
    bootstrap = np.zeros((STEPS, ENVS), np.float32)
    critic = layout.split(vector[None])
    for t, env, final in watch.cuts:
        x = np.asarray(final, np.float32)[None, None]
        bootstrap[t, env] = policy.forward(layout, policy.layers(layout, critic, "value"), x)[
            0, 0, 0
        ]
    chosen = buffer.actions if isinstance(action, Box) else buffer.actions.astype(np.int64)
    rollout = Rollout(
        observation=buffer.observations,
        last=np.asarray(agent._last_obs, np.float32),
        action=chosen.reshape(STEPS, ENVS, -1),
        reward=np.array(watch.rewards, np.float32),
        ended=np.array(watch.ends, np.float32),
        bootstrap=bootstrap,
    )
    return c, layout, vector, rollout


def env_major(order):
    """Our places in [T, E] as theirs, which have all of an environment together."""
    step, env = np.divmod(order, ENVS)
    return env * STEPS + step


VARIANTS = {
    "as it is": ({}, {}, "clip(eps=0.2)"),
    "other options": (
        {"clip_range": 0.1, "clip_range_vf": 0.05, "ent_coef": 0.01, "vf_coef": 0.7, "n_epochs": 3,
         "gae_lambda": 0.9, "gamma": 0.97, "learning_rate": 1e-3, "batch_size": 50},
        {"value_clip": 0.05, "entropy_weight": 0.01, "value_weight": 1.4, "epochs": 3,
         "gae_lambda": 0.9, "gamma": 0.97, "lr": 1e-3, "minibatch": 50},
        "clip(eps=0.1)",
    ),
    "target_kl": ({"target_kl": 5e-4}, {"stop_at": "step"}, "target-kl(clip, target=5e-4)"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # a last minibatch that is smaller
@pytest.mark.parametrize("space", TASKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_update_is_that_of_stable_baselines3(space, variant, monkeypatch):
    """All epochs of a rollout, with episodes that ended and that a time limit cut."""
    options, fields, shape = VARIANTS[variant]
    task, limit = TASKS[space]
    agent, watch = theirs(task, limit, **options)
    assert watch.cuts
    c, layout, vector, rollout = ours(agent, watch, task, shape=shape, **fields)
    batch, rows, outcome = updated(c, layout, vector, rollout)
    where = env_major(np.arange(STEPS * ENVS))
    flat = {name: getattr(agent.rollout_buffer, name).swapaxes(0, 1).ravel()[where]
            for name in ("log_probs", "values", "advantages", "returns")}  # fmt: skip
    for name, mine in (("log_probs", batch.old_log_prob), ("values", batch.old_value),
                       ("advantages", batch.advantage), ("returns", batch.target)):  # fmt: skip
        np.testing.assert_allclose(mine, flat[name], rtol=2e-6, atol=2e-5, err_msg=name)
    drawn = iter(env_major(order) for order in rows)
    monkeypatch.setattr(np.random, "permutation", lambda n: next(drawn))
    agent.set_logger(configure(None, []))
    agent.train()
    before, after = layout.split(vector), layout.split(np.asarray(outcome.learner.vector))
    for name, mine in after.items():
        expected = weights(agent)[name]
        np.testing.assert_allclose(mine, expected, rtol=0, atol=ABSOLUTE, err_msg=name)
        assert np.abs(expected - before[name]).max() > 50 * ABSOLUTE
    if variant == "target_kl":
        assert int(outcome.metrics["epochs_run"]) < c.epochs
