"""Our token loss against a plain PPO-Clip loss in PyTorch: forward and backward, as a ratio.

    python benchmarks/tokens.py

One process and one thread; each repetition times every contender once, in turn, so that whatever
else the machine does falls on all of them alike. The figure is the median over repetitions of the
contender's time over the plain loss's in the same repetition. Writes results/tokens.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from klip.shapes import CISPO, SAPO, Clip, Ramp
from klip.tokens import MeanOfMeans, SequenceMean, token_loss

RESULT = Path(__file__).parent / "results" / "tokens.json"


def batch(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Log-probs some updates apart, one advantage a sequence, ragged lengths."""
    torch.manual_seed(0)
    old = -torch.rand(rows, length) * 3
    ends = torch.randint(length // 2, length + 1, (rows, 1))
    return {
        "log_prob": (old + 0.2 * torch.randn(rows, length)).requires_grad_(True),
        "old_log_prob": old,
        "advantages": torch.randn(rows),
        "mask": torch.arange(length) < ends,
    }


def plain(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """PPO-Clip as trainers write it, with a mean over the tokens."""
    ratio = torch.exp(log_prob - old_log_prob)
    advantage = advantages.unsqueeze(1)
    loss = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
    return (loss * mask).sum() / mask.sum()  # a float mask: a bool one would slow it down


def contenders() -> dict[str, Callable[..., torch.Tensor]]:
    """Every way of computing a loss that is timed, by name."""

    def ours(read: bool = False, **how: Any) -> Callable[..., torch.Tensor]:
        def loss(**tensors: Any) -> torch.Tensor:
            result = token_loss(**tensors, **how)
            if read:
                result.diagnostics.metrics()  # type: ignore[union-attr]
            return result.loss

        return loss

    gspo: dict[str, Any] = {"level": SequenceMean(), "reducer": MeanOfMeans()}
    return {
        "plain": plain,
        "clip, diagnostics=False": ours(diagnostics=False),
        "clip, no host read": ours(diagnostics=False, nonfinite="drop"),
        "clip": ours(),
        "clip, diagnostics read": ours(read=True),
        "ramp": ours(shape=Ramp(), diagnostics=False),
        "sapo": ours(shape=SAPO(), diagnostics=False),
        "cispo": ours(shape=CISPO(), diagnostics=False),
        "gspo": ours(shape=Clip(low=3e-4, high=4e-4), diagnostics=False, **gspo),
    }


def measure(rows: int, length: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of each contender in each repetition."""
    tensors, losses = batch(rows, length), contenders()
    floating = tensors | {"mask": tensors["mask"].float()}
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    for repetition in range(repetitions + 3):
        for name, loss in losses.items():
            tensors["log_prob"].grad = None
            start = time.perf_counter()
            loss(**(floating if loss is plain else tensors)).backward()  # type: ignore[no-untyped-call]
            if repetition >= 3:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The median over repetitions of each contender's time over the plain one's."""
    base = seconds["plain"]
    return {
        name: round(statistics.median(s / p for s, p in zip(times, base, strict=True)), 3)
        for name, times in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ratio_of = ratios(measure(given.rows, given.length, given.repetitions))
    for name, value in ratio_of.items():
        print(f"{value:7.3f}  {name}")
    record = {**vars(given), "torch": torch.__version__, "threads": 1, "ratio_to_plain": ratio_of}
    RESULT.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
