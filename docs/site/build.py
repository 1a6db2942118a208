"""Build the site: `python docs/site/build.py site` writes `site/html`, which needs no network.

The pages of the repository, a reference from docstrings, a gallery from the catalogue, the explorer
and the executed notebooks become MyST in `site/source`; Sphinx makes HTML of it, and stops at its
first warning; then every link and anchor of the result is checked.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery
import notebooks
import reference
from checking import trouble
from sources import contents, copy, copy_pages, write

from klip.pages.explorer.explorer import explorer_parts

HERE = Path(__file__).parent
DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(.*?)\n\}", re.DOTALL)


def build(folder: Path) -> list[str]:
    """Write the site into a folder; what is wrong with it, a line each."""
    source, extra, html = folder / "source", folder / "extra", folder / "html"
    for part in (source, extra, html):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    stage(source, extra)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning"]
    command += ["--keep-going", "--quiet", str(source), str(html)]
    if subprocess.run(command).returncode:
        return ["Sphinx warned, see above"]
    return trouble(html)


def stage(source: Path, extra: Path) -> None:
    """Write everything that Sphinx reads."""
    copy_pages(source, extra)
    write(source / "gallery.md", gallery.gallery())
    write(source / "explorer.md", explorer())
    for name, text in reference.pages().items():
        write(source / "reference" / f"{name}.md", text)
    for path in notebooks.paths():
        print(f"executing {path.name}", flush=True)
        shown = source / "docs/notebooks"
        text = notebooks.as_myst(notebooks.executed(path), path.stem, shown)
        write(shown / f"{path.stem}.md", text)
        copy(path, extra / "docs/notebooks" / path.name)
    copy(HERE / "conf.py", source / "conf.py")
    copy(HERE / "site.css", source / "_static" / "site.css")
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write("\n" + contents(GROUPS))


def explorer() -> str:
    """The page of the explorer, in the colours that the reader has chosen for the site."""
    parts = explorer_parts()
    css = DARK.sub(_as_chosen, parts.css)
    body = f"<style>{css}</style>\n{parts.html}\n<script>{parts.js}</script>"
    lines = [line for line in body.splitlines() if line.strip()]
    return _EXPLORER + "\n".join(["```{raw} html", *lines, "```"]) + "\n"


def _as_chosen(dark: re.Match[str]) -> str:
    """Rules for a dark page, where the reader chose one or leaves it to a system that is dark."""
    system = (
        f"@media (prefers-color-scheme: dark) {{ body:not([data-theme=light]) {{ {dark[1]} }} }}"
    )
    return f"{system}\nbody[data-theme=dark] {{ {dark[1]} }}"


_EXPLORER = """\
# Explorer

Pick two shapes, move their parameters, and see what the coefficient does. The page computes with
the library's own formulas, translated from what JAX traces of each shape. What the names mean is in
[the gallery](gallery.md).

"""

GROUPS = {
    "Start": ["docs/overview", "docs/install"],
    "Learn": ["docs/idea", "docs/writing-a-shape", "docs/guarantees", "docs/probe"],
    "Notebooks": [f"docs/notebooks/{path.stem}" for path in notebooks.paths()],
    "Train": [
        *(
            "docs/training",
            "docs/presets",
            "docs/tuning",
            "docs/comparing",
            "docs/league",
            "docs/plans",
            "docs/stale",
        ),
        *("docs/runs", "docs/report", "docs/policies", "docs/sinks"),
    ],
    "Language models and other trainers": [
        *("docs/tokens", "docs/token-experiment", "docs/trl", "docs/verl", "docs/sb3"),
        "docs/other-trainers",
    ],
    "Look up": ["gallery", "explorer", "reference/index"],
    "Evidence": [
        *(
            "results/README",
            "results/paper/README",
            "results/tokens/README",
            "results/stale/README",
            "results/guarantees/README",
            "results/league/README",
        ),
        "benchmarks/README",
    ],
    "Project": ["CONTRIBUTING", "CHANGELOG"],
}
"""What the side of every page lists."""


def main() -> int:
    """Build it, and say what is wrong."""
    parser = argparse.ArgumentParser(description="Build Klip's site")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("site"))
    folder = parser.parse_args().folder
    wrong = build(folder)
    print("\n".join(wrong) if wrong else f"the site is in {folder}/html/index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
