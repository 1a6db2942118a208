"""From folders back to jobs, for `klip resume`."""

from __future__ import annotations

import os
from pathlib import Path

from klip.engine.advance import Keeping
from klip.engine.job import Fields, Job, kind_of, read_job
from klip.errors import KlipError
from klip.runs import read_run, run_paths


def read_jobs(folder: Path, run_code: bool = False) -> tuple[Path, list[Job]]:
    """The runs' common folder `<out>`, and the jobs in or below `folder` that are not done.

    Those that diverged are among them: they end nowhere else, and are not trained again. Reading a
    run executes nothing. Going on executes the code of a shape or task that is somebody's
    Python code, so that takes `run_code`.
    """
    jobs: list[Job] = []
    roots = set()
    paths = run_paths(folder)
    if not paths:
        raise KlipError(f"there are no runs in {folder}; `klip train` and `klip run` make some")
    for path in paths:
        record = read_run(path)
        above = path.resolve().parents
        if len(above) < 3:
            raise KlipError(
                f"{path} is not below <out>/<task>/<shape>, where runs lie: move it there"
            )
        root = above[2]
        roots.add(root)
        if record.status == "done" and not record.notes:
            continue
        over = record.status == "diverged" and not record.notes
        if not over and not run_code and (code := code_in(record.config)):
            raise KlipError(
                f"{path} takes its {code}, which going on would execute: give the command that "
                "began it again, or --run-code if you trust that code"
            )
        job = read_job(record.config)
        if not over:
            kind_of(job.kind).check(job)
        home = Keeping(root).path(job)
        if home != path.resolve():
            raise KlipError(f"{path} is not where a run of its config lies: move it to {home}")
        jobs.append(job)
    if len(roots) > 1:
        places = ", ".join(os.path.relpath(root) for root in sorted(roots))
        raise KlipError(f"the runs in {folder} belong to several folders ({places}): give one")
    return roots.pop(), jobs


def code_in(config: Fields) -> str:
    """Which of a run's names stand for Python code to be executed, in words; or nothing.

    >>> code_in({"shape": "my.py:Mine(a=1)", "task": "Hopper-v4"})
    "shape from code: 'my.py:Mine(a=1)'"
    """
    for name in ("shape", "task"):
        if ":" in str(config.get(name, "")):
            return f"{name} from code: {str(config[name])!r}"
    return ""
