"""The table on docs/guarantees.md is the file of verdicts; run this file to write it anew."""

import re
from pathlib import Path

from klip.theory.guarantee.table import known

PAGE = Path(__file__).parents[1] / "docs" / "guarantees.md"
MARK = "<!-- table: python tests/test_guarantees_page.py -->\n"
PLACE = re.compile(f"{re.escape(MARK)}.*?<!-- end -->", re.DOTALL)


def table():
    rows = ["| shape | T1 | T2 | T3 | where it ends |", "|---|---|---|---|---|"]
    for spelling, line in known().items():
        verdicts = [part.split()[1] for part in line["brief"].split(", ")]
        end = line["end"].replace("|A|", "abs A")
        rows.append(f"| `{spelling}` | {' | '.join(verdicts)} | {end} |")
    return "\n".join([*rows, ""])


def test_the_page_shows_what_the_code_says():
    shown = PLACE.search(PAGE.read_text(encoding="utf-8"))
    assert shown[0] == f"{MARK}{table()}<!-- end -->", "run: python tests/test_guarantees_page.py"


if __name__ == "__main__":
    text = PLACE.sub(lambda _: f"{MARK}{table()}<!-- end -->", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
