"""The geometry of PPO-Clip and PPO-KL: the paper's five figures, computed from the shapes.

Nothing here is drawn by hand. Every curve is a shape of the library evaluated on a grid, so a
figure that looks wrong means that a shape is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from klip.draw.curves import draw
from klip.draw.style import (
    BETA_MAP,
    IN,
    KILL,
    NEUTRAL,
    PASS,
    band_ticks,
    colour_of,
    figure,
    save,
    shade_band,
    styled,
    zero_line,
)
from klip.runs.files import own_folder
from klip.shapes import (
    AdaptiveKL,
    Clip,
    Feedback,
    ImportanceSampling,
    KLk1,
    PerSample,
    StrictClip,
)
from klip.theory.curves import along_ratio, values

EPS: Final = 0.2
B: Final = 0.5
"""The scalar coefficient of PPO-KL: its negative branch then turns at w = 0.5, in sight."""
RATIOS: Final = (0.4, 1.6)
WIDE: Final = (0.25, 1.75)


def clip_function() -> Figure:
    """w_c = clip(w, 1-eps, 1+eps), and where its gradient lives."""
    fig = figure(4.6, 3.3)
    with styled():
        ax = fig.subplots()
        shade_band(ax, 1 - EPS, 1 + EPS)
        ax.plot(RATIOS, RATIOS, color=NEUTRAL, linewidth=0.9, linestyle="--")
        clipped = along_ratio(StrictClip(eps=EPS), "objective", 1.0, RATIOS)
        draw(ax, clipped, color="black", linewidth=2.2)
        for edge, start in ((1 - EPS, RATIOS[0]), (1 + EPS, RATIOS[0])):
            ax.plot([start, edge, edge], [edge, edge, 0], color="#A0A0A0", lw=0.6, ls=":", zorder=1)
        ax.text(1.0, 1.5, "gradient flows", ha="center", fontweight="bold")
        ax.text(0.6, 0.85, r"$\nabla w_c = 0$", ha="center", color=NEUTRAL)
        ax.text(1.4, 1.11, r"$\nabla w_c = 0$", ha="center", color=NEUTRAL)
        ax.text(1.47, 1.5, "$w$", ha="right", va="bottom", color=NEUTRAL)
        band_ticks(ax, EPS)
        ax.set_yticks([1 - EPS, 1, 1 + EPS], [r"$1-\epsilon$", "$1$", r"$1+\epsilon$"])
        ax.set(xlim=RATIOS, ylim=RATIOS, xlabel="ratio $w$", ylabel="clipped ratio $w_c$")
    return fig


def surrogate() -> Figure:
    """wA, the clipped term and the smaller of the two, for each sign of the advantage."""
    fig = figure(7.2, 3.1)
    with styled():
        panels = fig.subplots(1, 2)
        for ax, advantage in zip(panels, (1.0, -1.0), strict=True):
            shade_band(ax, 1 - EPS, 1 + EPS)
            colour = colour_of(advantage)
            chosen = along_ratio(Clip(eps=EPS), "objective", advantage, RATIOS)
            draw(ax, chosen, color=colour, linewidth=5.0, alpha=0.4)
            clipped = along_ratio(StrictClip(eps=EPS), "objective", advantage, RATIOS)
            draw(ax, clipped, color="black", linewidth=1.2)
            free = along_ratio(ImportanceSampling(), "objective", advantage, RATIOS)
            draw(ax, free, color="black", linewidth=1.2, linestyle="--")
            band_ticks(ax, EPS)
            ax.set_title("$A > 0$" if advantage > 0 else "$A < 0$", color=colour)
            ax.set(xlim=RATIOS, xlabel="ratio $w$")
            ax.set_yticks([advantage], ["$A$"])
        gain, loss = panels
        gain.set_ylabel("objective")
        gain.text(1.4, 1.46, "$wA$", ha="right")
        gain.text(0.6, 0.83, r"$\mathrm{clip}(w)\,A$", ha="center")
        gain.text(1.4, 1.16, "min: bounded", ha="center", va="top", color=colour_of(1.0))
        loss.text(0.6, -0.54, "$wA$", ha="left")
        loss.text(1.4, -1.17, r"$\mathrm{clip}(w)\,A$", ha="center")
        loss.text(1.0, -1.4, "min: unbounded", ha="center", va="center", color=colour_of(-1.0))
    return fig


def multiplier() -> Figure:
    """m/w against w: the step of PPO-Clip beside the smooth branch of scalar PPO-KL."""
    fig = figure(7.2, 3.3)
    with styled():
        panels = fig.subplots(1, 2, sharey=True)
        shapes = {"PPO-Clip": Clip(eps=EPS), r"PPO-KL, one scalar $\beta$": KLk1(b=B)}
        for ax, (title, shape) in zip(panels, shapes.items(), strict=True):
            shade_band(ax, 1 - EPS, 1 + EPS)
            zero_line(ax)
            for advantage in (1.0, -1.0):
                ax.axhline(
                    advantage, color=colour_of(advantage), linewidth=0.8, linestyle="--", zorder=1
                )
                curve = along_ratio(shape, "effective_advantage", advantage, WIDE)
                draw(ax, curve, color=colour_of(advantage))
            band_ticks(ax, EPS)
            ax.set_yticks([-1, 0, 1], ["$-|A|$", "$0$", "$|A|$"])
            ax.set(xlim=WIDE, ylim=(-1.6, 3.1), xlabel="ratio $w$")
            ax.set_title(title)
        clip_ax, kl_ax = panels
        clip_ax.set_ylabel("effective multiplier $m/w$")
        up, down = colour_of(1.0), colour_of(-1.0)
        clip_ax.text(1.48, 0.1, "$A>0$ killed", ha="center", va="bottom", color=up)
        clip_ax.text(0.525, 0.1, "$A<0$ killed", ha="center", va="bottom", color=down)
        clip_ax.text(0.525, 1.1, "$A>0$ passes", ha="center", va="bottom", color=up)
        clip_ax.text(1.48, -0.93, "$A<0$ passes", ha="center", va="bottom", color=down)
        kl_ax.text(1.48, 1.45, r"$A + \beta/w$", ha="center", va="bottom", color=up)
        kl_ax.text(1.48, -0.58, r"$A + \beta/w$", ha="center", va="bottom", color=down)
        kl_ax.plot([B], [0.0], marker="o", markersize=5, color=down, clip_on=False)
        kl_ax.annotate(
            r"turns at $w = \beta/|A|$", (B, 0.0), (6, 7), textcoords="offset points", color=down
        )
    return fig


def morph() -> Figure:
    """Scalar, adaptive scalar, per-sample: only the last can become the step (A > 0)."""
    fig = figure(7.2, 2.9)
    start = KLk1(b=B)
    controller = AdaptiveKL(shape=start)
    grown = controller.update(controller.init(), Feedback(kl=10 * controller.target))
    shrunk = controller.update(controller.init(), Feedback(kl=0.0))
    with styled():
        panels = fig.subplots(1, 3, sharey=True)
        colour = colour_of(1.0)
        for ax in panels:
            shade_band(ax, 1 - EPS, 1 + EPS)
            zero_line(ax)
            ax.axhline(1.0, color=NEUTRAL, linewidth=0.8, linestyle="--", zorder=1)
            band_ticks(ax, EPS)
            ax.set_yticks([0, 1], ["$0$", "$A$"])
            ax.set(xlim=WIDE, ylim=(-0.25, 3.4), xlabel="ratio $w$")
        scalar, adaptive, sample = panels
        draw(scalar, along_ratio(start, "effective_advantage", 1.0, WIDE), color=colour)
        for state, alpha, name in (
            (grown, 0.4, r"$2\beta$"),
            (controller.init(), 0.65, r"$\beta$"),
            (shrunk, 1.0, r"$\beta/2$"),
        ):
            curve = along_ratio(controller.shape_at(state), "effective_advantage", 1.0, WIDE)
            draw(adaptive, curve, color=colour, alpha=alpha)
            adaptive.text(
                0.64,
                float(np.interp(0.64, curve.x, curve.y)) + 0.06,
                name,
                color=colour,
                fontsize=8,
            )
        steps = along_ratio(PerSample(eps=EPS), "effective_advantage", 1.0, WIDE)
        draw(sample, steps, color=colour)
        scalar.set_title(r"(a) one scalar $\beta$")
        adaptive.set_title(r"(b) scalar, adapted in time")
        sample.set_title(r"(c) one $\beta_t$ per sample")
        scalar.set_ylabel("effective multiplier $m/w$")
        for ax, says in (
            (scalar, r"$A + \beta/w$: never a step"),
            (adaptive, "the curve slides,\nits form stays"),
            (sample, r"$\beta_t = -wA$ on kill, else $0$:" + "\nPPO-Clip, exactly"),
        ):
            ax.text(
                0.98, 0.97, says, transform=ax.transAxes, ha="right", va="top",
                color=colour, fontsize=8, linespacing=1.4,
            )  # fmt: skip
        sample.text(1.48, 0.1, "killed", ha="center", va="bottom", color=KILL)
    return fig


def beta_map() -> Figure:
    """The (w, A) plane, coloured by beta: where PPO-Clip acts at all, and with which sign."""
    fig = figure(5.4, 3.9)
    w, advantage = np.linspace(*RATIOS, 601), np.linspace(-2.0, 2.0, 401)
    beta = values(PerSample(eps=EPS), "beta", w[None, :], advantage[:, None])
    limit = float(np.abs(beta).max())
    with styled():
        ax = fig.subplots()
        image = ax.imshow(
            beta, extent=(*RATIOS, -2.0, 2.0), origin="lower", aspect="auto", cmap=BETA_MAP,
            vmin=-limit, vmax=limit, interpolation="nearest",
        )  # fmt: skip
        zero_line(ax)
        for edge in (1 - EPS, 1 + EPS):
            ax.axvline(edge, color=NEUTRAL, linewidth=0.9, linestyle="--")
        plate = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2.5}
        for x, y, name, colour, says in (
            (1.4, 1.0, "kill", KILL, r"$\beta = -wA < 0$"),
            (0.6, -1.0, "kill", KILL, r"$\beta = -wA > 0$"),
            (0.6, 1.0, "pass", PASS, r"$\beta = 0$"),
            (1.4, -1.0, "pass", PASS, r"$\beta = 0$"),
            (1.0, 1.0, "in", IN, r"$\beta = 0$"),
            (1.0, -1.0, "in", IN, r"$\beta = 0$"),
        ):
            label = rf"$\mathbf{{I}}_{{\mathrm{{{name}}}}}$" + "\n" + says
            box = plate if name == "kill" else None
            ax.text(x, y, label, ha="center", va="center", color=colour, bbox=box, linespacing=1.4)
        band_ticks(ax, EPS)
        ax.set_yticks([-2, -1, 0, 1, 2])
        ax.set(xlabel="ratio $w$", ylabel="advantage $A$")
        bar = fig.colorbar(image, ax=ax, label=r"$\beta$", shrink=0.9)
        bar.outline.set_visible(False)
    return fig


FIGURES: Final[dict[str, Callable[[], Figure]]] = {
    "clip-function": clip_function,
    "surrogate": surrogate,
    "multiplier": multiplier,
    "morph": morph,
    "beta-map": beta_map,
}
"""Each figure by the stem of its file."""


def figures(output: str | Path = "figures", formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Draw the paper's five geometry figures; return the paths in the order written.

    >>> import tempfile
    >>> [path.name for path in figures(tempfile.mkdtemp(), ["svg"])][:2]
    ['clip-function.svg', 'surrogate.svg']

    Args:
        output: folder to write them to
        formats: png, svg or pdf, one or several

    Returns:
        the paths of all files, in the order in which they were written

    """
    written, folder = [], own_folder(Path(output))
    for stem, make in FIGURES.items():
        drawn = make()
        for suffix in formats:
            path = folder / f"{stem}.{suffix}"
            save(drawn, path)
            written.append(path)
    return written
