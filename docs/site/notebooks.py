"""Notebooks, executed, as MyST pages: text, code, and what the code showed."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
LONGEST = 120
"""Seconds that a cell may take."""


def paths() -> list[Path]:
    """All notebooks, in order."""
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """A notebook with its outputs, run in its folder; the first error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=LONGEST,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    return client.execute()


def as_myst(notebook: Any, name: str, folder: Path) -> str:
    """An executed notebook as MyST; its pictures are written to `folder`."""
    parts = []
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code" and cell.source.strip():
            parts.append(f"```python\n{cell.source}\n```")
            outputs = _joined(cell.outputs)
            shown = [_output(each, f"{name}-{i}-{k}.png", folder) for k, each in enumerate(outputs)]
            parts += [part for part in shown if part]
    return "\n\n".join(parts) + "\n"


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs in which what was printed stands together, however it arrived."""
    joined: list[Any] = []
    for each in outputs:
        if each.output_type == "stream" and joined and joined[-1].output_type == "stream":
            joined[-1].text += each.text
        else:
            joined.append(each)
    return joined


def _output(output: Any, file: str, folder: Path) -> str:
    if output.output_type == "stream":
        return _text(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(base64.b64decode(data["image/png"]))
        return f"![what the cell shows]({file})"
    if "text/html" in data:
        return f'```{{raw}} html\n<div class="output">{_html(data["text/html"])}</div>\n```'
    return _text(data.get("text/plain", ""))


def _html(text: str) -> str:
    """HTML that means the same in a page: no blank line may end it early."""
    return re.sub(r"\n\s*\n", "\n", text)


def _text(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    return f"```text\n{plain}\n```" if plain else ""
