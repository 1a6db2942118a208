"""Gates that look at a whole sequence; `klip.shapes` has those that look at one token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from klip.errors import KlipError
from klip.shapes import Array, ByPosition, Gate, Parameter, Sample, parameter, ratio
from klip.shapes.backend import minimum, where
from klip.shapes.probability import binary_kl


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


@dataclass(frozen=True)
class SequenceTrust(Gate):
    """c = pi_old / pi_behaviour, 0 where mean_t D_t > delta over the token's sequence.

    D_t is the Bernoulli KL of the sampler from `policy`, "this token or another", or with
    `divergence="binary-tv"` how much the token's probability differs. OpenRLHF holds the old policy
    to the sampler (`policy="old"`); FlashREINFORCE, whose ratio divides by the sampler, holds the
    new one (`policy="new"`, with a `behaviour_log_ratio` of 0). Its delta is 0.003; for TV there is
    none.

    >>> import torch
    >>> from klip.shapes import Context
    >>> half, moved = torch.full((2, 2), 0.5).log(), torch.tensor([[0.0, 0.1], [0.0, 0.2]])
    >>> sampler = Context(mask=torch.ones(2, 2), old_log_prob=half, behaviour_log_ratio=moved)
    >>> SequenceTrust(delta=0.005).weight(torch.zeros(2, 2), torch.ones(2, 1), sampler)
    tensor([[1.0000, 1.1052],
            [0.0000, 0.0000]])
    """

    name = "sequence-trust"
    number = "84"
    reference = "FlashREINFORCE; OpenRLHF 0.11.2, is_correction_gating=binary_kl and tv"
    requires = ("mask", "old_log_prob", "behaviour_log_ratio")

    delta: Parameter = parameter(0.003, at_least=0)
    divergence: str = parameter("binary-kl", choices=("binary-kl", "binary-tv"))
    policy: str = parameter("old", choices=("old", "new"))

    def weight(self, s: Sample) -> Array:
        sampler = s.old_log_prob - s.behaviour_log_ratio
        held = s.old_log_prob + 0.0 * s.log_w if self.policy == "old" else s.old_log_prob + s.log_w
        d = (
            binary_kl(sampler, held)
            if self.divergence == "binary-kl"
            else _difference(sampler, held)
        )
        total, count = (d * s.mask).sum(-1, keepdims=True), s.mask.sum(-1, keepdims=True)
        return where(total > self.delta * count, 0.0, ratio(s.behaviour_log_ratio + 0.0 * s.log_w))


@dataclass(frozen=True)
class CPPO(Gate):
    """c = 0 where (w-1)A > 0 and v_t D_t > min(delta, delta + b V_{<t} - S_{<t}), 1 elsewhere.

    D_t = |q - p| is how much the token's probability has moved. Its weight v_t falls from 1 at the
    first token to `last` at the last one: what is changed early changes all that follows. V and S
    are the sums of v and of v D over the tokens before; b = clip(P90(D), budget, 2 budget), from
    the sequence's 90th percentile, is what each of them was allowed. So a prefix that has spent
    more than its share leaves less for the next token. CPPO is this gate on `is`. Its delta was
    0.15 for dense models and 0.2 for a mixture of experts.

    >>> import torch
    >>> from klip.shapes import Context
    >>> p, place = torch.full((1, 3), 0.5).log(), torch.arange(3.0)[None]
    >>> tokens = Context(mask=torch.ones(1, 3), old_log_prob=p, position=place, length=3.0)
    >>> CPPO().weight(torch.tensor([[0.3, 0.3, 0.1]]), torch.ones(1, 1), tokens)
    tensor([[1., 0., 0.]])
    """

    name = "cppo"
    number = "82"
    reference = "CPPO, arXiv:2606.10968; UniRL, verl #6731"
    requires = ("mask", "old_log_prob", "position", "length")

    delta: Parameter = parameter(0.2, above=0)
    last: Parameter = parameter(0.8, above=0)
    budget: Parameter = parameter(0.02, at_least=0)

    def weight(self, s: Sample) -> Array:
        _check_rows(self.name, s.log_w)
        counts = s.mask.bool()
        moved = torch.where(counts, _difference(s.old_log_prob, s.old_log_prob + s.log_w), 0.0)
        v = torch.where(counts, ByPosition(1.0, self.last).value(s.context), 0.0).to(moved.dtype)
        spent, usual = v * moved, _quantile(moved, counts, 0.9)
        allowed = torch.clamp(usual, self.budget, 2 * self.budget) * _before(v)
        left = torch.clamp(self.delta + allowed - _before(spent), max=self.delta)
        further = (s.w - 1) * s.advantage > 0
        return where(further & (spent > left), 0.0, 1.0, like=s.log_w)


def _check_rows(name: str, log_w: Array) -> None:
    """Raise unless the samples are tokens in rows."""
    if not isinstance(log_w, Tensor) or log_w.ndim != 2:
        shape = list(getattr(log_w, "shape", ()))
        raise KlipError(
            f"{name} adds up over the tokens of a sequence: samples {shape} must be a PyTorch "
            "tensor [B, T], as token_loss has them; without sequences, dppo-tv is the nearest"
        )


def _difference(log_p: Array, log_q: Array) -> Array:
    """|q - p|."""
    return abs(ratio(minimum(log_q, 0.0)) - ratio(minimum(log_p, 0.0)))


def _before(x: Tensor) -> Tensor:
    """The sum over the tokens before each, `[B, T]`."""
    return torch.nn.functional.pad(x.cumsum(-1)[:, :-1], (1, 0))


def _quantile(x: Tensor, counts: Tensor, level: float) -> Tensor:
    """The quantile of each row's counted numbers, linear between two of them; `[B, 1]`.

    >>> x, counts = torch.tensor([[4.0, 1.0, 2.0, 9.0]]), torch.tensor([[True, True, True, False]])
    >>> _quantile(x, counts, 0.75)  # as torch.quantile of 4, 1, 2
    tensor([[3.]])
    """
    ordered = torch.where(counts, x, torch.inf).sort(-1).values
    place = level * (counts.sum(-1, keepdim=True) - 1).clamp(min=0).to(x.dtype)
    low, high = (ordered.gather(-1, end(place).long()) for end in (torch.floor, torch.ceil))
    quantile = torch.lerp(low, high, place - torch.floor(place))
    return torch.where(counts.any(-1, keepdim=True), quantile, 0.0)


def _of_sequence(s: Sample) -> Array:
    """The ratio of the old policy to the sampler over each sequence, `[B, 1]`."""
    return ratio((s.behaviour_log_ratio * s.mask + 0.0 * s.log_w).sum(-1, keepdims=True))
