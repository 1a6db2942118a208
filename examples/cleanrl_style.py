"""PPO in one file, in the style of CleanRL, with its trust region as an option.

    python examples/cleanrl_style.py --shape "spo(eps=0.2)"

Three lines, marked `# klip`, are all that a script needs; the rest is any PPO.
"""

from dataclasses import dataclass

import gymnasium as gym
import torch
import tyro
from torch import nn
from torch.distributions import Categorical

from klip.adapters.samples import parse, policy_loss  # klip


@dataclass
class Args:
    """The options."""

    env: str = "CartPole-v1"
    """an environment with vectors as observations and a finite number of actions"""
    shape: str = "clip(eps=0.2)"
    """the trust region; `klip shapes` lists them"""
    seed: int = 1
    steps: int = 50_000
    """environment steps in all"""
    envs: int = 4
    horizon: int = 128
    """steps of each environment per rollout"""
    epochs: int = 4
    minibatches: int = 4
    lr: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    max_grad_norm: float = 0.5


class Agent(nn.Module):
    """A policy and a value, in networks of their own."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor, self.critic = network(inputs, actions, gain=0.01), network(inputs, 1, gain=1.0)

    def forward(self, observation: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """The distribution of actions, and the value `[N]`."""
        return Categorical(logits=self.actor(observation)), self.critic(observation).squeeze(-1)


def network(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """A network with two hidden layers of 64."""
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def tensor(x: object) -> torch.Tensor:
    """An array of an environment as the networks take it."""
    return torch.as_tensor(x, dtype=torch.float32)


def train(args: Args) -> tuple[Agent, list[dict[str, float]]]:
    """The trained agent, and a row of numbers for each rollout."""
    torch.manual_seed(args.seed)
    same_step = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec(args.env, args.envs, vectorization_mode="sync", vector_kwargs=same_step)
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    adam = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    shape = parse(args.shape)  # klip

    batch = args.horizon * args.envs
    observation = tensor(envs.reset(seed=args.seed)[0])
    returns, running, rows = [], torch.zeros(args.envs), []
    for _ in range(args.steps // batch):
        # 1. A rollout. An episode that is cut short goes on in the value of its last state.
        steps = []
        for _ in range(args.horizon):
            with torch.no_grad():
                policy, value = agent(observation)
            action = policy.sample()
            after, reward, ended, cut, info = envs.step(action.numpy())
            reward = tensor(reward)
            done, cut = torch.as_tensor(ended | cut), torch.as_tensor(cut & ~ended)
            running += reward
            returns += running[done].tolist()
            running[done] = 0
            for i in cut.nonzero()[:, 0].tolist():
                with torch.no_grad():
                    reward[i] += args.gamma * agent(tensor(info["final_obs"][i]))[1]
            steps.append((observation, action, policy.log_prob(action), reward, done, value))
            observation = tensor(after)
        observations, actions, old_log_probs, rewards, dones, values = map(
            torch.stack, zip(*steps, strict=True)
        )

        # 2. Generalised advantages, from the last step to the first.
        with torch.no_grad():
            following = agent(observation)[1]
        advantages, gain = torch.zeros_like(rewards), torch.zeros(args.envs)
        for t in reversed(range(args.horizon)):
            alive = 1.0 - dones[t].float()
            delta = rewards[t] + args.gamma * alive * following - values[t]
            gain = delta + args.gamma * args.gae_lambda * alive * gain
            advantages[t], following = gain, values[t]
        targets = advantages + values
        kept = (observations, actions, old_log_probs, advantages, targets)
        flat = [x.flatten(0, 1) for x in kept]

        # 3. Epochs of minibatches.
        for _ in range(args.epochs):
            for chosen in torch.randperm(batch).chunk(args.minibatches):
                obs, action, old_log_prob, advantage, target = (x[chosen] for x in flat)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                policy, value = agent(obs)
                log_prob = policy.log_prob(action)
                pg_loss, stats = policy_loss(log_prob, old_log_prob, advantage, shape)  # klip
                value_loss = 0.5 * (value - target).square().mean()
                entropy = policy.entropy().mean()
                loss = pg_loss + args.value_weight * value_loss - args.entropy_weight * entropy
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                adam.step()
        recent = returns[-20:]
        row = {"return": sum(recent) / len(recent) if recent else float("nan")}
        rows.append(row | {name: stats.metrics()[name] for name in ("kept", "weakened", "zeroed")})
    envs.close()
    return agent, rows


if __name__ == "__main__":
    _, rows = train(tyro.cli(Args))
    for i in range(0, len(rows), max(len(rows) // 10, 1)):
        print(f"rollout {i:4d}  " + "  ".join(f"{k} {x:.3g}" for k, x in rows[i].items()))
