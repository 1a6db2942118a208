"""What a policy loss takes, read off its signature: which parameter is which array."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from klip.errors import KlipError

STAR, STARS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
NONE_GIVEN = inspect.Parameter.empty

USUAL = ("new", "old", "advantage", "mask")
"""What the arguments are whose names do not tell, in this order."""

NAMES = {
    "mask": r"mask",
    "advantage": r"adv|^a$",
    "reference": r"(^|_)(ref|base(?!line))(?!.*(model|free))",
    "old": r"(?<![a-z])old|(?<![hf])old(?=$|_|log|prob)",
}
"""What the name of an argument has in it, by what it is; a new log-probability may have any."""

SETTING = re.compile(
    r"eps|clip|beta|coe?f|low$|high$|delta|cap$|tau|temp|alpha|gamma|lam|conf|cfg|args?$|mode|type"
    r"|agg|reduc|len|num|count|step|size|^kl|device"
)
"""What the names of settings have in them, which are no arrays."""

NO_MASK = re.compile(r"value|return|reward|entrop|logit|ids?$|prob|logp")
"""What the names of arrays have in them that are no masks either."""


@dataclass(frozen=True)
class Arguments:
    """What a loss takes: "new", "old", "reference", "advantage", "mask"."""

    order: tuple[str, ...]
    """The positional arguments, in order."""
    named: tuple[tuple[str, str], ...] = ()
    """(keyword, argument) of the others."""

    def __contains__(self, argument: str) -> bool:
        return argument in self.order or argument in dict(self.named).values()


def describe(function: Callable[..., Any]) -> str:
    """The name of the loss for messages."""
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def arguments_of(function: Callable[..., Any]) -> Iterator[Arguments]:
    """What a loss takes, by its signature: with all that may be left out, then without."""
    try:
        signature = inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        yield Arguments(USUAL[:3])
        return
    parameters = [p for p in signature.parameters.values() if p.kind not in (STAR, STARS)]
    needed = [p for p in parameters if p.default is NONE_GIVEN or _meaning(p.name) == "mask"]
    for taken in dict.fromkeys(_assigned(function, chosen) for chosen in (parameters, needed)):
        whole = "new" in taken and "advantage" in taken
        yield taken if whole else Arguments(USUAL[:3])


def _meaning(name: str) -> str:
    """What an argument of this name is, or "" if the name does not tell."""
    found = (what for what, pattern in NAMES.items() if re.search(pattern, name.lower()))
    return next(found, "")


def _assigned(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Arguments:
    """Which parameter gets what: by their names, and the others in the usual order."""
    by_name: dict[str, str] = {}
    for p in parameters:
        meaning = _meaning(p.name)
        optional = p.default is not NONE_GIVEN and p.default is not None
        if optional and (meaning != "mask" or isinstance(p.default, bool)):
            continue
        if meaning and meaning not in by_name.values():
            by_name[p.name] = meaning
    left = [what for what in USUAL if what not in by_name.values()]
    order: list[str] = []
    named: list[tuple[str, str]] = []
    by_place = True
    for p in parameters:
        what = by_name.get(p.name, "")
        if not what and p.default is NONE_GIVEN:
            name = p.name.lower()
            known = len(order) + len(named)
            unfit = known > 1 and (
                SETTING.search(name) or (left == ["mask"] and NO_MASK.search(name))
            )
            if not left or unfit:
                raise KlipError(
                    f"{describe(function)} needs '{p.name}', which is neither a log-probability of "
                    "the new, the old or a reference policy, nor an advantage, nor a mask; give "
                    f"it as a setting, {p.name}=VALUE, or probe a function without it"
                )
            what = left.pop(0)
        by_place &= bool(what) and p.kind is not inspect.Parameter.KEYWORD_ONLY
        if what and by_place:
            order.append(what)
        elif what:
            named.append((p.name, what))
    return Arguments(tuple(order), tuple(named))
