"""The page of kept tokens: completions coloured by what happened to each token, over training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from klip.pages.reading import most_zeroed, of_frame, thinned, visible
from klip.pages.template import page
from klip.runs.kept import kept_paths, read_kept
from klip.theory.diagnostics import FATES


def render(frame: pl.DataFrame, name: str) -> str:
    """The page's HTML: kept tokens of a run with this name."""
    shapes = frame["shape"].unique(maintain_order=True).to_list()
    group = of_frame(thinned(frame), name)
    tokens = frame.select("step", "sequence", "place").n_unique()
    shares = [
        {"shape": visible(shape), "trained": trained, "shares": _shares(frame, shape)}
        for shape, trained in frame.select("shape", "trained").unique(maintain_order=True).rows()
    ]
    context: dict[str, Any] = {
        "name": visible(name),
        "shapes": [visible(shape) for shape in shapes],
        "steps": frame["step"].n_unique(),
        "shown": len(group.steps),
        "completions": frame.select("step", "sequence").n_unique(),
        "tokens": tokens,
        "fates": FATES,
        "shares": shares,
        "zeroed": most_zeroed(frame),
        "kept": [group.data],
    }
    return page("kept.html", [], context, None, ("tokens.css", "tokens.js"))


def report_of_kept(folder: Path) -> str | None:
    """The page of a folder with kept tokens; None if it has none."""
    if not kept_paths(folder):
        return None
    return render(read_kept(folder), folder.resolve().name)


def _shares(frame: pl.DataFrame, shape: str) -> list[float]:
    fates = frame.filter(pl.col("shape") == shape)["fate"]
    return [float((fates == fate).mean() or 0.0) for fate in FATES]  # type: ignore[arg-type]
