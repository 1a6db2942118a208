"""The KL to a reference policy as a penalty; `klip.shapes` has those to the old policy."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes import (
    Array,
    KLInverseK3,
    KLk2,
    Parameter,
    Penalty,
    Sample,
    parameter,
    ratio,
    stop_gradient,
)


@dataclass(frozen=True)
class ReferenceKL(Penalty):
    """J = wA - b k(u), u = log pi - log pi_ref.

    k1 = u, beta = -b; k2 = u^2/2, beta = -b u; k3 = e^-u + u - 1, beta = b (e^-u - 1);
    weighted-k3 = w k3, beta = -b w u, the one whose expectation under the old policy is right.

    >>> from klip.shapes import Context
    >>> token = Context(reference_log_ratio=1.0)
    >>> for name in ("k1", "k2", "k3", "weighted-k3"):
    ...     print(name, round(float(ReferenceKL(b=0.5, estimator=name).beta(0.0, 1.0, token)), 4))
    k1 -0.5
    k2 -0.5
    k3 -0.3161
    weighted-k3 -0.5
    """

    number = "56"
    family = "KL penalty"
    reference = "GRPO, arXiv:2402.03300; DeepSeek-V3.2"
    requires = ("reference_log_ratio",)

    b: Parameter = parameter(0.04, at_least=0)
    estimator: str = parameter("k3", choices=("k1", "k2", "k3", "weighted-k3"))

    def beta(self, s: Sample) -> Array:
        u = s.reference_log_ratio
        if self.estimator == "k1":
            return -self.b + 0.0 * s.log_w
        if self.estimator == "k2":
            return KLk2(self.b).beta(s.at(u)) + 0.0 * s.log_w
        if self.estimator == "k3":
            return KLInverseK3(self.b).beta(s.at(u)) + 0.0 * s.log_w
        return -self.b * s.w * u

    def objective(self, s: Sample) -> Array:
        # u moves with log w: both are log pi minus a constant.
        u = s.reference_log_ratio + (s.log_w - stop_gradient(s.log_w))
        if self.estimator == "k1":
            return s.w * s.advantage - self.b * u
        if self.estimator == "k2":
            return s.w * s.advantage - self.b * u * u / 2
        k3 = ratio(-u) - 1 + u
        return s.w * s.advantage - self.b * (k3 if self.estimator == "k3" else s.w * k3)
