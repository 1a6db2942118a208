"""Does `klip compare` answer what it should, and does a newcomer get its place in time?

    nice python benchmarks/answers.py                              # all three questions
    nice python benchmarks/answers.py --only newcomer --runs runs  # among standings of one's own
    nice python benchmarks/answers.py --only difference --steps 4096 --record /tmp/a.json

forms: clip against per-sample on CartPole-v1 is equivalent at the first look. difference: clip
against is on Hopper-v4 with 40 epochs. The command is killed with SIGKILL once some runs are done,
given again, and given a third time: no run may be trained twice, and the answer must be the same.
newcomer: the shape on docs/league.md is tuned and tested; the time that `klip league` announces
stands beside the time that it took. Options that are not known here go to `klip compare`. Writes
benchmarks/results/answers.json, the part of each question. On two cores: half a minute, 15 minutes
or as long as an answer takes, and 17 to 35 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.runs import read_run, run_paths

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "answers.json"
QUESTIONS = {
    "forms": ["clip", "per-sample", "--task", "CartPole-v1"],
    "difference": ["clip", "is", "--task", "Hopper-v4", "--epochs", "40"],
}
ANNOUNCED = re.compile(r"all stages: .*?about (?:(\d+) h )?(\d+) (min|s)\b", re.DOTALL)
Done = dict[Path, int]


def started(
    words: Sequence[str], folder: Path, heard: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """A command in a group of processes of its own, with its files in a folder."""
    line = [sys.executable, "-P", "-m", "klip", *words, "--json"]
    return subprocess.Popen(
        line, cwd=folder, stdout=heard, stderr=heard, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def said(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """What a command says, as JSON, and beside it."""
    out, beside = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args!r}\n{beside}")
    found: dict[str, Any] = json.loads(out)
    return found, beside


def done(runs: Path) -> Done:
    """The runs that are done, and when their metrics were last written."""
    found: Done = {}
    for path in run_paths(runs) if runs.exists() else []:
        try:
            if read_run(path).status == "done":
                found[path] = (path / "metrics.jsonl").stat().st_mtime_ns
        except (KlipError, OSError):  # it is being written
            continue
    return found


def compared(name: str, more: Sequence[str], folder: Path, kill: bool) -> dict[str, Any]:
    """The answer to a question; where asked for, of a command that was killed on its way."""
    words = ["compare", *QUESTIONS[name], *more]
    began, before = time.monotonic(), Done()
    if kill:
        first = started(words, folder, heard=subprocess.DEVNULL)
        while first.poll() is None and not done(folder / "runs"):
            time.sleep(0.5)
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        before = done(folder / "runs")
    answer, _ = said(started(words, folder))
    minutes = (time.monotonic() - began) / 60
    after = done(folder / "runs")
    again, _ = said(started(words, folder))
    repeated = [path for path, stamp in before.items() if after.get(path) != stamp]
    repeated += [path for path, stamp in done(folder / "runs").items() if after.get(path) != stamp]
    (pair,) = answer["pairs"]
    keys = ("answer", "difference", "low", "high", "seeds", "margin")
    return {
        "command": f"klip {' '.join(words)}", "stopped": answer["stopped"],
        **{key: pair[key] for key in keys}, "looks": [look["seeds"] for look in pair["looks"]],
        "runs": len(after), "minutes": round(minutes, 1),
        "killed with runs done": len(before) if kill else None,
        "runs trained twice": len(repeated), "the same answer again": again == answer,
    }  # fmt: skip


def newcomer(runs: Path | None, folder: Path) -> dict[str, Any]:
    """The place of the shape on docs/league.md, and the time it took."""
    page = (ROOT / "docs" / "league.md").read_text(encoding="utf-8")
    code = re.search(r'code = """\n(.*?)"""', page, re.DOTALL)
    assert code is not None
    (folder / "mine.py").write_text(code[1], encoding="utf-8")
    words = ["league", "mine.py:Bell", *(["--runs", str(runs.resolve())] if runs else [])]
    began = time.monotonic()
    tables, beside = said(started(words, folder))
    seconds = time.monotonic() - began
    hours = ANNOUNCED.search(" ".join(beside.split()))
    assert hours is not None, beside
    size = 60 if hours[3] == "min" else 1
    lines = {which: next(x for x in rows if x["newcomer"]) for which, rows in tables.items()}
    keys = ("place", "rank_low", "rank_high", "iqm", "low", "high", "played")
    return {
        "command": f"klip {' '.join(words[:2])}", "shapes": len(tables["tuned"]),
        "announced minutes": round((3600 * int(hours[1] or 0) + size * int(hours[2])) / 60, 1),
        "minutes": round(seconds / 60, 1),
        **{which: {key: line[key] for key in keys} for which, line in lines.items()},
    }  # fmt: skip


def main() -> None:
    """Ask, print and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", nargs="+", choices=[*QUESTIONS, "newcomer"])
    options.add_argument("--runs", type=Path, help="standings for the newcomer; the shipped ones")
    options.add_argument("--record", type=Path, default=RESULT)
    chosen, more = options.parse_known_args()
    known = json.loads(chosen.record.read_text()) if chosen.record.exists() else {}
    for name in chosen.only or [*QUESTIONS, "newcomer"]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if name == "newcomer":
                known[name] = newcomer(chosen.runs, folder)
            else:
                known[name] = compared(name, more, folder, kill=name == "difference")
        print(name, json.dumps(known[name], indent=1), flush=True)
        chosen.record.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
