"""Which tokens the clip kills: fractions, gradient mass and quantiles, by span and by age.

Nothing is computed until it is read: a training step that does not log pays for no reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from klip.shapes.backend import LOG_RATIO_LIMIT, ratio
from klip.theory.partition import split

QUANTILES = (1, 5, 25, 50, 75, 95, 99)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """What one loss says about its tokens; holds the batch's tensors until it is let go."""

    log_ratio: Tensor
    """`[B, T]` as the shape saw it, at its level"""
    advantage: Tensor
    """`[B, T]` or `[B, 1]`"""
    m: Tensor
    """`[B, T]` the whole multiplier, gates and penalties in it; 0 where nothing counts"""
    active: Tensor
    """`[B, T]` the tokens that count"""
    edges: tuple[Any, Any]
    """the ratios by which tokens are told apart: those of the shape's band, or 1 -+ 0.2"""
    kept: Tensor | None = None
    """`[B, T]` False where the level itself dropped the token"""
    counted: Tensor | None = None
    """`[B, T]` the mask before tokens that are not finite were dropped"""
    spans: Mapping[str, Tensor] | None = None
    """name -> `[B, T]`"""
    age: Any = None
    """number, `[B, 1]` or `[B, T]`"""

    @cached_property
    def ratio(self) -> Tensor:
        """`[B, T]` w, as the shape saw it."""
        w: Tensor = ratio(self.log_ratio)
        return w

    def sets(self) -> tuple[Tensor, Tensor, Tensor]:
        """(inside, kill, pass), each `[B, T]`; none of them holds under the mask."""
        _, kill, passing = split(self.ratio, self.advantage, *self.edges)
        if self.kept is not None:
            kill, passing = kill | ~self.kept, passing & self.kept
        active = self.active
        return active & ~(kill | passing), active & kill, active & passing

    def metrics(self) -> dict[str, float]:
        """Every number by name; of a span or an age as `span/name`, `age=2-3/name`.

        `in`, `kill`, `pass`: fractions of the tokens. `killed_mass`: the share of sum |wA| on the
        kill set. `pull`: sum |m| / sum |wA|. `beta`, `beta_kill` and `ratio` have quantiles, as
        `beta_p50`. A part without tokens has its `tokens` of 0 and nothing else.

        >>> from klip.tokens import token_loss
        >>> new, ends = torch.tensor([[0.0, 0.5]]), torch.tensor([[False, True]])
        >>> _, seen = token_loss(new, torch.zeros(1, 2), torch.ones(1), spans={"answer": ends})
        >>> found = seen.metrics()
        >>> found["kill"], found["answer/kill"], round(found["killed_mass"], 3)
        (0.5, 1.0, 0.622)
        """
        found: dict[str, float] = {}
        inside, kill, passing = self.sets()
        rows = {
            "log_ratio": self.log_ratio, "w": self.ratio,
            "pull": self.ratio * self.advantage, "m": self.m,
            "in": inside, "kill": kill, "pass": passing,
        }  # fmt: skip
        for prefix, chosen in self._parts():
            places = chosen.flatten().nonzero()[:, 0]
            picked = {name: row.flatten()[places] for name, row in rows.items()}
            found |= {prefix + name: value for name, value in _summary(picked).items()}
        found["sequences"] = float(self.active.any(-1).sum())
        found["dropped"] = self._dropped()
        found["inert"] = float(self._inert())
        return found

    def warnings(self) -> list[str]:
        """What a reader should be told, in plain sentences; empty if all is well.

        >>> from klip.tokens import token_loss
        >>> same = torch.zeros(1, 2)
        >>> token_loss(same, same, torch.ones(1)).diagnostics.warnings()[0][:40]
        'every ratio is 1, so every trust region '
        """
        said = []
        if not bool(self.active.any()):
            said.append("no token counts: the mask is empty, and the loss is 0")
        elif self._inert():
            said.append(
                "every ratio is 1, so every trust region is inert and nothing can be killed: this "
                "is the first update of an on-policy batch. Take several updates per batch "
                "(num_iterations > 1, or more minibatches) if the shape is to matter"
            )
        if dropped := self._dropped():
            said.append(f"{dropped:g} tokens were left out: what is known of them is not finite")
        far = self.active & (self.log_ratio.abs() > LOG_RATIO_LIMIT)
        if beyond := int(far.sum()):
            said.append(
                f"{beyond} tokens have a ratio beyond e^{LOG_RATIO_LIMIT:g} either way, where it "
                "is held: the policies are strangers, or their log-probs are misaligned"
            )
        if bool(self.active.any()) and not bool((self.active & (self.advantage != 0)).any()):
            said.append("every advantage is 0: all rewards of every group are equal")
        return said

    def _inert(self) -> bool:
        """Whether every ratio is exactly 1."""
        moved = self.active & (self.ratio != 1)
        return bool(self.active.any()) and not bool(moved.any())

    def _dropped(self) -> float:
        return float((self.counted & ~self.active).sum()) if self.counted is not None else 0.0

    def _parts(self) -> Iterator[tuple[str, Tensor]]:
        yield "", self.active
        for name, span in (self.spans or {}).items():
            yield f"{name}/", self.active & span.bool()
        if self.age is not None:
            age = torch.as_tensor(self.age, device=self.active.device)
            age = age.expand_as(self.active)
            floor, oldest = 0, age[self.active].max().item() if bool(self.active.any()) else -1
            while floor <= oldest:
                above = max(2 * floor, 1)
                label = f"{floor}" if above == floor + 1 else f"{floor}-{above - 1}"
                chosen = self.active & (age >= floor) & (age < above)
                if bool(chosen.any()):
                    yield f"age={label}/", chosen
                floor = above


def _summary(rows: Mapping[str, Tensor]) -> dict[str, float]:
    """The numbers of one part of the tokens, each row `[n]`."""
    n = rows["m"].numel()
    if not n:
        return {"tokens": 0.0}
    w, pull, m, kill = rows["w"], rows["pull"], rows["m"], rows["kill"]
    mass = pull.abs()
    beta = torch.where(m == pull, 0.0, m - pull)
    whole = mass.sum().clamp(min=torch.finfo(mass.dtype).tiny)
    log_ratio = rows["log_ratio"]
    named = {
        **{part: rows[part].to(mass.dtype).mean() for part in ("in", "kill", "pass")},
        "killed_mass": mass[kill].sum() / whole,
        "pull": m.abs().sum() / whole,
        "ratio_mean": w.mean(),
        "ratio_max": w.max(),
        "ratio_min": w.min(),
        "k1": -log_ratio.mean(),
        "k3": (w - 1 - log_ratio).mean(),
    }
    values = torch.stack([value.to(mass) for value in named.values()])
    found = {"tokens": float(n), **dict(zip(named, values.tolist(), strict=True))}
    found |= _quantiles("beta", beta) | _quantiles("ratio", w)
    return found | (_quantiles("beta_kill", beta[kill]) if bool(kill.any()) else {})


def _quantiles(name: str, values: Tensor) -> dict[str, float]:
    """By selection on the host: a whole sort takes longer than the loss."""
    found = np.percentile(values.cpu().numpy(), QUANTILES)
    return {f"{name}_p{q:02d}": float(x) for q, x in zip(QUANTILES, found, strict=True)}
