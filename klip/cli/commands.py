"""From the command line to a command: a user's mistake is one line, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from klip.cli import (
    adapters,
    comparing,
    experiments,
    guarantees,
    league,
    policies,
    reports,
    shapes,
    sinks,
    training,
    tuning,
)
from klip.errors import KlipError
from klip.runs.files import shown

COMMANDS: dict[str, Callable[..., Any]] = {
    "shapes": shapes.shapes,
    "show": shapes.show,
    "profile": shapes.profile,
    "guarantee": guarantees.guarantee,
    "probe": shapes.probe,
    "verify": shapes.verify,
    "figures": shapes.figures,
    "train": training.train,
    "compare": comparing.compare,
    "league": league.league,
    "tune": tuning.tune,
    "run": experiments.run,
    "plans": experiments.plans,
    "resume": training.resume,
    "runs": training.runs,
    "report": reports.report,
    "pack": reports.pack,
    "sync": sinks.sync,
    "eval": policies.evaluate,
    "video": policies.video,
    "export": policies.export,
    "doctor": adapters.doctor,
    "bench": training.bench,
}


def run(args: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error, and exit code 2.

    Args:
        args: the words after `klip` on the command line; this process's own unless given

    Returns:
        the exit code, which is what the command returns

    """
    try:
        result = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="klip",
            description="The workbench for trust regions in policy optimisation.",
            args=args,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        sys.stdout.flush()
    except KlipError as error:
        print(f"klip: {shown(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `klip shapes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(result or 0)
