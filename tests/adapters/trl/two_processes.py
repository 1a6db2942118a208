"""Run by `torchrun` in test_processes.py: TRL's own trainer, then ours, and what they logged."""

import json
import sys
from pathlib import Path

import torch
from trl import GRPOTrainer

from klip.adapters.trl import KlipGRPOTrainer
from tests.adapters.trl.test_windows import Watched
from tests.adapters.trl.world import logged, parameters, trainer

WINDOW = {"max_steps": 4, "logging_steps": 4, "learning_rate": 2e-3}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    stock = trainer(folder, GRPOTrainer, max_steps=4, learning_rate=2e-3)
    stock.train()
    ours = trainer(folder, KlipGRPOTrainer, ours={"shape": "clip"}, max_steps=4, learning_rate=2e-3)
    ours.train()
    pooled = trainer(folder, Watched, ours={"shape": "clip"}, **WINDOW)
    pooled.train()
    (window,) = pooled.windows
    tokens = [d.log_ratio[d.active].exp() for d in window]
    wanted, got = parameters(stock), parameters(ours)
    found = {
        "processes": ours.accelerator.num_processes,
        "difference": float((got - wanted).abs().max() / wanted.abs().max()),
        "its": [entry["clip_ratio/region_mean"] for entry in logged(stock)],
        "own": [entry["klip/kill"] for entry in logged(ours)],
        "pooled": {k: x for k, x in logged(pooled)[0].items() if k.startswith("klip/")},
        "tokens": torch.cat(tokens).tolist(),  # of this process alone
        "sequences": [entry["klip/sequences"] for entry in logged(ours)],
    }
    (folder / f"{ours.accelerator.process_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
