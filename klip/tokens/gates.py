"""Gates that look at a whole sequence; `klip.shapes` has those that look at one token."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes import Array, Gate, Parameter, Sample, parameter, ratio
from klip.shapes.backend import minimum, where


@dataclass(frozen=True)
class OPSM(Gate):
    """c = 0 where A < 0 and mean_t(-log w_t) > delta over the token's sequence, 1 elsewhere.

    It drops bad sequences that the policy has drifted away from. There is no agreed delta: TRL
    suggests 0.5, Trinity 0.1, slime 1e-4. `anchor="behaviour"` measures drift from the policy that
    sampled, as published; "old" from the denominator of the ratio.

    >>> import torch
    >>> from klip.shapes import Context
    >>> l, a = torch.tensor([[-2.0, 0.0], [-0.2, 0.0]]), torch.tensor([[-1.0], [-1.0]])
    >>> OPSM(delta=0.5).weight(l, a, Context(mask=torch.ones(2, 2))).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    number = "65"
    reference = "off-policy sequence masking, DeepSeek-V3.2; TRL, slime, Trinity"
    requires = ("mask",)

    delta: Parameter = parameter(0.5, at_least=0)
    anchor: str = parameter("old", choices=("old", "behaviour"))

    @property
    def needs(self) -> frozenset[str]:
        """The mask, and the sampler's log-ratio if the sampler is the anchor."""
        behaviour = {"behaviour_log_ratio"} if self.anchor == "behaviour" else set()
        return super().needs | behaviour

    def weight(self, s: Sample) -> Array:
        moved = s.log_w + s.behaviour_log_ratio if self.anchor == "behaviour" else s.log_w
        drift = -(moved * s.mask).sum(-1, keepdims=True)
        # Sums are compared: a mean would be rounded, and delta = 0 must mean "any drift at all".
        far = drift > self.delta * s.mask.sum(-1, keepdims=True)
        return 1.0 - ((s.advantage < 0) & far) * (0.0 * s.log_w + 1.0)


@dataclass(frozen=True)
class SequenceTIS(Gate):
    """c = min(prod_t pi_old(t) / pi_behaviour(t), cap), one number for a sequence.

    The product over the sequence is what an unbiased correction weighs by; the cap bounds its
    variance. `Truncate` is the same with each token's own ratio.

    >>> import torch
    >>> from klip.shapes import Context
    >>> sampler = Context(mask=torch.ones(1, 2), behaviour_log_ratio=torch.tensor([[0.5, 0.5]]))
    >>> SequenceTIS(cap=2.0).weight(torch.zeros(1, 2), torch.ones(1, 1), sampler).tolist()
    [[2.0, 2.0]]
    """

    name = "sequence-tis"
    number = "64"
    reference = "truncated importance sampling of sequences; verl 0.9.1, rollout_is=sequence"
    requires = ("mask", "behaviour_log_ratio")

    cap: Parameter = parameter(2.0, above=0)

    def weight(self, s: Sample) -> Array:
        return minimum(_of_sequence(s), self.cap) + 0.0 * s.log_w


@dataclass(frozen=True)
class SequenceMIS(Gate):
    """c = prod_t pi_old(t) / pi_behaviour(t) within [floor, cap], 0 outside: sequences are dropped.

    `IcePop` is the same with each token's own ratio.

    >>> import torch
    >>> from klip.shapes import Context
    >>> sampler = Context(mask=torch.ones(1, 2), behaviour_log_ratio=torch.tensor([[0.5, 0.5]]))
    >>> SequenceMIS(cap=2.0).weight(torch.zeros(1, 2), torch.ones(1, 1), sampler).tolist()
    [[0.0, 0.0]]
    """

    name = "sequence-mis"
    number = "64"
    reference = "masked importance sampling of sequences; verl 0.9.1, rollout_is=sequence"
    requires = ("mask", "behaviour_log_ratio")

    floor: Parameter = parameter(0.0, at_least=0)
    cap: Parameter = parameter(2.0, above=0)

    def weight(self, s: Sample) -> Array:
        c = _of_sequence(s)
        return where((c < self.floor) | (c > self.cap), 0.0, c) + 0.0 * s.log_w


def _of_sequence(s: Sample) -> Array:
    """The ratio of the old policy to the sampler over each sequence, `[B, 1]`."""
    return ratio((s.behaviour_log_ratio * s.mask + 0.0 * s.log_w).sum(-1, keepdims=True))
