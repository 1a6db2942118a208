"""The file of verdicts is what the code says, line by line; run this file to write it anew."""

import json

import pytest

from klip.shapes import Controller, Shape, catalogue
from klip.theory.guarantee.table import FILE, in_brief, known, worked_out

SHAPES = {
    str(cls().initial): cls().initial
    for kind in (Shape, Controller)
    for cls in catalogue(kind).values()
}
ANEW = "write it anew: python tests/theory/guarantee/test_table.py"


def test_it_has_every_shape_and_no_other():
    assert known().keys() == SHAPES.keys(), ANEW


@pytest.mark.parametrize("spelling", SHAPES)
def test_each_line_is_what_the_code_says(spelling):
    assert known()[spelling] == worked_out(SHAPES[spelling]), ANEW


def test_a_name_finds_its_line():
    assert in_brief("clip") == known()["clip(eps=0.2)"]["brief"]
    assert in_brief("adaptive-kl") == known()["kl(b=1.0)"]["brief"]


def test_no_shape_has_both_t2_and_t3():
    both = [name for name, line in known().items() if line["brief"].endswith("T2 yes, T3 yes")]
    assert both == []


if __name__ == "__main__":
    lines = {spelling: worked_out(shape) for spelling, shape in SHAPES.items()}
    FILE.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
