"""The page for TRL's users and the example run as they stand."""

import runpy
import sys

import pytest

from tests.test_docs import BLOCK, ROOT


def test_the_page_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "trl.md"
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "docs_trl"}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) > 4
    for found in blocks:
        line = text.count("\n", 0, found.start(1))
        exec(compile("\n" * line + found[1], str(page), "exec"), names)
    assert "'answer'" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["clip(low=0.2, high=0.28)", "sapo"])
def test_the_example_runs(monkeypatch, capsys, shape):
    example = ROOT / "examples" / "trl_grpo.py"
    monkeypatch.setattr(sys, "argv", [str(example), "--shape", shape, "--steps", "12"])
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    table = said[said.index("update  reward") :].splitlines()
    assert len(table) == 7  # a heading, and six rows
    zeroed = [float(row.split()[2]) for row in table[1:]]
    assert max(zeroed) > 0.05 or shape == "sapo"  # which weakens
