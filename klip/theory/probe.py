"""The probe: which trust region anybody's policy loss really is.

The probe uses the gradients of the loss and nothing else. They give the pull m(w, A)
of one sample, its shape in the catalogue, its profile, and what is odd about it.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from klip.errors import KlipError
from klip.shapes import NO_CONTEXT, Context, Shape, load_module
from klip.theory.arguments import describe
from klip.theory.blackbox import (
    GRID,
    HALF,
    NEAR_OLD,
    OLD,
    BlackBox,
    half_precision,
    one_by_one,
    open_box,
)
from klip.theory.findings import NOTHING, Finding, not_finite, of_batch, of_pull, of_reference
from klip.theory.fit import TOLERANCE, Match, match
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
from klip.theory.reference import Use, penalty_in, spelled, to_reference, use_of_reference
from klip.theory.samples import ADVANTAGES, LOG_RATIOS, SampledPull, sample
from klip.theory.sharing import Sharing, sharing_of
from klip.theory.twists import Twist, twist_of
from klip.theory.views import Floats, anchor, raised_by

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
    sharing: Sharing | None = None
    """The ratio that samples share; None where each has its own."""
    reference: Use | None = None
    """What the reference policy does to the pull; None if the loss takes none."""

    @property
    def ok(self) -> bool:
        """Whether nothing looks wrong: every finding is how a published shape is defined."""
        return all(finding.by_design for finding in self.findings)

    @property
    def headline(self) -> str:
        """What the loss is, in a line."""
        return f"{self.name} ({self.framework}, {self.reduction}) {self._verdict()}"

    def _verdict(self) -> str:
        match, (w, a) = self.match, self.match.where
        if match.shape is None:
            return "has no gradient"
        if self.sharing is not None and not match.exact and not match.twist:
            return (
                f"is none of the catalogue: samples share {self.sharing.words}; the nearest for "
                f"one alone is {match}"
            )
        far = f"the largest difference is {match.max_difference:.3g} at w={w:.4g}, A={a:g}"
        if not (match.exact or match.twist):
            return f"is none of the catalogue; the nearest is {match}, {far}"
        level = f" at the level {self.sharing.name}" if self.sharing and self.sharing.name else ""
        half = self.question.box.half
        doubt = f", as far as {half} can tell" if half else ""
        return f"is {match}{' ' if match.twist else ''}{match.twist}{level}{doubt}"

    @property
    def caveats(self) -> list[str]:
        """What to know about the answer, where nothing is wrong."""
        notes = [f"{f.code}: {f.message.rstrip('.')}" for f in self.findings if f.by_design]
        if others := self.match.equivalents:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            notes.append(f"the same function as {others[0]}{more}")
        if half := self.question.box.half:
            error = HALF[half]
            notes.append(f"it computes in {half}: differences below {100 * error:g} % do not show")
        if self.sharing is not None:
            notes.append(f"asked one {'sample' if self.question.single else 'token'} at a time")
        if self.reference == "unused":
            notes.append("its gradient does not depend on the reference")
        elif self.reference == "unknown":
            notes.append("asked with the reference at the old policy; no penalty explains the rest")
        return notes

    def pull(self, log_ratio: Floats, advantage: Floats) -> Floats:
        """m at each point, from the loss itself; arrays of any shape."""
        return self.question.pull(log_ratio, advantage)

    @functools.cached_property
    def profile(self) -> Profile:
        """The properties of the pull."""
        from klip.theory.profile import profile_of_pull

        return profile_of_pull(self.pull, HALF.get(self.question.box.half, 0.0))

    def points(self) -> dict[float, tuple[Floats, Floats]]:
        """(w, m) along the grid by advantage, for pictures; points where m is finite."""
        a = np.array(ADVANTAGES)[:, None]
        lines = self.pull(LOG_RATIOS[None], a)
        w = np.exp(LOG_RATIOS)
        return {
            advantage: (w[np.isfinite(m)], m[np.isfinite(m)])
            for advantage, m in zip(ADVANTAGES, lines, strict=True)
        }

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        # asked for by name: this room does not draw
        text: str = importlib.import_module("klip.draw.notebook").probe_table(self)
        return text

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, strictly JSON."""
        match = self.match
        plain = {
            "headline": self.headline,
            "ok": self.ok,
            "framework": self.framework,
            "precision": self.question.box.half or "full",
            "layout": self.layout,
            "reduction": self.reduction,
            "shares": self.sharing and {"level": self.sharing.name, "what": self.sharing.words},
            "reference": self.reference,
            "match": {
                "shape": match.name if match.shape else None,
                "spelling": str(match),
                "parameters": match.parameters,
                "max_difference": match.max_difference,
                "exact": match.exact,
                "twist": match.twist,
                "where": match.where,
                "equivalents": match.equivalents,
            },
            "profile": self.profile.as_dict(),
            "findings": [vars(finding) for finding in self.findings],
            "caveats": self.caveats,
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
            and the log-probabilities of a reference if it takes them, on tensors `[N]` or
            `[B, T]`, and its first output is the loss; parameters may have another order if
            "old", "ref", "adv" and "mask" are in their names
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
    name = describe(loss_fn)
    box = open_box(loss_fn, framework, is_elementwise)
    with raised_by(name), np.errstate(all="ignore"):
        if not is_repeatable(box):
            raise KlipError(
                f"{name} gives different gradients for the same inputs; switch off dropout and "
                "other randomness in it"
            )
        if half := half_precision(box):
            box = dataclasses.replace(box, half=half)
        return _answer(name, box)


def _answer(name: str, box: BlackBox) -> Probe:
    """What the loss in the box is."""
    question, mix, shares = _question_for(box)
    by_old, noise = _old_dependence(question)
    tolerance = HALF[box.half] if box.half else max(TOLERANCE, 10 * noise)
    sharing = sharing_of(question, tolerance) if shares else None
    samples = sample(question.pull, by_old, HALF.get(box.half, 0.0))
    twist, published = _shape_of(question, samples, tolerance)
    use = None
    findings = [*not_finite(box, question.pull)]
    if box.referenced:
        use, twist = _with_reference(question, twist, tolerance)
        findings += of_reference(use, twist.penalty or penalty_in(twist.match.shape))
    leak = masked_leak(box) if box.masked else ""
    neutral = question.standardised and _repeats(question)
    findings += of_batch(mix, question.reduction, leak, neutral, sharing)
    if samples.pull.size and np.all(np.abs(samples.pull) <= NOTHING):
        findings.append(Finding("no-gradient", NO_GRADIENT))
    elif samples.pull.size:
        findings += of_pull(question.pull, twist, published, tolerance)
    found = twist.match
    if use == "unknown" or (sharing and (mix.across_batch or not sharing.name)):
        found = dataclasses.replace(found, exact=False, twist="", equivalents=[])
    return Probe(
        name=name,
        framework=box.framework,
        layout=box.layout,
        reduction=question.reduction.name,
        match=found,
        findings=findings,
        depends_on_old=by_old,
        question=question,
        sharing=sharing,
        reference=use,
    )


def _shape_of(
    question: Question, samples: SampledPull, tolerance: float
) -> tuple[Twist, Callable[[Floats, Floats], Floats] | None]:
    """The shape that the pull is, perhaps but for one thing, and the shape's own pull if it is."""
    nearest = match(samples, tolerance)
    if nearest.exact and nearest.shape:
        return Twist(nearest), _published(nearest.shape)
    if nearest.shape is None:
        return Twist(nearest), None
    return twist_of(question, samples, tolerance, nearest), None


def _with_reference(question: Question, twist: Twist, tolerance: float) -> tuple[Use, Twist]:
    """What the reference does, and the match that says so."""
    penalty = twist.penalty or penalty_in(twist.match.shape)
    use = use_of_reference(question, penalty, -1.0 if twist.penalty else 1.0, tolerance)
    if use == "penalty" and penalty is not None:
        hint = twist.hint.replace(str(penalty), spelled(penalty))
        there = to_reference(twist.match, penalty)
        twist = dataclasses.replace(twist, match=there, hint=hint, target="the reference")
    return use, twist


NO_GRADIENT = (
    "the gradient in the new log-probabilities is zero everywhere, which usually comes from "
    "detaching the ratio (or stop_gradient) without multiplying by the log-probability."
)


def _question_for(box: BlackBox) -> tuple[Question, Coupling, bool]:
    """How to ask this loss for its pull, how its samples depend on each other, and if they share.

    Samples that share a ratio, and perhaps an advantage, are asked alone; nothing is normalised.
    """
    mix = coupling(box)
    mixes = mix.across_batch or mix.within_sequence
    shares = mixes and answers_alone(box)
    if shares:
        mix = dataclasses.replace(mix, by_advantage=False)
    normalises = mix.by_advantage and mixes
    reduction = reduction_of(box, mix.across_batch or normalises, shares)
    width = 8 if box.layout == GRID and not mix.within_sequence else 1
    if normalises and not mix.across_batch:
        width = 0
    question = Question(
        box, reduction, width, normalises, one_by_one(box) if shares and mix.across_batch else None
    )
    if reduction.name == TOKEN_SUM and (length := _constant_length(question)):
        question = dataclasses.replace(question, reduction=reduction.over(length))
    return question, mix, shares


def _constant_length(question: Question) -> float:
    """The constant by which the loss divides token sums; 0 if there is none."""
    here = anchor(question.pull, HALF.get(question.box.half, TOLERANCE))
    return 1 / here.constant if here.outcome == "scale" and 0 < here.constant < 1 else 0.0


def _old_dependence(question: Question) -> tuple[bool, float]:
    """Whether m depends on the old log-prob beyond the ratio, and the noise of m, up to 1e-5."""
    x, a = np.meshgrid(LOG_RATIOS[LOG_RATIOS < 0.65] + 0.001, [-1.0, 0.0, 1.0])
    half = question.box.half
    usual = question.pull(x, a, NEAR_OLD if half else OLD)
    change = np.max([np.abs(question.pull(x, a, o) - usual) for o in (-0.7, -2.0)], axis=0)
    relative = change / np.maximum(1.0, np.abs(usual))
    if half:  # an edge is blurred, so that a few samples prove nothing
        return bool(np.mean(relative > 0.1) > 0.05), 0.0
    largest = float(np.nanmax(relative, initial=0))
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
