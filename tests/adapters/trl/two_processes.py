"""Run by `torchrun` in test_processes.py: TRL's own trainer, then ours, and what they logged."""

import json
import sys
from pathlib import Path

import torch
from trl import GRPOTrainer

from klip.adapters.trl import KlipGRPOTrainer
from tests.adapters.trl.world import logged, parameters, trainer


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    stock = trainer(folder, GRPOTrainer, max_steps=4, learning_rate=2e-3)
    stock.train()
    ours = trainer(folder, KlipGRPOTrainer, ours={"shape": "clip"}, max_steps=4, learning_rate=2e-3)
    ours.train()
    wanted, got = parameters(stock), parameters(ours)
    found = {
        "processes": ours.accelerator.num_processes,
        "difference": float((got - wanted).abs().max() / wanted.abs().max()),
        "its": [entry["clip_ratio/region_mean"] for entry in logged(stock)],
        "own": [entry["klip/kill"] for entry in logged(ours)],
        "sequences": [entry["klip/sequences"] for entry in logged(ours)],
    }
    (folder / f"{ours.accelerator.process_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
