"""Batches of tokens for any shape: ragged masks, advantages of both signs and zero, contexts."""

import numpy as np
import torch

from klip.shapes import Context
from klip.tokens import (
    ConstantLength,
    Denominator,
    GeometricMean,
    MeanOfMeans,
    MeanOfSums,
    PrefixMean,
    PrefixSum,
    SequenceMean,
    SequenceSum,
    Token,
    TokenMean,
)
from tests.shapes.samples import RANGES

FROM_BATCH = {"old_log_prob", "mask", "position", "length", "sequence", "kl"}
REDUCERS = {
    "token-mean": TokenMean(),
    "mean-of-means": MeanOfMeans(),
    "mean-of-sums": MeanOfSums(),
    "constant": ConstantLength(16),
    "given": Denominator(13.0),
}
LEVELS = {
    "token": Token(),
    "mean": SequenceMean(),
    "sum": SequenceSum(),
    "geometric": GeometricMean(0.3, 0.2),
    "prefix sum": PrefixSum(),
    "prefix mean": PrefixMean(),
}


def draw(seed, rows=5, length=7, dtype=torch.float64, needs=(), reach=0.5):
    """Arguments of `token_loss`, by name; the first sequence is whole, the last is empty."""
    rng = np.random.default_rng(seed)

    def tensor(x):
        return torch.as_tensor(x, dtype=dtype)

    old = -rng.uniform(0.05, 4.0, (rows, length))
    mask = rng.random((rows, length)) < 0.7
    mask[0], mask[-1] = True, False
    given = {
        name: tensor(rng.uniform(*RANGES[name], (rows, length)))
        for name in sorted(set(needs) - FROM_BATCH)
    }
    advantage = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], (rows, length)) * rng.uniform(0.5, 1)
    return {
        "log_prob": tensor(old + rng.normal(0, reach, (rows, length))).requires_grad_(True),
        "old_log_prob": tensor(old),
        "advantages": tensor(advantage),
        "mask": torch.as_tensor(mask),
        "context": Context(**given),
        "state_kl": tensor(rng.uniform(0, 0.1, (rows, length))) if "kl" in needs else None,
    }


def with_kl(batch):
    """The same batch for shapes that may weigh a closed-form KL."""
    return batch | {"state_kl": torch.full_like(batch["old_log_prob"], 0.05)}


def gradient(loss, log_prob):
    (found,) = torch.autograd.grad(loss, log_prob)
    return found


def reduced(name, x, mask):
    """The reducers again, by hand."""
    x, count = torch.where(mask, x, 0.0), mask.sum(-1)
    full = (count > 0).sum()
    match name:
        case "token-mean":
            return x.sum() / count.sum()
        case "mean-of-means":
            return (x.sum(-1) / count.clamp(min=1)).sum() / full
        case "mean-of-sums":
            return x.sum() / full
        case "constant":
            return x.sum() / (16 * len(x))
        case "given":
            return x.sum() / 13
