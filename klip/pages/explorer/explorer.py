"""The explorer: pick a shape, move its parameters, and see m, beta and the beta map follow.

Nothing is sampled ahead. Each shape is compiled to JavaScript from what JAX traces of it, so the
page draws with the library's formulas at any value; a test compares the two in a browser.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from markupsafe import Markup
from matplotlib.colors import to_hex

from klip.draw import style
from klip.draw.show import ADVANTAGES, RATIOS
from klip.errors import KlipError
from klip.pages.explorer.jaxpr_js import javascript
from klip.pages.template import embed, fill
from klip.shapes import (
    CONTEXT_FIELDS,
    Array,
    Band,
    Context,
    Controller,
    Region,
    Shape,
    Value,
    catalogue,
    numbers,
    parse,
    with_numbers,
)
from klip.shapes.value import is_number
from klip.theory.views import reference_context

COMPOSED: Final = (
    "clip(eps=by-age)",
    "clip(eps=per-age)",
    "clip(eps=at-age)",
    "clip(eps=by-position)",
    "clip(eps=by-step)",
    "clip(eps=by-progress)",
    "ramp(eps=from-end)",
    "aspo(eps=by-entropy)",
    "truncate * clip",
    "icepop * clip",
    "discount * clip",
    "max-age * clip",
    "weigh * clip",
    "vaco * clip",
    "m2po * clip",
    "clip + kl-k3(b=0.1)",
    "by-sign(positive=clip, negative=ramp)",
)
"""One composition with each gate, threshold and operator, beside the catalogue."""

START: Final = ("clip", "ramp")
"""What A and B show at first; where these are missing, the first two shapes."""

_DARK_MAP: Final = (
    "#FFD9A0", "#FDB863", "#E08214", "#A85A0C", "#5E3510",
    "#1B1E24", "#332A4F", "#574389", "#8073AC", "#B2ABD2", "#E4E0F5",
)  # fmt: skip
"""The beta map for a dark page: the same hues, and a centre of no colour there too."""


@dataclass(frozen=True)
class Parts:
    """The explorer as fragments for a page of its own or of somebody else's."""

    html: str
    css: str
    js: str
    left_out: Mapping[str, str]
    """the shapes that could not be compiled, and why; the html says so too"""


def explorer_parts(shapes: Sequence[Region] | None = None) -> Parts:
    """The explorer of these shapes, or of the whole catalogue with a few compositions.

    `css` applies inside `.klip-explorer` alone, and `js` must run once `html` is there. A page
    has one explorer. A controller stands for the shape it starts with.

    >>> from klip.shapes import Clip, Ramp
    >>> parts = explorer_parts([Clip(), Ramp()])
    >>> dict(parts.left_out), "Math.exp" in parts.js
    ({}, True)
    """
    regions = _everything() if shapes is None else list(shapes)
    if not regions:
        raise KlipError("there is no shape to explore; give at least one, such as Clip()")
    entries: list[dict[str, Any]] = []
    code: list[str] = []
    left_out: dict[str, str] = {}
    for value in regions:
        title = _unique(value.brief, [*left_out, *(entry["title"] for entry in entries)])
        try:
            entries.append(_entry(value, title, code))
        except KlipError as error:
            left_out[title] = str(error)
    data = {
        "shapes": entries,
        "context": {name: control | {"name": name} for name, control in _FACTS.items()},
        "start": _start([entry["title"] for entry in entries]),
        "ratios": RATIOS,
        "advantages": ADVANTAGES,
    }
    js = fill("explorer/explorer.js", data=embed(data), code=Markup(",\n".join(code)))
    return Parts(fill("explorer/explorer.html", left_out=left_out), _css(), js, left_out)


def explorer_page(shapes: Sequence[Region] | None = None) -> str:
    """The explorer of these shapes as one HTML page that needs no network."""
    parts = explorer_parts(shapes)
    texts = {name: Markup(getattr(parts, name)) for name in ("css", "html", "js")}
    return fill("explorer/page.html", **texts)


def _everything() -> list[Region]:
    shapes, controllers = catalogue(Shape).values(), catalogue(Controller).values()
    return [*(cls() for cls in shapes), *(cls() for cls in controllers), *map(parse, COMPOSED)]


def _unique(title: str, taken: Sequence[str]) -> str:
    candidates = (title if i == 1 else f"{title} ({i})" for i in itertools.count(1))
    return next(candidate for candidate in candidates if candidate not in taken)


def _start(titles: Sequence[str]) -> list[int]:
    if all(name in titles for name in START):
        return [titles.index(name) for name in START]
    return [0, min(1, len(titles) - 1)]


def _entry(value: Region, title: str, code: list[str]) -> dict[str, Any]:
    """What the page knows of one shape; its functions are added to `code`."""
    drawn = value.initial
    note = f"A controller: it starts as {drawn}, which is what is drawn." if value.adapts else ""
    variants = _variants(drawn)
    composed = len(list(value.parts())) > 1
    return {
        "title": title,
        "number": value.number,
        "family": "controller" if value.adapts else "composed" if composed else value.family,
        "reference": value.reference,
        "formula": _formulas(value),
        "note": note,
        "variants": [_variant(choice, shape, code) for choice, shape in variants],
        "own": next(i for i, (_, shape) in enumerate(variants) if shape == drawn),
    }


def _variant(choice: dict[str, str], shape: Shape, code: list[str]) -> dict[str, Any]:
    function, edges = _function(shape), _edges(shape)
    return {
        "choice": choice,
        "spelling": _spelling(shape),
        "parameters": [_control(*parameter) for parameter in _numbers(shape)],
        "needs": sorted(shape.needs),
        "code": _add(code, function),
        "weighs": "o[2] =" in function,
        "edges": None if edges is None else _add(code, edges),
    }


def _add(code: list[str], function: str) -> int:
    """The place of a function in `code`; it is added if it is not there yet."""
    if function not in code:
        code.append(function)
    return code.index(function)


def _variants(shape: Shape) -> list[tuple[dict[str, str], Shape]]:
    """The shape with each of its choices, and with one radius or two where it has a band."""
    options: list[list[tuple[str, str, dict[str, Any]]]] = []
    for f in dataclasses.fields(shape):
        if choices := f.metadata.get("choices"):
            options.append([(f.name, choice, {f.name: choice}) for choice in choices])
    if isinstance(shape, Band) and all(
        x is None or is_number(x) for x in (shape.eps, shape.low, shape.high)
    ):
        low = shape.eps if shape.low is None else shape.low
        high = shape.eps if shape.high is None else shape.high
        equal = {"eps": low, "low": None, "high": None}
        two = {"eps": None, "low": low, "high": high}
        options.append([("band", "equal sides", equal), ("band", "two sides", two)])
    return [
        (
            {name: choice for name, choice, _ in picked},
            with_numbers(shape, {k: v for _, _, new in picked for k, v in new.items()}),
        )
        for picked in itertools.product(*options)
    ]


def _function(shape: Shape) -> str:
    """(log w, A, parameters, context, out): sets m, beta and, if there is one, the KL's weight."""
    paths, needs = list(numbers(shape)), sorted(shape.needs)

    def views(log_ratio: Array, advantage: Array, *rest: Array) -> list[Array]:
        context = Context(**dict(zip(needs, rest, strict=False)))
        traced = with_numbers(shape, dict(zip(paths, rest[len(needs) :], strict=True)))
        weight = traced.kl_weight(log_ratio, advantage, context)
        return [
            traced.multiplier(log_ratio, advantage, context),
            traced.beta(log_ratio, advantage, context),
            *([] if weight is None else [weight]),
        ]

    return _arrow(views, paths, needs)


def _edges(shape: Shape) -> str | None:
    """As `_function`, but for the edges of the shape's band; None if it has none."""
    paths, needs, ones = list(numbers(shape)), sorted(shape.needs), np.ones(1)
    if shape.band(reference_context(shape, ones, ones), ones) is None:
        return None

    def edges(log_ratio: Array, advantage: Array, *rest: Array) -> list[Array]:
        context = Context(**dict(zip(needs, rest, strict=False)))
        traced = with_numbers(shape, dict(zip(paths, rest[len(needs) :], strict=True)))
        return list(traced.band(context, log_ratio) or ())

    return _arrow(edges, paths, needs)


def _arrow(function: Any, paths: Sequence[str], needs: Sequence[str]) -> str:
    body = javascript(
        function,
        ["l", "a", *(f"c[{i}]" for i in range(len(needs)))],
        [f"p[{i}]" for i in range(len(paths))],
        "o",
    )
    return f"(l, a, p, c, o) => {{ {body} }}"


def _numbers(value: Value, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Each numeric parameter: its dotted path, its value and what may stand there."""
    rules = {f.name: f.metadata for f in dataclasses.fields(value)}
    for key, part in value.parameters.items():
        if isinstance(part, Value):
            yield from _numbers(part, f"{prefix}{key}.")
        elif not isinstance(part, str):
            yield prefix + key, part, rules[key]


_UP_TO_ONE: Final = ("factor", "discount")


def _control(path: str, value: float, rules: Mapping[str, Any]) -> dict[str, Any]:
    """A slider for one parameter: from its least value to a round number four times its own.

    >>> control = _control("eps", 0.2, {"above": 0})
    >>> control["low"], control["high"], control["step"]
    (0.005, 1.0, 0.005)
    """
    above, at_least = rules.get("above"), rules.get("at_least")
    least = float(at_least if at_least is not None else above if above is not None else 0.0)
    low = min(least, 4 * value) if above is None and at_least is None else least
    high = 1.0 if path.split(".")[-1] in _UP_TO_ONE else _round_up(4 * abs(value) or 1.0)
    high = max(high, value, low + _round_up(2 * (value - low) or 1.0))
    step = _round_up((high - low) / 201)
    return {
        "path": path, "value": value, "low": round(low + step, 12) if above == low else low,
        "high": high, "step": step, "above": above, "at_least": at_least,
    }  # fmt: skip


def _round_up(x: float) -> float:
    """The next of ..., 0.5, 1, 2, 5, 10, ..."""
    unit = 10.0 ** math.floor(math.log10(x))
    scale = next(s for s in (1.0, 2.0, 5.0, 10.0) if s * unit >= x * (1 - 1e-9))
    return float(f"{scale * unit:.12g}")


def _fact(label: str, low: float, high: float, step: float, **rest: Any) -> dict[str, Any]:
    return {"label": label, "low": low, "high": high, "step": step, **rest}


_FACTS: Final[dict[str, dict[str, Any]]] = {
    "old_log_prob": _fact("old probability", 0.01, 1.0, 0.01, value=0.5),
    "kl": _fact("state KL", 0.0, 0.2, 0.001, value=0.03, auto="(log w)²/2"),
    "entropy": _fact("entropy", 0.0, 4.0, 0.05, value=1.0),
    "position": _fact("position", 0.0, 200.0, 1.0, value=50.0),
    "length": _fact("length", 1.0, 201.0, 1.0, value=101.0),
    "age": _fact("age", 0.0, 20.0, 0.5, value=0.0),
    "mask": _fact("mask", 0.0, 1.0, 1.0, value=1.0),
    "sequence": _fact("sequence", 0.0, 10.0, 1.0, value=0.0),
    "group": _fact("group", 0.0, 10.0, 1.0, value=0.0),
    "behaviour_log_ratio": _fact("old / sampler log-ratio", -3.0, 3.0, 0.05, value=0.0),
    "proximal_log_ratio": _fact("old / start log-ratio", -3.0, 3.0, 0.05, value=0.0),
    "reference_log_ratio": _fact(
        "new / reference log-ratio", -3.0, 3.0, 0.05, value=0.0, auto="log w"
    ),
    "reward": _fact("reward", -2.0, 2.0, 0.05, value=1.0, auto="A"),
    "step": _fact("step", 0.0, 2e6, 1e4, value=0.0),
    "progress": _fact("progress", 0.0, 1.0, 0.01, value=0.0),
    "effective_size": _fact("effective size", 0.01, 1.0, 0.01, value=1.0),
    "deviation": _fact("deviation", 0.0, 4.0, 0.05, value=0.0),
    "second_moment": _fact("second moment", 0.0, 1.0, 0.01, value=0.0),
}
"""How each context field is set in the page; they start as `klip show` assumes them. `auto` is
what a field follows until it is given a value; the old log-probability is set as a probability."""
assert _FACTS.keys() == CONTEXT_FIELDS.keys()


def _spelling(shape: Shape) -> list[str]:
    """The shape's spelling without folders: texts, and between them paths of parameters."""
    start, end = "\ue000", "\ue001"
    slots = {path: f"{start}{path}{end}" for path in numbers(shape)}
    spelled = re.sub(r"[^\s(]*/", "", str(with_numbers(shape, slots)))
    return re.split(f"{start}(.*?){end}", spelled)


def _formulas(value: Value) -> list[tuple[str, str]]:
    """The first paragraph of the docstring, and of those of its parts: (name, text)."""
    parts = [part for part in value.parts() if part.formula]
    return [("" if part is value else part.name, part.formula) for part in parts]


def _css() -> str:
    stops = style.BETA_MAP.resampled(11)
    light = ", ".join(to_hex(stops(i)) for i in range(11))
    names = ("BAND", "POSITIVE", "NEGATIVE", "NEUTRAL", "KILL", "PASS", "IN")
    colours = {name.lower(): getattr(style, name) for name in names}
    maps = {"light_map": light, "dark_map": ", ".join(_DARK_MAP)}
    return fill("explorer/explorer.css", **colours, **maps)
