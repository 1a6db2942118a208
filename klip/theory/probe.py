"""The probe: which trust region anybody's policy loss really is.

The probe uses the gradients of the loss and nothing else. They give the pull m(w, A)
of one sample, its shape in the catalogue, its profile, and what is odd about it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from klip.errors import KlipError
from klip.shapes import NO_CONTEXT, Context, Shape, load_module
from klip.theory.blackbox import GRID, OLD, BlackBox, describe, open_box
from klip.theory.findings import NOTHING, Finding, not_finite, of_batch, of_pull
from klip.theory.fit import TOLERANCE, Match, compare, match
from klip.theory.reduction import (
    TOKEN_SUM,
    Coupling,
    Question,
    answers_alone,
    coupling,
    is_elementwise,
    is_repeatable,
    masked_leak,
    reduction_of,
)
from klip.theory.samples import ADVANTAGES, LOG_RATIOS, SampledPull, sample
from klip.theory.views import Floats, anchor

if TYPE_CHECKING:
    from klip.theory.profile import Profile


@dataclass(frozen=True)
class Probe:
    """What a loss turned out to be."""

    name: str
    framework: str
    layout: str
    reduction: str
    match: Match
    findings: list[Finding]
    depends_on_old: bool
    """Whether the pull depends on the old log-probability beyond the ratio."""
    question: Question

    def pull(self, log_ratio: Floats, advantage: Floats) -> Floats:
        """m at each point, from the loss itself; arrays of any shape."""
        return self.question.pull(log_ratio, advantage)

    @functools.cached_property
    def profile(self) -> Profile:
        """The properties of the pull."""
        from klip.theory.profile import profile

        return profile(self.pull)

    def points(self) -> dict[float, tuple[Floats, Floats]]:
        """(w, m) along the grid by advantage, for pictures; points where m is finite."""
        a = np.array(ADVANTAGES)[:, None]
        lines = self.pull(LOG_RATIOS[None], a)
        w = np.exp(LOG_RATIOS)
        return {
            advantage: (w[np.isfinite(m)], m[np.isfinite(m)])
            for advantage, m in zip(ADVANTAGES, lines, strict=True)
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, strictly JSON."""
        match = self.match
        plain = {
            "framework": self.framework,
            "reduction": self.reduction,
            "match": {
                "shape": match.name if match.shape else None,
                "parameters": match.parameters,
                "max_difference": match.max_difference,
                "exact": match.exact,
                "where": match.where,
                "equivalents": match.equivalents,
            },
            "profile": self.profile.as_dict(),
            "findings": [vars(finding) for finding in self.findings],
        }
        return {key: _jsonable(value) for key, value in plain.items()}


def _jsonable(x: Any) -> Any:
    """Plain data; NaN becomes None and infinity a string, since JSON has neither."""
    if isinstance(x, Mapping):
        return {str(key): _jsonable(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_jsonable(value) for value in x]
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, float) and not math.isfinite(x):
        return None if math.isnan(x) else "inf" if x > 0 else "-inf"
    return x


def probe(loss_fn: Callable[..., Any], *, framework: str = "auto") -> Probe:
    """Which trust region a policy loss (to be minimised) really is.

    Args:
        loss_fn: it is called as `loss_fn(new_log_probs, old_log_probs, advantages)`, with a mask
            if it takes one, on tensors `[N]` or `[B, T]`, and its first output is the loss; if
            only its first parameter has "old" in its name, old log-probabilities go first
        framework: "torch", "jax", or "auto" for the one that the loss uses

    >>> def ppo_loss(new, old, advantages):
    ...     ratio = jnp.exp(new - old)
    ...     clipped = jnp.clip(ratio, 0.8, 1.2)
    ...     return -jnp.minimum(ratio * advantages, clipped * advantages).mean()
    >>> import jax.numpy as jnp
    >>> p = probe(ppo_loss, framework="jax")
    >>> p.match.name, p.match.parameters, p.reduction, p.findings
    ('clip', {'eps': 0.2}, 'mean', [])

    """
    box = open_box(loss_fn, framework, is_elementwise)
    if not is_repeatable(box):
        raise KlipError(
            f"{describe(loss_fn)} gives different gradients for the same inputs; switch off "
            "dropout and other randomness in it"
        )
    question, mix = _question_for(box)
    by_old, noise = _old_dependence(question)
    tolerance = max(TOLERANCE, 10 * noise)
    samples = sample(question.pull, by_old)
    nearest = match(samples, tolerance)
    leak = masked_leak(box) if box.masked else ""
    neutral = question.standardised and _repeats(question)
    in_batch = of_batch(mix, question.reduction, leak, neutral)
    findings = [*not_finite(box, question.pull), *in_batch]
    if samples.pull.size and np.all(np.abs(samples.pull) <= NOTHING):
        findings.append(Finding("no-gradient", NO_GRADIENT))
    elif samples.pull.size:
        published = _published(nearest.shape) if nearest.exact and nearest.shape else None
        hint = ""
        if published is None:
            hint, nearest = _but_for_scale(question, samples, tolerance, nearest)
        findings += of_pull(question.pull, nearest, published, tolerance, hint)
    return Probe(
        name=describe(loss_fn),
        framework=box.framework,
        layout=box.layout,
        reduction=question.reduction.name,
        match=nearest,
        findings=findings,
        depends_on_old=by_old,
        question=question,
    )


NO_GRADIENT = (
    "the gradient in the new log-probabilities is zero everywhere, which usually comes from "
    "detaching the ratio (or stop_gradient) without multiplying by the log-probability."
)


def _question_for(box: BlackBox) -> tuple[Question, Coupling]:
    """How to ask this loss for its pull, and how its samples depend on each other."""
    mix = coupling(box)
    shared = mix.within_sequence and not mix.across_batch and answers_alone(box)
    if shared:  # a sequence has one ratio, perhaps one advantage, and nothing is normalised
        mix = dataclasses.replace(mix, by_advantage=False)
    normalises = mix.by_advantage and (mix.across_batch or mix.within_sequence)
    reduction = reduction_of(box, mix.across_batch or normalises, shared)
    width = 8 if box.layout == GRID and not mix.within_sequence else 1
    if normalises and not mix.across_batch:
        width = 0
    question = Question(box, reduction, width, normalises)
    if reduction.name == TOKEN_SUM and (length := _constant_length(question)):
        question = dataclasses.replace(question, reduction=reduction.over(length))
    return question, mix


def _constant_length(question: Question) -> float:
    """The constant by which the loss divides token sums; 0 if there is none."""
    here = anchor(question.pull, TOLERANCE)
    return 1 / here.constant if here.outcome == "scale" and 0 < here.constant < 1 else 0.0


def _old_dependence(question: Question) -> tuple[bool, float]:
    """Whether m depends on the old log-prob beyond the ratio, and the noise of m, up to 1e-5."""
    x, a = np.meshgrid(LOG_RATIOS[LOG_RATIOS < 0.65] + 0.001, [-1.0, 0.0, 1.0])
    usual = question.pull(x, a, OLD)
    with np.errstate(invalid="ignore"):
        change = [np.abs(question.pull(x, a, o) - usual) for o in (-0.7, -2.0)]
    largest = float(np.nanmax(np.max(change, axis=0) / np.maximum(1.0, np.abs(usual)), initial=0))
    return largest > 1e-5, min(largest, 1e-5)


def _repeats(question: Question) -> bool:
    """Whether batches of standardised advantages agree on a sample's pull."""
    x, a = np.linspace(-0.15, 0.15, 20), np.tile([1.0, -0.5, 0.3, -2.0], 5)
    alone = np.concatenate([question.pull(x[i : i + 5], a[i : i + 5]) for i in range(0, 20, 5)])
    return bool(np.allclose(question.pull(x, a), alone, rtol=1e-6, atol=1e-6))


def _published(shape: Shape) -> Callable[[Floats, Floats], Floats]:
    """The pull of a catalogue shape."""

    def pull(log_ratio: Floats, advantage: Floats) -> Floats:
        old = np.minimum(OLD, -log_ratio - 0.5)
        context = Context(old_log_prob=old) if shape.needs else NO_CONTEXT
        return np.asarray(shape.multiplier(log_ratio, advantage, context))

    return pull


def _but_for_scale(
    question: Question, samples: SampledPull, tolerance: float, nearest: Match
) -> tuple[str, Match]:
    """A hint, and the match, if the loss is a shape but for its scale, sign or inverted ratio."""
    here = anchor(question.pull, tolerance)
    if here.outcome != "scale":
        return "", nearest
    rescaled = match(samples.changed(samples.pull / here.constant), tolerance)
    if rescaled.exact and rescaled.shape:
        hint = f"; divided by {here.constant:.6g} it is exactly {rescaled}"
        return hint, compare(rescaled.shape, samples)
    if here.flipped and not samples.by_old:
        inverted = match(sample(lambda x, a, o: -question.pull(-x, a)), tolerance)
        if inverted.exact and inverted.shape:
            hint = f"; with the ratio the other way round it is exactly {inverted}"
            return hint, compare(inverted.shape, samples)
    return "", nearest


def load_loss(spec: str) -> Callable[..., Any]:
    """The loss at `spec`: "file.py:function" or "package.module:function"; or with Class.method."""
    place, colon, path = spec.rpartition(":")
    if not (colon and place and path):
        raise KlipError(f"cannot read '{spec}'; write file.py:function or package.module:function")
    holder: Any = load_module(place)
    for name in path.split("."):
        if not hasattr(holder, name):
            functions = [key for key, value in vars(holder).items() if callable(value)]
            public = [key for key in functions if key[:1] != "_"]
            near = difflib.get_close_matches(name, functions, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(public)}"
            raise KlipError(f"{place} has no '{name}'; {hint}")
        holder = getattr(holder, name)
    if not callable(holder):
        kind = type(holder).__name__
        raise KlipError(f"{spec} is not callable but a {kind}; give the name of a function")
    loss: Callable[..., Any] = holder
    return loss


__all__ = ["Finding", "Match", "Probe", "load_loss", "probe"]
