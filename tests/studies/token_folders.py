"""A token experiment that nobody trained: runs as the lab writes them, made up."""

import hashlib

import numpy as np

from klip.runs import RunFolder, config_id, folder_of
from klip.runs.completions import Completion

ARMS = (
    ("position", "plain clip", "clip(eps=0.1)", "", 0),
    ("position", "sharp <answer>", "clip(eps=from-end(tail=0.05, body=0.2, count=1))", "wide clip",
     0),
    ("position", "wide clip", "clip(eps=0.3)", "", 0),
    ("age", "constant epsilon", "clip(eps=0.1)", "", 3),
    ("age", "hard drop", "max-age(limit=1) * clip(eps=0.1)", "", 3),
)  # fmt: skip
ITERATIONS = 6


def token_config(group, arm, shape, against="", replay=0, seed=0, place=0):
    return {
        "kind": "tokens", "shape": shape, "code": "",
        "task": f"addition-replay{replay}" if replay else "addition",
        "seed": seed, "group": group, "arm": arm, "place": place, "against": against,
        "iterations": ITERATIONS, "prompts": 8, "completions": 4, "replay": replay, "shown": 2,
        "warmup": {"seed": seed, "digits": 1, "steps": 250},
    }  # fmt: skip


def rows(config):
    about = f"{config['arm']} {config['seed']}"
    draw = np.random.default_rng([*hashlib.sha256(about.encode()).digest()[:4]])
    for k in range(1, ITERATIONS + 1):
        looked = k % 2 == 0
        row = {
            "iteration": k, "step": 32 * k, "return_mean": float(draw.uniform()),
            "entropy": float(draw.uniform()), "zeroed_mass": float(draw.uniform(0, 0.1)),
            **{f"{span}{part}": float(draw.uniform(0, 0.3)) for part in ("zeroed", "weakened")
               for span in ("", "answer_", "reasoning_")},
            "held_out": float(0.5 + 0.05 * k + draw.normal(0, 0.02)) if looked else None,
            "greedy": float(draw.uniform(0.6, 0.9)) if looked else None,
            "start_held_out": 0.4 + config["seed"] / 100,
        }  # fmt: skip
        if config["replay"]:
            row["age_share"] = [0.7, 0.2, 0.1, None]
            for part in ("age_zeroed", "age_weakened"):
                row[part] = [*draw.uniform(0, 0.3, 3).tolist(), None]
            row["age_share"][3] = 0.0
        yield row


SAMPLES = (
    Completion("4+5=", "4+5=9#9$", 0, 1.0, (1.3,) * 8, (0.0,) * 8, "zkkkkkkw"),
    Completion("4+5=", "4+5=8#8$", 0, -1.0, (0.9,) * 8, (-0.9,) * 8, "kkkkkkkk"),
)


def make_token_run(out, config, status="done"):
    id = config_id(config)
    path = folder_of(out, config["task"], config["arm"], config["seed"], id)
    folder = RunFolder(path, config)
    for row in rows(config):
        folder.append(row)
    samples = np.frombuffer(Completion.to_json(SAMPLES), np.uint8)
    folder.save(ITERATIONS, {"w": np.full(3, config["seed"]), "samples": samples}, status)
    folder.close()
    return folder.path


def make_experiment(out, seeds=2):
    """All arms, with so many seeds each."""
    for place, (group, arm, shape, against, replay) in enumerate(ARMS):
        for seed in range(seeds):
            make_token_run(out, token_config(group, arm, shape, against, replay, seed, place))
    return out
