"""How every Klip figure looks, and how it reaches the disk.

One colour means one thing in all of them. Figures are made with matplotlib's object API: pyplot
keeps a global list of figures, and a library has no business there. The style replaces the
reader's own matplotlib settings for as long as a figure is drawn or written, so the same call
gives the same bytes on any desk.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from klip.disk import operations
from klip.errors import KlipError
from klip.runs.files import DiskTrouble, disk, write_whole

# Okabe & Ito's palette: its colours differ under every common form of colour blindness.
POSITIVE: Final = "#0072B2"
"""A > 0, in every figure."""
NEGATIVE: Final = "#D55E00"
"""A < 0, in every figure."""
NEUTRAL: Final = "#4D4D4D"
"""A = 0, and whatever has no sign."""

KILL: Final = "#8B1E5B"
PASS: Final = "#00745A"
IN: Final = "#5F5F5F"
PARTITION: Final[Mapping[str, str]] = {"in": IN, "kill": KILL, "pass": PASS}
"""The three parts of a batch; dark enough to set words in."""

BETA_MAP: Final = LinearSegmentedColormap.from_list(
    "klip-beta",
    ["#7F3B08", "#B35806", "#E08214", "#FDB863", "#FEE0B6", "#FFFFFF",
     "#D8DAEB", "#B2ABD2", "#8073AC", "#542788", "#2D004B"],
)  # fmt: skip
"""beta < 0 orange, beta > 0 purple: ColorBrewer's PuOr, safe for the colour-blind, with a centre
of pure white, so that no colour means no penalty."""

BAND: Final = "#EDEDED"

_NOT_LOOKS = (
    "backend", "interactive", "toolbar", "timezone", "datapath", "docstring", "webagg", "tk.",
    "savefig.directory", "macosx", "figure.max_open_warning", "figure.raise_window", "keymap",
)  # fmt: skip
_KLIP: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib, so it is there everywhere
    "font.size": 9.0,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 7.0,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#333333",
    "axes.labelcolor": "#222222",
    "axes.titlecolor": "#111111",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "butt",
    "lines.solid_joinstyle": "miter",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.9,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "klip",  # ids in an SVG are random otherwise
    "pdf.fonttype": 42,
}
SETTINGS: Final[dict[Any, Any]] = {
    **{k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(_NOT_LOOKS)},
    **_KLIP,
}

_METADATA: Final[dict[str, dict[str, None]]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Stamps that a format would put into the file, and that would make equal figures differ."""


def styled() -> AbstractContextManager[None]:
    """Klip's settings inside a `with`; after it, the caller's own come back.

    >>> with styled():
    ...     matplotlib.rcParams["svg.hashsalt"]
    'klip'
    """
    return matplotlib.rc_context(SETTINGS)


class Drawing(Figure):
    """A figure that a notebook shows: matplotlib's own is shown only where pyplot is imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        with styled():
            self.savefig(file, format="png")
        return file.getvalue()


def figure(width: float, height: float) -> Drawing:
    """An empty figure, its size in inches; add its axes inside `styled()` too."""
    with styled():
        return Drawing(figsize=(width, height), layout="constrained")


def check_format(path: Path) -> str:
    """The suffix of a figure's path, in small letters, if it is that of a figure."""
    suffix = path.suffix.lower()
    if suffix not in _METADATA:
        allowed = ", ".join(list(_METADATA)[:-1]) + f" or {list(_METADATA)[-1]}"
        raise KlipError(f"cannot write {path}: a figure is a {allowed} file, not '{path.suffix}'")
    return suffix


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the path's suffix names: png, svg or pdf.

    >>> save(Figure(), Path("clip.gif"))
    Traceback (most recent call last):
    klip.errors.KlipError: cannot write clip.gif: a figure is a .png, .svg or .pdf file, not '.gif'
    """
    path = Path(path)
    suffix = check_format(path)
    data = io.BytesIO()
    with styled():
        figure.savefig(data, format=suffix[1:], metadata=_METADATA[suffix])
    try:
        with disk(path):
            operations.make_folders(path.parent)
        write_whole(path, data.getvalue())
    except DiskTrouble as error:
        what = str(error).partition("; ")[0]
        raise KlipError(f"{what}; choose a folder that you may write to") from None


def colour_of(advantage: float) -> str:
    """The colour of an advantage's sign."""
    return POSITIVE if advantage > 0 else NEGATIVE if advantage < 0 else NEUTRAL


def shade_band(axes: Axes, low: float, high: float) -> None:
    """Shade the ratios within the trust region, behind everything else."""
    axes.axvspan(low, high, facecolor=BAND, edgecolor="none", zorder=0)


def zero_line(axes: Axes) -> None:
    """Draw the line at which a value changes sign."""
    axes.axhline(0.0, color="#9A9A9A", linewidth=0.7, zorder=1)


def band_ticks(axes: Axes, eps: float) -> None:
    """Name the ticks 1 - eps, 1 and 1 + eps, as in the paper's own figures."""
    axes.set_xticks([1 - eps, 1, 1 + eps], [r"$1-\epsilon$", "$1$", r"$1+\epsilon$"])
