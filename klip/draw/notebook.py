"""A trust region as a notebook shows it: its spelling, its formula and its picture."""

from __future__ import annotations

import html

from klip.draw import style
from klip.draw.sketch import sketch
from klip.errors import KlipError
from klip.shapes import Region

_CSS = f"""
.klip-shape {{ max-width: 32em; }}
.klip-shape .sketch {{ width: 100%; height: auto; display: block; }}
.klip-shape .sketch path, .klip-shape .sketch polyline {{ fill: none; stroke-width: 2; }}
.klip-shape .sketch .up {{ stroke: {style.POSITIVE}; }}
.klip-shape .sketch .down {{ stroke: {style.NEGATIVE}; }}
.klip-shape .sketch .axis {{ stroke: {style.NEUTRAL}; stroke-width: 0.5; }}
.klip-shape .sketch .free {{ stroke-width: 0.8; stroke-dasharray: 3 3; opacity: 0.7; }}
.klip-shape .sketch .both {{ stroke-dasharray: 6 6; }}
.klip-shape .sketch .jump {{ stroke-width: 1.1; stroke-dasharray: 1.5 2.5; }}
.klip-shape .sketch text {{ font-size: 10px; fill: currentColor; }}
"""


_KEY = (
    f'<div><span style="color: {style.POSITIVE}">A = 1</span>, '
    f'<span style="color: {style.NEGATIVE}">A = -1</span>; dashed: wA</div>'
)


def notebook(region: Region) -> str:
    """HTML that needs nothing else: what a region is called, what it computes, how it looks.

    A controller is drawn as the shape that it starts with.

    >>> from klip.shapes import Clip
    >>> text = notebook(Clip())
    >>> "clip(eps=0.2)" in text, "J = min(wA" in text, "<svg" in text
    (True, True, True)
    """
    named = [(part.name, part.formula) for part in region.parts() if part.formula]
    formulas = [text if len(named) == 1 else f"{name}: {text}" for name, text in named]
    lines = "".join(f"<div>{html.escape(line)}</div>" for line in formulas)
    title = f"<div><code>{html.escape(str(region))}</code></div>"
    return f'<div class="klip-shape"><style>{_CSS}</style>{title}{lines}{_picture(region)}</div>'


def _picture(region: Region) -> str:
    try:
        return sketch(region.initial) + _KEY
    except (KlipError, ArithmeticError, ValueError) as error:  # a shape is anybody's code
        return f"<div>It has no picture: {html.escape(str(error))}</div>"
