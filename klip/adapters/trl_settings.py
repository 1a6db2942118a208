"""Which of TRL's settings go with a shape; those that would silently make it wrong are refused.

The checks follow `GRPOTrainer._compute_loss` of TRL 1.16, branch by branch. The module imports
nothing of TRL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klip.adapters.common import OF_SAMPLER, OF_TOKENS, check_corrected_once, defaults
from klip.adapters.trl_batch import has_reference
from klip.errors import KlipError
from klip.shapes import CISPO, SAPO, Clip, DualClip, Gate, Shape
from klip.tokens import OPSM, Level, SequenceMean, Token, TokenRegion

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")
"""TRL's losses that differ only in how they average tokens, which is left to TRL."""

FIELDS = OF_TOKENS | OF_SAMPLER | {"age", "entropy", "reference_log_ratio"}
"""The context fields that TRL has; the log-ratios need settings, which `check` demands."""

_IN_KLIP = {
    "cispo": "loss_type='dapo' and shape='cispo(cap=...)', cap being TRL's epsilon_high",
    "sapo": "loss_type='grpo' and shape='sapo(tau_positive=..., tau_negative=...)'",
    "luspo": "loss_type='dr_grpo' and level='sequence-mean', which is LUSPO divided by "
    "max_completion_length",
    "vespo": "TRL's own GRPOTrainer, since no shape is VESPO",
}

_IGNORED = {
    "sapo_temperature_pos": "shape='sapo(tau_positive={value})'",
    "sapo_temperature_neg": "shape='sapo(tau_negative={value})'",
    **dict.fromkeys(
        ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
        "TRL's own GRPOTrainer, since no shape is VESPO",
    ),
}


def on_policy(args: Any) -> bool:
    """Whether every update has completions of its own, so that every ratio is exactly 1.

    >>> from types import SimpleNamespace as Args
    >>> batch = dict(gradient_accumulation_steps=4, steps_per_generation=4)
    >>> on_policy(Args(num_iterations=1, **batch)), on_policy(Args(num_iterations=2, **batch))
    (True, False)
    """
    reused = args.steps_per_generation * args.num_iterations
    return bool(args.gradient_accumulation_steps % reused == 0)


def say_on_policy(args: Any) -> str:
    """The warning for a user whose every ratio will be 1."""
    return (
        "every ratio will be exactly 1 and the shape inert, since each update is the only one on "
        f"its completions: make num_iterations={args.num_iterations} times steps_per_generation="
        f"{args.steps_per_generation} larger than gradient_accumulation_steps="
        f"{args.gradient_accumulation_steps}, say by num_iterations="
        f"{1 + args.gradient_accumulation_steps // args.steps_per_generation}"
    )


def check(args: Any, region: TokenRegion, sampler: bool) -> None:
    """Refuse the first setting that does not go with the region, and say what does.

    `sampler` says whether the sampler's log-probs reach the loss.
    """
    for objection in _objections(args, region, sampler):
        raise KlipError(objection)
    if args.use_vllm and args.vllm_importance_sampling_correction:
        setting = "vllm_importance_sampling_correction=True"
        check_corrected_once(region, setting, "set it to False")


def _objections(args: Any, region: TokenRegion, sampler: bool) -> Iterator[str]:
    yield from _own_regions(args)
    yield from _own_kl(args, region)
    if (made := sorted(region.needs & OF_SAMPLER)) and not sampler:
        yield (
            f"the sampler's log-probs, which {made[0]} is made of, reach the loss only "
            "with use_vllm=True or a rollout_func: without them the sampler is the policy itself"
        )
    weighs = _weighs(args)
    if region.penalties and weighs:
        yield (
            f"{weighs} weighs all that a token pulls, so penalties given apart would be weighed "
            "too: write them into the shape (shape='clip + kl-k3(b=0.1)') if that is meant, or "
            "turn it off"
        )


def own_region(args: Any, sampler: bool) -> TokenRegion:
    """The trust region that a stock GRPOTrainer has by its settings; VESPO has none in Klip.

    Its KL to the reference, `top_entropy_quantile` and its correction for vLLM are no part of it.

    >>> from types import SimpleNamespace as Args
    >>> usual = dict(delta=None, importance_sampling_level="token", off_policy_mask_threshold=None)
    >>> args = Args(loss_type="dapo", epsilon=0.2, epsilon_high=0.28, **usual)
    >>> print(own_region(args, sampler=False).shape)
    clip(low=0.2, high=0.28)
    """
    level: Level = SequenceMean() if args.importance_sampling_level == "sequence" else Token()
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    shape: Shape
    if args.loss_type == "cispo":
        shape = CISPO(cap=high)
    elif args.loss_type == "sapo":
        shape = SAPO(args.sapo_temperature_pos, args.sapo_temperature_neg)
    elif args.loss_type not in (*LOSS_TYPES, "luspo"):
        raise KlipError(
            f"loss_type={args.loss_type!r} is no shape, so that its tokens cannot be told apart: "
            f"watch one of {', '.join(LOSS_TYPES)}, luspo, cispo, sapo"
        )
    elif args.delta is not None:
        shape = DualClip(low=args.epsilon, high=high, cap=args.delta)
    else:
        shape = Clip(low=args.epsilon, high=high)
    gates: tuple[Gate, ...] = ()
    if args.off_policy_mask_threshold is not None:
        anchor = "behaviour" if sampler else "old"
        gates = (OPSM(args.off_policy_mask_threshold, anchor),)
    return TokenRegion(shape, level, gates)


def _own_regions(args: Any) -> Iterator[str]:
    """Objections to settings of TRL's own trust regions."""
    if args.loss_type not in LOSS_TYPES:
        instead = _IN_KLIP.get(args.loss_type, "one of them")
        yield (
            f"loss_type={args.loss_type!r} has a trust region of its own; with a shape, loss_type "
            f"only says how tokens are averaged ({', '.join(LOSS_TYPES)}): use {instead}"
        )
    if args.importance_sampling_level != "token":
        yield (
            f"importance_sampling_level={args.importance_sampling_level!r} would act on a ratio "
            "that is 1: leave it at 'token' and pass level='sequence-mean'; with "
            "loss_type='grpo' that is GSPO"
        )
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if args.delta is not None:
        band = f"low={args.epsilon}, high={high}, cap={args.delta}"
        yield (
            f"delta={args.delta} would act on a ratio that is 1: leave it unset and write "
            f"shape='dual-clip({band})'"
        )
    if _changed(args, "epsilon") or _changed(args, "epsilon_high"):
        yield (
            f"epsilon={args.epsilon}, epsilon_high={args.epsilon_high} would act on a ratio that "
            f"is 1: leave both unset and write shape='clip(low={args.epsilon}, high={high})'"
        )
    if args.off_policy_mask_threshold is not None:
        anchor = ", anchor=behaviour" if args.use_vllm else ""
        yield (
            f"off_policy_mask_threshold={args.off_policy_mask_threshold} would find no drift, the "
            "ratio being 1: leave it unset and pass "
            f"gates=['opsm(delta={args.off_policy_mask_threshold}{anchor})']"
        )
    for name, instead in _IGNORED.items():
        if _changed(args, name):
            value = getattr(args, name)
            yield f"{name}={value} would be ignored: use {instead.format(value=value)}"


def _own_kl(args: Any, region: TokenRegion) -> Iterator[str]:
    """Objections to TRL's KL to the reference, beside a penalty that replaces it."""
    if has_reference(region) and args.beta == 0:
        yield (
            "the reference policy, which reference_log_ratio is made of, is kept by TRL only if "
            "beta is not 0: set beta; the penalty takes the place of TRL's own KL, and only its "
            "own coefficient counts"
        )
    if args.beta != 0 and args.use_bias_correction_kl and not has_reference(region):
        yield (
            f"beta={args.beta} with use_bias_correction_kl=True weighs TRL's KL by a ratio that is "
            "1: set use_bias_correction_kl=False for the plain k3, or pass penalties="
            f"['reference-kl(b={args.beta}, estimator=weighted-k3)'], which takes the place of "
            "TRL's"
        )


def _weighs(args: Any) -> str:
    """The setting by which TRL multiplies what tokens pull, or ""."""
    if args.top_entropy_quantile < 1:
        return f"top_entropy_quantile={args.top_entropy_quantile}"
    if args.use_vllm and args.vllm_importance_sampling_correction:
        return "vllm_importance_sampling_correction=True"
    return ""


def _changed(args: Any, name: str) -> bool:
    return bool(getattr(args, name) != defaults(args)[name])
