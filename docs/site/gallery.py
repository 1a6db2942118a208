"""The gallery: every shape of the catalogue, drawn, with what it promises and how it is used."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from typing import Any

from klip.adapters.common import given_shape
from klip.adapters.trl_settings import FIELDS as TRL
from klip.adapters.trl_settings import OF_SAMPLER
from klip.adapters.verl_settings import FIELDS as VERL
from klip.draw.sketch import sketch
from klip.errors import KlipError
from klip.ppo.config import Config, check
from klip.shapes import CONTEXT_FIELDS, Controller, Region, Shape, catalogue
from klip.theory.guarantee.table import in_brief

SB3 = ("old_log_prob", "kl", "entropy", "step", "progress")
"""What reaches the loss in `klip.adapters.sb3`, which needs its library to be imported."""
LONGEST = 44
"""Characters of a spelling that is written with all its parameters."""


def every() -> list[Region]:
    """Every shape and controller of the catalogue, with its usual parameters."""
    return [cls() for kind in (Shape, Controller) for cls in catalogue(kind).values()]


def gallery() -> str:
    """The page, as MyST."""
    families: dict[str, list[Region]] = defaultdict(list)
    for region in every():
        families["controller" if region.adapts else region.family].append(region)
    parts = [_ABOUT.format(count=len(every()))]
    for family, regions in families.items():
        title = family[0].upper() + family[1:] + ("s" if family == "controller" else "")
        parts += [f"## {title}", _index(regions), *map(entry, regions)]
    return "\n\n".join(parts) + "\n"


_ABOUT = """\
# Gallery

All {count} shapes and controllers that come with Klip, made from the catalogue itself. Each
picture has the multiplier m of ∇ log π on the left and the coefficient β on the right, against the
ratio w from 0 to 2: blue at A = 1, orange at A = −1, dashed where nothing is constrained. The
promises are T1 improvement, T2 at any step size, and T3 a bound on where the inner loop ends
([guarantees](docs/guarantees.md)); `yes` was looked at on a grid, `no` has a counterexample,
`open` was only measured. To move the parameters, go to [the explorer](explorer.md); to write
another, to [writing a shape](docs/writing-a-shape.md)."""


def _index(regions: list[Region]) -> str:
    # each picture is in the page once: the index only points to it
    cards = [
        f'<a href="#{region.name}"><code>{region.name}</code><svg class="sketch" role="img" '
        f'aria-label="{region.name}" viewBox="0 0 364 146"><use href="#sketch-{region.name}"/>'
        "</svg></a>"
        for region in regions
    ]
    return '<div class="index-of-shapes">' + "".join(cards) + "</div>"


def entry(region: Region) -> str:
    """One shape: picture, formula, promises, source, and a line for each trainer."""
    start = f" It starts as `{region.initial}`, which is drawn." if region.adapts else ""
    needs = "".join(
        f"\n- **needs** {name}: {CONTEXT_FIELDS[name]}" for name in sorted(region.initial.needs)
    )
    picture = sketch(region.initial).replace("<svg", f'<svg id="sketch-{region.name}"', 1)
    rows = "\n".join(f"| {trainer} | {line} |" for trainer, line in uses(region).items())
    return f"""\
### {region.name}

<div class="card-of-shape">{picture}</div>

`{region.formula}`{start}

- **promises** {in_brief(str(region))}
- **source** {html.escape(region.reference or "Klip", quote=False)}
- **in Python** {{py:class}}`klip.{type(region).__name__}`{needs}

| trainer | how |
|---|---|
{rows}"""


def uses(region: Region) -> dict[str, str]:
    """How each trainer takes it, as Markdown; or, where it refuses it, why.

    What is written down has passed the check that the trainer's own adapter makes.
    """
    spelled = str(region) if len(str(region)) <= LONGEST else region.brief
    sampler = " (TRL has to keep the sampler's log-probabilities)"
    return {
        "PPO": _ppo(spelled),
        "TRL": _line(region, "TRL", TRL, f'`KlipGRPOTrainer(shape="{spelled}", ...)`')
        + (sampler if not region.adapts and region.initial.needs & OF_SAMPLER else ""),
        "verl": _line(region, "verl", VERL, f'`KLIP_SHAPE="{spelled}"` and `loss_mode=klip`'),
        "SB3": _line(
            region.initial, "Stable-Baselines3", SB3,
            f'`KlipPPO("MlpPolicy", "CartPole-v1", shape="{spelled}")`',
        ),
    }  # fmt: skip


def _ppo(spelled: str) -> str:
    every: tuple[dict[str, Any], ...] = ({}, {"lag": 1}, {"replay": 4})
    for options in every:
        try:
            check(Config("CartPole-v1", spelled, **options))
        except KlipError as error:
            refused = error
            continue
        more = "".join(f" --{name} {value}" for name, value in options.items())
        return f'`klip train CartPole-v1 --shape "{spelled}"{more}`'
    return f"no: {_first(refused)}"


def _line(region: Region, trainer: str, fields: object, line: str) -> str:
    try:
        given_shape(region, trainer, fields)  # type: ignore[arg-type]
    except KlipError as error:
        return f"no: {_first(error)}"
    return line


def _first(error: KlipError) -> str:
    """Why it was refused, without the way out, as it stands in a table."""
    why = re.split(r"; it has |: pass |: give |: choose ", str(error))[0]
    return html.escape(why, quote=False).replace("|", "\\|").replace("*", "\\*")
