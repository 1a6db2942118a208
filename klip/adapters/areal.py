"""AReaL: a shape in the place of the loss of its PPO actor, with ages by token.

AReaL has no hook for a loss, and its actors run in processes of their own. One line at the end of
its trainer/ppo/actor.py gives it one:

    from klip.adapters.areal import actor_loss; grpo_loss_fn = actor_loss("clip(eps=0.2)")

This was written to the contract of `TrainEngine.train_batch`, which AReaL documents, and to the
arguments of the `grpo_loss_fn` of AReaL 1.0.4. It has not been run inside AReaL.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import (
    AGE_LABELS,
    OF_SAMPLER,
    OF_TOKENS,
    OLDEST,
    given_region,
    logged,
)
from klip.errors import KlipError
from klip.shapes import Shape
from klip.shapes.backend import native_exp
from klip.theory.diagnostics import FATES
from klip.tokens import Diagnostics, Packing, TokenRegion, token_context, token_loss

TRAINER = "AReaL"
FIELDS = OF_TOKENS | OF_SAMPLER | {"age", "entropy"}
USUAL = {
    "eps_clip": 0.2,
    "eps_clip_higher": None,
    "c_clip": None,
    "rejection_sampling": None,
    "m2_threshold": None,
    "importance_sampling_level": "token",
    "use_sapo_loss": False,
}
"""The settings of a trust region, as AReaL has them where the user has not chosen."""
INSTEAD = {
    "eps_clip": "clip(eps=...)",
    "eps_clip_higher": "clip(low=..., high=...)",
    "c_clip": "dual-clip(cap=...)",
    "rejection_sampling": "gates=['icepop(floor=0, cap=...)'] for mask, ['truncate(cap=...)'] for "
    "clamp",
    "m2_threshold": "gates=['m2po(limit=...)']",
    "importance_sampling_level": "level='sequence-mean'",
    "use_sapo_loss": "sapo(tau_positive=..., tau_negative=...)",
}
OTHERS = frozenset(
    {"current_version", "prox_logp_method", "use_decoupled_loss", "sapo_tau_pos", "sapo_tau_neg"}
    | {"vocab_min_logits", "vocab_max_logits"}
)
"""What AReaL passes besides, none of it a trust region."""
COUNTED = "n_valid_tokens"
"""The mask by which AReaL divides what it logs of tokens."""


@dataclass(frozen=True)
class ActorLoss:
    """loss = -sum_t J_t / tokens over a pack, the ratio that of the new policy to the proximal."""

    region: TokenRegion

    @native_exp()
    def __call__(
        self, logprobs: Tensor, entropy: Tensor, input_data: Mapping[str, Any], **settings: Any
    ) -> Tensor:
        """The loss `[]` of a pack; log-probs, entropies and the tensors of the data are `[N]`."""
        self._check(input_data, settings)
        packing = Packing.of(segments := _segments(logprobs, input_data))
        old, mask = input_data["prox_logp"], input_data["loss_mask"].bool()
        fields: dict[str, Any] = {"entropy": entropy}
        age = _age(input_data.get("versions"), settings.get("current_version"), mask)
        if age is not None:
            fields["age"] = age
        if settings.get("use_decoupled_loss"):  # else one of the two policies is not known
            fields["behaviour_log_prob"] = input_data["logprobs"]
        loss, seen = token_loss(
            logprobs,
            old,
            input_data["advantages"],
            mask,
            self.region.shape,
            token_context(logprobs, old, **fields),
            level=self.region.level,
            gates=self.region.gates,
            penalties=self.region.penalties,
            segments=segments,
        )
        assert seen is not None
        moved = (logprobs - old).detach().float()
        own = {"importance_weight": moved.exp(), "approx_kl": moved, "entropy": entropy.detach()}
        _log(seen, packing, mask, age, own)
        return loss

    def _check(self, data: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if name not in USUAL and name not in OTHERS:
                raise KlipError(
                    f"AReaL passes {name}={value!r}, which AReaL 1.0.4 did not: what it is to do "
                    "is not known, so it is not ignored; use that version"
                )
            if name in USUAL and value != USUAL[name]:
                raise KlipError(
                    f"actor.{name}={value} is not used beside a shape: leave it at {USUAL[name]}, "
                    f"and give {INSTEAD[name]}"
                )
        if data.get("prox_logp") is None:
            raise KlipError(
                "prox_logp is missing: actor.prox_logp_method=loglinear does not compute it. Set "
                "recompute; the interpolation itself is the shape a3po"
            )
        if data.get("teacher_logp") is not None:
            raise KlipError(
                "the batch has teacher_logp, and distillation is not a part of this loss: leave "
                "the teacher out, or keep AReaL's own loss"
            )
        needs = self.region.needs
        if needs & OF_SAMPLER and not settings.get("use_decoupled_loss"):
            self._refuse(OF_SAMPLER, "the sampler's log-probs: set actor.use_decoupled_loss=true")
        if "age" in needs and None in (data.get("versions"), settings.get("current_version")):
            self._refuse({"age"}, "the age of tokens, and this batch has no versions")

    def _refuse(self, fields: Iterable[str], what: str) -> None:
        part = next(part for part in self.region.parts if part.needs & frozenset(fields))
        raise KlipError(f"{part.name} needs {what}")


def actor_loss(
    shape: Shape | str = "clip(eps=0.2)",
    *,
    level: str = "token",
    gates: Iterable[str] = (),
    penalties: Iterable[str] = (),
) -> ActorLoss:
    """The loss of a shape, with the arguments of AReaL's `grpo_loss_fn`.

    Args:
        shape: a shape or its spelling
        level: as in `klip.tokens.token_loss`
        gates: the spellings of gates
        penalties: the spellings of penalties

    Returns:
        what `TrainEngine.train_batch` takes as `loss_fn`, with the number of tokens that count as
        the weight of a microbatch

    """
    return ActorLoss(given_region(TRAINER, FIELDS, shape, level, gates, penalties))


def _segments(logprobs: Tensor, data: Mapping[str, Any]) -> Tensor:
    """The sequence of each token of a pack, `[N]`."""
    ends = data.get("cu_seqlens")
    if logprobs.ndim != 1 or ends is None or int(ends[-1]) != len(logprobs):
        of = "none" if ends is None else f"of {int(ends[-1])} tokens"
        raise KlipError(
            f"logprobs {list(logprobs.shape)} must be a pack [N], with cu_seqlens of all its "
            f"sequences; here there are {of}. Trees and context parallelism are not supported"
        )
    ends = ends.long()
    return torch.arange(len(ends) - 1, device=ends.device).repeat_interleave(ends.diff())


def _age(versions: Tensor | None, now: int | None, mask: Tensor) -> Tensor | None:
    """How many versions ago each token was sampled, `[N]`; None if AReaL does not say.

    The other tensors of a batch have what belongs to a token in the place before it, where it is
    predicted; AReaL leaves versions in the token's own place.
    """
    if versions is None or now is None:
        return None
    version = versions.roll(-1).to(torch.float32)
    wrong = mask & ((version < 0) | (version > now))
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0, 0])
        raise KlipError(
            f"the token after place {place} of the pack has version {version[place]:g}, and the "
            f"policy has {now}: a token that counts must have a version from 0 to that, so the "
            "versions are not where AReaL 1.0.4 has them"
        )
    return now - version


def _log(
    seen: Diagnostics,
    packing: Packing,
    mask: Tensor,
    age: Tensor | None,
    own: Mapping[str, Tensor],
) -> None:
    """Give AReaL's tracker what happened to each token: it takes means over batches and machines.

    All machines must log the same names, so every age is there, if any is known.
    """
    tracker = importlib.import_module("areal.utils.stats_tracker")
    fate, still = packing.flat(seen.observed.fate), packing.flat(seen.m) == 0
    pushes = packing.flat(seen.log_ratio * seen.advantage) > 0
    rows = {name: (fate == i).float() for i, name in enumerate(FATES)}
    shares = {"clip_ratio": (still & pushes).float(), **logged(rows)}
    mean = tracker.ReduceType.AVG
    tracker.denominator(**{COUNTED: mask})
    tracker.stat(denominator=COUNTED, **{name: x.float() for name, x in own.items()})
    tracker.stat(denominator=COUNTED, reduce_type=mean, **shares)
    if age is None:
        return
    for label in AGE_LABELS:
        first, _, last = label.rstrip("+").partition("-")
        upto = float("inf") if int(first) == OLDEST else float(last or first)
        tokens = f"klip/age={label}/tokens"
        tracker.denominator(**{tokens: mask & (age >= int(first)) & (age <= upto)})
        zeroed = {f"klip/age={label}/zeroed": rows["zeroed"]}
        tracker.stat(denominator=tokens, reduce_type=mean, **zeroed)
