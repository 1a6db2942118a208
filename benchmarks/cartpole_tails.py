"""How far does a killed arm run? CartPole's ratios against 1 + eps max(1, P-/P+).

    python benchmarks/cartpole_tails.py --seeds 5

CartPole has two actions, so a state is a bandit of two arms, and theory says where the good one
ends under PPO-Clip: P+ and P- are the old probabilities of the action of positive advantage and of
the other. A small PPO of its own (network, GAE, Adam) is trained with each shape; after each
update, the ratio of every sample of positive advantage that the clip would have killed is set
against the formula. Writes benchmarks/results/cartpole_tails.json.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from klip.shapes import Context, Shape, parse

RESULT = Path(__file__).parent / "results" / "cartpole_tails.json"
SHAPES = ("clip", "ramp", "spo", "ppo-rb", "is")
EPS, LANES, ROLLOUT, GAMMA, LAMBDA = 0.2, 8, 256, 0.99, 0.95
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Bins of P+, the old probability of the action that is pushed up."""

Params = list[tuple[Any, Any]]


def network(rng: np.random.Generator, sizes: tuple[int, ...], last: float) -> Params:
    """Layers of orthogonal weights; the last is scaled by `last`."""
    layers = []
    for i, (into, out) in enumerate(pairwise(sizes)):
        q = np.linalg.qr(rng.normal(size=(max(into, out), min(into, out))))[0]
        w = (q if into >= out else q.T) * (last if i == len(sizes) - 2 else 2**0.5)
        layers.append((jnp.asarray(w, jnp.float32), jnp.zeros(out, jnp.float32)))
    return layers


def forward(params: Params, x: Any) -> Any:
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


@partial(jax.jit, static_argnames=("shape", "optimiser", "epochs"))
def update(
    params: Any, state: Any, batch: Any, *, shape: Shape, optimiser: Any, epochs: int
) -> tuple[Any, Any]:
    """`epochs` full-batch steps of the shape's surrogate and of the value's error."""
    x, action, old, advantage, target = batch
    context = Context(**({"old_log_prob": old} if "old_log_prob" in shape.needs else {}))

    def loss(params: Any) -> Any:
        actor, critic = params
        new = jnp.take_along_axis(jax.nn.log_softmax(forward(actor, x)), action[:, None], 1)[:, 0]
        m = shape.multiplier(jax.lax.stop_gradient(new - old), advantage, context)
        error = forward(critic, x)[:, 0] - target
        return -(jax.lax.stop_gradient(m) * new).mean() + 0.5 * (error**2).mean()

    def step(carry: Any, _: None) -> tuple[Any, None]:
        params, state = carry
        moves, state = optimiser.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, moves), state), None

    carry, _ = jax.lax.scan(step, (params, state), None, length=epochs)
    return carry


class Cart:
    """Lanes of Gymnasium's CartPole that begin again by themselves."""

    def __init__(self, seed: int) -> None:
        self.envs = [gymnasium.make("CartPole-v1") for _ in range(LANES)]
        self.x = np.stack([e.reset(seed=seed * LANES + i)[0] for i, e in enumerate(self.envs)])

    def step(self, action: Any) -> tuple[Any, Any, Any]:
        """(after, fell, over): what came of it, whether the pole fell, and whether it is over."""
        after, fell, over = np.zeros_like(self.x), np.zeros(LANES), np.zeros(LANES)
        for i, env in enumerate(self.envs):
            after[i], _, down, late, _ = env.step(int(action[i]))
            fell[i], over[i] = down, down or late
            self.x[i] = env.reset()[0] if over[i] else after[i]
        return after, fell, over


def rollout(cart: Cart, params: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Observations, actions, old log-probabilities, advantages and targets of `ROLLOUT` steps."""
    actor, critic = (([(np.asarray(w), np.asarray(b)) for w, b in p]) for p in params)

    def run(layers: Any, x: Any) -> Any:
        for w, b in layers[:-1]:
            x = np.tanh(x @ w + b)
        return x @ layers[-1][0] + layers[-1][1]

    xs, actions, logs, values, nexts, fells, overs = [], [], [], [], [], [], []
    for _ in range(ROLLOUT):
        x = cart.x.astype(np.float32).copy()
        logits = run(actor, x)
        log = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        action = (rng.random(LANES) < np.exp(log[:, 1])).astype(int)
        xs.append(x)
        actions.append(action)
        logs.append(log[np.arange(LANES), action])
        values.append(run(critic, x)[:, 0])
        after, fell, over = cart.step(action)
        nexts.append(run(critic, after.astype(np.float32))[:, 0])
        fells.append(fell)
        overs.append(over)
    advantage, carried = np.zeros((ROLLOUT, LANES)), np.zeros(LANES)
    for t in reversed(range(ROLLOUT)):
        # at a time limit, the value of where it was cut off stands for the rest
        beyond = nexts[t] * (1 - fells[t])
        carried = 1 + GAMMA * beyond - values[t] + GAMMA * LAMBDA * (1 - overs[t]) * carried
        advantage[t] = carried
    flat = [np.concatenate(rows) for rows in (xs, actions, logs)]
    target = (advantage + np.stack(values)).ravel()
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    return (*flat, scaled.ravel(), target)


def tails(shape: Shape, seed: int, updates: int, lr: float, epochs: int) -> tuple[Any, Any, Any]:
    """P+ and w of samples of positive advantage beyond 1 + eps, and w of all those of one."""
    rng, cart = np.random.default_rng(seed), Cart(seed)
    params: Any = (network(rng, (4, 64, 64, 2), 0.01), network(rng, (4, 64, 64, 1), 1.0))
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(lr, eps=1e-5))
    state, masses, ratios, every = optimiser.init(params), [], [], []
    for _ in range(updates):
        x, action, old, advantage, _ = batch = rollout(cart, params, rng)
        ready = tuple(jnp.asarray(v, None if v.dtype.kind == "i" else jnp.float32) for v in batch)
        params, state = update(
            params, state, ready, shape=shape, optimiser=optimiser, epochs=epochs
        )
        new = np.asarray(jax.nn.log_softmax(forward(params[0], x)))[np.arange(len(x)), action]
        w = np.exp(new - old)
        killed = (advantage > 0) & (w > 1 + EPS)
        masses.append(np.exp(old[killed]))
        ratios.append(w[killed])
        every.append(w[advantage > 0])
    return np.concatenate(masses), np.concatenate(ratios), np.concatenate(every)


def summary(p: Any, w: Any) -> list[dict[str, float]]:
    """By bins of P+: how many, quantiles of w, the formula, and the share beyond it."""
    rows = []
    for low, high in pairwise(EDGES):
        chosen = (p > low) & (p <= high)
        if not chosen.any():
            continue
        formula = 1 + EPS * np.maximum(1, (1 - p[chosen]) / p[chosen])
        rows.append({
            "above": low, "to": high, "samples": int(chosen.sum()),
            "median w": float(np.median(w[chosen])), "99 % w": float(np.quantile(w[chosen], 0.99)),
            "largest w": float(w[chosen].max()), "median formula": float(np.median(formula)),
            "share beyond": float((w[chosen] > formula).mean()),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--lr", type=float, nargs="+", default=[3e-4, 3e-3])
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 40])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    given = parser.parse_args()
    found = []
    for name in given.shapes:
        for lr in given.lr:
            for epochs in given.epochs:
                shape = parse(name).initial
                runs = [tails(shape, s, given.updates, lr, epochs) for s in range(given.seeds)]
                p, w, every = (np.concatenate(part) for part in zip(*runs, strict=True))
                rows, share = summary(p, w), float(len(w) / len(every))
                found.append({
                    "shape": str(shape), "lr": lr, "epochs": epochs, "share beyond 1 + eps": share,
                    "largest w": float(every.max()), "rows": rows,
                })  # fmt: skip
                told = f"of A > 0, {share:.2%} end beyond 1 + eps, at most at {every.max():.4g}"
                print(f"{shape} lr {lr:g} epochs {epochs}: {told}")
                for row in rows:
                    print("  " + ", ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
    about = {"seeds": given.seeds, "updates": given.updates, "samples": LANES * ROLLOUT}
    given.output.write_text(json.dumps(about | {"found": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
