"""`klip.league`: the standings, a newcomer's place in them, or a quick league of a few shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from klip.engine.advance import CHECKPOINT_EVERY, Keeping
from klip.engine.finish import Listener
from klip.engine.plan import Plan, read_plan
from klip.engine.run import run
from klip.errors import KlipError
from klip.shapes import Region
from klip.studies.league import Course, Rules, course
from klip.studies.standings import Standings, name_of, read_standings, shipped_standings
from klip.studies.tallying import standings_in

Play = Callable[[Plan], None]
"""Takes a plan to its end."""


def league(
    shape: str | Region | None = None,
    knob: Sequence[str] = (),
    quick: bool = False,
    runs: str | Path | None = None,
    out: str | Path = "runs",
    workers: int | None = None,
    ray: str | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    accept_changes: bool = False,
    start_over: bool = False,
    have: Sequence[str | Path] = (),
    progress: Listener = lambda news: None,
) -> Standings:
    """The standings of the league; with a shape of your own, its place among the others.

    The newcomer's knob is tuned and frozen, then it is tested, all under the league's protocol
    and on its scale. Nobody else is trained again. `klip.studies.standings.table` makes the tables.

    >>> standings = league("my_shapes.py:Mine")  # doctest: +SKIP

    Args:
        shape: the newcomer; without one, nothing is trained
        knob: numbers that set its radius, in its parts too, unless its class says so
        quick: a league of a few shapes in one cell instead, trained here: a smoke test
        runs: a file of standings, or the folder of a league's runs, which may still go on: then
            of the tasks tested so far; the standings that come with Klip unless given
        out: folder for the runs
        workers: number of processes here; one per core unless given
        ray: address of a Ray cluster to train on; "auto" is the one this machine belongs to
        checkpoint_every: seconds between checkpoints
        accept_changes: go on with runs begun under other versions or on another processor
        start_over: begin again the runs whose checkpoints are all damaged
        have: packs (`klip.pack`) whose runs count as done, as from another machine
        progress: called with the news of every iteration of every run

    Returns:
        every shape's place, its scores over tasks with intervals, and what was not told apart

    """

    def play(plan: Plan) -> None:
        run(plan, out=out, workers=workers, ray=ray, checkpoint_every=checkpoint_every,
            accept_changes=accept_changes, start_over=start_over, have=have,
            progress=progress)  # fmt: skip

    return play_league(Keeping(Path(out)), play, shape, knob, quick, runs)


def play_league(
    keeping: Keeping,
    play: Play,
    shape: str | Region | None = None,
    knob: Sequence[str] = (),
    quick: bool = False,
    runs: str | Path | None = None,
) -> Standings:
    """The standings, once `play` has taken all that is missing to its end."""
    if knob and shape is None:
        raise KlipError(f"--knob {' '.join(knob)} is of a newcomer: give its shape, too")
    if quick and runs is not None:
        raise KlipError("a quick league is trained here: give --quick or --runs, not both")
    if quick:
        rules = quick_rules()
        if shape is not None:  # a mistake in it is said before anything is trained
            rules.with_newcomer(shape, knob)
        play(course("league-quick", "A smoke test of the league: it ranks nobody.", rules))
        standings = read_standings(keeping.out)
    else:
        standings = standings_in(shipped_standings() if runs is None else Path(runs))
    if shape is None:
        return standings
    rules = standings.rules.with_newcomer(shape, knob)
    about = "A newcomer, under the protocol of the league."
    play(course("newcomer", about, rules, standings.scales["tuning"]))
    return standings.joined(read_standings(keeping.out / name_of(rules)))


def quick_rules() -> Rules:
    """The rules of the shipped league, cut down to a smoke test."""
    stages = read_plan("league").course
    assert isinstance(stages, Course)
    return stages.rules.quick()
