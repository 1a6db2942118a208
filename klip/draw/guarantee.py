"""`klip.guarantee`: a shape's promises, and a picture of two and three arms under it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, overload

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from klip.draw.style import (
    BAND,
    KILL,
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    check_format,
    figure,
    save,
    styled,
)
from klip.errors import KlipError
from klip.runs.files import LARGEST_TEXT, own_folder, read_file, write_whole
from klip.shapes import Region, Shape, parse
from klip.shapes.names import shape_of
from klip.theory.guarantee.adversary import Replay, read, replayed
from klip.theory.guarantee.ends import two_armed_end, where_it_ends
from klip.theory.guarantee.examine import examined
from klip.theory.guarantee.law import Law
from klip.theory.guarantee.verdict import Bandit, Guarantee
from klip.theory.views import Floats, raised_by

Subject = str | Region
ARMS: Final = Bandit((0.2, 0.5, 0.3), (1.0, 0.2, -1.0), (0.2, 0.5, 0.3))
"""What is drawn where improvement is not refuted: a good, a fair and a bad arm."""
MASSES: Final = np.geomspace(0.005, 0.9, 41)
CORNERS: Final = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


@overload
def guarantee(  # type: ignore[overload-overlap]  # a spelling is a sequence of letters
    shapes: Subject, output: str | Path | None = ..., seed: int = ...,
    keep: str | Path | None = ..., replay: None = ...,
) -> Guarantee: ...  # fmt: skip
@overload
def guarantee(
    shapes: Sequence[Subject], output: str | Path | None = ..., seed: int = ...,
    keep: str | Path | None = ..., replay: None = ...,
) -> list[Guarantee]: ...  # fmt: skip
@overload
def guarantee(
    shapes: Subject | Sequence[Subject] = ..., output: str | Path | None = ..., seed: int = ...,
    keep: str | Path | None = ..., *, replay: str | Path,
) -> Replay: ...  # fmt: skip
def guarantee(
    shapes: Subject | Sequence[Subject] = (),
    output: str | Path | None = None,
    seed: int = 0,
    keep: str | Path | None = None,
    replay: str | Path | None = None,
) -> Guarantee | list[Guarantee] | Replay:
    """Which promises a shape keeps, and a counterexample where it does not.

    Improvement (T1), any step size (T2), where the inner loop ends (T3), what it does to a suite of
    small MDPs, and what an adversary finds. docs/guarantees.md states and proves the theorems.

    >>> guarantee("clip").brief
    'T1 yes, T2 yes, T3 no'

    Args:
        shapes: a shape or its spelling, or several; a controller is looked at as it starts
        output: a file to draw to, .png, .svg or .pdf
        seed: seed of the MDPs and of the adversary
        keep: a folder to write the adversary's counterexamples to
        replay: play such a file again instead; one of somebody's own code needs the shape named

    Returns:
        one `Guarantee`, a list of them for a list of shapes, or the `Replay` of a file

    """
    one = isinstance(shapes, (str, Region))
    every: list[Subject] = [shapes] if isinstance(shapes, (str, Region)) else list(shapes)
    if replay is not None:
        return _replay(Path(replay), every)
    if not every:
        raise KlipError("name at least one shape, such as clip; `klip shapes` lists all")
    if seed < 0:
        raise KlipError(f"seed={seed} must be 0 or more")
    regions = [parse(each) if isinstance(each, str) else each for each in every]
    if output is not None:
        check_format(Path(output))
    if keep is not None:  # a folder that cannot be written is said before anything is computed
        own_folder(Path(keep))
    found = [examined(region, seed) for region in regions]
    if output is not None:
        save(picture([region.initial for region in regions], found), Path(output))
    if keep is not None:
        kept(found, Path(keep))
    return found[0] if one else found


def kept(found: Sequence[Guarantee], folder: Path) -> list[Path]:
    """Write each counterexample of the adversary to a file of its own in `folder`."""
    paths = []
    for i, each in enumerate(found):
        if each.counterexample is not None:
            name = "".join(c if c.isalnum() or c in "-.=" else "_" for c in each.shape)[:80]
            path = folder / f"{i}-{name}.json"
            write_whole(path, (json.dumps(each.counterexample, indent=1) + "\n").encode())
            paths.append(path)
    return paths


def _replay(path: Path, shapes: Sequence[Subject]) -> Replay:
    try:
        about = read(read_file(path, LARGEST_TEXT))
    except OSError as error:
        raise KlipError(f"cannot read {path}: {error.strerror}") from None
    except KlipError as error:
        raise KlipError(f"cannot replay {path}: {error}") from None
    if len(shapes) > 1:
        raise KlipError(f"--replay plays one shape, not {len(shapes)}: name one, or none")
    if shapes:
        region: Region | None = parse(shapes[0]) if isinstance(shapes[0], str) else shapes[0]
    else:
        region = shape_of(about["shape"])
    if region is None:
        raise KlipError(
            f"{path} is of {about['shape']}, whose code a file may not start: "
            f"name the shape before --replay"
        )
    with raised_by(region):
        return replayed(about, region.initial)


# -- the picture -----------------------------------------------------------------------------------


def picture(shapes: Sequence[Shape], found: Sequence[Guarantee] | None = None) -> Figure:
    """A column per shape: the flow of the inner loop on three arms, and where two arms end.

    On the simplex, the shaded part is where the return has fallen. The flow starts at the old
    policy. Where improvement is refuted, the bandit is the witness, and a cross marks the policy
    that raises the objective and lowers the return.
    """
    witnesses = [_witness(each) for each in found] if found is not None else [None] * len(shapes)
    with styled(), np.errstate(all="ignore"):
        fig = figure(3.0 * len(shapes) + 0.6, 5.6)
        axes = fig.subplots(2, len(shapes), squeeze=False, height_ratios=[1.25, 1])
        for i, (shape, witness) in enumerate(zip(shapes, witnesses, strict=True)):
            with raised_by(shape):
                _simplex(axes[0, i], Law(shape), witness)
                _two_arms(axes[1, i], Law(shape))
            brief = found[i].brief if found is not None else ""
            axes[0, i].set_title(f"{shape.brief}\n{brief}", fontsize=8.5)
        axes[1, 0].set_ylabel("where its ratio ends")
        for ax in axes[1, 1:]:
            ax.sharey(axes[1, 0])
    return fig


def _witness(found: Guarantee) -> Bandit | None:
    bandit = found["improvement"].bandit
    return bandit if bandit is not None and len(bandit.old) == 3 else None


def lattice(count: int) -> Floats:
    """Policies of three arms, evenly over the inside of the simplex; `[points, 3]`."""
    steps = np.arange(1, count) / count
    rows = [(a, b, 1 - a - b) for a in steps for b in steps if a + b < 1 - 0.5 / count]
    return np.array(rows)


def flow(law: Law, bandit: Bandit, policies: Floats) -> Floats:
    """The inner loop's direction q (G - mean of G) at each policy, `[points, 3]`."""
    old, a = np.array(bandit.old), np.array(bandit.advantages)
    w = policies / old
    g = law.of_actions(np.log(w), a, old) / w
    return np.asarray(policies * (g - (policies * g).sum(axis=1, keepdims=True)))


def _simplex(ax: Axes, law: Law, witness: Bandit | None) -> None:
    bandit = witness or ARMS
    old, a = np.array(bandit.old), np.array(bandit.advantages)
    fallen = _half(a)
    ax.fill(*(fallen @ CORNERS).T, color=BAND, lw=0, label="return falls")
    ax.fill(*CORNERS.T, facecolor="none", edgecolor=NEUTRAL, lw=0.8)
    points = lattice(17)
    way = flow(law, bandit, points) @ CORNERS
    size = np.linalg.norm(way, axis=1, keepdims=True)
    way = way / np.maximum(size, 1e-12) * np.where(size > 1e-9, 1.0, 0.0)
    ax.quiver(*(points @ CORNERS).T, *way.T, color=NEUTRAL, scale=30, width=0.004, alpha=0.75)
    _mark(ax, old, "o", POSITIVE, "old")
    _mark(ax, where_it_ends(law, old, a), "s", KILL, "end")
    if witness is not None:
        _mark(ax, np.array(witness.new), "X", NEGATIVE, "J up, return down")
    for corner, advantage, p in zip(CORNERS, a, old, strict=True):
        above = corner[1] > 0.5
        ax.annotate(
            f"A = {advantage:g}, p = {p:.3g}", corner, xytext=(0, 5 if above else -12),
            textcoords="offset points", ha="center", fontsize=7,
        )  # fmt: skip
    ax.legend(loc="upper left", fontsize=6.5, handletextpad=0.2)
    ax.set(aspect="equal", xlim=(-0.2, 1.2), ylim=(-0.12, 1.0))
    ax.axis("off")


def _half(a: Floats) -> Floats:
    """The corners of the part of the simplex where sum q A < 0, `[corners, 3]`."""
    corners, rows = np.eye(3), []
    for i in range(3):
        here, there = corners[i], corners[(i + 1) % 3]
        if a[i] < 0:
            rows.append(here)
        if a[i] * a[(i + 1) % 3] < 0:
            t = a[i] / (a[i] - a[(i + 1) % 3])
            rows.append(here + t * (there - here))
    return np.array(rows)


def _mark(ax: Axes, policy: Floats, marker: str, colour: str, label: str) -> None:
    x, y = policy @ CORNERS
    ax.plot([x], [y], marker, color=colour, ms=6, label=label, ls="none", mec="white", mew=0.6)


def _two_arms(ax: Axes, law: Law) -> None:
    ends = [two_armed_end(law, float(p), (1.0, -float(p / (1 - p)))) for p in MASSES]
    ax.loglog(MASSES, 1 / MASSES, color=NEUTRAL, lw=0.9, ls="--", label="all mass, 1/P+")
    ax.loglog(MASSES, ends, color=POSITIVE, label="end of the good arm")
    ax.set_xlabel("old probability P+ of the good arm")
    ax.legend(fontsize=6.5)


def as_data(found: Guarantee | Replay) -> dict[str, Any]:
    """What `klip guarantee --json` prints of it."""
    return found.as_dict() if isinstance(found, Guarantee) else dict(vars(found))
