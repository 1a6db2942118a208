"""Train a part of the league's present stage, and keep in results/league what has ended.

    nice python benchmarks/league_part.py --task Walker2d-v4 --epochs 10
    nice python benchmarks/league_part.py --task Hopper-v4 --epochs 40 --shape clip per-sample

The league takes longer than one sitting, and a pack has no checkpoints: what is half trained when
the machine goes is lost. So its runs are trained cell by cell. Train PPO-Clip and its per-sample
form in the same part: they tie byte for byte only where one kind of processor trained both.
When a stage is whole, `klip run league --have results/league` freezes, and says what comes next.
Once a task has been tested whole, the standings that come with Klip are made of the pack anew.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import klip
from klip.cli.experiments import follow_plan
from klip.engine.advance import Keeping
from klip.engine.finish import survey
from klip.engine.having import having
from klip.engine.plan import Plan
from klip.errors import KlipError
from klip.runs.files import write_whole
from klip.shapes.names import family
from klip.studies.packing import is_packed
from klip.studies.standings import as_text, shipped_standings
from klip.studies.tallying import standings_in

PACK = Path(__file__).parents[1] / "results" / "league"


def part(keeping: Keeping, tasks: list[str], epochs: list[int], shapes: list[str]) -> Plan:
    """The runs of the present stage that are asked for."""
    stage = klip.read_plan("league")
    if not survey(stage.configs, keeping).missing:
        stage = stage.next(keeping) or stage
    jobs = [
        job
        for job in stage.configs
        if (not tasks or job.task in tasks)
        and (not epochs or job.stored["epochs"] in epochs)
        and (not shapes or family(job.names[0]) in shapes)
    ]
    return Plan(f"league, {stage.stage}", "A part of the league's runs.", tuple(jobs))


def main() -> int:
    """Train, then pack."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--task", nargs="*", default=[])
    options.add_argument("--epochs", nargs="*", type=int, default=[])
    options.add_argument("--shape", nargs="*", default=[], help="families, such as clip or spo")
    options.add_argument("--out", type=Path, default=Path("runs"))
    options.add_argument("--dry-run", action="store_true")
    given = options.parse_args()
    packs = [PACK] if is_packed(PACK) else []
    keeping = Keeping(given.out, have=having(packs))
    chosen = part(keeping, given.task, given.epochs, given.shape)
    print(f"{chosen.name}: {len(chosen.configs)} runs", flush=True)
    code = follow_plan(chosen, keeping, dry_run=given.dry_run)
    if not given.dry_run:
        klip.pack([given.out, *packs], PACK, ended=True)
        ship()
    return code


def ship() -> None:
    """Make the standings that come with Klip of the pack, if a task has been tested whole."""
    try:
        standings = standings_in(PACK)
    except KlipError as error:
        print(error)
    else:
        write_whole(shipped_standings(), as_text(standings).encode())
        print(f"{shipped_standings()} has {', '.join(standings.rules.tasks)}")


if __name__ == "__main__":
    raise SystemExit(main())
