"""How long a report of 1,000 runs takes, and how much memory: made-up metrics, real files.

    python benchmarks/report.py            # makes the runs in a temporary folder, and deletes it
    python benchmarks/report.py --runs 100
    python benchmarks/report.py --runs 5000    # its record is report-5000.json; limits: 2 min, 2 GB

7 tasks x 28 shapes x 5 seeds and a few more, 488 iterations each, rows as the trainer writes them.
Each part is a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from klip.ppo.config import usual_settings
from klip.runs import RunFolder, config_id, folder_of
from klip.studies.published import TASKS

RESULTS = Path(__file__).parent / "results"
KEPT = {1000: "report.json", 5000: "report-5000.json"}
LIMITS = {"seconds": 120, "gigabytes": 2.0}
"""Of a report of 5,000 runs: its page from the runs' folders."""
ITERATIONS = 488
FLOATS = (
    "return_iqm", "length_mean", "lr", "entropy", "grad_norm", "inside", "inside_negative",
    "inside_positive", "inside_zero", "k1", "k3", "kill", "kill_negative", "kill_positive",
    "killed_mass", "kl", "pass", "pass_negative", "pass_positive", "policy_grad_norm",
    "ratio_deviation", "ratio_max", "ratio_mean", "ratio_min", "ratio_std", "rollout_kl",
    "surrogate", "value_loss", "explained_variance", "controller.b",
)  # fmt: skip
SHAPES = (
    *(f"{name}(eps={eps})" for name in ("clip", "per-sample", "clip-phi", "spo")
      for eps in (0.05, 0.1, 0.2, 0.3, 0.4)),
    *(f"kl(b={b})" for b in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)), "is",
)  # fmt: skip


def make(place: tuple[Path, int]) -> None:
    """One run."""
    out, i = place
    seed, rest = i % 5, i // 5
    task, shape = TASKS[rest % len(TASKS)], SHAPES[rest // len(TASKS) % len(SHAPES)]
    lr = 3e-4 * (1 + rest // len(TASKS) // len(SHAPES))  # beyond all of these: another setting
    config = {**usual_settings(""), "task": task, "shape": shape, "seed": seed, "lr": lr}
    folder = RunFolder(folder_of(out, task, shape, seed, config_id(config)), config)
    draw = np.random.default_rng(i)
    numbers = draw.normal(size=(ITERATIONS, len(FLOATS))).astype(np.float32)
    returns = draw.normal(size=ITERATIONS).cumsum() * 30
    quantiles = np.sort(draw.normal(size=(ITERATIONS, 18)).astype(np.float32))
    for k in range(ITERATIONS):
        folder.append({
            "iteration": k + 1, "step": 2048 * (k + 1), "episodes": 9,
            "return_mean": float(returns[k]),
            **{name: float(x) for name, x in zip(FLOATS, numbers[k], strict=True)},
            "beta": quantiles[k, :9].tolist(), "beta_kill": quantiles[k, 9:].tolist(),
            "unstable_episodes": 0,
        })  # fmt: skip
    arrays = {f"policy/{j}": draw.normal(size=(64, 64)).astype(np.float32) for j in range(9)}
    folder.save(ITERATIONS, arrays, "done")
    folder.close()


def measured(*command: str) -> dict[str, float]:
    """Seconds and peak gigabytes of a `klip` command."""
    began = time.perf_counter()
    script = (
        "import resource, sys\nfrom klip.cli import main\ncode = main(sys.argv[1:])\n"
        "own, of = resource.getrusage(resource.RUSAGE_SELF), resource.RUSAGE_CHILDREN\n"
        "all = [own, resource.getrusage(of)]\n"
        "busy = sum(one.ru_utime + one.ru_stime for one in all)\n"
        "print('used', own.ru_maxrss, all[1].ru_maxrss, busy)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    peak, worker, busy = map(float, done.stdout.rsplit("used", 1)[1].split())
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(busy, 1),
        "gigabytes": round(peak / 2**20, 2),
        "largest_worker_gigabytes": round(worker / 2**20, 2),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=1000)
    count = options.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with multiprocessing.Pool() as pool:
            pool.map(make, [(folder / "runs", i) for i in range(count)], chunksize=20)
        runs, packed, page = folder / "runs", folder / "packed", folder / "report.html"
        results: dict[str, Any] = {
            "runs": count,
            "iterations": ITERATIONS,
            "page": measured("report", str(runs), "-o", str(page), "--page-only"),
            "page, tables and figures": measured("report", str(runs), "-o", str(page)),
            "pack": measured("pack", str(runs), "-o", str(packed)),
            "page from the pack": measured("report", str(packed), "-o", str(page), "--page-only"),
            "megabytes": {
                "runs": _size(runs), "pack": _size(packed), "page": _size(page),
            },
            "cores": multiprocessing.cpu_count(),
            "load": os.getloadavg()[0],
        }  # fmt: skip
    print(json.dumps(results, indent=1))
    if count in KEPT:
        (RESULTS / KEPT[count]).write_text(json.dumps(results, indent=1) + "\n")
    return int(count == 5000 and any(results["page"][name] > most for name, most in LIMITS.items()))


def _size(path: Path) -> float:
    files = [path] if path.is_file() else path.rglob("*")
    return round(sum(file.stat().st_size for file in files if file.is_file()) / 1e6, 1)


if __name__ == "__main__":
    sys.exit(main())
