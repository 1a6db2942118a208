"""How numbers and intervals are written on a page; templates know these functions as filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from klip.draw.panel import minus
from klip.studies.comparing import CLAIM
from klip.studies.scores import Estimate
from klip.studies.study import plain

UNKNOWN: Final = "–"


def number(value: float | None, *beside: float | None) -> str:
    """A return, with as many digits as mean something beside the others of its cell.

    >>> number(2193.4), number(-21.7), number(0.1234), number(None), number(21.7, 500.0)
    ('2193', '−21.7', '0.123', '–', '22')
    """
    if value is None:
        return UNKNOWN
    size = max(abs(x) for x in (value, *beside) if x is not None)
    digits = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return minus(f"{round(value, digits) + 0.0:.{digits}f}")


def fixed(value: float | None) -> str:
    """A normalised score or a share: two decimals.

    >>> fixed(0.984), fixed(-0.2), fixed(-0.001), fixed(None)
    ('0.98', '−0.20', '0.00', '–')
    """
    return UNKNOWN if value is None else minus(f"{round(value, 2) + 0.0:.2f}")


def signed(value: float | None, *beside: float | None) -> str:
    """A difference, with its sign."""
    text = number(value, *beside)
    return text if value is None or value <= 0 else f"+{text}"


def cell(mean: float, std: float) -> str:
    """Mean and deviation.

    >>> cell(475.6, 23.7)
    '476 ± 24'
    """
    return f"{number(mean, std)} ± {number(std, mean)}"


def interval(estimate: Estimate | None, sign: bool = False) -> str:
    """The ends of an interval, or nothing where they cannot be known."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    show = signed if sign else number
    return f"[{show(estimate.low, estimate.high)}, {show(estimate.high, estimate.low)}]"


def difference(estimate: Estimate) -> str:
    """A signed number and its interval."""
    low, high = estimate.low, estimate.high
    return f"{signed(estimate.estimate, low, high)} {interval(estimate, sign=True)}".strip()


def percent(value: float | None) -> str:
    """A share, in percent.

    >>> percent(0.7314), percent(None)
    ('73.1 %', '–')
    """
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """A difference of shares, in percentage points, with its sign.

    >>> points(0.0123), points(-0.5), points(-0.0001)
    ('+1.2', '−50.0', '0.0')
    """
    if value is None:
        return UNKNOWN
    text = f"{100 * value:.1f}"
    return "0.0" if text in ("0.0", "-0.0") else minus(text) if value < 0 else f"+{text}"


def span(e: Estimate | None) -> str:
    """The interval of a share, in percent."""
    if e is None or e.low is None or e.high is None:
        return ""
    return minus(f"[{100 * e.low:.1f}, {100 * e.high:.1f}]")


def ends(e: Estimate | None) -> str:
    """The interval of a difference of shares, in points."""
    return f"[{points(e.low)}, {points(e.high)}]" if e is not None and _bounded(e) else ""


def reach(e: Estimate | None) -> str:
    """A difference of shares and its interval, in points."""
    if e is None:
        return UNKNOWN
    return f"{points(e.estimate)} {ends(e) or '(no interval can be known)'}"


def verdict(e: Estimate | None) -> str:
    """What a comparison shows, and no more: higher, lower or open.

    Where it is one of several, its corrected p-value decides.
    """
    p = None if e is None else e.p if e.p_holm is None else e.p_holm
    if e is None or p is None or p > CLAIM:
        return "open"
    return "higher" if e.estimate > 0 else "lower"


def chance(p: float | None) -> str:
    """A p-value.

    >>> chance(0.0314), chance(0.00002), chance(0.8), chance(None)
    ('0.031', '< 0.001', '0.80', '–')
    """
    if p is None:
        return UNKNOWN
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def estimate(e: Estimate | None) -> float | None:
    """The number alone."""
    return None if e is None else e.estimate


FILTERS: Final[tuple[Callable[..., Any], ...]] = (
    number, fixed, signed, cell, interval, difference, percent, points, span, ends, reach, verdict,
    chance, estimate, plain,
)  # fmt: skip


def _bounded(e: Estimate) -> bool:
    """Whether there is an interval: a single pair has none, nor do pairs that do not differ."""
    return e.low is not None and e.low != e.high


# -- intervals in the cells of a table ------------------------------------------------------------


def marks(
    estimates: Sequence[Estimate | None], scale: tuple[float, float] | None = None
) -> list[dict[str, float] | None]:
    """Where estimates and their intervals lie in their cells, in percent of the cell's width.

    Args:
        estimates: estimates on one scale; None has no mark
        scale: values at the left and right edge; unless given, the least and the largest

    """
    known = [e for e in estimates if e is not None]
    least, most = scale or (min(map(_low, known), default=0.0), max(map(_high, known), default=1.0))
    width = (most - least) or 1.0

    def at(value: float) -> float:
        return round(min(max((value - least) / width, 0.0), 1.0) * 100, 2)

    def mark(e: Estimate) -> dict[str, float]:
        left, right = at(_low(e)), at(_high(e))
        return {"left": left, "width": round(right - left, 2), "middle": at(e.estimate)}

    return [None if e is None else mark(e) for e in estimates]


def around_zero(estimates: Sequence[Estimate | None]) -> list[dict[str, float] | None]:
    """Marks of differences, with 0 in the middle of the cell."""
    known = [e for e in estimates if e is not None]
    farthest = max((max(abs(_low(e)), abs(_high(e))) for e in known), default=1.0) or 1.0
    return marks(estimates, (-farthest, farthest))


def _low(e: Estimate) -> float:
    return e.estimate if e.low is None else e.low


def _high(e: Estimate) -> float:
    return e.estimate if e.high is None else e.high
