"""Which tokens the clip kills: fractions, gradient mass, quantiles, by span, age and entropy.

Nothing is computed until it is read: a training step that does not log pays for no reduction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor

from klip.shapes import REFERENCE_BAND
from klip.shapes.backend import LOG_RATIO_LIMIT
from klip.theory.diagnostics import Observed, totals
from klip.theory.ranked import Ranked
from klip.tokens.old import TwoRatios
from klip.tokens.pool import Part, Pool

ENTROPIES: Final = (0.1, 0.5, 1.0, 2.0)
"""The entropies, in nats, that divide tokens from those that are as good as certain to the open."""

ENTROPY_LABELS: Final = (
    *(f"{low:g}-{high:g}" for low, high in pairwise((0.0, *ENTROPIES))),
    f"{ENTROPIES[-1]:g}+",
)
"""How the metrics name what lies between them: `entropy=0.5-1/zeroed`."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """What a loss did to its tokens; it holds the tensors of the batch."""

    log_ratio: Tensor
    """`[B, T]`, at the level at which the shape saw it"""
    advantage: Tensor
    """`[B, T]` or `[B, 1]`"""
    m: Tensor
    """`[B, T]`, the multiplier with gates and penalties; 0 where no token counts"""
    active: Tensor
    """`[B, T]`, True at tokens that count"""
    edges: tuple[Any, Any]
    """the ratios that divide tokens into sets: the shape's band, or the reference band"""
    mark: str = ""
    """what the names of the sets end with: `@0.2` if the reference band divides them"""
    kept: Tensor | None = None
    """`[B, T]`, False where the level itself dropped the token"""
    counted: Tensor | None = None
    """`[B, T]`, the mask before tokens that are not finite were dropped"""
    spans: Mapping[str, Tensor] | None = None
    """name -> `[B, T]`"""
    age: Any = None
    """number, `[B, 1]` or `[B, T]`"""
    entropy: Any = None
    """number, `[B, 1]` or `[B, T]`, in nats"""
    ratios: TwoRatios | None = None
    """`[B, T]` each, at the level, if the context says what sampler and start are"""
    own_edges: tuple[Any, Any] = REFERENCE_BAND
    """the band by which each of the two ratios is divided, as if the sampler were the start"""

    @cached_property
    def observed(self) -> Observed:
        """What the loss did to each token, `[B, T]`; also to those that do not count."""
        return Observed.of(self.log_ratio, self.advantage, self.m, self.edges, self.kept)

    @property
    def inert(self) -> Tensor:
        """`[]`, whether every ratio is exactly 1, so that no trust region does anything."""
        moved: Tensor = self.active & (self.observed.ratio != 1)
        return self.active.any() & ~moved.any()

    @property
    def reasons(self) -> dict[str, Tensor]:
        """For each of the two ratios, the tokens that it would kill by itself, `[B, T]`.

        `move` is the new policy over the start of the update, `mismatch` that start over the
        sampler; without both there is nothing to tell apart, and this is empty.
        """
        return {name: self.active & observed.kill for name, observed in self._of_ratios().items()}

    def _of_ratios(self) -> dict[str, Observed]:
        if self.ratios is None:
            return {}
        return {
            name: Observed.of(log_ratio, self.advantage, self.m, self.own_edges)
            for name, log_ratio in self.ratios._asdict().items()
        }

    def sets(self) -> tuple[Tensor, Tensor, Tensor]:
        """(inside, kill, pass), each `[B, T]`; none of them holds under the mask."""
        o, active = self.observed, self.active
        return active & o.inside, active & o.kill, active & o.passing

    def metrics(self) -> dict[str, float]:
        """Every number by name; those of a part as `span/name`, `age=2-3/name`, `entropy=1-2/name`.

        The names are those of `klip.theory.diagnostics.metrics` (`kept`, `zeroed`, `kill`,
        `zeroed_mass`, `pull`, ...), over the tokens that count. `beta`, `beta_kill` and `ratio`
        have quantiles, as `beta_p50`. A part without tokens has `tokens` = 0 and nothing else.

        If the context has both ratios of an old batch, each has its statistics and its sets by
        itself: `move/kill` are the tokens that this update alone has moved out of the band,
        `mismatch/kill` those that were out of it before, `mismatch/ratio_p99` and so on.

        >>> from klip.tokens import token_loss
        >>> new, ends = torch.tensor([[0.0, 0.5]]), torch.tensor([[False, True]])
        >>> spans = {"answer": ends}
        >>> row = token_loss(new, torch.zeros(1, 2), torch.ones(1), spans=spans)[1].metrics()
        >>> row["zeroed"], row["answer/zeroed"], round(row["zeroed_mass"], 3)
        (0.5, 1.0, 0.622)
        """
        return self.pool().metrics()

    def pool(self, details: bool = True) -> Pool:
        """What is left of the batch once its tensors are gone, to be pooled with others.

        Without `details`, spans, ages and entropies have no quantiles.
        """
        parts, ratios = {}, self._of_ratios()
        for prefix, chosen in self._parts():
            ranked = details or not prefix
            parts[prefix] = self.part(chosen, ranked)
            for name, observed in ratios.items():
                known = (chosen & observed.ratio.isfinite()).flatten().nonzero()[:, 0]
                part = _part(observed.at(known), self.mark, ranked)
                parts[f"{prefix}{name}/"] = part.of_ratio()
        moved = self.active & (self.observed.ratio != 1)
        return Pool(
            parts, float(self.active.any(-1).sum()), self._dropped(), moved=bool(moved.any())
        )

    def part(self, chosen: Tensor, ranked: bool = True) -> Part:
        """What became of the tokens in `chosen` `[B, T]`, with quantiles if `ranked`."""
        places = chosen.flatten().nonzero()[:, 0]
        return _part(self.observed.at(places), self.mark, ranked)

    def warnings(self) -> list[str]:
        """What is wrong or suspicious, a sentence each; empty if all is well.

        >>> from klip.tokens import token_loss
        >>> same = torch.zeros(1, 2)
        >>> token_loss(same, same, torch.ones(1)).diagnostics.warnings()[0][:40]
        'every ratio is 1, so every trust region '
        """
        sentences = []
        if not bool(self.active.any()):
            sentences.append("no token counts: the mask is empty, and the loss is 0")
        elif bool(self.inert):
            sentences.append(
                "every ratio is 1, so every trust region is inert and nothing can be killed: this "
                "is the first update of an on-policy batch. Take several updates per batch "
                "(num_iterations > 1, or more minibatches) if the shape is to matter"
            )
        if dropped := self._dropped():
            sentences.append(f"{dropped:g} tokens were left out: a number of theirs is not finite")
        far = self.active & (self.log_ratio.abs() > LOG_RATIO_LIMIT)
        if beyond := int(far.sum()):
            sentences.append(
                f"{beyond} tokens have a ratio beyond e^{LOG_RATIO_LIMIT:g} either way, where it "
                "is held: the policies are strangers, or their log-probs are misaligned"
            )
        killed, before = int(self.sets()[1].sum()), self.reasons.get("mismatch")
        if before is not None and (early := int((self.sets()[1] & before).sum())) > killed / 2:
            sentences.append(
                f"{early} of {killed} killed tokens were outside the band before this update: the "
                "sampler's log-probs differ, or are old. Divide by the log-probs at the start, and "
                "weigh by the rest: truncate * shape"
            )
        if bool(self.active.any()) and not bool((self.active & (self.advantage != 0)).any()):
            sentences.append("every advantage is 0: all rewards of every group are equal")
        return sentences

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
        if self.entropy is not None:
            entropy = torch.as_tensor(self.entropy, device=self.active.device)
            edges = torch.tensor(ENTROPIES, dtype=entropy.dtype, device=entropy.device)
            cell = torch.bucketize(entropy, edges, right=True).expand_as(self.active)
            for i, label in enumerate(ENTROPY_LABELS):
                if bool((chosen := self.active & (cell == i)).any()):
                    yield f"entropy={label}/", chosen


def _part(part: Observed, mark: str, ranked: bool) -> Part:
    """The sums of `part`, whose fields are `[n]`; with the numbers to rank if `ranked`."""
    if not part.m.numel():
        return Part()
    sums = totals(part)
    values = torch.stack([value.to(part.ratio) for value in sums.values()])  # one host read
    numbers = {"beta_{}": part.beta, "ratio_{}": part.ratio}
    numbers[f"beta_kill_{{}}{mark}"] = part.beta[part.kill]
    return Part(
        dict(zip(sums, values.cpu().unbind(), strict=True)),
        {name: Ranked.of(x) for name, x in numbers.items()} if ranked else {},
        mark,
    )
