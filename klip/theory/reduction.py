"""How a loss combines its samples (mean, sum, token mean, ...), inferred from its gradients.

A loss gives each sample a weight. Doubling the batch, doubling the sequences and masking some
tokens show how that weight depends on the batch; dividing by it leaves the sample's own pull m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from klip.theory.blackbox import FLAT, HALF, SEQUENCES, BlackBox, call
from klip.theory.views import Floats

CLOSE = 1e-4
LENGTHS = (6, 3, 6, 5)
"""How many tokens each sequence of the reference batch keeps when some are masked."""

TOKEN_SUM = "token sum, sequence mean"


@dataclass(frozen=True)
class Reduction:
    """The weight of a sample in a batch `[B, T]`: B^-batch_power * T^-token_power / length."""

    name: str
    batch_power: int = 0
    token_power: int = 0
    problem: str = ""
    """What is wrong with it, as the end of a sentence; empty if nothing is."""
    length: float = 1.0
    """The constant by which token sums are divided."""

    def weight(self, shape: tuple[int, int]) -> float:
        """The share of one sample's pull that reaches the gradient."""
        powers = float(shape[0]) ** -self.batch_power * float(shape[1]) ** -self.token_power
        return powers / self.length

    def over(self, length: float) -> Reduction:
        """The reduction with token sums divided by a constant length, as in Dr. GRPO."""
        return replace(self, name=f"token sum over {length:g}, sequence mean", length=length)


@dataclass(frozen=True)
class Coupling:
    """Whether a sample's gradient changes with the others'."""

    across_batch: bool
    within_sequence: bool
    by_advantage: bool = False
    """Whether another's advantage alone changes it, as when the loss normalises advantages."""


INSIDE = 1e-5
"""A log-ratio that lies inside any trust region; GSPO's ends at 3e-4."""


def reference_batch(layout: str, shared: bool = False) -> tuple[Floats, Floats]:
    """Log-ratios and advantages `[4, 6]`, all of them inside any trust region.

    The tokens of a sequence have one advantage if `layout` is SEQUENCES or `shared` holds.
    """
    log_ratio = INSIDE * np.sin(1.0 + 1.7 * np.arange(24.0)).reshape(4, 6)
    log_ratio[:, 0] = 0.0
    advantage = np.tile([[1.0, -0.7, 0.4, -1.6, 2.0, -0.3]], (4, 1)) * [[1], [-0.9], [0.8], [1.1]]
    if shared or layout == SEQUENCES:
        advantage = np.tile([[1.0], [-0.7], [0.4], [-1.6]], (1, 6))
    return log_ratio, advantage


def coupling(box: BlackBox) -> Coupling:
    """Which other samples change a sample's gradient: every second sequence, or token, moves."""
    log_ratio, advantage = reference_batch(box.layout)
    before = call(box, log_ratio, advantage).gradient
    index = np.arange(24).reshape(4, 6)
    rows, columns = index // 6 % 2 == 1, index % 2 == 1
    if box.layout == FLAT:
        rows = columns

    def changes(others: npt.NDArray[np.bool_], step: float = 0.07) -> bool:
        moved = np.where(others, log_ratio + step, log_ratio)
        raised = np.where(others, 1.3 * advantage + 0.5, advantage)
        if box.layout == SEQUENCES and others is columns:
            raised = advantage
        after = call(box, moved, raised).gradient
        return _differ(after[~others], before[~others])

    if changes(rows):
        return Coupling(True, box.layout != FLAT and changes(columns), changes(rows, 0.0))
    return Coupling(False, box.layout != FLAT and changes(columns), changes(columns, 0.0))


def answers_alone(box: BlackBox) -> bool:
    """Whether a token on its own pulls; it cannot if advantages are normalised with others."""
    try:
        alone = [call(box, np.zeros((1, 1)), np.array([[a]])).gradient for a in (1.0, -0.7)]
    except Exception:  # whatever it is that such a loss says to a batch of one
        return False
    pulls = np.abs(alone)
    return bool(np.all(pulls < UNLIKELY) and np.any(pulls > 0))


UNLIKELY = 1e3
"""A pull of this size at w = 1 comes from dividing by the deviation of a single advantage."""


def is_repeatable(box: BlackBox) -> bool:
    """Whether the same inputs give the same gradient."""
    batch = reference_batch(box.layout)
    once, again = call(box, *batch).gradient, call(box, *batch).gradient
    return bool(np.array_equal(once, again, equal_nan=True))


def is_elementwise(box: BlackBox) -> bool:
    """Whether other sequences (or samples) leave a sample's gradient alone."""
    return not coupling(box).across_batch


def _differ(x: Floats, y: Floats) -> bool:
    scale = np.nanmax(np.abs(y), initial=0.0)
    return bool(np.any(np.abs(x - y) > 1e-6 * scale)) and scale > 0


def _factor(x: Floats, y: Floats) -> float:
    """The c for which x is nearest to c * y, without NaNs; NaN itself if y says nothing."""
    product, square = x * y, y * y
    total = float(np.nansum(np.where(np.isnan(product), np.nan, square)))
    return float(np.nansum(product)) / total if total > 0 else np.nan


def _close(box: BlackBox) -> float:
    """The relative difference of two weights that count as equal."""
    return HALF[box.half] if box.half else CLOSE


def reduction_of(box: BlackBox, mixes: bool, shared: bool) -> Reduction:
    """The reduction of a loss.

    `mixes` says that samples change each other's gradients, `shared` that only the tokens of one
    sequence do.
    """
    log_ratio, advantage = reference_batch(box.layout, shared)
    once = call(box, log_ratio, advantage)
    if not np.any(once.gradient[np.isfinite(once.gradient)]):
        return Reduction("unknown")
    tolerance = 0.05 if mixes else _close(box)

    def power(repeats: tuple[int, int]) -> tuple[int, bool]:
        twice = call(box, np.tile(log_ratio, repeats), np.tile(advantage, repeats))
        factor = _factor(twice.gradient[:4, :6], once.gradient)
        nearest = round(-np.log2(factor)) if factor > 0 else 0
        return nearest, abs(factor * 2.0**nearest - 1) < tolerance

    (batch, batch_fits), (token, token_fits) = power((2, 1)), power((1, 2))
    if box.layout == FLAT:
        token, token_fits = batch, batch_fits
    unmasked = Reduction(_name(once.value.size, batch, token), batch, token)
    if not (batch_fits and token_fits):
        what = "change with the size of the batch in a way that is neither a mean's nor a sum's"
        return Reduction("unknown", batch, token, what)
    if not {batch, token} <= {0, 1}:
        size = "N" if box.layout == FLAT else "the size of the batch"
        what = (
            f"shrink like 1/{size}^{max(batch, token)}: something that is a mean is divided again"
        )
        return Reduction("unknown", batch, token, what)
    return _with_mask(box, unmasked, advantage) if box.masked else unmasked


def _name(outputs: int, batch: int, token: int) -> str:
    if outputs >= 24:
        return "per-sample"
    if outputs > 1:
        return "per-sequence"
    return {
        (1, 1): "mean",
        (0, 0): "sum",
        (1, 0): TOKEN_SUM,
        (0, 1): "sum of sequence means",
    }.get((batch, token), "unknown")


def reference_mask() -> Floats:
    """1 at the first `LENGTHS` tokens of each sequence, 0 elsewhere, `[4, 6]`."""
    return (np.arange(6) < np.array(LENGTHS)[:, None]).astype(np.float64)


def _with_mask(box: BlackBox, unmasked: Reduction, advantage: Floats) -> Reduction:
    """The reduction, from how tokens' gradients grow when others are masked."""
    log_ratio = np.full_like(
        advantage, INSIDE
    )  # alike, so that no mean of them moves with the mask
    mask = reference_mask()
    full = call(box, log_ratio, advantage).gradient
    part = call(box, log_ratio, advantage, mask=mask).gradient
    growth = np.array([_factor(p[:n], f[:n]) for p, f, n in zip(part, full, LENGTHS, strict=True)])
    batch, token = unmasked.batch_power, unmasked.token_power
    lengths = np.array(LENGTHS)
    telling = np.isfinite(growth)  # a loss may ignore sequences of negative advantage

    def grows(like: Floats | float) -> bool:
        expected = like + 0 * growth
        return bool(np.allclose(growth[telling], expected[telling], rtol=_close(box)))

    if grows(1.0):
        if token == 0:
            return unmasked
        what = "stay the same when tokens are masked: it divides by the padded length"
        return Reduction("mean over padding too", batch, token, what)
    if grows(24 / lengths.sum()) and (batch, token) == (1, 1):
        return Reduction("masked token mean", batch, token)
    if grows(6 / lengths) and token == 1:
        name = "per-sequence mean" if batch else unmasked.name
        return Reduction(name if unmasked.name != "per-sequence" else unmasked.name, batch, token)
    what = "change when other tokens are masked, neither like a token mean nor like a sequence mean"
    return Reduction("unknown", batch, token, what)


def masked_leak(box: BlackBox) -> str:
    """How masked tokens reach the loss, as a sentence without its stop; empty if they do not."""
    log_ratio, advantage = reference_batch(box.layout)
    mask = reference_mask()
    there = mask > 0
    before = call(box, log_ratio, advantage, mask=mask)
    if np.any(before.gradient[~there]):
        return "the loss has a gradient at masked positions"
    other = np.where(there, advantage, 3 - 2 * advantage)
    if box.layout == SEQUENCES:
        other = advantage
    after = call(box, np.where(there, log_ratio, log_ratio + 1.3), other, mask=mask)
    if _differ(after.gradient[there], before.gradient[there]):
        return "values at masked positions change the gradient elsewhere"
    if after.value.ndim == 0 and abs(after.value - before.value) > 1e-9 * (1 + abs(before.value)):
        return "values at masked positions change the loss"
    return ""


CHUNKS = (1024, 16384)
"""The batch sizes in which a loss is called: few, since JAX compiles for each anew."""


@dataclass(frozen=True)
class Question:
    """How a loss is asked for its pull at many points."""

    box: BlackBox
    reduction: Reduction
    width: int = 8  # tokens in a sequence; 0 puts all points into one sequence
    standardised: bool = False  # fill batches up so that their advantages have mean 0, variance 1
    single: BlackBox | None = None  # the loss of one sample in a batch, if a batch shares something

    def pull(
        self,
        log_ratio: Floats,
        advantage: Floats,
        old: float | None = None,
        reference: float = 0.0,
    ) -> Floats:
        """m = -dL / d new log-prob / weight at each point; arrays of any shape."""
        points = np.broadcast_arrays(np.asarray(log_ratio, float), np.asarray(advantage, float))
        x, a = (np.ascontiguousarray(p).ravel() for p in points)
        out = np.empty(x.size)
        chunks = CHUNKS[:1] if self.box.half else CHUNKS
        box = self.single or self.box
        start = 0
        while start < x.size:
            size = next((c for c in chunks if x.size - start <= c), chunks[-1])
            room = _room(a[start:], size) if self.standardised else size
            stop = min(start + room, x.size)
            batch = np.zeros(size)
            batch[: stop - start] = x[start:stop]
            shape = (size // self.width, self.width) if self.width else (1, size)
            advantages = self._filled(a[start:stop], size).reshape(shape)
            result = call(box, batch.reshape(shape), advantages, old=old, reference=reference)
            gradient = result.gradient.ravel()[: stop - start]
            out[start:stop] = -gradient / self.reduction.weight((1, 1) if self.single else shape)
            start = stop
        return out.reshape(points[0].shape) + 0.0  # no negative zeros

    def together(self, log_ratio: Floats, advantage: Floats, old: Floats) -> Floats:
        """m of tokens `[R, T]` that share what samples share; `advantage` and `old` alike."""
        rows = log_ratio, advantage, old
        if self.single:  # the samples of a batch do: a row is a batch
            asked = [self._together(*(part[i, :, None] for part in rows)) for i in range(len(old))]
            return np.stack([row[:, 0] for row in asked])
        return self._together(*rows)

    def _together(self, log_ratio: Floats, advantage: Floats, old: Floats) -> Floats:
        gradient = call(self.box, log_ratio, advantage, old=old).gradient
        return np.asarray(-gradient / self.reduction.weight((len(old), old.shape[1])))

    def _filled(self, advantage: Floats, size: int) -> Floats:
        """The advantages of a whole batch `[size]`, which begin with `advantage`."""
        whole = np.tile([1.0, -1.0], size // 2)
        n = advantage.size
        whole[:n] = advantage
        if self.standardised:
            freedom = size - (1 if self.box.framework == "torch" else 0)  # as `std` has it
            whole[n : 2 * n] = -advantage
            rest = freedom - 2 * np.sum(advantage**2)
            whole[2 * n :] *= np.sqrt(max(rest, 0.0) / (size - 2 * n))
        return whole


def _room(advantage: Floats, size: int) -> int:
    """How many of these a standardised batch holds beside their negatives and the filling."""
    fits = int(np.searchsorted(np.cumsum(advantage**2), size / 4, side="right"))
    return max(1, min(fits, size // 4))
