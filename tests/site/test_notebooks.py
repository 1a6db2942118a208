"""Notebooks are kept without outputs, and an executed one becomes a page."""

import json
import re
from pathlib import Path
from types import SimpleNamespace as Cell

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_its_links_lead_somewhere(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code"].count([]) == sum(
        cell["cell_type"] == "code" for cell in cells
    )
    text = "".join(line for cell in cells for line in cell["source"])
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []


def test_outputs_become_text_pictures_and_html(tmp_path):
    pytest.importorskip("nbclient")
    from notebooks import as_myst

    def shown(**data):
        return Cell(output_type="display_data", get=lambda name, other: data)

    def code(source, *outputs):
        return Cell(cell_type="code", source=source, outputs=list(outputs))

    def printed(text):
        return Cell(output_type="stream", text=text)

    notebook = Cell(
        cells=[
            Cell(cell_type="markdown", source="# Title"),
            code("print(1)", printed("1\n"), printed("\x1b[31m2\x1b[0m\n")),
            code("x", shown(**{"image/png": "iVBORw=="})),
            code("y", shown(**{"text/html": "<b>\n\n</b>"})),
            code("", printed("")),
        ]
    )
    text = as_myst(notebook, "it", tmp_path)
    assert text.startswith("# Title\n\n```python\nprint(1)\n```\n\n```text\n1\n2\n```")
    assert "![what the cell shows](it-2-0.png)" in text
    assert (tmp_path / "it-2-0.png").exists()
    assert '<div class="output"><b>\n</b></div>' in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_lists_every_notebook(path):
    pytest.importorskip("nbclient")
    from build import GROUPS

    assert f"docs/notebooks/{path.stem}" in GROUPS["Notebooks"]
