"""What a lane-step costs beyond its physics: `step` of lanes against the bare `mj_step` calls.

    python benchmarks/lanes.py [--steps 200] [--core 0]

The bare calls start from the states that the lanes pass through, in one MjData, and know of no
resets. Of several turns the fastest counts, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import mujoco  # type: ignore[import-untyped]
import numpy as np

from klip.tasks import Box, Lanes, make_lanes
from klip.tasks.physics import load_model
from klip.tasks.robots import ROBOTS


def bare(task: str, actions: np.ndarray, states: list[np.ndarray]) -> float:
    """Seconds of `mj_step` alone, over the states and actions that the lanes went through."""
    robot = ROBOTS[task]
    model = load_model(robot.xml)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    data = mujoco.MjData(model)
    spent = 0.0
    for action, state in zip(actions, states, strict=True):
        for u, row in zip(action, state, strict=True):
            mujoco.mj_setState(model, data, row, kind)
            data.ctrl[:] = u
            began = time.perf_counter()
            mujoco.mj_step(model, data, robot.frame_skip)
            spent += time.perf_counter() - began
    return spent


def visit(task: str, actions: np.ndarray) -> tuple[list[Any], int]:
    """The physics state before each step, if there is any, and how many episodes end."""
    lanes, states, ends = start(task, actions.shape[1]), [], 0
    for action in actions:
        states.append(lanes.state().get("physics"))
        step = lanes.step(action)
        ends += int((step.terminated | step.truncated).sum())
    return states, ends


def ours(task: str, actions: np.ndarray) -> float:
    """Seconds of `step`, resets included."""
    lanes = start(task, actions.shape[1])
    began = time.perf_counter()
    for action in actions:
        lanes.step(action)
    return time.perf_counter() - began


def start(task: str, count: int) -> Lanes:
    lanes = make_lanes(task, count, lambda lane, episode: 1000 * lane + episode)
    lanes.reset()
    return lanes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("tasks", nargs="*", default=[*ROBOTS, "CartPole-v1"])
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    columns = ("lanes", "step us", "bare us", "ratio", "extra us", "ends/step")
    print(f"{'task':<16}" + "".join(f"{c:>11}" for c in columns))
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)  # MuJoCo logs to the working directory
        for task in args.tasks:
            for lanes in (1, 5, 20):
                print(line(task, lanes, args.steps * max(1, 5 // lanes), args.turns), flush=True)


def line(task: str, lanes: int, steps: int, turns: int) -> str:
    random = np.random.default_rng(0)
    action = make_lanes(task, 1, lambda lane, episode: 0).action
    actions: np.ndarray
    if isinstance(action, Box):
        size = (steps, lanes, len(action.low))
        actions = random.uniform(action.low, action.high, size).astype(np.float32)
    else:
        actions = random.integers(0, 2, (steps, lanes))
    states, ends = visit(task, actions)
    step = min(ours(task, actions) for _ in range(turns))
    physics = min(bare(task, actions, states) for _ in range(turns)) if task in ROBOTS else 0.0
    step, physics = (s / (steps * lanes) * 1e6 for s in (step, physics))
    ratio = step / physics if physics else float("nan")
    numbers = f"{lanes:>11}{step:>11.2f}{physics:>11.2f}{ratio:>11.3f}{step - physics:>11.2f}"
    return f"{task:<16}{numbers}{ends / steps:>11.2f}"


if __name__ == "__main__":
    main()
