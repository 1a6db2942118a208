"""How intervals close as seeds are added: the picture of a comparison."""

from __future__ import annotations

import numpy as np

from klip.draw.lines import of_seeds
from klip.draw.palette import looks
from klip.draw.panel import Axis, Guide, Line, Mark, Panel, Picture
from klip.shapes.names import brief
from klip.studies.answering import Pair
from klip.studies.compare import Answers, unit

WORDS = {"final": "final return", "area": "return over training"}


def closing(answers: Answers) -> Picture:
    """A panel for each pair: the difference and its interval against seeds, 0 and the margin."""
    question = answers.question
    what = WORDS[question.metric] if unit(question) == "return" else "normalised score"
    panels = tuple(_panel(pair, what) for pair in answers.pairs)
    return Picture("comparison", panels, size=(3.8, 2.8))


def _panel(pair: Pair, what: str) -> Panel:
    shape, reference = brief(pair.shape), brief(pair.reference)
    seen = pair.looks
    title = f"{shape} against {reference}"
    x = Axis("seeds", tuple((float(look.seeds), str(look.seeds)) for look in seen))
    y = Axis(f"difference of {what}")
    if not seen:
        return Panel(title, x, y, (), pair.answer)
    seeds = np.array([look.seeds for look in seen], dtype=float)
    middle = np.array([look.difference for look in seen])
    low, high = (
        np.array([np.nan if end is None else end for end in ends])
        for ends in ([look.low for look in seen], [look.high for look in seen])
    )
    about = tuple(of_seeds(look.seeds) for look in seen)
    look = looks([reference, shape])
    marks: tuple[Mark, ...] = (
        Guide(0.0, "no difference"),
        Guide(seen[-1].margin, "margin", look=look[reference]),
        Guide(-seen[-1].margin, "", look=look[reference]),
        Line(title, look[shape], seeds, middle, low, high, about=about),
    )
    return Panel(title, x, y, marks, pair.answer)
