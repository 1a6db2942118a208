"""Are both cores busy to the end of a plan? Simulated for the paper's, measured on a short one.

    python benchmarks/schedule.py

The simulation takes the measured cost of each task's steps. The measured plan is a short one of
unequal tasks; a core is busy while a process that trains lives on it. Writes
benchmarks/results/schedule.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klip.engine import crew, read_plan, schedule
from klip.engine.advance import Keeping
from klip.engine.finish import finish, here, survey

RESULT = Path(__file__).parent / "results" / "schedule.json"
PLAN = """
seeds = 3
[[runs]]
tasks = ["HalfCheetah-v4"]
shapes = ["clip", "kl(b=1)"]
config = { steps = 143_360 }
[[runs]]
tasks = ["Hopper-v4"]
shapes = ["clip", "per-sample"]
config = { steps = 81_920 }
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip", "per-sample", "spo"]
"""
LIMIT = 0.95


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    record: dict[str, object] = {"cores": cores}
    for name in ("paper", "paper-sweeps"):
        planned = schedule(read_plan(name).configs, cores)
        hours, busy = planned.seconds / 3600, planned.busy
        record[f"{name}: simulated"] = {"hours": round(hours, 2), "busy": round(busy, 4)}
    alive: list[float] = []
    start, end = crew.Worker.__init__, crew.Crew._ended

    def started(worker: Any, *args: Any) -> None:
        worker.began = time.monotonic()
        start(worker, *args)

    def ended(whole: Any, worker: Any, *args: Any) -> Iterator[Any]:
        alive.append(time.monotonic() - worker.began)
        yield from end(whole, worker, *args)

    setattr(crew.Worker, "__init__", started)  # noqa: B010
    setattr(crew.Crew, "_ended", ended)  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "short.toml"
        path.write_text(PLAN, encoding="utf-8")
        configs = read_plan(path).configs
        planned = schedule(configs, cores)
        began = time.monotonic()
        results = finish(survey(configs, Keeping(Path(folder) / "runs")), here(cores))
        seconds = time.monotonic() - began
    assert all(result.status == "done" for result in results)
    busy = sum(alive) / (cores * seconds)
    record["a short plan"] = {
        "runs": len(configs),
        "cohorts": len(alive),
        "expected seconds": round(planned.seconds, 1),
        "seconds": round(seconds, 1),
        "busy": round(busy, 4),
    }
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=2))
    return 0 if busy >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
