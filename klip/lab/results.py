"""What the runs of a plan say: arms, their scores, and differences over seeds.

folder of runs, or a packed one ── read_results ──> Results ──> page, figures
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from klip.errors import KlipError
from klip.lab.samples import Sample
from klip.runs import read_run
from klip.runs.files import write_whole
from klip.studies import packing
from klip.studies.scores import Estimate, Scores
from klip.studies.statistics import mean, paired_difference
from klip.studies.study import Run, Study, read_study

SAMPLES: Final = "samples.json"
FORMAT: Final = "klip token samples 1"
COLLAPSED: Final = 0.5
"""A run has collapsed if its final accuracy is below this share of its warm-up's."""

Score = Callable[[Run], float]


def final(run: Run) -> float:
    """Held-out accuracy at the end of training; completions are sampled."""
    return float(run.metrics["held_out"][-1])


def greedy(run: Run) -> float:
    """Held-out accuracy at the end of training; the likeliest token is taken."""
    return float(run.metrics["greedy"][-1])


def start(run: Run) -> float:
    """Held-out accuracy of the warm-up."""
    return float(run.metrics["start_held_out"][0])


def over_training(run: Run) -> float:
    """Held-out accuracy averaged over all looks: high for arms that learn early."""
    return float(np.nanmean(run.metrics["held_out"]))


def average(metric: str) -> Score:
    """A metric averaged over all iterations; NaN if it never had a value."""

    def score(run: Run) -> float:
        values = run.metrics.get(metric, np.array([np.nan]))
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    return score


@dataclass(frozen=True, eq=False)
class Arm:
    """The runs of one shape, by seed."""

    name: str
    group: str
    shape: str
    place: int
    against: str
    runs: tuple[Run, ...]

    @property
    def ended(self) -> tuple[Run, ...]:
        """Those that are done."""
        return tuple(run for run in self.runs if run.status == "done")

    def scores(self, score: Score) -> dict[int, float | None]:
        """From seed to score; None for a run that diverged."""
        found: dict[int, float | None] = {run.seed: score(run) for run in self.ended}
        return found | {run.seed: None for run in self.runs if run.status == "diverged"}

    def estimate(self, score: Score) -> Estimate | None:
        """Its mean over seeds; None where no run has a value."""
        known = [x for x in self.scores(score).values() if x is not None and not np.isnan(x)]
        return mean(Scores.of(known)) if known else None

    @property
    def collapsed(self) -> int:
        """Runs that diverged, or ended below half of their warm-up."""
        low = sum(final(run) < COLLAPSED * start(run) for run in self.ended)
        return low + sum(run.status == "diverged" for run in self.runs)


@dataclass(frozen=True, eq=False)
class Results:
    """All runs of a plan, and the samples that are shown of each arm."""

    study: Study
    samples: Mapping[str, list[Sample]]
    """by run"""

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """In the order of the plan."""
        found: dict[tuple[int, str, str], list[Run]] = {}
        for run in self.study.runs:
            about = run.config
            found.setdefault(
                (int(about["place"]), str(about["group"]), str(about["arm"])), []
            ).append(run)
        return tuple(
            Arm(name, group, runs[0].shape, place, str(runs[0].config.get("against", "")),
                tuple(sorted(runs, key=lambda run: run.seed)))
            for (place, group, name), runs in sorted(found.items())
        )  # fmt: skip

    @property
    def groups(self) -> dict[str, list[Arm]]:
        """Arms by group; the first of each is what the others are compared with."""
        found: dict[str, list[Arm]] = {}
        for arm in self.arms:
            found.setdefault(arm.group, []).append(arm)
        return found


def difference(first: Arm, second: Arm, score: Score = final) -> Estimate | None:
    """The first minus the second over the seeds of both, with a 95 % interval of Student's."""
    x, y = first.scores(score), second.scores(score)
    both = [s for s in x.keys() & y.keys() if x[s] is not None and y[s] is not None]
    if not both or any(np.isnan([x[s] or 0.0, y[s] or 0.0]).any() for s in both):
        return None
    return paired_difference(x, y).difference


def read_results(folder: Path) -> Results:
    """The runs in a folder that `klip tokens run` or `klip tokens pack` wrote."""
    study = read_study(folder)
    for run in study.runs:
        if "arm" not in run.config or "warmup" not in run.config:
            raise KlipError(f"{folder / run.path} is no run of `klip tokens run`: give its folder")
    if not study.runs:
        told = f": {'; '.join(study.trouble)}" if study.trouble else ""
        raise KlipError(f"there are no runs in {folder}{told}; `klip tokens run PLAN` makes some")
    if packing.is_packed(folder):
        return Results(study, _read_samples(folder / SAMPLES))
    results = Results(study, {})
    found = {run.id: _samples_of(folder / run.path) for run in _shown(results)}
    return Results(study, found)


def pack_results(results: Results, folder: Path) -> packing.Packed:
    """Write all that a page needs into a few small files."""
    made = packing.pack(results.study, folder)
    text = json.dumps(
        {run: json.loads(Sample.to_json(samples)) for run, samples in results.samples.items()},
        separators=(",", ":"), sort_keys=True,
    )  # fmt: skip
    about = {"format": FORMAT, "sha256": hashlib.sha256(text.encode()).hexdigest(), "samples": text}
    write_whole(folder / SAMPLES, (json.dumps(about, indent=1) + "\n").encode())
    path = folder / SAMPLES
    return packing.Packed((*made.files, path), made.size + path.stat().st_size)


def _shown(results: Results) -> list[Run]:
    """The run of each arm whose samples are shown: that of the lowest seed which has ended."""
    return [arm.ended[0] for arm in results.arms if arm.ended]


def _samples_of(path: Path) -> list[Sample]:
    data = read_run(path).arrays.get("samples")
    if data is None:
        raise KlipError(f"{path} has no samples: its checkpoint is of another version of Klip")
    return Sample.from_json(data.tobytes())


def _read_samples(path: Path) -> dict[str, list[Sample]]:
    try:
        about = json.loads(path.read_bytes())
        text = about["samples"]
        if (
            about["format"] != FORMAT
            or hashlib.sha256(text.encode()).hexdigest() != about["sha256"]
        ):
            raise ValueError("it is not what its checksum says")
        return {str(run): [Sample.read(one) for one in found]
                for run, found in json.loads(text).items()}  # fmt: skip
    except OSError as error:
        raise KlipError(f"{path} cannot be read ({error.strerror}): pack the runs again") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KlipError(f"{path} is damaged ({error}): pack the runs again") from None
