"""How much memory the parent of a plan of many runs takes: the process that plans and listens.

    python benchmarks/parent.py [--runs 2000] [--seconds 600] [--json]

The runs are as short as runs can be, so that the parent hears as much as it ever does. After
`seconds` it is asked to stop, and the peak so far counts; its limit is 500 MB.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLAN = """seeds = {seeds}
config = {{ steps = 512 }}
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip", "spo", "kl", "adaptive-kl"]
"""
LIMIT = 500
RESULT = Path(__file__).parent / "results" / "parent.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", action="store_true", help=f"write {RESULT.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.toml")
        plan.write_text(PLAN.format(seeds=given.runs // 4))
        line = [sys.executable, "-m", "klip", "run", str(plan), "--out", f"{folder}/runs"]
        began, peak, asked = time.monotonic(), 0.0, False
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as parent:
            while parent.poll() is None:
                text = Path(f"/proc/{parent.pid}/status").read_text()
                if found := re.search(r"VmHWM:\s+(\d+) kB", text):
                    peak = int(found[1]) / 1e3
                if time.monotonic() - began > given.seconds and not asked:
                    parent.send_signal(signal.SIGINT)
                    asked = True
                time.sleep(0.2)
        ended = len(list(Path(folder, "runs").glob("*/*/*/status.json")))
    result = {"runs": given.runs, "ended": ended, "megabytes": round(peak), "limit": LIMIT,
             "seconds": round(time.monotonic() - began)}  # fmt: skip
    print(json.dumps(result))
    if given.json:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if peak < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
