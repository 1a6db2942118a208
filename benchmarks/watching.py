"""What watching costs: the look at a batch of tokens, over the training step that it belongs to.

    python benchmarks/watching.py

The step is forward, loss and backward of a small transformer on the same tokens, and nothing else:
neither the optimiser nor the sampling of completions, so that the share is at its largest. Larger
models make it smaller. One process and one thread, in seconds of the processor; a repetition times
every contender in turn, and the figure is the median share. Writes results/watching.json.
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
from tokens import plain
from torch import Tensor, nn

from klip.adapters.trl_batch import ANSWER, VERSION, look
from klip.tokens import TokenRegion, beside
from klip.tokens.instead import regions

RESULT = Path(__file__).parent / "results" / "watching.json"
OTHERS = ("sapo", "cispo(cap=5)", "spo", "dual-clip", "ramp", "kl-k3(b=0.1)")
WIDTH, LAYERS, HEADS, WORDS = 128, 2, 4, 512


class Small(nn.Module):
    """A causal transformer of half a million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The log-prob of each token but the first, `[B, T]`."""
        causal = nn.Transformer.generate_square_subsequent_mask(ids.shape[1] - 1)
        hidden = self.layers(self.words(ids[:, :-1]), mask=causal, is_causal=True)
        logs = self.out(hidden).log_softmax(-1)
        return torch.Tensor(logs.gather(-1, ids[:, 1:, None])[..., 0])


def batch(rows: int, length: int, log_prob: Tensor) -> dict[str, Tensor]:
    """What TRL knows of completions: ragged, some updates old, with an answer each."""
    ends = torch.randint(length // 2, length + 1, (rows, 1))
    place = torch.arange(length)
    return {
        "completion_mask": (place < ends).long(),
        "old_per_token_logps": log_prob + 0.2 * torch.randn(rows, length),
        "advantages": torch.randn(rows),
        VERSION: torch.randint(0, 4, (rows,)),
        ANSWER: (place >= ends - 64) & (place < ends),
    }


def measure(rows: int, length: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of the step and of the two ways of watching, in each repetition."""
    torch.manual_seed(0)
    model, ids = Small(), torch.randint(WORDS, (rows, length + 1))
    with torch.no_grad():
        log_prob = model(ids)
    known, own = batch(rows, length, log_prob), TokenRegion.read("clip")
    entropy, others = 3 * torch.rand(rows, length), regions(OTHERS)

    def step() -> None:
        names = ("old_per_token_logps", "advantages", "completion_mask")
        plain(model(ids), *(known[name] for name in names)).backward()  # type: ignore[no-untyped-call]

    def watch(asked: dict[str, TokenRegion]) -> None:
        seen: Any = look(own, known, log_prob, entropy, now=4)
        would = {name: look(region, known, log_prob, entropy, 4) for name, region in asked.items()}
        beside(seen, would, details=False)

    timed: dict[str, Callable[[], None]] = {
        "step": step,
        "watch": lambda: watch({}),
        f"watch, {len(OTHERS)} shapes asked about": lambda: watch(others),
    }
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for repetition in range(repetitions + 1):
        for name, function in timed.items():
            start = time.process_time()
            function()
            if repetition:
                seconds[name].append(time.process_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seconds = measure(given.rows, given.length, given.repetitions)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    shares = {name: round(t / median["step"], 4) for name, t in median.items() if name != "step"}
    print(f"{median['step']:.2f} s a step of [{given.rows}, {given.length}] tokens")
    for name, share in shares.items():
        print(f"{100 * share:6.2f} %  {name}")
    seconds_of = {name: round(t, 4) for name, t in median.items()}
    record = {**vars(given), "torch": torch.__version__, "threads": 1, "others": OTHERS}
    record |= {"seconds": seconds_of, "share_of_step": shares}
    RESULT.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
