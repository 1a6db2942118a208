"""How long does `klip guarantee` take over the whole catalogue, and what checked its refutations?

    python benchmarks/guarantees.py

One process, in seconds of the processor over all its threads, shape by shape: T1 to T3 with the
suite of small MDPs, and the adversary by itself. What shapes share, such as the suite, is in the
first one's time. Writes results/guarantees.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from klip.shapes import Controller, Shape, catalogue, parse
from klip.theory.guarantee.adversary import adversary
from klip.theory.guarantee.examine import examined

RESULT = Path(__file__).parent / "results" / "guarantees.json"
CATALOGUE, ONE = 120, 3
"""Seconds within which the catalogue should be done, and one shape without the adversary."""


def timed(shape: Shape) -> dict[str, Any]:
    """The verdicts on a shape in brief, and the seconds that they took."""
    start = time.process_time()
    found = examined(shape, attacked=False)
    middle = time.process_time()
    with np.errstate(all="ignore"):
        attack, _ = adversary(shape)
    end = time.process_time()
    refuted = [v for v in (*found.verdicts, attack) if v.outcome == "refuted"]
    return {
        "brief": found.brief,
        "without adversary": round(middle - start, 2),
        "adversary": round(end - middle, 2),
        "refuted": {v.claim: list(v.checked) for v in refuted},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("shapes", nargs="*", help="some shapes alone, whose record is not kept")
    given = parser.parse_args()
    every = [cls() for kind in (Shape, Controller) for cls in catalogue(kind).values()]
    regions = [parse(name) for name in given.shapes] or every
    shapes = {str(region.initial): region.initial for region in regions}
    rows = {}
    for spelling, shape in shapes.items():
        rows[spelling] = row = timed(shape)
        print(f"{row['without adversary']:6.2f} {row['adversary']:6.2f}  {spelling}", flush=True)
    alone = {spelling: row["without adversary"] for spelling, row in rows.items()}
    slowest = max(alone, key=lambda spelling: alone[spelling])
    checked = Counter(" and ".join(by) for row in rows.values() for by in row["refuted"].values())
    about = {
        "shapes": len(rows),
        "seconds": round(sum(alone.values()) + sum(r["adversary"] for r in rows.values()), 1),
        "seconds without adversary": round(sum(alone.values()), 1),
        "slowest without adversary": {slowest: alone[slowest]},
        "wanted": {"catalogue": CATALOGUE, "one shape without adversary": ONE},
        "refutations by what checked them": dict(checked),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(about, indent=1))
    if not given.shapes:
        RESULT.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
