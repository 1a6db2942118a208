"""Old samples in a study: which variants learned from some, how, and how old these were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from klip.studies.learning import SeedBand, band
from klip.studies.study import Study, Variant

AGED: Final = "age."
"""What the names of metrics by age begin with."""


def old_variants(study: Study, task: str) -> list[Variant]:
    """The variants of a task that learned from old samples and have counted them by age."""
    return [v for v in study.of(task) if any(f"{AGED}samples" in run.metrics for run in v.runs)]


def by_age(variant: Variant, metric: str) -> dict[int, SeedBand]:
    """A metric over training for each age that lasts, which the first iterations' do not.

    Args:
        variant: one of `old_variants`
        metric: its name without `age.`

    Returns:
        by age in iterations, from the youngest on

    """
    whole = band(variant.runs, AGED + metric)
    if whole is None or whole.mean.ndim != 2:
        return {}
    there = ~np.isnan(whole.mean)
    lasting = np.flatnonzero(there[-1])
    return {
        int(age): SeedBand(whole.steps, whole.mean[:, age], whole.std[:, age], whole.seeds).at(
            there[:, age]
        )
        for age in lasting
    }


def how_old(settings: Mapping[str, Any]) -> str:
    """How runs with these settings learned from old samples, in a sentence; or nothing.

    >>> how_old({"lag": 2, "replay": 1, "ratio": "behaviour", "trace": "corrected"})
    'the policy of 2 iterations ago acts; ratios are to the policy that acted'
    """
    lag, replay = int(settings.get("lag", 0)), int(settings.get("replay", 1))
    if not lag and replay == 1:
        return ""
    parts = []
    if lag:
        parts.append(f"the policy of {lag} iteration{'s' if lag > 1 else ''} ago acts")
    if replay > 1:
        parts.append(_replayed(settings, replay))
    ratio = settings.get("ratio")
    if ratio == "behaviour":
        parts.append("ratios are to the policy that acted")
    if ratio == "decoupled":
        cap = settings.get("correction_cap")
        parts.append(
            "ratios are to the policy at the start of the iteration, weighted by that over the "
            f"one that acted, at most {cap:g}"
        )
    if ratio == "proximal":
        parts.append("ratios are to the policy at the start of the iteration, uncorrected")
    if settings.get("trace") == "recorded":
        parts.append("advantages are as they were when the samples were new")
    if (weights := settings.get("age_weights", "uniform")) != "uniform":
        parts.append(f"weights by age: {weights}")
    return "; ".join(parts)


def _replayed(settings: Mapping[str, Any], replay: int) -> str:
    """How much an iteration learns from, and in how many gradient steps."""
    batch = int(settings["envs"]) * int(settings["rollout"])
    each = -(-batch // int(settings["minibatch"])) * int(settings["epochs"])
    grows = settings.get("gradient_steps") == "grow"
    steps = each * replay if grows else each
    told = f"{replay} times as many as" if grows else "as many as"
    return (
        f"an iteration collects {batch:,} samples and learns from {replay * batch:,}, in "
        f"{steps:,} gradient steps, {told} without replay"
    )
