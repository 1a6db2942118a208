"""Runs of several folders and packs as one: to pack them together, and to go on from packs.

    folders and packs ── gathered ──> Study ── pack
    packs ── read_have ──> Have ── a plan counts its runs as done
    a job ── run_of ──> its Run, from the plan's folder, or from a pack

A run that is there twice is one run. Where both have ended with other bytes, neither is believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from klip.engine.advance import Keeping
from klip.engine.finish import ENDED
from klip.engine.having import Have
from klip.engine.job import Job
from klip.errors import KlipError
from klip.studies.packing import is_packed, unpack
from klip.studies.reading import read_one, read_study
from klip.studies.study import Run, Study, ordered


def gathered(sources: Sequence[Path], workers: int = 1, ended: bool = False) -> Study:
    """The runs of several folders and packs, each once, and what leagues have frozen there.

    Of a run that has ended in one of them and not in another, the one that has ended is taken. The
    order of the sources does not matter.

    >>> paper, example = Path("results/paper"), Path("examples/cartpole")
    >>> len(gathered([example, paper, example]).runs) - len(read_study(paper).runs)
    6

    Args:
        sources: folders of runs, or packs
        workers: processes that read, where there are many runs
        ended: leave out runs that have not ended

    """
    if not sources:
        raise KlipError("there is nothing to pack: give folders of runs, or packs")
    studies = {source: read_study(source, workers=workers) for source in sources}
    for source, study in studies.items():
        if not study.runs:
            raise KlipError(f"there are no runs in {source}; `klip train` makes some")
    if len(studies) > 1:
        runs, _ = _merged(studies)
        trouble = {line for study in studies.values() for line in study.trouble}
        study = Study(ordered(runs.values()), tuple(sorted(trouble)), _choices(studies))
    if not ended:
        return study
    over = tuple(run for run in study.runs if _ended(run))
    if not over:
        places = ", ".join(map(str, sources))
        raise KlipError(f"no run has ended in {places}: pack it without --ended, or later")
    return replace(study, runs=over)


def read_have(packs: Sequence[str | Path]) -> Have:
    """What packs have: their runs that are done or diverged, and what leagues have frozen."""
    studies = {}
    for path in map(Path, packs):
        if not is_packed(path):
            raise KlipError(f"{path} is no packed study: give a folder that `klip pack` wrote")
        studies[path] = unpack(path)
    runs, places = _merged(studies)
    ended = {id: run for id, run in runs.items() if _ended(run)}
    return Have(
        ended,
        {id: places[id] for id in ended},
        {path: study.choices for path, study in studies.items() if study.choices},
    )


def run_of(job: Job, keeping: Keeping) -> Run:
    """The run of a job that has ended: from its folder, or where it has not ended there, a pack."""
    path, packed = keeping.path(job), keeping.have.runs.get(job.id)
    if packed is not None:
        assert isinstance(packed, Run)
        if not path.is_dir():
            return packed
        try:
            own = read_one(path)
        except KlipError:
            return packed
        return own if _ended(own) else packed
    return read_one(path)


def _merged(studies: Mapping[Path, Study]) -> tuple[dict[str, Run], dict[str, Path]]:
    """Each run of several studies once, and where it is taken from, by id."""
    runs: dict[str, Run] = {}
    places: dict[str, Path] = {}
    for place, study in studies.items():
        for run in study.runs:
            other = runs.get(run.id)
            if other is not None and _ended(run) and _ended(other) and run.digest != other.digest:
                raise KlipError(
                    f"{places[run.id]} and {place} both have {run.path}, with other bytes "
                    f"({other.digest[:8]} and {run.digest[:8]}): leave one of them out"
                )
            if other is None or _worth(run) > _worth(other):
                runs[run.id], places[run.id] = run, place
    return runs, places


def _ended(run: Run) -> bool:
    """Whether a run is over, and all that it wrote is there."""
    whole = run.status == "diverged" or run.rows == run.iterations
    return run.status in ENDED and whole and not run.notes


def _worth(run: Run) -> tuple[bool, int, bool, bool, str]:
    """Of two records of a run the larger is kept; the last part only makes that no matter of order.

    Their bytes are the same, and yet one may have gone on elsewhere, or have kept no picture.
    """
    about = repr((run.path, [dict(machine) for machine in run.machines], run.history))
    return _ended(run), run.rows, bool(run.samples), run.portrait is not None, about


def _choices(studies: Mapping[Path, Study]) -> dict[str, bytes]:
    """What leagues have frozen, by the name of the file."""
    found: dict[str, tuple[Path, bytes]] = {}
    for place, study in studies.items():
        for name, data in study.choices.items():
            first, known = found.setdefault(name, (place, data))
            if known != data:
                raise KlipError(
                    f"{first} and {place} have frozen other choices in {name}: they are two "
                    "leagues, so pack them apart"
                )
    return {name: data for name, (_, data) in found.items()}
