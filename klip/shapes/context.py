"""What a shape may know about a sample beyond its ratio and its advantage."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from klip.errors import KlipError
from klip.shapes.backend import Array


class MissingContext(KlipError):
    """A shape needs a context field that is missing."""


def _known(meaning: str) -> Array:
    return field(default=None, metadata={"meaning": meaning})


@dataclass(frozen=True, repr=False, eq=False)
class Context:
    """Optional facts about each sample; every field has the samples' shape, or broadcasts to it.

    >>> Context(age=2.0).given
    frozenset({'age'})
    >>> Context().age
    Traceback (most recent call last):
    klip.shapes.context.MissingContext: the context has no age (how many updates old the sample is): pass Context(age=...)
    """

    old_log_prob: Array = _known("log-probability of the action under the rollout policy")
    kl: Array = _known("closed-form KL(old || new) of the sample's state, detached")
    entropy: Array = _known("entropy of the policy at the sample's state")
    position: Array = _known("index of the token in its sequence, from 0")
    length: Array = _known("number of tokens in the sample's sequence")
    age: Array = _known("how many updates old the sample is")
    mask: Array = _known("1 where the sample counts, 0 where it is padding")
    sequence: Array = _known("id of the sample's sequence")
    group: Array = _known("id of the sample's group")
    behaviour_log_ratio: Array = _known("log of the rollout policy over the policy that sampled")
    reference_log_ratio: Array = _known("log of the new policy over the reference policy")
    reward: Array = _known("reward of the sample")
    step: Array = _known("how many environment steps training has taken")
    progress: Array = _known("how much of training is over, from 0 to 1")

    def __getattribute__(self, name: str) -> Array:
        value = object.__getattribute__(self, name)
        if value is None and name in CONTEXT_FIELDS:
            raise MissingContext(
                f"the context has no {name} ({CONTEXT_FIELDS[name]}): pass Context({name}=...)"
            )
        return value

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are set."""
        return frozenset(
            name for name in CONTEXT_FIELDS if object.__getattribute__(self, name) is not None
        )


CONTEXT_FIELDS: dict[str, str] = {f.name: f.metadata["meaning"] for f in fields(Context)}
"""Each context field and what it means."""

NO_CONTEXT = Context()
