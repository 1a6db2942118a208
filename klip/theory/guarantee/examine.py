"""All claims about one shape, each with its verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from klip.shapes import Region, Shape, parse
from klip.theory.guarantee.adversary import adversary
from klip.theory.guarantee.dynamics import dynamics
from klip.theory.guarantee.improvement import improvement
from klip.theory.guarantee.inner_loop import inner_loop
from klip.theory.guarantee.law import CONTEXTS, each, follows_the_state
from klip.theory.guarantee.steps import any_step
from klip.theory.guarantee.verdict import Guarantee, Verdict
from klip.theory.views import raised_by


def examined(
    subject: str | Region, seed: int = 0, measured: bool = True, attacked: bool = True
) -> Guarantee:
    """The verdicts on a shape, or on the one that a controller starts with.

    Args:
        subject: a shape, a controller or a spelling
        seed: seed of the MDPs and of the search
        measured: run the suite of MDPs, too
        attacked: and let the adversary search for one on which the return falls

    >>> found = examined("spo", measured=False, attacked=False)
    >>> found.brief
    'T1 yes, T2 no, T3 yes'

    """
    region = parse(subject) if isinstance(subject, str) else subject
    shape, found = region.initial, None
    with raised_by(shape), np.errstate(all="ignore"):
        verdicts: list[Verdict] = [*theory(shape, simulated=measured)]
        if measured:
            verdicts.append(dynamics(shape, seed))
        if attacked:
            verdict, found = adversary(shape, seed)
            verdicts.append(verdict)
    return Guarantee(str(shape), tuple(verdicts), _remarks(region), found)


def theory(shape: Shape, simulated: bool = True) -> Sequence[Verdict]:
    """T1, T2 and T3 for a shape; `simulated` is as for `inner_loop`."""
    for _ in each(shape):  # what is no number is said before anything is computed
        pass
    return improvement(shape), any_step(shape), inner_loop(shape, simulated)


def _remarks(region: Region) -> tuple[str, ...]:
    shape, said = region.initial, []
    if region.adapts:
        said.append(f"a controller: looked at as it starts, as {shape}")
    for name in sorted(shape.needs):
        if name in ("kl", "old_log_prob"):
            what = "KL" if name == "kl" else "old probabilities"
            said.append(
                f"T1 and T2 at {len(CONTEXTS[name])} frozen values of {name}; "
                f"bandits and MDPs use each state's true {what}"
            )
        elif name in CONTEXTS:
            said.append(f"T1 and T2 at {len(CONTEXTS[name])} values of {name}, the rest typical")
        else:
            said.append(f"{name} at its typical value")
    if shape.weighs_kl(np.ones(1)) and not follows_the_state(shape):
        said.append("the state's closed-form KL is folded into m as its sampled k3")
    return tuple(said)
