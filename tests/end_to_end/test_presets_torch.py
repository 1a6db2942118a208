"""The presets `cleanrl` and `spinning-up`: their updates, written here after their formulas.

Both are scripts, which cannot be installed. What is theirs here is which loss, in which order, over
which samples, with which optimiser; the rollout and the weights are ours.
"""

import numpy as np
import pytest
import torch
from torch import nn

from klip.ppo import policy
from klip.ppo.advantages import Rollout
from klip.ppo.config import config
from klip.tasks import Box, Discrete
from tests.ppo.first_updates import updated

SIZE = 4
SPACES = {"box": Box(-np.ones(3, np.float32), np.ones(3, np.float32)), "discrete": Discrete(3)}
TASKS = {"box": "Pendulum-v1", "discrete": "CartPole-v1"}  # whose actions are of that kind
ABSOLUTE = 1e-6


class Network(nn.Module):
    """Policy and critic with tanh between layers, from our arrays."""

    def __init__(self, arrays):
        super().__init__()
        self.nets = nn.ModuleDict({net: self.built(arrays, net) for net in ("policy", "value")})
        self.log_std = None
        if "policy.log_std" in arrays:
            self.log_std = nn.Parameter(torch.tensor(arrays["policy.log_std"]))

    @staticmethod
    def built(arrays, net):
        layers = []
        for depth in range(3):
            weight = torch.tensor(arrays[f"{net}.{depth}.weight"]).T.contiguous()
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight, linear.bias = (
                nn.Parameter(weight),
                nn.Parameter(torch.tensor(arrays[f"{net}.{depth}.bias"])),
            )
            layers += [linear, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def policy(self, x, action):
        """log pi(action), and the entropy."""
        out = self.nets["policy"](x)
        if self.log_std is None:
            chosen = torch.distributions.Categorical(logits=out)
            return chosen.log_prob(action[:, 0]), chosen.entropy()
        normal = torch.distributions.Normal(out, self.log_std.exp().expand_as(out))
        return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)

    def value(self, x):
        return self.nets["value"](x)[:, 0]

    def arrays(self):
        kept = {}
        for net, layers in self.nets.items():
            for depth, linear in enumerate(layers[::2]):
                kept[f"{net}.{depth}.weight"] = linear.weight.detach().numpy().T
                kept[f"{net}.{depth}.bias"] = linear.bias.detach().numpy()
        if self.log_std is not None:
            kept["policy.log_std"] = self.log_std.detach().numpy()
        return kept


def setting(preset, space, steps, envs, **fields):
    """A config of the preset, weights, and a rollout with ends and cuts."""
    action = SPACES[space]
    c = config(
        TASKS[space], preset=preset, rollout=steps, envs=envs, steps=steps * envs,
        minibatch=min(config(TASKS[space], preset=preset).minibatch, steps * envs), **fields,
    )  # fmt: skip
    layout = policy.layout_of(SIZE, action, c.hidden, **c.networks)
    rng = np.random.default_rng(5)
    vector = policy.initial(layout, 0, policy.Start(log_std=c.log_std, policy_gain=0.5))
    ended = rng.random((steps, envs)) < 0.04
    cut = ended & (rng.random((steps, envs)) < 0.5)
    chosen = rng.integers(3, size=(steps, envs, 1))
    if space == "box":
        chosen = rng.normal(0, 0.7, (steps, envs, 3)).astype(np.float32)
    rollout = Rollout(
        observation=rng.normal(size=(steps, envs, SIZE)).astype(np.float32),
        last=rng.normal(size=(envs, SIZE)).astype(np.float32),
        action=chosen,
        reward=rng.normal(size=(steps, envs)).astype(np.float32),
        ended=ended.astype(np.float32),
        bootstrap=np.where(cut, rng.normal(size=(steps, envs)), 0).astype(np.float32),
    )
    return c, layout, vector, rollout


def cleanrl(network, rollout, rows, *, lr, minibatch, entropy):
    """Its epochs: one loss of three, normalised and clipped minibatch by minibatch."""
    steps, envs = rollout.reward.shape
    x, action = torch.tensor(rollout.observation), torch.tensor(rollout.action)
    x, action = x.reshape(steps * envs, -1), action.reshape(steps * envs, -1)
    with torch.no_grad():
        values = network.value(x).reshape(steps, envs)
        old = network.policy(x, action)[0]
        following, advantage = network.value(torch.tensor(rollout.last)), torch.zeros(envs)
        advantages = torch.zeros(steps, envs)
        for t in reversed(range(steps)):
            goes_on = 1 - torch.tensor(rollout.ended[t])
            delta = torch.tensor(rollout.reward[t]) + 0.99 * following * goes_on - values[t]
            advantages[t] = advantage = delta + 0.99 * 0.95 * goes_on * advantage
            following = values[t]
        targets, values = (advantages + values).ravel(), values.ravel()
    adam = torch.optim.Adam(network.parameters(), lr=lr, eps=1e-5)
    for order in rows:
        for begin in range(0, len(order), minibatch):
            b = torch.tensor(order[begin : begin + minibatch].astype(np.int64))
            log_prob, spread = network.policy(x[b], action[b])
            w, a = (log_prob - old[b]).exp(), advantages.ravel()[b]
            a = (a - a.mean()) / (a.std() + 1e-8)
            surrogate = torch.max(-a * w, -a * w.clamp(0.8, 1.2)).mean()
            v = network.value(x[b])
            near = values[b] + (v - values[b]).clamp(-0.2, 0.2)
            worse = torch.max((v - targets[b]) ** 2, (near - targets[b]) ** 2)
            loss = surrogate - entropy * spread.mean() + 0.5 * 0.5 * worse.mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            adam.step()


def spinning_up(network, rollout, target_kl):
    """80 steps of the policy on all samples, until the KL is large; then 80 of the critic."""
    x = torch.tensor(rollout.observation[:, 0])
    action = torch.tensor(rollout.action[:, 0])
    with torch.no_grad():
        values, old = network.value(x).numpy(), network.policy(x, action)[0]
        last = float(network.value(torch.tensor(rollout.last))[0])
    advantages, returns = np.zeros(len(values)), np.zeros(len(values))
    path = 0
    for t in range(len(values)):
        ends = rollout.ended[t, 0] > 0
        if not ends and t < len(values) - 1:
            continue
        final = rollout.bootstrap[t, 0] if ends else last
        reward = np.append(rollout.reward[path : t + 1, 0], final)
        value = np.append(values[path : t + 1], final)
        delta, sums = reward[:-1] + 0.99 * value[1:] - value[:-1], [0.0, final]
        for k in reversed(range(len(delta))):
            sums = [delta[k] + 0.99 * 0.97 * sums[0], reward[k] + 0.99 * sums[1]]
            advantages[path + k], returns[path + k] = sums
        path = t + 1
    a = torch.tensor(((advantages - advantages.mean()) / advantages.std()).astype(np.float32))
    returns = torch.tensor(returns.astype(np.float32))
    of_policy = [p for name, p in network.named_parameters() if "value" not in name]
    adam = torch.optim.Adam(of_policy, lr=3e-4)
    taken = 0
    while taken < 80:
        log_prob, _ = network.policy(x, action)
        if (old - log_prob).mean().item() > 1.5 * target_kl:
            break
        taken += 1
        w = (log_prob - old).exp()
        adam.zero_grad()
        (-torch.min(w * a, w.clamp(0.8, 1.2) * a).mean()).backward()
        adam.step()
    adam = torch.optim.Adam(network.nets["value"].parameters(), lr=1e-3)
    for _ in range(80):
        adam.zero_grad()
        ((network.value(x) - returns) ** 2).mean().backward()
        adam.step()
    return taken


def check(network, layout, vector, outcome, absolute=ABSOLUTE):
    before, after = layout.split(vector), layout.split(np.asarray(outcome.learner.vector))
    for name, expected in network.arrays().items():
        np.testing.assert_allclose(after[name], expected, rtol=0, atol=absolute, err_msg=name)
        assert np.abs(expected - before[name]).max() > 50 * ABSOLUTE


@pytest.mark.parametrize("space", SPACES)
def test_the_first_update_is_that_of_a_cleanrl_script(space):
    """At its own settings, but for a rollout that is shorter."""
    c, layout, vector, rollout = setting("cleanrl", space, 128, 2)
    network = Network(layout.split(vector))
    _, rows, outcome = updated(c, layout, vector, rollout)
    script = {"box": {"lr": 3e-4, "minibatch": 64, "entropy": 0.0},
              "discrete": {"lr": 2.5e-4, "minibatch": 128, "entropy": 0.01}}  # fmt: skip
    cleanrl(network, rollout, rows, **script[space])
    assert len(rows) == {"box": 10, "discrete": 4}[space]
    check(network, layout, vector, outcome)


@pytest.mark.parametrize("space", SPACES)
def test_the_first_update_is_that_of_spinning_up(space):
    """The policy stops early, and the critic goes on."""
    c, layout, vector, rollout = setting("spinning-up", space, 200, 1)
    network = Network(layout.split(vector))
    _, _, outcome = updated(c, layout, vector, rollout)
    taken = spinning_up(network, rollout, 0.01)
    assert 2 < taken < 79
    assert outcome.learner.optimiser[1].count.tolist() == [taken, 80]
    # 80 steps of 1e-3 with Adam's epsilon at 1e-8, where rounding counts as gradients do
    check(network, layout, vector, outcome, absolute=5e-6)
