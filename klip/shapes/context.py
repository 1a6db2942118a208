"""What a shape may know about a sample beyond its ratio and its advantage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from klip.errors import KlipError
from klip.shapes.backend import Array


class MissingContext(KlipError):
    """A shape needs a context field that is missing."""


def fact(meaning: str) -> Array:
    """A field of `Facts`, and what it means."""
    return field(default=None, metadata={"meaning": meaning})


@dataclass(frozen=True, repr=False, eq=False)
class Facts:
    """Named facts of which some may be missing; reading one that is missing is an error."""

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is None and name in (known := type(self).__dataclass_fields__):
            raise self.missing(name, known[name].metadata["meaning"])
        return value

    def missing(self, name: str, meaning: str) -> KlipError:
        """The error of reading a fact that is missing."""
        raise NotImplementedError

    @property
    def given(self) -> frozenset[str]:
        """The names of the facts that are known."""
        names = type(self).__dataclass_fields__
        return frozenset(name for name in names if object.__getattribute__(self, name) is not None)


@dataclass(frozen=True, repr=False, eq=False)
class Context(Facts):
    """Optional facts about each sample; every field has the samples' shape, or broadcasts to it.

    Three policies may have come before the new one: the sampler, which acted; the start, at which
    this iteration began; and the old one, which the ratio w divides by and which is one of the
    two. So the new policy over the sampler is w exp(behaviour_log_ratio), over the start it is
    w exp(proximal_log_ratio), and log c = behaviour_log_ratio - proximal_log_ratio.

    >>> Context(age=2.0).given
    frozenset({'age'})
    >>> Context().age
    Traceback (most recent call last):
    klip.shapes.context.MissingContext: the context has no age (how many updates old the sample is): pass Context(age=...)
    """

    old_log_prob: Array = fact("log-probability of the action under the rollout policy")
    kl: Array = fact("closed-form KL(old || new) of the sample's state, detached")
    entropy: Array = fact("entropy of the policy at the sample's state")
    position: Array = fact("index of the token in its sequence, from 0")
    length: Array = fact("number of tokens in the sample's sequence")
    age: Array = fact("how many updates old the sample is")
    mask: Array = fact("1 where the sample counts, 0 where it is padding")
    sequence: Array = fact("id of the sample's sequence")
    group: Array = fact("id of the sample's group")
    behaviour_log_ratio: Array = fact("log of the old policy, which w divides by, over the sampler")
    proximal_log_ratio: Array = fact("log of the old policy over that at the iteration's start")
    reference_log_ratio: Array = fact("log of the new policy over the reference policy")
    reward: Array = fact("reward of the sample")
    step: Array = fact("how many environment steps training has taken")
    progress: Array = fact("how much of training is over, from 0 to 1")
    effective_size: Array = fact("(sum w_b)^2 / (n sum w_b^2) of the batch, w_b = new / sampler")
    deviation: Array = fact("mean of |c - 1| over the batch or the sequence, c = start / sampler")
    second_moment: Array = fact("mean of (log c)^2 over the batch's samples of no larger |log c|")

    def missing(self, name: str, meaning: str) -> KlipError:
        return MissingContext(f"the context has no {name} ({meaning}): pass Context({name}=...)")


CONTEXT_FIELDS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Context)}
"""Each context field and what it means."""

TWO_RATIOS = frozenset({"behaviour_log_ratio", "proximal_log_ratio"})
"""The fields that place the old policy between the sampler and the start."""

OF_BATCH = frozenset({"effective_size", "deviation", "second_moment"})
"""The fields that follow from those two, the ratio and the rest of the batch."""

NO_CONTEXT = Context()
