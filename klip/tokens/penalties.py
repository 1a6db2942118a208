"""The KL to a reference policy, as a penalty per token; the old policy's are shapes' own."""

from __future__ import annotations

from dataclasses import dataclass

from klip.shapes import (
    Array,
    Context,
    KLInverseK3,
    KLk2,
    Parameter,
    Penalty,
    parameter,
    ratio,
    stop_gradient,
)
from klip.shapes.context import NO_CONTEXT


@dataclass(frozen=True)
class ReferenceKL(
    Penalty, name="reference-kl", number="56", family="KL penalty",
    requires=["reference_log_ratio"], reference="GRPO, arXiv:2402.03300; DeepSeek-V3.2",
):  # fmt: skip
    """J = wA - b k(u), u = log pi - log pi_ref.

    k1 = u, beta = -b; k2 = u^2/2, beta = -b u; k3 = e^-u + u - 1, beta = b (e^-u - 1);
    weighted-k3 = w k3, beta = -b w u, the one whose expectation under the old policy is right.

    >>> token = Context(reference_log_ratio=1.0)
    >>> for name in ("k1", "k2", "k3", "weighted-k3"):
    ...     print(name, round(float(ReferenceKL(b=0.5, estimator=name).beta(0.0, 1.0, token)), 4))
    k1 -0.5
    k2 -0.5
    k3 -0.3161
    weighted-k3 -0.5
    """

    b: Parameter = parameter(0.04, at_least=0)
    estimator: str = parameter("k3", choices=("k1", "k2", "k3", "weighted-k3"))

    def beta(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        u = context.reference_log_ratio
        if self.estimator == "k1":
            return -self.b + 0.0 * log_ratio
        if self.estimator == "k2":
            return KLk2(self.b).beta(u, advantage) + 0.0 * log_ratio
        if self.estimator == "k3":
            return KLInverseK3(self.b).beta(u, advantage) + 0.0 * log_ratio
        return -self.b * ratio(log_ratio) * u

    def objective(self, log_ratio: Array, advantage: Array, context: Context = NO_CONTEXT) -> Array:
        # u moves with log w: both are log pi minus a constant.
        u = context.reference_log_ratio + (log_ratio - stop_gradient(log_ratio))
        w = ratio(log_ratio)
        if self.estimator == "k1":
            return w * advantage - self.b * u
        if self.estimator == "k2":
            return w * advantage - self.b * u * u / 2
        k3 = ratio(-u) - 1 + u
        return w * advantage - self.b * (k3 if self.estimator == "k3" else w * k3)
